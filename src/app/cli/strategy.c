/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/strategy.c runs `strategy show`, `merge`, `derive` and `check`. */
#include "config.h"

#include "commands.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rsh/app/commands.h"
#include "rsh/source/strategies.h"
#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/wire/strategy_emit.h"

static bool is_json_output(const char *path)
{
	size_t n = strlen(path);

	return n >= 5 && strcmp(path + n - 5, ".json") == 0;
}

/* ---- writing a file ---- */

struct content {
	const void *data;
	size_t len;
};

static int write_content(void *ctx, int fd)
{
	const struct content *c = ctx;
	const char *rest = c->data;
	ssize_t n;

	for (size_t left = c->len; left > 0; left -= (size_t)n) {
		n = write(fd, rest, left);
		if (n < 0 && errno != EINTR)
			return -errno;
		n = n < 0 ? 0 : n;
		rest += n;
	}
	/* A pipe cannot be synced. */
	return fsync(fd) != 0 && errno != EINVAL && errno != EROFS ? -errno : 0;
}

/* Writes a file under another name, syncs and renames it, so that `path` is the
 * complete old file or the complete new file at any time.  A link is kept, and
 * its target replaced.  A path that is not a regular file, such as /dev/null or
 * a pipe, is written directly, because a rename would replace it by a file.
 * Returns 0 or -errno with a sentence. */
static int write_strategy(const char *path, const void *data, size_t len,
			  struct rsh_error *err)
{
	struct content content = { data, len };
	cleanup_free char *target = realpath(path, NULL);
	const char *file = target ? target : path;
	cleanup_free char *temporary =
		rsh_text_format("%s.tmp-%ld", file, (long)getpid());
	cleanup_fd int fd = -1;
	struct stat st;
	int rc;

	if (target && stat(target, &st) == 0 && !S_ISREG(st.st_mode)) {
		fd = open(target, O_WRONLY | O_NOCTTY | O_CLOEXEC);
		rc = fd < 0 ? -errno : write_content(&content, fd);
	} else {
		rc = temporary ? rsh_file_replace(AT_FDCWD, file, temporary,
						  0666, write_content,
						  &content) : -ENOMEM;
	}
	return rc ? rsh_error_file(err, -rc, path) : 0;
}

/* ---- merge ---- */

static int merge_strategies(const struct rsh_options *o, struct rsh_error *err)
{
	cleanup_free void *data = NULL;
	bool json;
	size_t len;
	int rc = rsh_strategies_join(o->operands, o->n_operands, &json,
				     &data, &len, err);

	if (rc)
		return rc;
	/* MindSpore finds the format of a strategy file by its name. */
	if (json != is_json_output(o->output))
		return rsh_error_set(err, EINVAL, "%s: the name has %sto end "
				     "in .json, since the merged files are%s "
				     "JSON", o->output, json ? "" : "not ",
				     json ? "" : " not");
	return write_strategy(o->output, data, len, err);
}

/* ---- derive ---- */

/* Reads the shapes in the tree at o->checkpoint, which was saved under `src`
 * (NULL: the tensors are whole); *out is NULL if no tree is given.  Returns 0
 * or -errno with a sentence. */
static int read_shapes(const struct rsh_options *o,
		       const struct rsh_strategy *src, struct rsh_names *names,
		       struct rsh_derive_shapes **out, struct rsh_error *err)
{
	struct rsh_source_options files = o->vfs.files;

	*out = NULL;
	if (!o->checkpoint)
		return 0;
	*out = rsh_derive_shapes_new();
	if (!*out)
		return rsh_error_nomem(err);
	files.unsharded = !src;
	return rsh_source_shapes(o->checkpoint, &files, src, names, *out, err);
}

static int derive_file(const struct rsh_options *o, struct rsh_names *names,
		       struct rsh_error *err)
{
	struct rsh_derive_shapes *shapes = NULL;
	struct rsh_derived *derived = NULL;
	cleanup_strategy struct rsh_strategy *src = NULL;
	cleanup_free void *data = NULL;
	size_t len;
	int rc = 0;

	if (strcmp(o->vfs.source, "none") != 0)
		rc = rsh_strategy_load(o->vfs.source, false, names, &src, err);
	rc = rc ?: read_shapes(o, src, names, &shapes, err);
	rc = rc ?: rsh_strategy_derive(src, shapes, o->vfs.derive, names,
				       &derived, err) ?:
		   rsh_strategy_emit(&derived->items,
				     is_json_output(o->output), &data, &len,
				     err) ?:
		   write_strategy(o->output, data, len, err);
	for (uint32_t i = 0; rc == 0 && i < derived->n_notes; i++)
		rsh_log_notice("%s", derived->notes[i]);
	rsh_derived_free(derived);
	rsh_derive_shapes_free(shapes);
	return rc;
}

/* ---- check ---- */

struct checking {
	struct rsh_printer *out;
	unsigned n; /* findings of one strategy */
};

static void tell_finding(void *ctx, const char *sentence)
{
	struct checking *c = ctx;

	c->n++;
	rsh_json(c->out, "%", sentence);
	rsh_say(c->out, "%\n", sentence);
}

static int check_strategies(const struct rsh_options *o,
			    struct rsh_names *names, struct rsh_run *run)
{
	struct rsh_error *err = &run->err;
	struct rsh_derive_shapes *shapes = NULL;
	cleanup_strategy struct rsh_strategy *src = NULL;
	struct checking c = { .out = &run->out };
	int rc = 0;

	if (o->vfs.src.path)
		rc = rsh_strategy_load(o->vfs.src.path, false, names, &src,
				       err);
	rc = rc ?: read_shapes(o, src, names, &shapes, err);
	rsh_json(c.out, "{strategies:[");
	for (unsigned i = 0; rc == 0 && i < o->n_operands; i++) {
		c.n = 0;
		rsh_json(c.out, "{strategy:% findings:[", o->operands[i]);
		rc = rsh_strategies_check(o->operands[i], shapes, names,
					  tell_finding, &c, err);
		rsh_json(c.out, "]}");
		if (c.n)
			run->status = RSH_EXIT_NO;
		if (rc == 0 && c.n == 0 && !o->quiet)
			rsh_say(c.out, "%: good\n", o->operands[i]);
	}
	rsh_json(c.out, "]}");
	rsh_derive_shapes_free(shapes);
	return rc;
}

/* ---- all ---- */

int rsh_strategy_command(const struct rsh_options *o, struct rsh_run *run)
{
	cleanup_names struct rsh_names *names = rsh_names_new();
	struct rsh_error *err = &run->err;
	cleanup_strategy struct rsh_strategy *s = NULL;
	int rc;

	if (!names)
		rc = rsh_error_nomem(err);
	else if (o->command->id == RSH_COMMAND_SHOW)
		rc = rsh_strategy_load(o->vfs.source, false, names, &s, err);
	else if (o->command->id == RSH_COMMAND_MERGE)
		rc = merge_strategies(o, err);
	else if (o->command->id == RSH_COMMAND_CHECK)
		rc = check_strategies(o, names, run);
	else
		rc = derive_file(o, names, err);
	if (s)
		rsh_ls_strategy(&run->out, s, names);
	return rc;
}
