/* SPDX-License-Identifier: Apache-2.0 */
/* source/kept.c has the directory of the index cache, and finds, reads and
 * writes the indexes of a step in it. */
#include "config.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "kept_i.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rsh/source/source.h"
#include "rsh/util/checked.h"
#include "rsh/util/clock.h"
#include "rsh/util/compat.h"
#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/pack.h"
#include "rsh/util/thread.h"
#include "rsh/wire/index_codec.h"

#define SUFFIX ".idx"
#define RIGHT_SUFFIX ".right"
#define TEMPORARY_SUFFIX ".tmp"
#define TEMPORARY_SECONDS 3600
/* The limit for all files together.  An empty file counts as so many bytes,
 * because it needs an entry of the directory. */
#define DIR_MAX (UINT64_C(64) << 20)
#define EMPTY_BYTES 1024
/* LZ4 cannot unpack more from one byte, so a small file cannot need much
 * memory. */
#define UNPACKED_MOST 256
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

int rsh_source_check_home(const char *path)
{
	const char *home = getenv("HOME");
	const size_t n = home ? strlen(home) : 0;

	return n && strncmp(path, home, n) == 0 && path[n] == '/' &&
	       access(home, F_OK) ? -errno : 0;
}

int rsh_source_make_index_dir(const char *path)
{
	cleanup_free char *copy = strdup(path);
	int rc = rsh_source_check_home(path);

	if (rc)
		return rc;
	for (char *p = copy; p && *p; *p = '/') {
		p = strchrnul(p + 1, '/');
		if (!*p)
			break;
		*p = '\0';
		if (mkdir(copy, 0700) != 0 && errno != EEXIST)
			return -errno;
	}
	return !copy ? -ENOMEM :
	       mkdir(copy, 0700) != 0 && errno != EEXIST ? -errno : 0;
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

/* ---- reading ---- */

void rsh_kept_name(uint64_t identity, char name[RSH_KEPT_NAME])
{
	snprintf(name, RSH_KEPT_NAME, "%016" PRIx64 SUFFIX, identity);
}

static bool kept_read_at(int fd, void *buf, size_t len, uint64_t offset)
{
	return rsh_pread_all(fd, buf, len, offset) == (ssize_t)len;
}

/* Opens a file of this user.  The time of its last use decides which files are
 * removed first; the sandbox allows changing it by a descriptor alone. */
static int kept_open(int dirfd, const char *name, struct stat *st)
{
	cleanup_fd int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW |
				   O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	if (fd < 0 || fstat(fd, st) != 0)
		return -errno;
	if (!S_ISREG(st->st_mode) || st->st_uid != geteuid() ||
	    (st->st_mode & (S_IWGRP | S_IWOTH)))
		return -EPERM;
	futimens(fd, NULL);
	return steal_fd(&fd);
}

int rsh_kept_get(int dirfd, const char *name, uint64_t kind, uint8_t **out,
		 size_t *len)
{
	cleanup_free uint8_t *packed = NULL, *data = NULL;
	struct rsh_kept_head head;
	struct stat st;
	uint64_t n;
	cleanup_fd int fd = kept_open(dirfd, name, &st);

	if (fd < 0)
		return fd;
	if (st.st_size <= (off_t)sizeof(head) ||
	    (uint64_t)st.st_size > rsh_pack_bound(RSH_KEPT_MAX))
		return -EBADMSG;
	n = (uint64_t)st.st_size - sizeof(head);
	if (!kept_read_at(fd, &head, sizeof(head), 0))
		return -EBADMSG;
	if (head.kind != kind)
		return -EPROTO;
	if (head.bytes > RSH_KEPT_MAX || head.bytes > n * UNPACKED_MOST)
		return -EBADMSG;
	packed = malloc(n);
	data = malloc(head.bytes + 1);
	if (!packed || !data)
		return -ENOMEM;
	if (!kept_read_at(fd, packed, n, sizeof(head)) ||
	    !rsh_unpack(packed, n, data, head.bytes) ||
	    XXH3_64bits_withSeed(data, head.bytes, kind) != head.sum)
		return -EBADMSG;
	*out = steal_pointer(&data);
	*len = head.bytes;
	return 0;
}

/* ---- removing old files ---- */

struct stored {
	char name[80];
	uint64_t bytes;
	struct timespec mtime;
};

RSH_ORDER(index_dir_by_age, struct stored,
	  rsh_clock_compare(&x->mtime, &y->mtime))

/* Removes temporary files of writers that were killed, and the files with the
 * oldest last use until all together are small enough, but not this one. */
static void index_dir_remove_oldest(int dirfd, const char *but)
{
	cleanup_free struct stored *list = NULL;
	size_t n = 0, cap = 0;
	uint64_t bytes = 0;
	DIR *dir = rsh_dir_of(openat(dirfd, ".", O_RDONLY | O_DIRECTORY |
				     O_CLOEXEC));
	const struct dirent *e;
	struct stat st;

	if (!dir)
		return;
	while ((e = readdir(dir))) {
		const char *name = e->d_name, *rest = name + 16;

		/* Does this program make files with such a name? */
		if (strspn(name, "0123456789abcdef") != 16 ||
		    (strcmp(rest, RIGHT_SUFFIX) != 0 &&
		     (strlen(name) >= sizeof(list->name) ||
		      strncmp(rest, SUFFIX, strlen(SUFFIX)) != 0 ||
		      (!rsh_has_suffix(name, SUFFIX) &&
		       !rsh_has_suffix(name, TEMPORARY_SUFFIX)))) ||
		    fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
			continue;
		if (rsh_has_suffix(name, TEMPORARY_SUFFIX)) {
			if (st.st_mtime < time(NULL) - TEMPORARY_SECONDS)
				unlinkat(dirfd, name, 0);
			continue;
		}
		if (rsh_room(list, cap, n + 1))
			break;
		list[n] = (struct stored){
			.bytes = (uint64_t)st.st_size + EMPTY_BYTES,
			.mtime = st.st_mtim,
		};
		strcpy(list[n++].name, name);
	}
	closedir(dir);
	rsh_sort(list, n, index_dir_by_age);
	for (size_t i = 0; i < n; i++)
		bytes += list[i].bytes;
	for (size_t i = 0; i < n && bytes > DIR_MAX; i++) {
		if (strcmp(list[i].name, but) == 0)
			continue;
		bytes -= list[i].bytes;
		unlinkat(dirfd, list[i].name, 0);
	}
}

/* ---- writing ---- */

struct kept_file {
	struct rsh_kept_head head;
	const uint8_t *packed;
	size_t n;
};

static int kept_write(void *ctx, int fd)
{
	const struct kept_file *f = ctx;

	return rsh_write_all(fd, &f->head, sizeof(f->head), 0) ?:
	       rsh_write_all(fd, f->packed, f->n, sizeof(f->head));
}

int rsh_kept_put(int dirfd, const char *name, uint64_t kind,
		 const uint8_t *data, size_t len)
{
	const size_t max = rsh_pack_bound(len);
	cleanup_free uint8_t *packed = malloc(max);
	struct kept_file f = {
		.head = { kind, len, XXH3_64bits_withSeed(data, len, kind) },
		.packed = packed,
	};
	char temporary[RSH_KEPT_NAME + 32];
	uint64_t number;
	int rc;

	if (len > RSH_KEPT_MAX)
		return -EFBIG;
	if (!packed)
		return -ENOMEM;
	if (rsh_getrandom(&number, sizeof(number), 0) != sizeof(number))
		return -errno;
	f.n = rsh_pack(data, len, 1, packed, max);
	snprintf(temporary, sizeof(temporary), "%s.%016" PRIx64
		 TEMPORARY_SUFFIX, name, number);
	rc = rsh_file_replace(dirfd, name, temporary, 0600, kept_write, &f);
	index_dir_remove_oldest(dirfd, name);
	return rc;
}

/* ---- results of checks ---- */

static void right_name(uint64_t digest, char name[RSH_KEPT_NAME])
{
	snprintf(name, RSH_KEPT_NAME, "%016" PRIx64 RIGHT_SUFFIX, digest);
}

bool rsh_kept_is_right(int dirfd, uint64_t digest)
{
	char name[RSH_KEPT_NAME];
	cleanup_fd int fd = -1;
	struct stat st;

	right_name(digest, name);
	fd = kept_open(dirfd, name, &st);
	return fd >= 0;
}

void rsh_kept_put_right(int dirfd, uint64_t digest)
{
	char name[RSH_KEPT_NAME];
	cleanup_fd int fd = -1;

	right_name(digest, name);
	fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC,
		    0600);
}

/* ---- the indexes of a step ---- */

/* ---- reading ---- */

static int index_by_key(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct rsh_index_key));
}

/* Checks the numbers of the content.  This cannot overflow, because each count
 * has 32 bits. */
static int index_cache_parse(struct rsh_index_cache *c)
{
	struct rsh_index_head head;
	uint64_t first = sizeof(head);

	if (c->len < sizeof(head))
		return -EBADMSG;
	memcpy(&head, c->data, sizeof(head));
	c->blobs = (const void *)(c->data + first);
	first += (uint64_t)head.n_blobs * sizeof(*c->blobs);
	c->files = (void *)(c->data + first);
	first += (uint64_t)head.n_files * sizeof(*c->files);
	if (first > c->len)
		return -EBADMSG;
	for (uint32_t i = 0; i < head.n_blobs; i++)
		if (c->blobs[i].offset < first ||
		    c->blobs[i].offset > c->len ||
		    c->blobs[i].length > c->len - c->blobs[i].offset)
			return -EBADMSG;
	for (uint32_t i = 0; i < head.n_files; i++)
		if (c->files[i].blob >= head.n_blobs)
			return -EBADMSG;
	c->n_blobs = head.n_blobs;
	c->n_files = head.n_files;
	rsh_sort(c->files, c->n_files, index_by_key);
	return 0;
}

struct rsh_index_cache *
rsh_index_cache_open(int dirfd, const struct rsh_store_identity *root,
		     const char *step, const char *path)
{
	struct rsh_index_cache *c = calloc(1, sizeof(*c));
	int rc;

	if (!c)
		return NULL;
	c->path = path;
	c->dirfd = dirfd;
	rsh_kept_name(XXH3_64bits_withSeed(step, strlen(step),
		XXH3_64bits_withSeed(root->which, sizeof(root->which),
				     root->keeps_ctime ? root->place : 0)),
		      c->name);
	rc = rsh_kept_get(dirfd, c->name, RSH_KEPT_INDEXES, &c->data,
			  &c->len) ?:
	     index_cache_parse(c);
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
	c->data = NULL;
	c->n_blobs = c->n_files = 0;
}

bool rsh_index_cache_find(const struct rsh_index_cache *c,
			  const struct rsh_index_key *key, uint32_t *which)
{
	const struct rsh_index_file *f = rsh_find(key, c->files, c->n_files,
						  index_by_key);

	if (f)
		*which = (uint32_t)f->blob;
	return f;
}

int rsh_index_cache_load(const struct rsh_index_cache *c, uint32_t which,
			 struct rsh_names *names, struct rsh_ckpt_index **out)
{
	const struct rsh_index_blob *b = &c->blobs[which];

	return rsh_index_decode(c->data + b->offset, b->length, names, out);
}

/* ---- writing ---- */

static int index_by_address(const void *a, const void *b)
{
	return rsh_compare_u64((uintptr_t)*(void *const *)a,
			       (uintptr_t)*(void *const *)b);
}

/* Makes the content of the file, which replaces the cache's. */
static int index_cache_draft(struct rsh_index_cache *c,
			     const struct rsh_index_entry *entries, uint32_t n,
			     const struct rsh_names *names)
{
	cleanup_free const struct rsh_ckpt_index **all =
		rsh_alloc_array(n, sizeof(*all));
	struct rsh_index_head head = { 0, n };
	size_t files_at, at, cap = 0;
	cleanup_free uint8_t *data = NULL;

	if (!all)
		return -ENOMEM;
	/* The entries share indexes, which are listed by address. */
	for (uint32_t i = 0; i < n; i++)
		all[i] = entries[i].index;
	rsh_sort(all, n, index_by_address);
	for (uint32_t i = 0; i < n; i++)
		if (i == 0 || all[i] != all[i - 1])
			all[head.n_blobs++] = all[i];
	files_at = sizeof(head) + head.n_blobs * sizeof(struct rsh_index_blob);
	at = files_at + n * sizeof(struct rsh_index_file);
	if (rsh_grow(&data, &cap, at, 1))
		return -ENOMEM;
	memcpy(data, &head, sizeof(head));
	for (uint32_t i = 0; i < head.n_blobs; i++) {
		struct rsh_index_blob b = { .offset = at };
		cleanup_free uint8_t *one = NULL;

		if (rsh_index_encode(all[i], names, &one, &b.length))
			return -ENOMEM;
		if (b.length > RSH_KEPT_MAX - rsh_min_u64(at, RSH_KEPT_MAX))
			return -EFBIG;
		if (rsh_grow(&data, &cap, at + b.length, 1))
			return -ENOMEM;
		memcpy(data + at, one, b.length);
		memcpy(data + sizeof(head) + i * sizeof(b), &b, sizeof(b));
		at += b.length;
	}
	for (uint32_t i = 0; i < n; i++) {
		const struct rsh_ckpt_index **found =
			rsh_find(&entries[i].index, all, head.n_blobs,
				 index_by_address);
		const struct rsh_index_file f = {
			entries[i].key, (uint64_t)(found - all),
		};

		memcpy(data + files_at + i * sizeof(f), &f, sizeof(f));
	}
	rsh_index_cache_forget(c);
	c->data = steal_pointer(&data);
	c->len = at;
	return 0;
}

static void *index_cache_saver(void *arg)
{
	struct rsh_index_cache *c = arg;
	int rc = rsh_kept_put(c->dirfd, c->name, RSH_KEPT_INDEXES, c->data,
			      c->len);

	if (rc)
		rsh_log_info("%s: the index cache cannot be written: %s",
			     c->path, strerror(-rc));
	rsh_index_cache_forget(c);
	return NULL;
}

void rsh_index_cache_save(struct rsh_index_cache *c,
			  const struct rsh_index_entry *entries, uint32_t n,
			  const struct rsh_names *names)
{
	int rc = index_cache_draft(c, entries, n, names);

	if (rc) {
		rsh_log_info("%s: the index cache cannot be written: %s",
			     c->path, strerror(-rc));
		rsh_index_cache_forget(c);
		return;
	}
	rsh_log_info("%s: the index cache holds %u files", c->path, n);
	c->saving = rsh_thread_start(&c->saver, index_cache_saver, c) == 0;
	if (!c->saving)
		index_cache_saver(c);
}
