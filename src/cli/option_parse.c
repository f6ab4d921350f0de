/* cli/option_parse.c - from argv to struct rsh_options, by the tables. */
#include "config.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "option_set.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

/* What the Hugging Face tools take. */
#define DEFAULT_PART_BYTES UINT64_C(5000000000)

/* Of the cache, unless a tenth of the memory is less. */
#define MAX_CACHE_BYTES (UINT64_C(1) << 30)
#define DEFAULT_DISK_BYTES (UINT64_C(16) << 30)

#define FIRST_LONG_VALUE 256 /* above all letters */

/* The table as getopt wants it, for one command. */
struct getopt_tables {
	char *letters;
	struct option *longs;
};

static int make_getopt_tables(const struct rsh_command *command,
			      struct getopt_tables *t)
{
	size_t n;
	const struct rsh_option *table = rsh_option_table(&n);
	struct option *one;
	char *letter;

	t->letters = rsh_alloc_array(2 * n + 2, 1);
	t->longs = rsh_alloc_array(n + 1, sizeof(*t->longs));
	if (!t->letters || !t->longs)
		return -ENOMEM;
	letter = t->letters;
	one = t->longs;
	*letter++ = ':'; /* tell what is wrong, print nothing */
	for (size_t i = 0; i < n; i++) {
		const struct rsh_option *def = &table[i];

		if (def->bare || !rsh_option_is_of(def, command))
			continue;
		if (def->letter)
			*letter++ = def->letter;
		if (def->letter && def->arg)
			*letter++ = ':';
		if (def->name)
			*one++ = (struct option){
				.name = def->name,
				.has_arg = def->arg ? required_argument :
						      no_argument,
				.val = FIRST_LONG_VALUE + (int)i,
			};
	}
	*letter = '\0';
	*one = (struct option){ 0 };
	return 0;
}

static const struct rsh_option *find_option(const struct rsh_command *command,
					    int c)
{
	size_t n;
	const struct rsh_option *table = rsh_option_table(&n);

	if (c >= FIRST_LONG_VALUE)
		return &table[c - FIRST_LONG_VALUE];
	for (size_t i = 0; c && i < n; i++)
		if (c == table[i].letter &&
		    rsh_option_is_of(&table[i], command))
			return &table[i];
	return NULL;
}

static int bad_option(int c, char **argv, struct rsh_error *err)
{
	if (c == ':')
		return rsh_error_set(err, EINVAL, "option %s needs a value",
				     argv[optind - 1]);
	/* getopt gives the number of a known option for --name=value that
	 * takes none, and 0 for a name that it does not know. */
	if (optopt >= FIRST_LONG_VALUE)
		return rsh_error_set(err, EINVAL, "option --%s takes no value",
				     find_option(NULL, optopt)->name);
	if (optopt)
		return rsh_error_set(err, EINVAL, "unknown option -%c", optopt);
	return rsh_error_set(err, EINVAL, "unknown option %s",
			     argv[optind - 1]);
}

static bool wants_no_command(const struct rsh_options *o)
{
	return o->help || o->version || o->completion;
}

int rsh_option_take(struct rsh_options *o, const struct rsh_option *def,
		    const char *value, struct rsh_error *err)
{
	/* -o itself is nothing. */
	if (def->name && rsh_grow(&o->given, &o->cap_given, o->n_given + 1,
				  sizeof(*o->given)))
		return rsh_error_nomem(err);
	if (def->name)
		o->given[o->n_given++] = (struct rsh_given){
			def->name, def->arg ? value : NULL,
		};
	return def->set(o, def, value, err);
}

static int parse_options(int argc, char **argv, struct rsh_options *o,
			 struct rsh_error *err)
{
	cleanup_free char *letters = NULL;
	cleanup_free struct option *longs = NULL;
	struct getopt_tables tables = { 0 };
	const struct rsh_option *def;
	int c, rc = make_getopt_tables(o->command, &tables);

	letters = tables.letters;
	longs = tables.longs;
	if (rc)
		return rsh_error_nomem(err);
	opterr = 0;
	optind = 0; /* start anew: tests parse more than once */
	while (rc == 0 && !wants_no_command(o) &&
	       (c = getopt_long(argc, argv, letters, longs, NULL)) != -1) {
		def = c == '?' || c == ':' ? NULL : find_option(o->command, c);
		rc = def ? rsh_option_take(o, def, optarg, err) :
			   bad_option(c, argv, err);
	}
	return rc;
}

/* ---- operands ---- */

static int missing_operand(const struct rsh_options *o, struct rsh_error *err)
{
	const char *name = o->command->operands[o->n_operands];

	if (o->unnamed && o->n_operands == 1)
		return rsh_error_set(err, EINVAL, "\"%s\" is no command, and "
				     "to mount it there is no %s given",
				     o->operands[0], name);
	return rsh_error_set(err, EINVAL, "no %s%s given",
			     o->unnamed ? "command and no " : "", name);
}

static int count_operands(const struct rsh_options *o, struct rsh_error *err)
{
	const char *const *names = o->command->operands;
	unsigned i = 0;

	for (; i < RSH_MAX_OPERANDS && names[i]; i++) {
		if (strstr(names[i], "..."))
			return 0;
		if (i >= o->n_operands)
			return names[i][0] == '[' ? 0 :
						    missing_operand(o, err);
	}
	if (o->n_operands > i)
		return rsh_error_set(err, EINVAL, "too many operands: %s",
				     o->operands[i]);
	return 0;
}

uint64_t rsh_physical_memory(void)
{
	return (uint64_t)sysconf(_SC_PHYS_PAGES) *
	       (uint64_t)sysconf(_SC_PAGESIZE);
}

static void set_defaults(struct rsh_options *o)
{
	*o = (struct rsh_options){
		.subtype = "reshardfs",
		.log_level = RSH_LOG_NOTICE,
		.fallbacks = 5,
		.io.cache = {
			.memory_bytes = rsh_min_u64(MAX_CACHE_BYTES,
						    rsh_physical_memory() / 10),
			.disk_bytes = DEFAULT_DISK_BYTES,
		},
		.rate = 1000000000,
		.jobs = 4,
	};
}

/* As the XDG base directory specification has it, which wants full paths; from
 * malloc, or NULL if there is none. */
static char *default_index_cache(void)
{
	const char *base = getenv("XDG_CACHE_HOME");
	const char *home = getenv("HOME");
	char *path;
	int n = -1;

	if (base && *base == '/')
		n = asprintf(&path, "%s/reshardfs/index", base);
	else if (home && *home == '/')
		n = asprintf(&path, "%s/.cache/reshardfs/index", home);
	return n < 0 ? NULL : path;
}

/* Without memory for its name there is none. */
static void set_index_cache(struct rsh_options *o)
{
	struct rsh_source_options *f = &o->files;
	cleanup_free char *path = NULL;

	f->index_cache_asked = f->index_cache;
	if (f->index_cache) {
		if (strcmp(f->index_cache, "off") == 0)
			f->index_cache = NULL;
		return;
	}
	path = default_index_cache();
	if (!path || rsh_grow(&o->copies, &o->cap_copies, o->n_copies + 1,
			      sizeof(*o->copies)))
		return;
	f->index_cache = o->copies[o->n_copies++] = steal_pointer(&path);
}

/* The defaults of what a check wants to know whether it was given. */
static void set_late_defaults(struct rsh_options *o)
{
	if (!o->prefix)
		o->prefix = "checkpoint_";
	if (!o->part_bytes)
		o->part_bytes = DEFAULT_PART_BYTES;
	if (!o->fsname)
		o->fsname = o->source;
	set_index_cache(o);
	if (!o->has_log_level && o->quiet)
		o->log_level = RSH_LOG_ERROR;
	if (!o->has_log_level && o->debug)
		o->log_level = RSH_LOG_DEBUG;
}

/* Takes the command's name out of argv: to getopt it is the program's. */
static void take_command(int *argc, char ***argv, struct rsh_options *o)
{
	size_t n;

	o->command = *argc > 1 ? rsh_command_find((*argv)[1]) : NULL;
	o->unnamed = !o->command;
	if (o->unnamed) {
		o->command = rsh_command_table(&n);
	} else {
		(*argc)--;
		(*argv)++;
	}
}

int rsh_options_parse(int argc, char **argv, struct rsh_options *o,
		      struct rsh_error *err)
{
	int rc;

	set_defaults(o);
	take_command(&argc, &argv, o);
	rc = parse_options(argc, argv, o, err);
	if (rc || wants_no_command(o))
		return rc;
	o->operands = argv + optind;
	o->n_operands = (unsigned)(argc - optind);
	rc = count_operands(o, err);
	if (rc == 0)
		rc = o->command->check(o, err);
	set_late_defaults(o);
	return rc;
}

void rsh_options_clear(struct rsh_options *o)
{
	for (size_t i = 0; i < o->n_copies; i++)
		free(o->copies[i]);
	free(o->copies);
	free(o->given);
	free(o->mount_opts);
	rsh_derive_options_free(o->derive);
}
