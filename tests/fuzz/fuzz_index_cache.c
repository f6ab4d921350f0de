/* SPDX-License-Identifier: Apache-2.0 */
/* The index cache of a step, or its content alone: whatever the file holds, it
 * is read without harm, and each index in it is one of its blobs' or none.  In
 * the working directory or $TMPDIR. */
#include "config.h"

#include "fuzz_support.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rsh/util/log.h"
#include "source/kept_i.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
static char directory[4096];
static char name[32]; /* of the tree's file in it */
static int dirfd_ = -1;
static const struct rsh_store_identity root = { .size = 0 };

static void remove_directory(void)
{
	unlinkat(dirfd_, name, 0);
	rmdir(directory);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	const char *tmp = getenv("TMPDIR");
	struct rsh_index_cache *c;

	(void)argc;
	(void)argv;
	rsh_log_set_level(RSH_LOG_ERROR);
	snprintf(directory, sizeof(directory), "%s/fuzz-index-XXXXXX",
		 tmp ? tmp : ".");
	require(mkdtemp(directory));
	dirfd_ = rsh_index_dir_open(directory, true);
	require(dirfd_ >= 0);
	c = rsh_index_cache_open(dirfd_, &root, "", "t");
	require(c);
	memcpy(name, c->name, sizeof(name));
	rsh_index_cache_close(c);
	atexit(remove_directory);
	return 0;
}

static void write_file(const uint8_t *data, size_t size)
{
	int fd = openat(dirfd_, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	require(fd >= 0);
	require(write(fd, data, size) == (ssize_t)size);
	close(fd);
}

static void load_all(struct rsh_index_cache *c)
{
	struct rsh_names *names = rsh_names_new();
	struct rsh_ckpt_index *index;
	uint32_t which;

	for (uint32_t i = 0; i < c->n_blobs; i++)
		if (rsh_index_cache_load(c, i, names, &index) == 0)
			rsh_ckpt_index_free(index);
	for (uint32_t i = 0; i < c->n_files; i++)
		require(rsh_index_cache_find(c, &c->files[i].key, &which) &&
			which < c->n_blobs);
	rsh_names_free(names);
}

/* Half of the inputs are the content of a file that is right otherwise. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rsh_index_cache *c;

	if (size && data[0] & 1)
		require(rsh_kept_put(dirfd_, name, RSH_KEPT_INDEXES, data + 1,
				     size - 1) == 0);
	else
		write_file(data, size);
	c = rsh_index_cache_open(dirfd_, &root, "", "t");
	require(c);
	load_all(c);
	rsh_index_cache_close(c);
	return 0;
}
