/* SPDX-License-Identifier: Apache-2.0 */
/* app/options/parse.c makes struct rsh_options from argv and the tables. */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "options_i.h"
#include "rsh/app/check.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

/* ---- finding options ---- */

#define NAMES_MAX 256

static void add_name(char names[NAMES_MAX], const char *name)
{
	size_t end = strlen(names);

	rsh_text_add(names, NAMES_MAX, &end, "%s%s", end ? "|" : "", name);
}

/* Finds the long option, whose name may be cut; returns how many may be meant,
 * and lists them as "a|b". */
static unsigned find_long(const struct rsh_command *command, const char *name,
			  size_t n, struct rsh_option_at *found,
			  char names[NAMES_MAX])
{
	struct rsh_option_at at = { .list = NULL };
	unsigned count = 0;

	*names = '\0';
	if (rsh_option_find(command, name, n, found) && !found->list->bare)
		return 1;
	while (n && rsh_option_next_of(command, &at))
		if (at.row->name && !at.list->bare &&
		    rsh_suggestion_begins(at.row->name, name, n)) {
			add_name(names, at.row->name);
			*found = at;
			count++;
		}
	return count;
}

static bool find_letter(const struct rsh_command *command, char letter,
			struct rsh_option_at *at)
{
	at->list = NULL;
	while (rsh_option_next_of(command, at))
		if (letter && at->row->letter == letter)
			return true;
	return false;
}

/* Lists the commands that have the option of that name. */
static bool find_owners(const char *word, size_t length, char names[NAMES_MAX])
{
	struct rsh_option_at at = { .list = NULL };
	size_t n;
	const struct rsh_command *commands = rsh_command_table(&n);
	unsigned in = 0;

	*names = '\0';
	while (rsh_option_next(&at))
		if (at.row->name && !at.list->bare &&
		    rsh_suggestion_same(at.row->name, word, length))
			in |= rsh_option_commands(&at);
	for (size_t i = 0; i < n; i++)
		if (in & RSH_IN(commands[i].id))
			add_name(names, commands[i].name);
	return *names;
}

/* ---- unknown options ---- */

/* Writes " (did you mean --OPTION?)", or "".  The words before its name are
 * "--" or "-o " if `before` is NULL. */
static void guess_option(const struct rsh_command *command, const char *word,
			 size_t n, const char *before,
			 char text[RSH_SUGGESTION_BYTES])
{
	const char *ours = rsh_other_word(word, n);
	struct rsh_option_at at = { .list = NULL };
	struct rsh_suggestion guess;

	rsh_suggestion_begin(&guess, word, n);
	while (rsh_option_next_of(command, &at))
		if (at.row->name)
			rsh_suggestion_offer(&guess, at.row->name);
	if (ours)
		guess.best = ours;
	if (ours && *ours < 'a') {
		before = "the operand ";
		guess.best = command->operands[strcmp(ours, "SOURCE") != 0];
	}
	rsh_suggestion_put(&guess, before ? before :
			   guess.best && strchr(guess.best, '_') ? "-o " : "--",
			   text);
	/* Names in lists are usually written with '_'. */
	for (char *c = before ? strrchr(text, ' ') : NULL; c && *c; c++)
		*c = *c == '-' ? '_' : *c;
}

/* `rest` are the words after the option. */
static int unknown_long(const struct rsh_options *o, const char *word,
			size_t length, char *const *rest, struct rsh_error *err)
{
	char text[RSH_SUGGESTION_BYTES], names[NAMES_MAX], words[2 * NAMES_MAX];
	struct rsh_option_at at;
	bool before = false;

	if (find_long(o->command, word, length, &at, names)) {
		rsh_words_put(words, sizeof(words), "--", names);
		return rsh_error_set(err, EINVAL, "option --%.*s is "
				     "ambiguous: %s", (int)length, word, words);
	}
	/* Options before the name of a command must be options that all
	 * commands have. */
	for (; o->unnamed && *rest; rest++)
		before |= rsh_command_find(*rest) != NULL;
	if (find_owners(word, length, names)) {
		rsh_words_put(words, sizeof(words), "", names);
		return rsh_error_set(err, EINVAL, "%s has no option --%.*s; "
				     "it is an option of %s%s%s",
				     o->command->name, (int)length, word, words,
				     before ? ", to be given after the "
					      "command" : "",
				     length == strlen("steps") &&
				     strncmp(word, "steps", length) == 0 ?
				     ": give one step as SOURCE, or of rank "
				     "files by --select" : "");
	}
	guess_option(o->command, word, length, NULL, text);
	return rsh_error_set(err, EINVAL, "unknown option --%.*s%s",
			     (int)length, word, text);
}

/* The word may be a long option with only one hyphen. */
static int unknown_letter(const struct rsh_command *command, const char *word,
			  char letter, struct rsh_error *err)
{
	char names[NAMES_MAX], words[2 * NAMES_MAX];
	struct rsh_option_at at;

	if (!word[2] || !find_long(command, word + 1, strcspn(word + 1, "="),
				   &at, names))
		return rsh_error_set(err, EINVAL, "unknown option -%c", letter);
	rsh_words_put(words, sizeof(words), "--", *names ? names :
		      at.row->name);
	return rsh_error_set(err, EINVAL, "unknown option %s (did you mean "
			     "%s?)", word, words);
}

/* ---- setting ---- */

static int parse_option(struct rsh_options *o, const struct rsh_option_at *at,
			char *value, struct rsh_error *err);

/* Takes "name" or "name=value".  The value may be in the next word, **rest;
 * rest is NULL in a list, in which names are not cut. */
static int take_named(struct rsh_options *o, char *given, char ***rest,
		      struct rsh_error *err)
{
	/* libreshard takes such words without -o. */
	const char *before = rest ? "--" :
		o->command->id == RSH_COMMAND_LIBRARY ? "" : "-o ";
	char *value = strchr(given, '=');
	const size_t n = value ? (size_t)(value - given) : strlen(given);
	char text[RSH_SUGGESTION_BYTES], names[NAMES_MAX];
	struct rsh_option_at at, next;

	if (rest && find_long(o->command, given, n, &at, names) != 1)
		return unknown_long(o, given, n, *rest, err);
	if (!rest && !rsh_option_find(o->command, given, n, &at)) {
		guess_option(o->command, given, n, before, text);
		return rsh_error_set(err, EINVAL, "unknown option %s%.*s%s",
				     before, (int)n, given, text);
	}
	if (value && !at.row->arg)
		return rsh_error_set(err, EINVAL, "%s%s takes no value",
				     before, at.row->name);
	/* This is an option that was forgotten a value, not its value. */
	if (at.row->arg && !value && rest && **rest && !strncmp(**rest, "--", 2) &&
	    find_long(o->command, **rest + 2, strcspn(**rest + 2, "="), &next,
		      names) == 1)
		return rsh_error_set(err, EINVAL, "--%s needs a value (%s), "
				     "but the option %s follows", given,
				     at.row->arg, **rest);
	value = value ? value + 1 : at.row->arg && rest ? *(*rest)++ : NULL;
	if (at.row->arg && !value)
		return rsh_error_set(err, EINVAL, "%s%.*s needs a value (%s)",
				     before, (int)n, given, at.row->arg);
	return parse_option(o, &at, value, err);
}

/* Secrets are removed because ps(1) and the table of mounts show the arguments
 * of this process. */
static int hide_secrets(struct rsh_options *o, char *place,
			struct rsh_error *err)
{
	return rsh_objects_hide(place, &o->objects) ? rsh_error_nomem(err) : 0;
}

/* Cuts the next option off a comma list in place, removing backslashes. */
static char *next_listed(char **list)
{
	char *start = *list, *to = start, *s = start;

	for (; *s && *s != ','; s++) {
		if (s[0] == '\\' && s[1])
			s++;
		*to++ = *s;
	}
	*list = *s ? s + 1 : s;
	*to = '\0';
	return start;
}

/* Refuses an option that was given before with another value. */
static int refuse_another_value(const struct rsh_options *o,
				const struct rsh_setting *s)
{
	for (size_t i = 0; s->value && i < o->n_given; i++)
		if (strcmp(o->given[i].name, s->def->name) == 0 &&
		    strcmp(o->given[i].value, s->value) != 0)
			return rsh_error_set(s->err, EINVAL, "%s is given "
					     "twice, as \"%s\" and as \"%s\"",
					     s->def->name, o->given[i].value,
					     s->value);
	return 0;
}

static int parse_option(struct rsh_options *o, const struct rsh_option_at *at,
			char *value, struct rsh_error *err)
{
	const struct rsh_option *def = at->row;
	const struct rsh_setting s = {
		def, value, (char *)o + at->list->base,
		rsh_option_member(o, at), &o->memory, err,
	};
	char *list;
	int rc = def->is_source ? hide_secrets(o, value, err) : 0;

	/* -o itself is not recorded as given; the options in its list are. */
	if (rc == 0 && def->set) {
		if (def->once)
			rc = refuse_another_value(o, &s);
		if (rc)
			return rc;
		if (rsh_room(o->given, o->cap_given, o->n_given + 1))
			return rsh_error_nomem(err);
		o->given[o->n_given] = (struct rsh_given){ def->name, value,
							   o->n_given };
		o->n_given++;
		return def->set(&s);
	}
	list = rsh_arena_strdup(&o->memory, value);
	if (!list)
		return rsh_error_nomem(err);
	while (rc == 0 && *list) {
		char *one = next_listed(&list);

		if (*one)
			rc = take_named(o, one, NULL, err);
	}
	return rc;
}

int rsh_options_set(struct rsh_options *o, const char *given,
		    struct rsh_error *err)
{
	char *copy = rsh_arena_strdup(&o->memory, given);

	return copy ? take_named(o, copy, NULL, err) : rsh_error_nomem(err);
}

/* ---- words of the command line ---- */

static int take_letters(struct rsh_options *o, char *word, char ***rest,
			struct rsh_error *err)
{
	struct rsh_option_at at;
	char *value;
	int rc = 0;

	for (char *c = word + 1; rc == 0 && *c; c++) {
		if (!find_letter(o->command, *c, &at))
			return unknown_letter(o->command, word, *c, err);
		if (!at.row->arg) {
			rc = parse_option(o, &at, NULL, err);
			continue;
		}
		value = c[1] ? c + 1 : *(*rest)++;
		return value ? parse_option(o, &at, value, err) :
			       rsh_error_set(err, EINVAL, "option %s needs a "
					     "value (%s)", word, at.row->arg);
	}
	return rc;
}

static bool wants_no_command(const struct rsh_options *o)
{
	return o->help || o->help_all || o->version;
}

/* Takes the options out of the words, among which the operands may be. */
static int parse_words(struct rsh_options *o, char **words,
		       struct rsh_error *err)
{
	char **rest = words;
	int rc = 0;

	o->operands = words;
	while (rc == 0 && *rest && !wants_no_command(o)) {
		char *word = *rest++;

		if (strcmp(word, "--") == 0) {
			while (*rest)
				words[o->n_operands++] = *rest++;
		} else if (*word != '-' || !word[1]) {
			words[o->n_operands++] = word;
		} else {
			rc = word[1] == '-' ?
				take_named(o, word + 2, &rest, err) :
				take_letters(o, word, &rest, err);
		}
	}
	if (rc)
		o->n_operands = 0;
	for (unsigned i = 0; i < o->n_operands && rc == 0; i++)
		rc = hide_secrets(o, words[i], err);
	return rc;
}

/* ---- operands ---- */

static int missing_operand(const struct rsh_options *o, const char *operand,
			   struct rsh_error *err)
{
	char guess[RSH_SUGGESTION_BYTES], name[64];

	rsh_words_put(name, sizeof(name), "", operand);
	name[strcspn(name, ".")] = '\0';
	if (o->unnamed && o->n_operands == 1) {
		rsh_command_guess(o->operands[0], guess);
		return rsh_error_set(err, EINVAL, "\"%s\" is not a "
				     "command%s; to mount it, %s is missing",
				     o->operands[0], guess, name);
	}
	return rsh_error_set(err, EINVAL, "%s%s is missing",
			     o->unnamed ? "command or " : "", name);
}

/* Refuses an operand that is no file but "name=value" of an option or of
 * another program's argument, and one that is empty, which is mostly a shell
 * variable that was not set. */
static int check_operand(const struct rsh_options *o, unsigned i,
			 struct rsh_error *err)
{
	const char *operand = o->operands[i];
	const size_t n = strcspn(operand, "=");
	char guess[RSH_SUGGESTION_BYTES];
	struct rsh_option_at at;

	if (!*operand)
		return rsh_error_set(err, EINVAL, "operand %u is empty", i + 1);
	if (!operand[n] || !memchr(operand, '_', n) ||
	    (!rsh_other_word(operand, n) &&
	     !rsh_option_find(o->command, operand, n, &at)) ||
	    access(operand, F_OK) == 0)
		return 0;
	guess_option(o->command, operand, n, NULL, guess);
	return rsh_error_set(err, EINVAL, "operand %s is not a file%s",
			     operand, guess);
}

/* Sets what the operands name. */
static int take_operands(struct rsh_options *o, struct rsh_error *err)
{
	const char *const *names = o->command->operands;
	unsigned i;
	int rc = 0;

	for (i = 0; rc == 0 && i < o->n_operands; i++)
		rc = check_operand(o, i, err);
	if (rc)
		return rc;
	for (i = 0; i < RSH_MAX_OPERANDS && names[i]; i++) {
		if (i >= o->n_operands)
			return names[i][0] == '[' ? 0 :
			       missing_operand(o, names[i], err);
		if (strstr(names[i], "MOUNTPOINT"))
			o->mountpoint = o->operands[i];
		else if (strcmp(names[i], "OUTDIR") == 0)
			o->directory = o->operands[i];
		else if (strstr(names[i], "TABLE"))
			o->vfs.weights.table = o->operands[i];
		else if (strcmp(names[i], "[RANK...]") == 0)
			return rsh_ranks_check(o, i, err);
		else if (!o->vfs.source) {
			/* `doctor` prints all else first. */
			rc = o->command->id != RSH_COMMAND_DOCTOR &&
			     strstr(names[i], "SOURCE") ?
			     rsh_check_source(o, &o->operands[i], err) : 0;
			o->vfs.source = o->operands[i];
		}
		if (rc)
			return rc;
		/* What follows the name of a form depends on it. */
		if (strstr(names[i], "...") || o->command->forms)
			return 0;
	}
	if (o->n_operands > i)
		return rsh_error_set(err, EINVAL, "too many operands: %s",
				     o->operands[i]);
	return 0;
}

/* ---- the command ---- */

/* Moves *at over options and their values that may precede the name of a
 * command or form: those that all commands have, or those of `command`. */
static void skip_options(const struct rsh_command *command, char *const **at)
{
	struct rsh_option_at def;
	char names[NAMES_MAX];

	for (; **at; ++*at) {
		const char *word = **at;
		const bool is_long = word[0] == '-' && word[1] == '-';
		const size_t n = is_long ? strcspn(word + 2, "=") : 0;

		if (is_long ? find_long(command, word + 2, n, &def, names) != 1
			    : word[0] != '-' ||
			      !find_letter(command, word[1], &def))
			return;
		if (!command->forms && rsh_option_commands(&def) != RSH_IN_ALL)
			return;
		if (def.row->arg && !word[2 + n] && (*at)[1])
			++*at;
	}
}

/* Takes the name of a command or, of `command`, of a form out of the words, and
 * sets *word to the one that is in its place. */
static const struct rsh_command *
parse_command(const struct rsh_command *command, char **words,
	      const char **word)
{
	size_t n;
	char *const *at = words;
	const struct rsh_command *found;

	skip_options(command ? command : rsh_command_table(&n), &at);
	*word = *at ? *at : "";
	found = command ? rsh_command_form(command, *word) :
			  rsh_command_find(*word);
	for (char **to = words + (at - words); found && *to; to++)
		*to = to[1];
	return found;
}

int rsh_options_parse(int argc, char **argv, struct rsh_options *o,
		      struct rsh_error *err)
{
	char guess[RSH_SUGGESTION_BYTES];
	char **words = argc > 0 ? argv + 1 : argv;
	const struct rsh_command *form;
	cleanup_free char *why = NULL;
	const char *word, *after;
	size_t n;
	int rc;

	rsh_options_init(o);
	o->command = parse_command(NULL, words, &word);
	o->unnamed = !o->command;
	if (o->unnamed)
		o->command = rsh_command_table(&n);
	form = o->command->forms ? parse_command(o->command, words, &after) : NULL;
	if (form)
		o->command = form;
	rc = parse_words(o, words, err);
	if (rc == 0 && wants_no_command(o))
		return 0;
	rc = rc ?: take_operands(o, err) ?: rsh_rules_check(o, false, err);
	/* Others may take these options without a conversion. */
	if (rc == 0 && !(rsh_command_bits(o->command) & RSH_CONVERSIONS))
		rc = rsh_rules_check(o, true, err);
	if (rc == 0 && o->command->check)
		rc = o->command->check(o, err);
	rsh_options_finish(o);
	if (!o->unnamed || !*word || *word == '-' || strchr(word, '/') ||
	    access(word, F_OK) == 0)
		return rc;
	/* The SOURCE of a mount may be a mistyped command.  For a single
	 * operand the message is already the right one.  Two operands may be a
	 * correct mount of a SOURCE that does not exist. */
	rsh_command_guess(word, guess);
	if (rc == -EINVAL || o->look == -ENOENT ? o->n_operands == 1 :
						  rc || !*guess)
		return rc;
	o->look = 0;
	why = strdup(err->text);
	if (!why)
		return rsh_error_nomem(err);
	return rsh_error_set(err, EINVAL, "\"%s\" is not a command%s, and "
			     "there is no such file to mount%s%s", word, guess,
			     rc == -EINVAL ? "; " : "",
			     rc == -EINVAL ? why : "");
}
