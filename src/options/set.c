/* SPDX-License-Identifier: Apache-2.0 */
/* options/set.c holds the setter of every option: it checks the value and
 * puts it into struct rsh_options. */
#include "config.h"

#include "set_i.h"

#include <errno.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

static void *member(struct rsh_options *o, const struct rsh_option *def)
{
	return (char *)o + def->at;
}

/* The setters of one member: a flag, any text, text with something in it, a
 * path, a regular expression, faults, a number. */

int rsh_set_flag(struct rsh_options *o, const struct rsh_option *def,
		 const char *value, struct rsh_error *err)
{
	(void)value, (void)err;
	*(bool *)member(o, def) = true;
	return 0;
}

int rsh_set_text(struct rsh_options *o, const struct rsh_option *def,
		 const char *value, struct rsh_error *err)
{
	(void)err;
	*(const char **)member(o, def) = value;
	return 0;
}

int rsh_set_string(struct rsh_options *o, const struct rsh_option *def,
		   const char *value, struct rsh_error *err)
{
	if (!*value)
		return rsh_error_set(err, EINVAL, "%s: nothing in it",
				     def->name);
	return rsh_set_text(o, def, value, err);
}

int rsh_set_path(struct rsh_options *o, const struct rsh_option *def,
		 const char *value, struct rsh_error *err)
{
	if (!*value)
		return rsh_error_set(err, EINVAL, "%s: empty path", def->name);
	return rsh_set_text(o, def, value, err);
}

int rsh_set_regex(struct rsh_options *o, const struct rsh_option *def,
		  const char *value, struct rsh_error *err)
{
	regex_t re;
	int rc = regcomp(&re, value, REG_EXTENDED | REG_NOSUB);
	char why[256];

	if (rc) {
		regerror(rc, &re, why, sizeof(why));
		return rsh_error_set(err, EINVAL, "%s: \"%s\": %s", def->name,
				     value, why);
	}
	regfree(&re);
	return rsh_set_text(o, def, value, err);
}

int rsh_set_faults(struct rsh_options *o, const struct rsh_option *def,
		   const char *value, struct rsh_error *err)
{
	int rc = rsh_faults_check(value, err);

	return rc ? rc : rsh_set_string(o, def, value, err);
}

int rsh_set_number(struct rsh_options *o, const struct rsh_option *def,
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
int rsh_set_prefix(struct rsh_options *o, const struct rsh_option *def,
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

int rsh_set_compat(struct rsh_options *o, const struct rsh_option *def,
		   const char *value, struct rsh_error *err)
{
	if (strcmp(value, "mindspore") != 0)
		return rsh_error_set(err, EINVAL, "%s: \"%s\" is not known, "
				     "only \"mindspore\" is", def->name, value);
	o->compat = true;
	return 0;
}

int rsh_set_replicas(struct rsh_options *o, const struct rsh_option *def,
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

int rsh_set_select(struct rsh_options *o, const struct rsh_option *def,
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

int rsh_set_breakpoint(struct rsh_options *o, const struct rsh_option *def,
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

int rsh_set_check(struct rsh_options *o, const struct rsh_option *def,
		  const char *value, struct rsh_error *err)
{
	if (strcmp(value, "sample") == 0)
		o->files.check = RSH_CHECK_SAMPLE;
	else if (strcmp(value, "structure") == 0)
		o->files.check = RSH_CHECK_STRUCTURE;
	else if (strcmp(value, "full") == 0)
		o->files.check = RSH_CHECK_FULL;
	else
		return rsh_error_set(err, EINVAL, "%s: \"%s\" is none of "
				     "\"sample\", \"structure\" and \"full\"",
				     def->name, value);
	return 0;
}

int rsh_set_file(struct rsh_options *o, const struct rsh_option *def,
		 const char *value, struct rsh_error *err)
{
	if (*value && value[strlen(value) - 1] == '/')
		return rsh_error_set(err, EINVAL, "%s: \"%s\" is the name of a "
				     "directory", def->name, value);
	return rsh_set_string(o, def, value, err);
}

int rsh_set_unlisted(struct rsh_options *o, const struct rsh_option *def,
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

int rsh_set_cast(struct rsh_options *o, const struct rsh_option *def,
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

int rsh_set_format(struct rsh_options *o, const struct rsh_option *def,
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

/* 5GB are 5 * 1000^3 bytes, as the Hugging Face tools write sizes; 5G and 5GiB
 * are 5 * 1024^3. */
static bool parse_size(const char *value, uint64_t *bytes)
{
	static const char prefixes[] = "KMGT";
	unsigned long long n;
	uint64_t unit = 1;
	const char *prefix;
	char *end;

	if (*value < '0' || *value > '9')
		return false;
	errno = 0;
	n = strtoull(value, &end, 10);
	prefix = *end ? strchr(prefixes, *end) : NULL;
	if (prefix) {
		bool decimal = strcmp(end + 1, "B") == 0;

		if (end[1] && !decimal && strcmp(end + 1, "iB") != 0)
			return false;
		for (const char *p = prefixes; p <= prefix; p++)
			unit *= decimal ? 1000 : 1024;
	} else if (*end) {
		return false;
	}
	return !errno && !__builtin_mul_overflow(n, unit, bytes);
}

int rsh_set_size(struct rsh_options *o, const struct rsh_option *def,
		 const char *value, struct rsh_error *err)
{
	uint64_t *bytes = member(o, def);

	if (parse_size(value, bytes) && *bytes >= def->min)
		return 0;
	return rsh_error_set(err, EINVAL, "%s: \"%s\" is no size such as 5GB "
			     "or 500MiB", def->name, value);
}

int rsh_set_memory(struct rsh_options *o, const struct rsh_option *def,
		   const char *value, struct rsh_error *err)
{
	unsigned long percent;
	char *end;

	errno = 0;
	percent = strtoul(value, &end, 10);
	if (errno || *value < '0' || *value > '9' || strcmp(end, "%") != 0)
		return rsh_set_size(o, def, value, err);
	if (percent > 100)
		return rsh_error_set(err, EINVAL, "%s: \"%s\" is more than "
				     "there is", def->name, value);
	*(uint64_t *)member(o, def) = rsh_physical_memory() / 100 * percent;
	return 0;
}

int rsh_set_keep_free(struct rsh_options *o, const struct rsh_option *def,
		      const char *value, struct rsh_error *err)
{
	o->has_keep_free = true;
	return rsh_set_memory(o, def, value, err);
}

/* Returns the number of a word among n, or -1 if it is none of them. */
static int word_number(const char *value, const char *const *words, int n)
{
	for (int i = 0; i < n; i++)
		if (strcmp(value, words[i]) == 0)
			return i;
	return -1;
}

int rsh_set_cache(struct rsh_options *o, const struct rsh_option *def,
		  const char *value, struct rsh_error *err)
{
	static const char *const words[] = {
		[RSH_CACHING_AUTO] = "auto",
		[RSH_CACHING_ON] = "on",
		[RSH_CACHING_OFF] = "off",
	};
	int i = word_number(value, words, 3);

	if (i < 0)
		return rsh_error_set(err, EINVAL, "%s: \"%s\" is not auto, on "
				     "or off", def->name, value);
	o->io.caching = (enum rsh_caching)i;
	return 0;
}

int rsh_set_cache_compress(struct rsh_options *o, const struct rsh_option *def,
			   const char *value, struct rsh_error *err)
{
	static const char *const words[] = {
		[RSH_CACHE_COMPRESS_AUTO] = "auto",
		[RSH_CACHE_COMPRESS_OFF] = "off",
		[RSH_CACHE_COMPRESS_ON] = "on",
	};
	int i = word_number(value, words, 3);

	if (i < 0)
		return rsh_error_set(err, EINVAL, "%s: \"%s\" is not auto, off "
				     "or on", def->name, value);
	o->io.cache.compress = (enum rsh_cache_compress)i;
	return 0;
}

int rsh_set_sandbox(struct rsh_options *o, const struct rsh_option *def,
		    const char *value, struct rsh_error *err)
{
	o->no_sandbox = strcmp(value, "off") == 0;
	if (!o->no_sandbox && strcmp(value, "auto") != 0)
		return rsh_error_set(err, EINVAL, "%s: \"%s\" is neither "
				     "\"auto\" nor \"off\"", def->name, value);
	return 0;
}

int rsh_set_debug(struct rsh_options *o, const struct rsh_option *def,
		  const char *value, struct rsh_error *err)
{
	(void)def, (void)value, (void)err;
	o->debug = true;
	o->foreground = true;
	return 0;
}

int rsh_set_io_mode(struct rsh_options *o, const struct rsh_option *def,
		    const char *value, struct rsh_error *err)
{
	static const char *const words[] = {
		[RSH_IO_AUTO] = "auto",
		[RSH_IO_PASSTHROUGH] = "passthrough",
		[RSH_IO_DIRECT] = "direct",
		[RSH_IO_CACHED] = "cached",
	};
	int i = word_number(value, words, 4);

	if (i < 0)
		return rsh_error_set(err, EINVAL, "%s: \"%s\" is not auto, "
				     "passthrough, direct or cached", def->name,
				     value);
	o->io_mode = (enum rsh_io_mode)i;
	return 0;
}

int rsh_set_log_file(struct rsh_options *o, const struct rsh_option *def,
		     const char *value, struct rsh_error *err)
{
	if (!*value)
		return rsh_error_set(err, EINVAL, "%s: empty path", def->name);
	o->log_to = RSH_LOG_TO_FILE;
	o->log_file = value;
	return 0;
}

int rsh_set_log_to(struct rsh_options *o, const struct rsh_option *def,
		   const char *value, struct rsh_error *err)
{
	static const char file[] = "file:";
	static const char *const words[] = {
		[RSH_LOG_TO_AUTO] = "", /* not to be asked for */
		[RSH_LOG_TO_STDERR] = "stderr",
		[RSH_LOG_TO_FILE] = "", /* has a path */
		[RSH_LOG_TO_SYSLOG] = "syslog",
		[RSH_LOG_TO_JOURNAL] = "journal",
	};
	int i = *value ? word_number(value, words, 5) : -1;

	if (strncmp(value, file, strlen(file)) == 0)
		return rsh_set_log_file(o, def, value + strlen(file), err);
	if (i < 0)
		return rsh_error_set(err, EINVAL, "%s: \"%s\" is not stderr, "
				     "syslog, journal or file:PATH", def->name,
				     value);
	o->log_to = (enum rsh_log_to)i;
	o->log_file = NULL;
	return 0;
}

int rsh_set_log_level(struct rsh_options *o, const struct rsh_option *def,
		      const char *value, struct rsh_error *err)
{
	if (rsh_log_parse_level(value, &o->log_level))
		return rsh_error_set(err, EINVAL, "%s: \"%s\" is not error, "
				     "warning, notice, info or debug",
				     def->name, value);
	o->has_log_level = true;
	return 0;
}

/* Passes on an option that libfuse or the kernel understands. */
int rsh_set_mount_opt(struct rsh_options *o, const struct rsh_option *def,
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

/* Accepts an option that asks for what is always so. */
int rsh_set_nothing(struct rsh_options *o, const struct rsh_option *def,
		    const char *value, struct rsh_error *err)
{
	(void)o, (void)def, (void)value, (void)err;
	return 0;
}

int rsh_refuse_rw(struct rsh_options *o, const struct rsh_option *def,
		  const char *value, struct rsh_error *err)
{
	(void)o, (void)value;
	return rsh_error_set(err, EINVAL, "-o %s: the file system is "
			     "read-only", def->name);
}

int rsh_set_color(struct rsh_options *o, const struct rsh_option *def,
		  const char *value, struct rsh_error *err)
{
	if (strcmp(value, "auto") == 0)
		o->color = RSH_COLOR_AUTO;
	else if (strcmp(value, "always") == 0)
		o->color = RSH_COLOR_ALWAYS;
	else if (strcmp(value, "never") == 0)
		o->color = RSH_COLOR_NEVER;
	else
		return rsh_error_set(err, EINVAL, "%s: \"%s\" is not auto, "
				     "always or never", def->name, value);
	return 0;
}

int rsh_set_derive(struct rsh_options *o, const struct rsh_option *def,
		   const char *value, struct rsh_error *err)
{
	int rc;

	if (!o->derive)
		o->derive = rsh_derive_options_new();
	if (!o->derive)
		return rsh_error_nomem(err);
	if (def->min == RSH_DERIVE_MESH)
		o->dst_mesh = value;
	rc = rsh_derive_options_set(o->derive,
				    (enum rsh_derive_option)def->min, value,
				    err);
	if (rc)
		rsh_error_prefix(err, "%s", def->name);
	return rc;
}
