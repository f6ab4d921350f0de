/* SPDX-License-Identifier: Apache-2.0 */
/* formats/torch/zip.c reads the form of torch.save() since PyTorch 1.6: a zip
 * archive of data.pkl and an entry for each storage.
 *
 * The begin of an entry's content is computed from the next entry, so that the
 * local headers need not be read one by one.  Local headers that were read with
 * other bytes are compared with the result. */
#include "config.h"

#include "torch_i.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/util/mem.h"
#include "rsh/wire/bytes.h"
#include "rsh/wire/torch_dtype.h"
#include "zip_i.h"

/* The directory and the data.pkl of a model have fewer bytes than this. */
#define DIRECTORY_MAX ((uint64_t)1024 * 1024 * 1024)
#define OBJECT_MAX ((uint64_t)1024 * 1024 * 1024)
/* The data.pkl of one tensor or value has fewer bytes than this, and all
 * entries that are needed of it are among the first ones.  The limits matter if
 * items of a distributed checkpoint share a large archive. */
#define ITEM_OBJECT_MAX ((uint64_t)1024 * 1024)
#define ITEM_ENTRIES_MAX 1024
/* This many bytes after data.pkl have the next entries, which are small. */
#define BEHIND_OBJECT 8192
#define LOCAL_BYTES 30
#define EXTRA_MAX 0xffff
/* torch aligns each entry's content to this. */
#define ALIGNMENT 64

struct zip_entry {
	const char *name; /* not terminated by a NUL */
	struct rsh_zip_entry e;
	uint64_t content; /* offset of its content */
};

struct zip_reader {
	struct rsh_torch_reader *r;
	struct rsh_zip_directory directory;
	struct zip_entry *entries; /* sorted by their place in the archive */
	size_t n, cap;
	const struct zip_entry **by_name;
	uint8_t *room;
	const struct zip_entry *object; /* data.pkl */
};

/* ---- the directory ---- */

RSH_ORDER(zip_by_place, struct zip_entry,
	  rsh_compare_u64(x->e.local_offset, y->e.local_offset))

RSH_ORDER(zip_by_name, struct zip_entry *const,
	  memcmp((*x)->name, (*y)->name,
		 rsh_min_u64((*x)->e.n_name, (*y)->e.n_name)) ?:
	  rsh_compare_u64((*x)->e.n_name, (*y)->e.n_name))

static int zip_sort(struct zip_reader *z)
{
	struct rsh_torch_reader *r = z->r;

	rsh_sort(z->entries, z->n, zip_by_place);
	z->by_name = rsh_alloc_array(z->n, sizeof(*z->by_name));
	if (!z->by_name)
		return rsh_error_nomem(r->err);
	for (size_t i = 0; i < z->n; i++) {
		z->by_name[i] = &z->entries[i];
		if (i > 0 && z->entries[i].e.local_offset ==
			     z->entries[i - 1].e.local_offset)
			return rsh_torch_bad(r, z->entries[i].e.at, "two zip "
					     "entries at one place");
	}
	rsh_sort(z->by_name, z->n, zip_by_name);
	for (size_t i = 1; i < z->n; i++)
		if (zip_by_name(&z->by_name[i - 1], &z->by_name[i]) == 0)
			return rsh_torch_bad(r, z->by_name[i]->e.at, "a zip "
					     "entry that is there twice");
	return 0;
}

/* Many threads read the files of ranks.  Entries, data.pkl and its values take
 * some 50 bytes for each byte of the directory. */
#define LISTED_BYTES ((uint64_t)4 << 20)

static struct {
	pthread_mutex_t lock; /* guards `bytes` */
	pthread_cond_t less;
	uint64_t bytes; /* of the directories of files that are being read */
} listed = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0 };

void rsh_torch_listed_leave(struct rsh_torch_reader *r)
{
	if (r->listed_bytes == 0)
		return;
	pthread_mutex_lock(&listed.lock);
	listed.bytes -= r->listed_bytes;
	pthread_cond_broadcast(&listed.less);
	pthread_mutex_unlock(&listed.lock);
}

static int zip_read_entries(struct zip_reader *z)
{
	struct rsh_torch_reader *r = z->r;
	const struct rsh_zip_directory *d = &z->directory;
	const bool all = !r->is_item || d->n_entries <= ITEM_ENTRIES_MAX;
	const uint64_t n = all ? d->n_entries : ITEM_ENTRIES_MAX;
	uint64_t at = d->offset;
	int rc = 0;

	if (d->bytes > DIRECTORY_MAX)
		return rsh_torch_bad(r, at, "a zip directory of more than "
				     "1 GiB");
	if (!r->is_item) {
		/* Waits until others read few files, or none. */
		pthread_mutex_lock(&listed.lock);
		while (listed.bytes > 0 &&
		       listed.bytes + d->bytes > LISTED_BYTES)
			pthread_cond_wait(&listed.less, &listed.lock);
		listed.bytes += d->bytes;
		pthread_mutex_unlock(&listed.lock);
		r->listed_bytes = d->bytes;
		rc = rsh_torch_view_load(&r->view, at, d->bytes, r->err);
	}
	for (uint64_t i = 0; i < n && rc == 0; i++) {
		struct rsh_zip_entry e;
		struct zip_entry *to;

		rc = rsh_zip_read_entry(&r->src, d, &at, z->room, &e, r->err);
		if (rc)
			break;
		if (rsh_room(z->entries, z->cap, z->n + 1))
			return rsh_error_nomem(r->err);
		to = &z->entries[z->n++];
		*to = (struct zip_entry){ .e = e };
		to->name = rsh_arena_strndup(&r->values, (const char *)e.name,
					     e.n_name);
		if (!to->name)
			return rsh_error_nomem(r->err);
		to->e.name = (const uint8_t *)to->name;
		to->e.extra = NULL;
	}
	if (rc == 0 && all && at != d->end)
		rc = rsh_torch_bad(r, at, "the zip directory has more entries "
				   "than its end record says");
	return rc ? rc : zip_sort(z);
}

/* Finds "<root>/<name>".  Returns NULL if there is none. */
static const struct zip_entry *zip_find_in_root(const struct zip_reader *z,
						const char *name, size_t n)
{
	/* All names begin with "<root>/". */
	const size_t n_root = z->object->e.n_name - strlen("data.pkl");
	const struct zip_entry wanted = {
		.name = (const char *)z->room,
		.e.n_name = (uint16_t)(n_root + n),
	};
	const struct zip_entry *key = &wanted, *const *found;

	if (n_root + n > UINT16_MAX)
		return NULL;
	memcpy(z->room, z->object->name, n_root);
	memcpy(z->room + n_root, name, n);
	found = rsh_find(&key, z->by_name, z->n, zip_by_name);
	return found ? *found : NULL;
}

/* Finds "<directory>/data.pkl", the object that torch.load() builds. */
static int zip_find_object(struct zip_reader *z)
{
	static const char name[] = "/data.pkl";
	const size_t n = sizeof(name) - 1;

	for (size_t i = 0; i < z->n; i++) {
		struct zip_entry *e = &z->entries[i];

		if (e->e.n_name <= n ||
		    memcmp(e->name + e->e.n_name - n, name, n) != 0 ||
		    memchr(e->name, '/', e->e.n_name - n))
			continue;
		if (z->object)
			return rsh_torch_bad(z->r, e->e.at, "a second "
					     "data.pkl");
		z->object = e;
	}
	return z->object ? 0 :
	       rsh_torch_bad(z->r, z->directory.offset, "a zip archive without "
			     "data.pkl");
}

/* ---- the places of contents ---- */

/* Returns the end of an entry: the beginning of the next one, or of the
 * directory. */
static uint64_t zip_entry_end(const struct zip_reader *z,
			      const struct zip_entry *e)
{
	const size_t next = (size_t)(e - z->entries) + 1;

	return next < z->n ? z->entries[next].e.local_offset :
			     z->directory.offset;
}

static int zip_read_local(struct zip_reader *z, struct zip_entry *e)
{
	return rsh_zip_read_local(&z->r->src, &z->directory, &e->e, z->room,
				  &e->content, z->r->err);
}

/* Computes where the content begins, on the condition that only a descriptor is
 * between its end and the next entry. Returns false if this is not possible. */
static bool zip_guess_content(const struct zip_reader *z, struct zip_entry *e)
{
	uint64_t from = e->e.local_offset, end = zip_entry_end(z, e);
	uint64_t after = e->e.content_bytes;

	if (e->e.flags & RSH_ZIP_DESCRIBED && e->e.content_bytes > 0 &&
	    !rsh_add_u64(after, e->e.is_wide ? 24 : 16, &after))
		return false;
	if (!rsh_add_u64(from, LOCAL_BYTES + (uint64_t)e->e.n_name, &from) ||
	    from > end || after > end - from)
		return false;
	e->content = end - after;
	return e->content - from <= EXTRA_MAX && e->content % ALIGNMENT == 0;
}

/* Returns whether the view has an entry's local header. */
static bool zip_has_local(const struct zip_reader *z, const struct zip_entry *e)
{
	return rsh_torch_view_has(&z->r->view, e->e.local_offset,
				  LOCAL_BYTES + (uint64_t)e->e.n_name);
}

/* Finds where all contents begin.  If a local header that was read differs from
 * the computed place, all local headers are read. */
static int zip_locate_all(struct zip_reader *z)
{
	struct rsh_torch_reader *r = z->r;
	bool trust = true;

	for (size_t i = 0; i < z->n; i++) {
		struct zip_entry *e = &z->entries[i];
		const bool found = zip_guess_content(z, e);
		const uint64_t content = e->content;
		int rc = zip_has_local(z, e) ? zip_read_local(z, e) : 0;

		if (rc)
			return rc;
		trust &= !zip_has_local(z, e) || (found && content == e->content);
	}
	for (size_t i = 0; i < z->n; i++) {
		struct zip_entry *e = &z->entries[i];
		const bool known = zip_has_local(z, e) ||
				   (trust && zip_guess_content(z, e));
		int rc = known ? 0 : zip_read_local(z, e);

		if (rc)
			return rc;
		if (e->content > zip_entry_end(z, e) ||
		    zip_entry_end(z, e) - e->content < e->e.content_bytes)
			return rsh_torch_bad(r, e->e.at, "a zip entry that "
					     "ends within the next one");
	}
	return 0;
}

/* Checks that an entry is stored without compression. */
static int zip_check_stored(struct zip_reader *z, const struct zip_entry *e)
{
	if (e->e.flags & RSH_ZIP_ENCRYPTED)
		return rsh_torch_bad(z->r, e->e.at, "a zip entry that is "
				     "encrypted");
	return e->e.method == RSH_ZIP_STORED &&
	       e->e.content_bytes == e->e.original_bytes ? 0 :
	       rsh_torch_bad(z->r, e->e.at, "a zip entry that is compressed");
}

/* ---- the object ---- */

/* Reads data.pkl and the bytes around it: the beginning of the archive before
 * it, and the small entries and the first storage's header after it. */
static int zip_load_object(struct zip_reader *z)
{
	static const uint8_t start[] = { 'P', 'K', 3, 4 };
	struct rsh_torch_reader *r = z->r;
	const uint64_t at = z->object->e.local_offset;
	uint8_t found[sizeof(start)];
	uint64_t n = z->object->e.content_bytes;
	int rc = zip_check_stored(z, z->object);

	if (rc)
		return rc;
	if (at >= z->directory.offset || n > z->directory.offset - at)
		return rsh_torch_bad(r, z->object->e.at, "a zip entry that "
				     "points outside");
	if (n > (r->is_item ? ITEM_OBJECT_MAX : OBJECT_MAX))
		return rsh_torch_bad(r, z->object->e.at, r->is_item ?
				     "a data.pkl too large for a tensor or a "
				     "value" : "a data.pkl of more than 1 GiB");
	if (!r->is_item)
		rc = rsh_torch_view_load(&r->view, at, n + LOCAL_BYTES +
					 EXTRA_MAX + z->object->e.n_name +
					 BEHIND_OBJECT, r->err);
	if (rc == 0)
		rc = rsh_bytes_read(&r->src, found, sizeof(found), 0, r->err);
	if (rc == 0 && memcmp(found, start, sizeof(start)) != 0)
		rc = rsh_torch_bad(r, 0, "no zip archive at the file's "
				   "beginning");
	return rc;
}

static int zip_check_order(struct zip_reader *z)
{
	static const char little[] = { 'l', 'i', 't', 't', 'l', 'e' };
	char found[sizeof(little)] = { 0 };
	const struct zip_entry *e =
		zip_find_in_root(z, "byteorder", strlen("byteorder"));
	int rc;

	/* Older releases did not write this entry. */
	if (!e)
		return 0;
	rc = zip_check_stored(z, e);
	if (rc == 0 && e->e.content_bytes == sizeof(found))
		rc = rsh_bytes_read(&z->r->src, found, sizeof(found),
				    e->content, z->r->err);
	if (rc)
		return rc;
	return memcmp(found, little, sizeof(little)) == 0 ? 0 :
	       rsh_torch_bad(z->r, e->e.at, "elements that are not "
			     "little-endian");
}

/* Computes the CRC of an entry's content. */
static int zip_check_crc(struct zip_reader *z, const struct zip_entry *e,
			 const char *wrong)
{
	uint32_t found;
	int rc = rsh_bytes_crc(&z->r->src, e->content, e->e.content_bytes,
			       rsh_crc32, &found, z->r->err);

	return rc || found == e->e.crc ? rc :
	       rsh_torch_bad(z->r, e->content, wrong);
}

/* ---- storages ---- */

static int zip_find_storage(struct zip_reader *z, size_t i)
{
	struct rsh_torch_reader *r = z->r;
	const struct rsh_torch_stored *s = &r->stored[i];
	struct rsh_torch_storage *to = &r->storages[i];
	char name[5 + 64];
	const struct zip_entry *e;
	const size_t n = strlen(s->key);
	uint64_t bytes;
	int rc;

	memcpy(name, "data/", 5);
	memcpy(name + 5, s->key, n);
	e = zip_find_in_root(z, name, 5 + n);
	if (!e)
		return rsh_error_set(r->err, EBADMSG, "%s: damaged: no entry "
				     "for storage %s", r->src.path, s->key);
	rc = zip_check_stored(z, e);
	if (rc)
		return rc;
	/* The size of the elements of an unknown class is not known. */
	if (s->width > 0 &&
	    (!rsh_mul_u64(s->count, s->width, &bytes) ||
	     bytes != e->e.content_bytes))
		return rsh_error_set(r->err, EBADMSG, "%s: damaged: storage %s "
				     "has %" PRIu64 " bytes and should have %"
				     PRIu64 " elements of %u", r->src.path,
				     s->key, e->e.content_bytes, s->count,
				     s->width);
	to->key = rsh_arena_strndup(&r->file->arena_, s->key, n);
	to->offset = e->content;
	to->bytes = e->e.content_bytes;
	to->crc = e->e.crc;
	/* This program writes 0 for elements alone, and no descriptors, which
	 * torch always writes. */
	to->has_crc = to->crc != 0 ||
		      (z->object->e.crc != 0 &&
		       z->object->e.flags & RSH_ZIP_DESCRIBED);
	return to->key ? 0 : rsh_error_nomem(r->err);
}

/* ---- what is read of an archive ---- */

static int zip_open(struct zip_reader *z, struct rsh_torch_reader *r)
{
	z->r = r;
	z->room = malloc(RSH_ZIP_ROOM);
	return !z->room ? rsh_error_nomem(r->err) :
	       rsh_zip_read_directory(&r->src, &z->directory, r->err) ?:
	       zip_read_entries(z) ?:
	       zip_find_object(z);
}

static void zip_close(struct zip_reader *z)
{
	free(z->room);
	free(z->entries);
	free(z->by_name);
}
#define cleanup_zip __attribute__((cleanup(zip_close)))

/* Reads the object and the places of its storages. */
static int zip_read(struct zip_reader *z, struct rsh_pickle_value *root)
{
	struct rsh_torch_reader *r = z->r;
	int rc;

	if (zip_find_in_root(z, "constants.pkl", strlen("constants.pkl")))
		return rsh_error_set(r->err, ENOTSUP, "%s: TorchScript, which "
				     "is a program and no state dict",
				     r->src.path);
	rc = zip_load_object(z) ?: zip_locate_all(z) ?: zip_check_order(z);
	/* set_crc32_options(False) makes all CRCs of an archive 0. */
	if (rc == 0 && z->object->e.crc != 0)
		rc = zip_check_crc(z, z->object, "a data.pkl that does not "
				   "match its CRC");
	if (rc)
		return rc;
	r->pickle.at = z->object->content;
	rc = rsh_torch_pickle(r, z->object->content +
			      z->object->e.content_bytes, false, root);
	if (rc)
		return rc;
	r->storages = rsh_arena_array(&r->file->arena_,
				      struct rsh_torch_storage, r->n_stored);
	r->file->root = rsh_arena_strndup(&r->file->arena_,
					  (const char *)z->object->name,
					  z->object->e.n_name -
					  strlen("/data.pkl"));
	if (!r->storages || !r->file->root)
		return rsh_error_nomem(r->err);
	for (size_t i = 0; i < r->n_stored && rc == 0; i++)
		rc = zip_find_storage(z, i);
	return rc;
}

int rsh_torch_read_zip(struct rsh_torch_reader *r)
{
	struct rsh_pickle_value root;
	int rc;

	/* What only reading needs is freed before the tensors are collected. */
	{
		cleanup_zip struct zip_reader z = { .r = r };

		rc = zip_open(&z, r) ?: zip_read(&z, &root);
	}
	if (rc)
		return rc;
	rsh_torch_view_clear(&r->view);
	return rsh_torch_walk(r, &root);
}

/* The id of a storage is ('storage', torch.FloatStorage, key, ..). */
static int value_storage(void *ctx, uint64_t at,
			 const struct rsh_pickle_value *id)
{
	struct rsh_torch_reader *r = ctx;

	(void)at;
	r->has_floats |= id->kind == RSH_PV_TUPLE && id->n > 1 &&
		rsh_is_one(rsh_torch_storage_dtype(&id->items[1]),
			   RSH_DTYPE_FLOAT32, RSH_DTYPE_BFLOAT16,
			   RSH_DTYPE_FLOAT16, RSH_DTYPE_FLOAT64);
	return 0;
}

int rsh_torch_read_zip_value(struct rsh_torch_reader *r,
			     struct rsh_pickle_value *out)
{
	const struct rsh_pickle_rules rules = {
		.persistent_ids = true, .ctx = r, .persistent = value_storage,
	};
	cleanup_zip struct zip_reader z = { .r = r };
	struct rsh_byte_source within = r->src;
	int rc = zip_open(&z, r) ?: zip_load_object(&z) ?:
		 zip_locate_all(&z);

	if (rc)
		return rc;
	r->pickle.at = z.object->content;
	within.size = r->pickle.at + z.object->e.content_bytes;
	r->pickle.src = &within;
	r->pickle.err = r->err;
	rc = rsh_pickle_values(&r->pickle, &rules, &r->values, out);
	r->pickle.src = NULL;
	return rc;
}

int rsh_torch_check_zip(struct rsh_torch_reader *r, bool full, bool *unsummed)
{
	cleanup_zip struct zip_reader z = { .r = r };
	int rc = zip_open(&z, r);
	const bool any = full && rsh_any(i, z.n, z.entries[i].e.crc != 0);

	*unsummed = full && !any && rc == 0;
	for (size_t i = 0; i < z.n && rc == 0; i++) {
		struct zip_entry *e = &z.entries[i];

		rc = zip_read_local(&z, e);
		if (rc == 0 && any && e->e.method == RSH_ZIP_STORED)
			rc = zip_check_crc(&z, e, "a zip entry that does not "
					   "match its CRC");
	}
	return rc;
}
