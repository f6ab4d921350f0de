/* SPDX-License-Identifier: Apache-2.0 */
/* source/tree.c keeps a source from opening to closing, and its chosen
 * files. */
#include "config.h"

#include "kept_i.h"
#include "source_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rsh/util/checked.h"
#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

/* With --resume files are shown unchanged, and have no ranks. */
enum rsh_file_owner rsh_source_owner(const struct rsh_source *s)
{
	return s->resumed ? RSH_OWNER_NOBODY : s->format->owner;
}

/* ---- the chosen candidate ---- */

static void source_forget_choice(struct rsh_source *s)
{
	rsh_index_cache_close(s->index_cache);
	s->index_cache = NULL;
	rsh_source_kinds_free(s->kinds);
	s->kinds = NULL;
	for (uint32_t i = 0; i < s->n_indexes; i++)
		rsh_ckpt_index_free(s->indexes[i]);
	free(s->indexes);
	for (uint32_t i = 0; i < s->n_files; i++)
		free(s->files[i].why);
	free(s->files);
	rsh_arena_clear(&s->of_choice);
	s->indexes = NULL;
	s->files = NULL;
	s->by_rank = NULL;
	s->view_index = NULL;
	s->view_path = NULL;
	s->rank_attr = NULL;
	s->n_files = s->n_indexes = s->n_ranks = s->n_bad = 0;
	s->unread.code = 0;
	s->cap_indexes = s->cap_files = 0;
	s->joined = false;
}

/* Files of one rank are sorted by name. */
RSH_ORDER(checkpoint_by_rank, struct rsh_checkpoint *const,
	  rsh_compare_u64(x[0]->rank, y[0]->rank) ?:
	  strcmp(x[0]->name, y[0]->name))

/* Collects the candidate's files and those that belong to every candidate,
 * ascending by rank. */
static int source_collect_files(struct rsh_source *s, uint32_t i)
{
	const struct rsh_listing *l = &s->listing;
	struct rsh_candidate c = { 0, 0 };
	cleanup_free struct rsh_checkpoint **all = NULL;
	const enum rsh_file_owner owner = rsh_source_owner(s);
	size_t n = 0;

	if (i < s->n_candidates)
		c = s->candidates[i];
	all = rsh_alloc_array(c.end - c.first + s->n_always, sizeof(*all));
	if (!all)
		return -ENOMEM;
	for (size_t k = c.first; k < c.end; k++)
		if (l->files[k].rank != RSH_RANK_UNKNOWN)
			all[n++] = &l->files[k];
	for (size_t k = l->n - s->n_always; k < l->n; k++)
		all[n++] = &l->files[k];
	/* The parts of a model keep the order of its map. */
	if (owner == RSH_OWNER_RANK || owner == RSH_OWNER_RANKS)
		rsh_sort(all, n, checkpoint_by_rank);
	for (size_t k = 0; k < n; k++) {
		const struct rsh_store_entry e = {
			.name = all[k]->name,
			.owner = owner == RSH_OWNER_NOBODY ? s->n_files :
				 all[k]->rank,
			.epoch = all[k]->step.numbers[0],
			.step = all[k]->step.numbers[1],
		};

		if (rsh_store_add(s->store, &e) ||
		    rsh_push(s->files, s->n_files, s->cap_files,
			     (struct rsh_source_file){
				.rank = e.owner, .kind_at = all[k]->kind_at,
				.n_kind = all[k]->n_kind }))
			return -ENOMEM;
	}
	return 0;
}

static int source_check_ranks(const struct rsh_source *s, struct rsh_error *err)
{
	for (uint32_t i = 1; i < s->n_files; i++)
		if (s->format->owner == RSH_OWNER_RANK &&
		    s->files[i].rank == s->files[i - 1].rank)
			return rsh_error_set(err, EINVAL,
			"%s: several checkpoints of rank %u match: %s and %s: "
			"use --select name=GLOB", s->path, s->files[i].rank,
					     rsh_store_name(s->store, i - 1),
					     rsh_store_name(s->store, i));
	if (s->n_files > 0 && s->files[s->n_files - 1].rank >= RSH_MAX_RANKS)
		return rsh_error_set(err, EINVAL,
			"%s: rank %u is too large: a job has at most %u ranks",
				     rsh_store_path(s->store, s->n_files - 1),
				     s->files[s->n_files - 1].rank,
				     RSH_MAX_RANKS);
	return 0;
}

/* A file with any other name is a .ckpt. */
static enum rsh_file_type source_type_of(const struct rsh_source *s,
					uint32_t file)
{
	const char *name = rsh_store_name(s->store, file);

	return rsh_file_type_of(name) == RSH_FILE_SAFETENSORS ?
		RSH_FILE_SAFETENSORS : RSH_FILE_CKPT;
}

/* The name of a rank is the common part of its files' names, even if one of the
 * files is missing. */
static void source_name_ranks(struct rsh_source *s)
{
	for (uint32_t rank = 0; rank < s->n_ranks; rank++) {
		const struct rsh_source_file *f = &s->files[s->by_rank[rank]];
		const char *path = s->view_path[rank], *kind;

		if (s->by_rank[rank + 1] == s->by_rank[rank] || !f->n_kind)
			continue;
		kind = strrchr(path, '/') + 1 + f->kind_at;
		s->view_path[rank] = rsh_arena_format(&s->of_choice, "%.*s*%s",
						      (int)(kind - path), path,
						      kind + f->n_kind);
	}
}

static int source_number_files(struct rsh_source *s)
{
	size_t n;

	if (s->n_files > 0)
		s->n_ranks = s->files[s->n_files - 1].rank + 1;

	/* Arrays are indexed by rank, even if there are few ranks with high
	 * numbers. */
	n = (size_t)s->n_ranks + s->n_beside + 1;
	s->by_rank = rsh_arena_array(&s->of_choice, uint32_t, n);
	s->view_index = rsh_arena_array(&s->of_choice,
					const struct rsh_ckpt_index *, n);
	s->view_path = rsh_arena_array(&s->of_choice, const char *, n);
	if (s->of_choice.failed)
		return -ENOMEM;
	for (uint32_t i = s->n_files; i-- > 0;) {
		s->by_rank[s->files[i].rank + 1]++;
		s->view_path[s->files[i].rank] =
			rsh_source_owner(s) == RSH_OWNER_MODEL ?
			s->path : rsh_store_path(s->store, i);
	}
	for (uint32_t rank = 0; rank < s->n_ranks; rank++)
		s->by_rank[rank + 1] += s->by_rank[rank];
	if (rsh_source_owner(s) == RSH_OWNER_RANKS)
		source_name_ranks(s);
	return s->of_choice.failed ? -ENOMEM : 0;
}

/* Adds the files that do not belong to the checkpoint. */
static int source_add_beside(struct rsh_source *s)
{
	const uint32_t n = s->n_files;

	if (rsh_room(s->files, s->cap_files, (size_t)n + s->n_beside))
		return -ENOMEM;
	for (uint32_t i = 0; i < s->n_beside; i++) {
		const uint32_t rank = s->n_ranks + i;
		const struct rsh_store_entry e = {
			.name = s->beside[i], .owner = rank,
		};

		if (rsh_store_add(s->store, &e))
			return -ENOMEM;
		s->files[n + i] = (struct rsh_source_file){ .rank = rank };
		s->by_rank[rank + 1] = n + i + 1;
		s->view_path[rank] = rsh_store_path(s->store, n + i);
	}
	return 0;
}

int rsh_source_needs_none(const struct rsh_source *s, struct rsh_error *err)
{
	return rsh_error_set(err, EINVAL, "%s: a %s, which contains its own "
					  "layout: --src-strategy is not needed", s->path,
			     s->format->says);
}

const struct rsh_format *rsh_source_format(const struct rsh_source *s)
{
	return s->format;
}

uint32_t rsh_source_n_candidates(const struct rsh_source *s)
{
	return s->n_tried ? s->n_tried : 1;
}

static int source_choose(struct rsh_source *s, uint32_t i,
			 struct rsh_error *err)
{
	size_t at, end;
	int rc;

	/* A step whose directory could not be listed has that directory in
	 * place of its files. */
	for (rsh_source_candidate_range(s, i, &at, &end); at < end; at++) {
		const struct rsh_checkpoint *c = &s->listing.files[at];

		if (c->unread)
			return rsh_store_open_error(s->store, c->name,
						    c->unread, err);
	}
	rc = s->format->choose && !s->resumed ? s->format->choose(s, i, err) :
						0;
	if (rc == 0 && source_collect_files(s, i))
		rc = rsh_error_nomem(err);
	if (rc == 0 && rsh_source_owner(s) < RSH_OWNER_MODEL)
		rc = source_check_ranks(s, err);
	/* All chosen files have one type, which is the type of the source. */
	if (rc == 0 && !s->resumed && (!s->format->scan || s->format->by_name))
		s->type = s->n_files ? source_type_of(s, 0) : RSH_FILE_CKPT;
	for (uint32_t k = 1; rc == 0 && !s->resumed && k < s->n_files &&
			     (!s->format->scan || s->format->by_name); k++)
		if (source_type_of(s, k) != s->type)
			rc = rsh_error_set(err, EINVAL, "%s and %s: all files "
					   "must be .ckpt or all .safetensors",
					   rsh_store_path(s->store, 0),
					   rsh_store_path(s->store, k));
	if (rc == 0 && (source_number_files(s) || source_add_beside(s)))
		rc = rsh_error_nomem(err);
	return rc;
}

/* Sets the ranks in the name of a file and in that of the directory of a rank
 * in which it is.  Returns false if one has none. */
static bool source_named_ranks(const struct rsh_checkpoint *c, uint64_t *dir,
			       uint64_t *file)
{
	const size_t n = strlen(c->base);
	size_t begin, end;

	if (!rsh_rank_in_name(c->base, n, &begin, &end) ||
	    !rsh_number_read(c->base + begin, end - begin, file))
		return false;
	for (const char *at = c->name; at < c->base; at += strcspn(at, "/") + 1)
		if (rsh_rank_dir_is(at, strcspn(at, "/")))
			return rsh_number_read(at + 5, strcspn(at, "/") - 5,
					       dir);
	return false;
}

/* Names of files may have the rank, the rank in a node, or that of one rank in
 * all.  Others show that files or directories were copied or renamed, and
 * nothing in a file says of which rank it is. */
static int source_check_names(const struct rsh_source *s, uint32_t i,
			      struct rsh_error *err)
{
	const struct rsh_candidate *range = &s->candidates[i];
	const struct rsh_checkpoint *odd = NULL;
	uint64_t dir, file, first = 0, most = 0, node = 0, odd_dir = 0,
		 odd_file = 0;
	bool any = false, several = false, above = false;

	for (size_t k = range->first; k < range->end; k++) {
		const struct rsh_checkpoint *c = &s->listing.files[k];

		if (!source_named_ranks(c, &dir, &file))
			continue;
		several |= any && file != first;
		first = any ? first : file;
		any = true;
		most = rsh_max_u64(most, file);
		above |= file > dir;
		/* The ranks in a node are the remainders of a common
		 * divisor. */
		node = rsh_gcd(node, file > dir ? file - dir : dir - file);
		if (file != dir && !odd) {
			odd = c;
			odd_dir = dir;
			odd_file = file;
		}
	}
	if (!several || !odd || (!above && node > most))
		return 0;
	return rsh_error_set(err, EBADMSG, "%s/%s has rank %" PRIu64 " in its "
			     "name, and is in the directory of rank %" PRIu64
			     ": if the directories are right, use --rank-dir "
			     "'rank_{rank}'", s->path, odd->name, odd_file,
			     odd_dir);
}

int rsh_source_choose(struct rsh_source *s, uint32_t i, struct rsh_error *err)
{
	struct rsh_error why = RSH_ERROR_INIT;
	int rc;

	if (!rsh_store_clear(s->store))
		return rsh_error_set(err, EIO, "%s: a read has not returned",
				     s->path);
	source_forget_choice(s);
	rsh_store_forget_opened(s->store, s->n_opened);
	s->chosen = i;
	/* A job finds its files with --resume in its own way. */
	if ((s->usual_dirs || s->resumed) && i < s->n_candidates &&
	    source_check_names(s, i, &why)) {
		if (!s->resumed) {
			*err = why;
			return -EBADMSG;
		}
		rsh_log_warning("%s", why.text);
	}
	rc = source_choose(s, i, err);
	if (rsh_errno_is_unread(-rc))
		s->unread = *err;
	return rc;
}

/* ---- opening and closing ---- */

static const struct rsh_step_facts no_facts = { .path = NULL };

int rsh_source_new(const char *path, const struct rsh_store_options *opts,
		   struct rsh_source **out, struct rsh_error *err)
{
	struct rsh_source *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return rsh_error_nomem(err);
	s->index_dirfd = -1;
	s->facts = &no_facts;
	rc = rsh_store_open(path, opts, &s->store, err);
	if (rc) {
		free(s);
		return rc;
	}
	s->path = rsh_store_root(s->store);
	s->far = rsh_store_far(path, opts);
	*out = s;
	return 0;
}

char *rsh_source_directory(const char *path)
{
	const char *slash = strrchr(path, '/');
	struct stat st;

	/* The parts of a map are in its directory. */
	if (rsh_store_is_address(path) && slash && strstr(slash, ".index.") &&
	    rsh_has_suffix(slash, ".json"))
		return strndup(path, (size_t)(slash - path));
	return rsh_store_is_address(path) || stat(path, &st) != 0 ||
	       !S_ISREG(st.st_mode) ? strdup(path) : rsh_path_directory(path);
}

static int source_open_address(const char *path,
			       const struct rsh_store_options *opts,
			       struct rsh_source **out, char **file,
			       struct rsh_error *err)
{
	struct rsh_store_options single = *opts;
	const char *name;
	int rc;

	single.single = true;
	rc = rsh_source_new(path, &single, out, err);
	name = rc ? NULL : rsh_store_single((*out)->store);
	if (!name)
		return rc;
	*file = strdup(name);
	if (*file)
		return 0;
	rsh_source_free(*out);
	return rsh_error_nomem(err);
}

int rsh_source_open_root(const char *path, const struct rsh_store_options *opts,
			 struct rsh_source **out, char **file,
			 struct rsh_error *err)
{
	cleanup_free char *dir = rsh_source_directory(path);
	const bool address = rsh_store_is_address(path);
	struct rsh_error unused = RSH_ERROR_INIT;
	int rc;

	*file = NULL;
	if (dir && strcmp(dir, path) == 0)
		return address ? source_open_address(path, opts, out, file,
						     err) :
				 rsh_source_new(path, opts, out, err);
	*file = dir ? strdup(rsh_path_name(path)) : NULL;
	if (!*file)
		return rsh_error_nomem(err);
	rc = rsh_source_new(dir, opts, out, address ? err : &unused);
	if (rc)
		free(steal_pointer(file));
	return !rc || address ? rc : rsh_source_new(path, opts, out, err);
}

void rsh_source_free(struct rsh_source *s)
{
	if (!s)
		return;
	source_forget_choice(s);
	rsh_store_free(s->store);
	rsh_listing_clear(&s->listing);
	rsh_source_keep(s, NULL, NULL, NULL);
	free(s->candidates);
	free(s->file);
	if (s->index_dirfd >= 0)
		close(s->index_dirfd);
	free(s);
}

void rsh_source_view(const struct rsh_source *s, struct rsh_names *names,
		     struct rsh_source_view *view)
{
	*view = (struct rsh_source_view){
		.n_ranks = s->n_ranks,
		.n_beside = s->n_beside,
		.index = s->view_index,
		.path = s->view_path,
		.names = names,
		.format = s->type,
		.joined = s->joined,
		.foreign = s->format->owner == RSH_OWNER_RANKS,
	};
}

struct rsh_store *rsh_source_store(const struct rsh_source *s)
{
	return s->store;
}

const struct rsh_error *rsh_source_unread(const struct rsh_source *s)
{
	return s->unread.code ? &s->unread : NULL;
}

uint32_t rsh_source_n_bad(const struct rsh_source *s, const char **first)
{
	*first = s->first_bad.text;
	return s->n_bad;
}

/* A scan waits for one small read after the other, so the parallelism of the
 * storage matters, not the number of processors. */
#define SCAN_THREADS 32
#define SCAN_THREADS_FAR 256

unsigned rsh_source_scan_threads(const struct rsh_source *s)
{
	if (s->n_threads)
		return s->n_threads;
	return s->far ? (unsigned)rsh_min_u64(s->far, SCAN_THREADS_FAR) :
			SCAN_THREADS;
}

/* ---- reading ---- */

int rsh_source_read_at(struct rsh_source *s, uint32_t rank, uint64_t offset,
		       void *buf, size_t len, const struct rsh_wait *wait)
{
	uint32_t file;

	if (!rsh_source_locate(s, rank, &offset, &file))
		return -ENOENT;
	return rsh_store_read(s->store, file, offset, buf, len, wait);
}

int rsh_source_read(struct rsh_source *s, uint32_t rank, uint64_t offset,
		    void *buf, size_t len)
{
	return rsh_source_read_at(s, rank, offset, buf, len, RSH_WAIT);
}

bool rsh_source_whole(struct rsh_source *s, uint32_t rank, uint64_t bytes,
		      uint32_t *file)
{
	uint64_t first = 0;

	return rsh_source_locate(s, rank, &first, file) &&
	       (uint64_t)rsh_store_identity(s->store, *file)->size == bytes &&
	       rsh_store_is_straight(s->store, *file);
}

/* ---- functions for formats ---- */

void rsh_source_keep(struct rsh_source *s, void *state,
		     const struct rsh_step_facts *facts,
		     void (*free_it)(void *state))
{
	if (s->state)
		s->free_state(s->state);
	s->state = state;
	s->facts = facts ? facts : &no_facts;
	s->free_state = free_it;
}

const char *rsh_source_file(const struct rsh_source *s)
{
	return s->file;
}

const struct rsh_step_facts *rsh_source_facts(const struct rsh_source *s)
{
	return s->facts;
}

void *rsh_source_state(const struct rsh_source *s)
{
	return s->state;
}

int rsh_source_index_dir(const struct rsh_source *s)
{
	return rsh_store_is_true(s->store) ? s->index_dirfd : -1;
}
