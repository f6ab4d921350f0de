/* SPDX-License-Identifier: Apache-2.0 */
/* formats/torch/torch_i.h - PyTorch's own files as a source; only this
 * directory includes it. */
#ifndef RSH_FORMATS_TORCH_I_H
#define RSH_FORMATS_TORCH_I_H

#include <pthread.h>

#include "rsh/formats/torch.h"
#include "rsh/source/format.h"
#include "rsh/wire/pickle.h"
#include "rsh/wire/safetensors.h"

/* This is the state of a source: one file or all parts of a model. */
struct rsh_source_torch {
	bool has_map;
	struct rsh_weight_map map; /* of its parts */
	uint32_t n;
	char **names; /* [n] */
	/* The mutex guards `files` while several threads make indexes.  Each
	 * file is parsed by one thread. */
	pthread_mutex_t lock;
	/* [n]: content, by the number of the file */
	struct rsh_torch_file **files;
};

/* ---- finding (listing.c) ---- */

int rsh_torch_file_bid(const struct rsh_look *l);
int rsh_torch_model_bid(const struct rsh_look *l);
void rsh_torch_hint(const struct rsh_look *l, char *buf, size_t max);
int rsh_torch_file_open(struct rsh_source *s,
			const struct rsh_source_options *opts,
			struct rsh_error *err);
int rsh_torch_model_open(struct rsh_source *s,
			 const struct rsh_source_options *opts,
			 struct rsh_error *err);
void rsh_torch_close(void *state);

/* ---- the content of the files (model.c) ---- */

int rsh_torch_scan(const struct rsh_scan_job *job, struct rsh_ckpt_index **out,
		   struct rsh_error *err);
bool rsh_torch_fits(const struct rsh_source *s, uint32_t file,
		    const struct rsh_ckpt_index *ix, struct rsh_names *names);
bool rsh_torch_has_crc(const struct rsh_source *s,
		       const struct rsh_ckpt_index *ix);
int rsh_torch_read(const struct rsh_read_job *job, struct rsh_offers *out,
		   struct rsh_error *err);
int rsh_torch_values(struct rsh_source *s,
		     const struct rsh_plan_options *opts,
		     struct rsh_values *out,
		     struct rsh_error *err);
void rsh_torch_each(const struct rsh_source *s,
		    void (*fn)(void *ctx, const char *name, uint64_t bytes),
		    void *ctx);
int rsh_torch_list(const struct rsh_source *s, struct rsh_arena *arena,
		   struct rsh_listed *out, struct rsh_error *err);
int rsh_torch_verify(const struct rsh_verifier *v);

/* ---- checking (check.c, check_legacy.c) ---- */

/* Checks the zip archive of a .pt.  If `full`, also reads all entries that are
 * not compressed, as PyTorch's are, and verifies their CRCs.  Sets *unsummed if
 * `full` and no entry has a CRC (torch.serialization.set_crc32_options(False)
 * writes none). */
int rsh_torch_zip_check(const struct rsh_byte_source *src, bool full,
			bool *unsummed, struct rsh_error *err);
/* Checks whether pickles and storages fill the file, which begins with the
 * magic number.  *p must be at the beginning of the file. */
int rsh_torch_legacy_check(struct rsh_pickle *p);

extern const struct rsh_resume_format rsh_torch_resume;

#endif
