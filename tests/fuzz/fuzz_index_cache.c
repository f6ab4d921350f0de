/* SPDX-License-Identifier: Apache-2.0 */
/* The index cache of a tree, with its tables' checksum made right and packed, or
 * as it is behind its head: whatever the file holds, it is read without harm, and
 * each index in it is one of its blobs' or none.  In the working directory or
 * $TMPDIR. */
#include "config.h"

#include "fuzz_support.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rsh/util/log.h"
#include "rsh/util/pack.h"
#include "source/index_cache_i.h"

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
	c = rsh_index_cache_open(dirfd_, &root, "t");
	require(c);
	memcpy(name, c->name, sizeof(name));
	rsh_index_cache_close(c);
	atexit(remove_directory);
	return 0;
}

/* What a fuzzer would not guess. */
static void sign(uint8_t *file, size_t size)
{
	struct rsh_index_head head;
	uint64_t blobs, files;

	if (size < sizeof(head))
		return;
	memcpy(&head, file, sizeof(head));
	head.magic = RSH_INDEX_MAGIC;
	head.version = RSH_INDEX_VERSION;
	head.bytes = size;
	blobs = (uint64_t)head.n_blobs * sizeof(struct rsh_index_blob);
	files = (uint64_t)head.n_files * sizeof(struct rsh_index_file);
	if (blobs + files <= size - sizeof(head))
		head.sum = rsh_index_sum(
			&head, (const void *)(file + sizeof(head)),
			(const void *)(file + sizeof(head) + blobs));
	memcpy(file, &head, sizeof(head));
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

	for (uint32_t i = 0; i < rsh_index_cache_count(c); i++)
		if (rsh_index_cache_load(c, i, names, &index) == 0)
			rsh_ckpt_index_free(index);
	for (uint32_t i = 0; i < c->n_files; i++)
		require(rsh_index_cache_find(c, &c->files[i].key, &which) &&
			which < rsh_index_cache_count(c));
	rsh_names_free(names);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const bool packed = size && data[0] & 1;
	const size_t head = sizeof(struct rsh_index_head);
	uint8_t *file = malloc(size + 1);
	uint8_t *stored = malloc(head + rsh_pack_bound(size));
	struct rsh_index_cache *c;

	require(file && stored);
	if (size)
		memcpy(file, data, size);
	sign(file, size);
	memcpy(stored, file, size);
	if (packed && size >= head)
		size = head + rsh_pack(file + head, size - head, 1,
				       stored + head, rsh_pack_bound(size));
	write_file(stored, size);
	c = rsh_index_cache_open(dirfd_, &root, "t");
	require(c);
	load_all(c);
	rsh_index_cache_close(c);
	free(file);
	free(stored);
	return 0;
}
