/* SPDX-License-Identifier: Apache-2.0 */
/* formats/deepspeed/listing.c finds checkpoints of DeepSpeed:
 *
 *   SOURCE/TAG/mp_rank_00_model_states.pt ...   SOURCE may also be TAG/, or
 *                                               above checkpoint-N/TAG/ of the
 *                                               Trainer
 *   SOURCE/TAG/zero/NAME/fp32.pt ...            the universal form
 *
 * SOURCE/latest is written last of all: it names a step that was complete. */
#include "config.h"

#include "deepspeed_i.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "rsh/formats/files.h"
#include "rsh/util/files.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

#define RUN_STEP "checkpoint-"
#define ZERO "zero"
/* So many directories are looked at to find one step. */
#define DIRS_LOOKED_AT 16

/* ---- directories ---- */

/* Returns a path below SOURCE, from malloc. */
static char *path_join(const char *dir, const char *name)
{
	return rsh_text_format("%s%s%s", dir, *dir ? "/" : "", name);
}

/* Returns 1 if a directory has the files of a step, 0 if not, or -errno. */
static int has_step(const struct rsh_store *store, const char *path)
{
	int rc = rsh_joined_dir_has(store, path, rsh_ds_name_is_model);

	return rsh_errno_is_absent(-rc) ? 0 : rc;
}

/* Returns whether weights of Hugging Face are there, which are preferred. */
static bool is_of_weights(const char *name)
{
	return rsh_is_any(name, "model.safetensors",
			  "model.safetensors.index.json", "pytorch_model.bin",
			  "pytorch_model.bin.index.json");
}

/* Nothing else has such a name. */
static bool is_tag(const char *name, size_t n, uint64_t *step)
{
	(void)n, (void)step;
	return rsh_begins_any(name, "global_step");
}

/* A directory beside a file that says so may have any name. */
static bool may_be_tag(const char *name, size_t n, uint64_t *step)
{
	return is_tag(name, n, step) ||
	       (name[0] != '.' && !strchr(name, '.') &&
		!rsh_is_any(name, RSH_DS_LATEST, RSH_DS_LATEST_UNIVERSAL));
}

/* Returns whether a file that DeepSpeed writes beside its steps is there. */
static bool is_mark(const char *name)
{
	return rsh_is_any(name, RSH_DS_LATEST, RSH_DS_LATEST_UNIVERSAL,
			  "zero_to_fp32.py");
}

/* Adds the directories of steps in `dir` to a list.  Stops after the first one
 * if only one is asked for.  Returns 0 or -errno. */
static int tags_list(const struct rsh_store *store, const char *dir,
		     bool only_one, struct rsh_path_list *out)
{
	cleanup_path_list struct rsh_path_list names = { 0 };
	int rc = rsh_path_list_read(&names, store, dir);
	unsigned looked_at = 0;
	const bool any = rsh_any(i, names.n, is_mark(names.v[i]));

	for (size_t i = names.n; i-- > 0 && rc == 0;) {
		cleanup_free char *path = NULL;

		if (!(any ? may_be_tag : is_tag)(names.v[i], 0, NULL) ||
		    (only_one && looked_at++ >= DIRS_LOOKED_AT))
			continue;
		path = path_join(dir, names.v[i]);
		rc = path ? has_step(store, path) : -ENOMEM;
		if (rc <= 0)
			continue;
		rc = rsh_path_list_add(out, names.v[i]);
		if (only_one)
			break;
	}
	return rc;
}

/* ---- the Trainer ---- */

static bool run_step_read(const char *name, size_t len, uint64_t *step)
{
	return rsh_number_after(RUN_STEP, name, len, step);
}

/* Returns 1 if a checkpoint-N has steps of DeepSpeed and no weights beside
 * them, 0 if not, or -errno. */
static int is_run_step(const struct rsh_store *store, const char *dir)
{
	cleanup_path_list struct rsh_path_list tags = { 0 };
	cleanup_dir struct rsh_dir *d = NULL;
	int more = rsh_dir_open(store, dir, &d);
	const char *name;
	bool any = false;

	while (more >= 0 && (more = rsh_dir_next(d, &name)) > 0) {
		if (is_of_weights(name))
			return 0;
		any |= is_mark(name) || is_tag(name, 0, NULL);
	}
	if (more < 0 || !any)
		return rsh_errno_is_absent(-more) ? 0 : more;
	return tags_list(store, dir, true, &tags) ?: tags.n > 0;
}

/* ---- bidding ---- */

/* Weights of Hugging Face are preferred to the steps beside them.  The Trainer
 * saves both at once; others may be older than the steps. */
static bool is_beside_weights(const struct rsh_look *l)
{
	const char *first;
	const bool any = rsh_look_count(l, is_mark, &first) > 0;
	unsigned looked_at = 0;
	int rc = 0;

	if (rsh_look_has(l, "trainer_state.json"))
		return false;
	for (size_t i = l->n; i-- > 0 && rc <= 0 && looked_at < DIRS_LOOKED_AT;)
		if ((any ? may_be_tag : is_tag)(l->names[i], 0, NULL)) {
			looked_at++;
			rc = has_step(rsh_source_store(l->source),
				      l->names[i]);
		}
	return rc > 0;
}

int rsh_ds_bid(const struct rsh_look *l, struct rsh_bid_more *more)
{
	const char *first;
	struct rsh_ds_name is;

	if (!rsh_look_is_plain(l) || rsh_look_is_sharded(l))
		return RSH_BID_NO;
	/* Any file of torch.save() is one of PyTorch. */
	if (l->file)
		return rsh_ds_name_read(l->file, &is) ? RSH_BID_SURE + 1 :
							RSH_BID_NO;
	more->is_step = rsh_look_count(l, rsh_ds_name_is_model, &first) > 0;
	if (more->is_step)
		return RSH_BID_SURE;
	if (rsh_look_count(l, is_of_weights, &first) > 0) {
		more->is_beside = is_beside_weights(l);
		return more->is_beside ? RSH_BID_ANY : RSH_BID_NO;
	}
	return rsh_joined_look(l, rsh_look_count(l, is_mark, &first) > 0 ?
			       may_be_tag : is_tag, has_step) ||
	       rsh_joined_look(l, run_step_read, is_run_step) ?
	       RSH_BID_SURE : RSH_BID_NO;
}

/* ---- listing ---- */

static bool step_take(const char *name, struct rsh_checkpoint *c)
{
	struct rsh_ds_name is;

	(void)c;
	return rsh_ds_name_read(name, &is);
}

static bool state_take(const char *name, struct rsh_checkpoint *c)
{
	(void)c;
	return rsh_has_suffix(name, ".pt");
}

/* Adds the files of the universal form below zero/. */
static int list_universal(const struct rsh_format_step *d)
{
	const struct rsh_store *store = rsh_source_store(d->source);
	cleanup_free char *zero = path_join(d->dir, ZERO);
	cleanup_path_list struct rsh_path_list names = { 0 };
	int rc = zero ? rsh_path_list_read(&names, store, zero) : -ENOMEM;

	for (size_t i = 0; i < names.n && rc == 0; i++) {
		struct rsh_format_step of = *d;
		cleanup_free char *dir = path_join(zero, names.v[i]);

		if (*names.v[i] == '.')
			continue;
		of.dir = dir;
		rc = dir ? rsh_format_list_step(&of, state_take) : -ENOMEM;
		rc = rsh_errno_is_absent(-rc) ? 0 : rc;
	}
	return rsh_errno_is_absent(-rc) ? 0 : rc;
}

/* Adds the files of a step: `dir` is its directory, or "". */
static int list_step(struct rsh_source *s, const char *dir, const char *label,
		     const struct rsh_step *step, struct rsh_error *err)
{
	const struct rsh_format_step d = {
		.source = s, .dir = dir, .label = label, .step = *step,
		.series = label, /* two steps may have one number */
	};
	int rc = rsh_format_list_step(&d, step_take) ?: list_universal(&d);

	return rc ? rsh_format_list_unread(&d, rc, err) : 0;
}

RSH_ORDER(newest_first, struct rsh_tracked,
	  rsh_compare_u64(y->step, x->step) ?:
	  strverscmp(y->label, x->label))

/* Adds the step of a checkpoint-N: the one that a tracker names, or the newest
 * one.  A tracker that cannot be read now stands for the step. */
static int list_run_step(struct rsh_source *s, const char *dir, uint64_t number,
			 struct rsh_error *err)
{
	static const char *const trackers[] = {
		RSH_DS_LATEST, RSH_DS_LATEST_UNIVERSAL,
	};
	struct rsh_format_step d = {
		.source = s, .dir = dir, .label = dir, .series = dir,
		.step = { .n = 1, .numbers = { number } },
	};
	cleanup_path_list struct rsh_path_list tags = { 0 };
	cleanup_free struct rsh_tracked *steps = NULL;
	cleanup_free char *path = NULL;
	uint32_t found = 0;
	int rc = is_run_step(rsh_source_store(s), dir);

	if (rc > 0)
		rc = tags_list(rsh_source_store(s), dir, false, &tags);
	if (rc)
		return rsh_format_list_unread(&d, rc, err);
	steps = rsh_alloc_array(tags.n, sizeof(*steps));
	if (!steps)
		return rsh_error_nomem(err);
	for (size_t i = 0; i < tags.n; i++) {
		steps[i] = (struct rsh_tracked){ .label = tags.v[i] };
		if (!rsh_ds_step_read(tags.v[i], &steps[i].step))
			steps[i].step = 0;
	}
	rsh_sort(steps, tags.n, newest_first);
	for (size_t i = 0; tags.n > 0 && rc == 0 &&
			   i < sizeof(trackers) / sizeof(*trackers); i++) {
		cleanup_free char *tracker = path_join(dir, trackers[i]);
		struct rsh_error why = RSH_ERROR_INIT;

		d.dir = tracker;
		rc = tracker ? rsh_source_find_tracked(s, tracker, steps,
						       (uint32_t)tags.n, &found,
						       &why) : -ENOMEM;
		if (rc < 0)
			return rsh_format_list_unread(&d, rc, err);
	}
	if (tags.n == 0)
		return 0;
	path = path_join(dir, steps[rc > 0 ? found : 0].label);
	return path ? list_step(s, path, dir, &d.step, err) :
		      rsh_error_nomem(err);
}

/* ---- opening ---- */

static int list_file(struct rsh_source *s, const char *file,
		     struct rsh_error *err)
{
	struct rsh_ds_name is;
	char part[32] = "";

	rsh_ds_name_read(file, &is);
	if (is.role == RSH_DS_MODEL)
		return rsh_format_list_file(s, file) ? rsh_error_nomem(err) : 0;
	if (is.role == RSH_DS_OPTIMIZER || is.role == RSH_DS_MODEL_PART)
		snprintf(part, sizeof(part), " of rank %u", is.rank);
	return rsh_error_set(err, EINVAL, "%s/%s: it is %s part%s of a "
			     "checkpoint of DeepSpeed: SOURCE is the "
			     "directory with the files of all ranks",
			     rsh_source_path(s), file, *part ? "the" : "a",
			     part);
}

static int list_all(struct rsh_source *s, bool *steps, struct rsh_error *err)
{
	const struct rsh_store *store = rsh_source_store(s);
	const struct rsh_step none = { .n = 0 };
	cleanup_path_list struct rsh_path_list names = { 0 }, tags = { 0 };
	int has = has_step(store, ""), rc;
	uint64_t step;

	*steps = false;
	if (has < 0)
		return rsh_store_open_error(store, "", has, err);
	if (has > 0)
		return list_step(s, "", rsh_path_name(rsh_source_path(s)),
				 &none, err);
	/* The steps in SOURCE. */
	rc = tags_list(store, "", false, &tags);
	if (rc)
		rc = rsh_store_open_error(store, "", rc, err);
	for (size_t i = 0; i < tags.n && rc == 0; i++) {
		struct rsh_step of = { .n = 1 };

		if (!rsh_ds_step_read(tags.v[i], &of.numbers[0]))
			of.n = 0;
		rc = list_step(s, tags.v[i], tags.v[i], &of, err);
	}
	*steps = rc || rsh_source_n_on_list(s) > 0;
	if (*steps)
		return rc;
	rc = rsh_path_list_read(&names, store, "");
	if (rc)
		rc = rsh_store_open_error(store, "", rc, err);
	for (size_t i = 0; i < names.n && rc == 0; i++)
		if (run_step_read(names.v[i], strlen(names.v[i]), &step))
			rc = list_run_step(s, names.v[i], step, err);
	return rc;
}

int rsh_ds_open(struct rsh_source *s, const struct rsh_source_options *opts,
		struct rsh_error *err)
{
	const char *file = rsh_source_file(s);
	bool steps = false;
	int rc = file ? list_file(s, file, err) : list_all(s, &steps, err);

	if (rc == 0 && rsh_source_n_on_list(s) == 0)
		rc = rsh_error_set(err, ENOENT, "%s: the files of its ranks "
				   "were removed", rsh_source_path(s));
	rc = rc ?: rsh_source_sort_steps(s, opts, err);
	if (rc == 0 && steps && opts->select == RSH_SELECT_NEWEST)
		rc = rsh_source_try_tracked(s, RSH_DS_LATEST, NULL, false,
					    err) ?:
		     rsh_source_try_tracked(s, RSH_DS_LATEST_UNIVERSAL, NULL,
					    false, err);
	/* `ls` shows the only step without choosing it. */
	return rc < 0 ? rc : rsh_source_n_candidates(s) > 1 ? 0 :
	       rsh_ds_choose(s, 0, err);
}
