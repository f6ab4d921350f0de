/* SPDX-License-Identifier: Apache-2.0 */
/* formats/versions/versions_i.h - the versions of a model that reinforcement
 * learning writes for its engines: weight_vNNNNNN/, full ones and deltas, as
 * slime, miles and vime write them for SGLang and vLLM.
 *
 *   index.c     model.safetensors.index.json of a version
 *   frame.c     a tensor of a delta: a frame of zstd, read forwards;
 *               checksums of tensors
 *   links.c     the versions on which one is built, down to a full one
 *   tensors.c   their tensors, and the checks before anything is read
 *   make.c      the bytes of a version
 *   versions.c  the format
 *
 * The files of a version that is a delta are those of the full version, or of
 * the base, on which it is built: their headers are the same, and only the
 * bytes of tensors differ (storage/made.h). */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <xxhash.h>

#include "rsh/source/format.h"
#include "rsh/storage/made.h"
#include "rsh/util/arena.h"
#include "rsh/util/blake3.h"
#include "rsh/util/error.h"
#include "rsh/util/names.h"

#define RSH_VERSION_INDEX "model.safetensors.index.json"
#define RSH_VERSION_SINGLE "model.safetensors"

/* ---- the index of a version (index.c) ---- */

enum rsh_delta_form { RSH_DELTA_XOR, RSH_DELTA_OVERWRITE };
enum rsh_sum_form { RSH_SUM_XXH3, RSH_SUM_BLAKE3, RSH_SUM_ADLER32 };

extern const char *const rsh_delta_forms[]; /* names; NULL ends them */
extern const char *const rsh_sum_forms[];

struct rsh_version_index {
	bool is_delta; /* false: nothing else here is set */
	uint64_t version, base;
	enum rsh_delta_form form;
	enum rsh_sum_form sum;
	uint32_t n_files, n_names;
	struct rsh_names *file_names; /* [n_files] */
	/* The tensors that have changed, and the numbers of their files. */
	struct rsh_changed_name {
		const char *name;
		uint32_t file;
	} *names;
	struct rsh_arena arena;
};

/* Parses an index; `label` is the name of the version in messages.  Returns 0,
 * or -errno with a sentence; the caller must call rsh_version_index_clear()
 * also on failure. */
int rsh_version_index_parse(const void *data, size_t len, const char *path,
			    const char *label, struct rsh_version_index *out,
			    struct rsh_error *err);
void rsh_version_index_clear(struct rsh_version_index *v);

/* Reads the number of a version from the name of its directory. */
bool rsh_version_read(const char *name, uint64_t *version);

/* ---- a frame (frame.c) ---- */

/* Bytes of a file that have one frame.  Any thread may call `read`, which
 * returns 0 or -errno. */
struct rsh_frame_place {
	int (*read)(void *ctx, uint32_t file, uint64_t offset, void *buf,
		    size_t len);
	void *ctx;
	uint32_t file;
	uint64_t offset, length;
	size_t chunk; /* bytes of a read */
};
/* Reads the size of the content that a frame's header says; UINT64_MAX: it does
 * not say it.  Returns 0, -EBADMSG if it is no frame, or the error of the
 * read. */
int rsh_frame_size(const struct rsh_frame_place *at, uint64_t *size);
/* Returns about how much memory an open frame uses. */
size_t rsh_frame_memory(const struct rsh_frame_place *at);

/* A tensor of a delta that is applied from its first byte to its last. */
struct rsh_change;
/* Begins to apply a tensor to one of `bytes` bytes.  Returns 0, and *out, which
 * the caller closes, or -ENOMEM. */
int rsh_change_open(const struct rsh_frame_place *at, enum rsh_delta_form form,
		    uint64_t bytes, struct rsh_change **out);
void rsh_change_close(struct rsh_change *c); /* c may be NULL */
/* Changes the next n bytes of the tensor; after the last byte it also checks
 * that nothing is left.  Returns 0, -EBADMSG if the frame is damaged or ends
 * before, -ENOMEM, or the error of the read. */
int rsh_change_apply(struct rsh_change *c, uint8_t *p, size_t n);
/* Returns the size of the content that fits a tensor of `bytes` bytes at
 * most. */
uint64_t rsh_change_content_max(enum rsh_delta_form form, uint64_t bytes);

/* ---- checksums ---- */

#define RSH_SUM_BYTES 32
#define RSH_SUM_TEXT (2 * RSH_SUM_BYTES + 1)

struct rsh_summing {
	enum rsh_sum_form form;
	uint32_t adler;
	XXH3_state_t *xxh3;
	struct rsh_blake3 blake3;
};
/* Returns 0 or -ENOMEM. */
int rsh_summing_begin(struct rsh_summing *s, enum rsh_sum_form form);
void rsh_summing_add(struct rsh_summing *s, const void *p, size_t n);
/* Writes the checksum as trainers write it, and frees what it used. */
void rsh_summing_end(struct rsh_summing *s, char text[RSH_SUM_TEXT]);
/* Returns whether a text may be a checksum. */
bool rsh_sum_is_valid(enum rsh_sum_form form, const char *text);

/* ---- the versions on which one is built (links.c) ---- */

/* Where versions are. */
struct rsh_versions_place {
	const char *dir;  /* with all of them */
	const char *base; /* the model of version 0; NULL: not given */
	const struct rsh_store_options *store;
};

struct rsh_version_name {
	uint64_t version;
	char *name;
};
/* The versions of a directory, ascending. */
struct rsh_version_names {
	struct rsh_version_name *v;
	size_t n, cap;
};
int rsh_version_names_read(struct rsh_version_names *l,
			   const struct rsh_store *store);
void rsh_version_names_clear(struct rsh_version_names *l);

struct rsh_version_link {
	const char *name; /* of the directory */
	struct rsh_version_index index;
	/* How many inputs this version has: the first ones. */
	uint32_t n_inputs;
};

struct rsh_version_links {
	struct rsh_store *store; /* of place->dir, without files */
	struct rsh_version_names names;
	/* The deltas, the newest first. */
	uint32_t n;
	struct rsh_version_link *v;
	size_t cap;
	/* The full version or the base: its directory, as a name in the store,
	 * and its files, whose names are below it. */
	bool is_base;
	const char *full;
	uint32_t n_files;
	const char **files;
	struct rsh_arena arena;
};
/* Finds what a version is built on.  Returns 0, or -errno with a sentence; the
 * caller must call rsh_version_links_clear() in any case.  -EAGAIN: another
 * version is lost or incomplete. */
int rsh_version_links_find(const struct rsh_versions_place *at,
			   uint64_t version, struct rsh_version_links *out,
			   struct rsh_error *err);
void rsh_version_links_clear(struct rsh_version_links *l);
/* Returns the name of version 0 or of a directory for messages. */
const char *rsh_version_label(const struct rsh_version_links *l, uint32_t i);

/* ---- tensors (tensors.c) ---- */

struct rsh_patch {
	uint32_t delta; /* number of the version in links->v */
	uint32_t file;  /* of the inputs */
	uint64_t offset, length;
	const char *sum; /* NULL: it has none */
};

struct rsh_made_tensor {
	const char *name;
	uint32_t file; /* of the full version */
	uint64_t offset, bytes;
	uint32_t n_patches;
	struct rsh_patch *patches; /* the oldest first */
	atomic_bool verified;
	atomic_flag reported;
};

/* A version that can be read. */
struct rsh_version_chain {
	struct rsh_version_links links;
	struct rsh_store *inputs; /* links.store, with files: those of the full
				   * version are the first ones */
	struct rsh_names *all_names;
	size_t chunk; /* bytes of a read of a frame */
	uint64_t room; /* memory for makers */
	/* Only changed tensors, ascending by file and offset. */
	uint32_t n_tensors;
	struct rsh_made_tensor *tensors;
	uint32_t *first; /* [links.n_files + 1]: the first tensor of a file */
	/* [n_earlier * links.n_files]: the files of the versions before this
	 * one, the newest first, for rsh_store_peek_made(). */
	uint32_t n_earlier;
	uint32_t *earlier;
	struct rsh_arena arena;
};

/* Opens a version: reads the headers of all files, and compares a tensor of the
 * base with its checksum.  Returns 0 and *out, which the caller closes, or
 * -errno with a sentence. */
int rsh_version_chain_open(const struct rsh_versions_place *at,
			   uint64_t version, struct rsh_version_chain **out,
			   struct rsh_error *err);
void rsh_version_chain_close(void *c); /* c may be NULL */

/* ---- bytes (make.c) ---- */

/* Does what `read` of struct rsh_made does. */
ssize_t rsh_version_read_file(void *chain, uint32_t file, void *buf, size_t len,
			      uint64_t offset);
/* Makes a tensor with its first n deltas, and compares the checksum of each.
 * Returns 0, or -errno with a sentence: -EBADMSG if a delta is damaged,
 * -EKEYREJECTED if a checksum differs. */
int rsh_version_verify(struct rsh_version_chain *c, struct rsh_made_tensor *t,
		       uint32_t n, struct rsh_error *err);
/* Returns where the frame of a patch is. */
struct rsh_frame_place rsh_patch_place(const struct rsh_version_chain *c,
				       const struct rsh_patch *p);
/* Frees the memory that is kept for a chain. */
void rsh_version_forget(const struct rsh_version_chain *c);
