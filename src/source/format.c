/* SPDX-License-Identifier: Apache-2.0 */
/* source/format.c finds the format of a source: each format makes a bid. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "source_i.h"

static int ranks_bid(const struct rsh_look *l, struct rsh_bid_more *more)
{
	(void)more;
	return l->file ? RSH_BID_NO : RSH_BID_ANY;
}

/* This format is used if the caller has no list of formats. */
static const struct rsh_format files_of_ranks = {
	.name = "ranks", .says = "tree of rank files", .by_name = true,
	.bid = ranks_bid, .open = rsh_source_list_ranks,
};
static const struct rsh_format *const ranks_alone[] = {
	&files_of_ranks, NULL,
};

/* ---- choosing the format ---- */

bool rsh_look_has(const struct rsh_look *l, const char *name)
{
	struct rsh_stat st;
	int rc;

	if (l->listed && !rsh_find(&name, l->names, l->n, rsh_by_text))
		return false;
	rc = rsh_store_look(l->source->store, name, &st);
	rsh_look_fail(l, name, rc);
	return rc == 0;
}

/* Returns whether the directory of a rank has files of weights, also unfinished
 * ones, or directories that may have them.  So may an empty one, of a job that
 * has not saved yet, and one that cannot be read. */
static bool look_into_rank(const struct rsh_look *l, const char *path)
{
	cleanup_dir struct rsh_dir *dir = NULL;
	int more = rsh_dir_open(l->source->store, path, &dir);
	bool empty = true;
	const char *name;

	if (more == -ENOTDIR)
		return false;
	while (more >= 0 && (more = rsh_dir_next(dir, &name)) > 0) {
		if (strstr(name, ".ckpt") || strstr(name, ".safetensors") ||
		    rsh_begins_any(name, "checkpoint", "network"))
			return true;
		empty = empty && name[0] == '.';
	}
	return more < 0 || empty;
}

bool rsh_look_has_ranks(const struct rsh_look *l)
{
	return rsh_any(i, l->n,
		       rsh_rank_dir_is(l->names[i], strlen(l->names[i])) &&
		       look_into_rank(l, l->names[i]));
}

void rsh_look_fail(const struct rsh_look *l, const char *name, int rc)
{
	if (rsh_errno_is_unread(-rc) && !l->failed->code)
		rsh_store_open_error(l->source->store, name, rc, l->failed);
}

bool rsh_look_is_plain(const struct rsh_look *l)
{
	const struct rsh_source_options *o = l->opts;

	return !o || (!o->rank_dir && !o->file && !o->source_map);
}

bool rsh_look_is_sharded(const struct rsh_look *l)
{
	return l->opts && !l->opts->unsharded;
}

int rsh_source_look_at(const struct rsh_source *s,
		       const struct rsh_source_options *opts, const char *file,
		       int (*fn)(const struct rsh_look *look, void *ctx),
		       void *ctx, struct rsh_error *err)
{
	struct rsh_path_list names = { 0 };
	struct rsh_error failed = RSH_ERROR_INIT;
	struct rsh_look l = {
		.source = s, .opts = opts, .file = file, .failed = &failed,
	};
	/* Who looks at each file of a directory must not list it each time.
	 * One that cannot be read has no names here; the next function that
	 * reads it returns the error. */
	int rc = file ? 0 : rsh_path_list_read(&names, s->store, "");

	l.listed = !file && rc == 0;
	rc = rc == -ENOMEM ? rc : 0;
	rsh_sort(names.v, names.n, rsh_by_text);
	l.names = (const char *const *)names.v;
	l.n = names.n;
	if (rc == 0)
		rc = fn(&l, ctx);
	rsh_path_list_clear(&names);
	if (rc == -ENOMEM)
		return rsh_error_nomem(err);
	return failed.code ? rsh_error_set(err, failed.code, "%s", failed.text) :
			     rc;
}

struct bidding {
	const struct rsh_format *const *formats;
	const struct rsh_format *best;
	const struct rsh_format *other; /* that knows the files by their names,
					 * too, and bids most; NULL: none */
	int bid, bid_of_other;
	bool is_step, is_beside;
};

static int look_for_bids(const struct rsh_look *l, void *ctx)
{
	struct bidding *b = ctx;
	bool owns_all = false;

	for (const struct rsh_format *const *f = b->formats; *f; f++) {
		struct rsh_bid_more more = { .hint = NULL };
		const struct rsh_format *less = *f;
		int bid = less->bid ? less->bid(l, &more) : RSH_BID_NO;
		bool is_beside = more.is_beside;

		b->is_step |= more.is_step;
		if (bid > b->bid) {
			const int before = b->bid;

			less = b->best;
			is_beside = b->is_beside;
			b->bid = bid;
			b->best = *f;
			b->is_beside = more.is_beside;
			owns_all = more.owns_all;
			bid = before;
		}
		if (bid > b->bid_of_other &&
		    (bid >= RSH_BID_MODEL || is_beside || less->is_adapter)) {
			b->bid_of_other = bid;
			b->other = less;
		}
	}
	if (owns_all)
		b->other = NULL;
	return 0;
}

static struct bidding bidding_of(const struct rsh_format *const *formats)
{
	return (struct bidding){ .formats = formats ? formats : ranks_alone };
}

int rsh_source_find_format(struct rsh_source *s,
			   const struct rsh_source_options *opts,
			   const char *file, struct rsh_error *err)
{
	struct bidding b = bidding_of(opts->formats);
	int rc = rsh_source_look_at(s, opts, file, look_for_bids, &b, err);

	s->formats = b.formats;
	if (rc == 0) {
		s->format = b.best;
		s->other = b.other;
	}
	return rc;
}

static int look_at_path(const char *path, const struct rsh_store_options *how,
			struct bidding *b, struct rsh_error *err)
{
	const struct rsh_store_options opts = {
		.objects = how->objects, .place = how->place,
	};
	cleanup_free char *file = NULL;
	cleanup_source struct rsh_source *s = NULL;

	return rsh_source_open_root(path, &opts, &s, &file, err) ?:
	       rsh_source_look_at(s, NULL, file, look_for_bids, b, err);
}

const struct rsh_format *
rsh_source_format_at(const char *path, const struct rsh_store_options *how,
		     const struct rsh_format *const *formats, int *bid,
		     struct rsh_error *err)
{
	struct bidding b = bidding_of(formats);
	int rc;

	err->code = 0;
	rc = look_at_path(path, how, &b, err);
	*bid = rc ? RSH_BID_NO : b.bid;
	return rc ? NULL : b.best;
}

bool rsh_source_is_one_step(const char *path,
			    const struct rsh_store_options *how,
			    const struct rsh_format *const *formats)
{
	struct rsh_error unused = RSH_ERROR_INIT;
	struct bidding b = bidding_of(formats);

	look_at_path(path, how, &b, &unused);
	return b.is_step;
}
