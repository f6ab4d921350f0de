/* SPDX-License-Identifier: Apache-2.0 */
/* formats/checkpoint2/text.c writes metadata.json piece by piece, and
 * common.json.  Each tensor has one piece in state_dict_metadata and one in
 * storage_data; the places of all pieces are known.  A piece is written into a
 * window that keeps only the bytes of the read. */
#include "config.h"

#include "text_i.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/arena.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"
#include "rsh/wire/json_text.h"

/* This is a mesh, whose axes are identified by their strides, and the axes that
 * split each dimension, most significant first. */
#define AXES_MAX (2 * RSH_GRID_MAX_AXES)
struct emit_layout {
	uint32_t n_mesh;
	struct rsh_grid_axis mesh[AXES_MAX];
	uint32_t n[RSH_MAX_DIMS];
	uint32_t strides[RSH_MAX_DIMS][AXES_MAX];
};

struct rsh_ckpt2_text {
	struct rsh_ckpt2_tree tree;
	struct rsh_arena arena; /* of all that follows */
	const char **names; /* [tensor]: as JSON, with quotes */
	const char **keys;  /* [tensor]: "('NAME' as JSON */
	/* [2 * n + 1]: the begin of each piece, those of storage_data second,
	 * and the end of the last one */
	uint64_t *at;
};

static const char text_head[] = "{\"state_dict_metadata\":{";
static const char text_middle[] = "},\"storage_data\":{";
static const char text_tail[] = "}}";

/* ---- layouts ---- */

static void layout_add_axis(struct emit_layout *l, uint32_t size,
			    uint32_t stride)
{
	if (size > 1)
		l->mesh[l->n_mesh++] = (struct rsh_grid_axis){ size, stride };
}

RSH_ORDER(axis_by_stride, struct rsh_grid_axis,
	  (x->stride < y->stride) - (x->stride > y->stride))

/* Makes the layout of a tensor.  The optimizer shards are on consecutive ranks
 * among those with the same slice: on the innermost free axes.  The last of
 * these axes may be used in part.  Returns false if no map can express it. */
static bool layout_make(const struct rsh_ckpt2_tensor *t, struct emit_layout *l)
{
	const struct rsh_grid *g = t->cut ? rsh_cut_grid(t->cut) : NULL;
	uint32_t parts[RSH_GRID_MAX_AXES], n = 0, left = g ? g->shard : 1;

	memset(l, 0, sizeof(*l));
	if (t->cut && !g)
		return false;
	if (!g)
		layout_add_axis(l, t->n_ranks, 1);
	for (uint32_t d = 0; g && d < g->n_dims; d++)
		for (uint32_t a = g->first[d]; a < g->first[d + 1]; a++) {
			layout_add_axis(l, g->axes[a].size, g->axes[a].stride);
			l->strides[d][l->n[d]++] = g->axes[a].stride;
		}
	for (uint32_t i = g ? g->n_free : 0; i-- > 0;) {
		const struct rsh_grid_axis *a = &g->free[i];
		const uint32_t part = left % a->size ? left : a->size;

		if (a->size % part)
			return false;
		if (part > 1)
			parts[n++] = a->stride;
		layout_add_axis(l, part, a->stride);
		layout_add_axis(l, a->size / part, a->stride * part);
		left /= part;
	}
	while (n > 0)
		l->strides[0][l->n[0]++] = parts[--n];
	if (l->n_mesh == 0)
		l->mesh[l->n_mesh++] = (struct rsh_grid_axis){ 1, 1 };
	qsort(l->mesh, l->n_mesh, sizeof(*l->mesh), axis_by_stride);
	return left == 1;
}

/* ---- slices ---- */

static uint32_t count_slices(const struct rsh_ckpt2_tensor *t)
{
	return t->cut ? rsh_cut_n_cells(t->cut) : 1;
}

static uint32_t count_slices_along(const struct rsh_ckpt2_tensor *t, uint32_t d)
{
	return t->cut ? rsh_grid_split(rsh_cut_grid(t->cut), d) : 1;
}

static uint32_t slice_n_ranks(const struct rsh_ckpt2_tensor *t, uint32_t k)
{
	return t->cut ? rsh_cut_n_replicas(t->cut, k) : t->n_ranks;
}

/* Returns the i-th rank, in ascending order, that has slice k.  (Cells of a
 * grid have the same numbers as slices.) */
static uint32_t slice_rank(const struct rsh_ckpt2_tensor *t, uint32_t k,
			   uint32_t i)
{
	return t->first + (t->cut ? rsh_cut_member(t->cut, k, i) : i);
}

/* Finds the first rank whose file has slice k.  Returns false if there is
 * none. */
static bool slice_stored(const struct rsh_ckpt2_tree *tree, uint32_t i,
			 uint32_t k, uint32_t *rank)
{
	const struct rsh_ckpt2_tensor *t = &tree->tensors[i];
	const uint32_t n = slice_n_ranks(t, k);

	for (uint32_t r = 0; r < n; r++) {
		*rank = slice_rank(t, k, r);
		if (tree->holds(tree->ctx, i, *rank))
			return true;
	}
	return false;
}

/* ---- writing into a window ---- */

/* Only the bytes `from` .. `end` - 1 of the written text are kept. */
struct ckpt2_window {
	char *to;
	uint64_t from, end;
	uint64_t at; /* offset of the next byte */
};

static void ck2_put_bytes(struct ckpt2_window *w, const char *s, size_t n)
{
	const uint64_t from = w->at > w->from ? w->at : w->from;
	const uint64_t end = rsh_min_u64(w->at + n, w->end);

	if (from < end)
		memcpy(w->to + (from - w->from), s + (from - w->at),
		       end - from);
	w->at += n;
}

static void ck2_put_text(struct ckpt2_window *w, const char *s)
{
	ck2_put_bytes(w, s, strlen(s));
}

static void put_number(struct ckpt2_window *w, uint64_t v)
{
	char digits[20], *to = digits + sizeof(digits);

	do
		*--to = (char)('0' + v % 10);
	while (v /= 10);
	ck2_put_bytes(w, to, (size_t)(digits + sizeof(digits) - to));
}

/* Puts item i of a list, with the comma before it. */
static void put_item(struct ckpt2_window *w, uint32_t i, uint64_t v)
{
	if (i > 0)
		ck2_put_bytes(w, ",", 1);
	put_number(w, v);
}

/* The loader reads the values by position, so the order of the keys is
 * fixed. */
static void put_layout(struct ckpt2_window *w, const struct rsh_ckpt2_tensor *t,
		       const struct emit_layout *l)
{
	char name[] = ",\"a\"";

	ck2_put_text(w, "\"layout\":{\"device_matrix\":[");
	for (uint32_t i = 0; i < l->n_mesh; i++)
		put_item(w, i, l->mesh[i].size);
	ck2_put_text(w, "],\"tensor_map\":[");
	for (uint32_t d = 0; d < t->n_dims; d++) {
		const uint32_t n = l->n[d];

		ck2_put_text(w, d ? "," : "");
		ck2_put_text(w, n == 0 ? "-1" : n > 1 ? "[" : "");
		for (uint32_t i = 0; i < n; i++) {
			uint32_t axis = 0;

			while (l->mesh[axis].stride != l->strides[d][i])
				axis++;
			put_item(w, i, l->n_mesh - 1 - axis);
		}
		ck2_put_text(w, n > 1 ? "]" : "");
	}
	ck2_put_text(w, "],\"interleaved_parallel\":false,\"alias_name\":[");
	for (uint32_t i = 0; i < l->n_mesh; i++) {
		name[2] = (char)(i < 26 ? 'a' + i : 'A' + i - 26);
		ck2_put_text(w, name + (i == 0));
	}
	ck2_put_text(w, "],\"rank_list\":[");
	for (uint32_t i = 0; i < t->n_ranks; i++)
		put_item(w, i, t->first + i);
	ck2_put_text(w, "]}");
}

static void put_properties(struct ckpt2_window *w,
			   const struct rsh_ckpt2_tensor *t)
{
	char name[32];
	size_t n = 0;

	ck2_put_text(w, ":{\"properties\":{\"dtype\":\"");
	for (const char *c = rsh_dtype_name(t->dtype); *c; c++)
		name[n++] = (char)(*c >= 'A' && *c <= 'Z' ? *c | 0x20 : *c);
	ck2_put_bytes(w, name, n);
	ck2_put_text(w, "\",\"replica_id\":[");
	for (uint32_t i = 0; i < t->n_ranks; i++)
		put_item(w, i, t->cut ? rsh_grid_replica(
					rsh_cut_grid(t->cut), i) : i);
	ck2_put_text(w, "],\"allow_shape_mismatch\":false,"
		     "\"allow_to_save\":true},\"global_shape\":[");
	for (uint32_t d = 0; d < t->n_dims; d++)
		put_item(w, d, t->dims[d]);
	ck2_put_text(w, "],\"axis_fragmentations\":[");
	for (uint32_t d = 0; d < t->n_dims; d++)
		put_item(w, d, count_slices_along(t, d));
	ck2_put_text(w, "],");
}

/* Puts the entry of a tensor in state_dict_metadata. */
static void ck2_put_tensor(struct ckpt2_window *w,
			   const struct rsh_ckpt2_text *x, uint32_t i)
{
	const struct rsh_ckpt2_tensor *t = &x->tree.tensors[i];
	const uint32_t n = count_slices(t);
	struct emit_layout l;
	uint32_t rank, n_put = 0;

	layout_make(t, &l);
	ck2_put_text(w, i ? "," : text_head);
	ck2_put_text(w, x->names[i]);
	put_properties(w, t);
	put_layout(w, t, &l);
	ck2_put_text(w, ",\"chunk\":[");
	for (uint32_t k = 0; k < n && w->at < w->end; k++) {
		if (!slice_stored(&x->tree, i, k, &rank))
			continue;
		ck2_put_text(w, n_put++ ? ",{\"global_offset\":[" :
				      "{\"global_offset\":[");
		put_number(w, k);
		ck2_put_text(w, "],\"local_shape\":[");
		for (uint32_t d = 0; d < t->n_dims; d++)
			put_item(w, d, t->dims[d] / count_slices_along(t, d));
		ck2_put_text(w, "]}");
	}
	ck2_put_text(w, "]}");
}

/* Puts the entries of a tensor in storage_data. */
static void put_storage(struct ckpt2_window *w, const struct rsh_ckpt2_text *x,
			uint32_t i)
{
	const struct rsh_ckpt2_tensor *t = &x->tree.tensors[i];
	const uint32_t n = count_slices(t);
	char name[RSH_CKPT2_NAME_MAX];
	uint32_t rank, n_put = i;

	if (i == 0)
		ck2_put_text(w, text_middle);
	for (uint32_t k = 0; k < n && w->at < w->end; k++) {
		if (!slice_stored(&x->tree, i, k, &rank))
			continue;
		ck2_put_text(w, n_put++ ? "," : "");
		ck2_put_text(w, x->keys[i]);
		ck2_put_text(w, ", (");
		put_number(w, k);
		ck2_put_text(w, ",))\":[{\"file_name\":\"");
		rsh_ckpt2_file_name(t->opt, rank, x->tree.n_ranks, name);
		ck2_put_text(w, name);
		ck2_put_text(w, "\",\"storage_rank\":");
		put_number(w, rank);
		ck2_put_text(w, ",\"rank_group\":[");
		for (uint32_t r = 0; r < slice_n_ranks(t, k); r++)
			put_item(w, r, slice_rank(t, k, r));
		ck2_put_text(w, "]}]");
	}
	if (i + 1 == x->tree.n_tensors)
		ck2_put_text(w, text_tail);
}

/* Puts the pieces from one on that begin within the window, and notes where
 * each begins in `at` if that is not NULL. */
static void put_pieces(struct ckpt2_window *w, const struct rsh_ckpt2_text *x,
		       uint32_t piece, uint64_t *at)
{
	const uint32_t n = x->tree.n_tensors;

	for (; piece < 2 * n && w->at < w->end; piece++) {
		if (at)
			at[piece] = w->at;
		if (piece < n)
			ck2_put_tensor(w, x, piece);
		else
			put_storage(w, x, piece - n);
	}
	if (at)
		at[piece] = w->at;
}

/* ---- names ---- */

static int quote_name(struct rsh_ckpt2_text *x, uint32_t i,
		      struct rsh_error *err)
{
	const char *name = x->tree.tensors[i].name;
	const char quote = strchr(name, '\'') && !strchr(name, '"') ? '"' : '\'';
	struct rsh_json_text key = { 0 }, json = { 0 };
	bool good = true;
	size_t n;

	rsh_json_text_puts(&key, "(");
	rsh_json_text_put(&key, &quote, 1);
	for (const char *c = name; *c; c++) {
		good &= (unsigned char)*c >= ' ' && *c != 0x7f;
		if (*c == '\\' || *c == quote)
			rsh_json_text_put(&key, "\\", 1);
		rsh_json_text_put(&key, c, 1);
	}
	rsh_json_text_put(&key, &quote, 1);
	good = good && rsh_json_text_put_string(&json, name, strlen(name),
						RSH_ESCAPES_SERDE);
	n = json.len;
	/* The rest of the key is written later, so the closing quote is left
	 * out. */
	if (good && !key.failed &&
	    rsh_json_text_put_string(&json, key.data, key.len,
				     RSH_ESCAPES_SERDE) && !json.failed) {
		x->names[i] = rsh_arena_strndup(&x->arena, json.data, n);
		x->keys[i] = rsh_arena_strndup(&x->arena, json.data + n,
					       json.len - n - 1);
	}
	x->arena.failed |= key.failed || json.failed;
	rsh_json_text_clear(&key);
	rsh_json_text_clear(&json);
	return good ? 0 :
	       rsh_error_set(err, EINVAL, "parameter %s: metadata.json cannot "
			     "contain its name", name);
}

/* ---- making and reading ---- */

static int text_measure(struct rsh_ckpt2_text *x, struct rsh_error *err)
{
	/* This window keeps nothing; it only measures. */
	struct ckpt2_window w = { .from = UINT64_MAX, .end = UINT64_MAX };
	struct emit_layout l;

	for (uint32_t i = 0; i < x->tree.n_tensors; i++) {
		const struct rsh_ckpt2_tensor *t = &x->tree.tensors[i];
		int rc = quote_name(x, i, err);

		if (rc)
			return rc;
		if (!layout_make(t, &l))
			return rsh_error_set(err, ENOTSUP, "parameter %s: "
					     "Checkpoint 2.0 has no tensor map "
					     "for its %s", t->name,
					     rsh_cut_grid(t->cut) ?
					     "optimizer shard" :
					     "rows, which are split manually "
					     "(manual_split)");
	}
	if (x->arena.failed)
		return rsh_error_nomem(err);
	put_pieces(&w, x, 0, x->at);
	return 0;
}

int rsh_ckpt2_text_new(const struct rsh_ckpt2_tree *tree,
		       struct rsh_ckpt2_text **out, struct rsh_error *err)
{
	struct rsh_ckpt2_text *x = calloc(1, sizeof(*x));
	const size_t n = tree->n_tensors;
	int rc;

	if (!x)
		return rsh_error_nomem(err);
	x->tree = *tree;
	x->names = rsh_arena_array(&x->arena, const char *, n);
	x->keys = rsh_arena_array(&x->arena, const char *, n);
	x->at = rsh_arena_array(&x->arena, uint64_t, 2 * n + 1);
	rc = x->arena.failed ? rsh_error_nomem(err) : text_measure(x, err);
	if (rc) {
		rsh_ckpt2_text_free(x);
		return rc;
	}
	*out = x;
	return 0;
}

void rsh_ckpt2_text_free(struct rsh_ckpt2_text *x)
{
	if (x)
		rsh_arena_clear(&x->arena);
	free(x);
}

uint64_t rsh_ckpt2_text_size(const struct rsh_ckpt2_text *x)
{
	return x->at[2 * (size_t)x->tree.n_tensors];
}

void rsh_ckpt2_text_read(const struct rsh_ckpt2_text *x, void *buf, size_t len,
			 uint64_t offset)
{
	struct ckpt2_window w = { buf, offset, offset + len, 0 };
	const uint32_t n = 2 * x->tree.n_tensors;
	const uint32_t after = rsh_first(i, n, x->at[i] <= offset);

	/* The last piece that does not begin after `offset` is the first. */
	if (n > 0) {
		w.at = x->at[after ? after - 1 : 0];
		put_pieces(&w, x, after ? after - 1 : 0, NULL);
	}
}

/* ---- names of files and directories ---- */

int rsh_ckpt2_step_name(uint64_t step, char *name)
{
	return snprintf(name, RSH_CKPT2_NAME_MAX, "iteration_%08" PRIu64, step);
}

int rsh_ckpt2_file_name(bool opt, uint32_t rank, uint32_t n_ranks, char *name)
{
	return snprintf(name, RSH_CKPT2_NAME_MAX,
			"%s-%07" PRIu32 "-%07" PRIu32 ".safetensors",
			opt ? "opt" : "model", rank, n_ranks);
}

/* ---- common.json ---- */

#define NUMBER_BYTES 40

static const char *common_count(uint64_t n, char text[NUMBER_BYTES])
{
	if (n == 0)
		return "null";
	snprintf(text, NUMBER_BYTES, "%" PRIu64, n);
	return text;
}

int rsh_ckpt2_common_format(const struct rsh_training_state *c, char **out)
{
	char epoch[NUMBER_BYTES], batch[NUMBER_BYTES];
	char loss[NUMBER_BYTES] = "null";
	int n;

	if (c->loss_scale > 0 && isfinite(c->loss_scale)) {
		snprintf(loss, sizeof(loss) - 2, "%.17g", c->loss_scale);
		/* The loader reads a number without a point as an integer. */
		if (!strpbrk(loss, ".e"))
			strcat(loss, ".0");
	}
	n = asprintf(out, "{\n    \"epoch_num\": %s,\n"
		     "    \"step_num\": %" PRIu64 ",\n"
		     "    \"global_step\": %" PRIu64 ",\n"
		     "    \"loss_scale\": %s,\n"
		     "    \"global_batch_size\": %s\n}",
		     common_count(c->epoch, epoch), c->step, c->step, loss,
		     common_count(c->batch_size, batch));
	return n < 0 ? -ENOMEM : n;
}
