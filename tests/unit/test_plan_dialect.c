/* SPDX-License-Identifier: Apache-2.0 */
/* A dialect that nobody has: what it takes to let another kind of checkpoint
 * in.
 *
 * Its source holds matrices in shards of any number of rows, each record called
 * "<matrix>.<first row>"; it shows one file with every matrix transposed.  The
 * reader and the writer below are all that there is to it. */
#include "plan_support.h"

#include "rsh/plan/blueprint.h"
#include "rsh/plan/query.h"

/* ---- the reader: what lies here becomes a catalogue ---- */

struct shard {
	const char *matrix;
	uint64_t first_row, rows;
	uint32_t file, record;
};

static int read_matrix(struct rsh_catalogue *c, const struct shard *s,
		       uint32_t n, uint64_t columns, struct rsh_error *err)
{
	struct rsh_holder holders[8];
	struct rsh_box boxes[8] = { { 0 } };
	uint64_t dims[2] = { 0, columns };
	struct rsh_cut *cut;
	uint32_t number;
	int rc;

	for (uint32_t i = 0; i < n; i++) {
		boxes[i] = (struct rsh_box){ 2, { s[i].first_row, 0 },
					     { s[i].rows, columns } };
		holders[i] = (struct rsh_holder){ i, s[i].file, s[i].record };
		dims[0] += s[i].rows;
	}
	rc = rsh_cut_of_boxes(dims, 2, boxes, n, &cut, err);
	if (rc)
		return rc;
	struct rsh_tensor t = {
		.name = rsh_names_add(c->names, s->matrix, strlen(s->matrix)),
		.dtype = RSH_DTYPE_FLOAT32, .n_dims = 2, .dims = dims,
	};
	t.cut = rsh_catalogue_keep_cut(c, cut);
	t.copies = rsh_catalogue_keep_copies(c, t.cut, holders, n, false);
	return rsh_catalogue_add(c, &t, &number);
}

/* ---- the writer: what is wanted becomes a blueprint ---- */

static int write_transposed(struct rsh_catalogue *c, struct rsh_plan **out,
			    struct rsh_error *err)
{
	const struct rsh_blueprint b = { .framing = &rsh_safetensors_framing };
	struct rsh_plan *p = rsh_blueprint_new(c, &(struct rsh_plan_ops){ 0 },
					       &b);
	struct rsh_record_shape shapes[8];
	struct rsh_slot slots[8];
	int rc = 0;

	for (uint32_t i = 0; i < c->n_tensors && rc == 0; i++) {
		const struct rsh_tensor *t = c->tensors[i];
		uint64_t dims[2] = { t->dims[1], t->dims[0] };
		struct rsh_factor f[2];
		const struct rsh_recipe_part part = rsh_recipe_whole(
			c, i, (const uint8_t[]){ 1, 0 }, f);
		struct rsh_shown shown = {
			.name = t->name, .dtype = t->dtype, .n_dims = 2,
			.dims = dims, .recipe = { 1, &part, RSH_CODEC_NONE },
			.cut = rsh_catalogue_keep_cut(
				c, rsh_cut_of_grid(rsh_grid_make_whole(2))),
		};

		rc = rsh_blueprint_show(p, &shown, &slots[i].shown, err);
		rsh_blueprint_shape(p, slots[i].shown, 0, &shapes[i]);
		slots[i].name = t->name;
		slots[i].content_bytes = shapes[i].content_bytes;
	}
	if (rc == 0)
		rc = rsh_blueprint_add_file(
			p, &(struct rsh_shown_file){ .n = c->n_tensors,
						     .slots = slots,
						     .shapes = shapes }, err);
	*out = p;
	return rc ? rc : rsh_blueprint_finish(p, NULL, NULL, err);
}

/* ---- a checkpoint of it ---- */

static struct rsh_catalogue *catalogue_of(struct job *j)
{
	const struct rsh_source_view view = {
		.n_ranks = MAX_FILES, .index = j->index, .names = j->names,
	};

	return rsh_catalogue_new(&view);
}

/* Writes the origins of a slice as "[2,1]@0,0:7", where 7 is the file. */
static void put_origin(void *ctx, const struct rsh_box *box,
		       const struct rsh_holder *h)
{
	fprintf(ctx, "[%d,%d]@%d,%d:%d ", (int)box->size[0], (int)box->size[1],
		(int)box->from[0], (int)box->from[1], h ? (int)h->file : -1);
}

static void assert_origins(const struct job *j, const char *expected)
{
	struct rsh_plan_tensor t;
	bool shown[2] = { false };
	char *text;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	assert_int_equal(rsh_plan_n_tensors(j->c), 1);
	rsh_plan_tensor(j->c, 0, &t);
	assert_string_equal(t.name, "m");
	assert_int_equal(t.dims[0], 2);
	assert_int_equal(t.dims[1], 3);
	assert_int_equal(t.from->dims[0], 3);
	assert_int_equal(rsh_copies_holders(t.from->copies)[1].file, 1);
	rsh_plan_mark_tensors(j->c, 0, shown);
	assert_true(shown[0] && !shown[1]);
	rsh_plan_origins(j->c, 0, rsh_plan_member(j->c, 0), put_origin, f);
	fclose(f);
	assert_string_equal(text, expected);
	free(text);
}

TEST(shards_are_shown_transposed)
{
	static const struct shard m[] = {
		{ "m", 0, 1, 0, 0 }, { "m", 1, 2, 1, 0 },
	};
	cleanup_job struct job *j = job_new(NULL, NULL);
	struct rsh_catalogue *c;

	job_file(j, 0, FILE_WITH(F32("m.0", 1, 2)));
	job_file(j, 1, FILE_WITH(F32("m.1", 2, 2)));
	c = catalogue_of(j);
	assert_int_equal(read_matrix(c, m, 2, 2, &j->err), 0);
	assert_int_equal(write_transposed(c, &j->c, &j->err), 0);
	assert_sources(j, 0, "0 1");
	/* [3,2] becomes [2,3]: a column is a row of each shard. */
	assert_content(j, 0, "m", "0@100+4 1@100+4 1@108+4 "
				  "0@104+4 1@104+4 1@112+4");
	assert_origins(j, "[2,1]@0,0:0 [2,2]@0,1:1 ");
}

TEST(shards_that_are_missing_are_named)
{
	static const struct shard m[] = {
		{ "m", 0, 1, 0, 0 }, { "m", 2, 1, 1, 0 },
	};
	cleanup_job struct job *j = job_new(NULL, NULL);
	struct rsh_catalogue *c;

	job_file(j, 0, FILE_WITH(F32("m.0", 1, 2)));
	job_file(j, 1, FILE_WITH(F32("m.2", 1, 2)));
	c = catalogue_of(j);
	/* Row 1 is in no shard, and so the last one leaves the matrix. */
	assert_int_equal(read_matrix(c, m, 2, 2, &j->err), -EINVAL);
	assert_string_equal(j->err.text,
			    "the box of rank 1 exceeds dimension 0 of size 2");
	rsh_catalogue_free(c);
}

/* A recipe says where each element comes from, or it is none. */
TEST(recipes_that_leave_elements_out_are_refused)
{
	cleanup_job struct job *j = job_new(NULL, NULL);
	static const struct shard m[] = { { "m", 0, 2, 0, 0 } };
	const struct rsh_blueprint b = { .framing = &rsh_safetensors_framing };
	uint64_t dims[2] = { 2, 2 };
	struct rsh_recipe_part part;
	struct rsh_factor f[2];
	struct rsh_shown shown = { .dtype = RSH_DTYPE_FLOAT32, .n_dims = 2,
				   .dims = dims,
				   .recipe = { 1, &part, RSH_CODEC_NONE } };
	struct rsh_catalogue *c;
	uint32_t number;

	job_file(j, 0, FILE_WITH(F32("m.0", 2, 2)));
	c = catalogue_of(j);
	assert_int_equal(read_matrix(c, m, 1, 2, &j->err), 0);
	j->c = rsh_blueprint_new(c, &(struct rsh_plan_ops){ 0 }, &b);
	shown.cut = rsh_catalogue_keep_cut(
		c, rsh_cut_of_grid(rsh_grid_make_whole(2)));
	part = rsh_recipe_whole(c, 0, NULL, f);
	assert_int_equal(rsh_blueprint_show(j->c, &shown, &number, &j->err),
			 0);
	f[0].size = 1;
	assert_int_equal(rsh_blueprint_show(j->c, &shown, &number, &j->err),
			 -EINVAL);
	assert_string_equal(j->err.text, "its parts have 2 of 4 elements");
	f[0].size = 2;
	shown.recipe.codec = RSH_CODEC_BF16_TO_F32;
	assert_int_equal(rsh_blueprint_show(j->c, &shown, &number, &j->err),
			 -EINVAL);
	assert_string_equal(j->err.text, "its elements have another "
			    "type");
	shown.recipe.n_parts = 0;
	assert_int_equal(rsh_blueprint_show(j->c, &shown, &number, &j->err),
			 -EINVAL);
}
