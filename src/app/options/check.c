/* SPDX-License-Identifier: Apache-2.0 */
/* app/options/check.c checks the options of a command together, after all are
 * set, and refuses a command line that is incomplete or contradicts itself. */
#include "config.h"

#include "rsh/app/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/app/commands.h"
#include "rsh/app/options.h"
#include "rsh/app/table.h"
#include "rsh/formats/formats.h"
#include "rsh/source/source.h"
#include "rsh/source/tables.h"
#include "rsh/util/files.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/wire/file_type.h"
#include "rsh/wire/manifest.h"

int rsh_check_files(const struct rsh_options *o, struct rsh_error *err)
{
	const char *dir = o->vfs.files.rank_dir, *file = o->vfs.files.file;
	const char *value = dir ? dir : file;

	if (o->vfs.files.source_map && value)
		return rsh_error_set(err, EINVAL, "--source-map names every "
				     "file: --rank-dir and --file cannot be "
				     "used with it");
	if ((dir && *dir == '/') || (file && *file == '/'))
		return rsh_error_set(err, EINVAL, "--%s \"%s\": must be a "
				     "path below SOURCE without a leading "
				     "slash, such as %s",
				     dir && *dir == '/' ? "rank-dir" : "file",
				     dir && *dir == '/' ? dir : file,
				     dir && *dir == '/' ? "rank_{rank}" :
				     "rank_{rank}/net.ckpt");
	/* A file without a directory is searched in the directories of the
	 * ranks. */
	if ((dir || (file && strchr(file, '/'))) &&
	    !(dir && strstr(dir, "{rank}")) &&
	    !(file && strstr(file, "{rank}")))
		return rsh_error_set(err, EINVAL, "--%s \"%s\": \"{rank}\", "
				     "the placeholder of the rank number, is "
				     "missing", dir ? "rank-dir" : "file", value);
	return 0;
}

static int check_refuse_unfit(const char *option, unsigned takes,
			      const char *more, struct rsh_error *err)
{
	char names[64] = "";

	rsh_output_names(takes, names, sizeof(names));
	return rsh_error_set(err, EINVAL, "--%s needs --format %s%s", option,
			     names, more);
}

/* Checks that the options fit the output format, for one whole model and for
 * files of ranks without a strategy. */
static int check_output(const struct rsh_vfs_config *v, struct rsh_error *err)
{
	const struct rsh_output *out = v->output, *other = v->weights.follows;
	const unsigned takes = out->takes | (other ? other->takes : 0);
	const bool converters = v->plan.n_shown_ranks || v->plan.compat;
	const bool whole = v->dst.from == RSH_FROM_NONE;

	if (v->plan.remove_redundancy && whole)
		return rsh_error_set(err, EINVAL, "--remove-redundancy needs "
				     "a --dst-strategy: without one there "
				     "are no replicas");
	if (!(out->takes & RSH_TAKES_RANKS) && (!whole || converters))
		return rsh_error_set(err, EINVAL, "--format %s shows one whole "
				     "model, of which each rank loads its part: "
				     "leave out --dst-strategy, --dst-mesh, "
				     "--dst-ranks and --compat", out->name);
	if (!(out->takes & RSH_TAKES_CONVERTER) && converters)
		return rsh_error_set(err, EINVAL, "--format %s cannot be "
				     "used with --dst-ranks or --compat",
				     out->name);
	if (v->model_files && !(takes & RSH_TAKES_MODEL_FILES))
		return check_refuse_unfit("model-files", RSH_TAKES_MODEL_FILES,
					  "", err);
	if (v->plan.part_bytes && !(takes & RSH_TAKES_PART_SIZE))
		return check_refuse_unfit("part-size", RSH_TAKES_PART_SIZE, "",
					  err);
	if (v->keep_states && !(takes & RSH_TAKES_OPTIMIZER))
		return check_refuse_unfit("optimizer", RSH_TAKES_OPTIMIZER,
					  "", err);
	if (v->plan.n_shown_ranks && (v->src.from != RSH_FROM_NONE || !whole))
		return rsh_error_set(err, EINVAL, "--dst-ranks needs "
				     "--src-strategy none and --dst-strategy "
				     "none; a strategy defines the number of "
				     "ranks");
	return 0;
}

/* ---- a source that describes itself ---- */

/* Looking at SOURCE costs requests if it is behind HTTP, so this is done
 * once.  If its storage refuses, nothing else would be true about SOURCE. */
static int check_look(struct rsh_options *o, struct rsh_error *err)
{
	const struct rsh_vfs_config *v = &o->vfs;
	const struct rsh_source_options *f = &v->files;
	struct rsh_error why = RSH_ERROR_INIT;
	int bid;

	o->format = NULL;
	if (v->src.from == RSH_FROM_FILE || f->rank_dir || f->file ||
	    f->source_map)
		return 0;
	o->format = rsh_source_format_at(v->source, &f->store, rsh_formats,
					 &bid, &why);
	if (o->format && o->format->layout == RSH_LAYOUT_GIVEN)
		o->format = NULL;
	/* ls lists the records of a file that a link names. */
	if (!rsh_errno_is_unread(why.code) || why.code == EXDEV)
		return 0;
	o->look = -why.code;
	return rsh_error_set(err, why.code, "%s", why.text);
}

/* Checks that SOURCE has files of ranks, and that not all of them are
 * damaged. */
static int check_rank_files(const struct rsh_vfs_config *v,
			    struct rsh_error *err)
{
	struct rsh_source_options files = v->files;
	struct rsh_names *names = rsh_names_new();
	const struct rsh_error *unread;
	struct rsh_source *s = NULL;
	const char *first;
	int rc;

	files.formats = rsh_formats;
	rc = !names ? rsh_error_nomem(err) :
	     rsh_source_open(v->source, 0, UINT32_MAX, &files, &s, err) ?:
	     rsh_source_choose(s, 0, err) ?:
	     rsh_source_index(s, names, err);
	if (rc == 0 && rsh_source_n_bad(s, &first) > 0 &&
	    rsh_source_n_bad(s, &first) == rsh_source_n_files(s)) {
		unread = rsh_source_unread(s);
		rc = rsh_error_set(err, unread ? unread->code : EBADMSG, "%s",
				   unread ? unread->text : first);
	}
	rsh_source_free(s);
	rsh_names_free(names);
	return rc;
}

/* Only files of ranks need a strategy. */
static int check_needs_strategy(struct rsh_options *o, struct rsh_error *err)
{
	const struct rsh_vfs_config *v = &o->vfs;
	char hint[512];

	o->look = check_rank_files(v, err);
	if (o->look)
		return o->look;
	rsh_source_hint(v->source, &v->files.store, rsh_formats, hint,
			sizeof(hint));
	return rsh_error_set(err, EINVAL, "--src-strategy is missing (\"none\" "
			     "if SOURCE is not sharded)%s", hint);
}

/* A source that describes its sharding is shown as one whole model by
 * default. */
static void check_settle_own(struct rsh_vfs_config *v)
{
	if (v->src.from)
		return;
	v->src.from = RSH_FROM_SOURCE;
	if (!v->dst.from)
		v->dst.from = RSH_FROM_NONE;
}

/* Returns whether SOURCE is shown as a Hugging Face model. */
static bool check_wants_model(const struct rsh_options *o)
{
	const struct rsh_vfs_config *v = &o->vfs;
	const bool formed = rsh_option_given(o, "format");

	if (v->dst.from && v->dst.from != RSH_FROM_NONE)
		return false;
	if (o->format->shown == RSH_SHOWN_HF_BESIDE)
		return !v->weights.table &&
		       (v->output == rsh_output_of_models() || !formed) &&
		       !v->plan.n_shown_ranks && !v->plan.compat;
	return o->format->shown == RSH_SHOWN_HF && !formed &&
	       v->weights.from != 1 + RSH_SIDE_HF;
}

/* Sets the directory whose files are shown beside the weights: that of SOURCE.
 * Beside a single file they belong to it if a config.json is there. */
static int check_show_beside(struct rsh_options *o, struct rsh_error *err)
{
	struct rsh_vfs_config *v = &o->vfs;
	cleanup_free char *dir = rsh_source_directory(v->source);
	cleanup_free char *config = NULL;

	if (rsh_option_given(o, "model-files") ||
	    (rsh_store_is_address(v->source) &&
	     rsh_file_type_of(v->source) != RSH_FILE_OTHER))
		return 0;
	if (dir && strcmp(dir, v->source) == 0) {
		v->model_files = v->source;
		return 0;
	}
	config = dir ? rsh_text_format("%s/" RSH_MODEL_CONFIG_NAME, dir) : NULL;
	if (!config)
		return rsh_error_nomem(err);
	if (!rsh_store_is_address(dir) && !rsh_is_file(config))
		return 0;
	v->model_files = rsh_options_keep(o, dir);
	return v->model_files ? 0 : rsh_error_nomem(err);
}

/* A whole model is shown as a whole model unless the options say otherwise.  A
 * Hugging Face model is shown with the files beside its weights. */
static int check_settle_whole(struct rsh_options *o, struct rsh_error *err)
{
	struct rsh_vfs_config *v = &o->vfs;
	const enum rsh_select select = v->files.select;
	const bool as_model = check_wants_model(o);

	if (v->dst.from == RSH_FROM_DERIVED)
		return rsh_error_set(err, EINVAL, "--dst-mesh needs a source "
				     "strategy, but a %s has none: use "
				     "--dst-strategy", o->format->says);
	if (!o->format->by_name && (v->plan.n_shown_ranks || v->plan.compat))
		return rsh_error_set(err, EINVAL, "--dst-ranks and --compat "
				     "are for MindSpore's rank files, but "
				     "SOURCE is a %s", o->format->says);
	/* If a format is recognised by names (`by_name`), an explicit choice
	 * may mean other files beside the model. */
	if (!o->format->by_name ? select != RSH_SELECT_NEWEST :
	    !v->src.from && ((select != RSH_SELECT_NEWEST &&
			      select != RSH_SELECT_MINDSPORE) ||
			     v->files.breakpoints == RSH_BREAKPOINTS_ONLY))
		return rsh_error_set(err, EINVAL, "--select and --breakpoint "
				     "choose a step, but SOURCE is a single "
				     "%s", o->format->says);
	v->src.from = RSH_FROM_NONE;
	if (!v->dst.from)
		v->dst.from = RSH_FROM_NONE;
	if (!as_model)
		return 0;
	v->output = rsh_output_of_models();
	return o->format->shown == RSH_SHOWN_HF_BESIDE ?
	       check_show_beside(o, err) : 0;
}

/* An output that is one whole model needs no strategy. */
static void check_settle_dst(struct rsh_vfs_config *v)
{
	if (!v->dst.from && !(v->output->takes & RSH_TAKES_RANKS))
		v->dst.from = RSH_FROM_NONE;
}

/* check_look() must have been called before. */
static int check_conversion(struct rsh_options *o, struct rsh_error *err)
{
	const struct rsh_vfs_config *v = &o->vfs;
	int rc = rsh_check_weights(o, err);
	struct rsh_plan_options *p = &o->vfs.plan;
	bool differs;

	if (rc == 0 && o->format && o->format->layout == RSH_LAYOUT_WHOLE)
		rc = check_settle_whole(o, err);
	else if (rc == 0 && o->format)
		check_settle_own(&o->vfs);
	if (rc)
		return rc;
	if (rsh_option_given(o, "dst-mesh") &&
	    rsh_option_given(o, "dst-strategy"))
		return rsh_error_set(err, EINVAL, "--dst-mesh and "
				     "--dst-strategy cannot be used together");
	if (v->src.from == RSH_FROM_SOURCE && v->dst.from == RSH_FROM_DERIVED)
		return rsh_error_set(err, EINVAL, "--dst-mesh needs a source "
				     "strategy file, but SOURCE has none: "
				     "use --dst-strategy");
	check_settle_dst(&o->vfs);
	if (!v->src.from)
		return check_needs_strategy(o, err);
	if (!v->dst.from)
		return rsh_error_set(err, EINVAL, "--dst-strategy is missing "
				     "(\"none\" for whole tensors), or "
				     "--dst-mesh");
	/* The compatible mode must write the converter's bytes, so it is
	 * refused together with options that the converter does not have. */
	differs = p->remove_redundancy || p->cast || v->rename || v->only ||
		  v->drop || p->unlisted != RSH_UNLISTED_COPY;
	if (p->compat && differs)
		return rsh_error_set(err, EINVAL, "--compat=mindspore cannot "
				     "be used with --unlisted, --only, "
				     "--drop, --rename, --cast or "
				     "--remove-redundancy");
	if (v->output->takes & RSH_TAKES_MODEL_FILES &&
	    !rsh_option_given(o, "model-files"))
		o->vfs.shown_config = v->weights.config;
	rc = check_output(v, err);
	p->may_compat = !differs && (v->output->takes & RSH_TAKES_RANKS) &&
			(v->output->takes & RSH_TAKES_CONVERTER);
	return rc ? rc : rsh_check_files(o, err);
}

int rsh_check_conversion(struct rsh_options *o, struct rsh_error *err)
{
	return check_look(o, err) ?: check_conversion(o, err);
}

/* These choose one step, or need one. */
static int check_steps(const struct rsh_options *o, struct rsh_error *err)
{
	static const char *const refused[] = {
		"resume", "select", "fallbacks", "source-map",
	};

	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
		if (rsh_option_given(o, refused[i]))
			return rsh_error_set(err, EINVAL, "--%s cannot be used "
					     "with --steps all", refused[i]);
	if (o->vfs.plan.compat)
		return rsh_error_set(err, EINVAL, "--compat cannot be used "
				     "with --steps all: the converter chooses "
				     "no step");
	if (rsh_store_is_address(o->vfs.source) &&
	    strncmp(o->vfs.source, "s3:", 3) != 0)
		return rsh_error_set(err, EINVAL, "%s: --steps all needs a "
				     "directory or s3://: a web server lists "
				     "no steps", o->vfs.source);
	if (o->io_mode == RSH_IO_PASSTHROUGH)
		return rsh_error_set(err, EINVAL, "--io-mode passthrough "
				     "cannot be used with --steps all: the "
				     "kernel does not notice that a job "
				     "overwrites a file");
	return rsh_check_files(o, err);
}

/* If both strategies are given or known, ls prints what a mount would show. */
int rsh_check_ls(struct rsh_options *o, struct rsh_error *err)
{
	int rc;

	o->vfs.source = o->operands[0];
	rc = check_look(o, err);
	if (rc)
		return rc;
	if (o->vfs.src.from)
		check_settle_dst(&o->vfs);
	return o->format || rsh_options_convert(o) ||
	       rsh_weights_change(&o->vfs.weights) ?
		check_conversion(o, err) : rsh_check_files(o, err);
}

int rsh_check_plan(struct rsh_options *o, struct rsh_error *err)
{
	int rc = rsh_ranks_check(o, 1, err);

	o->vfs.source = o->operands[0];
	return rc ? rc : rsh_check_conversion(o, err);
}

int rsh_check_export(struct rsh_options *o, struct rsh_error *err)
{
	int rc = rsh_ranks_check(o, 2, err);

	o->vfs.source = o->operands[0];
	o->directory = o->operands[1];
	return rc ? rc : rsh_check_conversion(o, err);
}

/* The operands decide what verify compares. */
int rsh_check_verify(struct rsh_options *o, struct rsh_error *err)
{
	const enum rsh_verify_kind kind = rsh_verify_kind_of(o);
	const bool says = o->vfs.src.from || o->vfs.dst.from ||
			  rsh_weights_change(&o->vfs.weights);
	const char *option = rsh_verify_of_source(o);
	bool converts;
	int rc = rsh_ranks_check(o, 2, err);

	o->vfs.source = o->operands[0];
	if (rc)
		return rc;
	if (kind == RSH_VERIFY_FILES && says)
		return rsh_error_set(err, EINVAL, "%s is a file: with a "
				     "strategy the first operand must be "
				     "SOURCE, a directory", o->vfs.source);
	if (kind == RSH_VERIFY_FILES && (o->n_operands > 2 ||
					 o->write_manifest))
		return rsh_error_set(err, EINVAL, "RANK and --write-manifest "
				     "need a conversion; here files are "
				     "compared with a manifest");
	if (kind == RSH_VERIFY_FILES)
		return option ? rsh_error_set(err, EINVAL, "--%s needs a "
					      "SOURCE; here files are compared "
					      "with a manifest", option) : 0;
	rc = check_look(o, err);
	if (rc)
		return rc;
	converts = kind != RSH_VERIFY_SOURCE || o->write_manifest ||
		   rsh_weights_change(&o->vfs.weights);
	/* This is the default of a source that describes itself. */
	if (o->format && !converts && o->vfs.dst.from == RSH_FROM_NONE)
		o->vfs.dst.from = 0;
	return converts || o->vfs.dst.from ?
		check_conversion(o, err) : rsh_check_files(o, err);
}

int rsh_check_mount(struct rsh_options *o, struct rsh_error *err)
{
	cleanup_free char *full = NULL;
	const char *bad;
	const struct rsh_option *def = NULL;

	/* A daemon leaves its working directory, and other programs read the
	 * table of mounts in other directories, so the path is made
	 * absolute. */
	o->vfs.source = o->operands[0];
	if (*o->vfs.source != '/')
		full = realpath(o->vfs.source, NULL);
	if (full)
		o->vfs.source = rsh_options_keep(o, full);
	if (!o->vfs.source)
		return rsh_error_nomem(err);
	o->mountpoint = o->operands[1];
	if (o->log_to == RSH_LOG_TO_STDERR && !o->foreground)
		return rsh_error_set(err, EINVAL, "--log-to stderr needs -f: "
				     "a daemon has no standard error");
	if (o->steps)
		return check_steps(o, err);
	if (o->steps_interval)
		return rsh_error_set(err, EINVAL, "--steps-interval needs "
				     "--steps all");
	if (!o->resume)
		return rsh_check_conversion(o, err);
	/* Options of a conversion have no effect with --resume, so they are
	 * refused. */
	bad = o->vfs.files.select == RSH_SELECT_MINDSPORE ?
			  "select mindspore" : NULL;
	while ((def = rsh_option_next(def)))
		if (def->converts && rsh_option_given(o, def->name))
			bad = def->name;
	return bad ? rsh_error_set(err, EINVAL, "--%s cannot be used with "
				   "--resume, which converts nothing", bad) : 0;
}

int rsh_check_warm(struct rsh_options *o, struct rsh_error *err)
{
	o->mountpoint = o->operands[0];
	o->contents |= o->n_shares > 0;
	return rsh_ranks_check(o, 1, err);
}

int rsh_check_mountpoint(struct rsh_options *o, struct rsh_error *err)
{
	(void)err;
	o->mountpoint = o->operands[0];
	return 0;
}

/* ---- what `verify` compares ---- */

enum rsh_verify_kind rsh_verify_kind_of(const struct rsh_options *o)
{
	const char *other = o->n_operands > 1 ? o->operands[1] : NULL;
	const struct rsh_store_options *how = &o->vfs.files.store;
	struct rsh_error unused = RSH_ERROR_INIT;
	const struct rsh_format *f;
	int bid;

	/* A single file may be a source. */
	if (rsh_is_file(o->operands[0])) {
		rsh_source_format_at(o->operands[0], how, rsh_formats, &bid,
				     &unused);
		if (bid <= RSH_BID_ANY)
			return RSH_VERIFY_FILES;
	}
	if (!other)
		return RSH_VERIFY_SOURCE;
	if (!rsh_is_file(other))
		return RSH_VERIFY_TREE;
	if (o->vfs.src.from || o->vfs.dst.from ||
	    rsh_weights_change(&o->vfs.weights))
		return RSH_VERIFY_MANIFEST;
	/* A whole model may also be the output of an export. */
	f = rsh_source_format_at(o->operands[0], how, rsh_formats, &bid,
				 &unused);
	return f && (f->layout == RSH_LAYOUT_OWN ||
		     (f->layout == RSH_LAYOUT_WHOLE && f->list)) ?
	       RSH_VERIFY_MANIFEST : RSH_VERIFY_FILES;
}

bool rsh_verify_has_manifest(const struct rsh_options *o)
{
	const struct rsh_store_options opts = {
		.objects = o->vfs.files.store.objects,
		.place = o->vfs.files.store.place, .follow_outside = true,
	};
	struct rsh_error unused = RSH_ERROR_INIT;
	struct rsh_store *s = NULL;
	struct rsh_stat st;
	bool has;

	/* A file that cannot be opened is reported later, where it is
	 * needed. */
	if (rsh_store_open(o->operands[0], &opts, &s, &unused))
		return false;
	has = rsh_store_look(s, RSH_MANIFEST_NAME, &st) == 0 &&
	      st.kind == RSH_IS_FILE;
	rsh_store_free(s);
	return has;
}

const char *rsh_verify_of_source(const struct rsh_options *o)
{
	static const char *const others[] = {
		"select", "breakpoint", "fallbacks", "check", "write-manifest",
	};
	const struct rsh_option *def = NULL;

	while ((def = rsh_option_next(def)))
		if (def->converts && rsh_option_given(o, def->name))
			return def->name;
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (rsh_option_given(o, others[i]))
			return others[i];
	return NULL;
}
