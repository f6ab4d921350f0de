/* SPDX-License-Identifier: Apache-2.0 */
/* options/check_strategy.c - what each form of `strategy` takes. */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "rsh/options/check.h"

static bool is_infer(const struct rsh_options *o)
{
	return strcmp(o->operands[0], "infer") == 0;
}

static int check_operands(struct rsh_options *o, bool one, const char *name,
			  struct rsh_error *err)
{
	if (o->n_operands < 2)
		return rsh_error_set(err, EINVAL, "strategy %s: no %s given",
				     o->operands[0], name);
	if (one && o->n_operands > 2)
		return rsh_error_set(err, EINVAL, "too many operands: %s",
				     o->operands[2]);
	return 0;
}

/* Options that the others have no use for. */
static int check_use(const struct rsh_options *o, bool derives, bool writes,
		     bool prints, struct rsh_error *err)
{
	const bool infers = is_infer(o);
	const char *given = o->vfs.derive && !derives ? "mesh (and its like)" :
			    o->vfs.drop && !derives && !infers ? "drop" :
			    o->vfs.only && !infers ? "only" :
			    o->output && !writes ? "output" :
			    o->json && !prints ? "json" : NULL;

	if (given)
		return rsh_error_set(err, EINVAL, "strategy %s has no use for "
				     "--%s", o->operands[0], given);
	if (writes && !o->output)
		return rsh_error_set(err, EINVAL, "strategy %s: -o FILE is "
				     "missing", o->operands[0]);
	return 0;
}

/* Which files of a tree are meant, where there is a tree. */
static int check_tree(const struct rsh_options *o, struct rsh_error *err)
{
	const struct rsh_source_options *f = &o->vfs.files;
	const char *given = rsh_option_given(o, "select") ? "select" :
			    f->breakpoints != RSH_BREAKPOINTS_OUT ?
				    "breakpoint" :
			    f->rank_dir ? "rank-dir" :
			    f->file ? "file" :
			    f->source_map ? "source-map" :
			    f->follow_outside ? "follow-outside" : NULL;

	if (given && !is_infer(o) && !o->checkpoint)
		return rsh_error_set(err, EINVAL, "strategy %s has no use for "
				     "--%s without --checkpoint",
				     o->operands[0], given);
	return rsh_check_files(o, err);
}

int rsh_check_strategy(struct rsh_options *o, struct rsh_error *err)
{
	const char *what = o->operands[0];
	bool show = strcmp(what, "show") == 0;
	bool merge = strcmp(what, "merge") == 0;
	bool check = strcmp(what, "check") == 0;
	bool derive = strcmp(what, "derive") == 0;
	bool infer = is_infer(o);
	int rc;

	if (!show && !merge && !check && !derive && !infer)
		return rsh_error_set(err, EINVAL, "strategy %s: expected show, "
				     "merge, check, derive or infer", what);
	rc = check_operands(o, show || derive || infer,
			    infer ? "SOURCE" : "STRATEGY", err);
	if (rc == 0)
		rc = check_use(o, derive, merge || derive,
			       show || check || infer, err);
	if (rc == 0)
		rc = check_tree(o, err);
	if (rc)
		return rc;
	o->vfs.source = o->operands[1];
	if (o->checkpoint && !check && !derive)
		return rsh_error_set(err, EINVAL, "strategy %s has no use for "
				     "--checkpoint", what);
	if (check && o->checkpoint && !o->vfs.src.from)
		return rsh_error_set(err, EINVAL, "--src-strategy is missing "
				     "(\"none\" if --checkpoint is not "
				     "sharded)");
	if (o->vfs.src.from && !(check && o->checkpoint))
		return rsh_error_set(err, EINVAL, "--src-strategy is for "
				     "strategy check --checkpoint");
	if (derive && !rsh_option_given(o, "mesh"))
		return rsh_error_set(err, EINVAL, "strategy derive: --mesh is "
				     "missing, as in --mesh dp=2,mp=4");
	return 0;
}
