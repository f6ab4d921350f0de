/* SPDX-License-Identifier: Apache-2.0 */
/* source/counters.c reads the numbers of steps in files of ranks, and compares
 * them. */
#include "config.h"

#include "rsh/source/counters.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "source_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/source/sample.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/thread.h"
#include "rsh/wire/bytes.h"

/* This number is increased when the decision changes. */
#define VERDICT_VERSION 1
/* Reads wait for the storage, so there are more threads than processors. */
#define READ_THREADS 32

/* ModelCheckpoint and the savers of lost jobs write the first ones.  Others
 * that they write may differ by rank ("cur_rank") or be equal in all saves
 * ("batch_num").  The last one is a parameter of optimizers, which a network
 * may use as it likes. */
static const char *const counters[RSH_COUNTERS] = {
	"step_num", "epoch_num", "global_step",
};
#define OF_SAVERS 2

/* ---- one file ---- */

/* Returns the record of a number: one integer of 4 or 8 bytes. */
static const struct rsh_record *counter_find(const struct rsh_ckpt_index *ix,
					     struct rsh_names *names,
					     unsigned i)
{
	const uint32_t name = rsh_names_find(names, counters[i],
					     strlen(counters[i]));
	const struct rsh_record *r = name == RSH_NAME_NONE ? NULL :
				     rsh_ckpt_find(ix, name);

	return r && (r->dtype == RSH_DTYPE_INT32 ||
		     r->dtype == RSH_DTYPE_INT64) &&
	       r->content_bytes == rsh_dtype_size(r->dtype) &&
	       r->n_extents == 1 ? r : NULL;
}

unsigned rsh_counters_read(const struct rsh_byte_source *file,
			   const struct rsh_ckpt_index *ix,
			   struct rsh_names *names, struct rsh_counters *out)
{
	unsigned n = 0;

	*out = (struct rsh_counters){ .known = 0 };
	for (unsigned i = 0; i < RSH_COUNTERS; i++) {
		const struct rsh_record *r = counter_find(ix, names, i);
		uint8_t bytes[8] = { 0 };
		struct rsh_content content;
		uint64_t at;

		if (!r)
			continue;
		n++;
		content = rsh_record_content(ix, r);
		rsh_content_move(&content, 0, &at);
		if (!file || rsh_bytes_read(file, bytes, r->content_bytes, at,
					    NULL))
			continue;
		out->values[i] = rsh_le64(bytes);
		out->known |= 1u << i;
	}
	return n;
}

/* ---- all files ---- */

int rsh_counters_compare(const struct rsh_counters *files,
			 const char *const *paths, uint32_t n, bool stepped,
			 struct rsh_error *err)
{
	struct rsh_error why = RSH_ERROR_INIT;

	for (unsigned i = 0; i < RSH_COUNTERS; i++) {
		uint32_t first = 0;

		while (first < n && !(files[first].known >> i & 1))
			first++;
		for (uint32_t k = first + 1; k < n; k++) {
			if (!(files[k].known >> i & 1) ||
			    files[k].values[i] == files[first].values[i])
				continue;
			rsh_error_set(
				&why, EBADMSG, "%s: the files are not of one "
				"save: its %s is %" PRIu64 ", and that of %s "
				"is %" PRIu64, paths[k], counters[i],
				files[k].values[i], paths[first],
				files[first].values[i]);
			if (!stepped && i < OF_SAVERS)
				return rsh_error_set(err, EBADMSG, "%s",
						     why.text);
			rsh_log_warning("%s; they are shown as one", why.text);
			return 1;
		}
	}
	return 0;
}

struct reading {
	struct rsh_source *source;
	struct rsh_names *names;
	struct rsh_counters *files; /* [file] */
};

struct rank_bytes {
	struct rsh_source *source;
	uint32_t rank;
};

static ssize_t rank_pread(void *ctx, void *buf, size_t len, uint64_t offset)
{
	const struct rank_bytes *r = ctx;

	return rsh_source_sample(r->source, r->rank, offset, buf, len) ?
	       (ssize_t)len : -EIO;
}

/* Always returns 0: of a file that cannot be read nothing is known. */
static int read_file(void *ctx, size_t i, struct rsh_error *err)
{
	const struct reading *r = ctx;
	const struct rsh_source_file *f = &r->source->files[i];
	struct rank_bytes rank = { r->source, f->rank };
	const struct rsh_byte_source file = {
		.pread_fn = rank_pread, .ctx = &rank,
		.size = f->index ? f->index->file_bytes : 0,
		.path = rsh_store_path(r->source->store, (uint32_t)i),
	};

	(void)err;
	if (f->index)
		rsh_counters_read(&file, f->index, r->names, &r->files[i]);
	return 0;
}

/* Most ranks share an index, so no file is asked before an index has a
 * number. */
static bool any_has_counters(const struct rsh_source *s,
			     struct rsh_names *names)
{
	struct rsh_counters none;

	return rsh_any(i, s->n_indexes,
		       rsh_counters_read(NULL, s->indexes[i], names, &none));
}

int rsh_source_check_counters(struct rsh_source *s, struct rsh_names *names,
			      struct rsh_error *err)
{
	cleanup_free struct rsh_counters *files =
		calloc((size_t)s->n_files + 1, sizeof(*files));
	cleanup_free const char **paths =
		rsh_alloc_array((size_t)s->n_files + 1, sizeof(*paths));
	struct reading r = { s, names, files };
	struct rsh_candidate_step step;
	bool keep, all = true;
	uint64_t digest;
	int rc;

	if (!s->format->by_name || rsh_source_owner(s) != RSH_OWNER_RANK ||
	    s->check == RSH_CHECK_STRUCTURE || s->n_files < 2 ||
	    !any_has_counters(s, names))
		return 0;
	if (!files || !paths)
		return rsh_error_nomem(err);
	keep = rsh_source_digest(s, &digest);
	if (keep) {
		digest = XXH3_64bits_withSeed(&digest, sizeof(digest),
					      VERDICT_VERSION);
		if (rsh_source_was_right(s, digest))
			return 0;
	}
	rc = rsh_parallel_for(READ_THREADS, s->n_files, read_file, &r, err);
	for (uint32_t i = 0; i < s->n_files; i++) {
		paths[i] = rsh_store_path(s->store, i);
		all &= !s->files[i].index || files[i].known ||
		       !rsh_counters_read(NULL, s->files[i].index, names,
					  &(struct rsh_counters){ 0 });
	}
	rsh_source_candidate_step(s, s->chosen, &step);
	/* The converter does not look at names. */
	rc = rc ?: rsh_counters_compare(files, paths, s->n_files,
					step.stepped || s->select ==
						RSH_SELECT_MINDSPORE, err);
	if (rc == 0 && keep && all)
		rsh_source_keep_right(s, digest);
	return rc > 0 ? 0 : rc;
}
