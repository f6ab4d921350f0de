/* SPDX-License-Identifier: Apache-2.0 */
/* formats/ckpt/ckpt.c - the format of MindSpore's rank files: .ckpt or
 * .safetensors in directories of ranks, or where the options say. */
#include "config.h"

#include "ckpt_i.h"

#include <errno.h>
#include <string.h>

#include "rsh/formats/files.h"
#include "rsh/formats/formats.h"
#include "rsh/formats/ranks.h"
#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "rsh/wire/bytes.h"

/* With --src-strategy none, a model that is beside directories of ranks is
 * preferred to them. */
static int ckpt_bid(const struct rsh_look *l, struct rsh_bid_more *more)
{
	if (l->file)
		return RSH_BID_NO;
	if (!rsh_look_has_ranks(l))
		return RSH_BID_ANY;
	more->is_beside = l->opts && l->opts->unsharded;
	return more->is_beside ? RSH_BID_MODEL - 1 : RSH_BID_RANKS;
}

int rsh_ranks_offer(const struct rsh_read_job *job, struct rsh_offers *out,
		    struct rsh_error *err)
{
	const struct rsh_ranks_options how = {
		.rule = RSH_GRID_RUNTIME, .replicas = job->opts->replicas,
		.allow_missing = job->opts->allow_missing,
	};

	return rsh_ranks_read(job->view, job->src, &how, job->arena, out, err);
}

/* ---- encrypted files ----
 *
 * A block is: its cipher's magic number; for AES-GCM a tag; the length of what
 * follows; the length of the initialization vector; the vector; the length of
 * the cipher text; the cipher text. */

#define MAGIC_AES_GCM 0x7f3a5ed8u
#define MAGIC_AES_CBC 0x7f3a5ed9u
#define MAGIC_SM4_CBC 0x7f3a5edau
#define TAG_BYTES 16
#define VECTOR_BYTES 16
#define LENGTH_BYTES 4
/* A block has these bytes between its length and its cipher text. */
#define INNER_BYTES (LENGTH_BYTES + VECTOR_BYTES + LENGTH_BYTES)

/* Moves *at past the block. */
static int encrypted_skip_block(const struct rsh_byte_source *src,
				uint32_t magic, uint64_t *at,
				struct rsh_error *err)
{
	uint8_t h[LENGTH_BYTES + INNER_BYTES];
	uint64_t start = *at, bytes;
	int rc;

	start += LENGTH_BYTES + (magic == MAGIC_AES_GCM ? TAG_BYTES : 0);
	rc = rsh_bytes_read(src, h, sizeof(h), start, err);
	if (rc)
		return rc;
	bytes = rsh_le32(h);
	if (rsh_le32(h + LENGTH_BYTES) != VECTOR_BYTES ||
	    bytes != (uint64_t)INNER_BYTES +
		     rsh_le32(h + 2 * LENGTH_BYTES + VECTOR_BYTES))
		return rsh_bytes_damaged(src, start, "no block of an encrypted "
					 "checkpoint", err);
	start += LENGTH_BYTES;
	if (bytes > src->size - start)
		return rsh_bytes_damaged(src, src->size, "truncated within an "
					 "encrypted block", err);
	*at = start + bytes;
	return 0;
}

int rsh_encrypted_check(const struct rsh_byte_source *src,
			struct rsh_error *err)
{
	uint8_t start[LENGTH_BYTES];
	uint32_t magic;
	uint64_t at = 0;
	int rc;

	if (src->size < sizeof(start))
		return -ENOTSUP;
	do {
		rc = rsh_bytes_read(src, start, sizeof(start), at, err);
		if (rc)
			return rc;
		magic = rsh_le32(start);
		if (!(magic == MAGIC_AES_GCM || magic == MAGIC_AES_CBC ||
		      magic == MAGIC_SM4_CBC))
			return at == 0 ? -ENOTSUP :
			       rsh_bytes_damaged(src, at, "no block of an "
						 "encrypted checkpoint", err);
		rc = encrypted_skip_block(src, magic, &at, err);
	} while (rc == 0 && at < src->size);
	return rc;
}

/* ---- steps ---- */

static const char mindspore_ckpt[] = ".ckpt";
static const char mindspore_safetensors[] = ".safetensors";

static const char *mindspore_suffix(const char *name)
{
	return rsh_has_suffix(name, mindspore_ckpt) ? mindspore_ckpt :
						      mindspore_safetensors;
}

static enum rsh_part ckpt_part(const char *file, struct rsh_step_name *out)
{
	size_t n, n_prefix, begin, end;
	bool ranked;
	char *to;

	if (!rsh_has_suffix(file, mindspore_ckpt) &&
	    !rsh_has_suffix(file, mindspore_safetensors))
		return RSH_PART_NO;
	/* The parts of a Hugging Face model are not one checkpoint each. */
	if (rsh_format_is_part(file))
		return RSH_PART_NO;
	n = strlen(file) - strlen(mindspore_suffix(file));
	n_prefix = rsh_modelcheckpoint_read(file, n, RSH_RANK_UNKNOWN,
					    &out->step);
	if (out->step.n > 0) {
		strcpy(out->label, file);
		/* The series is the text before the step, without the rank's
		 * number, and the suffix. */
		begin = end = n_prefix;
		ranked = rsh_rank_in_name(file, n_prefix, &begin, &end);
		to = mempcpy(out->series, file, begin);
		if (ranked)
			*to++ = '#';
		to = mempcpy(to, file + end, n_prefix - end);
		strcpy(to, mindspore_suffix(file));
	} else {
		/* Names without a step may contain the rank's number, as
		 * checkpoint_3.ckpt does, so their series has no numbers. */
		rsh_step_name_read(file, n_prefix, out);
		out->step.n = 0;
	}
	out->n_stem = n;
	return RSH_PART_YES;
}

static int ckpt_check(const struct rsh_byte_source *files,
		      const char *const *names, size_t n, bool full,
		      struct rsh_counters *says, struct rsh_error *err)
{
	const bool is_ckpt = rsh_has_suffix(names[0], mindspore_ckpt);
	int rc = is_ckpt ? rsh_encrypted_check(files, err) : -ENOTSUP;

	(void)n;
	if (rc == -ENOTSUP) {
		rc = rsh_step_check_file(is_ckpt ? RSH_FILE_CKPT :
						   RSH_FILE_SAFETENSORS,
					 files, full, says, err);
		if (rc != -ENOTSUP)
			return rc;
		/* A file that cannot be converted can still be used for
		 * resuming. */
		rsh_log_notice("%s: not looked into", err->text);
		*err = (struct rsh_error)RSH_ERROR_INIT;
		return 0;
	}
	if (rc == 0)
		rsh_log_notice("%s: encrypted, only the lengths of its blocks "
			       "were checked", files[0].path);
	return rc;
}

/* ---- the format ---- */

const struct rsh_format rsh_ckpt_format = {
	.name = "ckpt",
	.says = "tree of rank files",
	.by_name = true,
	.bid = ckpt_bid,
	.open = rsh_source_list_ranks,
	.read = rsh_ranks_offer,
	.framework = "MindSpore",
	.part = ckpt_part,
	.check = ckpt_check,
};
