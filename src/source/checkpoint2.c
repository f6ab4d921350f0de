/* SPDX-License-Identifier: Apache-2.0 */
/* source/checkpoint2.c finds the steps of a Checkpoint 2.0 tree, as MindSpore
 * Transformers saves it:
 *
 *   SOURCE/latest_checkpointed_iteration.txt   the tracker
 *   SOURCE/iteration_00000008/                 a step, which SOURCE itself may
 *       metadata.json                          be (described.c)
 *       model-0000003-0000008.safetensors      rank 3's weights
 *       opt-0000003-0000008.safetensors        and the optimizer's state
 *
 * Each step is a candidate.  The tracker's comes first, since only of that one
 * the job has said that it is whole; then come the others, the newest first. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "described_i.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "step_i.h"
#include "walk_i.h"

/* A step has 20 digits at most. */
#define TRACKER_BYTES_MAX 4096

/* ---- is it one? ---- */

static bool checkpoint2_is_rank_dir(const char *name)
{
	const size_t n = strlen("rank_");

	return (strncmp(name, "rank_", n) == 0 ||
		strncmp(name, "ckpt_", n) == 0) && rsh_mixed_radix(name + n, 1);
}

/* A tracker alone does not tell: Megatron-LM calls its own the same. */
static bool checkpoint2_is_in(struct rsh_dir *dir, bool *ranks)
{
	struct rsh_ckpt2_name parts;
	bool found = false;
	const char *name;
	uint64_t step;

	while (rsh_dir_next(dir, &name) > 0) {
		*ranks |= checkpoint2_is_rank_dir(name);
		found |= rsh_ckpt2_step_parse(name, &step) ||
			 rsh_ckpt2_name_parse(name, &parts);
	}
	return found && !*ranks;
}

bool rsh_checkpoint2_look(const struct rsh_source *s, bool *ranks)
{
	cleanup_dir struct rsh_dir *dir = NULL;

	*ranks = false;
	return rsh_dir_open(s->store, "", &dir) == 0 &&
	       checkpoint2_is_in(dir, ranks);
}

bool rsh_checkpoint2_present(const struct rsh_source *s)
{
	bool ranks;

	return rsh_checkpoint2_look(s, &ranks);
}

/* ---- its files ---- */

/* This is a directory of one step. */
struct step_dir {
	struct rsh_source *source;
	const char *name; /* below the root; "" is the root */
	const char *label;
	struct rsh_step step;
};

static int checkpoint2_add_file(const struct step_dir *d, const char *file,
				uint32_t rank, const struct timespec *mtime)
{
	struct rsh_listing *l = &d->source->listing;
	struct rsh_checkpoint c = { .rank = rank, .mtime = *mtime };

	if (asprintf(&c.name, "%s%s%s", d->name, *d->name ? "/" : "", file) < 0)
		c.name = NULL;
	if (rsh_listing_add(l, &c))
		return -ENOMEM;
	l->files[l->n - 1].step = d->step;
	l->files[l->n - 1].label = strdup(d->label);
	return l->files[l->n - 1].label ? 0 : -ENOMEM;
}

/* Leaves out a step whose directory cannot be read to its end, for which rc is
 * the reason; `n` files were listed before it. */
static int checkpoint2_leave_out(const struct step_dir *d, size_t n, int rc,
				 struct rsh_error *err)
{
	struct rsh_listing *l = &d->source->listing;
	struct rsh_walk w = { .source = d->source };

	rc = rsh_walk_unreadable(&w, d->name, rc, err);
	rsh_walk_log_unreadable(&w);
	while (l->n > n)
		rsh_checkpoint_clear(&l->files[--l->n]);
	return rc;
}

/* A file that is being written has another suffix. */
static int checkpoint2_list_step(const struct step_dir *d,
				 struct rsh_error *err)
{
	cleanup_dir struct rsh_dir *dir = NULL;
	int more = rsh_dir_open(d->source->store, d->name, &dir);
	const size_t n = d->source->listing.n;
	struct rsh_ckpt2_name parts;
	struct rsh_stat st;
	const char *name;

	while (more >= 0 && (more = rsh_dir_next(dir, &name)) > 0) {
		if (!rsh_ckpt2_name_parse(name, &parts))
			continue;
		if (rsh_dir_look(dir, name, &st))
			st = (struct rsh_stat){ .kind = RSH_IS_FILE };
		if (st.kind == RSH_IS_FILE &&
		    checkpoint2_add_file(d, name, parts.rank, &st.attr.mtime))
			return rsh_error_nomem(err);
	}
	if (more < 0)
		return checkpoint2_leave_out(d, n, more, err);
	if (d->source->listing.n == n)
		rsh_log_info("%s/%s: no file in it was completed",
			     d->source->path, d->name);
	return 0;
}

/* SOURCE is a step itself, perhaps under another name, "." or a link. */
static int checkpoint2_list_lone(struct rsh_source *s, struct rsh_error *err)
{
	cleanup_free char *real = realpath(s->path, NULL);
	const char *path = real ? real : s->path;
	const char *slash = strrchr(path, '/');
	struct step_dir d = { .source = s, .name = "" };

	d.label = slash && slash[1] ? slash + 1 : path;
	if (rsh_ckpt2_step_parse(d.label, &d.step.numbers[0]))
		d.step.n = 1;
	return checkpoint2_list_step(&d, err);
}

static int checkpoint2_list_all(struct rsh_source *s, struct rsh_error *err)
{
	cleanup_dir struct rsh_dir *dir = NULL;
	int rc = 0, more = rsh_dir_open(s->store, "", &dir);
	const char *name;

	while (more >= 0 && rc == 0 && (more = rsh_dir_next(dir, &name)) > 0) {
		struct step_dir d = {
			.source = s, .name = name, .label = name,
			.step = { .n = 1 },
		};

		if (rsh_ckpt2_step_parse(name, &d.step.numbers[0]))
			rc = checkpoint2_list_step(&d, err);
	}
	if (dir && more < 0)
		rc = rsh_store_open_error(s->store, "", more, err);
	if (rc == 0 && s->listing.n == 0)
		rc = checkpoint2_list_lone(s, err);
	if (rc == 0 && s->listing.n == 0)
		rc = rsh_error_set(err, ENOENT, "%s: no step in it has a file "
				   "that was completed", s->path);
	return rc;
}

/* ---- the tracker ---- */

/* Reads the tracker, if there is one; false: it does not say a step. */
static bool tracker_read(const struct rsh_source *s, uint64_t *step)
{
	static const char name[] = RSH_CKPT2_TRACKER, blanks[] = " \t\r\n";
	struct rsh_error err = RSH_ERROR_INIT;
	cleanup_free uint8_t *data = NULL;
	size_t len, n;
	const char *text;

	if (rsh_store_load(s->store, name, TRACKER_BYTES_MAX, "tracker", &data,
			   &len, &err)) {
		if (err.code != ENOENT)
			rsh_log_warning("%s: the newest whole step is taken "
					"instead", err.text);
		return false;
	}
	data[len] = '\0';
	text = (const char *)data + strspn((const char *)data, blanks);
	n = rsh_mixed_radix(text, strlen(text));
	if (!text[n + strspn(text + n, blanks)] &&
	    rsh_number_read(text, n, step))
		return true;
	rsh_log_warning("%s/%s: it says no step; the newest whole one is taken",
			s->path, name);
	return false;
}

static void tracker_goes_first(struct rsh_source *s)
{
	uint64_t step;
	uint32_t i = 0;

	if (!tracker_read(s, &step))
		return;
	while (i < s->n_candidates &&
	       s->listing.files[s->candidates[i].first].step.numbers[0] != step)
		i++;
	if (i < s->n_candidates) {
		const struct rsh_candidate first = s->candidates[i];

		memmove(s->candidates + 1, s->candidates,
			i * sizeof(*s->candidates));
		s->candidates[0] = first;
		return;
	}
	rsh_log_warning("%s/" RSH_CKPT2_TRACKER ": it says step %llu, of which "
			"there is nothing; the newest whole one is taken",
			s->path, (unsigned long long)step);
}

/* ---- all of it ---- */

static int checkpoint2_candidates(struct rsh_source *s,
				  const struct rsh_source_options *opts,
				  bool lone, struct rsh_error *err)
{
	int rc = rsh_listing_select(s, opts, err);

	if (rc)
		return rc;
	rsh_listing_sort(&s->listing, RSH_BY_CANDIDATE);
	if (rsh_candidates_cut(s))
		return rsh_error_nomem(err);
	if (opts->select == RSH_SELECT_MTIME)
		rsh_candidates_by_mtime(s);
	else if (opts->select == RSH_SELECT_NEWEST && !lone)
		tracker_goes_first(s);
	s->n_tried = s->n_candidates;
	return 0;
}

int rsh_checkpoint2_list(struct rsh_source *s,
			 const struct rsh_source_options *opts,
			 struct rsh_error *err)
{
	int rc;

	if (opts->select == RSH_SELECT_MINDSPORE)
		return rsh_error_set(err, EINVAL, "%s: the converter, whose "
				     "choice --select mindspore and "
				     "--compat=mindspore are, reads no "
				     "Checkpoint 2.0", s->path);
	s->checkpoint2 = true;
	rc = checkpoint2_list_all(s, err);
	return rc ? rc : checkpoint2_candidates(s, opts,
				s->listing.files[0].name ==
				s->listing.files[0].base, err);
}
