/* SPDX-License-Identifier: Apache-2.0 */
/* dialects/dcp.h - the dialect of distributed checkpoints (source/dcp.h): its
 * reader makes a catalogue of what the metadata says and the files hold, and
 * the general writer (writer/writer.h) shows it. */
#ifndef RSH_DIALECTS_DCP_H
#define RSH_DIALECTS_DCP_H

#include "rsh/source/dcp.h"
#include "rsh/util/arena.h"
#include "rsh/writer/writer.h"

/* Makes the catalogue and the offers of the tensors that are wanted, for which
 * `source` is such a checkpoint and indexed.  Of the options, wanted,
 * allow_missing and report_lost count; with allow_missing a tensor that lacks
 * chunks is left out where there is no destination, and else its files are to
 * be lost.  The catalogue is the caller's, and the offers live as long as
 * `arena` and `source`.  0, or -errno with a sentence: -EBADMSG where a file
 * contradicts the metadata, -ENOENT for chunks that no file has, -ENOTSUP for a
 * type of elements that is not known. */
int rsh_dcp_read(const struct rsh_source *source,
		 const struct rsh_source_view *view,
		 const struct rsh_strategy *dst,
		 const struct rsh_conversion_options *opts,
		 struct rsh_arena *arena, struct rsh_catalogue **cat,
		 struct rsh_offer **out, uint32_t *n_out,
		 struct rsh_error *err);
/* Plans the files of what was read, or of offers that were made of those, as
 * rsh_write_plan() does, but for replicas and report_lost: chunks that are twice
 * there always make up for each other, and what is lacking is told by the
 * reader. */
int rsh_dcp_write(struct rsh_catalogue *cat, const struct rsh_offer *offers,
		  uint32_t n, const struct rsh_strategy *dst,
		  const struct rsh_conversion_options *opts,
		  struct rsh_plan **out, struct rsh_error *err);
/* Reads and plans the files.  Returns what both give. */
int rsh_dcp_plan(const struct rsh_source *source,
		 const struct rsh_source_view *view,
		 const struct rsh_strategy *dst,
		 const struct rsh_conversion_options *opts,
		 struct rsh_plan **out, struct rsh_error *err);

/* These are the values that are no tensors. */
struct rsh_dcp_extra {
	char *text; /* a JSON object of those that are plain data, by name (from
		     * malloc); NULL: there are none */
	size_t len;
	struct rsh_store_attr attr; /* who may read all of their files */
};
/* Reads the values that are wanted, several at a time; *note says how many are
 * left out (from malloc; NULL: none).  0, or -ENOMEM with a sentence. */
int rsh_dcp_extra_state(struct rsh_source *source,
			const struct rsh_conversion_options *opts,
			struct rsh_dcp_extra *out, char **note,
			struct rsh_error *err);

/* Says how many of a tensor's elements are in no chunk.  0, -ENOMEM, or -errno
 * with a sentence that names the tensor: -EINVAL for boxes that overlap in part
 * or leave the tensor, -EFBIG for more elements than can be. */
int rsh_dcp_uncovered(const struct rsh_dcp_tensor *t, uint64_t *elements,
		      struct rsh_error *err);

#endif
