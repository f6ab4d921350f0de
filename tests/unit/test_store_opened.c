/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_store_opened.c - which files were opened by name, whatever the
 * order and the number of times, and whose they are. */
#include "config.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rsh/storage/store.h"
#include "support.h"

static const struct rsh_small_file small = { "small file", 100 },
	tracker = { "tracker", 100, true };

struct fixture {
	char *tree;
	struct rsh_store *store;
};

static struct rsh_store *open_at(const char *tree, const struct rsh_store *of)
{
	const struct rsh_store_options how = { .opens_of = of };
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_store *s;

	assert_int_equal(rsh_store_open(tree, &how, &s, &err), 0);
	return s;
}

static int setup(void **state)
{
	static const char *const names[] = { "a", "b", "c", "latest" };
	struct fixture *f = calloc(1, sizeof(*f));

	f->tree = tree_make();
	for (size_t i = 0; i < 4; i++)
		tree_write(f->tree, names[i], names[i], 1);
	f->store = open_at(f->tree, NULL);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	rsh_store_free(f->store);
	tree_remove(f->tree);
	free(f);
	return 0;
}

static void load(const struct rsh_store *s, const char *name,
		 const struct rsh_small_file *kind)
{
	struct rsh_error err = RSH_ERROR_INIT;
	cleanup_free uint8_t *data = NULL;
	size_t len;

	assert_int_equal(rsh_store_load(s, name, kind, &data, &len, &err), 0);
}

/* Loads the files with these names of one letter. */
static void load_all(const struct rsh_store *s, const char *names)
{
	for (; *names; names++)
		load(s, (const char[]){ *names, '\0' }, &small);
}

/* Returns the first letters of the names that are listed. */
static const char *listed(const struct rsh_store *s)
{
	static char text[16];
	cleanup_free struct rsh_opened *opened = NULL;
	size_t n;

	assert_int_equal(rsh_store_opened(s, &opened, &n), 0);
	assert_true(n < sizeof(text));
	for (size_t i = 0; i < n; i++)
		text[i] = opened[i].name[0];
	text[n] = '\0';
	return text;
}

TEST_OF_FIXTURE(they_are_kept_when_asked_for)
{
	load_all(f->store, "a");
	assert_string_equal(listed(f->store), "");
	assert_int_equal(rsh_store_n_opened(f->store), 0);
	rsh_store_forget_opened(f->store, 0);
	assert_int_equal(rsh_store_keep_opened(f->store), 0);
	load_all(f->store, "b");
	assert_string_equal(listed(f->store), "b");
}

TEST_OF_FIXTURE(each_counts_once_in_any_order)
{
	assert_int_equal(rsh_store_keep_opened(f->store), 0);
	load_all(f->store, "cbcacbba");
	assert_string_equal(listed(f->store), "abc");
	assert_int_equal(rsh_store_n_opened(f->store), 3);
}

TEST_OF_FIXTURE(each_state_counts)
{
	const int fd = open(f->tree, O_RDONLY | O_DIRECTORY);
	const struct timespec times[2] = { { 1, 0 }, { 2, 3 } };

	assert_int_equal(rsh_store_keep_opened(f->store), 0);
	load_all(f->store, "ab");
	assert_int_equal(utimensat(fd, "b", times, 0), 0);
	close(fd);
	load_all(f->store, "abab");
	assert_string_equal(listed(f->store), "abb");
}

TEST_OF_FIXTURE(a_tracker_does_not_count)
{
	assert_int_equal(rsh_store_keep_opened(f->store), 0);
	load(f->store, "latest", &tracker);
	assert_string_equal(listed(f->store), "");
	load(f->store, "latest", &small);
	assert_string_equal(listed(f->store), "l");
}

TEST_OF_FIXTURE(those_of_a_candidate_are_forgotten)
{
	size_t n;

	assert_int_equal(rsh_store_keep_opened(f->store), 0);
	load_all(f->store, "b");
	n = rsh_store_n_opened(f->store);
	load_all(f->store, "abc");
	assert_string_equal(listed(f->store), "abc");
	rsh_store_forget_opened(f->store, n);
	assert_string_equal(listed(f->store), "b");
	load_all(f->store, "a");
	assert_string_equal(listed(f->store), "ab");
}

TEST_OF_FIXTURE(files_of_the_store_are_left_out)
{
	assert_int_equal(rsh_store_keep_opened(f->store), 0);
	assert_int_equal(rsh_store_add(f->store, &(struct rsh_store_entry){
			.name = "b" }), 0);
	load_all(f->store, "abc");
	assert_string_equal(listed(f->store), "ac");
}

TEST_OF_FIXTURE(another_store_opens_for_it)
{
	struct rsh_store *other = open_at(f->tree, f->store);

	load_all(other, "a");
	assert_int_equal(rsh_store_keep_opened(f->store), 0);
	load_all(other, "b");
	load_all(f->store, "c");
	assert_string_equal(listed(f->store), "bc");
	assert_string_equal(listed(other), "");
	rsh_store_free(other);
}

TEST_OF_FIXTURE(what_cannot_be_opened_does_not_count)
{
	struct rsh_handle *h;

	assert_int_equal(rsh_store_keep_opened(f->store), 0);
	assert_int_equal(rsh_handle_open(f->store, "none", &h), -ENOENT);
	assert_null(h);
	assert_string_equal(listed(f->store), "");
}
