/* SPDX-License-Identifier: Apache-2.0 */
/* What the reader of rank files offers of files that do not exist, and where
 * the general writer finds it.  That it is so for any two strategies is what
 * test_plan_property.c says. */
#include "plan_support.h"

#include "rsh/formats/ranks.h"
#include "rsh/util/log.h"

#define W_ROWS LAYOUT("w", "[2]", "[0,-1]")
#define NOTE(n) { .name = "note", .dtype = RSH_DTYPE_STR, .bytes = (n) }

/* ---- reading ---- */

struct reading {
	struct rsh_ranks_options opts;
	struct rsh_arena arena;
	struct rsh_catalogue *cat;
	struct rsh_offer *offers;
	uint32_t n;
};

static int read_job(struct job *j, struct reading *r)
{
	const char *path[MAX_FILES];
	const struct rsh_source_view view = {
		.n_ranks = MAX_FILES, .index = j->index, .path = path,
		.names = j->names, .format = j->src_format,
	};
	struct rsh_offers out;
	int rc;

	for (uint32_t i = 0; i < MAX_FILES; i++)
		path[i] = j->index[i] ? j->path[i] : NULL;
	r->opts.replicas = j->replicas;
	r->opts.allow_missing = j->allow_missing;
	rc = rsh_ranks_read(&view, j->src, &r->opts, &r->arena, &out, &j->err);
	if (rc == 0) {
		r->cat = out.cat;
		r->offers = out.v;
		r->n = out.n;
	}
	return rc;
}

/* Reads, checks what is offered ("Int8:b[4] w[2,2]"), and plans the whole
 * model; gives what planning did. */
static int plan_job(struct job *j, const char *want)
{
	const struct rsh_plan_options opts = {
		.framing = &rsh_ckpt_framing,
		.replicas = j->replicas, .allow_missing = j->allow_missing,
	};
	struct reading r = { .cat = NULL };
	struct unit_text text = { "", 0 };
	int rc;

	assert_good(read_job(j, &r), j->err);
	for (uint32_t i = 0; i < r.n; i++) {
		const struct rsh_offer *o = &r.offers[i];
		const bool is = o->dtype == RSH_DTYPE_FLOAT32;

		unit_put(&text, "%s%s%s%s[", i ? " " : "",
			 is ? "" : rsh_dtype_name(o->dtype), is ? "" : ":",
			 rsh_names_text(j->names, o->name));
		for (uint32_t d = 0; d < o->n_dims; d++)
			unit_put(&text, "%s%d", d ? "," : "", (int)o->dims[d]);
		unit_put(&text, "]");
	}
	assert_string_equal(text.s, want);
	rc = rsh_write_plan(&(struct rsh_offers){ r.cat, r.offers, r.n }, NULL,
			    &opts, &j->c, &j->err);
	rsh_arena_clear(&r.arena);
	return rc;
}

static void must_offer(struct job *j, const char *want)
{
	assert_good(plan_job(j, want), j->err);
}

/* ---- what is offered ---- */

static const struct offered {
	const char *name, *src;
	struct files files[4];
	const char *tensors;
	struct { const char *record, *pieces; } content[3];
	const char *note; /* of it alone; "": there is none */
	bool replicas;
} offered[] = {
	{ "slices_are_offered_whole", W_ROWS,
	  { { 0, 1, FILE_WITH(F32("w", 2, 2)) } },
	  "w[4,2]", { { "w", "0@100+16 1@100+16" } }, "", false },
	/* Lower ranks first, and as their files have them. */
	{ "order_is_that_of_files",
	  LAYOUT("0-b", "[2]", "[0]") "," LAYOUT("0-a", "[2]", "[-1]") ","
	    LAYOUT("1-c", "[2]", "[0]"),
	  { { 0, 0, FILE_WITH(F32("b", 1), I64_SCALAR("step")) },
	    { 1, 1, FILE_WITH(F32("a", 3), F32("b", 1)) },
	    { 2, 2, FILE_WITH(I64_SCALAR("step"), F32("c", 2)) },
	    { 3, 3, FILE_WITH(F32("c", 2), I64_SCALAR("epoch")) } },
	  "b[2] Int64:step[] a[3] c[4] Int64:epoch[]",
	  { { "a", "1@100+12" }, { "c", "2@208+8 3@100+8" } }, NULL, true },
	{ "model_in_one_file", NULL,
	  { { 0, 0, FILE_WITH(F32("w", 2, 2),
	      { .name = "b", .dtype = RSH_DTYPE_INT4, DIMS_OF(4) },
	      { .name = "v", .dtype = RSH_DTYPE_BFLOAT16, DIMS_OF(2),
		.wide = true }) } },
	  "w[2,2] Int4:b[4] BFloat16:v[2]",
	  { { "b", "0@216+4" }, { "v", "0@320+8>4" } }, NULL, false },
	{ "strings_are_left_out",
	  LAYOUT("w", "[2]", "[0]") "," LAYOUT("listed", "[2]", "[0]"),
	  { { 0, 0, FILE_WITH(F32("w", 2), NOTE(8),
	      { .name = "listed", .dtype = RSH_DTYPE_STR, .bytes = 8 }) },
	    { 1, 1, FILE_WITH(F32("w", 2), NOTE(12)) } },
	  "w[4]", { { NULL, NULL } }, NULL, false },
	/* Each rank has them, or only some. */
	{ "unlisted_records_are_whole", W_ROWS,
	  { { 0, 0, FILE_WITH(F32("w", 2, 2)) },
	    { 1, 1, FILE_WITH(F32("w", 2, 2), F32("u", 3)) } },
	  "w[4,2] u[3]", { { "u", "1@216+12" } }, NULL, false },

	/* ---- stages and replicas ---- */
	{ "stages_make_up_for_each_other",
	  LAYOUT("0-w", "[2]", "[0]") "," LAYOUT("1-w", "[2]", "[0]"),
	  { { 1, 1, FILE_WITH(F32("w", 2)) },
	    { 2, 2, FILE_WITH(F32("v", 1), F32("w", 2)) },
	    { 3, 3, FILE_WITH(F32("w", 2)) } },
	  "w[4] v[1]", { { "w", "2@204+8 1@100+8" } }, NULL, false },
	{ "another_stage_cuts_otherwise",
	  LAYOUT("0-w", "[2]", "[0]") "," LAYOUT("1-w", "[2]", "[-1]"),
	  { { 0, 1, FILE_WITH(F32("w", 2)) },
	    { 2, 2, FILE_WITH(F32("w", 4)) } },
	  "w[4]", { { "w", "0@100+8 1@100+8" } }, NULL, false },
	/* The files of the stage whose layout would count are gone. */
	{ "another_layout_will_do",
	  LAYOUT("0-w", "[2]", "[0]") "," LAYOUT("1-w", "[2]", "[-1]"),
	  { { 2, 2, FILE_WITH(F32("w", 4)) } },
	  "w[4]", { { "w", "2@100+16" } }, NULL, false },
	{ "replicas_make_up_for_lost_ranks",
	  LAYOUT("w", "[2,2]", "[0]") "," LAYOUT("v", "[2,2]", "[1]"),
	  { { 1, 2, FILE_WITH(F32("w", 2), F32("v", 2)) } },
	  "w[4] v[4]",
	  { { "w", "2@100+8 1@100+8" }, { "v", "1@208+8 2@208+8" } },
	  "are read from replicas (w and others)", true },
	/* Each parameter was kept by one of the ranks that hold the same. */
	{ "redundancy_was_removed",
	  LAYOUT("w", "[2,2]", "[0]") "," LAYOUT("v", "[2,2]", "[0]"),
	  { { 0, 1, FILE_WITH(F32("w", 2)) },
	    { 2, 3, FILE_WITH(F32("v", 2)) } },
	  "w[4] v[4]",
	  { { "w", "0@100+8 1@100+8" }, { "v", "2@100+8 3@100+8" } }, NULL,
	  true },
	/* Its stage has files, so it was not saved. */
	{ "listed_and_not_saved",
	  LAYOUT("w", "[2]", "[0]") "," LAYOUT("adam_m.w", "[2]", "[0]"),
	  { { 0, 1, FILE_WITH(F32("w", 2)) } },
	  "w[4]", { { NULL, NULL } }, NULL, false },
};

TEST_ROWS(offered)
{
	const struct offered *o = *state;
	cleanup_job struct job *j = job_new(o->src, NULL);

	job_made(j, o->files);
	j->replicas = o->replicas;
	must_offer(j, o->tensors);
	for (size_t i = 0; o->content[i].record; i++)
		assert_content(j, 0, o->content[i].record,
			       o->content[i].pieces);
	if (o->note && *o->note)
		assert_note(j, o->note);
	else if (o->note)
		assert_no_notes(j);
}

TEST(lost_slices_are_the_plans_affair)
{
	cleanup_job struct job *j = job_new(W_ROWS, NULL);

	job_file(j, 0, FILE_WITH(F32("w", 2, 2)));
	assert_int_equal(plan_job(j, "w[4,2]"), -ENOENT);
	assert_string_equal(j->err.text, "rank 1 has no valid checkpoint file, but "
			    "rank 0 needs its slice of parameter w");
	j->replicas = j->allow_missing = true;
	must_offer(j, "w[4,2]");
	assert_true(rsh_plan_is_lost(j->c, 0));
}

#define STAGE_LOST LAYOUT("0-w", "[2]", "[0]") "," LAYOUT("1-v", "[2]", "[0]")

TEST(stage_is_lost_and_may_be)
{
	cleanup_job struct job *j = job_new(STAGE_LOST, NULL);

	job_files(j, 2, FILE_WITH(F32("w", 2)));
	j->allow_missing = true;
	must_offer(j, "w[4]");
}

/* A parameter of several stages counts once. */
TEST(stages_are_lost_and_may_be)
{
	cleanup_job struct job *j = job_new(LAYOUT("0-w", "[1]", "[-1]") ","
					    LAYOUT("1-v", "[1]", "[-1]") ","
					    LAYOUT("2-v", "[1]", "[-1]") ","
					    LAYOUT("2-u", "[1]", "[-1]"), NULL);
	cleanup_free char *log = NULL;

	job_file(j, 0, FILE_WITH(F32("w", 2)));
	j->allow_missing = true;
	must_offer(j, "w[2]");
	log = rsh_log_recent();
	assert_non_null(strstr(log, "parameters left out, for no file holds "
			       "them: 2; rank 1 has no valid checkpoint file, "
			       "but parameter v is needed from it"));
}

/* ---- what is refused ---- */

static const struct refusal {
	const char *name, *src;
	struct files files[4];
	int rc;
	const char *sentence;
} refused[] = {
	/* Nothing tells the shape of what no file holds. */
	{ "stage_is_lost", STAGE_LOST, { { 0, 1, FILE_WITH(F32("w", 2)) } },
	  -ENOENT,
	  "ranks 2 to 3 have no valid checkpoint file, but parameter v is "
	  "needed from them" },
	{ "shapes_differ", NULL,
	  { { 0, 0, FILE_WITH(F32("w", 2)) },
	    { 3, 3, FILE_WITH(F32("w", 4)) } },
	  -EINVAL,
	  "rank_3.ckpt: parameter w has shape [4], but in rank_0.ckpt it is "
	  "[2]; without a strategy all ranks hold the same" },
	{ "unlisted_shapes_differ", LAYOUT("w", "[2]", "[0]"),
	  { { 0, 0, FILE_WITH(F32("u", 2), F32("w", 2)) },
	    { 1, 1, FILE_WITH(F32("u", 3), F32("w", 2)) } }, -EINVAL,
	  "rank_1.ckpt: parameter u has shape [3], but in rank_0.ckpt it is "
	  "[2]; src.json does not say how it is cut" },
	{ "slices_differ", LAYOUT("w", "[2]", "[0]"),
	  { { 0, 0, FILE_WITH(F32("w", 2)) },
	    { 1, 1, FILE_WITH(F32("w", 3)) } },
	  -EINVAL,
	  "rank_1.ckpt: parameter w has shape [3], but in rank_0.ckpt it is "
	  "[2]; with mesh [2] map [0] (src.json) all slices are equal" },
	{ "types_differ", NULL,
	  { { 0, 0, FILE_WITH(F32("w", 2)) },
	    { 1, 1, FILE_WITH(BF16("w", 2)) } },
	  -EINVAL,
	  "rank_1.ckpt: parameter w is BFloat16, but in rank_0.ckpt it is "
	  "Float32" },
	{ "layout_does_not_fit", W_ROWS, { { 0, 1, FILE_WITH(F32("w", 2)) } },
	  -EINVAL,
	  "rank_0.ckpt: parameter w of shape [2] is not a slice of mesh [2] "
	  "map [0,-1] (src.json): its expanded tensor map of 2 dimensions does "
	  "not fit the 1 dimensions of the tensor" },
	{ "chunk_ends_within_an_element", NULL,
	  { { 0, 0, FILE_WITH({ .name = "w", .dtype = RSH_DTYPE_FLOAT32,
	      DIMS_OF(2), .chunks = (const uint64_t[]){ 6, 2, 0 } }) } },
	  -EINVAL,
	  "rank_0.ckpt: parameter w: a chunk at offset 100 ends within an "
	  "element" },
	{ "no_records", NULL, { { 0, 1, FILE_WITH({ .name = NULL }) } }, -ENOENT,
	  "no file holds a tensor" },
	{ "nothing_to_offer", NULL, { { 0, 0, FILE_WITH(NOTE(8)) } }, -ENOENT,
	  "no file holds a tensor" },
};

TEST_ROWS(refused)
{
	const struct refusal *w = *state;
	cleanup_job struct job *j = job_new(w->src, NULL);
	struct reading r = { .cat = NULL };

	job_made(j, w->files);
	assert_int_equal(read_job(j, &r), w->rc);
	assert_string_equal(j->err.text, w->sentence);
	rsh_arena_clear(&r.arena);
}
