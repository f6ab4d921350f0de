/* SPDX-License-Identifier: Apache-2.0 */
/* wire/pickle_values.c executes a pickle but makes plain values only. */
#include "config.h"

#include "rsh/wire/pickle_values.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"
#include "rsh/wire/bytes.h"

#define POP_MARK '1'
#define DUP '2'
#define MARK '('
#define STOP '.'
#define STACK_GLOBAL 0x93
#define PROTO 0x80
#define PROTOCOL_MAX 5
#define LONG4 0x8b
#define BINBYTES8 0x8e
#define EMPTY_SET 0x8f
#define ADDITEMS 0x90
#define FROZENSET 0x91
#define NEWOBJ_EX 0x92
#define BYTEARRAY8 0x96

/* ---- instructions ---- */

/* An instruction of the program for a stack machine that a pickle is. */
struct step {
	uint8_t instruction;
	uint8_t needs; /* number of values below which it cannot be */
	bool is_number;
	/* the value, also if negative, or the place in the memo */
	uint64_t number;
	uint64_t at; /* offset of the instruction */
	/* number of bytes at the end of the instruction that are a text of any
	 * length, or the two lines of GLOBAL */
	uint64_t n_text;
};

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

/* pickletools.py has their names and meanings.  What pops values up to a mark
 * needs none. */
static const struct pickle_instruction {
	uint8_t operand, needs;
} instructions[256] = {
	['('] = { NOTHING }, ['.'] = { NOTHING, 1 }, ['0'] = { NOTHING, 1 },
	['1'] = { NOTHING }, ['2'] = { NOTHING, 1 }, ['F'] = { LINE },
	['I'] = { LINE }, ['J'] = { INTEGER_4 }, ['K'] = { INTEGER_1 },
	['L'] = { LINE }, ['M'] = { INTEGER_2 }, ['N'] = { NOTHING },
	['P'] = { LINE }, ['Q'] = { NOTHING, 1 }, ['R'] = { NOTHING, 2 },
	['S'] = { LINE }, ['T'] = { TEXT_4 }, ['U'] = { TEXT_1 },
	['V'] = { LINE }, ['X'] = { TEXT_4 }, ['a'] = { NOTHING, 2 },
	['b'] = { NOTHING, 2 }, ['c'] = { LINES_2 }, ['d'] = { NOTHING },
	['}'] = { NOTHING }, ['e'] = { NOTHING }, ['g'] = { LINE },
	['p'] = { LINE }, ['h'] = { INDEX_1 }, ['i'] = { LINES_2 },
	['j'] = { INDEX_4 }, ['l'] = { NOTHING }, [']'] = { NOTHING },
	['o'] = { NOTHING }, ['q'] = { INDEX_1, 1 }, ['r'] = { INDEX_4, 1 },
	['s'] = { NOTHING, 3 }, ['t'] = { NOTHING }, [')'] = { NOTHING },
	['u'] = { NOTHING }, ['G'] = { BYTES_8 }, ['B'] = { COUNTED_4 },
	['C'] = { COUNTED_1 }, [0x80] = { INDEX_1 }, [0x81] = { NOTHING, 2 },
	[0x82] = { BYTES_1 }, [0x83] = { BYTES_2 }, [0x84] = { BYTES_4 },
	[0x85] = { NOTHING, 1 }, [0x86] = { NOTHING, 2 },
	[0x87] = { NOTHING, 3 }, [0x88] = { NOTHING }, [0x89] = { NOTHING },
	[0x8a] = { LONG_1 }, [0x8b] = { COUNTED_4 }, [0x8c] = { TEXT_1 },
	[0x8d] = { TEXT_8 }, [0x8e] = { COUNTED_8 }, [0x8f] = { NOTHING },
	[0x90] = { NOTHING }, [0x91] = { NOTHING }, [0x92] = { NOTHING, 3 },
	[0x93] = { NOTHING, 2 }, [0x94] = { NOTHING, 1 }, [0x95] = { BYTES_8 },
	[0x96] = { COUNTED_8 }, [0x97] = { NOTHING }, [0x98] = { NOTHING, 1 },
};

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

static int pickle_read_integer(struct rsh_pickle *p, unsigned width,
			       bool is_signed, struct step *out)
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
			       struct step *out)
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

/* Reads the next instruction. */
static int pickle_next(struct rsh_pickle *p, struct step *out)
{
	uint8_t byte;
	int rc = pickle_next_byte(p, &byte);

	if (rc)
		return rc;
	*out = (struct step){
		.instruction = byte, .needs = instructions[byte].needs,
		.at = p->at - 1,
	};
	return pickle_read_operand(p, instructions[byte].operand, out);
}

/* Copies the text of the step that was read last. */
static int pickle_text(struct rsh_pickle *p, const struct step *s, char *to)
{
	const uint64_t from = p->at - s->n_text;

	if (from < p->window_at || p->at > p->window_at + p->n_window)
		return rsh_bytes_read(p->src, to, (size_t)s->n_text, from,
				      p->err);
	memcpy(to, p->window + (from - p->window_at), (size_t)s->n_text);
	return 0;
}

/* ---- the machine ---- */

struct machine {
	struct rsh_pickle *p;
	struct rsh_arena *arena;
	const struct rsh_pickle_rules *rules;
	uint64_t at; /* offset of the instruction */

	struct rsh_pickle_value *stack;
	size_t n, cap;
	size_t *marks; /* number of values below each mark */
	size_t n_marks, cap_marks;
	struct rsh_pickle_value *memo;
	size_t n_memo, cap_memo;
};

static int machine_bad(const struct machine *m, const char *what)
{
	return rsh_bytes_damaged(m->p->src, m->at, what, m->p->err);
}

/* ---- the stack ---- */

static int machine_push(struct machine *m, struct rsh_pickle_value v)
{
	if (rsh_push(m->stack, m->n, m->cap, v))
		return rsh_error_nomem(m->p->err);
	return 0;
}

static int machine_push_kind(struct machine *m, enum rsh_pickle_kind kind,
			     int64_t number)
{
	return machine_push(m, (struct rsh_pickle_value){
		.kind = (uint8_t)kind, .number = number,
	});
}

/* ---- the memo ---- */

static int machine_put(struct machine *m, uint64_t place)
{
	/* Picklers number the memo without gaps; Python 2 begins with 1. */
	if (place > m->n_memo + (m->n_memo == 0))
		return machine_bad(m, "a pickle whose memo has gaps");
	if (place >= m->n_memo) {
		if (rsh_room(m->memo, m->cap_memo, (size_t)place + 1))
			return rsh_error_nomem(m->p->err);
		m->memo[0] = m->n_memo ? m->memo[0] : m->stack[m->n - 1];
		m->n_memo = (size_t)place + 1;
	}
	m->memo[place] = m->stack[m->n - 1];
	return 0;
}

/* ---- texts and classes ---- */

static int machine_text(struct machine *m, const struct step *s, char **out)
{
	*out = rsh_arena_alloc(m->arena, (size_t)s->n_text + 1, 1);
	return *out ? pickle_text(m->p, s, *out) : rsh_error_nomem(m->p->err);
}

static int machine_push_text(struct machine *m, const struct step *s)
{
	char *text;
	int rc = machine_text(m, s, &text);

	return rc ? rc : machine_push(m, (struct rsh_pickle_value){
		.kind = RSH_PV_TEXT, .n = (uint32_t)s->n_text, .text = text,
	});
}

static int machine_push_class(struct machine *m, const char *module,
			      const char *name)
{
	struct rsh_pickle_class *c =
		rsh_arena_array(m->arena, struct rsh_pickle_class, 1);

	if (!c)
		return rsh_error_nomem(m->p->err);
	*c = (struct rsh_pickle_class){ module, name };
	return machine_push(m, (struct rsh_pickle_value){
		.kind = RSH_PV_CLASS, .class = c,
	});
}

static int machine_global(struct machine *m, const struct step *s)
{
	char *module, *name;
	int rc = machine_text(m, s, &module);

	if (rc)
		return rc;
	name = memchr(module, '\n', (size_t)s->n_text);
	/* The bytes may have been read from the file again, and may have
	 * changed. */
	if (!name)
		return machine_bad(m, "a class that changed while it was read");
	*name++ = '\0';
	name[strcspn(name, "\n")] = '\0';
	return machine_push_class(m, module, name);
}

/* ---- containers ---- */

/* Makes a tuple of the top n values. */
static int machine_tuple(struct machine *m, size_t n)
{
	struct rsh_pickle_value *items =
		rsh_arena_array(m->arena, struct rsh_pickle_value, n);

	if (!items)
		return rsh_error_nomem(m->p->err);
	if (n > 0)
		memcpy(items, m->stack + m->n - n, n * sizeof(*items));
	m->n -= n;
	return machine_push(m, (struct rsh_pickle_value){
		.kind = RSH_PV_TUPLE, .n = (uint32_t)n, .items = items,
	});
}

static int machine_push_list(struct machine *m, enum rsh_pickle_kind kind)
{
	struct rsh_pickle_list *l =
		rsh_arena_array(m->arena, struct rsh_pickle_list, 1);

	return l ? machine_push(m, (struct rsh_pickle_value){
		.kind = (uint8_t)kind, .list = l,
	}) : rsh_error_nomem(m->p->err);
}

static int machine_grow_list(struct machine *m, struct rsh_pickle_list *l,
			     size_t n)
{
	const size_t need = (size_t)l->n + n;
	const size_t cap = need > 2 * (size_t)l->cap ? need :
						       2 * (size_t)l->cap;
	struct rsh_pickle_value *values;

	if (need <= l->cap)
		return 0;
	values = rsh_arena_array(m->arena, struct rsh_pickle_value, cap);
	if (!values)
		return rsh_error_nomem(m->p->err);
	if (l->n > 0)
		memcpy(values, l->values, l->n * sizeof(*values));
	l->values = values;
	l->cap = (uint32_t)cap;
	return 0;
}

/* Moves the top n values into the list, dictionary or object below them. */
static int machine_extend(struct machine *m, enum rsh_pickle_kind kind,
			  size_t n)
{
	const struct rsh_pickle_value *to;
	struct rsh_pickle_list *list;
	int rc;

	if (m->n <= n || (kind == RSH_PV_DICT && n % 2))
		return machine_bad(m, "a pickle that fills what is not there");
	to = &m->stack[m->n - n - 1];
	if (to->kind != kind && to->kind != RSH_PV_OBJECT)
		return machine_bad(m, "a pickle that fills what is neither "
				   "list nor dictionary");
	list = to->kind == RSH_PV_OBJECT ? &to->object->items :
	       kind != RSH_PV_OTHER ? to->list : NULL;
	if (list && n > 0) {
		rc = machine_grow_list(m, list, n);
		if (rc)
			return rc;
		memcpy(list->values + list->n, m->stack + m->n - n,
		       n * sizeof(*m->stack));
		list->n += (uint32_t)n;
	}
	m->n -= n;
	return 0;
}

/* ---- objects ---- */

static int machine_push_object(struct machine *m,
			       const struct rsh_pickle_class *class,
			       struct rsh_pickle_value args, bool is_new)
{
	struct rsh_pickle_object *o =
		rsh_arena_array(m->arena, struct rsh_pickle_object, 1);

	if (!o)
		return rsh_error_nomem(m->p->err);
	*o = (struct rsh_pickle_object){
		.at = m->at, .class = class, .args = args, .is_new = is_new,
		.state.kind = RSH_PV_NONE,
	};
	return machine_push(m, (struct rsh_pickle_value){
		.kind = RSH_PV_OBJECT, .object = o,
	});
}

static int machine_make(struct machine *m, bool is_new)
{
	static const struct rsh_pickle_class no_class = { "", "" };
	struct rsh_pickle_value *both;
	const struct rsh_pickle_value class = m->stack[m->n - 2];
	const struct rsh_pickle_value args = m->stack[m->n - 1];
	struct rsh_pickle_value made = { .kind = RSH_PV_OBJECT };
	int rc = 0;

	if (args.kind != RSH_PV_TUPLE)
		return machine_bad(m, "a pickle that calls with arguments "
				   "that are not a tuple");
	m->n -= 2;
	/* Every chunk has two of these. */
	if (rsh_pickle_is_class(&class, "torch", "Size") && args.n == 1 &&
	    args.items[0].kind == RSH_PV_TUPLE)
		return machine_push(m, args.items[0]);
	if (m->rules->call)
		rc = m->rules->call(m->rules->ctx, &(struct rsh_pickle_call){
			m->at, &class, &args, is_new,
		}, &made);
	if (rc || made.kind != RSH_PV_OBJECT)
		return rc ? rc : machine_push(m, made);
	if (class.kind == RSH_PV_CLASS)
		return machine_push_object(m, class.class, args, is_new);
	both = rsh_arena_array(m->arena, struct rsh_pickle_value, 2);
	if (!both)
		return rsh_error_nomem(m->p->err);
	both[0] = class;
	both[1] = args;
	return machine_push_object(m, &no_class, (struct rsh_pickle_value){
		.kind = RSH_PV_TUPLE, .n = 2, .items = both,
	}, is_new);
}

static int machine_persistent(struct machine *m)
{
	int rc = 0;

	if (!m->rules->persistent_ids)
		return machine_bad(m, "a persistent id, which it cannot have");
	m->n--;
	if (m->rules->persistent)
		rc = m->rules->persistent(m->rules->ctx, m->at,
					  &m->stack[m->n]);
	return rc ? rc : machine_push_object(m, NULL, m->stack[m->n],
					      false);
}

/* ---- instructions ---- */

static int machine_refuse(const struct machine *m, uint8_t instruction)
{
	char what[80];

	snprintf(what, sizeof(what), "a pickle instruction 0x%02x, which has "
		 "no place here", instruction);
	return machine_bad(m, what);
}

/* Executes an instruction that uses all values above the last mark. */
static int machine_to_mark(struct machine *m, uint8_t instruction)
{
	size_t n;

	if (m->n_marks == 0)
		return machine_bad(m, "a pickle that goes back to a mark that "
				   "is not there");
	n = m->n - m->marks[--m->n_marks];
	switch (instruction) {
	case 't':
		return machine_tuple(m, n);
	case 'e':
		return machine_extend(m, RSH_PV_LIST, n);
	case ADDITEMS:
		return machine_extend(m, RSH_PV_OTHER, n);
	case POP_MARK:
		m->n -= n;
		return 0;
	case FROZENSET:
		m->n -= n;
		return machine_push_kind(m, RSH_PV_OTHER, 0);
	default:
		return machine_extend(m, RSH_PV_DICT, n);
	}
}

/* Pushes the real number in the eight bytes after the instruction, most
 * significant byte first. */
static int machine_push_real(struct machine *m)
{
	struct rsh_pickle_value v = { .kind = RSH_PV_REAL };
	uint8_t bytes[8] = { 0 };
	uint64_t bits = 0;
	int rc = pickle_text(m->p,
			     &(struct step){
				     .n_text = sizeof(bytes),
			     },
			     (char *)bytes);

	if (rc)
		return rc;
	for (size_t i = 0; i < sizeof(bytes); i++)
		bits = bits << 8 | bytes[i];
	memcpy(&v.real, &bits, sizeof(bits));
	return machine_push(m, v);
}

/* Executes an instruction that makes a value. */
static int machine_combine(struct machine *m, const struct step *s)
{
	const struct rsh_pickle_value *v =
		m->n < 2 ? NULL : &m->stack[m->n - 2];
	int rc;

	switch (s->instruction) {
	case 'c':
		return machine_global(m, s);
	case STACK_GLOBAL:
		if (v[0].kind != RSH_PV_TEXT || v[1].kind != RSH_PV_TEXT)
			return machine_bad(m, "a class whose name is not a "
					   "text");
		m->n -= 2;
		return machine_push_class(m, v[0].text, v[1].text);
	case 'R': case 0x81: /* NEWOBJ */
		return machine_make(m, s->instruction != 'R');
	case NEWOBJ_EX: /* as NEWOBJ, with named arguments */
		rc = machine_tuple(m, 2);
		return rc ? rc : machine_make(m, true);
	case 'b':
		if (v[0].kind == RSH_PV_OBJECT)
			v[0].object->state = v[1];
		m->n--;
		return 0;
	case 'Q':
		return machine_persistent(m);
	case 0x85: case 0x86: case 0x87: /* TUPLE1, TUPLE2, TUPLE3 */
		return machine_tuple(m, s->instruction - 0x84u);
	case 'a':
		return machine_extend(m, RSH_PV_LIST, 1);
	case 's':
		return machine_extend(m, RSH_PV_DICT, 2);
	case 'N':
		return machine_push_kind(m, RSH_PV_NONE, 0);
	case 0x88: case 0x89: /* NEWTRUE, NEWFALSE */
		return machine_push_kind(m, RSH_PV_BOOL,
					 s->instruction == 0x88);
	case 'J': case 'K': case 'M': case 0x8a: /* LONG1 */
		return machine_push_kind(m, s->is_number ? RSH_PV_NUMBER :
							   RSH_PV_OTHER,
					 (int64_t)s->number);
	case 'G':
		return machine_push_real(m);
	case 'B': case 'C': case BINBYTES8: case EMPTY_SET: case LONG4:
	case BYTEARRAY8:
		return machine_push_kind(m, RSH_PV_OTHER, 0);
	case 'X': case 0x8c: case 0x8d:
	case 'T': case 'U': /* texts of Python 2 */
		return machine_push_text(m, s);
	case ']':
		return machine_push_list(m, RSH_PV_LIST);
	case '}':
		return machine_push_list(m, RSH_PV_DICT);
	case ')':
		return machine_tuple(m, 0);
	default:
		return machine_refuse(m, s->instruction);
	}
}

static bool machine_is_of_any_object(uint8_t instruction)
{
	return instruction == '0' || instruction == POP_MARK ||
	       instruction == DUP || instruction == 'T' ||
	       instruction == 'U' || instruction == LONG4 ||
	       (instruction >= BINBYTES8 && instruction <= NEWOBJ_EX) ||
	       instruction == BYTEARRAY8;
}

static int machine_follow(struct machine *m, const struct step *s)
{
	if (!m->rules->any_object && machine_is_of_any_object(s->instruction))
		return machine_refuse(m, s->instruction);
	if (m->n - (m->n_marks ? m->marks[m->n_marks - 1] : 0) < s->needs)
		return machine_bad(m, "a pickle that takes more than there is");
	switch (s->instruction) {
	case PROTO:
		return s->number <= PROTOCOL_MAX ? 0 :
		       machine_bad(m, "a pickle of a later protocol than 5");
	case 0x95: /* FRAME */
	case STOP:
		return 0;
	case MARK:
		if (rsh_push(m->marks, m->n_marks, m->cap_marks, m->n))
			return rsh_error_nomem(m->p->err);
		return 0;
	case 'q': case 'r':
		return machine_put(m, s->number);
	case 0x94: /* MEMOIZE */
		return machine_put(m, m->n_memo);
	case 'h': case 'j':
		if (s->number >= m->n_memo)
			return machine_bad(m, "a pickle that takes from its "
					   "memo what is not there");
		return machine_push(m, m->memo[s->number]);
	case '0': /* POP */
		m->n--;
		return 0;
	case DUP:
		return machine_push(m, m->stack[m->n - 1]);
	case POP_MARK: case 't': case 'e': case 'u': case ADDITEMS: case FROZENSET:
		return machine_to_mark(m, s->instruction);
	default:
		return machine_combine(m, s);
	}
}

static int machine_run(struct machine *m, struct rsh_pickle_value *out)
{
	struct step step = { .instruction = 0 };
	int rc = 0;

	m->at = m->p->at;
	/* All counts are less than the number of bytes, so 32 bits are
	 * enough. */
	if (m->p->src->size - m->p->at >= UINT32_MAX)
		return machine_bad(m, "a pickle of 4 GiB or more");
	while (rc == 0 && step.instruction != STOP) {
		const bool first = step.instruction == 0;

		rc = pickle_next(m->p, &step);
		m->at = step.at;
		if (rc == 0 && first && step.instruction != PROTO)
			return machine_bad(m, "no pickle");
		rc = rc ?: machine_follow(m, &step);
	}
	if (rc)
		return rc;
	*out = m->stack[m->n - 1];
	m->at = m->p->at;
	return m->rules->goes_on || m->at == m->p->src->size ? 0 :
	       machine_bad(m, "bytes after the end of the pickle");
}

int rsh_pickle_values(struct rsh_pickle *p,
		      const struct rsh_pickle_rules *rules,
		      struct rsh_arena *arena, struct rsh_pickle_value *out)
{
	struct machine m = { .p = p, .arena = arena, .rules = rules };
	int rc = machine_run(&m, out);

	free(m.stack);
	free(m.marks);
	free(m.memo);
	return rc;
}

/* ---- comparing values ---- */

bool rsh_pickle_is_text(const struct rsh_pickle_value *v, const char *text)
{
	return v->kind == RSH_PV_TEXT && v->n == strlen(text) &&
	       memcmp(v->text, text, v->n) == 0;
}

bool rsh_pickle_is_class(const struct rsh_pickle_value *v, const char *module,
			 const char *name)
{
	return v->kind == RSH_PV_CLASS &&
	       strcmp(v->class->module, module) == 0 &&
	       strcmp(v->class->name, name) == 0;
}

const struct rsh_pickle_value *
rsh_pickle_find(const struct rsh_pickle_value *v, const char *key)
{
	if (!v || v->kind != RSH_PV_DICT)
		return NULL;
	for (uint32_t i = v->list->n; i >= 2; i -= 2)
		if (rsh_pickle_is_text(&v->list->values[i - 2], key))
			return &v->list->values[i - 1];
	return NULL;
}

const struct rsh_pickle_value *
rsh_pickle_items(const struct rsh_pickle_value *v, uint32_t *n)
{
	*n = 0;
	if (!v || (v->kind != RSH_PV_TUPLE && v->kind != RSH_PV_LIST))
		return NULL;
	*n = v->kind == RSH_PV_TUPLE ? v->n : v->list->n;
	return *n == 0 ? v : v->kind == RSH_PV_TUPLE ? v->items :
						      v->list->values;
}

bool rsh_pickle_number(const struct rsh_pickle_value *v, uint64_t max,
		       uint64_t *out)
{
	if (!v || v->kind != RSH_PV_NUMBER || v->number < 0 ||
	    (uint64_t)v->number > max)
		return false;
	*out = (uint64_t)v->number;
	return true;
}
