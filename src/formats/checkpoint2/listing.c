/* SPDX-License-Identifier: Apache-2.0 */
/* formats/checkpoint2/listing.c finds the steps of a Checkpoint 2.0 tree, as
 * MindSpore Transformers saves it:
 *
 *   SOURCE/latest_checkpointed_iteration.txt   the tracker
 *   SOURCE/iteration_00000008/                 a step, which SOURCE itself may
 *       metadata.json                          be (metadata.c)
 *       model-0000003-0000008.safetensors      rank 3's weights
 *       opt-0000003-0000008.safetensors        and the optimizer's state
 *
 * Each step is a candidate.  The step in the tracker comes first, because the
 * job has confirmed only that one as complete.  The others come next, the
 * newest first. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "steps_i.h"
#include "rsh/formats/files.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

/* A step has 20 digits at most. */
static const struct rsh_small_file tracker_file = { "tracker", 4096 };

/* ---- bidding ---- */

/* A tracker alone is not enough: Megatron-LM's tracker has the same name. */
int rsh_checkpoint2_bid(const struct rsh_look *l)
{
	struct rsh_ckpt2_name parts;
	bool found = false;
	uint64_t step;

	if (l->file || !rsh_look_is_plain(l) || rsh_look_is_sharded(l))
		return RSH_BID_NO;
	for (size_t i = 0; i < l->n; i++) {
		if (rsh_format_is_rank_dir(l->names[i]))
			return RSH_BID_NO;
		found |= rsh_ckpt2_step_parse(l->names[i], &step) ||
			 rsh_ckpt2_name_parse(l->names[i], &parts);
	}
	return found ? RSH_BID_STEPS : RSH_BID_NO;
}

/* ---- its files ---- */

/* This is a directory of one step. */
struct step_dir {
	struct rsh_source *source;
	const char *name; /* below the root; "" means the root */
	const char *label;
	struct rsh_step step;
};

/* A file that is being written has another suffix. */
static int checkpoint2_list_step(const struct step_dir *d,
				 struct rsh_error *err)
{
	cleanup_dir struct rsh_dir *dir = NULL;
	int more = rsh_dir_open(rsh_source_store(d->source), d->name, &dir);
	const size_t n = rsh_source_n_on_list(d->source);
	struct rsh_ckpt2_name parts;
	struct rsh_stat st;
	const char *name;

	while (more >= 0 && (more = rsh_dir_next(dir, &name)) > 0) {
		struct rsh_checkpoint c = { .step = d->step };

		if (!rsh_ckpt2_name_parse(name, &parts))
			continue;
		if (rsh_dir_look(dir, name, &st))
			st = (struct rsh_stat){ .kind = RSH_IS_FILE };
		if (st.kind != RSH_IS_FILE)
			continue;
		c.rank = parts.rank;
		c.mtime = st.attr.mtime;
		c.label = strdup(d->label);
		if (!c.label)
			return rsh_error_nomem(err);
		if (asprintf(&c.name, "%s%s%s", d->name, *d->name ? "/" : "",
			     name) < 0)
			c.name = NULL;
		if (rsh_source_list(d->source, &c))
			return rsh_error_nomem(err);
	}
	/* A step is left out if its directory cannot be read to the end. */
	if (more < 0) {
		rsh_source_unlist(d->source, n);
		return rsh_source_unreadable(d->source, d->name, more, err);
	}
	if (rsh_source_n_on_list(d->source) == n)
		rsh_log_info("%s/%s: no file in it was completed",
			     rsh_source_path(d->source), d->name);
	return 0;
}

/* SOURCE itself is a step, perhaps under another name, "." or a link. */
static int checkpoint2_list_lone(struct rsh_source *s, struct rsh_error *err)
{
	cleanup_free char *real = realpath(rsh_source_path(s), NULL);
	const char *path = real ? real : rsh_source_path(s);
	const char *slash = strrchr(path, '/');
	struct step_dir d = { .source = s, .name = "" };

	d.label = slash && slash[1] ? slash + 1 : path;
	if (rsh_ckpt2_step_parse(d.label, &d.step.numbers[0]))
		d.step.n = 1;
	return checkpoint2_list_step(&d, err);
}

/* ---- the tracker ---- */

/* Reads the tracker, if there is one.  Returns false if it has no step. */
static bool tracker_read(const struct rsh_source *s, uint64_t *step)
{
	static const char name[] = RSH_CKPT2_TRACKER, blanks[] = " \t\r\n";
	struct rsh_error err = RSH_ERROR_INIT;
	cleanup_free uint8_t *data = NULL;
	size_t len, n;
	const char *text;

	if (rsh_store_load(rsh_source_store(s), name, &tracker_file, &data,
			   &len, &err)) {
		if (err.code != ENOENT)
			rsh_log_warning("%s; the newest complete step is "
					"taken", err.text);
		return false;
	}
	data[len] = '\0';
	text = (const char *)data + strspn((const char *)data, blanks);
	n = rsh_count_digits(text, strlen(text));
	if (!text[n + strspn(text + n, blanks)] &&
	    rsh_number_read(text, n, step))
		return true;
	rsh_log_warning("%s/%s: it does not name a step; the newest complete "
			"step is taken",
			rsh_source_path(s), name);
	return false;
}

static void tracker_goes_first(struct rsh_source *s)
{
	const uint32_t n = rsh_source_n_candidates(s);
	size_t first, end;
	uint64_t step;

	if (!tracker_read(s, &step))
		return;
	for (uint32_t i = 0; i < n; i++) {
		rsh_source_candidate_range(s, i, &first, &end);
		if (first < end &&
		    rsh_source_on_list(s, first)->step.numbers[0] == step) {
			rsh_source_try_first(s, i);
			return;
		}
	}
	rsh_log_warning("%s/" RSH_CKPT2_TRACKER
			": it names step %llu, which is "
			"not there; the newest complete step is taken",
			rsh_source_path(s), (unsigned long long)step);
}

/* ---- listing ---- */

int rsh_checkpoint2_open(struct rsh_source *s,
			 const struct rsh_source_options *opts,
			 struct rsh_error *err)
{
	cleanup_dir struct rsh_dir *dir = NULL;
	const struct rsh_checkpoint *one;
	const char *name;
	bool lone;
	int rc = 0, more;

	if (opts->select == RSH_SELECT_MINDSPORE)
		return rsh_error_set(err, EINVAL, "%s: the converter, whose "
				     "choice --select mindspore and "
				     "--compat=mindspore are, reads no "
				     "Checkpoint 2.0", rsh_source_path(s));
	more = rsh_dir_open(rsh_source_store(s), "", &dir);
	while (more >= 0 && rc == 0 && (more = rsh_dir_next(dir, &name)) > 0) {
		struct step_dir d = {
			.source = s, .name = name, .label = name,
			.step = { .n = 1 },
		};

		if (rsh_ckpt2_step_parse(name, &d.step.numbers[0]))
			rc = checkpoint2_list_step(&d, err);
	}
	if (dir && more < 0)
		rc = rsh_store_open_error(rsh_source_store(s), "", more, err);
	if (rc == 0 && rsh_source_n_on_list(s) == 0)
		rc = checkpoint2_list_lone(s, err);
	if (rc == 0 && rsh_source_n_on_list(s) == 0)
		rc = rsh_error_set(err, ENOENT, "%s: no step in it has a file "
				   "that was completed", rsh_source_path(s));
	if (rc)
		return rc;
	one = rsh_source_on_list(s, 0);
	lone = one->name == one->base;
	rc = rsh_source_sort_steps(s, opts, err);
	if (rc == 0 && opts->select == RSH_SELECT_NEWEST && !lone)
		tracker_goes_first(s);
	return rc;
}
