/* SPDX-License-Identifier: Apache-2.0 */
/* formats/checkpoint2/checkpoint2.c - the format Checkpoint 2.0, as MindSpore
 * Transformers saves it:
 *
 *   SOURCE/latest_checkpointed_iteration.txt   the tracker
 *   SOURCE/iteration_00000008/                 a step, which SOURCE itself may
 *       metadata.json                          be; it names files and ranks
 *       model-0000003-0000008.safetensors      rank 3's weights
 *       opt-0000003-0000008.safetensors        and the optimizer's state
 *       common.json                            the state of training
 *
 * Each step is a candidate.  The step in the tracker comes first, because the
 * job has confirmed only that one as complete.  The others come next, the
 * newest first. */
#include "config.h"

#include "steps_i.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/formats/files.h"
#include "rsh/formats/formats.h"
#include "rsh/formats/ranks.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/wire/file_type.h"
#include "rsh/wire/json_load.h"

/* ---- bidding ---- */

/* A tracker alone is not enough: Megatron-LM's tracker has the same name. */
static int checkpoint2_bid(const struct rsh_look *l, struct rsh_bid_more *more)
{
	bool steps = false;
	struct rsh_ckpt2_name parts;
	uint64_t step;

	if (l->file || !rsh_look_is_plain(l) || rsh_look_is_sharded(l))
		return RSH_BID_NO;
	for (size_t i = 0; i < l->n; i++) {
		steps |= rsh_ckpt2_step_parse(l->names[i], &step);
		more->is_step |= rsh_ckpt2_name_parse(l->names[i], &parts);
	}
	return (steps || more->is_step) && !rsh_look_has_ranks(l) ?
	       RSH_BID_STEPS : RSH_BID_NO;
}

/* ---- its files ---- */

/* A file that is being written has another suffix. */
static bool checkpoint2_take(const char *name, struct rsh_checkpoint *c)
{
	struct rsh_ckpt2_name parts;

	if (!rsh_ckpt2_name_parse(name, &parts))
		return false;
	c->rank = parts.rank;
	c->kind_at = parts.n_prefix ? (unsigned)parts.n_prefix + 1 : 0;
	c->n_kind = (unsigned)strlen(parts.opt ? "opt" : "model");
	return true;
}

static int checkpoint2_list_step(const struct rsh_format_step *d,
				 struct rsh_error *err)
{
	const size_t n = rsh_source_n_on_list(d->source);
	int rc = rsh_format_list_step(d, checkpoint2_take);

	if (rc)
		return rsh_format_list_unread(d, rc, err);
	if (rsh_source_n_on_list(d->source) == n)
		rsh_log_info("%s/%s: no file in it was completed",
			     rsh_source_path(d->source), d->dir);
	return 0;
}

/* SOURCE itself is a step, perhaps under another name, "." or a link. */
static int checkpoint2_list_lone(struct rsh_source *s, struct rsh_error *err)
{
	cleanup_free char *real = realpath(rsh_source_path(s), NULL);
	const char *path = real ? real : rsh_source_path(s);
	const char *slash = strrchr(path, '/');
	struct rsh_format_step d = { .source = s, .dir = "" };

	d.label = slash && slash[1] ? slash + 1 : path;
	if (rsh_ckpt2_step_parse(d.label, &d.step.numbers[0]))
		d.step.n = 1;
	return checkpoint2_list_step(&d, err);
}

/* ---- listing ---- */

static int checkpoint2_open(struct rsh_source *s,
			    const struct rsh_source_options *opts,
			    struct rsh_error *err)
{
	cleanup_path_list struct rsh_path_list names = { 0 };
	const struct rsh_checkpoint *one;
	bool lone;
	int rc;

	if (opts->select == RSH_SELECT_MINDSPORE)
		return rsh_error_set(err, EINVAL, "%s: the converter, whose "
				     "choice --select mindspore and "
				     "--compat=mindspore are, reads no "
				     "Checkpoint 2.0", rsh_source_path(s));
	rc = rsh_path_list_read(&names, rsh_source_store(s), "");
	if (rc)
		return rsh_store_open_error(rsh_source_store(s), "", rc, err);
	for (size_t i = 0; i < names.n && rc == 0; i++) {
		struct rsh_format_step d = {
			.source = s, .dir = names.v[i], .label = names.v[i],
			.step = { .n = 1 },
		};

		if (rsh_ckpt2_step_parse(d.dir, &d.step.numbers[0]))
			rc = checkpoint2_list_step(&d, err);
	}
	if (rc == 0 && rsh_source_n_on_list(s) == 0)
		rc = checkpoint2_list_lone(s, err);
	if (rc == 0 && rsh_source_n_on_list(s) == 0)
		rc = rsh_error_set(err, ENOENT, "%s: no step in it has a file "
				   "that was completed", rsh_source_path(s));
	if (rc)
		return rc;
	one = rsh_source_on_list(s, 0);
	lone = one->name == one->base && !one->unread;
	rc = rsh_source_sort_steps(s, opts, err);
	if (rc == 0 && opts->select == RSH_SELECT_NEWEST && !lone)
		rc = rsh_source_try_tracked(s, RSH_CKPT2_TRACKER, NULL, false,
					    err);
	return rc < 0 ? rc : 0;
}

#define METADATA "metadata.json"

static void described_free(void *described)
{
	struct rsh_described *d = described;

	if (!d)
		return;
	rsh_ckpt2_free(d->metadata);
	free(d->absent);
	free(d->notes);
	free(d->path);
	free(d);
}

/* ---- metadata.json ---- */

static int described_load(const struct rsh_source *s, size_t first, size_t end,
			  struct rsh_described *d, struct rsh_error *err)
{
	const struct rsh_checkpoint *one = rsh_source_on_list(s, first);
	cleanup_free char *name = NULL;
	cleanup_handle struct rsh_handle *h = NULL;
	struct rsh_ckpt2_name parts;
	int rc;

	name = rsh_text_format("%.*s" METADATA, (int)(one->base - one->name),
			       one->name);
	d->path = name ? rsh_text_format("%s/%s", rsh_source_path(s), name) :
			 NULL;
	if (!d->path)
		return rsh_error_nomem(err);
	rc = rsh_handle_open(rsh_source_store(s), name, &h);
	if (rc && rc != -ENOENT)
		return rsh_store_open_error(rsh_source_store(s), name, rc, err);
	/* A step of one card has no metadata.json. */
	for (size_t i = first; rc && i < end; i++)
		if (rsh_ckpt2_name_parse(rsh_source_on_list(s, i)->base,
					 &parts) &&
		    (parts.of > 1 || parts.rank > 0))
			return rsh_error_set(err, ENOENT, "%s is missing, which "
					     "says how the files of %u ranks "
					     "belong together: the save was not "
					     "finished", d->path, parts.of);
	if (rc)
		return 0;
	/* An injected fault must not be stored in the index cache, and the
	 * cache must not hide it. */
	rc = rsh_index_key_take(h, &d->key);
	if (rc)
		return rsh_error_file(err, -rc, d->path);
	return rsh_metadata_parse(rsh_source_index_dir(s), h, d->path,
				  &d->metadata, err);
}

/* ---- ranks of the files ---- */

static int described_by_name(const void *name, const void *file)
{
	return strcmp(name, ((const struct rsh_ckpt2_file *)file)->name);
}

/* Finds which of the described files exist. */
static int described_take_files(struct rsh_source *s, size_t first, size_t end,
				struct rsh_described *d)
{
	const struct rsh_ckpt2 *m = d->metadata;
	const uint32_t n = m->n_files;
	/* [file of the metadata] */
	cleanup_free bool *present = calloc((size_t)n + 1, sizeof(*present));
	struct rsh_ckpt2_name parts;

	d->absent = rsh_alloc_array(n, sizeof(*d->absent));
	if (!present || !d->absent)
		return -ENOMEM;
	for (size_t i = first; i < end; i++) {
		struct rsh_checkpoint *file = rsh_source_on_list(s, i);
		const struct rsh_ckpt2_file *named =
			bsearch(file->base, m->files, n, sizeof(*m->files),
				described_by_name);
		const bool parsed = rsh_ckpt2_name_parse(file->base, &parts);

		d->any_opt |= parsed && parts.opt;
		/* If no record of a file is described, as in an optimizer's
		 * file that has only counters, the rank is taken from the
		 * file's name, if names have ranks. */
		file->rank = named ? named->rank :
			     parsed && parts.of == m->n_ranks &&
			     parts.rank < m->n_ranks ? parts.rank :
						       RSH_RANK_UNKNOWN;
		if (named)
			present[named - m->files] = true;
		if (file->rank == RSH_RANK_UNKNOWN)
			rsh_log_info("%s/%s: " METADATA " does not list the "
				     "file, which is left out",
				     rsh_source_path(s), file->name);
	}
	for (uint32_t i = 0; i < n; i++)
		if (!present[i])
			d->absent[d->facts.n_absent++] =
				(struct rsh_absent_file){
					m->files[i].rank, m->files[i].name,
				};
	d->facts.absent = d->absent;
	return 0;
}

/* Reads the metadata.json of a candidate and sets the ranks of its files in the
 * listing.  Files that are not in it get RSH_RANK_UNKNOWN.  Returns 0 or -errno
 * with a sentence: the step is not complete, or cannot be parsed. */
static int checkpoint2_choose(struct rsh_source *s, uint32_t candidate,
			      struct rsh_error *err)
{
	struct rsh_described *d = calloc(1, sizeof(*d));
	size_t first, end;
	int rc;

	rsh_source_keep(s, NULL, NULL, NULL);
	rsh_source_candidate_range(s, candidate, &first, &end);
	rc = d ? described_load(s, first, end, d, err) : rsh_error_nomem(err);
	if (rc == 0 && d->metadata && (described_take_files(s, first, end, d) ||
				       rsh_checkpoint2_note(d)))
		rc = rsh_error_nomem(err);
	if (rc || !d->metadata) {
		described_free(d);
		return rc;
	}
	d->facts.path = d->path;
	d->facts.key = &d->key;
	rsh_source_keep(s, d, &d->facts, described_free);
	return 0;
}

/* ---- common.json ---- */

/* A common.json has only a few numbers. */
static const struct rsh_small_file common_file = { "common.json", 64 << 10 };

int rsh_checkpoint2_common_parse(const void *data, size_t len, const char *path,
				 struct rsh_training_state *c,
				 struct rsh_error *err)
{
	json_int_t epoch, batch;
	cleanup_json json_t *all = NULL;
	double loss;
	int rc = rsh_json_load(&(struct rsh_memory){ data, len },
			       0, path, "a common.json", &all, err);

	if (rc)
		return rc;
	epoch = json_integer_value(json_object_get(all, "epoch_num"));
	batch = json_integer_value(json_object_get(all, "global_batch_size"));
	c->epoch = epoch > 0 ? (uint64_t)epoch : c->epoch;
	c->batch_size = batch > 0 ? (uint64_t)batch : c->batch_size;
	loss = json_number_value(json_object_get(all, "loss_scale"));
	if (loss > 0)
		c->loss_scale = loss;
	return 0;
}

static int checkpoint2_state(const struct rsh_source *s,
			     struct rsh_training_state *out)
{
	struct rsh_error err = RSH_ERROR_INIT;
	cleanup_free char *name = NULL, *path = NULL;
	cleanup_free uint8_t *data = NULL;
	const struct rsh_checkpoint *one;
	size_t first, end, len;
	int rc;

	rsh_source_candidate_range(s, rsh_source_chosen(s), &first, &end);
	if (first == end)
		return 0;
	one = rsh_source_on_list(s, first);
	name = rsh_text_format("%.*scommon.json", (int)(one->base - one->name),
			       one->name);
	path = name ? rsh_text_format("%s/%s", rsh_source_path(s), name) : NULL;
	if (!path)
		return -ENOMEM;
	rc = rsh_store_load(rsh_source_store(s), name, &common_file, &data,
			    &len, &err) ?:
	     rsh_checkpoint2_common_parse(data, len, path, out, &err);
	if (rc && rc != -ENOMEM)
		rsh_log_notice("%s", err.text);
	return rc == -ENOMEM ? rc : 0;
}

/* ---- for --resume ---- */

static enum rsh_part checkpoint2_part(const char *path, struct rsh_step_name *out)
{
	const char *file = rsh_step_dir_read(path, RSH_CKPT2_STEP, out);

	if (!file || *file == '.' || strchr(file, '/') ||
	    !rsh_ckpt2_step_parse(out->label, &out->step.numbers[0]))
		return RSH_PART_NO;
	return RSH_PART_YES;
}

/* A step of one card has no metadata.json; the names of its files show this. */
static int checkpoint2_check(const struct rsh_byte_source *files,
			     const char *const *names, size_t n, bool full,
			     struct rsh_counters *says, struct rsh_error *err)
{
	const size_t at = rsh_step_place(names, n, METADATA);
	struct rsh_ckpt2_name parts;
	struct rsh_ckpt2 *c = NULL;
	bool alone = false; /* the files are of one card */
	int rc = 0;

	(void)says;
	for (size_t i = 0; i < n && rc == 0; i++) {
		if (rsh_file_type_of(names[i]) != RSH_FILE_SAFETENSORS)
			continue;
		alone |= rsh_ckpt2_name_parse(names[i], &parts) &&
			 parts.of == 1;
		rc = rsh_step_check_file(RSH_FILE_SAFETENSORS, &files[i], full,
					 NULL, err);
	}
	if (rc)
		return rc;
	if (at == n)
		return alone ? 0 :
		       rsh_error_set(err, EBADMSG, "%s: no %s beside it: "
				     "the save was not finished",
				     files[0].path, METADATA);
	rc = rsh_ckpt2_parse(&files[at], &c, err);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < c->n_files && rc == 0; i++)
		if (rsh_step_place(names, n, c->files[i].name) == n)
			rc = rsh_error_set(err, EBADMSG, "%s: %s is missing",
					   files[at].path, c->files[i].name);
	for (uint32_t i = 0; i < c->n_params && rc == 0; i++)
		if (c->params[i].n_stored > 0 &&
		    c->params[i].n_stored < c->params[i].n_slices)
			rc = rsh_error_set(err, EBADMSG, "%s: %u of %u "
					   "slices of parameter %s are in no "
					   "file", files[at].path,
					   c->params[i].n_slices -
					   c->params[i].n_stored,
					   c->params[i].n_slices,
					   c->params[i].name);
	rsh_ckpt2_free(c);
	return rc;
}

/* ---- the format ---- */

static int checkpoint2_list(const struct rsh_list_job *job,
			    struct rsh_listed *out, struct rsh_error *err)
{
	return job->part == RSH_LIST_STATE ?
	       checkpoint2_state(job->source, &out->state) :
	       rsh_checkpoint2_strategy(job, &out->strategy, err);
}

const struct rsh_format rsh_checkpoint2_format = {
	.name = "checkpoint2",
	.says = "Checkpoint 2.0",
	.layout = RSH_LAYOUT_OWN,
	.owner = RSH_OWNER_RANKS,
	.by_name = true,
	.words = RSH_WORDS_MINDSPORE,
	.bid = checkpoint2_bid,
	.open = checkpoint2_open,
	.choose = checkpoint2_choose,
	.list = checkpoint2_list,
	.read = rsh_ranks_offer,
	.framework = "MindSpore Transformers",
	.step_dirs = true,
	.tracked = RSH_CKPT2_STEP,
	.part = checkpoint2_part,
	.check = checkpoint2_check,
};
