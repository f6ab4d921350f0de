/* SPDX-License-Identifier: Apache-2.0 */
/* formats/dcp/metadata_i.h - what the reader of a ".metadata" and the joining
 * of several share; only this room includes it. */
#ifndef RSH_FORMATS_DCP_METADATA_I_H
#define RSH_FORMATS_DCP_METADATA_I_H

#include "rsh/formats/dcp.h"
#include "rsh/util/names.h"
#include "rsh/wire/pickle_values.h"

/* These are the files that a checkpoint consists of, by number. */
struct rsh_dcp_files {
	struct rsh_names *names; /* in the order of appearance */
	uint32_t *number;        /* of each name, in ascending order */
};

/* Numbers the files in ascending order and gives them to *d. */
int rsh_dcp_files_sort(struct rsh_dcp_files *f, struct rsh_dcp *d,
		       struct rsh_error *err);
void rsh_dcp_files_clear(struct rsh_dcp_files *f);

/* Compares names, for qsort(). */
int rsh_dcp_tensor_by_name(const void *a, const void *b);
int rsh_dcp_value_by_name(const void *a, const void *b);

#define RSH_DCP_NO_INDEX (-1)

/* This is what storage_data says of an item: key and place. */
struct rsh_dcp_entry {
	const char *name;
	const struct rsh_pickle_value *from;
	uint32_t n_dims;
	uint32_t file; /* or RSH_DCP_NO_FILE: of a value */
	const char *path;
	int64_t index; /* among the tensor's chunks, or RSH_DCP_NO_INDEX */
	uint64_t offset, length;
};

struct rsh_dcp_reader {
	const struct rsh_byte_source *src;
	struct rsh_error *err;
	struct rsh_arena values; /* of the pickle */
	struct rsh_dcp *d;
	struct rsh_dcp_files files;
	struct rsh_dcp_entry *entries; /* sorted */
	uint32_t n_entries;
	uint64_t n_chunks; /* of all tensors */
	const char *name;  /* of the current tensor */
	uint64_t at;       /* of the current object */
};

/* Sets a sentence about the current tensor and object; returns -EBADMSG. */
int rsh_dcp_bad(const struct rsh_dcp_reader *r, const char *what);
/* Tells whether a value is an object of one of the classes that are needed. */
bool rsh_dcp_is_made_of(const struct rsh_pickle_value *v, const char *class);
/* Checks whether a value is of a class, and makes it the current object. */
int rsh_dcp_expect(struct rsh_dcp_reader *r, const struct rsh_pickle_value *v,
		   const char *class);
/* Returns an attribute of an object; one that it does not have is None. */
const struct rsh_pickle_value *
rsh_dcp_attribute(const struct rsh_pickle_value *v, const char *name);
/* Takes a text that is to be a name: short, and without a NUL. */
int rsh_dcp_name(const struct rsh_dcp_reader *r,
		 const struct rsh_pickle_value *v, const char **out);
/* Takes the offsets or the sizes of a box; out has room for n_dims of them. */
int rsh_dcp_numbers(const struct rsh_dcp_reader *r,
		    const struct rsh_pickle_value *v, uint32_t n_dims,
		    uint64_t *out);

/* Reads storage_data. */
int rsh_dcp_read_entries(struct rsh_dcp_reader *r,
			 const struct rsh_pickle_value *v);
/* Finds the item of a chunk; the index is a hint, which tells copies apart.
 * NULL: there is none. */
const struct rsh_dcp_entry *rsh_dcp_entry_find(const struct rsh_dcp_reader *r,
					       const struct rsh_dcp_entry *key);

#endif
