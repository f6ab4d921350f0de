/* SPDX-License-Identifier: Apache-2.0 */
/* What a catalogue holds, planned whole, in parts and for the ranks of a
 * strategy: every byte of every file is where a plain loop says, or is told to
 * be lost.  `RSH_SEED` repeats a run, `RSH_CASES` says how many catalogues there
 * are. */
#include "recipe_support.h"

#include "rsh/plan/writer.h"
#include "rsh/wire/safetensors.h"

#define MAX_OFFERS 6
#define MAX_STAGES 2
#define MAX_MESH 3

/* An offer, and how the strategy cuts it. */
struct offered {
	char name[16];
	struct target t;
	bool in_stage[MAX_STAGES];
	int axis[RSH_MAX_DIMS]; /* of the mesh, that cuts it; -1: none */
};

struct show {
	struct scene s;
	uint32_t n;
	struct offered offers[MAX_OFFERS];
	struct rsh_strategy *dst;
	uint32_t n_stages, mesh[2], n_ranks; /* of a stage */
	struct rsh_plan_options o;
	bool told[MAX_OFFERS], lost[MAX_OFFERS]; /* some of it is lost */
};

static void draw_offers(struct show *w, uint32_t n_tensors)
{
	w->n = 1 + below(MAX_OFFERS);
	for (uint32_t i = 0; i < w->n; i++) {
		struct offered *f = &w->offers[i];

		snprintf(f->name, sizeof(f->name), "%c%u", 'z' - (int)i, i);
		scene_target(&w->s, n_tensors, &f->t);
		f->t.wide = w->o.cast == RSH_DTYPE_FLOAT32 && f->t.n_dims > 0;
	}
}

/* A dimension may be cut over an axis that no other one is cut over. */
static void draw_axes(const struct show *w, struct offered *f)
{
	bool used[2] = { false, false };

	for (uint32_t d = 0; d < f->t.n_dims; d++) {
		int a = (int)below(3) - 1;

		f->axis[d] = -1;
		if (a < 0 || used[a] || f->t.dims[d] % w->mesh[a])
			continue;
		used[a] = true;
		f->axis[d] = a;
	}
}

static void put_layout(const struct show *w, const struct offered *f,
		       uint32_t stage, char *json, size_t size)
{
	size_t at = strlen(json);

	at += (size_t)snprintf(json + at, size - at, "%s\"%u-%s\":"
			       "{\"dev_matrix\":[%u,%u],\"tensor_map\":[",
			       at ? "," : "", stage, f->name, w->mesh[0],
			       w->mesh[1]);
	for (uint32_t d = 0; d < f->t.n_dims; d++)
		at += (size_t)snprintf(json + at, size - at, "%s%d",
				       d ? "," : "",
				       f->axis[d] < 0 ? -1 : 1 - f->axis[d]);
	snprintf(json + at, size - at, "]}");
}

static void draw_strategy(struct show *w)
{
	char items[4096] = "", *json;

	w->n_stages = 1 + below(MAX_STAGES);
	w->mesh[0] = 1 + below(MAX_MESH);
	w->mesh[1] = 1 + below(MAX_MESH);
	w->n_ranks = w->mesh[0] * w->mesh[1];
	for (uint32_t i = 0; i < w->n; i++) {
		draw_axes(w, &w->offers[i]);
		for (uint32_t s = 0; s < w->n_stages; s++)
			w->offers[i].in_stage[s] = i == 0 || below(2);
	}
	for (uint32_t s = 0; s < w->n_stages; s++)
		for (uint32_t i = 0; i < w->n; i++)
			if (w->offers[i].in_stage[s])
				put_layout(w, &w->offers[i], s, items,
					   sizeof(items));
	assert_true(asprintf(&json, FILE_OF("%s", "%s"), items, "0") > 0);
	w->dst = make_strategy(w->s.names, "dst.json", json);
	assert_int_equal(w->dst->n_stages, w->n_stages);
	free(json);
}

static int plan(struct show *w, struct rsh_error *err)
{
	struct rsh_offer offers[MAX_OFFERS];

	for (uint32_t i = 0; i < w->n; i++) {
		struct offered *f = &w->offers[i];

		offers[i] = (struct rsh_offer){
			.name = rsh_names_add(w->s.names, f->name,
					      strlen(f->name)),
			.dtype = RSH_DTYPE_BFLOAT16,
			.n_dims = f->t.n_dims, .dims = f->t.dims,
			.n_parts = f->t.n_parts, .parts = f->t.parts,
			.boxes = f->t.n_boxes > 0,
		};
	}
	return rsh_write_plan(&(struct rsh_offers){ w->s.cat, offers, w->n },
			      w->dst, &w->o, &w->s.plan, err);
}

/* ---- what is told to be lost ---- */

/* Reads what rsh_box_text() wrote. */
static void read_box(const char *text, struct rsh_box *out)
{
	char *end;

	out->n_dims = 0;
	while (*text != ']') {
		const uint32_t d = out->n_dims++;

		out->from[d] = strtoull(text + 1, &end, 10);
		assert_int_equal(*end, ':');
		out->size[d] = strtoull(end + 1, &end, 10) - out->from[d];
		text = end;
	}
}

/* Is an element of the target that no file has in this box of its tensor? */
static bool lacks_some(const struct scene *s, const struct target *t,
		       const struct rsh_box *box)
{
	uint64_t at[RSH_MAX_DIMS] = { 0 };

	do {
		uint64_t number;
		const struct source *src = scene_place(s, t, at, &number);
		bool in = src->n_dims == box->n_dims && !scene_files(s, t, at);

		for (uint32_t d = src->n_dims; in && d-- > 0;) {
			const uint64_t i = number % src->dims[d];

			in = i >= box->from[d] &&
			     i < box->from[d] + box->size[d];
			number /= src->dims[d];
		}
		if (in)
			return true;
	} while (scene_step(at, t->dims, t->n_dims));
	return false;
}

/* What is told has something that is needed. */
static void told(void *ctx, const char *sentence)
{
	struct show *w = ctx;
	const char *elements = strstr(sentence, ", elements [");
	uint32_t i = 0;
	char name[16];

	assert_int_equal(sscanf(sentence, "lost: parameter %15[^,],", name), 1);
	while (strcmp(w->offers[i].name, name) != 0)
		assert_true(++i < w->n);
	w->told[i] = true;
	if (elements) {
		struct rsh_box box;

		read_box(strchr(elements, '['), &box);
		assert_true(lacks_some(&w->s, &w->offers[i].t, &box));
	}
}

/* ---- what a rank's file has to be ---- */

struct record {
	const struct offered *f;
	struct rsh_box box;
	int64_t dims[RSH_MAX_DIMS];
};

static bool is_listed(const struct offered *f)
{
	return f->in_stage[0] || f->in_stage[1];
}

/* The part of a rank, which stands at (rank / b, rank % b) of a mesh [a,b]. */
static void cut_for(const struct show *w, const struct offered *f,
		    uint32_t local, bool whole, struct record *out)
{
	const uint32_t at[2] = { w->dst ? local / w->mesh[1] : 0,
				 w->dst ? local % w->mesh[1] : 0 };

	out->f = f;
	out->box.n_dims = f->t.n_dims;
	for (uint32_t d = 0; d < f->t.n_dims; d++) {
		int a = whole ? -1 : f->axis[d];
		uint64_t size = f->t.dims[d] / (a < 0 ? 1 : w->mesh[a]);

		out->box.size[d] = size;
		out->box.from[d] = a < 0 ? 0 : at[a] * size;
		out->dims[d] = (int64_t)size;
	}
}

static uint32_t list_records(const struct show *w, uint32_t rank,
			     struct record *out)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < w->n; i++) {
		const struct offered *f = &w->offers[i];
		const uint32_t stage = w->dst ? rank / w->n_ranks : 0;

		if (w->dst && is_listed(f) && !f->in_stage[stage])
			continue;
		if (w->dst && !is_listed(f) &&
		    w->o.unlisted == RSH_UNLISTED_DROP)
			continue;
		cut_for(w, f, w->dst ? rank % w->n_ranks : 0,
			!w->dst || !is_listed(f), &out[n++]);
	}
	return n;
}

static void shape_of(const struct record *r, struct rsh_record_shape *out)
{
	uint64_t elements = 1;

	for (uint32_t d = 0; d < r->box.n_dims; d++)
		elements *= r->box.size[d];
	*out = (struct rsh_record_shape){
		.name = r->f->name, .name_len = strlen(r->f->name),
		.dtype = r->f->t.wide ? RSH_DTYPE_FLOAT32 :
					RSH_DTYPE_BFLOAT16,
		.n_dims = r->box.n_dims, .dims = r->dims,
		.content_bytes = elements * (r->f->t.wide ? 4 : 2),
	};
}

/* Writes a file of records; *all says whether its elements can be had. */
static uint64_t write_records(struct show *w, const struct record *r,
			      uint32_t n, bool *all, uint8_t *out)
{
	const struct rsh_safetensors_entry meta = {
		"format", w->o.part_bytes ? "pt" : "ms"
	};
	struct rsh_record_shape shapes[MAX_OFFERS] = { 0 };
	struct rsh_error err = RSH_ERROR_INIT;
	uint32_t order[MAX_OFFERS];
	uint8_t *header;
	size_t len = 0;

	for (uint32_t i = 0; i < n; i++) {
		shape_of(&r[i], &shapes[i]);
		order[i] = i;
	}
	if (w->o.framing != &rsh_ckpt_framing) {
		struct rsh_record_shape sorted[MAX_OFFERS];

		rsh_safetensors_order(shapes, n, order);
		for (uint32_t i = 0; i < n; i++)
			sorted[i] = shapes[order[i]];
		assert_int_equal(rsh_safetensors_header(
			&(struct rsh_safetensors_contents){
				sorted, NULL, n, &meta, 1,
			}, &header, &len, &err), 0);
		memcpy(out, header, len);
		free(header);
	}
	for (uint32_t i = 0; i < n; i++) {
		const struct record *x = &r[order[i]];
		bool has = true;

		if (w->o.framing == &rsh_ckpt_framing)
			len += rsh_ckpt_header_write(
				&shapes[i], shapes[i].content_bytes, out + len);
		len += scene_slice(&w->s, &x->f->t, &x->box, &has, out + len);
		w->lost[x->f - w->offers] |= !has;
		*all &= has;
	}
	return len;
}

static void check_file(struct show *w, uint32_t number, const struct record *r,
		       uint32_t n)
{
	static uint8_t want[1 << 18], have[1 << 18];
	bool all = true;
	uint64_t bytes = write_records(w, r, n, &all, want);

	assert_true(number < rsh_plan_n_files(w->s.plan));
	assert_int_equal(rsh_plan_n_records(w->s.plan, number), n);
	assert_int_equal(rsh_plan_is_lost(w->s.plan, number), !all);
	if (n > 0)
		assert_int_equal(rsh_plan_size(w->s.plan, number), bytes);
	if (!all || bytes == 0)
		return;
	scene_read(&w->s, number, 0, bytes, have);
	assert_memory_equal(have, want, bytes);
	w->s.checked += bytes;
}

/* Cuts the model into parts as a plain loop does. */
static void check_parts(struct show *w)
{
	struct record r[MAX_OFFERS];
	uint32_t n = list_records(w, 0, r), number = 0, first = 0;
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < n; i++) {
		struct rsh_record_shape s;

		shape_of(&r[i], &s);
		if (i > first && bytes + s.content_bytes > w->o.part_bytes) {
			check_file(w, number++, r + first, i - first);
			first = i;
			bytes = 0;
		}
		bytes += s.content_bytes;
	}
	check_file(w, number++, r + first, n - first);
	assert_int_equal(rsh_plan_n_files(w->s.plan), number);
}

static void check_ranks(struct show *w)
{
	const uint32_t n_files = w->dst ? w->n_stages * w->n_ranks : 1;

	assert_int_equal(rsh_plan_n_files(w->s.plan), n_files);
	for (uint32_t rank = 0; rank < n_files; rank++) {
		struct record r[MAX_OFFERS];
		uint32_t n = list_records(w, rank, r);

		check_file(w, rank, r, n);
	}
}

static uint64_t check_show(void)
{
	static struct show w;
	struct rsh_error err = RSH_ERROR_INIT;
	uint32_t n_tensors = 1 + below(MAX_TENSORS);

	memset(&w, 0, sizeof(w));
	w.s.names = rsh_names_new();
	w.s.gaps = below(2);
	w.o.replicas = w.o.allow_missing = true;
	w.o.report_lost = told;
	w.o.ctx = &w;
	w.o.framing = below(2) ? &rsh_ckpt_framing :
				       &rsh_safetensors_framing;
	w.o.cast = below(3) ? RSH_DTYPE_UNKNOWN : RSH_DTYPE_FLOAT32;
	w.o.unlisted = below(2) ? RSH_UNLISTED_COPY : RSH_UNLISTED_DROP;
	for (uint32_t i = 0; i < n_tensors; i++)
		scene_source(&w.s, i);
	scene_catalogue(&w.s, n_tensors);
	draw_offers(&w, n_tensors);
	if (below(3)) {
		draw_strategy(&w);
	} else if (below(2)) {
		w.o.framing = &rsh_hf_framing;
		w.o.division = RSH_DIVIDE_PARTS;
		w.o.part_bytes = 1 + below(3000);
	}
	assert_good(plan(&w, &err), err);
	if (w.o.part_bytes)
		check_parts(&w);
	else
		check_ranks(&w);
	assert_memory_equal(w.told, w.lost, sizeof(w.told));
	scene_clear(&w.s);
	rsh_strategy_free(w.dst);
	return w.s.checked;
}

TEST(every_byte_is_in_its_place)
{
	scene_cases(check_show);
}

/* ---- what is refused, lost or noted ---- */

#define BOX2(a, b, c, d) { 2, { a, b }, { c, d } }
static const uint64_t w_dims[] = { 8, 4 };

/* A job whose files have one tensor each, and what is offered of them. */
struct fixed {
	struct job *j;
	struct rsh_catalogue *cat;
	struct rsh_offer offers[4];
	struct rsh_recipe_part parts[4];
	struct rsh_factor factors[4][2];
	uint32_t n;
	struct rsh_plan_options o;
	char told[1024];
};

static void hear(void *ctx, const char *sentence)
{
	struct fixed *f = ctx;
	size_t n = strlen(f->told);

	snprintf(f->told + n, sizeof(f->told) - n, "%s\n", sentence);
}

static struct fixed fixed_new(const char *dst_items)
{
	struct fixed f = { .j = job_new(NULL, dst_items) };
	struct rsh_source_view view = { .n_ranks = MAX_FILES,
					.names = f.j->names };

	job_file(f.j, 0, FILE_WITH(BF16("w", 4, 4)));
	view.index = f.j->index;
	f.cat = rsh_catalogue_new(&view);
	assert_non_null(f.cat);
	f.o.replicas = true;
	f.o.framing = &rsh_safetensors_framing;
	f.o.report_lost = hear;
	return f;
}

/* A tensor [8,4] of these boxes, of which file 0 has the first n_held. */
static void fixed_offer(struct fixed *f, const char *name,
			const struct rsh_box *boxes, uint32_t n,
			uint32_t n_held)
{
	const struct rsh_holder holders[] = {
		{ 0, 0, 0 }, { 1, 0, 0 }, { 2, 0, 0 }
	};
	const struct rsh_tensor t = {
		.dtype = RSH_DTYPE_BFLOAT16, .n_dims = 2, .dims = w_dims,
	};
	struct rsh_cut *cut;
	uint32_t number;

	assert_int_equal(rsh_cut_of_boxes(w_dims, 2, boxes, n, &cut,
					  &f->j->err), 0);
	number = tensor_add(f->cat, name, t, cut, holders, n_held);
	f->parts[f->n] = rsh_recipe_whole(f->cat, number, NULL,
					  f->factors[f->n]);
	f->offers[f->n] = (struct rsh_offer){
		f->cat->tensors[number]->name, t.dtype, 2, w_dims, 1,
		&f->parts[f->n], true
	};
	f->n++;
}

static void fixed_whole(struct fixed *f, const char *name)
{
	const struct rsh_box all = BOX2(0, 0, 8, 4);

	fixed_offer(f, name, &all, 1, 1);
}

static int fixed_plan(struct fixed *f)
{
	f->o.ctx = f;
	return rsh_write_plan(&(struct rsh_offers){ f->cat, f->offers, f->n },
			      f->j->dst, &f->o, &f->j->c, &f->j->err);
}

static void fixed_refused(struct fixed *f, int rc, const char *sentence)
{
	assert_int_equal(fixed_plan(f), rc);
	assert_string_equal(f->j->err.text, sentence);
	job_free(f->j);
}

static const struct rsh_box halves[] = {
	BOX2(0, 0, 4, 4), BOX2(4, 0, 4, 2), BOX2(4, 2, 4, 2)
};

TEST(elements_in_no_chunk_are_told)
{
	struct fixed f = fixed_new(NULL);

	fixed_offer(&f, "w", halves, 2, 2);
	fixed_refused(&f, -ENOENT, "parameter w: elements [4:8,2:4] are in no "
		      "chunk, but rank 0 needs them; --allow-missing shows "
		      "the rest");
	assert_string_equal(f.told, "lost: parameter w, elements [4:8,2:4], "
			    "which are in no chunk\n");
}

/* Every other row is shown, and no more is missed. */
static void miss_even_rows(const struct rsh_box *boxes, uint32_t n,
			   uint32_t n_held, const char *message,
			   const char *told)
{
	static const uint64_t zero[2], dims[] = { 4, 4 };
	static const struct rsh_factor factors[] = { { 4, 1, 2, 0, 0 },
						     { 4, 1, 1, 1, 1 } };
	static const struct rsh_recipe_part part = {
		0, 2, factors, zero, zero
	};
	struct fixed f = fixed_new(NULL);
	char *sentence;

	fixed_offer(&f, "w", boxes, n, n_held);
	f.offers[0].dims = dims;
	f.offers[0].boxes = false;
	f.offers[0].parts = &part;
	assert_true(asprintf(&sentence, "parameter w: elements %s, but rank 0 "
			     "needs them; --allow-missing shows the rest",
			     message) > 0);
	fixed_refused(&f, -ENOENT, sentence);
	assert_string_equal(f.told, told);
	free(sentence);
}

TEST(elements_between_those_shown_are_not_told)
{
	static const struct rsh_box rows[] = {
		BOX2(0, 0, 3, 4), BOX2(5, 0, 3, 4), BOX2(3, 0, 1, 4),
		BOX2(4, 0, 1, 4)
	};

	miss_even_rows(halves, 2, 2, "[4:5,2:4] are in no chunk",
		       "lost: parameter w, elements [4:5,2:4], which are in no "
		       "chunk\n");
	miss_even_rows(rows, 4, 2, "[4:5,0:4] are in no file that is there",
		       "lost: parameter w, elements [4:5,0:4]\n");
}

TEST(lost_chunks_are_told)
{
	struct fixed f = fixed_new(LAYOUT("w", "[2]", "[0,-1]"));

	f.o.allow_missing = true;
	fixed_offer(&f, "w", halves, 3, 1);
	assert_int_equal(fixed_plan(&f), 0);
	assert_false(rsh_plan_is_lost(f.j->c, 0));
	assert_true(rsh_plan_is_lost(f.j->c, 1));
	assert_string_equal(rsh_plan_lost(f.j->c), "parameter w: elements "
			    "[4:8,0:2] are in no file that is there, but rank "
			    "1 needs them (2 slices of 1 parameters are lost "
			    "in all)");
	assert_string_equal(f.told, "lost: parameter w, elements [4:8,0:2]\n"
			    "lost: parameter w, elements [4:8,2:4]\n");
	job_free(f.j);
}

TEST(layouts_that_do_not_fit_are_refused)
{
	struct fixed f = fixed_new(LAYOUT("w", "[3]", "[0,-1]"));

	fixed_whole(&f, "w");
	fixed_refused(&f, -EINVAL, "parameter w of shape [8,4] cannot be cut "
		      "as mesh [3] map [0,-1] (dst.json): dimension 0 of size "
		      "8 cannot be cut into 3 equal slices");
	f = fixed_new(LAYOUT("w", "[2]", "[0]"));
	fixed_whole(&f, "w");
	fixed_refused(&f, -EINVAL, "parameter w of shape [8,4] cannot be cut "
		      "as mesh [2] map [0] (dst.json): its tensor map has 1 "
		      "dimensions, the tensor has 2");
}

TEST(what_is_not_listed_may_be_an_error)
{
	struct fixed f = fixed_new(LAYOUT("w", "[2]", "[0,-1]"));

	f.o.unlisted = RSH_UNLISTED_ERROR;
	fixed_whole(&f, "w");
	fixed_whole(&f, "v");
	fixed_refused(&f, -EINVAL, "parameter v is not listed by dst.json");
	f = fixed_new(LAYOUT("w", "[2]", "[0,-1]"));
	fixed_whole(&f, "v");
	fixed_refused(&f, -EINVAL, "rank 0: no parameter of the source files "
		      "is listed by dst.json");
}

/* States of optimizers are noted, but a weight is no matter of course. */
TEST(weights_that_the_source_lacks)
{
	struct fixed f = fixed_new(
		LAYOUT("net.w", "[2]", "[0,-1]") ","
		LAYOUT("net.layer.1.w", "[2]", "[0,-1]") ","
		LAYOUT("head.w", "[2]", "[0,-1]") ","
		LAYOUT("ours.net.w", "[2]", "[0,-1]") ","
		LAYOUT("ours.head.w", "[2]", "[0,-1]") ","
		LAYOUT("adam_m.net.w", "[2]", "[0,-1]") ","
		LAYOUT("count", "[2]", "[0,-1]"));

	fixed_whole(&f, "net.w");
	f.o.report_doubt = hear;
	assert_int_equal(fixed_plan(&f), 0);
	assert_string_equal(f.told, "2 parameters that dst.json lists are not "
			    "in the source (net.layer.1.w and others)\n");
	assert_string_equal(rsh_plan_note(f.j->c, 0), "4 parameters that "
			    "dst.json lists are not in the source (ours.net.w "
			    "and others)");
	assert_null(rsh_plan_note(f.j->c, 1));
	job_free(f.j);
}

TEST(what_the_source_lacks_is_noted)
{
	struct fixed f = fixed_new(LAYOUT("w", "[2]", "[0,-1]") ","
				   LAYOUT("m", "[2]", "[0,-1]") ","
				   LAYOUT("v", "[2]", "[0,-1]"));

	fixed_whole(&f, "w");
	assert_int_equal(fixed_plan(&f), 0);
	assert_string_equal(rsh_plan_note(f.j->c, 0), "2 parameters that "
			    "dst.json lists are not in the source (m and "
			    "others)");
	assert_null(rsh_plan_note(f.j->c, 1));
	job_free(f.j);
}

/* Files by kind have no gradients, whatever the strategy lists. */
TEST(gradients_are_not_missed)
{
	struct fixed f = fixed_new(LAYOUT("w", "[2]", "[0,-1]") ","
				   LAYOUT("accu_grads.w", "[2]", "[0,-1]"));

	f.o.division = RSH_DIVIDE_KINDS;
	fixed_whole(&f, "w");
	assert_int_equal(fixed_plan(&f), 0);
	assert_null(rsh_plan_note(f.j->c, 0));
	job_free(f.j);
}

static const char *rename_to_w(void *ctx, const char *name)
{
	(void)ctx;
	return *name == 'v' ? "w" : NULL;
}

static bool want_none(void *ctx, const char *name)
{
	(void)ctx;
	(void)name;
	return false;
}

TEST(names_are_asked_for)
{
	struct fixed f = fixed_new(NULL);

	f.o.rename = rename_to_w;
	fixed_whole(&f, "w");
	fixed_whole(&f, "v");
	fixed_refused(&f, -EINVAL, "renaming gives two parameters the name w");
	f = fixed_new(NULL);
	f.o.wanted = want_none;
	fixed_whole(&f, "w");
	fixed_refused(&f, -EINVAL, "no parameter is left (parameters are "
		      "selected by their names before --rename)");
}

/* Weights are cast, an optimizer's state is not. */
TEST(weights_alone_are_cast)
{
	struct fixed f = fixed_new(NULL);

	f.o.cast = RSH_DTYPE_FLOAT32;
	f.o.framing = &rsh_ckpt_framing;
	fixed_whole(&f, "w");
	fixed_whole(&f, "adam_m.w");
	fixed_whole(&f, "optimizer.state.w.exp_avg");
	assert_int_equal(fixed_plan(&f), 0);
	assert_records(f.j, 0, "w[8,4] BFloat16:adam_m.w[8,4] "
			       "BFloat16:optimizer.state.w.exp_avg[8,4]");
	job_free(f.j);
}

/* A quantised weight and its scales, of which file 0 has some. */
static void fixed_scaled(struct fixed *f, struct rsh_quantised *q,
			 const struct rsh_box *boxes, uint32_t n,
			 uint32_t n_held)
{
	*q = (struct rsh_quantised){
		.type = RSH_DTYPE_BFLOAT16, .n_rows = 8, .n_columns = 4,
		.block = { 1, 1 }, .scale_type = RSH_DTYPE_FLOAT32,
	};
	f->o.framing = &rsh_ckpt_framing;
	fixed_whole(f, "w");
	fixed_offer(f, "w_scale_inv", boxes, n, n_held);
	f->cat->tensors[0]->dtype = RSH_DTYPE_FLOAT8E4M3FN;
	f->cat->tensors[0]->quantised = q;
	f->cat->tensors[1]->dtype = RSH_DTYPE_FLOAT32;
	q->scales = f->cat->tensors[1];
	f->n = 1;
}

/* A quantised weight becomes the type that was asked for, or that of a cast. */
TEST(scaled_weights_have_the_wanted_type)
{
	for (int cast = 0; cast < 3; cast++) {
		struct fixed f = fixed_new(NULL);
		struct rsh_quantised q;

		f.o.cast = cast == 0 ? RSH_DTYPE_UNKNOWN :
			   cast == 1 ? RSH_DTYPE_BFLOAT16 : RSH_DTYPE_FLOAT16;
		fixed_scaled(&f, &q, halves, 3, 3);
		assert_int_equal(fixed_plan(&f), 0);
		assert_records(f.j, 0, cast == 2 ? "Float16:w[8,4]" :
						   "BFloat16:w[8,4]");
		job_free(f.j);
	}
}

TEST(lost_scales_are_told)
{
	struct fixed f = fixed_new(NULL);
	struct rsh_quantised q;

	fixed_scaled(&f, &q, halves, 3, 2);
	fixed_refused(&f, -ENOENT, "parameter w: elements [4:8,2:4] of "
		      "w_scale_inv are in no file that is there, but rank 0 "
		      "needs them; --allow-missing shows the rest");
	assert_string_equal(f.told, "lost: parameter w, elements [4:8,2:4]\n");
}

TEST(types_that_the_format_lacks_are_refused)
{
	struct fixed f = fixed_new(NULL);

	fixed_whole(&f, "w");
	f.cat->tensors[0]->dtype = RSH_DTYPE_HIFLOAT8;
	f.offers[0].dtype = RSH_DTYPE_HIFLOAT8;
	fixed_refused(&f, -ENOTSUP, "parameter \"w\" is of type HiFloat8, "
		      "which safetensors files cannot hold");
}

/* Both ranks hold the same; "a" is not there and takes its turn. */
TEST(redundancy_is_dealt_out)
{
	struct fixed f = fixed_new(LAYOUT("d", "[2]", "[-1,-1]") ","
				   LAYOUT("c", "[2]", "[-1,-1]") ","
				   LAYOUT("a", "[2]", "[-1,-1]") ","
				   LAYOUT("b", "[2]", "[-1,-1]"));

	f.o.framing = &rsh_ckpt_framing;
	f.o.remove_redundancy = true;
	fixed_whole(&f, "d");
	fixed_whole(&f, "b");
	fixed_whole(&f, "c");
	fixed_whole(&f, "e");
	assert_int_equal(fixed_plan(&f), 0);
	assert_records(f.j, 0, "BFloat16:c[8,4] BFloat16:e[8,4]");
	assert_records(f.j, 1, "BFloat16:d[8,4] BFloat16:b[8,4] "
			       "BFloat16:e[8,4]");
	job_free(f.j);
}
