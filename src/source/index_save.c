/* SPDX-License-Identifier: Apache-2.0 */
/* source/index_save.c writes the index cache of a tree.
 *
 * A new file replaces the old one with rename(2), so a reader gets one of the
 * two, and two writers do not disturb each other.  The last writer wins; the
 * entries of the other one are scanned again by a later mount.  Nothing is
 * synced: a file that is incomplete after a crash does not match its checksum.
 */
#include "config.h"

#include "index_cache_i.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "rsh/util/clock.h"
#include "rsh/util/compat.h"
#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/pack.h"
#include "rsh/util/thread.h"
#include "rsh/wire/index_codec.h"

/* A file may have entries that this mount did not use: other steps of the job,
 * which may be deleted.  So many of them are kept for each entry that was
 * used. */
#define OTHERS_KEPT 7
#define TEMPORARY_SUFFIX ".tmp"
#define TEMPORARY_SECONDS 3600

struct blob {
	uint32_t number;
	uint8_t *data;
	size_t length;
	const struct rsh_ckpt_index *index; /* NULL: from the old file */
};

/* A draft is the new file before it is written. */
struct rsh_index_draft {
	struct rsh_index_cache *cache;
	struct blob **blobs;
	size_t n_blobs, cap_blobs;
	void *by_index, *by_data; /* trees of these blobs */
	struct rsh_index_file *files;
	size_t n_files, cap_files;
	uint32_t n_entries; /* entries that are not from the old file */
	uint64_t *names;    /* xxh3 of their names, ascending */
	uint32_t *moved; /* [number of an old blob]: its new number, plus 1 */
	uint64_t bytes;
};

/* The array of the draft owns the blobs of both trees. */
static void tree_keeps(void *blob)
{
	(void)blob;
}

static int blob_by_index(const void *a, const void *b)
{
	const struct blob *x = a, *y = b;

	return rsh_compare_u64((uintptr_t)x->index, (uintptr_t)y->index);
}

static int blob_by_data(const void *a, const void *b)
{
	const struct blob *x = a, *y = b;

	return rsh_compare_u64(x->length, y->length) ?:
	       memcmp(x->data, y->data, x->length);
}

static void draft_free(struct rsh_index_draft *d)
{
	tdestroy(d->by_index, tree_keeps);
	tdestroy(d->by_data, tree_keeps);
	for (size_t i = 0; i < d->n_blobs; i++) {
		free(d->blobs[i]->data);
		free(d->blobs[i]);
	}
	free(d->blobs);
	free(d->files);
	free(d->names);
	free(d->moved);
	free(d);
}

/* ---- contents of the file ---- */

/* Adds a blob, unless there is one with the same data.  Takes ownership of the
 * data, also on failure. */
static int draft_add_blob(struct rsh_index_draft *d, struct blob *b,
			  uint32_t *number)
{
	uint64_t bytes = d->bytes + b->length + sizeof(struct rsh_index_blob);
	cleanup_free struct blob *added = malloc(sizeof(*added));
	struct blob **found;
	int rc = added ? 0 : -ENOMEM;

	if (rc == 0 && bytes > RSH_INDEX_FILE_MAX)
		rc = -EFBIG;
	if (rc == 0)
		rc = rsh_grow(&d->blobs, &d->cap_blobs, d->n_blobs + 1,
			      sizeof(struct blob *));
	b->number = (uint32_t)d->n_blobs;
	if (rc == 0)
		*added = *b;
	found = rc == 0 ? tsearch(added, &d->by_data, blob_by_data) : NULL;
	if (!found || *found != added)
		free(b->data);
	if (!found)
		return rc ? rc : -ENOMEM;
	*number = (*found)->number;
	if (*found != added)
		return 0;
	added = NULL;
	d->bytes = bytes;
	d->blobs[d->n_blobs++] = *found;
	return 0;
}

static int draft_add_file(struct rsh_index_draft *d,
			  const struct rsh_index_key *key, uint64_t name,
			  uint32_t blob)
{
	if (d->bytes + sizeof(*d->files) > RSH_INDEX_FILE_MAX)
		return -EFBIG;
	if (rsh_grow(&d->files, &d->cap_files, d->n_files + 1,
		     sizeof(*d->files)))
		return -ENOMEM;
	d->bytes += sizeof(*d->files);
	d->files[d->n_files++] = (struct rsh_index_file){
		.key = *key, .name = name, .blob = blob,
	};
	return 0;
}

/* Returns the blob of an index; many entries share one. */
static int draft_blob_of(struct rsh_index_draft *d,
			 const struct rsh_ckpt_index *index,
			 const struct rsh_names *names, uint32_t *number)
{
	struct blob b = { .index = index };
	struct blob *const *found = tfind(&b, &d->by_index, blob_by_index);
	int rc;

	if (found) {
		*number = (*found)->number;
		return 0;
	}
	if (rsh_index_encode(index, names, &b.data, &b.length))
		return -ENOMEM;
	rc = draft_add_blob(d, &b, number);
	if (rc == 0 && d->blobs[*number]->index == index &&
	    !tsearch(d->blobs[*number], &d->by_index, blob_by_index))
		rc = -ENOMEM;
	return rc;
}

static int draft_by_name(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static int draft_add_entries(struct rsh_index_draft *d,
			     const struct rsh_index_entry *entries, uint32_t n,
			     const struct rsh_names *names)
{
	d->names = rsh_alloc_array(n, sizeof(*d->names));
	if (!d->names)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		const struct rsh_index_entry *e = &entries[i];
		uint32_t blob;
		int rc = draft_blob_of(d, e->index, names, &blob);

		d->names[i] = XXH3_64bits(e->name, strlen(e->name));
		if (rc == 0)
			rc = draft_add_file(d, &e->key, d->names[i], blob);
		if (rc)
			return rc;
	}
	d->n_entries = n;
	qsort(d->names, n, sizeof(*d->names), draft_by_name);
	return 0;
}

/* Returns the new number of an old blob; -EBADMSG if it is damaged. */
static int draft_keep_blob(struct rsh_index_draft *d, uint32_t old,
			   uint32_t *number)
{
	struct blob b = { .index = NULL };
	const uint8_t *data;
	int rc;

	if (d->moved[old]) {
		*number = d->moved[old] - 1;
		return 0;
	}
	data = rsh_index_cache_blob(d->cache, old, &b.length);
	if (!data)
		return -EBADMSG;
	b.data = malloc(b.length);
	if (!b.data)
		return -ENOMEM;
	memcpy(b.data, data, b.length);
	rc = draft_add_blob(d, &b, number);
	if (rc == 0)
		d->moved[old] = *number + 1;
	return rc;
}

/* Keeps the files of the old cache that the new entries do not replace; a
 * changed file is recognised by its name. */
static int draft_keep_others(struct rsh_index_draft *d)
{
	const struct rsh_index_cache *c = d->cache;
	size_t most = (size_t)d->n_entries * (1 + OTHERS_KEPT);

	d->moved = calloc((size_t)c->n_blobs + 1, sizeof(*d->moved));
	if (!d->moved)
		return -ENOMEM;
	for (uint32_t i = 0; i < c->n_files && d->n_files < most; i++) {
		const struct rsh_index_file *f = &c->files[i];
		uint32_t blob;
		int rc;

		if (bsearch(&f->name, d->names, d->n_entries,
			    sizeof(*d->names), draft_by_name))
			continue;
		rc = draft_keep_blob(d, f->blob, &blob);
		if (rc == -EBADMSG)
			continue;
		if (rc == 0)
			rc = draft_add_file(d, &f->key, f->name, blob);
		if (rc)
			return rc == -EFBIG ? 0 : rc;
	}
	return 0;
}

/* ---- writing ---- */

static uint8_t *draft_put(uint8_t *to, const void *data, size_t len)
{
	memcpy(to, data, len);
	return to + len;
}

static int draft_write(void *ctx, int fd)
{
	const struct rsh_index_draft *d = ctx;
	struct rsh_index_head head = {
		.magic = RSH_INDEX_MAGIC, .version = RSH_INDEX_VERSION,
		.n_blobs = (uint32_t)d->n_blobs,
		.n_files = (uint32_t)d->n_files,
		.bytes = d->bytes,
	};
	const size_t len = d->bytes - sizeof(head);
	const size_t max = rsh_pack_bound(len);
	cleanup_free uint8_t *plain = malloc(len + 1), *packed = malloc(max);
	cleanup_free struct rsh_index_blob *places =
		rsh_alloc_array(d->n_blobs, sizeof(*places));
	uint64_t at = sizeof(head) + d->n_blobs * sizeof(*places) +
		      d->n_files * sizeof(*d->files);
	uint8_t *to = plain;
	size_t n;

	if (!plain || !packed || !places)
		return -ENOMEM;
	for (size_t i = 0; i < d->n_blobs; i++) {
		places[i] = (struct rsh_index_blob){ at, d->blobs[i]->length };
		at += d->blobs[i]->length;
	}
	head.sum = rsh_index_sum(&head, places, d->files);
	to = draft_put(to, places, d->n_blobs * sizeof(*places));
	to = draft_put(to, d->files, d->n_files * sizeof(*d->files));
	for (size_t i = 0; i < d->n_blobs; i++)
		to = draft_put(to, d->blobs[i]->data, d->blobs[i]->length);
	n = rsh_pack(plain, len, 1, packed, max);
	return rsh_write_all(fd, &head, sizeof(head), 0) ?:
	       rsh_write_all(fd, packed, n, sizeof(head));
}

static int draft_replace(struct rsh_index_draft *d)
{
	const struct rsh_index_cache *c = d->cache;
	uint64_t number;
	char name[64];

	if (rsh_getrandom(&number, sizeof(number), 0) != sizeof(number))
		return -errno;
	snprintf(name, sizeof(name), "%s.%016" PRIx64 TEMPORARY_SUFFIX, c->name,
		 number);
	return rsh_file_replace(c->dirfd, c->name, name, 0600, draft_write, d);
}

/* ---- removing old files ---- */

struct stored {
	char name[80];
	uint64_t bytes;
	struct timespec mtime;
};

/* Returns whether this program makes files with such a name. */
static bool index_dir_is_ours(const char *name)
{
	size_t n = strspn(name, "0123456789abcdef");

	if (n == 16 && strcmp(name + n, RSH_VERDICT_SUFFIX) == 0)
		return true;
	return n == 16 && strlen(name) < sizeof(((struct stored *)0)->name) &&
	       strncmp(name + n, RSH_INDEX_SUFFIX,
		       strlen(RSH_INDEX_SUFFIX)) == 0 &&
	       (rsh_has_suffix(name, RSH_INDEX_SUFFIX) ||
		rsh_has_suffix(name, TEMPORARY_SUFFIX));
}

static int index_dir_by_age(const void *a, const void *b)
{
	return rsh_clock_compare(&((const struct stored *)a)->mtime,
				 &((const struct stored *)b)->mtime);
}

/* Removes temporary files of writers that were killed, and the files with the
 * oldest last use until all together are small enough; the file that was just
 * written is the newest. */
static void index_dir_remove_oldest(const struct rsh_index_cache *c)
{
	cleanup_free struct stored *list = NULL;
	size_t n = 0, cap = 0;
	uint64_t bytes = 0;
	DIR *dir = rsh_dir_of(openat(c->dirfd, ".", O_RDONLY | O_DIRECTORY |
				     O_CLOEXEC));
	const struct dirent *e;
	struct stat st;

	if (!dir)
		return;
	while ((e = readdir(dir))) {
		if (!index_dir_is_ours(e->d_name) ||
		    fstatat(c->dirfd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
			continue;
		if (rsh_has_suffix(e->d_name, TEMPORARY_SUFFIX)) {
			if (st.st_mtime < time(NULL) - TEMPORARY_SECONDS)
				unlinkat(c->dirfd, e->d_name, 0);
			continue;
		}
		if (rsh_grow(&list, &cap, n + 1, sizeof(*list)))
			break;
		list[n] = (struct stored){
			.bytes = (uint64_t)st.st_size + RSH_VERDICT_BYTES,
			.mtime = st.st_mtim,
		};
		strcpy(list[n++].name, e->d_name);
	}
	closedir(dir);
	if (n > 0)
		qsort(list, n, sizeof(*list), index_dir_by_age);
	for (size_t i = 0; i < n; i++)
		bytes += list[i].bytes;
	for (size_t i = 0; i < n && bytes > RSH_INDEX_DIR_MAX; i++) {
		if (strcmp(list[i].name, c->name) == 0)
			continue;
		bytes -= list[i].bytes;
		unlinkat(c->dirfd, list[i].name, 0);
	}
}

/* ---- the thread ---- */

static void draft_say_failed(const struct rsh_index_cache *c, int rc)
{
	rsh_log_info("%s: the index cache cannot be written: %s", c->path,
		     strerror(-rc));
}

static void *draft_saver(void *arg)
{
	struct rsh_index_draft *d = arg;
	const struct rsh_index_cache *c = d->cache;
	int rc = draft_keep_others(d) ?: draft_replace(d);

	if (rc)
		draft_say_failed(c, rc);
	else
		rsh_log_info("%s: the index cache holds %u files", c->path,
			     d->n_entries);
	index_dir_remove_oldest(c);
	rsh_index_cache_forget(d->cache);
	draft_free(d);
	return NULL;
}

void rsh_index_cache_save(struct rsh_index_cache *c,
			  const struct rsh_index_entry *entries, uint32_t n,
			  const struct rsh_names *names)
{
	struct rsh_index_draft *d = calloc(1, sizeof(*d));
	int rc = d ? 0 : -ENOMEM;

	if (d) {
		d->cache = c;
		d->bytes = sizeof(struct rsh_index_head);
		rc = draft_add_entries(d, entries, n, names);
	}
	if (rc) {
		if (d)
			draft_free(d);
		draft_say_failed(c, rc);
		rsh_index_cache_forget(c);
		return;
	}
	c->saving = rsh_thread_start(&c->saver, draft_saver, d) == 0;
	if (!c->saving)
		draft_saver(d);
}
