/* SPDX-License-Identifier: Apache-2.0 */
/* formats/torch/check_legacy.c checks whether an old file of torch.save() has
 * the right length.  The file has pickles, and then the bytes of storages.
 *
 * The file does not contain its length, and storages have no end mark.  In the
 * pickle of the object, a reference to a storage is the tuple ("storage",
 * class, key, device, number of elements, ...).  Such tuples are searched among
 * the first values after the last mark.  A memo is needed for values that are
 * written once and used again, such as classes.  No other values are needed, so
 * there is no stack. */
#include "config.h"

#include "torch_i.h"

#include <stdlib.h>

#include "rsh/util/checked.h"
#include "rsh/util/mem.h"
#include "rsh/wire/bytes.h"
#include "rsh/wire/torch_dtype.h"

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

int rsh_torch_legacy_check(struct rsh_pickle *p)
{
	struct legacy_object o = {
		.p = p, .storage_word = rsh_pickle_hash("storage"),
	};
	struct rsh_pickle_step step = { .instruction = 0 };
	int rc = 0;

	for (unsigned i = 0; i < PICKLES_BEFORE && rc == 0; i++)
		rc = rsh_pickle_skip(p);
	while (rc == 0 && step.instruction != RSH_PICKLE_STOP) {
		rc = rsh_pickle_next(p, &step);
		if (rc == 0)
			rc = legacy_follow(&o, &step);
	}
	/* The last pickle lists the keys of the storages. */
	if (rc == 0)
		rc = rsh_pickle_skip(p);
	if (rc == 0)
		rc = legacy_check_length(&o);
	free(o.memo);
	free(o.storages);
	return rc;
}
