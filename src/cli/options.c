/* cli/options.c - one table of all options feeds the parser, -o, and --help.
 *
 * An option of the table is --name, -letter if it has one, and -o name with
 * '_' for '-'; those marked `mount_only` are -o options alone, as mount(8)
 * users know them. */
#include "config.h"

#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"

struct option_def;
typedef int setter_fn(struct rsh_options *o, const struct option_def *def,
		      const char *value, struct rsh_error *err);

struct option_def {
	const char *name;
	char letter;      /* 0: none */
	const char *arg;  /* what --help calls its value; NULL: it has none */
	const char *help;
	setter_fn *set;
	bool mount_only;
	/* For the setters of one member: which, and a number's range. */
	size_t at;
	unsigned min, max;
};

/* ---- setters ---- */

static void *member(struct rsh_options *o, const struct option_def *def)
{
	return (char *)o + def->at;
}

/* The setters of one member: a flag, any text, text with something in it, a
 * path, a number. */

static int set_flag(struct rsh_options *o, const struct option_def *def,
		    const char *value, struct rsh_error *err)
{
	(void)value, (void)err;
	*(bool *)member(o, def) = true;
	return 0;
}

static int set_text(struct rsh_options *o, const struct option_def *def,
		    const char *value, struct rsh_error *err)
{
	(void)err;
	*(const char **)member(o, def) = value;
	return 0;
}

static int set_string(struct rsh_options *o, const struct option_def *def,
		      const char *value, struct rsh_error *err)
{
	if (!*value)
		return rsh_error_set(err, EINVAL, "%s: nothing in it",
				     def->name);
	return set_text(o, def, value, err);
}

static int set_path(struct rsh_options *o, const struct option_def *def,
		    const char *value, struct rsh_error *err)
{
	if (!*value)
		return rsh_error_set(err, EINVAL, "%s: empty path", def->name);
	return set_text(o, def, value, err);
}

static int set_number(struct rsh_options *o, const struct option_def *def,
		      const char *value, struct rsh_error *err)
{
	unsigned long n;
	char *end;

	errno = 0;
	n = strtoul(value, &end, 10);
	if (errno || *end || value[0] < '0' || value[0] > '9' ||
	    n < def->min || n > def->max)
		return rsh_error_set(err, EINVAL, "%s: \"%s\" is not a number "
				     "from %u to %u", def->name, value,
				     def->min, def->max);
	*(unsigned *)member(o, def) = (unsigned)n;
	return 0;
}

/* The converter refuses more (it joins the prefix to a path); what is left
 * here are the prefixes that would not make the plain name of a file. */
static int set_prefix(struct rsh_options *o, const struct option_def *def,
		      const char *value, struct rsh_error *err)
{
	if (strchr(value, '/') || value[0] == '.' || strstr(value, ".."))
		return rsh_error_set(err, EINVAL, "%s: \"%s\": no '/', no "
				     "leading '.' and no \"..\" can be in it",
				     def->name, value);
	for (const char *c = value; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			return rsh_error_set(err, EINVAL, "%s: control "
					     "character in it", def->name);
	o->prefix = value;
	return 0;
}

static int set_compat(struct rsh_options *o, const struct option_def *def,
		      const char *value, struct rsh_error *err)
{
	if (strcmp(value, "mindspore") != 0)
		return rsh_error_set(err, EINVAL, "%s: \"%s\" is not known, "
				     "only \"mindspore\" is", def->name, value);
	o->compat = true;
	return 0;
}

static int set_replicas(struct rsh_options *o, const struct option_def *def,
			const char *value, struct rsh_error *err)
{
	o->no_replicas = strcmp(value, "off") == 0;
	if (!o->no_replicas && strcmp(value, "auto") != 0)
		return rsh_error_set(err, EINVAL, "%s: \"%s\" is neither "
				     "\"auto\" nor \"off\"", def->name, value);
	return 0;
}

/* "<epoch>_<step>" */
static bool parse_step(const char *value, uint64_t *epoch, uint64_t *step)
{
	char *end;

	if (*value < '0' || *value > '9')
		return false;
	errno = 0;
	*epoch = strtoull(value, &end, 10);
	if (errno || *end != '_' || end[1] < '0' || end[1] > '9')
		return false;
	*step = strtoull(end + 1, &end, 10);
	return !errno && !*end;
}

static int set_select(struct rsh_options *o, const struct option_def *def,
		      const char *value, struct rsh_error *err)
{
	const char name[] = "name=";
	struct rsh_source_options *f = &o->files;

	o->has_select = true;
	if (strcmp(value, "newest") == 0)
		f->select = RSH_SELECT_NEWEST;
	else if (strcmp(value, "mtime") == 0)
		f->select = RSH_SELECT_MTIME;
	else if (strcmp(value, "mindspore") == 0)
		f->select = RSH_SELECT_MINDSPORE;
	else if (parse_step(value, &f->epoch, &f->step))
		f->select = RSH_SELECT_STEP;
	else if (strncmp(value, name, strlen(name)) == 0 &&
		 value[strlen(name)])
		f->select = RSH_SELECT_NAME;
	else
		return rsh_error_set(err, EINVAL, "%s: \"%s\" is not newest, "
				     "mtime, mindspore, name=GLOB or a step "
				     "as EPOCH_STEP", def->name, value);
	f->glob = f->select == RSH_SELECT_NAME ? value + strlen(name) : NULL;
	return 0;
}

static int set_breakpoint(struct rsh_options *o, const struct option_def *def,
			  const char *value, struct rsh_error *err)
{
	if (strcmp(value, "include") == 0)
		o->files.breakpoints = RSH_BREAKPOINTS_INCLUDE;
	else if (strcmp(value, "only") == 0)
		o->files.breakpoints = RSH_BREAKPOINTS_ONLY;
	else
		return rsh_error_set(err, EINVAL, "%s: \"%s\" is neither "
				     "\"include\" nor \"only\"", def->name,
				     value);
	return 0;
}

static int set_check(struct rsh_options *o, const struct option_def *def,
		     const char *value, struct rsh_error *err)
{
	o->files.check_crc = strcmp(value, "full") == 0;
	if (!o->files.check_crc && strcmp(value, "structure") != 0)
		return rsh_error_set(err, EINVAL, "%s: \"%s\" is neither "
				     "\"structure\" nor \"full\"", def->name,
				     value);
	return 0;
}

static int set_file(struct rsh_options *o, const struct option_def *def,
		    const char *value, struct rsh_error *err)
{
	if (*value && value[strlen(value) - 1] == '/')
		return rsh_error_set(err, EINVAL, "%s: \"%s\" is the name of a "
				     "directory", def->name, value);
	return set_string(o, def, value, err);
}

static int set_unlisted(struct rsh_options *o, const struct option_def *def,
			const char *value, struct rsh_error *err)
{
	static const char *const words[] = {
		[RSH_UNLISTED_COPY] = "copy",
		[RSH_UNLISTED_DROP] = "drop",
		[RSH_UNLISTED_ERROR] = "error",
	};

	for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strcmp(value, words[i]) == 0) {
			o->unlisted = (enum rsh_unlisted)i;
			return 0;
		}
	return rsh_error_set(err, EINVAL, "%s: \"%s\" is not copy, drop or "
			     "error", def->name, value);
}

static int set_cast(struct rsh_options *o, const struct option_def *def,
		    const char *value, struct rsh_error *err)
{
	if (strcmp(value, "bfloat16") == 0)
		o->cast = RSH_DTYPE_BFLOAT16;
	else if (strcmp(value, "float16") == 0)
		o->cast = RSH_DTYPE_FLOAT16;
	else if (strcmp(value, "float32") == 0)
		o->cast = RSH_DTYPE_FLOAT32;
	else
		return rsh_error_set(err, EINVAL, "%s: \"%s\" is not bfloat16, "
				     "float16 or float32", def->name, value);
	return 0;
}

/* What the Hugging Face tools take. */
#define DEFAULT_PART_BYTES UINT64_C(5000000000)

static int set_format(struct rsh_options *o, const struct option_def *def,
		      const char *value, struct rsh_error *err)
{
	if (strcmp(value, "ckpt") == 0)
		o->format = RSH_FORMAT_CKPT;
	else if (strcmp(value, "safetensors") == 0)
		o->format = RSH_FORMAT_SAFETENSORS;
	else if (strcmp(value, "hf") == 0)
		o->format = RSH_FORMAT_SAFETENSORS;
	else
		return rsh_error_set(err, EINVAL, "%s: \"%s\" is not ckpt, "
				     "safetensors or hf", def->name, value);
	o->has_format = true;
	o->in_parts = strcmp(value, "hf") == 0;
	return 0;
}

/* As the Hugging Face tools write sizes: 5GB are 5 * 1000^3 bytes. */
static int set_part_size(struct rsh_options *o, const struct option_def *def,
			 const char *value, struct rsh_error *err)
{
	static const struct {
		const char *unit;
		uint64_t bytes;
	} units[] = {
		{ "", 1 },
		{ "KB", 1000 },
		{ "MB", 1000000 },
		{ "GB", 1000000000 },
		{ "TB", 1000000000000 },
		{ "KiB", UINT64_C(1) << 10 },
		{ "MiB", UINT64_C(1) << 20 },
		{ "GiB", UINT64_C(1) << 30 },
		{ "TiB", UINT64_C(1) << 40 },
	};
	unsigned long long n;
	char *end;

	errno = 0;
	n = strtoull(value, &end, 10);
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (strcmp(end, units[i].unit) == 0 &&
		    *value >= '0' && *value <= '9' && errno == 0 && n > 0 &&
		    !__builtin_mul_overflow(n, units[i].bytes, &o->part_bytes))
			return 0;
	return rsh_error_set(err, EINVAL, "%s: \"%s\" is no size such as 5GB "
			     "or 500MiB", def->name, value);
}

static int set_debug(struct rsh_options *o, const struct option_def *def,
		     const char *value, struct rsh_error *err)
{
	(void)def, (void)value, (void)err;
	o->debug = true;
	o->foreground = true;
	return 0;
}

static int set_log_level(struct rsh_options *o, const struct option_def *def,
			 const char *value, struct rsh_error *err)
{
	if (rsh_log_parse_level(value, &o->log_level))
		return rsh_error_set(err, EINVAL, "%s: \"%s\" is not error, "
				     "warning, notice, info or debug",
				     def->name, value);
	o->has_log_level = true;
	return 0;
}

static int set_version(struct rsh_options *o, const struct option_def *def,
		       const char *value, struct rsh_error *err)
{
	(void)def, (void)value, (void)err;
	o->command = RSH_COMMAND_VERSION;
	return 0;
}

static int set_help(struct rsh_options *o, const struct option_def *def,
		    const char *value, struct rsh_error *err)
{
	(void)def, (void)value, (void)err;
	o->command = RSH_COMMAND_HELP;
	return 0;
}

/* For options that libfuse or the kernel understands. */
static int pass_on(struct rsh_options *o, const struct option_def *def,
		   const char *value, struct rsh_error *err)
{
	const char *have = o->mount_opts ? o->mount_opts : "";
	/* Every character of the value may need a backslash. */
	char *all = malloc(strlen(have) + strlen(def->name) +
			   2 * strlen(value ? value : "") + 3);
	char *p = all;

	if (!all)
		return rsh_error_nomem(err);
	p = stpcpy(p, have);
	if (*have)
		*p++ = ',';
	p = stpcpy(p, def->name);
	if (value)
		*p++ = '=';
	for (; value && *value; value++) {
		if (*value == ',' || *value == '\\')
			*p++ = '\\';
		*p++ = *value;
	}
	*p = '\0';
	free(o->mount_opts);
	o->mount_opts = all;
	return 0;
}

/* Always so. */
static int ignore(struct rsh_options *o, const struct option_def *def,
		  const char *value, struct rsh_error *err)
{
	(void)o, (void)def, (void)value, (void)err;
	return 0;
}

static int refuse_rw(struct rsh_options *o, const struct option_def *def,
		     const char *value, struct rsh_error *err)
{
	(void)o, (void)value;
	return rsh_error_set(err, EINVAL, "-o %s: the file system is "
			     "read-only", def->name);
}

/* ---- the table ---- */

#define AT(member) offsetof(struct rsh_options, member)

static const struct option_def table[] = {
	{ "src-strategy", 0, "PATH|none",
	  "the strategy SOURCE was trained under", set_path,
	  .at = AT(src_strategy) },
	{ "dst-strategy", 0, "PATH|none", "the strategy it is wanted in",
	  set_path, .at = AT(dst_strategy) },
	{ "prefix", 0, "STR",
	  "virtual files are rank_N/STRN.ckpt (checkpoint_)", set_prefix },
	{ "compat", 0, "mindspore",
	  "the converter's bytes, also where they are wrong", set_compat },
	{ "select", 0, "WHICH",
	  "of several checkpoints: newest (default), a step E_S, mtime, "
	  "name=GLOB, mindspore", set_select },
	{ "breakpoint", 0, "include|only",
	  "*_breakpoint.ckpt count (where there is nothing else)",
	  set_breakpoint },
	{ "check", 0, "structure|full",
	  "what makes a file valid; full: its CRC as well (structure)",
	  set_check },
	{ "fallbacks", 0, "N", "older steps to try if one is not whole (5)",
	  set_number, .at = AT(fallbacks), .min = 0, .max = 1000000 },
	{ "rank-dir", 0, "TEMPLATE",
	  "where a rank's files lie below SOURCE; {rank} is its number",
	  set_string, .at = AT(files.rank_dir) },
	{ "file", 0, "TEMPLATE", "what their names are (*.ckpt)", set_file,
	  .at = AT(files.file) },
	{ "source-map", 0, "FILE.json",
	  "the file of each rank: {\"0\": \"path\", ...}", set_string,
	  .at = AT(files.source_map) },
	{ "group-info", 0, "PATH", "group_info.pb to hold against the strategy",
	  set_string, .at = AT(group_info) },
	{ "replicas", 0, "auto|off",
	  "make up for lost files from ranks that hold the same (auto)",
	  set_replicas },
	{ "allow-missing", 0, NULL,
	  "mount what can be had; files that need more give EIO", set_flag,
	  .at = AT(allow_missing) },
	{ "dst-ranks", 0, "N", "ranks shown of a job without any strategy (1)",
	  set_number, .at = AT(dst_ranks), .min = 1, .max = 1000000 },
	{ "unlisted", 0, "copy|drop|error",
	  "records that the destination does not list (copy)", set_unlisted },
	{ "only", 0, "REGEX", "just parameters with such names", set_text,
	  .at = AT(only) },
	{ "drop", 0, "REGEX", "no parameters with such names", set_text,
	  .at = AT(drop) },
	{ "rename", 0, "FILE", "JSON of old and new parameter names", set_text,
	  .at = AT(rename) },
	{ "cast", 0, "TYPE", "weights as bfloat16, float16 or float32",
	  set_cast },
	{ "format", 0, "ckpt|safetensors|hf", "form of what is shown (ckpt)",
	  set_format },
	{ "part-size", 0, "SIZE", "with hf: bytes of a part at most (5GB)",
	  set_part_size },
	{ "remove-redundancy", 0, NULL,
	  "each parameter with one rank of those that hold the same", set_flag,
	  .at = AT(remove_redundancy) },
	{ "resume", 0, NULL,
	  "convert nothing, show each rank's newest whole checkpoint", set_flag,
	  .at = AT(resume) },
	{ "foreground", 'f', NULL, "stay in the foreground", set_flag,
	  .at = AT(foreground) },
	{ "debug", 'd', NULL, "log every request; implies -f", set_debug },
	{ "log-file", 0, "PATH", "append the log to PATH", set_path,
	  .at = AT(log_file) },
	{ "log-level", 0, "L",
	  "error, warning, notice (default), info or debug", set_log_level },
	{ "version", 'V', NULL, "print the version", set_version },
	{ "help", 'h', NULL, "print this", set_help },

	{ "allow_other", 0, NULL, "other users may look in", pass_on, true },
	{ "allow_root", 0, NULL, "root may look in", pass_on, true },
	{ "auto_unmount", 0, NULL, "unmount when the daemon dies", pass_on,
	  true },
	{ "default_permissions", 0, NULL, "always so", ignore, true },
	{ "ro", 0, NULL, "always so", ignore, true },
	{ "rw", 0, NULL, "refused", refuse_rw, true },
	{ "fsname", 0, "NAME", "device shown by df (SOURCE)", set_text, true,
	  AT(fsname) },
	{ "subtype", 0, "NAME", "type shown is fuse.NAME (reshardfs)", set_text,
	  true, AT(subtype) },
	{ "max_read", 0, "BYTES", "longest read request", set_number, true,
	  AT(max_read), 4096, UINT_MAX },
	{ "max_threads", 0, "N", "most threads that serve requests", set_number,
	  true, AT(max_threads), 1, 100000 },
	{ "max_idle_threads", 0, "N", "idle ones that are kept", set_number,
	  true, AT(max_idle_threads), 1, 100000 },
	{ "clone_fd", 0, NULL, "a /dev/fuse descriptor for each thread",
	  set_flag, true, AT(clone_fd) },
	{ "suid", 0, NULL, "see mount(8), here and below", pass_on, true },
	{ "nosuid", 0, NULL, "", pass_on, true },
	{ "dev", 0, NULL, "", pass_on, true },
	{ "nodev", 0, NULL, "", pass_on, true },
	{ "exec", 0, NULL, "", pass_on, true },
	{ "noexec", 0, NULL, "", pass_on, true },
	{ "atime", 0, NULL, "", pass_on, true },
	{ "noatime", 0, NULL, "", pass_on, true },
	{ "sync", 0, NULL, "", pass_on, true },
	{ "async", 0, NULL, "", pass_on, true },
	{ "dirsync", 0, NULL, "", pass_on, true },
	{ "context", 0, "CONTEXT", "", pass_on, true },
	{ "fscontext", 0, "CONTEXT", "", pass_on, true },
	{ "defcontext", 0, "CONTEXT", "", pass_on, true },
	{ "rootcontext", 0, "CONTEXT", "", pass_on, true },
};
#define N_OPTIONS (sizeof(table) / sizeof(table[0]))

/* ---- -o ---- */

/* Compares a table name with an -o name of n characters. */
static bool is_mount_name(const char *name, const char *given, size_t n)
{
	if (strlen(name) != n)
		return false;
	for (size_t i = 0; i < n; i++)
		if (given[i] != (name[i] == '-' ? '_' : name[i]))
			return false;
	return true;
}

static int apply_mount_option(struct rsh_options *o, char *given,
			      struct rsh_error *err)
{
	char *value = strchr(given, '=');
	size_t n = value ? (size_t)(value - given) : strlen(given);

	if (value)
		value++;
	for (size_t i = 0; i < N_OPTIONS; i++) {
		const struct option_def *def = &table[i];

		if (!is_mount_name(def->name, given, n))
			continue;
		if (def->arg && !value)
			return rsh_error_set(err, EINVAL,
					     "-o %s needs a value", given);
		if (!def->arg && value)
			return rsh_error_set(err, EINVAL,
					     "-o %.*s takes no value", (int)n,
					     given);
		return def->set(o, def, value, err);
	}
	return rsh_error_set(err, EINVAL, "unknown option -o %s", given);
}

/* Cuts the next option off a comma list in place, removing backslashes. */
static char *next_mount_option(char **list)
{
	char *start = *list, *to = start, *s = start;

	if (!s)
		return NULL;
	for (; *s && *s != ','; s++) {
		if (s[0] == '\\' && s[1])
			s++;
		*to++ = *s;
	}
	*list = *s ? s + 1 : NULL;
	*to = '\0';
	return start;
}

static int apply_mount_options(struct rsh_options *o, const char *arg,
			       struct rsh_error *err)
{
	char *list = strdup(arg), *one;
	int rc = 0;

	if (!list || rsh_grow(&o->copies, &o->cap_copies, o->n_copies + 1,
			      sizeof(*o->copies))) {
		free(list);
		return rsh_error_nomem(err);
	}
	o->copies[o->n_copies++] = list;
	while (rc == 0 && (one = next_mount_option(&list)))
		if (*one)
			rc = apply_mount_option(o, one, err);
	return rc;
}

/* ---- the command line ---- */

#define FIRST_LONG_VALUE 256 /* above all letters */

static void make_getopt_tables(char *letters, struct option *longs)
{
	*letters++ = ':';
	*letters++ = 'o';
	*letters++ = ':';
	for (size_t i = 0; i < N_OPTIONS; i++) {
		if (table[i].mount_only)
			continue;
		*longs++ = (struct option){
			.name = table[i].name,
			.has_arg = table[i].arg ? required_argument :
						  no_argument,
			.val = FIRST_LONG_VALUE + (int)i,
		};
		if (table[i].letter)
			*letters++ = table[i].letter;
	}
	*letters = '\0';
	*longs = (struct option){ 0 };
}

static const struct option_def *find_option(int c)
{
	for (size_t i = 0; i < N_OPTIONS; i++)
		if (c == FIRST_LONG_VALUE + (int)i ||
		    (table[i].letter && c == table[i].letter))
			return &table[i];
	return NULL;
}

static int bad_option(int c, char **argv, struct rsh_error *err)
{
	const struct option_def *def = find_option(optopt);

	if (c == ':')
		return rsh_error_set(err, EINVAL, "option %s needs a value",
				     argv[optind - 1]);
	/* getopt gives the number of a known option for --name=value that
	 * takes none, and 0 for a name that it does not know. */
	if (def && optopt >= FIRST_LONG_VALUE)
		return rsh_error_set(err, EINVAL, "option --%s takes no value",
				     def->name);
	if (optopt)
		return rsh_error_set(err, EINVAL, "unknown option -%c", optopt);
	return rsh_error_set(err, EINVAL, "unknown option %s",
			     argv[optind - 1]);
}

static int parse_options(int argc, char **argv, struct rsh_options *o,
			 struct rsh_error *err)
{
	char letters[N_OPTIONS + 4];
	struct option longs[N_OPTIONS + 1];
	const struct option_def *def;
	int c, rc = 0;

	make_getopt_tables(letters, longs);
	opterr = 0;
	optind = 0; /* start anew: tests parse more than once */
	while (rc == 0 &&
	       (c = getopt_long(argc, argv, letters, longs, NULL)) != -1) {
		def = find_option(c);
		if (c == 'o')
			rc = apply_mount_options(o, optarg, err);
		else if (def)
			rc = def->set(o, def, optarg, err);
		else
			rc = bad_option(c, argv, err);
	}
	return rc;
}

static int check_conversion(const struct rsh_options *o, struct rsh_error *err)
{
	if (!o->src_strategy)
		return rsh_error_set(err, EINVAL, "--src-strategy is missing "
				     "(\"none\" if SOURCE is not sharded)");
	if (!o->dst_strategy)
		return rsh_error_set(err, EINVAL, "--dst-strategy is missing "
				     "(\"none\" for whole tensors)");
	if (o->remove_redundancy && strcmp(o->dst_strategy, "none") == 0)
		return rsh_error_set(err, EINVAL, "--remove-redundancy needs a "
				     "--dst-strategy: without one there are no "
				     "ranks that hold the same");
	if (o->files.source_map && (o->files.rank_dir || o->files.file))
		return rsh_error_set(err, EINVAL, "--source-map names every "
				     "file: --rank-dir and --file do not go "
				     "with it");
	if (o->compat && (o->remove_redundancy || o->cast || o->rename ||
			  o->only || o->drop ||
			  o->unlisted != RSH_UNLISTED_COPY))
		return rsh_error_set(err, EINVAL, "--compat=mindspore is for "
				     "the converter's own bytes: it goes with "
				     "none of --unlisted, --only, --drop, "
				     "--rename, --cast and --remove-redundancy");
	if (o->in_parts && (strcmp(o->dst_strategy, "none") != 0 ||
			    o->dst_ranks || o->compat))
		return rsh_error_set(err, EINVAL, "--format hf is one whole "
				     "model: it needs --dst-strategy none and "
				     "goes with neither --dst-ranks nor "
				     "--compat");
	if (o->part_bytes && !o->in_parts)
		return rsh_error_set(err, EINVAL, "--part-size is for --format "
				     "hf");
	if (o->dst_ranks && (strcmp(o->src_strategy, "none") != 0 ||
			     strcmp(o->dst_strategy, "none") != 0))
		return rsh_error_set(err, EINVAL, "--dst-ranks is for jobs "
				     "without strategies (both \"none\"); a "
				     "strategy says how many ranks there are");
	return 0;
}

/* The options of a conversion say nothing where there is none. */
static int check_resume(const struct rsh_options *o, struct rsh_error *err)
{
	const char *given = o->src_strategy ? "src-strategy" :
			    o->dst_strategy ? "dst-strategy" :
			    o->prefix ? "prefix" :
			    o->compat ? "compat" :
			    o->no_replicas ? "replicas" :
			    o->allow_missing ? "allow-missing" :
			    o->dst_ranks ? "dst-ranks" :
			    o->unlisted != RSH_UNLISTED_COPY ? "unlisted" :
			    o->only ? "only" :
			    o->drop ? "drop" :
			    o->rename ? "rename" :
			    o->cast ? "cast" :
			    o->remove_redundancy ? "remove-redundancy" :
			    o->files.rank_dir ? "rank-dir" :
			    o->files.file ? "file" :
			    o->files.source_map ? "source-map" :
			    o->group_info ? "group-info" :
			    o->has_format ? "format" :
			    o->part_bytes ? "part-size" : NULL;

	if (!given && o->files.select == RSH_SELECT_MINDSPORE)
		given = "select mindspore";
	return given ? rsh_error_set(err, EINVAL, "--%s does not go with "
				     "--resume, which converts nothing",
				     given) : 0;
}

static int take_operands(int argc, char **argv, struct rsh_options *o,
			 struct rsh_error *err)
{
	if (argc - optind < 1)
		return rsh_error_set(err, EINVAL, "no SOURCE given");
	if (argc - optind < 2)
		return rsh_error_set(err, EINVAL, "no MOUNTPOINT given");
	if (argc - optind > 2)
		return rsh_error_set(err, EINVAL, "too many operands: %s",
				     argv[optind + 2]);
	o->source = argv[optind];
	o->mountpoint = argv[optind + 1];
	return o->resume ? check_resume(o, err) : check_conversion(o, err);
}

int rsh_options_parse(int argc, char **argv, struct rsh_options *o,
		      struct rsh_error *err)
{
	int rc;

	*o = (struct rsh_options){
		.subtype = "reshardfs",
		.log_level = RSH_LOG_NOTICE,
		.fallbacks = 5,
	};
	/* The command's name is the program name to getopt. */
	if (argc > 1 && strcmp(argv[1], "mount") == 0) {
		argc--;
		argv++;
	}
	rc = parse_options(argc, argv, o, err);
	if (rc == 0 && o->command == RSH_COMMAND_MOUNT)
		rc = take_operands(argc, argv, o, err);
	if (!o->prefix)
		o->prefix = "checkpoint_";
	if (!o->fsname)
		o->fsname = o->source;
	if (!o->part_bytes)
		o->part_bytes = DEFAULT_PART_BYTES;
	if (o->debug && !o->has_log_level)
		o->log_level = RSH_LOG_DEBUG;
	return rc;
}

void rsh_options_clear(struct rsh_options *o)
{
	for (size_t i = 0; i < o->n_copies; i++)
		free(o->copies[i]);
	free(o->copies);
	free(o->mount_opts);
}

/* ---- help ---- */

static void help_line(FILE *f, const struct option_def *def)
{
	char left[64];

	if (def->mount_only)
		snprintf(left, sizeof(left), "-o %s%s%s", def->name,
			 def->arg ? "=" : "", def->arg ? def->arg : "");
	else
		snprintf(left, sizeof(left), "%c%c%s--%s%s%s",
			 def->letter ? '-' : ' ',
			 def->letter ? def->letter : ' ',
			 def->letter ? ", " : "  ", def->name,
			 def->arg ? " " : "", def->arg ? def->arg : "");
	fprintf(f, "  %-30s%s%s\n", left, *def->help ? " " : "", def->help);
}

void rsh_options_help(FILE *f)
{
	fputs("usage: reshardfs mount [options] SOURCE MOUNTPOINT\n"
	      "       reshardfs mount --resume [options] SOURCE MOUNTPOINT\n"
	      "       reshardfs [options] SOURCE MOUNTPOINT\n"
	      "\n"
	      "Shows a MindSpore checkpoint tree (SOURCE/rank_N/*.ckpt or "
	      "*.safetensors) as\nit would be under another sharding "
	      "strategy; or, of MindSpore, PyTorch, TensorFlow\nand "
	      "Megatron-LM jobs, the newest checkpoint that is whole on all "
	      "ranks.\n\n", f);
	for (size_t i = 0; i < N_OPTIONS; i++)
		if (!table[i].mount_only)
			help_line(f, &table[i]);
	fputs("\nEach of these is also an -o option, with '_' for '-'.  "
	      "Options of mounts:\n", f);
	for (size_t i = 0; i < N_OPTIONS; i++)
		if (table[i].mount_only)
			help_line(f, &table[i]);
}
