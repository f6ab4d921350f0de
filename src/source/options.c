/* SPDX-License-Identifier: Apache-2.0 */
/* source/options.c has the options that choose files of SOURCE. */
#include "config.h"

#include "rsh/source/source.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/storage/hub.h"
#include "rsh/util/arena.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

#define AT(member) RSH_OPTION_AT(struct rsh_source_options, member)

static int set_select(const struct rsh_setting *s)
{
	static const char name[] = "name=", step[] = "step=";
	struct rsh_source_options *f = s->base;
	const char *value = s->value, *end = strchr(value, '=');
	const size_t n = strcspn(value, "_");

	if (strcmp(value, "newest") == 0 || strcmp(value, "latest") == 0)
		f->select = RSH_SELECT_NEWEST;
	else if (strcmp(value, "mtime") == 0)
		f->select = RSH_SELECT_MTIME;
	else if (strcmp(value, "mindspore") == 0)
		f->select = RSH_SELECT_MINDSPORE;
	else if (value[n] && rsh_number_read(value, n, &f->epoch) &&
		 rsh_number_read(value + n + 1, strlen(value + n + 1),
				 &f->step))
		f->select = RSH_SELECT_STEP;
	else if (strncmp(value, step, strlen(step)) == 0 &&
		 rsh_number_read(end + 1, strlen(end + 1), &f->step))
		f->select = RSH_SELECT_LONE_STEP;
	else if (strncmp(value, name, strlen(name)) == 0 && end[1])
		f->select = RSH_SELECT_NAME;
	else
		return rsh_error_set(s->err, EINVAL, "%s: \"%s\" is not "
				     "newest, mtime, mindspore, EPOCH_STEP, "
				     "step=N or name=GLOB", s->def->name,
				     value);
	f->glob = f->select == RSH_SELECT_NAME ? end + 1 : NULL;
	return 0;
}

/* A model is a directory, a name in the cache of Hugging Face, or an address.
 * Daemons have another working directory. */
static int set_base(const struct rsh_setting *s)
{
	struct rsh_source_options *f = s->base;
	cleanup_free char *model = NULL, *full = NULL;
	struct rsh_error why = RSH_ERROR_INIT;
	char hint[512];
	size_t n = strlen(s->value);
	int rc;

	if (rsh_store_is_address(s->value)) {
		while (n > 0 && s->value[n - 1] == '/')
			n--;
		if (strncmp(s->value, "s3://", 5) != 0 || n <= 5 ||
		    strchr(s->value, '@'))
			return rsh_error_set(s->err, EINVAL, "%s: the address "
					     "of a model is s3://BUCKET/PREFIX",
					     s->def->name);
		f->base = rsh_arena_format(s->memory, "%.*s", (int)n, s->value);
		return f->base ? 0 : rsh_error_nomem(s->err);
	}
	rc = rsh_hub_find(s->value, &model, &why);
	if (rc)
		return rsh_error_set(s->err, -rc, "%s: %s", s->def->name,
				     why.text);
	full = realpath(model ? model : s->value, NULL);
	if (!full) {
		rc = errno;
		rsh_hub_hint(s->value, hint, sizeof(hint));
		return rsh_error_set(s->err, EINVAL, "%s: %s: %s%s",
				     s->def->name, s->value, strerror(rc),
				     hint);
	}
	f->base = rsh_arena_format(s->memory, "%s", full);
	return f->base ? 0 : rsh_error_nomem(s->err);
}

static int check_rank_dir(const char *value, struct rsh_error *err)
{
	return *value != '/' ? 0 :
	       rsh_error_set(err, EINVAL, "rank-dir: \"%s\" must be a path "
			     "below SOURCE without a leading slash, such as "
			     "rank_{rank}", value);
}

static int check_file(const char *value, struct rsh_error *err)
{
	if (*value == '/')
		return rsh_error_set(err, EINVAL, "file: \"%s\" must be a "
				     "path below SOURCE without a leading "
				     "slash, such as rank_{rank}/net.ckpt",
				     value);
	return value[strlen(value) - 1] != '/' ? 0 :
	       rsh_error_set(err, EINVAL, "file: \"%s\" ends with '/' and is "
			     "not a file name", value);
}

int rsh_source_options_check(const struct rsh_source_options *f,
			     struct rsh_error *err)
{
	const char *dir = f->rank_dir, *file = f->file;

	/* A file without a directory is searched in the directories of the
	 * ranks. */
	if ((!dir && !(file && strchr(file, '/'))) ||
	    (dir && strstr(dir, "{rank}")) || (file && strstr(file, "{rank}")))
		return 0;
	return rsh_error_set(err, EINVAL, "--%s \"%s\": \"{rank}\", the "
			     "placeholder of the rank number, is missing",
			     dir ? "rank-dir" : "file", dir ? dir : file);
}

const struct rsh_option rsh_source_rows[] = {
	{ "select", "WHICH",
	  "checkpoint: newest (default), mtime, mindspore, EPOCH_STEP, step=N "
	  "or name=GLOB", set_select, AT(select), .first = true },
	{ "breakpoint", "include|only",
	  "use *_breakpoint.ckpt files as well, or only these (default: only "
	  "if there are no others)", rsh_set_word,
	  .min = RSH_BREAKPOINTS_INCLUDE, AT(breakpoints) },
	{ "rank-dir", "TEMPLATE",
	  "directory of a rank below SOURCE, such as rank_{rank} (default: "
	  "detected)", rsh_set_text, AT(rank_dir), .converts = true,
	  .check = check_rank_dir },
	{ "file", "TEMPLATE",
	  "file names, such as net_{rank}-*.ckpt (default: *.ckpt or "
	  "*.safetensors)", rsh_set_text, AT(file), .converts = true,
	  .check = check_file },
	{ "source-map", "FILE.json",
	  "JSON file that names the file of each rank: {\"0\": \"path\", ...}",
	  rsh_set_text, AT(source_map), .converts = true, .opens = true,
	  .once = true,
	  .excludes = "rank-dir|file" },
	{ "base", "DIR",
	  "model on which the first of weight versions is built (default: "
	  "none)",
	  set_base, AT(base), .opens = true, .decides = RSH_DECIDES_TEXT,
	  .once = true },
	{ "follow-outside", NULL,
	  "follow symbolic links that lead out of SOURCE", rsh_set_flag,
	  AT(store.follow_outside) },
	{ .name = NULL },
};

const struct rsh_option rsh_source_check_rows[] = {
	{ "check", "sample|structure|full",
	  "compare SOURCE with the strategy: some contents, only headers, or "
	  "all contents and CRCs (default: sample)", rsh_set_word, AT(check) },
	{ .name = NULL },
};

const struct rsh_option rsh_source_cache_rows[] = {
	{ "index-cache", "DIR|off",
	  "directory to cache headers of source files in (default: "
	  "~/.cache/reshardfs/index)", rsh_set_text, AT(index_cache),
	  .none = "off" },
	{ .name = NULL },
};
