/* SPDX-License-Identifier: Apache-2.0 */
/* What the reader of rank files offers of files that do not exist, and where
 * the general writer finds it.  That it is so for any two strategies is what
 * test_plan_property.c says. */
#include "plan_support.h"

#include "rsh/formats/ranks.h"

static const char w_rows[] = LAYOUT("w", "[2]", "[0,-1]");

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
	char text[512] = "";
	size_t at = 0;
	int rc;

	assert_good(read_job(j, &r), j->err);
	for (uint32_t i = 0; i < r.n; i++) {
		const struct rsh_offer *o = &r.offers[i];
		const bool is = o->dtype == RSH_DTYPE_FLOAT32;

		at += (size_t)snprintf(text + at, sizeof(text) - at,
				       "%s%s%s%s[", i ? " " : "",
				       is ? "" : rsh_dtype_name(o->dtype),
				       is ? "" : ":",
				       rsh_names_text(j->names, o->name));
		for (uint32_t d = 0; d < o->n_dims; d++)
			at += (size_t)snprintf(text + at, sizeof(text) - at,
					       "%s%d", d ? "," : "",
					       (int)o->dims[d]);
		at += (size_t)snprintf(text + at, sizeof(text) - at, "]");
	}
	assert_string_equal(text, want);
	rc = rsh_write_plan(&(struct rsh_offers){ r.cat, r.offers, r.n }, NULL,
			    &opts, &j->c, &j->err);
	rsh_arena_clear(&r.arena);
	return rc;
}

static void must_offer(struct job *j, const char *want)
{
	assert_good(plan_job(j, want), j->err);
}

static void refused(struct job *j, int rc, const char *sentence)
{
	struct reading r = { .cat = NULL };

	assert_int_equal(read_job(j, &r), rc);
	assert_string_equal(j->err.text, sentence);
	rsh_arena_clear(&r.arena);
	job_free(j);
}

/* ---- tensors ---- */

TEST(slices_are_offered_whole)
{
	cleanup_job struct job *j = job_new(w_rows, NULL);

	job_files(j, 2, FILE_WITH(F32("w", 2, 2)));
	must_offer(j, "w[4,2]");
	assert_content(j, 0, "w", "0@100+16 1@100+16");
	assert_no_notes(j);
}

/* Lower ranks first, and as their files have them. */
TEST(order_is_that_of_files)
{
	cleanup_job struct job *j = job_new(LAYOUT("0-b", "[2]", "[0]") ","
					    LAYOUT("0-a", "[2]", "[-1]") ","
					    LAYOUT("1-c", "[2]", "[0]"), NULL);

	job_file(j, 0, FILE_WITH(F32("b", 1), I64_SCALAR("step")));
	job_file(j, 1, FILE_WITH(F32("a", 3), F32("b", 1)));
	job_file(j, 2, FILE_WITH(I64_SCALAR("step"), F32("c", 2)));
	job_file(j, 3, FILE_WITH(F32("c", 2), I64_SCALAR("epoch")));
	j->replicas = true;
	must_offer(j, "b[2] Int64:step[] a[3] c[4] Int64:epoch[]");
	assert_content(j, 0, "a", "1@100+12");
	assert_content(j, 0, "c", "2@208+8 3@100+8");
}

TEST(model_in_one_file)
{
	cleanup_job struct job *j = job_new(NULL, NULL);

	job_file(j, 0, FILE_WITH(F32("w", 2, 2),
		 { .name = "b", .dtype = RSH_DTYPE_INT4, DIMS_OF(4) },
		 { .name = "v", .dtype = RSH_DTYPE_BFLOAT16, DIMS_OF(2),
		   .wide = true }));
	must_offer(j, "w[2,2] Int4:b[4] BFloat16:v[2]");
	assert_content(j, 0, "b", "0@216+4");
	assert_content(j, 0, "v", "0@320+8>4");
}

TEST(strings_are_left_out)
{
	struct job *j = job_new(LAYOUT("w", "[2]", "[0]") ","
				LAYOUT("listed", "[2]", "[0]"), NULL);

	job_file(j, 0, FILE_WITH(F32("w", 2),
		 { .name = "note", .dtype = RSH_DTYPE_STR, .bytes = 8 },
		 { .name = "listed", .dtype = RSH_DTYPE_STR, .bytes = 8 }));
	job_file(j, 1, FILE_WITH(F32("w", 2),
		 { .name = "note", .dtype = RSH_DTYPE_STR, .bytes = 12 }));
	must_offer(j, "w[4]");
	job_free(j);
}

/* Each rank has them, or only some. */
TEST(unlisted_records_are_whole)
{
	cleanup_job struct job *j = job_new(w_rows, NULL);

	job_file(j, 0, FILE_WITH(F32("w", 2, 2)));
	job_file(j, 1, FILE_WITH(F32("w", 2, 2), F32("u", 3)));
	must_offer(j, "w[4,2] u[3]");
	assert_content(j, 0, "u", "1@216+12");
}

/* ---- stages and replicas ---- */

TEST(stages_make_up_for_each_other)
{
	cleanup_job struct job *j = job_new(LAYOUT("0-w", "[2]", "[0]") ","
					    LAYOUT("1-w", "[2]", "[0]"), NULL);

	job_file(j, 1, FILE_WITH(F32("w", 2)));
	job_file(j, 2, FILE_WITH(F32("v", 1), F32("w", 2)));
	job_file(j, 3, FILE_WITH(F32("w", 2)));
	must_offer(j, "w[4] v[1]");
	assert_content(j, 0, "w", "2@204+8 1@100+8");
}

TEST(another_stage_cuts_otherwise)
{
	cleanup_job struct job *j = job_new(LAYOUT("0-w", "[2]", "[0]") ","
					    LAYOUT("1-w", "[2]", "[-1]"), NULL);

	job_files(j, 2, FILE_WITH(F32("w", 2)));
	job_file(j, 2, FILE_WITH(F32("w", 4)));
	must_offer(j, "w[4]");
	assert_content(j, 0, "w", "0@100+8 1@100+8");
}

/* The files of the stage whose layout would count are gone. */
TEST(another_layout_will_do)
{
	cleanup_job struct job *j = job_new(LAYOUT("0-w", "[2]", "[0]") ","
					    LAYOUT("1-w", "[2]", "[-1]"), NULL);

	job_file(j, 2, FILE_WITH(F32("w", 4)));
	must_offer(j, "w[4]");
	assert_content(j, 0, "w", "2@100+16");
}

TEST(replicas_make_up_for_lost_ranks)
{
	cleanup_job struct job *j = job_new(LAYOUT("w", "[2,2]", "[0]") ","
					    LAYOUT("v", "[2,2]", "[1]"), NULL);

	j->replicas = true;
	job_file(j, 1, FILE_WITH(F32("w", 2), F32("v", 2)));
	job_file(j, 2, FILE_WITH(F32("w", 2), F32("v", 2)));
	must_offer(j, "w[4] v[4]");
	assert_content(j, 0, "w", "2@100+8 1@100+8");
	assert_content(j, 0, "v", "1@208+8 2@208+8");
	assert_note(j, "are read from replicas (w and others)");
}

/* Each parameter was kept by one of the ranks that hold the same. */
TEST(redundancy_was_removed)
{
	cleanup_job struct job *j = job_new(LAYOUT("w", "[2,2]", "[0]") ","
					    LAYOUT("v", "[2,2]", "[0]"), NULL);

	j->replicas = true;
	job_file(j, 0, FILE_WITH(F32("w", 2)));
	job_file(j, 1, FILE_WITH(F32("w", 2)));
	job_file(j, 2, FILE_WITH(F32("v", 2)));
	job_file(j, 3, FILE_WITH(F32("v", 2)));
	must_offer(j, "w[4] v[4]");
	assert_content(j, 0, "w", "0@100+8 1@100+8");
	assert_content(j, 0, "v", "2@100+8 3@100+8");
}

TEST(lost_slices_are_the_plans_affair)
{
	cleanup_job struct job *j = job_new(w_rows, NULL);

	job_file(j, 0, FILE_WITH(F32("w", 2, 2)));
	assert_int_equal(plan_job(j, "w[4,2]"), -ENOENT);
	assert_string_equal(j->err.text, "rank 1 has no valid checkpoint file, but "
			    "rank 0 needs its slice of parameter w");
	j->replicas = j->allow_missing = true;
	must_offer(j, "w[4,2]");
	assert_true(rsh_plan_is_lost(j->c, 0));
}

/* Nothing tells the shape of what no file holds. */
TEST(stage_is_lost)
{
	static const char layouts[] = LAYOUT("0-w", "[2]", "[0]") ","
				      LAYOUT("1-v", "[2]", "[0]");
	struct job *j = job_new(layouts, NULL);

	job_files(j, 2, FILE_WITH(F32("w", 2)));
	j->allow_missing = true;
	must_offer(j, "w[4]");
	job_free(j);
	j = job_new(layouts, NULL);
	job_files(j, 2, FILE_WITH(F32("w", 2)));
	refused(j, -ENOENT, "ranks 2 to 3 have no valid checkpoint file, but "
		"parameter v is needed from them");
}

/* Its stage has files, so it was not saved. */
TEST(listed_and_not_saved)
{
	struct job *j = job_new(LAYOUT("w", "[2]", "[0]") ","
				LAYOUT("adam_m.w", "[2]", "[0]"), NULL);

	job_files(j, 2, FILE_WITH(F32("w", 2)));
	must_offer(j, "w[4]");
	job_free(j);
}

/* ---- what is refused ---- */

TEST(shapes_differ)
{
	struct job *j = job_new(NULL, NULL);

	job_file(j, 0, FILE_WITH(F32("w", 2)));
	job_file(j, 3, FILE_WITH(F32("w", 4)));
	refused(j, -EINVAL, "rank_3.ckpt: parameter w has shape [4], but in "
		"rank_0.ckpt it is [2]; without a strategy all ranks hold the "
		"same");
	j = job_new(LAYOUT("w", "[2]", "[0]"), NULL);
	job_file(j, 0, FILE_WITH(F32("u", 2), F32("w", 2)));
	job_file(j, 1, FILE_WITH(F32("u", 3), F32("w", 2)));
	refused(j, -EINVAL, "rank_1.ckpt: parameter u has shape [3], but in "
		"rank_0.ckpt it is [2]; src.json does not say how it is cut");
	j = job_new(LAYOUT("w", "[2]", "[0]"), NULL);
	job_file(j, 0, FILE_WITH(F32("w", 2)));
	job_file(j, 1, FILE_WITH(F32("w", 3)));
	refused(j, -EINVAL, "rank_1.ckpt: parameter w has shape [3], but in "
		"rank_0.ckpt it is [2]; with mesh [2] map [0] (src.json) all "
		"slices are equal");
}

TEST(types_differ)
{
	struct job *j = job_new(NULL, NULL);

	job_file(j, 0, FILE_WITH(F32("w", 2)));
	job_file(j, 1, FILE_WITH(BF16("w", 2)));
	refused(j, -EINVAL, "rank_1.ckpt: parameter w is BFloat16, but in "
		"rank_0.ckpt it is Float32");
}

TEST(layout_does_not_fit)
{
	struct job *j = job_new(w_rows, NULL);

	job_files(j, 2, FILE_WITH(F32("w", 2)));
	refused(j, -EINVAL, "rank_0.ckpt: parameter w of shape [2] is not a slice "
		"of mesh [2] map [0,-1] (src.json): its expanded tensor map of "
		"2 dimensions does not fit the 1 dimensions of the tensor");
}

TEST(chunk_ends_within_an_element)
{
	static const uint64_t chunks[] = { 6, 2, 0 };
	struct job *j = job_new(NULL, NULL);

	job_file(j, 0, FILE_WITH({ .name = "w", .dtype = RSH_DTYPE_FLOAT32,
				   DIMS_OF(2), .chunks = chunks }));
	refused(j, -EINVAL, "rank_0.ckpt: parameter w: a chunk at offset 100 "
		"ends within an element");
}

TEST(nothing_to_offer)
{
	struct job *j = job_new(NULL, NULL);

	job_file(j, 0, FILE_WITH({ .name = "note", .dtype = RSH_DTYPE_STR,
				   .bytes = 8 }));
	refused(j, -ENOENT, "no file holds a tensor");
}
