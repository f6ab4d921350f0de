/* SPDX-License-Identifier: Apache-2.0 */
/* wire/pickle_emit.c writes the instructions of pickles. */
#include "rsh/wire/pickle_emit.h"

#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"

static void pickle_put_bytes(struct rsh_pickle_out *o, const void *p, size_t n)
{
	if (o->failed)
		return;
	if (n > o->cap - o->n &&
	    (o->fixed || n > SIZE_MAX - o->n ||
	     rsh_grow(&o->data, &o->cap, o->n + n, 1))) {
		o->failed = true;
		return;
	}
	memcpy(o->data + o->n, p, n);
	o->n += n;
}

/* Puts an instruction, then a little-endian number of `width` bytes. */
static void pickle_put_op(struct rsh_pickle_out *o, uint8_t op, uint64_t v,
			  unsigned width)
{
	uint8_t b[9] = { op };

	for (unsigned i = 0; i < width; i++)
		b[1 + i] = (uint8_t)(v >> 8 * i);
	pickle_put_bytes(o, b, 1 + width);
}

void rsh_pickle_begin(struct rsh_pickle_out *o)
{
	pickle_put_op(o, 0x80, 2, 1); /* PROTO */
}

void rsh_pickle_end(struct rsh_pickle_out *o)
{
	pickle_put_op(o, '.', 0, 0); /* STOP */
}

void rsh_pickle_clear(struct rsh_pickle_out *o)
{
	if (!o->fixed)
		free(o->data);
	*o = (struct rsh_pickle_out){ 0 };
}

void rsh_pickle_put(struct rsh_pickle_out *o, enum rsh_pickle_op op)
{
	pickle_put_op(o, (uint8_t)op, 0, 0);
}

static void pickle_put_long(struct rsh_pickle_out *o, uint64_t v,
			    unsigned width)
{
	pickle_put_op(o, 0x8a, width, 1); /* LONG1 */
	for (unsigned i = 0; i < width; i++)
		pickle_put_op(o, (uint8_t)(v >> 8 * i), 0, 0);
}

void rsh_pickle_put_number(struct rsh_pickle_out *o, uint64_t v)
{
	unsigned width = 5;

	if (v <= UINT8_MAX) {
		pickle_put_op(o, 'K', v, 1); /* BININT1 */
	} else if (v <= UINT16_MAX) {
		pickle_put_op(o, 'M', v, 2); /* BININT2 */
	} else if (v <= INT32_MAX) {
		pickle_put_op(o, 'J', v, 4); /* BININT */
	} else {
		/* LONG1 is signed: a number whose highest bit is set needs one
		 * byte more. */
		while (width < 8 && v >> (8 * width - 1))
			width++;
		if (width == 8 && v >> 63)
			o->failed = true;
		else
			pickle_put_long(o, v, width);
	}
}

void rsh_pickle_put_signed(struct rsh_pickle_out *o, int64_t v)
{
	if (v >= 0)
		rsh_pickle_put_number(o, (uint64_t)v);
	else if (v >= INT32_MIN)
		pickle_put_op(o, 'J', (uint64_t)v, 4); /* BININT */
	else
		pickle_put_long(o, (uint64_t)v, 8);
}

void rsh_pickle_put_real(struct rsh_pickle_out *o, double v)
{
	uint64_t bits;

	memcpy(&bits, &v, sizeof(bits));
	pickle_put_op(o, 'G', __builtin_bswap64(bits), 8); /* BINFLOAT */
}

void rsh_pickle_put_text(struct rsh_pickle_out *o, const char *s, size_t n)
{
	if (n > UINT32_MAX)
		o->failed = true;
	pickle_put_op(o, 'X', n, 4); /* BINUNICODE */
	pickle_put_bytes(o, s, n);
}

void rsh_pickle_put_global(struct rsh_pickle_out *o, const char *module,
			   const char *name)
{
	pickle_put_op(o, 'c', 0, 0); /* GLOBAL */
	pickle_put_bytes(o, module, strlen(module));
	pickle_put_bytes(o, "\n", 1);
	pickle_put_bytes(o, name, strlen(name));
	pickle_put_bytes(o, "\n", 1);
}

uint32_t rsh_pickle_remember(struct rsh_pickle_out *o)
{
	if (o->n_memo <= UINT8_MAX)
		pickle_put_op(o, 'q', o->n_memo, 1); /* BINPUT */
	else
		pickle_put_op(o, 'r', o->n_memo, 4); /* LONG_BINPUT */
	return o->n_memo++;
}

void rsh_pickle_recall(struct rsh_pickle_out *o, uint32_t number)
{
	if (number <= UINT8_MAX)
		pickle_put_op(o, 'h', number, 1); /* BINGET */
	else
		pickle_put_op(o, 'j', number, 4); /* LONG_BINGET */
}
