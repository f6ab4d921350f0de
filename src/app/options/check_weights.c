/* SPDX-License-Identifier: Apache-2.0 */
/* app/options/check_weights.c checks the options of a conversion between the
 * two forms of a model's weights.
 *
 * Strategies have MindSpore's names.  So if --from is not given, the side with
 * a strategy is the MindSpore side.
 */
#include "config.h"

#include "rsh/app/check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "rsh/formats/torch.h"
#include "rsh/source/format.h"
#include "rsh/source/tables.h"
#include "rsh/util/files.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/wire/adapter_config.h"

#define FROM_HF (1 + RSH_SIDE_HF)
#define FROM_MINDSPORE (1 + RSH_SIDE_MINDSPORE)

/* ---- which side is which ---- */

static bool source_is_sharded(const struct rsh_options *o)
{
	const struct rsh_vfs_config *v = &o->vfs;

	return v->src.from == RSH_FROM_FILE ||
	       (!v->src.from && o->format &&
		o->format->words == RSH_WORDS_MINDSPORE);
}

static int check_sides(struct rsh_options *o, struct rsh_error *err)
{
	struct rsh_vfs_config *v = &o->vfs;
	struct rsh_weights_at *w = &v->weights;

	if (v->dst.from == RSH_FROM_DERIVED)
		return rsh_error_set(err, EINVAL, "--dst-mesh cannot be used "
				     "with --convert: Hugging Face weights "
				     "have no strategy");
	if (!w->from && source_is_sharded(o))
		w->from = FROM_MINDSPORE;
	if (!w->from && v->dst.from == RSH_FROM_FILE)
		w->from = FROM_HF;
	/* If neither the side nor the format is given, the names of a whole
	 * model will decide in which form it is shown. */
	w->follows = !w->from && o->format &&
		o->format->words == RSH_WORDS_EITHER &&
		!rsh_option_given(o, "format") &&
		!(v->src.from && v->dst.from) ? rsh_output_of_models() : NULL;
	if (w->from == FROM_HF && v->src.from == RSH_FROM_FILE)
		return rsh_error_set(err, EINVAL, "SOURCE has Hugging Face's "
				     "names, but a strategy has MindSpore's: "
				     "use --src-strategy none");
	if (w->from == FROM_MINDSPORE && v->dst.from == RSH_FROM_FILE)
		return rsh_error_set(err, EINVAL, "the output has Hugging "
				     "Face's names, but a strategy has "
				     "MindSpore's: use --dst-strategy none");
	return 0;
}

/* A Hugging Face model is not sharded, and has its own output format. */
static int check_assume(struct rsh_options *o, struct rsh_error *err)
{
	struct rsh_vfs_config *v = &o->vfs;

	if (v->weights.from == FROM_HF && !v->src.from)
		v->src.from = RSH_FROM_NONE;
	if (v->weights.from != FROM_MINDSPORE)
		return 0;
	if (!(v->output->takes & RSH_TAKES_HF_NAMES))
		return rsh_error_set(err, EINVAL, "--format %s is for "
				     "MindSpore's names, but the output has "
				     "Hugging Face's", v->output->name);
	if (!v->dst.from)
		v->dst.from = RSH_FROM_NONE;
	if (rsh_option_given(o, "format"))
		return 0;
	v->output = rsh_output_of_models();
	return 0;
}

/* ---- files ---- */

static int check_find_table(struct rsh_options *o, struct rsh_error *err)
{
	struct rsh_weights_at *w = &o->vfs.weights;
	cleanup_free char *path = NULL;
	int rc;

	if (strcmp(w->table, RSH_TABLE_AUTO) == 0)
		return 0;
	rc = rsh_table_find(w->table, &path, err);
	if (rc)
		return rc;
	w->table = rsh_options_keep(o, path);
	return w->table ? 0 : rsh_error_nomem(err);
}

/* The files that belong to a Hugging Face model are in the directory of its
 * config.json. */
static int check_assume_beside(struct rsh_options *o, struct rsh_error *err)
{
	struct rsh_vfs_config *v = &o->vfs;
	const char *config = v->weights.config;
	const unsigned takes = v->output->takes |
		(v->weights.follows ? v->weights.follows->takes : 0);
	cleanup_free char *dir = NULL;

	if (!config || !(takes & RSH_TAKES_MODEL_FILES) ||
	    v->weights.from == FROM_HF || rsh_option_given(o, "model-files"))
		return 0;
	dir = rsh_path_directory(config);
	v->model_files = dir ? rsh_options_keep(o, dir) : NULL;
	return v->model_files ? 0 : rsh_error_nomem(err);
}

/* Takes the file that torch.save() wrote of an adapter. */
static int check_torch_lora(struct rsh_options *o, unsigned i,
			    struct rsh_error *err)
{
	struct rsh_weights_at *w = &o->vfs.weights;
	const char *directory = w->loras[i].directory;
	cleanup_free char *path =
		rsh_text_format("%s/" RSH_ADAPTER_TORCH_NAME, directory);

	if (!path)
		return rsh_error_nomem(err);
	if (!rsh_is_file(path))
		return rsh_error_set(err, ENOENT, "%s: there is no "
				     RSH_ADAPTER_FILE_NAME " and no "
				     RSH_ADAPTER_TORCH_NAME, directory);
	w->lora_files[i] = rsh_options_keep(o, path);
	return w->lora_files[i] ? 0 : rsh_error_nomem(err);
}

/* Checks that a file of an adapter on disk is in its directory, whose path has
 * no link, as files of SOURCE are.  A missing file is not looked at. */
static int check_inside(const struct rsh_options *o, const char *directory,
			const char *path, struct rsh_error *err)
{
	const size_t n = strlen(directory);
	cleanup_free char *place = realpath(path, NULL);

	if (!place || o->vfs.files.store.follow_outside || n == 1 ||
	    (strncmp(place, directory, n) == 0 && place[n] == '/') ||
	    rsh_store_is_blob(directory, place))
		return 0;
	return rsh_error_set(err, EXDEV, "%s leads out of --lora, to %s: "
			     "--follow-outside allows it", path, place);
}

static int check_lora_links(const struct rsh_options *o, unsigned i,
			    struct rsh_error *err)
{
	const struct rsh_weights_at *w = &o->vfs.weights;
	const char *directory = w->loras[i].directory;
	cleanup_free char *config =
		rsh_text_format("%s/" RSH_ADAPTER_CONFIG_NAME, directory);

	if (!config)
		return rsh_error_nomem(err);
	return check_inside(o, directory, config, err) ?:
	       check_inside(o, directory, w->lora_files[i], err);
}

/* Checks that the file of each adapter on disk is there, and adds them to the
 * files that are read. */
static int check_loras(struct rsh_options *o, struct rsh_error *err)
{
	struct rsh_vfs_config *v = &o->vfs;
	struct rsh_weights_at *w = &v->weights;

	for (unsigned i = 0; i < w->n_loras; i++) {
		int rc = 0;

		/* In object storage the source finds the file. */
		if (rsh_store_is_address(w->lora_files[i]))
			continue;
		if (!rsh_is_file(w->lora_files[i]))
			rc = check_torch_lora(o, i, err);
		if (rc == 0)
			rc = check_lora_links(o, i, err);
		if (rc)
			return rc;
	}
	v->files.beside = w->lora_files;
	v->files.n_beside = w->n_loras;
	v->files.scan_bin = rsh_torch_scan_by_name;
	return 0;
}

/* Checks what is said of the adapters that SOURCE has beside its weights. */
static int check_own_adapters(const struct rsh_options *o,
			      struct rsh_error *err)
{
	const struct rsh_weights_at *w = &o->vfs.weights;
	const bool alone = o->vfs.output->takes & RSH_TAKES_ADAPTER;

	if (alone && (!w->table || !w->lora_alpha))
		return rsh_error_set(err, EINVAL, "--format %s needs --convert "
				     "and --lora-alpha: PEFT has Hugging Face's "
				     "names and lora_alpha, and a checkpoint of "
				     "MindSpore has neither",
				     o->vfs.output->name);
	if (w->lora_alpha && w->n_loras)
		return rsh_error_set(err, EINVAL, "--lora and --lora-alpha "
				     "cannot be used together: mount SOURCE "
				     "with one, and use the mount as SOURCE");
	return 0;
}

/* The config.json of SOURCE is used without --config, too. */
static int check_unused_config(struct rsh_options *o, struct rsh_error *err)
{
	struct rsh_vfs_config *v = &o->vfs;
	cleanup_free char *own = rsh_text_format("%s/" RSH_MODEL_CONFIG_NAME,
						 v->source);
	struct stat given, mine;

	if (!v->weights.config)
		return 0;
	if (!own)
		return rsh_error_nomem(err);
	if (stat(v->weights.config, &given) || stat(own, &mine) ||
	    given.st_dev != mine.st_dev || given.st_ino != mine.st_ino)
		return rsh_error_set(err, EINVAL, "--config needs --convert "
				     "or --dequantize");
	v->weights.config = NULL;
	return 0;
}

int rsh_check_weights(struct rsh_options *o, struct rsh_error *err)
{
	struct rsh_vfs_config *v = &o->vfs;
	struct rsh_weights_at *w = &v->weights;
	int rc = check_own_adapters(o, err) ?:
		 check_loras(o, err);

	if (rc)
		return rc;
	if (!w->table && w->from)
		return rsh_error_set(err, EINVAL, "--from needs --convert");
	if (!w->table && (w->vocab_multiple || w->untie))
		return rsh_error_set(err, EINVAL, "--%s needs --convert",
				     w->untie ? "untie" : "vocab-multiple");
	if (!rsh_weights_change(w))
		return check_unused_config(o, err);
	if (v->plan.compat || v->plan.n_shown_ranks || o->rank_list)
		return rsh_error_set(err, EINVAL, "--%s is for MindSpore's "
				     "converter and cannot be used with "
				     "--%s", v->plan.compat ? "compat" :
				     o->rank_list ? "rank-list" : "dst-ranks",
				     w->table ? "convert" :
				     w->n_loras ? "lora" :
				     w->lora_alpha ? "lora-alpha" :
				     "dequantize");
	if (!w->table)
		return check_assume_beside(o, err);
	w->unlisted = rsh_option_given(o, "unlisted") ? v->plan.unlisted :
							RSH_UNLISTED_ERROR;
	return check_sides(o, err) ?:
	       check_assume(o, err) ?:
	       check_find_table(o, err) ?:
	       check_assume_beside(o, err);
}
