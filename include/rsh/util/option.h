/* SPDX-License-Identifier: Apache-2.0 */
/* util/option.h - a row that describes an option, and the setters of usual
 * values.  A layer writes the options of its own struct as such rows, beside
 * that struct; app/options has the list of all of them (app/table.h).
 *
 * Rows are constant, and any thread may read them.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rsh/util/arena.h"
#include "rsh/util/error.h"

struct rsh_option;

/* This is an option that is being set. */
struct rsh_setting {
	const struct rsh_option *def;
	const char *value; /* NULL: the option takes none */
	void *base;        /* the struct whose options the rows describe */
	void *to;          /* the member in it */
	struct rsh_arena *memory; /* lives as long as the struct */
	struct rsh_error *err;
};

/* Sets an option.  Returns 0, or -EINVAL or -ENOMEM with a sentence that names
 * the option. */
typedef int rsh_option_setter(const struct rsh_setting *s);

/* What the digest of a conversion has of an option's member, which is zero or
 * NULL if the option is not given. */
enum rsh_decides {
	RSH_DECIDES_NOTHING, /* the option does not decide about bytes */
	RSH_DECIDES_VALUE,   /* the bytes of the member */
	RSH_DECIDES_TEXT,
	RSH_DECIDES_FILE,    /* the content of the file that it names */
	RSH_DECIDES_OUTPUT,  /* the format of the output */
};

/* The last row of a list has neither a name nor a letter. */
struct rsh_option {
	const char *name; /* NULL: it has a letter only */
	/* This is the name of the value in --help, "a|b" if the value is one of
	 * these words; NULL: the option takes no value. */
	const char *arg;
	const char *help;       /* the text of --help */
	rsh_option_setter *set; /* NULL: the value is a list of options */
	/* These are offset and size of the member. */
	size_t at, size;
	char letter;       /* 0: none */
	unsigned commands; /* bits of the commands that take it; 0: those of its
			    * list */
	/* For numbers: the range, and the unit in which they are stored (0 is
	 * 1).  For words: the numbers of the words of `arg`, which are `values`
	 * or, if it is NULL, min, min + 1 ...  For sizes: the least one. */
	unsigned min, max, unit;
	const unsigned *values;
	bool may_be_empty; /* of texts */
	const char *none;  /* the text for which NULL is stored */
	/* Checks a text.  Returns 0, or -EINVAL with a sentence that names the
	 * option. */
	int (*check)(const char *value, struct rsh_error *err);

	/* Rules.  A list "a|b=word|c" has names of options, with a value if
	 * only that is meant.  An option that states its default excludes
	 * nothing, and an output need not support it. */
	const char *excludes; /* none of these can be given as well */
	/* One of these must be given, of those that the command has.  "SOURCE"
	 * is the operand, of commands that can be called without it. */
	const char *needs;
	bool must; /* the command needs it */

	bool first;    /* --help lists it, not only --help-all */
	bool once;     /* two values are refused, since they look as if they
			* added up; of other options the last one counts */
	bool aside;    /* it does not change what a mount shows */
	bool converts; /* it is for conversions, not for `mount --resume` */
	bool checks;   /* commands that check tables or strategies take it too
			* (struct rsh_option_list) */
	enum rsh_decides decides;
	/* If one of these is set, the member is a path that is opened for
	 * reading.  `opens_links` is for a directory: the targets of its links
	 * are opened as well. */
	bool opens, opens_links;
	bool is_source; /* it may be an address with secrets, as SOURCE may
			 * be */
};

#define RSH_OPTION_AT(type, member)        \
	.at = offsetof(type, member), \
	.size = sizeof(((type *)0)->member)

/* These set true, a text, an extended regular expression, a number, a word of
 * `arg` (a bool or an unsigned), bytes such as "64M" or "5GB" (uint64_t), also
 * as a percentage of the machine's memory if `arg` has '%'. */
rsh_option_setter rsh_set_flag, rsh_set_text, rsh_set_regex, rsh_set_number,
	rsh_set_word, rsh_set_size;
/* Accepts an option for behaviour that is always on. */
rsh_option_setter rsh_set_nothing;

/* Refuses a value that is none of the words of `arg`. */
int rsh_option_refuse_word(const struct rsh_setting *s);
/* Returns the index of the value among the words of `arg`, or -1. */
int rsh_option_word(const struct rsh_setting *s);
/* Writes the words "a|b|c" as "a, b or c", each with `before`. */
void rsh_words_put(char *to, size_t size, const char *before,
		   const char *words);
