/* SPDX-License-Identifier: Apache-2.0 */
/* formats/torch/steps.c finds, checks and shows .pt, .pth and .pth.tar of
 * torch.save().  The form of a file is detected from the first bytes, and each
 * form has a separate check.
 *
 * PyTorch leaves names to its users (checkpoint_12.pt, epoch3_step400.pth,
 * model_best.pth.tar): the numbers of a name, from left to right, are its
 * step. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "rsh/formats/steps.h"
#include "rsh/formats/torch.h"
#include "rsh/source/resume.h"
#include "rsh/util/checked.h"
#include "rsh/util/files.h"
#include "rsh/util/mem.h"
#include "rsh/wire/bytes.h"
#include "rsh/wire/torch_dtype.h"
#include "rsh/wire/zip.h"

/* ---- pickles, then storages: torch.save() before PyTorch 1.6 ----
 *
 * The file does not contain its length, and storages have no end mark.  In the
 * pickle of the object, a reference to a storage is the tuple ("storage",
 * class, key, device, number of elements, ...).  Such tuples are searched among
 * the first values after the last mark.  A memo is needed for values that are
 * written once and used again, such as classes.  No other values are needed, so
 * there is no stack. */

/* This many pickles precede the object: a magic number, a version, the
 * system. */
#define PICKLES_BEFORE 3
/* The tuple that refers to a storage has at least this many values; the last of
 * them is the number of elements. */
#define TUPLE_LEAST 5
/* The number of elements has this many bytes and precedes the content of each
 * storage. */
#define COUNT_BYTES 8
/* No more values than this are stored; no model has as many. */
#define VALUES_MAX (4u * 1024 * 1024)

enum legacy_kind { THING, NUMBER, TEXT, CLASS };

struct legacy_value {
	enum legacy_kind kind;
	uint64_t number; /* the number, or a hash */
};

struct legacy_storage {
	uint64_t key; /* a hash */
	uint64_t bytes;
};

struct legacy_object {
	struct rsh_pickle *p;
	uint64_t storage_word; /* the hash of "storage" */
	struct legacy_value top;
	struct legacy_value first[TUPLE_LEAST]; /* values since the last mark */
	/* number of values since the last mark */
	size_t n;
	struct legacy_value *memo;
	size_t n_memo, cap_memo;
	struct legacy_storage *storages;
	size_t n_storages, cap_storages;
	bool unsized_any; /* the length of at least one storage is not known */
};

/* Puts the top value into the memo.  Python 2 counts from 1, so place 0 may be
 * unused. */
static int legacy_put(struct legacy_object *o, uint64_t place)
{
	if (place > o->n_memo + 1 || place >= VALUES_MAX)
		return 0;
	if (place >= o->n_memo) {
		if (rsh_grow(&o->memo, &o->cap_memo, (size_t)place + 1,
			     sizeof(*o->memo)))
			return rsh_error_nomem(o->p->err);
		o->memo[o->n_memo] = (struct legacy_value){ THING, 0 };
		o->n_memo = (size_t)place + 1;
	}
	o->memo[place] = o->top;
	return 0;
}

static int legacy_note_storage(struct legacy_object *o)
{
	const struct legacy_value *v = o->first;
	struct legacy_storage s;

	if (o->n < TUPLE_LEAST || v[0].kind != TEXT ||
	    v[0].number != o->storage_word || v[1].kind != CLASS ||
	    v[2].kind != TEXT || v[4].kind != NUMBER)
		return 0;
	s = (struct legacy_storage){ .key = v[2].number };
	o->unsized_any |= rsh_torch_storage_bytes(v[1].number) == 0 ||
			  o->n_storages >= VALUES_MAX;
	if (!rsh_mul_u64(rsh_torch_storage_bytes(v[1].number), v[4].number,
			 &s.bytes))
		s.bytes = UINT64_MAX;
	if (o->n_storages >= VALUES_MAX)
		return 0;
	if (rsh_grow(&o->storages, &o->cap_storages, o->n_storages + 1,
		     sizeof(*o->storages)))
		return rsh_error_nomem(o->p->err);
	o->storages[o->n_storages++] = s;
	return 0;
}

/* Returns the value that an instruction pushes without using the memo. */
static struct legacy_value legacy_value_of(const struct legacy_object *o,
					   const struct rsh_pickle_step *s)
{
	if (s->is_number)
		return (struct legacy_value){ NUMBER, s->number };
	if (s->is_text)
		return (struct legacy_value){ TEXT, s->hash };
	if (s->instruction == RSH_PICKLE_GLOBAL)
		return (struct legacy_value){ CLASS, s->hash };
	if (s->instruction == RSH_PICKLE_DUP)
		return o->top;
	if (s->instruction == RSH_PICKLE_STACK_GLOBAL && o->top.kind == TEXT)
		return (struct legacy_value){ CLASS, o->top.number };
	return (struct legacy_value){ THING, 0 };
}

static int legacy_follow(struct legacy_object *o,
			 const struct rsh_pickle_step *s)
{
	const struct legacy_value thing = { THING, 0 };
	struct legacy_value v = legacy_value_of(o, s);
	int rc = 0;

	if (s->memo == RSH_PICKLE_PUT)
		return legacy_put(o, s->number);
	if (s->memo == RSH_PICKLE_MEMOIZE)
		return legacy_put(o, o->n_memo);
	if (s->memo == RSH_PICKLE_GET)
		v = s->number < o->n_memo ? o->memo[s->number] : thing;
	if (s->instruction == RSH_PICKLE_TUPLE)
		rc = legacy_note_storage(o);
	if (s->instruction == RSH_PICKLE_MARK || s->pops == RSH_PICKLE_TO_MARK)
		o->n = 0;
	else
		o->n -= s->pops < o->n ? s->pops : o->n;
	if (s->instruction == RSH_PICKLE_MARK)
		return rc;
	for (unsigned i = 0; i < s->pushes; i++) {
		o->top = v;
		if (o->n < TUPLE_LEAST)
			o->first[o->n] = v;
		o->n++;
	}
	return rc;
}

static int legacy_by_key(const void *a, const void *b)
{
	const struct legacy_storage *x = a, *y = b;

	return x->key < y->key ? -1 : x->key > y->key;
}

/* Checks whether the rest of the file is as long as all storages together. A
 * storage may be referred to several times.  If the element size of a storage
 * is not known, it must have at least one byte for each element, and the file
 * may be longer. */
static int legacy_check_length(struct legacy_object *o)
{
	const uint64_t at = o->p->at, rest = o->p->src->size - at;
	uint64_t wanted = 0;

	if (o->n_storages)
		qsort(o->storages, o->n_storages, sizeof(*o->storages),
		      legacy_by_key);
	for (size_t i = 0; i < o->n_storages; i++) {
		if (i > 0 && o->storages[i].key == o->storages[i - 1].key)
			continue;
		if (!rsh_add_u64(wanted, COUNT_BYTES, &wanted) ||
		    !rsh_add_u64(wanted, o->storages[i].bytes, &wanted))
			wanted = UINT64_MAX;
		if (wanted > rest)
			return rsh_bytes_damaged(o->p->src, at, "truncated: "
						 "the storages do not end "
						 "within the file", o->p->err);
	}
	return wanted == rest || o->unsized_any ? 0 :
	       rsh_bytes_damaged(o->p->src, at + wanted, "bytes after the "
				 "last storage", o->p->err);
}

/* Checks whether pickles and storages fill the file, which begins with the
 * magic number.  *p must be at the beginning of the file. */
static int torch_legacy_check(struct rsh_pickle *p)
{
	struct legacy_object o = {
		.p = p, .storage_word = rsh_pickle_hash("storage"),
	};
	struct rsh_pickle_step step = { .instruction = 0 };
	int rc = 0;

	for (unsigned i = 0; i < PICKLES_BEFORE && rc == 0; i++)
		rc = rsh_pickle_skip(p);
	while (rc == 0 && step.instruction != RSH_PICKLE_STOP)
		rc = rsh_pickle_next(p, &step) ?: legacy_follow(&o, &step);
	/* The last pickle lists the keys of the storages. */
	if (rc == 0)
		rc = rsh_pickle_skip(p);
	if (rc == 0)
		rc = legacy_check_length(&o);
	free(o.memo);
	free(o.storages);
	return rc;
}

#define PICKLE_PROTO 0x80
/* This is LONG1 0x1950a86a20f9469cfc6c, the first of several pickles. */
static const uint8_t torch_legacy_magic[] = {
	0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19,
};
/* The magic number is searched in this many bytes; PROTO and FRAME may precede
 * it. */
#define MAGIC_WITHIN 32
#define TAR_BLOCK_BYTES 512u
#define TAR_SIZE_AT 124
#define TAR_SIZE_BYTES 12
#define TAR_MAGIC_AT 257
/* Zeros fill the last record of a tar archive, which has this many bytes. */
#define TAR_RECORD_BYTES 10240u

/* ---- zip: a few small reads for each entry; content is read only for CRCs
 * ---- */

static int zip_check_content(const struct rsh_byte_source *src,
			     const struct rsh_zip_entry *e, uint64_t at,
			     struct rsh_error *err)
{
	uint32_t found;
	int rc;

	if (e->method != 0)
		return 0;
	rc = rsh_bytes_crc(src, at, e->content_bytes, rsh_crc32, &found, err);
	if (rc)
		return rc;
	return found == e->crc ? 0 :
	       rsh_bytes_damaged(src, at, "a zip entry that does not match "
				 "its CRC", err);
}

/* Finds out whether any entry has a CRC: set_crc32_options(False) writes 0 for
 * each. */
static int zip_find_crc(const struct rsh_byte_source *src,
			const struct rsh_zip_directory *d, uint8_t *room,
			bool *any, struct rsh_error *err)
{
	uint64_t at = d->offset;

	*any = false;
	for (uint64_t i = 0; i < d->n_entries && !*any; i++) {
		struct rsh_zip_entry e;
		int rc = rsh_zip_read_entry(src, d, at, room, &e, err);

		if (rc)
			return rc;
		*any = e.crc != 0;
		at = rsh_zip_next_entry(&e);
	}
	return 0;
}

static int torch_zip_check(const struct rsh_byte_source *src, bool full,
			   bool *unsummed, struct rsh_error *err)
{
	cleanup_free uint8_t *room = malloc(RSH_ZIP_ROOM + RSH_ZIP_ROOM / 2);
	struct rsh_zip_directory d = { 0 };
	bool found = false, any = false;
	uint64_t at, content = 0;
	int rc;

	*unsummed = false;
	if (!room)
		return rsh_error_nomem(err);
	rc = rsh_zip_read_directory(src, &d, err);
	if (rc == 0 && full)
		rc = zip_find_crc(src, &d, room, &any, err);
	if (rc)
		return rc;
	*unsummed = full && !any;
	at = d.offset;
	for (uint64_t i = 0; i < d.n_entries; i++) {
		struct rsh_zip_entry e;

		rc = rsh_zip_read_entry(src, &d, at, room, &e, err);
		if (rc == 0)
			rc = rsh_zip_read_local(src, &d, &e,
						room + RSH_ZIP_ROOM, &content,
						err);
		if (rc == 0 && any)
			rc = zip_check_content(src, &e, content, err);
		if (rc)
			return rc;
		found |= rsh_zip_is_torch_object(&e);
		at = rsh_zip_next_entry(&e);
	}
	if (at != d.end)
		return rsh_bytes_damaged(src, at, "the zip directory has more "
					 "entries than its end record says",
					 err);
	return found ? 0 :
	       rsh_bytes_damaged(src, d.offset, "a zip archive without "
				 "data.pkl", err);
}

/* ---- tar: PyTorch before 0.1.10; later releases still read it ---- */

/* Reads a size: octal digits, or a binary number if it needs more digits than
 * there are. */
static uint64_t tar_size(const uint8_t *p)
{
	uint64_t size = 0;

	if (p[0] == 0x80)
		for (size_t i = 4; i < TAR_SIZE_BYTES; i++)
			size = size << 8 | p[i];
	else
		for (size_t i = 0; i < TAR_SIZE_BYTES; i++)
			if (p[i] >= '0' && p[i] <= '7')
				size = size * 8 + (uint64_t)(p[i] - '0');
	return size;
}

static bool torch_is_tar(const uint8_t *start, size_t n)
{
	return n >= RSH_TORCH_START &&
	       memcmp(start + TAR_MAGIC_AT, "ustar", 5) == 0;
}

static int tar_check(const struct rsh_byte_source *src, struct rsh_error *err)
{
	static const uint8_t zeros[TAR_BLOCK_BYTES];
	uint8_t block[TAR_BLOCK_BYTES];
	unsigned n_zeros = 0;
	uint64_t at = 0;

	/* Two blocks of zeros end the archive. */
	while (n_zeros < 2) {
		uint64_t size = 0;
		int rc = rsh_bytes_read(src, block, sizeof(block), at, err);

		if (rc)
			return rc;
		at += sizeof(block);
		if (memcmp(block, zeros, sizeof(block)) == 0) {
			n_zeros++;
			continue;
		}
		n_zeros = 0;
		if (!torch_is_tar(block, sizeof(block)))
			return rsh_bytes_damaged(src, at - sizeof(block), "no "
						 "header of a tar archive",
						 err);
		size = tar_size(block + TAR_SIZE_AT);
		if (size > src->size - at)
			return rsh_bytes_damaged(src, at, "truncated: the file "
						 "ends within an entry", err);
		at += size + (TAR_BLOCK_BYTES - size % TAR_BLOCK_BYTES) %
			     TAR_BLOCK_BYTES;
	}
	/* After a crash of the machine, blocks that were not written to the
	 * disk may read as zeros.  So more zeros than fill a tar record are an
	 * error. */
	return src->size - at < TAR_RECORD_BYTES ? 0 :
	       rsh_bytes_damaged(src, at, "bytes after the end of the archive",
				 err);
}

/* ---- all forms ---- */

static int torch_check_pickles(const struct rsh_byte_source *src, bool legacy,
			       struct rsh_error *err)
{
	cleanup_free struct rsh_pickle *p = calloc(1, sizeof(*p));
	int rc;

	if (!p)
		return rsh_error_nomem(err);
	p->src = src;
	p->err = err;
	rc = legacy ? torch_legacy_check(p) : rsh_pickle_skip(p);
	return rc || legacy || p->at == src->size ? rc :
	       rsh_bytes_damaged(src, p->at, "bytes after the end of the "
				 "pickle", err);
}

enum rsh_torch_form rsh_torch_form(const uint8_t *start, size_t n)
{
	if (n >= 4 && memcmp(start, "PK\3\4", 4) == 0)
		return RSH_TORCH_ZIP;
	if (n > 0 && start[0] == PICKLE_PROTO)
		return memmem(start, n < MAGIC_WITHIN ? n : MAGIC_WITHIN,
			      torch_legacy_magic, sizeof(torch_legacy_magic)) ?
			       RSH_TORCH_LEGACY : RSH_TORCH_PICKLE;
	return torch_is_tar(start, n) ? RSH_TORCH_TAR : RSH_TORCH_NONE;
}

int rsh_torch_check(const struct rsh_byte_source *src, bool full,
		    bool *unsummed, struct rsh_error *err)
{
	uint8_t start[RSH_TORCH_START] = { 0 };
	size_t n = src->size < sizeof(start) ? (size_t)src->size :
					       sizeof(start);
	int rc;

	*unsummed = false;
	if (src->size == 0)
		return rsh_bytes_damaged(src, 0, "it is empty", err);
	rc = rsh_bytes_read(src, start, n, 0, err);
	if (rc)
		return rc;
	switch (rsh_torch_form(start, n)) {
	case RSH_TORCH_ZIP:
		return torch_zip_check(src, full, unsummed, err);
	case RSH_TORCH_LEGACY:
		return torch_check_pickles(src, true, err);
	case RSH_TORCH_PICKLE:
		return torch_check_pickles(src, false, err);
	case RSH_TORCH_TAR:
		return tar_check(src, err);
	case RSH_TORCH_NONE:
		break;
	}
	return rsh_bytes_damaged(src, 0, "not of torch.save(): no zip "
				 "archive, pickle or tar archive", err);
}

/* ---- steps ---- */

static const char *torch_suffix(const char *name)
{
	static const char *const suffixes[] = { ".pth.tar", ".pth", ".pt" };

	for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++)
		if (rsh_has_suffix(name, suffixes[i]))
			return suffixes[i];
	return NULL;
}

static bool torch_parse(const char *file, struct rsh_step_name *out)
{
	const char *suffix = torch_suffix(file);

	if (suffix)
		rsh_step_name_read(file, strlen(file) - strlen(suffix), out);
	return suffix;
}

static int torch_check(const struct rsh_byte_source *files,
		       const char *const *names, size_t n, bool full,
		       struct rsh_error *err)
{
	bool unsummed;
	int rc = rsh_torch_check(files, full, &unsummed, err);

	(void)names, (void)n;
	if (unsummed)
		rsh_step_say_unsummed(files->path);
	return rc;
}

static int torch_show(struct rsh_resume *r, const struct rsh_saved *saved,
		      size_t n)
{
	return rsh_resume_show_each(r, saved, n, torch_suffix);
}

const struct rsh_resume_format rsh_torch_resume = {
	.name = "PyTorch",
	.parse = torch_parse,
	.check = torch_check,
	.show = torch_show,
};
