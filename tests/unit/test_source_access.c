/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_source_access.c - nobody reads more than before, and links stay in
 * the tree. */
#include "config.h"

#include <stdbool.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "rsh/source/source.h"
#include "rsh/util/log.h"
#include "source_support.h"

#define N_BYTES 10

static const uint8_t content[N_BYTES] = "123456789";

/* ---- modes ---- */

static bool may(mode_t mode, bool owner, bool member)
{
	return mode >> (owner ? 6 : member ? 3 : 0) & 1;
}

/* Everybody there can be: owner or not, member or not of the old group and of
 * the new one, which are the same if the number is. */
static void check_people(mode_t old, mode_t new, bool same_uid, bool same_gid)
{
	for (unsigned p = 0; p < 8; p++) {
		const bool owner = p & 1, member = p & 2;
		const bool new_member = same_gid ? member : p & 4;

		if (may(new, same_uid && owner, new_member))
			assert_true(may(old, owner, member));
	}
}

TEST(test_nobody_gets_more)
{
	for (unsigned i = 0; i < 8 * 4; i++) {
		const struct rsh_store_attr a = {
			.mode = (mode_t)((i & 4) << 4 | (i & 2) << 2 | (i & 1)),
			.uid = 1, .gid = 1,
		};
		const bool same_uid = i & 8, same_gid = i & 16;
		mode_t new = rsh_store_mode_as(&a, same_uid ? 1 : 2,
						same_gid ? 1 : 2);

		check_people(a.mode, new, same_uid, same_gid);
		if (same_uid && same_gid)
			assert_int_equal(new, a.mode);
		/* Nor less than all of them had. */
		if (a.mode == 0111)
			assert_int_equal(new, 0111);
	}
}

/* ---- trees of one file, rank_0/x.ckpt ---- */

struct tree {
	char *path;    /* the source: a directory of ... */
	char *outside; /* ... this one */
};

static struct tree make(void)
{
	struct tree t = { .outside = tree_make() };

	assert_true(asprintf(&t.path, "%s/source", t.outside) > 0);
	assert_int_equal(mkdir(t.path, 0755), 0);
	return t;
}

static void destroy(struct tree *t)
{
	tree_remove(t->outside);
	free(t->path);
}

static void write_at(const struct tree *t, const char *name)
{
	tree_write_vector(t->path, name, content, N_BYTES);
}

static void link_at(const struct tree *t, const char *target, const char *name)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/%s", t->path, name);
	assert_int_equal(symlink(target, path), 0);
}

static void chmod_at(const struct tree *t, const char *name, mode_t mode)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/%s", t->path, name);
	assert_int_equal(chmod(path, mode), 0);
}

static int open_source(const struct tree *t, bool outside,
		       struct rsh_source **out, struct rsh_error *err)
{
	const struct rsh_source_options opts = {
		.store.follow_outside = outside,
	};
	struct rsh_names *names = rsh_names_new();
	int rc = rsh_source_open(t->path, 0, 8, &opts, out, err);

	if (rc == 0) {
		rc = rsh_source_choose(*out, 0, err);
		if (rc == 0)
			rc = rsh_source_index(*out, names, err);
		if (rc)
			rsh_source_free(*out);
	}
	rsh_names_free(names);
	return rc;
}

/* The mode of its file; 0 if there is none. */
static mode_t mode_of(const struct tree *t)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_store_attr a = { 0 };
	struct rsh_source *s;

	assert_good(open_source(t, false, &s, &err), err);
	rsh_source_attr(s, 0, &a);
	rsh_source_free(s);
	return a.mode;
}

TEST(test_directories_count)
{
	FREED_BY(destroy) struct tree t = make();

	write_at(&t, "rank_0/x.ckpt");
	chmod_at(&t, "rank_0/x.ckpt", 0666);
	chmod_at(&t, "rank_0", 0755);
	assert_int_equal(mode_of(&t), 0444);
	chmod_at(&t, "rank_0", 0711);
	assert_int_equal(mode_of(&t), 0444);
	chmod_at(&t, "rank_0", 0754);
	assert_int_equal(mode_of(&t), 0440);
	chmod_at(&t, ".", 0700);
	assert_int_equal(mode_of(&t), 0400);
}

TEST(test_directories_behind_links_count)
{
	FREED_BY(destroy) struct tree t = make();

	write_at(&t, "blobs/x");
	tree_write(t.path, "rank_0/unused", "", 0);
	link_at(&t, "../blobs/x", "rank_0/x.ckpt");
	chmod_at(&t, "blobs/x", 0644);
	chmod_at(&t, "blobs", 0755);
	assert_int_equal(mode_of(&t), 0444);
	chmod_at(&t, "blobs", 0700);
	assert_int_equal(mode_of(&t), 0400);
}

TEST(test_access_lists)
{
	/* As setfacl -m u:65534:-: the version, then tag, rights and number of
	 * each entry. */
	static const uint16_t list[] = {
		2, 0, 1, 6, 0xffff, 0xffff, 2, 0, 65534, 0,
		4, 4, 0xffff, 0xffff, 16, 4, 0xffff, 0xffff,
		32, 4, 0xffff, 0xffff,
	};
	struct tree t = make();
	char path[512];
	int rc;

	write_at(&t, "rank_0/x.ckpt");
	snprintf(path, sizeof(path), "%s/rank_0/x.ckpt", t.path);
	rc = setxattr(path, "system.posix_acl_access", list, sizeof(list), 0);
	if (rc == 0)
		assert_int_equal(mode_of(&t), 0400);
	destroy(&t);
	if (rc)
		unit_skip("the file system has no access lists");
}

/* ---- links ---- */

static void check_stays(const struct tree *t)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_source *s;
	uint8_t c;

	assert_good(open_source(t, false, &s, &err), err);
	assert_int_equal(rsh_source_read(s, 0, 0, &c, 1), 0);
	rsh_source_free(s);
}

TEST(test_links_inside)
{
	struct tree t = make();
	char target[512];

	write_at(&t, "data/x");
	link_at(&t, "data", "now");
	link_at(&t, "now", "rank_0");
	link_at(&t, "../data/x", "data/x.ckpt");
	check_stays(&t);
	destroy(&t);

	t = make();
	write_at(&t, "data/x");
	snprintf(target, sizeof(target), "%s/data", t.path);
	link_at(&t, target, "rank_0");
	snprintf(target, sizeof(target), "%s/data/x", t.path);
	link_at(&t, target, "data/x.ckpt");
	check_stays(&t);
	destroy(&t);
}

/* Refuses, and says what leads where; with `outside` it does not. */
static void check_leaves(const struct tree *t, const char *name,
			 const char *place)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_source *s;
	char path[512];

	assert_int_equal(open_source(t, false, &s, &err), -EXDEV);
	snprintf(path, sizeof(path), "%s/%s leads", t->path, name);
	assert_int_equal(strncmp(err.text, path, strlen(path)), 0);
	assert_non_null(strstr(err.text, place));
	assert_non_null(strstr(err.text, "--follow-outside"));
	assert_int_equal(open_source(t, true, &s, &err), 0);
	rsh_source_free(s);
}

TEST(test_links_outside)
{
	static const char *const targets[] = { "../../elsewhere/x", NULL };
	struct tree t;
	char place[512];

	for (int i = 0; i < 2; i++) {
		t = make();
		tree_write_vector(t.outside, "elsewhere/x", content, N_BYTES);
		snprintf(place, sizeof(place), "%s/elsewhere/x", t.outside);
		tree_write(t.path, "rank_0/unused", "", 0);
		link_at(&t, targets[i] ? targets[i] : place, "rank_0/x.ckpt");
		check_leaves(&t, "rank_0/x.ckpt", place);
		destroy(&t);
	}
	t = make();
	tree_write_vector(t.outside, "elsewhere/x.ckpt", content, N_BYTES);
	snprintf(place, sizeof(place), "%s/elsewhere", t.outside);
	link_at(&t, "../elsewhere", "way");
	link_at(&t, "way", "rank_0");
	check_leaves(&t, "rank_0", place);
	destroy(&t);
}

/* A directory whose name begins with the source's is another one. */
TEST(test_neighbour)
{
	FREED_BY(destroy) struct tree t = make();
	char place[512];

	tree_write_vector(t.outside, "source2/x.ckpt", content, N_BYTES);
	snprintf(place, sizeof(place), "%s2", t.path);
	link_at(&t, place, "rank_0");
	check_leaves(&t, "rank_0", place);
}

/* The file is a link to what a process has open. */
TEST(test_magic_link)
{
	struct rsh_error err = RSH_ERROR_INIT;
	FREED_BY(destroy) struct tree t = make();
	struct rsh_source *s;

	tree_write(t.path, "rank_0/unused", "", 0);
	link_at(&t, "/proc/self/exe", "rank_0/x.ckpt");
	assert_int_equal(open_source(&t, false, &s, &err), -EXDEV);
}

/* A link that takes the place of a directory later on. */
TEST(test_exchanged)
{
	struct rsh_error err = RSH_ERROR_INIT;
	FREED_BY(destroy) struct tree t = make();
	struct rsh_source *s;
	struct rlimit before;
	char path[512], moved[512];
	uint8_t c;

	write_at(&t, "rank_0/x.ckpt");
	write_at(&t, "rank_1/x.ckpt");
	/* One file at a time is open. */
	getrlimit(RLIMIT_NOFILE, &before);
	setrlimit(RLIMIT_NOFILE, &(struct rlimit){ 100, before.rlim_max });
	assert_int_equal(open_source(&t, false, &s, &err), 0);
	setrlimit(RLIMIT_NOFILE, &before);
	snprintf(path, sizeof(path), "%s/rank_0", t.path);
	snprintf(moved, sizeof(moved), "%s/moved", t.outside);
	assert_int_equal(rename(path, moved), 0);
	link_at(&t, "../moved", "rank_0");
	assert_int_equal(rsh_source_read(s, 1, 0, &c, 1), 0);
	assert_int_equal(rsh_source_read(s, 0, 0, &c, 1), -ESTALE);
	rsh_source_free(s);
}

int main(void)
{
	rsh_log_set_level(RSH_LOG_ERROR);
	return unit_run(NULL, NULL);
}
