/* SPDX-License-Identifier: Apache-2.0 */
/* wire/rule_table_i.h - a rule table during parsing.
 *
 * rule_table.c reads the lines, rule_text.c parses one line, and rule_check.c
 * checks that both sides of a rule describe the same elements.  The parser
 * remembers its first failure: what is read after that has no meaning, and may
 * be "" or NULL. */
#pragma once

#include "rsh/tensor/box.h"
#include "rsh/wire/rule_table.h"

/* These limits are at least three times what tables of real models need. */
#define RULE_HOLES_MAX 4    /* of a name, without those of its prefix */
#define RULE_NAME_MAX 512   /* bytes of a name or a word */
#define RULE_TENSORS_MAX 16 /* of a side */
#define RULE_FACTORS_MAX 8  /* of a product */
#define RULE_LETTERS_MAX 16 /* of a tensor */
#define RULE_UNDER_MAX 8    /* in a row */
#define RULE_TERMS_MAX 8    /* of a let, and operands of a term */
#define RULE_LINES_MAX 4096 /* of each kind except `let` */
#define RULE_LETS_MAX 256

struct rule_parse {
	struct rsh_rule_table *t;
	struct rsh_error *err;
	int rc; /* 0, -ENOMEM, or -EBADMSG with a sentence */
	uint32_t line;
	const char *at, *end; /* the unread part of the line */
	struct rsh_rule_under *under; /* the current prefixes */
	uint32_t n_under;
	bool in_row; /* the previous line was an `under` too */
	/* of the last `when` after the last `under`; NULL: there is none */
	const struct rsh_rule_when *when;
};

/* ---- rule_text.c ---- */

/* Sets p->rc, unless there was a failure before, and returns it. */
int rule_bad(struct rule_parse *p, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void rule_nomem(struct rule_parse *p);
void rule_skip_blanks(struct rule_parse *p);
/* If the character is next, skips it and the blanks around it.  Returns false
 * after a failure, too. */
bool rule_take(struct rule_parse *p, char c);
/* Return a copy that the table owns. */
const char *rule_keep_text(struct rule_parse *p, const char *text, size_t len);
const void *rule_keep_list(struct rule_parse *p, const void *list, size_t size);
/* Reads a word of letters, digits and "_" that does not begin with a digit. */
const char *rule_parse_word(struct rule_parse *p);
/* Returns whether the prefix of `under` is put before the name. */
bool rule_is_under(const struct rsh_rule_name *n);
void rule_parse_name(struct rule_parse *p, struct rsh_rule_name *out);
void rule_parse_tensor(struct rule_parse *p, struct rsh_rule_tensor *out);
void rule_parse_let(struct rule_parse *p, struct rsh_rule_let *out);
/* Checks that nothing is left on the line. */
void rule_parse_end(struct rule_parse *p);

/* ---- rule_check.c ---- */

/* Checks that both sides describe the same elements, with each prefix. */
int rule_check(struct rule_parse *p, const struct rsh_rule *r);
