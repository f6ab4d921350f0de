/* SPDX-License-Identifier: Apache-2.0 */
/* source/index_cache.c finds and reads the indexes that earlier mounts have
 * stored.
 *
 * The directory belongs to the user, but its contents are not trusted: links
 * are not followed, files of other owners are not read, and every number is
 * checked before it is used.
 */
#include "config.h"

#include "index_cache_i.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "rsh/source/source.h"
#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/pack.h"
#include "rsh/wire/index_codec.h"

/* The clocks from which file systems take times have at least this
 * resolution. */
#define SETTLING_SECONDS 2

/* ---- identity ---- */

int rsh_index_key_take(const struct rsh_handle *h, struct rsh_index_key *key)
{
	struct rsh_store_identity id;
	int rc = rsh_handle_identity(h, &id);

	if (rc)
		return rc;
	*key = (struct rsh_index_key){
		.place = id.place, .keeps_ctime = id.keeps_ctime,
		.dev = id.which[0], .ino = id.which[1], .size = id.size,
		.mtime = id.mtime.tv_sec, .ctime = id.ctime.tv_sec,
		.mtime_ns = (uint32_t)id.mtime.tv_nsec,
		.ctime_ns = (uint32_t)id.ctime.tv_nsec,
	};
	return 0;
}

bool rsh_index_key_settled(const struct rsh_index_key *key, time_t now)
{
	return key->keeps_ctime && key->mtime < now - SETTLING_SECONDS &&
	       key->ctime < now - SETTLING_SECONDS;
}

/* ---- the directory ---- */

static int make_each(char *path)
{
	for (char *p = path + 1; *p; p++) {
		if (*p != '/')
			continue;
		*p = '\0';
		if (mkdir(path, 0700) != 0 && errno != EEXIST)
			return -errno;
		*p = '/';
	}
	return mkdir(path, 0700) != 0 && errno != EEXIST ? -errno : 0;
}

/* If the user's home does not exist, it is not created. */
static bool lies_in_lost_home(const char *path)
{
	const char *home = getenv("HOME");
	const size_t n = home ? strlen(home) : 0;

	return n && strncmp(path, home, n) == 0 && path[n] == '/' &&
	       access(home, F_OK) != 0;
}

int rsh_source_make_index_dir(const char *path)
{
	cleanup_free char *copy = strdup(path);

	if (lies_in_lost_home(path))
		return -ENOENT;
	return copy ? make_each(copy) : -ENOMEM;
}

static int index_dir_make(const char *path, const char **why)
{
	cleanup_fd int fd = -1;
	struct stat st;
	int rc = rsh_source_make_index_dir(path);

	if (rc == 0) {
		fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW |
			  O_CLOEXEC);
		if (fd < 0 || fstat(fd, &st) != 0)
			rc = -errno;
	}
	*why = strerror(-rc);
	if (rc)
		return -1;
	*why = "another user owns it or can write to it";
	if (st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)))
		return -1;
	return steal_fd(&fd);
}

int rsh_index_dir_open(const char *path, bool asked)
{
	const char *why;
	int fd = *path ? index_dir_make(path, &why) : -1;

	if (fd < 0 && *path)
		rsh_log(asked ? RSH_LOG_WARNING : RSH_LOG_INFO,
			"%s: no index cache: %s", path, why);
	return fd;
}

/* ---- the file ---- */

bool rsh_index_read_at(int fd, void *buf, size_t len, uint64_t offset)
{
	return rsh_pread_all(fd, buf, len, offset) == (ssize_t)len;
}

static int index_file_unpack(struct rsh_index_cache *c,
			     struct rsh_index_head *head)
{
	cleanup_free uint8_t *packed = NULL;
	cleanup_fd int fd = openat(c->dirfd, c->name, O_RDONLY | O_NOFOLLOW |
				   O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;
	uint64_t n;

	if (fd < 0 || fstat(fd, &st) != 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() ||
	    (st.st_mode & (S_IWGRP | S_IWOTH)))
		return -EPERM;
	if (st.st_size <= (off_t)sizeof(*head) ||
	    (uint64_t)st.st_size > rsh_pack_bound(RSH_INDEX_FILE_MAX))
		return -EBADMSG;
	n = (uint64_t)st.st_size - sizeof(*head);
	if (!rsh_index_read_at(fd, head, sizeof(*head), 0) ||
	    head->magic != RSH_INDEX_MAGIC)
		return -EBADMSG;
	/* The time of the last use decides which files are removed first. */
	futimens(fd, NULL);
	if (head->version != RSH_INDEX_VERSION)
		return -EPROTO;
	if (head->bytes < sizeof(*head) || head->bytes > RSH_INDEX_FILE_MAX ||
	    head->bytes > n * RSH_INDEX_UNPACKED_MOST)
		return -EBADMSG;
	packed = malloc(n);
	c->data = malloc(head->bytes);
	if (!packed || !c->data)
		return -ENOMEM;
	if (!rsh_index_read_at(fd, packed, n, sizeof(*head)))
		return -EBADMSG;
	memcpy(c->data, head, sizeof(*head));
	return rsh_unpack(packed, n, c->data + sizeof(*head),
			  head->bytes - sizeof(*head)) ? 0 : -EBADMSG;
}

/* This cannot overflow, because each count has 32 bits. */
static uint64_t index_table_bytes(const struct rsh_index_head *head)
{
	return (uint64_t)head->n_blobs * sizeof(struct rsh_index_blob) +
	       (uint64_t)head->n_files * sizeof(struct rsh_index_file);
}

uint64_t rsh_index_sum(const struct rsh_index_head *head,
		       const struct rsh_index_blob *blobs,
		       const struct rsh_index_file *files)
{
	struct rsh_index_head plain = *head;
	XXH3_state_t state;

	plain.sum = 0;
	XXH3_INITSTATE(&state);
	XXH3_64bits_reset(&state);
	XXH3_64bits_update(&state, &plain, sizeof(plain));
	XXH3_64bits_update(&state, blobs, head->n_blobs * sizeof(*blobs));
	XXH3_64bits_update(&state, files, head->n_files * sizeof(*files));
	return XXH3_64bits_digest(&state);
}

static int index_by_key(const void *a, const void *b, void *cache)
{
	const struct rsh_index_file *f =
		((const struct rsh_index_cache *)cache)->files;

	return memcmp(&f[*(const uint32_t *)a].key,
		      &f[*(const uint32_t *)b].key, sizeof(f->key));
}

static int index_file_read(struct rsh_index_cache *c)
{
	struct rsh_index_head head;
	int rc = index_file_unpack(c, &head);
	const uint8_t *blobs;
	uint64_t first;

	if (rc)
		return rc;
	first = sizeof(head) + index_table_bytes(&head);
	if (first > head.bytes)
		return -EBADMSG;
	blobs = c->data + sizeof(head);
	c->blobs = (const void *)blobs;
	c->files = (const void *)(blobs + head.n_blobs * sizeof(*c->blobs));
	c->order = rsh_alloc_array(head.n_files, sizeof(*c->order));
	if (!c->order)
		return -ENOMEM;
	if (rsh_index_sum(&head, c->blobs, c->files) != head.sum)
		return -EBADMSG;
	for (uint32_t i = 0; i < head.n_blobs; i++)
		if (c->blobs[i].offset < first ||
		    c->blobs[i].offset > head.bytes ||
		    c->blobs[i].length > head.bytes - c->blobs[i].offset)
			return -EBADMSG;
	for (uint32_t i = 0; i < head.n_files; i++)
		if (c->files[i].blob >= head.n_blobs)
			return -EBADMSG;
	c->n_blobs = head.n_blobs;
	c->n_files = head.n_files;
	for (uint32_t i = 0; i < c->n_files; i++)
		c->order[i] = i;
	qsort_r(c->order, c->n_files, sizeof(*c->order), index_by_key, c);
	return 0;
}

struct rsh_index_cache *
rsh_index_cache_open(int dirfd, const struct rsh_store_identity *root,
		     const char *path)
{
	struct rsh_index_cache *c = calloc(1, sizeof(*c));
	int rc;

	if (!c)
		return NULL;
	c->path = path;
	c->dirfd = dirfd;
	snprintf(c->name, sizeof(c->name), "%016" PRIx64 RSH_INDEX_SUFFIX,
		 XXH3_64bits_withSeed(root->which, sizeof(root->which),
				      root->keeps_ctime ? root->place : 0));
	rc = index_file_read(c);
	if (rc && rc != -ENOENT)
		rsh_log_info("%s: the index cache is not used: %s",
			     path, rc == -EBADMSG ? "it is damaged" :
			     rc == -EPROTO ? "it is of another version" :
			     strerror(-rc));
	return c;
}

void rsh_index_cache_close(struct rsh_index_cache *c)
{
	if (!c)
		return;
	if (c->saving)
		pthread_join(c->saver, NULL);
	rsh_index_cache_forget(c);
	free(c);
}

void rsh_index_cache_forget(struct rsh_index_cache *c)
{
	free(c->data);
	free(c->order);
	c->data = NULL;
	c->order = NULL;
	c->n_blobs = c->n_files = 0;
}

/* ---- looking up indexes ---- */

uint32_t rsh_index_cache_count(const struct rsh_index_cache *c)
{
	return c->n_blobs;
}

bool rsh_index_cache_find(const struct rsh_index_cache *c,
			  const struct rsh_index_key *key, uint32_t *which)
{
	uint32_t lo = 0, hi = c->n_files;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		const struct rsh_index_file *f = &c->files[c->order[mid]];
		int d = memcmp(key, &f->key, sizeof(*key));

		*which = f->blob;
		if (d == 0)
			return true;
		if (d < 0)
			hi = mid;
		else
			lo = mid + 1;
	}
	return false;
}

const uint8_t *rsh_index_cache_blob(const struct rsh_index_cache *c,
				    uint32_t which, size_t *len)
{
	const struct rsh_index_blob *b = &c->blobs[which];
	const uint8_t *data = c->data + b->offset;

	*len = b->length;
	return rsh_index_intact(data, b->length) ? data : NULL;
}

int rsh_index_cache_load(struct rsh_index_cache *c, uint32_t which,
			 struct rsh_names *names, struct rsh_ckpt_index **out)
{
	size_t len;
	const uint8_t *data = rsh_index_cache_blob(c, which, &len);
	int rc = data ? rsh_index_decode(data, len, names, out) : -EBADMSG;

	if (rc == -EBADMSG && !atomic_flag_test_and_set(&c->reported))
		rsh_log_info("%s: a part of the index cache is not used: it is "
			     "damaged", c->path);
	return rc;
}

/* ---- results of checks ---- */

static void verdict_name(uint64_t digest, char name[32])
{
	snprintf(name, 32, "%016" PRIx64 RSH_VERDICT_SUFFIX, digest);
}

bool rsh_index_verdict_is_kept(int dirfd, uint64_t digest)
{
	cleanup_fd int fd = -1;
	char name[32];
	struct stat st;

	verdict_name(digest, name);
	fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK |
				 O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) ||
	    st.st_uid != geteuid())
		return false;
	/* The time of the last use decides which files are removed first.  The
	 * sandbox allows changing it by a descriptor alone. */
	futimens(fd, NULL);
	return true;
}

void rsh_index_verdict_keep(int dirfd, uint64_t digest)
{
	char name[32];
	int fd;

	verdict_name(digest, name);
	fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC,
		    0600);
	if (fd >= 0)
		close(fd);
}
