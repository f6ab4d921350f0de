/* SPDX-License-Identifier: Apache-2.0 */
/* wire/pickle.c reads the instructions of a pickle. */
#include "config.h"

#include "rsh/wire/pickle.h"

#include <string.h>

#include "rsh/wire/bytes.h"

/* This is the kind of an instruction's operand. */
enum pickle_operand {
	UNKNOWN, /* there is no such instruction */
	NOTHING,
	BYTES_1, BYTES_2, BYTES_4, BYTES_8,
	INDEX_1, INDEX_4, /* a place in the memo, or the protocol */
	INTEGER_1, INTEGER_2, INTEGER_4,
	COUNTED_1, COUNTED_4, COUNTED_8, /* a length, then so many bytes */
	LONG_1,                          /* a length, then an integer */
	TEXT_1, TEXT_4, TEXT_8,          /* a length, then a string */
	LINE, LINES_2,
};

#define TO_MARK RSH_PICKLE_TO_MARK

/* pickletools.py has their names and meanings. */
static const struct pickle_instruction {
	uint8_t operand, pops, pushes, memo;
} instructions[256] = {
	['('] = { NOTHING, 0, 1, 0 }, ['.'] = { NOTHING, 1, 0, 0 },
	['0'] = { NOTHING, 1, 0, 0 }, ['1'] = { NOTHING, TO_MARK, 0, 0 },
	['2'] = { NOTHING, 1, 2, 0 }, ['F'] = { LINE, 0, 1, 0 },
	['I'] = { LINE, 0, 1, 0 }, ['J'] = { INTEGER_4, 0, 1, 0 },
	['K'] = { INTEGER_1, 0, 1, 0 }, ['L'] = { LINE, 0, 1, 0 },
	['M'] = { INTEGER_2, 0, 1, 0 }, ['N'] = { NOTHING, 0, 1, 0 },
	['P'] = { LINE, 0, 1, 0 }, ['Q'] = { NOTHING, 1, 1, 0 },
	['R'] = { NOTHING, 2, 1, 0 }, ['S'] = { LINE, 0, 1, 0 },
	['T'] = { TEXT_4, 0, 1, 0 }, ['U'] = { TEXT_1, 0, 1, 0 },
	['V'] = { LINE, 0, 1, 0 }, ['X'] = { TEXT_4, 0, 1, 0 },
	['a'] = { NOTHING, 1, 0, 0 }, ['b'] = { NOTHING, 1, 0, 0 },
	['c'] = { LINES_2, 0, 1, 0 }, ['d'] = { NOTHING, TO_MARK, 1, 0 },
	['}'] = { NOTHING, 0, 1, 0 }, ['e'] = { NOTHING, TO_MARK, 0, 0 },
	['g'] = { LINE, 0, 1, 0 }, ['p'] = { LINE, 0, 0, 0 },
	['h'] = { INDEX_1, 0, 1, RSH_PICKLE_GET },
	['i'] = { LINES_2, TO_MARK, 1, 0 },
	['j'] = { INDEX_4, 0, 1, RSH_PICKLE_GET },
	['l'] = { NOTHING, TO_MARK, 1, 0 }, [']'] = { NOTHING, 0, 1, 0 },
	['o'] = { NOTHING, TO_MARK, 1, 0 },
	['q'] = { INDEX_1, 1, 1, RSH_PICKLE_PUT },
	['r'] = { INDEX_4, 1, 1, RSH_PICKLE_PUT },
	['s'] = { NOTHING, 2, 0, 0 }, ['t'] = { NOTHING, TO_MARK, 1, 0 },
	[')'] = { NOTHING, 0, 1, 0 }, ['u'] = { NOTHING, TO_MARK, 0, 0 },
	['G'] = { BYTES_8, 0, 1, 0 }, ['B'] = { COUNTED_4, 0, 1, 0 },
	['C'] = { COUNTED_1, 0, 1, 0 },
	[0x80] = { INDEX_1, 0, 0, 0 }, [0x81] = { NOTHING, 2, 1, 0 },
	[0x82] = { BYTES_1, 0, 1, 0 }, [0x83] = { BYTES_2, 0, 1, 0 },
	[0x84] = { BYTES_4, 0, 1, 0 }, [0x85] = { NOTHING, 1, 1, 0 },
	[0x86] = { NOTHING, 2, 1, 0 }, [0x87] = { NOTHING, 3, 1, 0 },
	[0x88] = { NOTHING, 0, 1, 0 }, [0x89] = { NOTHING, 0, 1, 0 },
	[0x8a] = { LONG_1, 0, 1, 0 }, [0x8b] = { COUNTED_4, 0, 1, 0 },
	[0x8c] = { TEXT_1, 0, 1, 0 }, [0x8d] = { TEXT_8, 0, 1, 0 },
	[0x8e] = { COUNTED_8, 0, 1, 0 }, [0x8f] = { NOTHING, 0, 1, 0 },
	[0x90] = { NOTHING, TO_MARK, 0, 0 },
	[0x91] = { NOTHING, TO_MARK, 1, 0 }, [0x92] = { NOTHING, 3, 1, 0 },
	[0x93] = { NOTHING, 2, 1, 0 },
	[0x94] = { NOTHING, 1, 1, RSH_PICKLE_MEMOIZE },
	[0x95] = { BYTES_8, 0, 0, 0 }, [0x96] = { COUNTED_8, 0, 1, 0 },
	[0x97] = { NOTHING, 0, 1, 0 }, [0x98] = { NOTHING, 1, 1, 0 },
};

/* ---- bytes ---- */

/* Makes the byte at p->at readable. */
static int pickle_fill(struct rsh_pickle *p)
{
	uint64_t left;
	int rc;

	if (p->at >= p->window_at && p->at - p->window_at < p->n_window)
		return 0;
	left = p->at < p->src->size ? p->src->size - p->at : 0;
	if (left == 0)
		return rsh_bytes_damaged(p->src, p->src->size,
					 "truncated within a pickle", p->err);
	p->n_window = left < sizeof(p->window) ? (size_t)left :
						 sizeof(p->window);
	p->window_at = p->at;
	rc = rsh_bytes_read(p->src, p->window, p->n_window, p->at, p->err);
	if (rc)
		p->n_window = 0;
	return rc;
}

static int pickle_next_byte(struct rsh_pickle *p, uint8_t *out)
{
	int rc = pickle_fill(p);

	if (rc == 0)
		*out = p->window[p->at++ - p->window_at];
	return rc;
}

static int pickle_skip(struct rsh_pickle *p, uint64_t n)
{
	if (n > p->src->size - p->at)
		return rsh_bytes_damaged(p->src, p->at, "truncated within a "
					 "pickle", p->err);
	p->at += n;
	return 0;
}

static int pickle_next_number(struct rsh_pickle *p, unsigned width,
			      uint64_t *out)
{
	uint8_t byte;

	*out = 0;
	for (unsigned i = 0; i < width; i++) {
		int rc = pickle_next_byte(p, &byte);

		if (rc)
			return rc;
		*out |= (uint64_t)byte << (8 * i);
	}
	return 0;
}

static int pickle_skip_counted(struct rsh_pickle *p, unsigned width)
{
	uint64_t n;
	return pickle_next_number(p, width, &n) ?:
	       pickle_skip(p, n);
}

/* ---- operands ---- */

static int pickle_read_integer(struct rsh_pickle *p, unsigned width,
			       struct rsh_pickle_step *out)
{
	out->is_number = true;
	return pickle_next_number(p, width, &out->number);
}

static int pickle_read_signed(struct rsh_pickle *p, unsigned width,
			      struct rsh_pickle_step *out)
{
	int rc = pickle_read_integer(p, width, out);

	if (rc == 0 && width > 0 && width < 8 &&
	    out->number >> (8 * width - 1))
		out->number |= UINT64_MAX << (8 * width);
	return rc;
}

/* Reads an integer.  One of more than eight bytes is skipped, since it cannot
 * be a number of elements. */
static int pickle_read_long(struct rsh_pickle *p, struct rsh_pickle_step *out)
{
	uint64_t n;
	int rc = pickle_next_number(p, 1, &n);

	if (rc)
		return rc;
	return n <= 8 ? pickle_read_signed(p, (unsigned)n, out) :
			pickle_skip(p, n);
}

static int pickle_read_text(struct rsh_pickle *p, unsigned width,
			    struct rsh_pickle_step *out)
{
	int rc = pickle_next_number(p, width, &out->n_text);

	return rc ? rc : pickle_skip(p, out->n_text);
}

static int pickle_skip_line(struct rsh_pickle *p)
{
	uint8_t byte;
	int rc;

	do
		rc = pickle_next_byte(p, &byte);
	while (rc == 0 && byte != '\n');
	return rc;
}

static int pickle_read_operand(struct rsh_pickle *p,
			       enum pickle_operand operand,
			       struct rsh_pickle_step *out)
{
	int rc;

	switch (operand) {
	case NOTHING:
		return 0;
	case BYTES_1:
		return pickle_skip(p, 1);
	case BYTES_2:
		return pickle_skip(p, 2);
	case BYTES_4:
		return pickle_skip(p, 4);
	case BYTES_8:
		return pickle_skip(p, 8);
	case INDEX_1:
		return pickle_next_number(p, 1, &out->number);
	case INDEX_4:
		return pickle_next_number(p, 4, &out->number);
	case INTEGER_1:
		return pickle_read_integer(p, 1, out);
	case INTEGER_2:
		return pickle_read_integer(p, 2, out);
	case INTEGER_4:
		return pickle_read_signed(p, 4, out);
	case COUNTED_1:
		return pickle_skip_counted(p, 1);
	case COUNTED_4:
		return pickle_skip_counted(p, 4);
	case COUNTED_8:
		return pickle_skip_counted(p, 8);
	case LONG_1:
		return pickle_read_long(p, out);
	case TEXT_1:
		return pickle_read_text(p, 1, out);
	case TEXT_4:
		return pickle_read_text(p, 4, out);
	case TEXT_8:
		return pickle_read_text(p, 8, out);
	case LINE:
		return pickle_skip_line(p);
	case LINES_2:
		rc = pickle_skip_line(p) ?: pickle_skip_line(p);
		out->n_text = p->at - out->at - 1;
		return rc;
	case UNKNOWN:
		break;
	}
	return rsh_bytes_damaged(p->src, p->at - 1, "no pickle instruction",
				 p->err);
}

/* ---- instructions ---- */

int rsh_pickle_next(struct rsh_pickle *p, struct rsh_pickle_step *out)
{
	const struct pickle_instruction *i;
	uint8_t byte;
	int rc = pickle_next_byte(p, &byte);

	if (rc)
		return rc;
	i = &instructions[byte];
	*out = (struct rsh_pickle_step){
		.instruction = byte, .pops = i->pops, .pushes = i->pushes,
		.memo = i->memo, .at = p->at - 1,
	};
	return pickle_read_operand(p, i->operand, out);
}

int rsh_pickle_text(struct rsh_pickle *p, const struct rsh_pickle_step *s,
		    char *to)
{
	const uint64_t from = p->at - s->n_text;

	if (from < p->window_at || p->at > p->window_at + p->n_window)
		return rsh_bytes_read(p->src, to, (size_t)s->n_text, from,
				      p->err);
	memcpy(to, p->window + (from - p->window_at), (size_t)s->n_text);
	return 0;
}
