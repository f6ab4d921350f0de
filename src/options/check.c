/* SPDX-License-Identifier: Apache-2.0 */
/* options/check.c looks at the options of a command together, once all are
 * set, and refuses what is missing or contradicts itself. */
#include "config.h"

#include "rsh/options/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/options/commands.h"
#include "rsh/options/ranks.h"
#include "rsh/options/verify_kind.h"
#include "rsh/util/mem.h"

static bool names_rank(const char *template)
{
	return template && strstr(template, "{rank}");
}

int rsh_check_files(const struct rsh_options *o, struct rsh_error *err)
{
	const char *dir = o->files.rank_dir, *file = o->files.file;

	if (o->files.source_map && (dir || file))
		return rsh_error_set(err, EINVAL, "--source-map names every "
				     "file: --rank-dir and --file do not go "
				     "with it");
	/* A file without a directory is looked for in those of the ranks. */
	if ((dir || (file && strchr(file, '/'))) && !names_rank(dir) &&
	    !names_rank(file))
		return rsh_error_set(err, EINVAL, "--%s \"%s\": no \"{rank}\" "
				     "in it, which stands for the number of a "
				     "rank", dir ? "rank-dir" : "file",
				     dir ? dir : file);
	return 0;
}

/* A mesh stands for the strategy that is derived for it. */
static int take_mesh(struct rsh_options *o, struct rsh_error *err)
{
	if (o->derive && !o->dst_mesh)
		return rsh_error_set(err, EINVAL, "--dst-opt, --src-mesh, "
				     "--split, --axes, --stage, --layers, "
				     "--opt-include and --opt-exclude are for "
				     "--dst-mesh");
	if (!o->dst_mesh)
		return 0;
	if (o->dst_strategy)
		return rsh_error_set(err, EINVAL, "--dst-mesh and "
				     "--dst-strategy say the same: give one");
	o->dst_strategy = "derived";
	return 0;
}

int rsh_check_conversion(struct rsh_options *o, struct rsh_error *err)
{
	int rc = take_mesh(o, err);

	if (rc)
		return rc;
	if (!o->src_strategy)
		return rsh_error_set(err, EINVAL, "--src-strategy is missing "
				     "(\"none\" if SOURCE is not sharded)");
	if (!o->dst_strategy)
		return rsh_error_set(err, EINVAL, "--dst-strategy is missing "
				     "(\"none\" for whole tensors), or "
				     "--dst-mesh");
	if (o->remove_redundancy && strcmp(o->dst_strategy, "none") == 0)
		return rsh_error_set(err, EINVAL, "--remove-redundancy needs a "
				     "--dst-strategy: without one there are no "
				     "ranks that hold the same");
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
	return rsh_check_files(o, err);
}

/* The options of a conversion say nothing where there is none. */
static int check_resume(const struct rsh_options *o, struct rsh_error *err)
{
	const char *given = o->src_strategy ? "src-strategy" :
			    o->dst_strategy ? "dst-strategy" :
			    o->dst_mesh ? "dst-mesh" :
			    o->derive ? "dst-opt (and its like)" :
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

/* What a mount would take is asked if both strategies are given. */
int rsh_check_ls(struct rsh_options *o, struct rsh_error *err)
{
	o->source = o->operands[0];
	return o->src_strategy && (o->dst_strategy || o->dst_mesh) ?
		       rsh_check_conversion(o, err) : rsh_check_files(o, err);
}

int rsh_check_plan(struct rsh_options *o, struct rsh_error *err)
{
	int rc = rsh_ranks_check(o, 1, err);

	o->source = o->operands[0];
	return rc ? rc : rsh_check_conversion(o, err);
}

int rsh_check_export(struct rsh_options *o, struct rsh_error *err)
{
	int rc = rsh_ranks_check(o, 2, err);

	o->source = o->operands[0];
	o->directory = o->operands[1];
	return rc ? rc : rsh_check_conversion(o, err);
}

/* Which of its questions is asked follows from what the operands are. */
int rsh_check_verify(struct rsh_options *o, struct rsh_error *err)
{
	const enum rsh_verify_kind kind = rsh_verify_kind_of(o);
	const bool converts = o->src_strategy && o->dst_strategy;
	int rc = rsh_ranks_check(o, 2, err);

	o->source = o->operands[0];
	if (rc)
		return rc;
	if (kind == RSH_VERIFY_FILES && (o->src_strategy || o->dst_strategy))
		return rsh_error_set(err, EINVAL, "%s is a file: with a "
				     "strategy SOURCE, a directory, is the "
				     "first operand", o->source);
	if (kind == RSH_VERIFY_FILES && (o->n_operands > 2 ||
					 o->write_manifest))
		return rsh_error_set(err, EINVAL, "RANK and --write-manifest "
				     "are for a conversion, and files are held "
				     "against a manifest");
	if (kind == RSH_VERIFY_FILES)
		return 0;
	if (kind != RSH_VERIFY_SOURCE || o->write_manifest || converts ||
	    o->dst_strategy)
		return rsh_check_conversion(o, err);
	return rsh_check_files(o, err);
}

/* A daemon leaves its directory, and the table of mounts is read in others. */
static int take_source(struct rsh_options *o, struct rsh_error *err)
{
	cleanup_free char *full = NULL;

	o->source = o->operands[0];
	if (*o->source != '/')
		full = realpath(o->source, NULL);
	if (full)
		o->source = rsh_options_keep(o, full);
	return o->source ? 0 : rsh_error_nomem(err);
}

int rsh_check_mount(struct rsh_options *o, struct rsh_error *err)
{
	int rc = take_source(o, err);

	if (rc)
		return rc;
	o->mountpoint = o->operands[1];
	if (o->log_to == RSH_LOG_TO_STDERR && !o->foreground)
		return rsh_error_set(err, EINVAL, "--log-to stderr needs -f: a "
				     "daemon leaves standard error");
	return o->resume ? check_resume(o, err) : rsh_check_conversion(o, err);
}

int rsh_check_umount(struct rsh_options *o, struct rsh_error *err)
{
	(void)err;
	o->mountpoint = o->operands[0];
	return 0;
}

int rsh_check_warm(struct rsh_options *o, struct rsh_error *err)
{
	o->mountpoint = o->operands[0];
	return rsh_ranks_check(o, 1, err);
}

int rsh_check_stats(struct rsh_options *o, struct rsh_error *err)
{
	(void)err;
	o->mountpoint = o->operands[0];
	return 0;
}

int rsh_check_help(struct rsh_options *o, struct rsh_error *err)
{
	const char *word = o->n_operands ? o->operands[0] : NULL;
	char guess[RSH_GUESS_BYTES];

	if (!word || rsh_command_find(word))
		return 0;
	rsh_command_guess(word, guess);
	return rsh_error_set(err, EINVAL, "\"%s\" is no command%s", word,
			     guess);
}
