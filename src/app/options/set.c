/* SPDX-License-Identifier: Apache-2.0 */
/* app/options/set.c has the setter of every option, which checks the value and
 * stores it in struct rsh_options. */
#include "config.h"

#include "set_i.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rsh/util/mem.h"
#include "rsh/util/pattern.h"
#include "rsh/util/text.h"
#include "rsh/wire/adapter_config.h"

static void *member(struct rsh_options *o, const struct rsh_option *def)
{
	return (char *)o + def->at;
}

/* These setters set one member. */

char *rsh_options_keep(struct rsh_options *o, const char *text)
{
	char *copy = strdup(text);

	if (!copy || rsh_grow(&o->copies, &o->cap_copies, o->n_copies + 1,
			      sizeof(*o->copies))) {
		free(copy);
		return NULL;
	}
	o->copies[o->n_copies++] = copy;
	return copy;
}

uint64_t rsh_physical_memory(void)
{
	return (uint64_t)sysconf(_SC_PHYS_PAGES) *
	       (uint64_t)sysconf(_SC_PAGESIZE);
}

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
		return rsh_error_set(err, EINVAL, "%s: the value is empty",
				     def->name);
	return rsh_set_text(o, def, value, err);
}

int rsh_set_path(struct rsh_options *o, const struct rsh_option *def,
		 const char *value, struct rsh_error *err)
{
	if (!*value)
		return rsh_error_set(err, EINVAL, "%s: the path is empty",
				     def->name);
	return rsh_set_text(o, def, value, err);
}

int rsh_set_regex(struct rsh_options *o, const struct rsh_option *def,
		  const char *value, struct rsh_error *err)
{
	cleanup_free char *what = rsh_text_format("%s:", def->name);
	regex_t re;
	int rc = what ? rsh_pattern_compile(&re, what, value, err) :
			rsh_error_nomem(err);

	if (rc)
		return rc;
	regfree(&re);
	return rsh_set_text(o, def, value, err);
}

int rsh_set_faults(struct rsh_options *o, const struct rsh_option *def,
		   const char *value, struct rsh_error *err)
{
	return rsh_faults_check(value, err) ?:
	       rsh_set_string(o, def, value, err);
}

int rsh_set_servers(struct rsh_options *o, const struct rsh_option *def,
		    const char *value, struct rsh_error *err)
{
	return rsh_cache_servers_check(value, err) ?:
	       rsh_set_string(o, def, value, err);
}

int rsh_set_number(struct rsh_options *o, const struct rsh_option *def,
		   const char *value, struct rsh_error *err)
{
	uint64_t n;

	if (!rsh_digits_read(value, strlen(value), def->max, &n) ||
	    n < def->min)
		return rsh_error_set(err, EINVAL, "%s: \"%s\" is not a number "
				     "from %u to %u", def->name, value,
				     def->min, def->max);
	*(unsigned *)member(o, def) = (unsigned)n;
	return 0;
}

int rsh_set_seconds(struct rsh_options *o, const struct rsh_option *def,
		    const char *value, struct rsh_error *err)
{
	int rc = rsh_set_number(o, def, value, err);

	if (rc == 0)
		*(unsigned *)member(o, def) *= 1000;
	return rc;
}

/* Returns the index of `value` among the words of def->arg, or -1. */
static int word_number(const struct rsh_option *def, const char *value)
{
	const size_t n = strlen(value);
	const char *word = def->arg;

	for (int i = 0; word; i++) {
		const size_t length = strcspn(word, "|");

		if (length == n && strncmp(word, value, n) == 0)
			return i;
		word = word[length] ? word + length + 1 : NULL;
	}
	return -1;
}

void rsh_words_put(char *to, size_t size, const char *words)
{
	size_t at = 0;

	*to = '\0';
	for (; *words; words++)
		rsh_text_add(to, size, &at, "%s%.*s", *words != '|' ? "" :
			     strchr(words + 1, '|') ? ", " : " or ",
			     *words != '|', words);
}

static int refuse_word(const struct rsh_option *def, const char *value,
		       struct rsh_error *err)
{
	char words[128];

	rsh_words_put(words, sizeof(words), def->arg);
	return rsh_error_set(err, EINVAL, "%s: \"%s\" is not %s", def->name,
			     value, words);
}

int rsh_set_word(struct rsh_options *o, const struct rsh_option *def,
		 const char *value, struct rsh_error *err)
{
	const char *ours = rsh_other_word(value, strlen(value));
	int i = word_number(def, value);
	unsigned n;

	if (i < 0 && ours)
		i = word_number(def, ours);
	if (i < 0)
		return refuse_word(def, value, err);
	n = def->values ? def->values[i] : def->min + (unsigned)i;
	if (def->size == sizeof(bool))
		*(bool *)member(o, def) = n;
	else
		*(unsigned *)member(o, def) = n;
	return 0;
}

int rsh_set_strategy(struct rsh_options *o, const struct rsh_option *def,
		     const char *value, struct rsh_error *err)
{
	struct rsh_strategy_at *at = member(o, def);
	/* MindSpore's converter is called with None. */
	const bool none = strcasecmp(value, "none") == 0;
	int rc = rsh_set_path(o, def, value, err);

	if (rc)
		return rc;
	*at = (struct rsh_strategy_at){
		.path = none ? NULL : value,
		.from = none ? RSH_FROM_NONE : RSH_FROM_FILE,
	};
	return 0;
}

/* The converter refuses more, since it joins the prefix to a path.  Here only
 * the prefixes are refused that do not make the plain name of a file. */
int rsh_set_prefix(struct rsh_options *o, const struct rsh_option *def,
		   const char *value, struct rsh_error *err)
{
	if (strchr(value, '/') || value[0] == '.' || strstr(value, ".."))
		return rsh_error_set(err, EINVAL, "%s: \"%s\" must not "
				     "contain '/' or \"..\" or begin with '.'",
				     def->name, value);
	for (const char *c = value; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			return rsh_error_set(err, EINVAL, "%s: the value "
					     "contains a control character",
					     def->name);
	o->vfs.tree.prefix = value;
	return 0;
}

/* Parses "<epoch>_<step>". */
static bool parse_step(const char *value, uint64_t *epoch, uint64_t *step)
{
	const size_t n = strcspn(value, "_");

	return value[n] && rsh_number_read(value, n, epoch) &&
	       rsh_number_read(value + n + 1, strlen(value + n + 1), step);
}

int rsh_set_select(struct rsh_options *o, const struct rsh_option *def,
		   const char *value, struct rsh_error *err)
{
	const char name[] = "name=", step[] = "step=";
	struct rsh_source_options *f = &o->vfs.files;

	if (strcmp(value, "newest") == 0 || strcmp(value, "latest") == 0)
		f->select = RSH_SELECT_NEWEST;
	else if (strcmp(value, "mtime") == 0)
		f->select = RSH_SELECT_MTIME;
	else if (strcmp(value, "mindspore") == 0)
		f->select = RSH_SELECT_MINDSPORE;
	else if (parse_step(value, &f->epoch, &f->step))
		f->select = RSH_SELECT_STEP;
	else if (strncmp(value, step, strlen(step)) == 0 &&
		 rsh_number_read(value + strlen(step),
				 strlen(value + strlen(step)), &f->step))
		f->select = RSH_SELECT_LONE_STEP;
	else if (strncmp(value, name, strlen(name)) == 0 &&
		 value[strlen(name)])
		f->select = RSH_SELECT_NAME;
	else
		return rsh_error_set(err, EINVAL, "%s: \"%s\" is not newest, "
				     "mtime, mindspore, EPOCH_STEP, step=N "
				     "or name=GLOB", def->name, value);
	f->glob = f->select == RSH_SELECT_NAME ? value + strlen(name) : NULL;
	return 0;
}

int rsh_set_file(struct rsh_options *o, const struct rsh_option *def,
		 const char *value, struct rsh_error *err)
{
	if (*value && value[strlen(value) - 1] == '/')
		return rsh_error_set(err, EINVAL, "%s: \"%s\" ends with '/' "
				     "and is not a file name", def->name,
				     value);
	return rsh_set_string(o, def, value, err);
}

int rsh_set_output(struct rsh_options *o, const struct rsh_option *def,
		   const char *value, struct rsh_error *err)
{
	const struct rsh_output *output = rsh_output_find(value);

	if (!output)
		return refuse_word(def, value, err);
	o->vfs.output = output;
	return 0;
}

int rsh_set_model_files(struct rsh_options *o, const struct rsh_option *def,
			const char *value, struct rsh_error *err)
{
	int rc = rsh_set_path(o, def, value, err);

	if (rc == 0 && strcmp(value, "none") == 0)
		o->vfs.model_files = NULL;
	return rc;
}

/* The value may be the directory of config.json. */
int rsh_set_config(struct rsh_options *o, const struct rsh_option *def,
		   const char *value, struct rsh_error *err)
{
	cleanup_free char *path = NULL;
	struct stat st;

	if (stat(value, &st) != 0 || !S_ISDIR(st.st_mode))
		return rsh_set_path(o, def, value, err);
	path = rsh_text_format("%s/config.json", value);
	value = path ? rsh_options_keep(o, path) : NULL;
	return value ? rsh_set_text(o, def, value, err) : rsh_error_nomem(err);
}

/* Returns the end of the directory in DIR[:SCALE].  A part after ':' that is no
 * number belongs to the directory. */
static size_t parse_scale(const char *value, double *scale)
{
	const char *colon = strrchr(value, ':');
	double n;
	char *end;

	*scale = 1;
	if (!colon || !colon[1] || colon[1] == ' ')
		return strlen(value);
	n = strtod(colon + 1, &end);
	if (*end)
		return strlen(value);
	*scale = n;
	return (size_t)(colon - value);
}

/* Returns the address of a directory as the files in it begin; NULL: it is not
 * such an address.  Other addresses have no listing of their files. */
static char *lora_address(const char *address)
{
	size_t n = strlen(address);

	while (n > 0 && address[n - 1] == '/')
		n--;
	return strncmp(address, "s3://", 5) == 0 && n > 5 &&
	       !strchr(address, '@') ? strndup(address, n) : NULL;
}

/* The option may be given several times. */
int rsh_set_lora(struct rsh_options *o, const struct rsh_option *def,
		 const char *value, struct rsh_error *err)
{
	struct rsh_weights_at *w = &o->vfs.weights;
	cleanup_free char *directory = NULL, *full = NULL, *file = NULL;
	struct rsh_lora_at *at = &w->loras[w->n_loras];
	double scale;

	if (w->n_loras == RSH_LORAS_MAX)
		return rsh_error_set(err, EINVAL, "%s: more than %d adapters",
				     def->name, RSH_LORAS_MAX);
	directory = strndup(value, parse_scale(value, &scale));
	if (!directory)
		return rsh_error_nomem(err);
	if (!isfinite(scale))
		return rsh_error_set(err, EINVAL, "%s: the scale of \"%s\" is "
				     "not a finite number", def->name, value);
	if (!*directory)
		return rsh_error_set(err, EINVAL, "%s: the path is empty",
				     def->name);
	if (rsh_store_is_address(directory)) {
		full = lora_address(directory);
		if (!full)
			return rsh_error_set(err, EINVAL, "%s: the address of "
					     "an adapter is s3://BUCKET/PREFIX",
					     def->name);
	} else {
		full = realpath(directory, NULL);
	}
	if (!full)
		return rsh_error_set(err, EINVAL, "%s: %s: %s", def->name,
				     directory, strerror(errno));
	file = rsh_text_format("%s/" RSH_ADAPTER_FILE_NAME, full);
	if (!file)
		return rsh_error_nomem(err);
	at->scale = scale;
	at->directory = rsh_options_keep(o, full);
	w->lora_files[w->n_loras] = rsh_options_keep(o, file);
	if (!at->directory || !w->lora_files[w->n_loras])
		return rsh_error_nomem(err);
	w->n_loras++;
	return 0;
}

int rsh_set_index_cache(struct rsh_options *o, const struct rsh_option *def,
			const char *value, struct rsh_error *err)
{
	struct rsh_source_options *f = &o->vfs.files;

	if (!*value)
		return rsh_error_set(err, EINVAL, "%s: the path is empty",
				     def->name);
	f->index_cache_asked = true;
	f->index_cache = strcmp(value, "off") == 0 ? NULL : value;
	return 0;
}

/* 5GB are 5 * 1000^3 bytes, as in Hugging Face's tools; 5G and 5GiB are 5 *
 * 1024^3. */
static bool parse_bytes(const char *value, uint64_t *bytes)
{
	static const char prefixes[] = "KMGT";
	const size_t digits = rsh_count_digits(value, strlen(value));
	const char *end = value + digits;
	const char *prefix = *end ? strchr(prefixes, *end) : NULL;
	const bool decimal = prefix && strcmp(end + 1, "B") == 0;
	uint64_t n, unit = 1;

	if (!rsh_number_read(value, digits, &n) || (*end && !prefix) ||
	    (prefix && end[1] && !decimal && strcmp(end + 1, "iB") != 0))
		return false;
	for (const char *p = prefixes; prefix && p <= prefix; p++)
		unit *= decimal ? 1000 : 1024;
	return !__builtin_mul_overflow(n, unit, bytes);
}

int rsh_set_size(struct rsh_options *o, const struct rsh_option *def,
		 const char *value, struct rsh_error *err)
{
	uint64_t *bytes = member(o, def);

	if (parse_bytes(value, bytes) && *bytes >= def->min)
		return 0;
	return rsh_error_set(err, EINVAL, "%s: \"%s\" is not a size such as "
			     "5GB or 500MiB", def->name, value);
}

int rsh_set_memory(struct rsh_options *o, const struct rsh_option *def,
		   const char *value, struct rsh_error *err)
{
	const size_t digits = rsh_count_digits(value, strlen(value));
	uint64_t percent;

	if (!rsh_number_read(value, digits, &percent) ||
	    strcmp(value + digits, "%") != 0)
		return rsh_set_size(o, def, value, err);
	if (percent > 100)
		return rsh_error_set(err, EINVAL, "%s: \"%s\" is more than "
				     "100%%", def->name, value);
	*(uint64_t *)member(o, def) = rsh_physical_memory() / 100 * percent;
	return 0;
}

int rsh_set_share(struct rsh_options *o, const struct rsh_option *def,
		  const char *value, struct rsh_error *err)
{
	unsigned i, n;
	int end = 0;

	if (strspn(value, "0123456789/") == strlen(value) &&
	    sscanf(value, "%5u/%5u%n", &i, &n, &end) == 2 && !value[end] &&
	    i < n) {
		o->share = i;
		o->n_shares = n;
		return 0;
	}
	return rsh_error_set(err, EINVAL, "%s: \"%s\" is not a share such as "
			     "0/4, the first of four, or 3/4, the last",
			     def->name, value);
}

int rsh_set_debug(struct rsh_options *o, const struct rsh_option *def,
		  const char *value, struct rsh_error *err)
{
	(void)def, (void)value, (void)err;
	o->debug = true;
	o->foreground = true;
	return 0;
}

int rsh_set_log_to(struct rsh_options *o, const struct rsh_option *def,
		   const char *value, struct rsh_error *err)
{
	static const char file[] = "file:";
	static const enum rsh_log_to targets[] = {
		RSH_LOG_TO_STDERR, RSH_LOG_TO_SYSLOG, RSH_LOG_TO_JOURNAL,
	};
	const bool is_file = strncmp(value, file, strlen(file)) == 0;
	const int i = word_number(def, value);

	if (!is_file && (i < 0 || i > 2))
		return refuse_word(def, value, err);
	o->log_to = is_file ? RSH_LOG_TO_FILE : targets[i];
	o->log_file = is_file ? value + strlen(file) : NULL;
	return is_file && !*o->log_file ?
		rsh_error_set(err, EINVAL, "%s: the path is empty",
			      def->name) : 0;
}

/* Passes on an option of libfuse or the kernel. */
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

int rsh_set_derive(struct rsh_options *o, const struct rsh_option *def,
		   const char *value, struct rsh_error *err)
{
	struct rsh_vfs_config *v = &o->vfs;
	int rc;

	if (!v->derive)
		v->derive = rsh_derive_options_new();
	if (!v->derive)
		return rsh_error_nomem(err);
	/* A file that is given as well is refused later. */
	if (def->min == RSH_DERIVE_MESH && !v->dst.from)
		v->dst.from = RSH_FROM_DERIVED;
	rc = rsh_derive_options_set(v->derive,
				    (enum rsh_derive_option)def->min, value,
				    err);
	if (rc)
		rsh_error_prefix(err, "%s", def->name);
	return rc;
}
