/* SPDX-License-Identifier: Apache-2.0 */
/* formats/torch/reader_i.h - what the two forms of a file have in common; only
 * this directory includes it. */
#ifndef RSH_FORMATS_TORCH_READER_I_H
#define RSH_FORMATS_TORCH_READER_I_H

#include "rsh/formats/torch.h"
#include "rsh/util/names.h"
#include "rsh/wire/pickle_values.h"

/* A view serves reads from stretches that were read before. */
#define RSH_TORCH_STRETCHES 3
struct rsh_torch_view {
	const struct rsh_byte_source *file;
	uint32_t n;
	struct {
		uint64_t at, n;
		uint8_t *data;
	} stretch[RSH_TORCH_STRETCHES];
};

/* Reads these bytes of the file into the view, at most to the file's end. */
int rsh_torch_view_load(struct rsh_torch_view *v, uint64_t at, uint64_t n,
			struct rsh_error *err);
/* Tells whether the view has these bytes. */
bool rsh_torch_view_has(const struct rsh_torch_view *v, uint64_t at,
			uint64_t n);
void rsh_torch_view_clear(struct rsh_torch_view *v);

/* This is a storage while its place is not known yet. */
struct rsh_torch_stored {
	const char *key;
	/* What counts its elements; 0 for one of a class that is not known. */
	uint32_t width;
	uint64_t count; /* of the first class that names it */
};

struct rsh_torch_reader {
	struct rsh_byte_source src; /* of the view */
	struct rsh_torch_view view;
	struct rsh_error *err;
	struct rsh_arena values;    /* of the pickles */
	struct rsh_torch_file *file;
	struct rsh_pickle pickle;
	bool legacy;
	struct rsh_names *keys;     /* of the storages, by number */
	struct rsh_torch_stored *stored;
	size_t n_stored, cap_stored;
	uint64_t pickle_bytes;      /* of what has been read */

	/* These are of the walk over the object. */
	char *name;
	size_t n_name, cap_name;
	uint64_t visits_left, name_bytes_left, json_bytes_left;
	bool unnamed; /* a key on the way is no name */
	struct rsh_torch_tensor *tensors;
	struct rsh_torch_value *found;
	struct rsh_torch_storage *storages;
	size_t n_tensors, cap_tensors, n_found, cap_found;
};

/* Sets the sentence "<path>: damaged at offset <offset>: <what>" and returns
 * -EBADMSG. */
int rsh_torch_bad(const struct rsh_torch_reader *r, uint64_t at,
		  const char *what);
/* Reads a pickle by the rules of torch files, from r->pickle.at on and not
 * beyond `end`.  The storages that it names are added to those that are
 * known. */
int rsh_torch_pickle(struct rsh_torch_reader *r, uint64_t end, bool goes_on,
		     struct rsh_pickle_value *out);
/* Finds the tensors and values of the object. */
int rsh_torch_walk(struct rsh_torch_reader *r,
		   const struct rsh_pickle_value *root);

/* What a file of either form holds: these fill file->storages' places. */
int rsh_torch_read_zip(struct rsh_torch_reader *r);
int rsh_torch_read_legacy(struct rsh_torch_reader *r);

#endif
