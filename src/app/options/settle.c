/* SPDX-License-Identifier: Apache-2.0 */
/* app/options/settle.c settles what options say that were not given, once
 * SOURCE has been looked at, and refuses what contradicts SOURCE.
 *
 * Strategies have MindSpore's names.  So if --from is not given, the side with
 * a strategy is the MindSpore side.
 */
#include "config.h"

#include "rsh/app/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "options_i.h"
#include "rsh/formats/formats.h"
#include "rsh/source/save_dir.h"
#include "rsh/util/files.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

#define FROM_HF (1 + RSH_SIDE_HF)
#define FROM_MINDSPORE (1 + RSH_SIDE_MINDSPORE)

/* Hugging Face's tools use this size. */
#define DEFAULT_PART_BYTES UINT64_C(5000000000)

/* ---- SOURCE ---- */

/* If SOURCE has steps, of which each is a SOURCE, one of them is taken.  `ls`
 * lists them. */
static int settle_step(struct rsh_options *o, struct rsh_error *err)
{
	struct rsh_vfs_config *v = &o->vfs;
	cleanup_free char *step = NULL;
	int rc;

	if (!o->format || o->format->layout != RSH_LAYOUT_WHOLE ||
	    !o->format->choose ||
	    (o->command && o->command->id == RSH_COMMAND_LS))
		return 0;
	rc = rsh_source_find_step(v->source, &v->files, v->fallbacks, &step,
				  err);
	/* What is wrong with SOURCE is no wrong option. */
	o->look = rc;
	if (rc || !step)
		return rc;
	v->files.steps_dir = v->source;
	v->source = rsh_arena_strdup(&o->memory, step);
	v->files.select = RSH_SELECT_NEWEST;
	return v->source ? 0 : rsh_error_nomem(err);
}

/* Looking at SOURCE costs requests if it is behind HTTP, so this is done
 * once.  If its storage refuses, nothing else would be true about SOURCE. */
int rsh_settle_look(struct rsh_options *o, struct rsh_error *err)
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
	if (f->base && !f->steps_dir && !why.code &&
	    !(o->format && o->format->takes_base))
		return rsh_error_set(err, EINVAL, "--base is for a directory "
				     "of weight versions, but SOURCE is %s%s",
				     o->format ? "a " : "none", o->format ?
				     o->format->says : "");
	/* ls lists the records of a file that a link names. */
	if (!rsh_errno_is_unread(why.code) || why.code == EXDEV)
		return settle_step(o, err);
	o->look = -why.code;
	return rsh_error_set(err, why.code, "%s", why.text);
}

/* Checks that SOURCE has files of ranks, and that not all of them are
 * damaged. */
static int check_rank_files(const struct rsh_vfs_config *v,
			    struct rsh_error *err)
{
	cleanup_names struct rsh_names *names = rsh_names_new();
	const struct rsh_error *unread;
	cleanup_source struct rsh_source *s = NULL;
	const char *first;
	int rc = !names ? rsh_error_nomem(err) :
		 rsh_source_open(v->source, 0, UINT32_MAX, &v->files, &s,
				 err) ?:
		 rsh_source_choose(s, 0, err) ?:
		 rsh_source_index(s, names, err);

	if (rc == 0 && rsh_source_n_bad(s, &first) > 0 &&
	    rsh_source_n_bad(s, &first) == rsh_source_n_files(s)) {
		unread = rsh_source_unread(s);
		rc = rsh_error_set(err, unread ? unread->code : EBADMSG, "%s",
				   unread ? unread->text : first);
	}
	return rc;
}

/* Only files of ranks need a strategy. */
static int refuse_unsaid_strategy(struct rsh_options *o, struct rsh_error *err)
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

/* ---- the two forms of a model's weights ---- */

/* The config.json of SOURCE is used without --config, too. */
static int settle_unused_config(struct rsh_vfs_config *v, struct rsh_error *err)
{
	cleanup_free char *own = rsh_text_format("%s/" RSH_MODEL_CONFIG_NAME,
						 v->source);
	struct stat given, mine;

	if (!own)
		return rsh_error_nomem(err);
	if (v->weights.config &&
	    (stat(v->weights.config, &given) || stat(own, &mine) ||
	     given.st_dev != mine.st_dev || given.st_ino != mine.st_ino))
		return rsh_error_set(err, EINVAL, "--config needs --convert "
				     "or --dequantize");
	v->weights.config = NULL;
	return 0;
}

/* Settles which side has which form.  A Hugging Face model is not sharded, and
 * has its own output format. */
static int settle_sides(struct rsh_options *o, struct rsh_error *err)
{
	struct rsh_vfs_config *v = &o->vfs;
	struct rsh_weights_at *w = &v->weights;
	const unsigned words = o->format ? o->format->words : RSH_WORDS_ANY;
	const bool formed = rsh_option_given(o, "format");

	if (!w->from && (v->src.from == RSH_FROM_FILE ||
			 (!v->src.from && words == RSH_WORDS_MINDSPORE)))
		w->from = FROM_MINDSPORE;
	if (!w->from && v->dst.from == RSH_FROM_FILE)
		w->from = FROM_HF;
	/* If neither the side nor the format is given, the names of a whole
	 * model will decide in which form it is shown. */
	w->follows = !w->from && words == RSH_WORDS_EITHER && !formed &&
		     !(v->src.from && v->dst.from) ?
		     rsh_output_of_models() : NULL;
	if (w->from == FROM_HF && v->src.from == RSH_FROM_FILE)
		return rsh_error_set(err, EINVAL, "SOURCE has Hugging Face's "
				     "names, but a strategy has MindSpore's: "
				     "use --src-strategy none");
	if (w->from == FROM_HF && !v->src.from)
		v->src.from = RSH_FROM_NONE;
	if (w->from != FROM_MINDSPORE)
		return 0;
	if (v->dst.from == RSH_FROM_FILE)
		return rsh_error_set(err, EINVAL, "the output has Hugging "
				     "Face's names, but a strategy has "
				     "MindSpore's: use --dst-strategy none");
	if (!(v->output->takes & RSH_TAKES_HF_NAMES))
		return rsh_error_set(err, EINVAL, "--format %s is for "
				     "MindSpore's names, but the output has "
				     "Hugging Face's", v->output->name);
	if (!v->dst.from)
		v->dst.from = RSH_FROM_NONE;
	if (!formed)
		v->output = rsh_output_of_models();
	return 0;
}

/* A table between two forms of whole models needs no strategy, and makes a
 * model. */
static int settle_models(struct rsh_options *o, struct rsh_error *err)
{
	struct rsh_vfs_config *v = &o->vfs;

	if (v->src.from > RSH_FROM_NONE || v->dst.from > RSH_FROM_NONE)
		return rsh_error_set(err, EINVAL, "%s converts whole models: a "
				     "strategy cannot list their tensors",
				     v->weights.table);
	v->src.from = v->dst.from = RSH_FROM_NONE;
	if (!rsh_option_given(o, "format"))
		v->output = rsh_output_of_models();
	return 0;
}

static int settle_table(struct rsh_options *o, struct rsh_error *err)
{
	struct rsh_weights_at *w = &o->vfs.weights;
	cleanup_free char *path = NULL;
	struct rsh_rule_table *t = NULL;
	struct rsh_error unused = RSH_ERROR_INIT;
	int rc;

	w->unlisted = rsh_option_given(o, "unlisted") ? o->vfs.plan.unlisted :
							RSH_UNLISTED_ERROR;
	/* Rules decide; what only the strategy does not list is copied, whether
	 * the default is given or not. */
	if (w->unlisted == RSH_UNLISTED_ERROR)
		o->vfs.plan.unlisted = RSH_UNLISTED_COPY;
	if (strcmp(w->table, RSH_TABLE_AUTO) == 0)
		return settle_sides(o, err);
	rc = rsh_table_find(w->table, &path, err);
	if (rc)
		return rc;
	/* Whoever uses the table says what is wrong with it. */
	w->of_models = rsh_table_is_word(path) ||
		       (rsh_rule_table_load(path, &t, &unused) == 0 &&
			t->group);
	rsh_rule_table_free(t);
	w->table = rsh_arena_strdup(&o->memory, path);
	if (!w->table)
		return rsh_error_nomem(err);
	return w->of_models ? settle_models(o, err) : settle_sides(o, err);
}

/* Sets the directory of the files that are shown beside the weights. */
static int keep_model_files(struct rsh_options *o, char *dir,
			    struct rsh_error *err)
{
	if (dir)
		o->vfs.model_files = rsh_arena_strdup(&o->memory, dir);
	return dir && o->vfs.model_files ? 0 : rsh_error_nomem(err);
}

static int settle_weights(struct rsh_options *o, struct rsh_error *err)
{
	struct rsh_vfs_config *v = &o->vfs;
	const struct rsh_weights_at *w = &v->weights;
	cleanup_free char *dir = NULL;
	int rc;

	if (o->format && o->format->is_adapter) {
		if (!(v->output->takes & RSH_TAKES_ADAPTER) || !w->table ||
		    w->lora_alpha)
			return rsh_error_set(err, EINVAL, "%s: it is an "
				"adapter: --lora DIR merges it into the model "
				"of SOURCE; --convert hf5 --format peft "
				"--config MODEL shows it with other names",
				v->source);
	} else if ((v->output->takes & RSH_TAKES_ADAPTER) &&
		   (!w->table || !w->lora_alpha))
		return rsh_error_set(err, EINVAL, "--format %s needs --convert "
				     "and --lora-alpha: PEFT has Hugging "
				     "Face's names and lora_alpha, and a "
				     "checkpoint of MindSpore has neither",
				     v->output->name);
	rc = rsh_vfs_find_adapters(v, &o->memory, err);
	if (rc == 0 && !rsh_weights_change(w))
		return v->output->takes & RSH_TAKES_MESH ? 0 :
		       settle_unused_config(v, err);
	if (rc == 0 && w->table)
		rc = settle_table(o, err);
	/* The files that belong to a Hugging Face model are in the directory of
	 * its config.json. */
	if (rc || !w->config || (w->from == FROM_HF && !w->of_models) ||
	    rsh_option_given(o, "model-files") ||
	    !((v->output->takes | (w->follows ? w->follows->takes : 0)) &
	      RSH_TAKES_MODEL_FILES))
		return rc;
	dir = rsh_path_directory(w->config);
	return keep_model_files(o, dir, err);
}

/* ---- a source that describes itself ---- */

/* Returns whether SOURCE is shown as a Hugging Face model. */
static bool wants_model(const struct rsh_options *o)
{
	const struct rsh_vfs_config *v = &o->vfs;
	const bool formed = rsh_option_given(o, "format");

	if (v->dst.from && v->dst.from != RSH_FROM_NONE)
		return false;
	if (o->format->shown == RSH_SHOWN_HF_BESIDE)
		return (!v->weights.table || v->weights.of_models) &&
		       (v->output == rsh_output_of_models() || !formed) &&
		       !v->plan.n_shown_ranks && !v->plan.compat;
	return o->format->shown == RSH_SHOWN_HF && !formed &&
	       (v->weights.from != FROM_HF || v->weights.of_models);
}

/* Returns whether a directory has an entry of that name, or NULL: any. */
static bool has_entry(const struct rsh_vfs_config *v, const char *dir,
		      const char *wanted)
{
	struct rsh_store_options how = v->files.store;
	cleanup_dir struct rsh_dir *at = NULL;
	const char *name;

	if (strlen(dir) < strlen(v->source))
		how.place = NULL;
	if (rsh_dir_open_path(dir, &how, &at))
		return false;
	while (rsh_dir_next(at, &name) > 0)
		if (!wanted || strcmp(name, wanted) == 0)
			return true;
	return false;
}

/* Sets *out to the directory with the files beside the weights of a step, from
 * malloc; NULL: there is none. */
static int find_beside(const struct rsh_options *o, char **out,
		       struct rsh_error *err)
{
	const struct rsh_vfs_config *v = &o->vfs;
	const char *beside = o->format->beside ?: ".";
	const bool above = strcmp(beside, "..") == 0;
	cleanup_free char *dir = above ? strdup(v->source) :
		rsh_text_format("%s/%s", v->source, beside);

	if (o->format->find_beside)
		return o->format->find_beside(v->source, &v->files, out, err);
	*out = NULL;
	if (above && dir && !has_entry(v, dir, RSH_MODEL_CONFIG_NAME)) {
		char *step = dir;

		dir = rsh_path_directory(step);
		free(step);
	}
	if (!dir)
		return rsh_error_nomem(err);
	if (has_entry(v, dir, above ? RSH_MODEL_CONFIG_NAME : NULL))
		*out = steal_pointer(&dir);
	return 0;
}

/* Sets the directory whose files are shown beside the weights: that of SOURCE
 * or, for a format whose steps have a directory for them, that one.  Beside a
 * single file they belong to it if a config.json is there. */
static int settle_beside(struct rsh_options *o, struct rsh_error *err)
{
	struct rsh_vfs_config *v = &o->vfs;
	const struct rsh_format *f = o->format;
	const bool far = rsh_store_is_address(v->source);
	cleanup_free char *dir = NULL, *config = NULL;
	int rc;

	if (rsh_option_given(o, "model-files"))
		return 0;
	if (f->shown != RSH_SHOWN_HF_BESIDE) {
		rc = f->beside || f->find_beside ? find_beside(o, &dir, err) :
						   0;
		if (rc || !dir)
			return rc;
		v->is_beside = f->is_beside;
		return keep_model_files(o, dir, err);
	}
	if (far && rsh_file_type_of(v->source) != RSH_FILE_OTHER)
		return 0;
	dir = rsh_source_directory(v->source);
	config = dir ? rsh_text_format("%s/" RSH_MODEL_CONFIG_NAME, dir) : NULL;
	if (!config)
		return rsh_error_nomem(err);
	return strcmp(dir, v->source) == 0 || far || rsh_is_file(config) ?
		keep_model_files(o, dir, err) : 0;
}

/* A whole model is shown as a whole model unless the options say otherwise.  A
 * Hugging Face model is shown with the files beside its weights. */
static int settle_whole(struct rsh_options *o, struct rsh_error *err)
{
	struct rsh_vfs_config *v = &o->vfs;
	const struct rsh_format *f = o->format;
	const enum rsh_select select = v->files.select;
	const bool as_model = wants_model(o);

	if (v->dst.from == RSH_FROM_DERIVED)
		return rsh_error_set(err, EINVAL, "--dst-mesh needs a source "
				     "strategy, but a %s has none: use "
				     "--dst-strategy", f->says);
	if (!f->by_name && (v->plan.n_shown_ranks || v->plan.compat))
		return rsh_error_set(err, EINVAL, "--dst-ranks and --compat "
				     "are for MindSpore's rank files, but "
				     "SOURCE is a %s", f->says);
	/* If a format is recognised by names (`by_name`), an explicit choice
	 * may mean other files beside the model. */
	if (!f->by_name ? select != RSH_SELECT_NEWEST :
	    !v->src.from && ((select != RSH_SELECT_NEWEST &&
			      select != RSH_SELECT_MINDSPORE) ||
			     v->files.breakpoints == RSH_BREAKPOINTS_ONLY))
		return rsh_error_set(err, EINVAL, "--select and --breakpoint "
				     "choose a step, but SOURCE is a single "
				     "%s", f->says);
	v->src.from = RSH_FROM_NONE;
	if (!v->dst.from)
		v->dst.from = RSH_FROM_NONE;
	if (!as_model)
		return 0;
	v->output = rsh_output_of_models();
	return settle_beside(o, err);
}

/* ---- the output ---- */

/* An output that is one whole model needs no strategy. */
void rsh_settle_dst(struct rsh_vfs_config *v)
{
	if (!v->dst.from && !(v->output->takes & RSH_TAKES_RANKS))
		v->dst.from = RSH_FROM_NONE;
}

/* Settles what follows from the output, for one whole model and for files of
 * ranks without a strategy. */
static int settle_output(struct rsh_options *o, struct rsh_error *err)
{
	struct rsh_vfs_config *v = &o->vfs;
	struct rsh_plan_options *p = &v->plan;
	const struct rsh_output *out = v->output;
	const bool whole = v->dst.from == RSH_FROM_NONE;

	if (p->remove_redundancy && whole)
		return rsh_error_set(err, EINVAL, "--remove-redundancy needs "
				     "a --dst-strategy: without one there "
				     "are no replicas");
	if (!(out->takes & RSH_TAKES_RANKS) && !whole)
		return rsh_error_set(err, EINVAL, "--format %s shows one whole "
				     "model, of which each rank loads its "
				     "part: leave out --dst-strategy and "
				     "--dst-mesh", out->name);
	if (p->n_shown_ranks && (v->src.from != RSH_FROM_NONE || !whole))
		return rsh_error_set(err, EINVAL, "--dst-ranks needs "
				     "--src-strategy none and --dst-strategy "
				     "none; a strategy defines the number of "
				     "ranks");
	if (out->takes & RSH_TAKES_MODEL_FILES &&
	    !rsh_option_given(o, "model-files"))
		v->shown_config = v->weights.config;
	/* The compatible mode must write the converter's bytes, so it excludes
	 * options that the converter does not have. */
	p->may_compat = (out->takes & RSH_TAKES_RANKS) &&
			(out->takes & RSH_TAKES_CONVERTER) &&
			!p->remove_redundancy && !p->cast && !v->rename &&
			!rsh_choice_is_given(&v->choice) &&
			p->unlisted == RSH_UNLISTED_COPY;
	v->weights.part_bytes = p->part_bytes ? p->part_bytes :
				out->part_bytes ? out->part_bytes :
						  DEFAULT_PART_BYTES;
	/* If a Hugging Face model is shown with the files beside its weights,
	 * its optimizer states belong to the model and are kept. */
	v->leave_states = out->takes & RSH_TAKES_OPTIMIZER && !v->keep_states &&
			  !rsh_choice_is_given(&v->choice) &&
			  !(o->format &&
			    o->format->shown == RSH_SHOWN_HF_BESIDE);
	v->leave_states |= (out->takes & RSH_TAKES_WEIGHTS_ALONE) != 0;
	v->leave_states &= !v->weights.table;
	if (rsh_rules_check_output(o, err))
		return -EINVAL;
	p->part_bytes = out->division == RSH_DIVIDE_PARTS ?
			v->weights.part_bytes : 0;
	return 0;
}

/* The model of a step may have its config.json in a directory below.  That of
 * files that are shown beside it is the model's, too. */
static int settle_own_config(struct rsh_options *o, struct rsh_error *err)
{
	struct rsh_weights_at *w = &o->vfs.weights;
	const struct rsh_format *f = o->format;
	cleanup_free char *own = NULL;
	const char *path, *dir = NULL;
	int rc = 0;

	if (w->config || (!w->table && !w->dequantise))
		return 0;
	if (f && (f->beside || f->find_beside)) {
		rc = find_beside(o, &own, err);
		dir = own;
	} else if (rsh_option_given(o, "model-files")) {
		own = rsh_source_directory(o->vfs.source);
		if (!own)
			rc = rsh_error_nomem(err);
		else if (!has_entry(&o->vfs, own, RSH_MODEL_CONFIG_NAME))
			dir = o->vfs.model_files;
	}
	if (rc || !dir)
		return rc;
	path = rsh_arena_format(&o->memory, "%s/" RSH_MODEL_CONFIG_NAME, dir);
	if (!path)
		return rsh_error_nomem(err);
	/* Loading one of which nothing is known reports the error. */
	errno = 0;
	if (rsh_is_file(path) || rsh_errno_is_unread(errno))
		w->config = path;
	return 0;
}

/* An output that divides the model itself needs no strategy for its mesh. */
static int settle_mesh(struct rsh_options *o, struct rsh_error *err)
{
	struct rsh_vfs_config *v = &o->vfs;

	if (!(v->output->takes & RSH_TAKES_MESH))
		return v->mesh && v->weights.table ?
		       rsh_error_set(err, EINVAL, "--dst-mesh and --convert "
				     "cannot be used together") : 0;
	if (v->dst.from == RSH_FROM_FILE)
		return rsh_error_set(err, EINVAL, "--format %s needs "
				     "--dst-mesh, and no strategy",
				     v->output->name);
	v->dst.from = RSH_FROM_NONE;
	if (!rsh_option_given(o, "prefix"))
		v->tree.prefix = v->output->step;
	return v->output->check_mesh(&(struct rsh_output_mesh){
		v->mesh, v->pipeline_layers, v->tree.prefix }, err);
}

int rsh_settle_conversion(struct rsh_options *o, struct rsh_error *err)
{
	struct rsh_vfs_config *v = &o->vfs;
	int rc = rsh_rules_check(o, true, err) ?: settle_own_config(o, err) ?:
		 settle_mesh(o, err) ?: settle_weights(o, err);

	if (rc == 0 && o->format && o->format->layout == RSH_LAYOUT_WHOLE)
		rc = settle_whole(o, err);
	/* A source that describes its sharding is shown as one whole model by
	 * default. */
	else if (rc == 0 && o->format && !v->src.from) {
		v->src.from = RSH_FROM_SOURCE;
		if (!v->dst.from)
			v->dst.from = RSH_FROM_NONE;
	}
	if (rc)
		return rc;
	if (v->src.from == RSH_FROM_SOURCE && v->dst.from == RSH_FROM_DERIVED)
		return rsh_error_set(err, EINVAL, "--dst-mesh needs a source "
				     "strategy file, but SOURCE has none: "
				     "use --dst-strategy");
	rsh_settle_dst(v);
	if (!v->src.from)
		return refuse_unsaid_strategy(o, err);
	if (!v->dst.from)
		return rsh_error_set(err, EINVAL, "--dst-strategy is missing "
				     "(\"none\" for whole tensors), or "
				     "--dst-mesh");
	return settle_output(o, err);
}

int rsh_check_conversion(struct rsh_options *o, struct rsh_error *err)
{
	return rsh_settle_look(o, err) ?: rsh_settle_conversion(o, err);
}

/* ---- the steps of --steps all, each of which is a SOURCE ---- */

int rsh_options_of_step(const struct rsh_options *o,
			const struct rsh_saved_step *step,
			const struct rsh_store_options *store,
			struct rsh_options *out, struct rsh_error *err)
{
	struct rsh_source_options *f = &out->vfs.files;
	int rc;

	*out = *o;
	out->memory = (struct rsh_arena){ .left = 0 };
	out->steps = false;
	out->vfs = o->asked;
	out->vfs.source = step->path;
	out->vfs.fallbacks = 0;
	f->store = *store;
	f->step_files = step->files;
	f->steps_dir = step->selected ? NULL : o->asked.source;
	if (step->selected && step->step.n >= 2) {
		f->select = RSH_SELECT_STEP;
		f->epoch = step->step.numbers[0];
		f->step = step->step.numbers[1];
	} else if (step->selected) {
		f->select = RSH_SELECT_LONE_STEP;
		f->step = step->step.numbers[0];
	}
	rc = rsh_check_conversion(out, err);
	rsh_options_finish(out);
	return rc;
}
