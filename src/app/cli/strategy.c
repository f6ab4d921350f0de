/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/strategy.c runs `strategy show`, `merge`, `derive` and `check`. */
#include "config.h"

#include "commands.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "infer.h"
#include "ls.h"
#include "printer.h"
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

static int write_buffer(void *ctx, int fd)
{
	const struct content *c = ctx;
	int rc = rsh_write_all(fd, c->data, c->len, 0);

	if (rc == 0 && fsync(fd) != 0)
		rc = -errno;
	return rc;
}

static int write_into(const char *path, const struct content *c)
{
	cleanup_fd int fd = open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC);
	const char *rest = c->data;
	size_t left = c->len;

	if (fd < 0)
		return -errno;
	while (left) {
		ssize_t n = write(fd, rest, left);

		if (n < 0 && errno != EINTR)
			return -errno;
		rest += n < 0 ? 0 : n;
		left -= n < 0 ? 0 : (size_t)n;
	}
	return 0;
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
	struct stat st;
	int rc;

	if (target && stat(target, &st) == 0 && !S_ISREG(st.st_mode))
		rc = write_into(target, &content);
	else
		rc = temporary ? rsh_file_replace(AT_FDCWD, file, temporary,
						  0666, write_buffer,
						  &content) : -ENOMEM;
	return rc ? rsh_error_file(err, -rc, path) : 0;
}

/* ---- show ---- */

static int show_strategy(const struct rsh_options *o, struct rsh_names *names,
			 struct rsh_error *err)
{
	struct rsh_strategy *s;
	struct rsh_printer out;
	int rc = rsh_strategy_load(o->vfs.source, false, names, &s, err);

	if (rc)
		return rc;
	rsh_printer_init(&out, o);
	rc = rsh_ls_strategy(&out, s, names);
	rsh_strategy_free(s);
	return rc ? rsh_error_nomem(err) : 0;
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
	struct rsh_strategy *src = NULL;
	cleanup_free void *data = NULL;
	size_t len;
	int rc = 0;

	if (strcmp(o->vfs.source, "none") != 0)
		rc = rsh_strategy_load(o->vfs.source, false, names, &src, err);
	rc = rc ?: read_shapes(o, src, names, &shapes, err);
	if (rc == 0 && o->vfs.drop)
		rc = rsh_derive_options_set(o->vfs.derive, RSH_DERIVE_DROP,
					    o->vfs.drop, err);
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
	rsh_strategy_free(src);
	return rc;
}

/* ---- check ---- */

struct checking {
	struct rsh_printer out;
	bool quiet;
	bool any;         /* something was found */
	json_t *all;      /* NULL: not JSON */
	json_t *findings; /* findings of one strategy */
	unsigned n;
};

static void tell_finding(void *ctx, const char *sentence)
{
	struct checking *c = ctx;

	c->any = true;
	c->n++;
	if (c->all)
		json_array_append_new(c->findings, rsh_json_text(sentence));
	else
		rsh_printer_line(&c->out, sentence);
}

static int check_strategies(const struct rsh_options *o,
			    struct rsh_names *names, bool *any,
			    struct rsh_error *err)
{
	struct checking c = {
		.quiet = o->quiet, .all = o->json ? json_array() : NULL,
	};
	struct rsh_derive_shapes *shapes = NULL;
	struct rsh_strategy *src = NULL;
	int rc = 0;

	rsh_printer_init(&c.out, o);
	if (o->vfs.src.path)
		rc = rsh_strategy_load(o->vfs.src.path, false, names, &src,
				       err);
	rc = rc ?: read_shapes(o, src, names, &shapes, err);
	for (unsigned i = 0; rc == 0 && i < o->n_operands; i++) {
		c.n = 0;
		c.findings = c.all ? json_array() : NULL;
		rc = rsh_strategies_check(o->operands[i], shapes, names,
					  tell_finding, &c, err);
		if (c.all) {
			json_array_append_new(
				c.all, json_pack("{s:o,s:o}", "strategy",
						 rsh_json_text(o->operands[i]),
						 "findings", c.findings));
		} else if (rc == 0 && !c.n && !c.quiet) {
			rsh_printer_put(&c.out, o->operands[i]);
			fputs(": good\n", c.out.f);
		}
	}
	if (rc == 0 && c.all)
		rc = rsh_printer_json(&c.out,
				      json_pack("{s:O}", "strategies", c.all));
	*any = c.any;
	json_decref(c.all);
	rsh_derive_shapes_free(shapes);
	rsh_strategy_free(src);
	return rc;
}

/* ---- all ---- */

enum rsh_exit rsh_strategy_command(const struct rsh_options *o)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_names *names;
	bool wrong = false;
	int rc;

	if (o->command->id == RSH_COMMAND_INFER)
		return rsh_infer_command(o);
	names = rsh_names_new();
	if (!names)
		rc = rsh_error_nomem(&err);
	else if (o->command->id == RSH_COMMAND_SHOW)
		rc = show_strategy(o, names, &err);
	else if (o->command->id == RSH_COMMAND_MERGE)
		rc = merge_strategies(o, &err);
	else if (o->command->id == RSH_COMMAND_CHECK)
		rc = check_strategies(o, names, &wrong, &err);
	else
		rc = derive_file(o, names, &err);
	rsh_names_free(names);
	if (rc)
		return rsh_exit_failed(o, rc, &err);
	return wrong ? RSH_EXIT_NO : RSH_EXIT_GOOD;
}
