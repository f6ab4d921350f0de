/* SPDX-License-Identifier: Apache-2.0 */
/* formats/dcp/metadata_i.h - declarations shared by the reader of a ".metadata"
 * and the joining of several; only this directory includes it. */
#ifndef RSH_FORMATS_DCP_METADATA_I_H
#define RSH_FORMATS_DCP_METADATA_I_H

#include "rsh/formats/dcp.h"
#include "rsh/util/names.h"
#include "rsh/wire/pickle_values.h"

/* These are the files of a checkpoint, by number. */
struct rsh_dcp_files {
	struct rsh_names *names; /* in the order of appearance */
	uint32_t *number;        /* number of each name in ascending order */
};

/* Numbers the files in ascending order and stores them in *d. */
int rsh_dcp_files_sort(struct rsh_dcp_files *f, struct rsh_dcp *d,
		       struct rsh_error *err);
void rsh_dcp_files_clear(struct rsh_dcp_files *f);

/* Compares names, for qsort(). */
int rsh_dcp_tensor_by_name(const void *a, const void *b);
int rsh_dcp_value_by_name(const void *a, const void *b);

#define RSH_DCP_NO_INDEX (-1)

/* This is an entry of storage_data: the key of an item and its place. */
struct rsh_dcp_entry {
	const char *name;
	const struct rsh_pickle_value *from;
	uint32_t n_dims;
	uint32_t file; /* or RSH_DCP_NO_FILE for a value */
	const char *path;
	/* index among the tensor's chunks, or RSH_DCP_NO_INDEX */
	int64_t index;
	uint64_t offset, length;
};

struct rsh_dcp_reader {
	const struct rsh_byte_source *src;
	struct rsh_error *err;
	struct rsh_arena values; /* memory of the pickle's values */
	struct rsh_dcp *d;
	struct rsh_dcp_files files;
	struct rsh_dcp_entry *entries; /* sorted */
	uint32_t n_entries;
	uint64_t n_chunks; /* of all tensors */
	const char *name;  /* the current tensor */
	uint64_t at;       /* offset of the current object */
};

/* Sets a sentence about the current tensor and object.  Returns -EBADMSG. */
int rsh_dcp_bad(const struct rsh_dcp_reader *r, const char *what);
/* Returns whether a value is an object of one of the needed classes. */
bool rsh_dcp_is_made_of(const struct rsh_pickle_value *v, const char *class);
/* Checks whether a value is an object of a class, and makes it the current
 * object. */
int rsh_dcp_expect(struct rsh_dcp_reader *r, const struct rsh_pickle_value *v,
		   const char *class);
/* Returns an attribute of an object, or None if the object does not have it. */
const struct rsh_pickle_value *
rsh_dcp_attribute(const struct rsh_pickle_value *v, const char *name);
/* Reads a text as a name: it must be short and have no NUL. */
int rsh_dcp_name(const struct rsh_dcp_reader *r,
		 const struct rsh_pickle_value *v, const char **out);
/* Reads the offsets or the sizes of a box; out has room for n_dims of them. */
int rsh_dcp_numbers(const struct rsh_dcp_reader *r,
		    const struct rsh_pickle_value *v, uint32_t n_dims,
		    uint64_t *out);

/* Reads storage_data. */
int rsh_dcp_read_entries(struct rsh_dcp_reader *r,
			 const struct rsh_pickle_value *v);
/* Finds the item of a chunk.  The index is a hint that distinguishes copies.
 * Returns NULL if there is none. */
const struct rsh_dcp_entry *rsh_dcp_entry_find(const struct rsh_dcp_reader *r,
					       const struct rsh_dcp_entry *key);

#endif
