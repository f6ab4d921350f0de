/* SPDX-License-Identifier: Apache-2.0 */
/* wire/torch_legacy.c - the pickles of an old file of torch.save(), and the
 * storages behind them.
 *
 * How long a storage is stands in the pickle of the object: whatever refers to
 * it does so by the tuple ("storage", class, key, device, number of elements,
 * ...).  To find these the pickle's instructions are followed on a stack that
 * knows strings, integers and classes and takes all else for a thing. */
#include "config.h"

#include "torch_legacy_i.h"

#include <stdlib.h>

#include "bytes_i.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

/* Pickles before the object (a magic number, a version, the system). */
#define PICKLES_BEFORE 3
/* Of the tuple that refers to a storage: up to the number of elements. */
#define TUPLE_LEAST 5
/* What stands before the content of each storage: its number of elements. */
#define COUNT_BYTES 8
/* A pickle of more values is not followed; no model has so many. */
#define VALUES_MAX (4u * 1024 * 1024)

enum kind { THING, MARK, NUMBER, TEXT, CLASS };

struct value {
	enum kind kind;
	uint64_t number; /* or a hash */
};

struct values {
	struct value *v;
	size_t n, cap;
};

struct storage {
	uint64_t key; /* a hash */
	uint64_t count;
	uint64_t element_bytes; /* 0: of a class unknown here */
};

struct machine {
	struct rsh_pickle *p;
	struct values stack, memo;
	uint64_t storage_word; /* the hash of "storage" */
	struct storage *storages;
	size_t n_storages, cap_storages;
	bool lost; /* too large to follow */
};

static int damaged(const struct machine *m, const char *what)
{
	return rsh_bytes_damaged(m->p->src, m->p->at, what, m->p->err);
}

static uint64_t element_bytes(uint64_t class)
{
	static const struct {
		const char *name;
		uint64_t bytes;
	} classes[] = {
		{ "DoubleStorage", 8 }, { "FloatStorage", 4 },
		{ "HalfStorage", 2 }, { "BFloat16Storage", 2 },
		{ "LongStorage", 8 }, { "IntStorage", 4 },
		{ "ShortStorage", 2 }, { "CharStorage", 1 },
		{ "ByteStorage", 1 }, { "BoolStorage", 1 },
		{ "ComplexDoubleStorage", 16 }, { "ComplexFloatStorage", 8 },
		{ "QInt8Storage", 1 }, { "QUInt8Storage", 1 },
		{ "QInt32Storage", 4 }, { "QUInt4x2Storage", 1 },
		{ "QUInt2x4Storage", 1 }, { "UntypedStorage", 1 },
	};

	for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++)
		if (rsh_pickle_hash(classes[i].name) == class)
			return classes[i].bytes;
	return 0;
}

/* ---- the stack and the memo ---- */

static int append(struct machine *m, struct values *to, struct value v)
{
	if (to->n >= VALUES_MAX) {
		m->lost = true;
		return 0;
	}
	if (rsh_grow(&to->v, &to->cap, to->n + 1, sizeof(*to->v)))
		return rsh_error_nomem(m->p->err);
	to->v[to->n++] = v;
	return 0;
}

static int pop(struct machine *m, size_t n)
{
	if (m->stack.n < n)
		return damaged(m, "a pickle that takes more than it has");
	m->stack.n -= n;
	return 0;
}

/* The place of the last mark; the stack's height if there is none. */
static size_t find_mark(const struct machine *m)
{
	size_t at = m->stack.n;

	while (at > 0 && m->stack.v[at - 1].kind != MARK)
		at--;
	return at > 0 ? at - 1 : m->stack.n;
}

static int pop_to_mark(struct machine *m)
{
	size_t mark = find_mark(m);

	if (mark == m->stack.n)
		return damaged(m, "a pickle that lacks a mark");
	m->stack.n = mark;
	return 0;
}

static int put(struct machine *m, uint64_t place)
{
	const struct value *top;

	if (m->stack.n == 0)
		return damaged(m, "a pickle that keeps what it has not");
	top = &m->stack.v[m->stack.n - 1];
	/* Python 2 counts from 1. */
	if (m->memo.n == 0 && place == 1) {
		int rc = append(m, &m->memo, (struct value){ THING, 0 });

		if (rc)
			return rc;
	}
	if (place > m->memo.n)
		return damaged(m, "a pickle that keeps values out of order");
	if (place == m->memo.n)
		return append(m, &m->memo, *top);
	m->memo.v[place] = *top;
	return 0;
}

static int get(struct machine *m, uint64_t place)
{
	if (place >= m->memo.n)
		return damaged(m, "a pickle that uses what it has not kept");
	return append(m, &m->stack, m->memo.v[place]);
}

/* ---- storages ---- */

/* The tuple from the last mark on, if it refers to a storage. */
static int note_storage(struct machine *m)
{
	size_t mark = find_mark(m);
	const struct value *v;

	if (m->stack.n < mark + 1 + TUPLE_LEAST)
		return 0;
	v = m->stack.v + mark + 1;
	if (v[0].kind != TEXT || v[0].number != m->storage_word ||
	    v[1].kind != CLASS || v[2].kind != TEXT || v[4].kind != NUMBER)
		return 0;
	m->lost = m->n_storages >= VALUES_MAX;
	if (!m->lost && rsh_grow(&m->storages, &m->cap_storages, m->n_storages + 1,
		     sizeof(*m->storages)))
		return rsh_error_nomem(m->p->err);
	if (!m->lost)
		m->storages[m->n_storages++] = (struct storage){
			v[2].number, v[4].number, element_bytes(v[1].number),
		};
	return 0;
}

static int by_key(const void *a, const void *b)
{
	const struct storage *x = a, *y = b;

	return x->key < y->key ? -1 : x->key > y->key;
}

/* Moves *at behind the storage of that key. */
static int skip_storage(struct machine *m, uint64_t key, uint64_t *at)
{
	const struct storage wanted = { .key = key };
	const struct rsh_byte_source *src = m->p->src;
	const struct storage *s = !m->n_storages ? NULL :
		bsearch(&wanted, m->storages, m->n_storages, sizeof(*s),
			by_key);
	uint8_t count[COUNT_BYTES];
	uint64_t bytes;
	int rc;

	if (!s && !m->lost)
		return damaged(m, "a storage that nothing refers to");
	rc = rsh_bytes_read(src, count, sizeof(count), *at, m->p->err);
	if (rc)
		return rc;
	if (m->lost || s->element_bytes == 0) {
		m->lost = true;
		*at += sizeof(count);
		return 0;
	}
	if (rsh_le64(count) != s->count)
		return rsh_bytes_damaged(src, *at, "a storage of another "
					 "length", m->p->err);
	*at += sizeof(count);
	if (!rsh_mul_u64(s->count, s->element_bytes, &bytes) ||
	    bytes > src->size - *at)
		return rsh_bytes_damaged(src, *at, "truncated: the file ends "
					 "within a storage", m->p->err);
	*at += bytes;
	return 0;
}

/* ---- pickles ---- */

/* What an instruction pushes that has nothing to do with the memo. */
static struct value value_of(const struct machine *m,
			     const struct rsh_pickle_step *s)
{
	const struct value *top = m->stack.n ? &m->stack.v[m->stack.n - 1] :
					       NULL;

	if (s->is_number)
		return (struct value){ NUMBER, s->number };
	if (s->is_text)
		return (struct value){ TEXT, s->hash };
	if (s->instruction == RSH_PICKLE_MARK)
		return (struct value){ MARK, 0 };
	if (s->instruction == RSH_PICKLE_GLOBAL)
		return (struct value){ CLASS, s->hash };
	if (s->instruction == RSH_PICKLE_DUP && top)
		return *top;
	if (s->instruction == RSH_PICKLE_STACK_GLOBAL && top &&
	    top->kind == TEXT)
		return (struct value){ CLASS, top->number };
	return (struct value){ THING, 0 };
}

static int follow(struct machine *m, const struct rsh_pickle_step *s)
{
	struct value v = value_of(m, s);
	int rc = 0;

	if (s->memo == RSH_PICKLE_GET)
		return get(m, s->number);
	if (s->memo == RSH_PICKLE_PUT)
		return put(m, s->number);
	if (s->memo == RSH_PICKLE_MEMOIZE)
		return put(m, m->memo.n);
	if (s->instruction == RSH_PICKLE_TUPLE)
		rc = note_storage(m);
	if (rc == 0)
		rc = s->pops == RSH_PICKLE_TO_MARK ? pop_to_mark(m) :
						     pop(m, s->pops);
	for (unsigned i = 0; i < s->pushes && rc == 0; i++)
		rc = append(m, &m->stack, v);
	return rc;
}

static int follow_object(struct machine *m)
{
	struct rsh_pickle_step step = { .instruction = 0 };
	int rc = 0;

	while (rc == 0 && step.instruction != RSH_PICKLE_STOP) {
		rc = rsh_pickle_next(m->p, &step);
		if (rc == 0 && !m->lost)
			rc = follow(m, &step);
	}
	if (m->n_storages)
		qsort(m->storages, m->n_storages, sizeof(*m->storages),
		      by_key);
	return rc;
}

/* The last pickle lists the storages' keys.  Its end is where the first of them
 * begins, so it is read twice. */
static int check_storages(struct machine *m)
{
	struct rsh_pickle_step step = { .instruction = 0 };
	uint64_t keys = m->p->at, at;
	int rc = rsh_pickle_skip(m->p);

	at = m->p->at;
	m->p->at = keys;
	while (rc == 0 && step.instruction != RSH_PICKLE_STOP) {
		rc = rsh_pickle_next(m->p, &step);
		if (rc == 0 && step.is_text)
			rc = skip_storage(m, step.hash, &at);
	}
	if (rc || m->lost || at == m->p->src->size)
		return rc;
	return rsh_bytes_damaged(m->p->src, at, "the file goes on after its "
				 "storages", m->p->err);
}

int rsh_torch_legacy_check(struct rsh_pickle *p)
{
	struct machine m = {
		.p = p, .storage_word = rsh_pickle_hash("storage"),
	};
	int rc = 0;

	for (unsigned i = 0; i < PICKLES_BEFORE && rc == 0; i++)
		rc = rsh_pickle_skip(p);
	if (rc == 0)
		rc = follow_object(&m);
	if (rc == 0)
		rc = check_storages(&m);
	free(m.stack.v);
	free(m.memo.v);
	free(m.storages);
	return rc;
}
