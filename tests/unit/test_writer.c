/* SPDX-License-Identifier: Apache-2.0 */
/* What a catalogue holds, planned whole, in parts and for the ranks of a
 * strategy: every byte of every file is where a plain loop says.  `RSH_SEED`
 * repeats a run, `RSH_CASES` says how many catalogues there are. */
#include "recipe_support.h"

#include <time.h>

#include "rsh/wire/safetensors.h"
#include "rsh/writer/writer.h"

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
	struct rsh_conversion_options o;
};

static void draw_offers(struct show *w, uint32_t n_tensors)
{
	w->n = 1 + scene_below(MAX_OFFERS);
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
		int a = (int)scene_below(3) - 1;

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

	w->n_stages = 1 + scene_below(MAX_STAGES);
	w->mesh[0] = 1 + scene_below(MAX_MESH);
	w->mesh[1] = 1 + scene_below(MAX_MESH);
	w->n_ranks = w->mesh[0] * w->mesh[1];
	for (uint32_t i = 0; i < w->n; i++) {
		draw_axes(w, &w->offers[i]);
		for (uint32_t s = 0; s < w->n_stages; s++)
			w->offers[i].in_stage[s] = i == 0 || scene_below(2);
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
		};
	}
	return rsh_write_plan(w->s.cat, offers, w->n, w->dst, &w->o,
			      &w->s.plan, err);
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
static uint64_t write_records(const struct show *w, const struct record *r,
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
	if (w->o.format == RSH_FORMAT_SAFETENSORS) {
		struct rsh_record_shape sorted[MAX_OFFERS];

		rsh_safetensors_order(shapes, n, order);
		for (uint32_t i = 0; i < n; i++)
			sorted[i] = shapes[order[i]];
		assert_int_equal(rsh_safetensors_header(sorted, NULL, n, &meta,
							1, &header, &len,
							&err), 0);
		memcpy(out, header, len);
		free(header);
	}
	for (uint32_t i = 0; i < n; i++) {
		const struct record *x = &r[order[i]];

		if (w->o.format == RSH_FORMAT_CKPT)
			len += rsh_ckpt_header_write(
				&shapes[i], shapes[i].content_bytes, out + len);
		len += scene_slice(&w->s, &x->f->t, &x->box, all, out + len);
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
	uint32_t n_tensors = 1 + scene_below(MAX_TENSORS);

	memset(&w, 0, sizeof(w));
	w.s.names = rsh_names_new();
	w.s.gaps = scene_below(2);
	w.o.replicas = w.o.allow_missing = true;
	w.o.format = scene_below(2) ? RSH_FORMAT_CKPT : RSH_FORMAT_SAFETENSORS;
	w.o.cast = scene_below(3) ? RSH_DTYPE_UNKNOWN : RSH_DTYPE_FLOAT32;
	w.o.unlisted = scene_below(2) ? RSH_UNLISTED_COPY : RSH_UNLISTED_DROP;
	for (uint32_t i = 0; i < n_tensors; i++)
		scene_source(&w.s, i);
	scene_catalogue(&w.s, n_tensors);
	draw_offers(&w, n_tensors);
	if (scene_below(3)) {
		draw_strategy(&w);
	} else if (scene_below(2)) {
		w.o.format = RSH_FORMAT_SAFETENSORS;
		w.o.part_bytes = 1 + scene_below(3000);
	}
	if (plan(&w, &err))
		fail_msg("%s", err.text);
	if (w.o.part_bytes)
		check_parts(&w);
	else
		check_ranks(&w);
	scene_clear(&w.s);
	rsh_strategy_free(w.dst);
	return w.s.checked;
}

static void every_byte_is_in_its_place(void **unused)
{
	const char *seed = getenv("RSH_SEED"), *cases = getenv("RSH_CASES");
	uint64_t first = seed ? strtoull(seed, NULL, 10) : (uint64_t)time(NULL);
	uint64_t n = cases ? strtoull(cases, NULL, 10) : 3000, checked = 0;

	(void)unused;
	print_message("# RSH_SEED=%llu RSH_CASES=%llu\n",
		      (unsigned long long)first, (unsigned long long)n);
	for (uint64_t i = 0; i < n; i++) {
		scene_seed(first + i);
		checked += check_show();
	}
	print_message("# %llu bytes\n", (unsigned long long)checked);
	assert_true(checked > n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_byte_is_in_its_place),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
