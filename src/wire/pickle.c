/* SPDX-License-Identifier: Apache-2.0 */
/* wire/pickle.c reads the instructions of a pickle. */
#include "config.h"

#include "rsh/wire/pickle.h"

#include <string.h>

#include "rsh/wire/bytes.h"

/* The kind of an instruction's operand, and the bytes of its number or length;
 * 0: there is no such instruction. */
#define OPERAND(kind, width) ((kind) << 4 | (width))
enum pickle_operand {
	NOTHING = OPERAND(1, 0),
	SKIPPED = 1, INDEX, INTEGER, SIGNED, COUNTED, LONG, TEXT, LINES,
	BYTES_1 = OPERAND(SKIPPED, 1), BYTES_2 = OPERAND(SKIPPED, 2),
	BYTES_4 = OPERAND(SKIPPED, 4), BYTES_8 = OPERAND(SKIPPED, 8),
	/* a place in the memo, or the protocol */
	INDEX_1 = OPERAND(INDEX, 1), INDEX_4 = OPERAND(INDEX, 4),
	INTEGER_1 = OPERAND(INTEGER, 1), INTEGER_2 = OPERAND(INTEGER, 2),
	INTEGER_4 = OPERAND(SIGNED, 4),
	/* a length, then so many bytes, an integer or a string */
	COUNTED_1 = OPERAND(COUNTED, 1), COUNTED_4 = OPERAND(COUNTED, 4),
	COUNTED_8 = OPERAND(COUNTED, 8), LONG_1 = OPERAND(LONG, 1),
	TEXT_1 = OPERAND(TEXT, 1), TEXT_4 = OPERAND(TEXT, 4),
	TEXT_8 = OPERAND(TEXT, 8),
	LINE = OPERAND(LINES, 1), LINES_2 = OPERAND(LINES, 2),
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

/* ---- operands ---- */

static int pickle_read_integer(struct rsh_pickle *p, unsigned width,
			       bool is_signed, struct rsh_pickle_step *out)
{
	int rc = pickle_next_number(p, width, &out->number);

	out->is_number = true;
	if (rc == 0 && is_signed && width > 0 && width < 8 &&
	    out->number >> (8 * width - 1))
		out->number |= UINT64_MAX << (8 * width);
	return rc;
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
	const unsigned width = operand & 15;
	uint64_t n;
	int rc;

	switch (operand >> 4) {
	case SKIPPED:
		return pickle_skip(p, width);
	case INDEX:
		return pickle_next_number(p, width, &out->number);
	case INTEGER:
	case SIGNED:
		return pickle_read_integer(p, width, operand >> 4 == SIGNED,
					   out);
	case COUNTED:
		return pickle_next_number(p, width, &n) ?: pickle_skip(p, n);
	case LONG:
		/* One of more than eight bytes cannot be a number of
		 * elements. */
		return pickle_next_number(p, width, &n) ?:
		       n <= 8 ? pickle_read_integer(p, (unsigned)n, true, out) :
				pickle_skip(p, n);
	case TEXT:
		return pickle_next_number(p, width, &out->n_text) ?:
		       pickle_skip(p, out->n_text);
	case LINES:
		rc = pickle_skip_line(p);
		if (width == 1)
			return rc;
		rc = rc ?: pickle_skip_line(p);
		out->n_text = p->at - out->at - 1;
		return rc;
	default:
		return rsh_bytes_damaged(p->src, p->at - 1,
					 "no pickle instruction", p->err);
	}
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
