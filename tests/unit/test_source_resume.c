/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_source_resume.c - a dialect that is made up here: what a framework
 * costs that is not known yet, and that nothing else has to know of it. */
#include "config.h"

#include "rsh/source/format.h"
#include "rsh/source/resume.h"
#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "source_support.h"

/* A checkpoint is <name>.<step>.toy, whole if it ends in "end". */
static enum rsh_part toy_part(const char *file, struct rsh_step_name *out)
{
	if (!rsh_has_suffix(file, ".toy"))
		return RSH_PART_NO;
	rsh_step_name_read(file, strlen(file) - strlen(".toy"), out);
	return RSH_PART_YES;
}

static int toy_check(const struct rsh_byte_source *files,
		     const char *const *names, size_t n, bool full,
		     struct rsh_counters *says, struct rsh_error *err)
{
	char end[3] = "";

	(void)names, (void)n, (void)full, (void)says;
	if (files->size >= sizeof(end) &&
	    files->pread_fn(files->ctx, end, sizeof(end),
			    files->size - sizeof(end)) == sizeof(end) &&
	    memcmp(end, "end", sizeof(end)) == 0)
		return 0;
	return rsh_error_set(err, EBADMSG, "%s: no end", files->path);
}

static const struct rsh_format toy_format = {
	.name = "toy", .framework = "Toy", .part = toy_part,
	.check = toy_check,
};
static const struct rsh_format *const formats[] = { &toy_format, NULL };
static const struct rsh_source_options opts = { .formats = formats };

TEST(test_whole_step)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_resume r;
	char *tree = tree_make(), buf[8] = "";

	tree_write(tree, "rank_0/m.9.toy", "9 end", 5);
	tree_write(tree, "rank_1/m.9.toy", "9 end", 5);
	tree_write(tree, "rank_0/m.10.toy", "10 end", 6);
	tree_write(tree, "rank_1/m.10.toy", "10 e", 4);
	tree_write(tree, "rank_0/m.11.toy", "11 end", 6);
	assert_int_equal(rsh_resume_open(tree, &opts, 5, &r, &err), 0);
	assert_int_equal(r.n, 2);
	assert_string_equal(r.saved[0].label, "m.9.toy");
	assert_string_equal(r.saved[1].unit, "rank_1");
	assert_int_equal(r.saved[1].n, 1);
	assert_string_equal(r.saved[1].names[0], "m.9.toy");
	assert_int_equal(rsh_source_read(r.source, r.saved[1].first_file, 0,
					 buf, 5), 0);
	assert_string_equal(buf, "9 end");
	rsh_resume_close(&r);
	tree_remove(tree);
}

TEST(test_none_whole)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_resume r;
	char *tree = tree_make();

	for (unsigned i = 1; i <= 9; i++) {
		char name[] = "rank_0/m.0.toy";

		name[strlen("rank_0/m.")] = (char)('0' + i);
		tree_write(tree, name, "", 0);
	}
	assert_int_equal(rsh_resume_open(tree, &opts, 2, &r, &err), -EBADMSG);
	rsh_resume_close(&r);
	assert_non_null(strstr(err.text, "tried 3 (6 older not tried); "
					 "m.9.toy: "));
	assert_non_null(strstr(err.text, "rank_0/m.7.toy: no end"));
	tree_remove(tree);
	tree = tree_make();
	err = (struct rsh_error)RSH_ERROR_INIT;
	assert_int_equal(rsh_resume_open(tree, &opts, 2, &r, &err), -ENOENT);
	rsh_resume_close(&r);
	assert_non_null(strstr(err.text, "it contains no checkpoint of Toy"));
	tree_remove(tree);
}

int main(void)
{
	rsh_log_set_level(RSH_LOG_ERROR);
	return unit_run(NULL, NULL);
}
