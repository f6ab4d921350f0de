/* SPDX-License-Identifier: Apache-2.0 */
/* source/index_cache.c finds, reads and writes the indexes of a step. */
#include "config.h"

#include "index_cache_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "rsh/util/checked.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/thread.h"
#include "rsh/wire/index_codec.h"

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
	if (c->n_files > 0)
		qsort(c->files, c->n_files, sizeof(*c->files), index_by_key);
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
	const struct rsh_index_file *f = c->n_files == 0 ? NULL :
		bsearch(key, c->files, c->n_files, sizeof(*f), index_by_key);

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

/* Sets the distinct indexes of the entries, which share them, ascending by
 * address. */
static uint32_t index_list_distinct(const struct rsh_index_entry *entries,
				    uint32_t n,
				    const struct rsh_ckpt_index **all)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < n; i++)
		all[i] = entries[i].index;
	qsort(all, n, sizeof(*all), index_by_address);
	for (uint32_t i = 0; i < n; i++)
		if (i == 0 || all[i] != all[i - 1])
			all[kept++] = all[i];
	return kept;
}

/* Makes the content of the file, which replaces the cache's. */
static int index_cache_draft(struct rsh_index_cache *c,
			     const struct rsh_index_entry *entries, uint32_t n,
			     const struct rsh_names *names)
{
	cleanup_free const struct rsh_ckpt_index **all =
		rsh_alloc_array(n, sizeof(*all));
	const uint32_t n_blobs = all ? index_list_distinct(entries, n, all) : 0;
	const struct rsh_index_head head = { n_blobs, n };
	const size_t files_at = sizeof(head) +
				n_blobs * sizeof(struct rsh_index_blob);
	size_t at = files_at + n * sizeof(struct rsh_index_file), cap = 0;
	cleanup_free uint8_t *data = NULL;

	if (!all || rsh_grow(&data, &cap, at, 1))
		return -ENOMEM;
	memcpy(data, &head, sizeof(head));
	for (uint32_t i = 0; i < n_blobs; i++) {
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
			bsearch(&entries[i].index, all, n_blobs, sizeof(*all),
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
