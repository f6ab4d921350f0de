/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_source_metadata.c - what is kept of a large metadata.json. */
#include "config.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "source/source_i.h"
#include "support.h"

#define LARGE ((size_t)3 << 20)
#define SETTLED_AFTER 4 /* seconds */

#define TEXT \
	"{\"state_dict_metadata\":{\"w\":{\"global_shape\":[4]," \
	"\"layout\":null}},\"storage_data\":{\"('w', (0,))\":" \
	"[{\"file_name\":\"f\",\"storage_rank\":2}]}}"

/* A metadata.json of that size, most of it blanks. */
static void write_metadata(const char *tree, size_t size)
{
	cleanup_free char *text = malloc(size);

	assert_non_null(text);
	memset(text, ' ', size);
	memcpy(text, TEXT, strlen(TEXT));
	tree_write(tree, "metadata.json", text, size);
}

/* The bytes that this process has read so far. */
static unsigned long long bytes_read(void)
{
	unsigned long long n;
	FILE *f = fopen("/proc/self/io", "r");

	assert_non_null(f);
	assert_int_equal(fscanf(f, "rchar: %llu", &n), 1);
	fclose(f);
	return n;
}

/* Parses it, and tells whether it was read for that. */
static bool parse_reads(const char *tree, const char *cache)
{
	struct rsh_error err = RSH_ERROR_INIT;
	unsigned long long before = bytes_read();
	int dirfd = open(cache, O_RDONLY | O_DIRECTORY);
	struct rsh_ckpt2 *c;
	struct rsh_handle *h;
	char path[256];

	snprintf(path, sizeof(path), "%s/metadata.json", tree);
	assert_true(dirfd >= 0);
	assert_int_equal(rsh_handle_open_path(path, &h), 0);
	assert_good(rsh_metadata_parse(dirfd, h, path, &c, &err), err);
	rsh_handle_close(h);
	close(dirfd);
	assert_int_equal(c->n_params, 1);
	assert_string_equal(c->params[0].name, "w");
	assert_int_equal(c->params[0].ranks->ranks[0], 2);
	assert_string_equal(c->files[0].name, "f");
	rsh_ckpt2_free(c);
	return bytes_read() - before > LARGE / 2;
}

/* The path of what is kept, in a directory with nothing else; "" for none. */
static void kept_path(const char *cache, char path[512])
{
	DIR *dir = opendir(cache);
	const struct dirent *e;

	assert_non_null(dir);
	path[0] = '\0';
	while ((e = readdir(dir)))
		if (e->d_name[0] != '.')
			snprintf(path, 512, "%s/%s", cache, e->d_name);
	closedir(dir);
}

/* Whatever is done to what is kept, the file is read then, and kept again. */
static void assert_heals(const char *tree, const char *cache, off_t at)
{
	char path[512], byte;
	int fd;

	kept_path(cache, path);
	fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	if (at < 0) {
		assert_int_equal(ftruncate(fd, -at), 0);
	} else {
		assert_int_equal(pread(fd, &byte, 1, at), 1);
		byte ^= 1;
		assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	}
	close(fd);
	assert_true(parse_reads(tree, cache));
	assert_false(parse_reads(tree, cache));
}

TEST(test_kept)
{
	char *tree = tree_make(), *cache = tree_make(), path[512];

	write_metadata(tree, LARGE);
	/* Who may be changed still, within a tick of the clock, is not kept. */
	assert_true(parse_reads(tree, cache));
	kept_path(cache, path);
	assert_string_equal(path, "");
	sleep(SETTLED_AFTER);
	assert_true(parse_reads(tree, cache));
	assert_false(parse_reads(tree, cache));
	assert_heals(tree, cache, 0);
	assert_heals(tree, cache, 30);
	assert_heals(tree, cache, 100);
	assert_heals(tree, cache, -1);
	assert_heals(tree, cache, -90);
	kept_path(cache, path);
	assert_int_equal(chmod(path, 0620), 0);
	assert_true(parse_reads(tree, cache));
	/* another file under the same name */
	write_metadata(tree, LARGE);
	assert_true(parse_reads(tree, cache));
	tree_remove(tree);
	tree_remove(cache);
}

TEST(test_small_is_not_kept)
{
	char *tree = tree_make(), *cache = tree_make(), path[512];

	write_metadata(tree, 4096);
	sleep(SETTLED_AFTER);
	parse_reads(tree, cache);
	kept_path(cache, path);
	assert_string_equal(path, "");
	tree_remove(tree);
	tree_remove(cache);
}
