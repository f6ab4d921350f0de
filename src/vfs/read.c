/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/read.c - bytes of a conversion's file. */
#include "config.h"

#include "vfs_i.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "rsh/source/gather.h"
#include "rsh/util/log.h"

/* Among so many pieces of a range a long one is looked for. */
#define ORIGIN_PIECES 4

/* Files that fail and answer and fail again must not keep a reader. */
#define MOST_TURNS 1024

static int read_once(const struct rsh_reshard *v, uint32_t rank, void *buf,
		     size_t len, uint64_t offset, const atomic_bool *avoid)
{
	struct rsh_piece_iter *it =
		rsh_piece_iter_new(v->conversion, rank, offset, len, avoid);
	int rc;

	if (!it)
		return -ENOMEM;
	/* Who has another file to turn to does not wait for this one. */
	rc = rsh_source_gather(v->source, it, buf, len, !avoid);
	rsh_piece_iter_free(it);
	return rc;
}

/* A file that fails in the middle of a request is left to its replicas: the
 * whole request is read anew without it.  When there are none left the file
 * itself has to say what is wrong with it, or has come back. */
static int read_range(const struct rsh_reshard *v, uint32_t rank, void *buf,
		      size_t len, uint64_t offset)
{
	for (int i = 0; v->replicas && i < MOST_TURNS; i++) {
		unsigned marks = rsh_store_n_marks(rsh_source_store(v->source));
		int rc = read_once(v, rank, buf, len, offset,
				   rsh_store_failed(rsh_source_store(v->source)));

		if (rc == 0 || rc == -ENOMEM)
			return rc;
		if (marks == rsh_store_n_marks(rsh_source_store(v->source)))
			break;
	}
	return read_once(v, rank, buf, len, offset, NULL);
}

static int refuse_lost(const struct rsh_reshard *v, uint32_t rank)
{
	char name[NAME_MAX + 1];

	if (atomic_exchange(&v->files[rank].reported, true))
		return -EIO;
	rsh_file_name(v, rank, name, sizeof(name));
	rsh_log_error("%s needs slices that are lost", name);
	return -EIO;
}

static ssize_t read_map(const struct rsh_reshard *v, void *buf, size_t len,
			uint64_t offset)
{
	if (offset >= v->map_bytes)
		return 0;
	if (len > v->map_bytes - offset)
		len = (size_t)(v->map_bytes - offset);
	memcpy(buf, v->map + offset, len);
	return (ssize_t)len;
}

ssize_t rsh_reshard_read(const struct rsh_vfs *vfs, uint64_t node, void *buf,
			 size_t len, uint64_t offset)
{
	const struct rsh_reshard *v = rsh_reshard_of(vfs);
	uint64_t size;
	uint32_t rank;
	int rc;

	switch (rsh_node_decode(v, node, &rank)) {
	case RSH_NODE_FILE:
		break;
	case RSH_NODE_MAP:
		return read_map(v, buf, len, offset);
	case RSH_NODE_ROOT:
	case RSH_NODE_DIR:
		return -EISDIR;
	case RSH_NODE_NONE:
		return -ENOENT;
	}
	size = rsh_plan_size(v->conversion, rank);
	if (offset >= size)
		return 0;
	if (len > size - offset)
		len = (size_t)(size - offset);
	if (len > SSIZE_MAX)
		len = SSIZE_MAX;

	if (rsh_plan_is_lost(v->conversion, rank))
		return refuse_lost(v, rank);
	rc = read_range(v, rank, buf, len, offset);
	return rc ? rc : (ssize_t)len;
}

/* Headers and rows are copied by the program itself, which knows no slow
 * places; it is the first long piece that counts. */
uint64_t rsh_reshard_origin(const struct rsh_vfs *vfs, uint64_t node,
			    uint64_t offset, size_t len)
{
	const struct rsh_reshard *v = rsh_reshard_of(vfs);
	struct rsh_piece_iter *it;
	struct rsh_piece p;
	uint64_t origin = 0;
	uint32_t rank;

	if (rsh_node_decode(v, node, &rank) != RSH_NODE_FILE ||
	    rsh_plan_is_lost(v->conversion, rank))
		return 0;
	it = rsh_piece_iter_new(v->conversion, rank, offset, len, NULL);
	if (!it)
		return 0;
	for (int i = 0; i < ORIGIN_PIECES && rsh_piece_iter_next(it, &p); i++)
		if (!p.is_header && p.src_length >= RSH_PLACE_MAX) {
			origin = p.src_offset - (p.file_offset - offset);
			break;
		}
	rsh_piece_iter_free(it);
	return origin;
}
