/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/backing.c finds the files of a conversion that equal a source file byte
 * for byte.
 *
 * For nearly all bytes this follows from the plan.  There are two exceptions:
 * headers, which the source may encode differently from the plan, and small
 * records that the converter takes from another rank although this rank has the
 * same.  These bytes are compared with the source, once for each file.
 */
#include "config.h"

#include "vfs_i.h"

#include <errno.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

/* These are the values that vfs_i.h gives rsh_vfs_file.backing. */
#define UNKNOWN 0
#define NONE 1
#define FIRST_FILE 2

/* The largest number of content bytes from other places that are compared. */
#define ELSEWHERE_MAX (64 * 1024)
/* A file with more sources does not count as a copy of one source file. */
#define SOURCES_MAX 8

#define COMPARE_BYTES 4096

/* A candidate is a source file that may equal the virtual file. */
struct backing_candidate {
	const struct rsh_reshard *v;
	struct rsh_body body; /* of the virtual file */
	uint32_t rank;     /* number of the source file */
	uint64_t elsewhere; /* content bytes that were compared */
};

/* Returns 1 if the source has the bytes of a piece, 0 if not, or -errno. */
static int backing_has_piece(struct backing_candidate *c,
			     const struct rsh_piece *p)
{
	uint8_t shown[COMPARE_BYTES], there[COMPARE_BYTES];

	if (!p->is_header && !p->is_tiled && p->codec == RSH_CODEC_NONE &&
	    p->src_rank == c->rank && p->src_offset == p->file_offset)
		return 1;
	if (!p->is_header)
		c->elsewhere += p->length;
	if (c->elsewhere > ELSEWHERE_MAX)
		return 0;
	for (uint64_t at = 0; at < p->length;) {
		const size_t n = (size_t)rsh_min_u64(p->length - at,
						     sizeof(shown));
		const uint64_t offset = p->file_offset + at;
		const uint8_t *bytes = p->is_header ? p->header + at : shown;
		ssize_t got = p->is_header ? (ssize_t)n :
			rsh_body_read(&c->body, shown, n, offset);
		int rc;

		if (got != (ssize_t)n)
			return got < 0 ? (int)got : -EIO;
		rc = rsh_source_read(c->v->source, c->rank, offset, there, n);
		if (rc)
			return rc;
		if (memcmp(there, bytes, n) != 0)
			return 0;
		at += n;
	}
	return 1;
}

/* Returns whether the candidate, which has the same size, equals the file, or
 * -errno. */
static int backing_check_all(struct backing_candidate *c, uint32_t rank,
			     uint64_t size)
{
	const struct rsh_reshard *v = c->v;
	struct rsh_piece_iter *it =
		rsh_piece_iter_new(v->plan, rank, 0, size, v->replicas ?
				   rsh_store_failed(rsh_source_store(v->source))
				   : NULL);
	struct rsh_piece p;
	int same = 1, rc;

	if (!it)
		return -ENOMEM;
	while (same == 1 && rsh_piece_iter_next(it, &p))
		same = backing_has_piece(c, &p);
	rc = rsh_piece_iter_status(it);
	rsh_piece_iter_free(it);
	return same == 1 && rc ? rc : same;
}

/* Finds a source file that equals a virtual file, and sets *file to it.
 * Returns 1 if there is one, 0 if not, or -errno. */
static int backing_find(const struct rsh_reshard *v, uint32_t rank,
			uint32_t *file)
{
	const uint64_t size = rsh_plan_size(v->plan, rank);
	const uint32_t *sources;
	uint32_t n;
	int same = 0;

	sources = rsh_plan_sources(v->plan, rank, &n);
	if (rsh_plan_is_lost(v->plan, rank) || n > SOURCES_MAX)
		return 0;
	for (uint32_t i = 0; i < n && same == 0; i++) {
		struct backing_candidate c = {
			.v = v, .rank = sources[i],
			.body = rsh_body_of_plan(v->reader, rank),
		};

		if (rsh_source_whole(v->source, c.rank, size, file))
			same = backing_check_all(&c, rank, size);
	}
	return same;
}

int rsh_reshard_backing(const struct rsh_vfs *vfs, uint32_t leaf,
			uint32_t *file)
{
	const struct rsh_reshard *v = rsh_reshard_of(vfs);
	struct rsh_store *store = rsh_source_store(v->source);
	atomic_uint_fast64_t *known;
	cleanup_fd int fd = -1;
	int rc;

	if (leaf >= v->n_files)
		return -ENODATA;
	known = &v->files[leaf].backing;
	if (atomic_load(known) == UNKNOWN) {
		rc = backing_find(v, leaf, file);
		if (rc < 0)
			return v->replicas || rc == -EIO ? -ENODATA : rc;
		atomic_store(known, rc ? FIRST_FILE + (uint64_t)*file : NONE);
	}
	if (atomic_load(known) == NONE)
		return -ENODATA;
	*file = (uint32_t)(atomic_load(known) - FIRST_FILE);
	/* With replicas, the file is given only if it exists and has not
	 * changed, since otherwise a replica is read instead. */
	return v->replicas && (rsh_store_file_failed(store, *file) ||
			       rsh_store_descriptor(store, *file, &fd)) ?
		       -ENODATA : 0;
}
