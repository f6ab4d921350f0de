/* SPDX-License-Identifier: Apache-2.0 */
/* formats/torch/torch_i.h - declarations shared by the readers of the two
 * forms of a file; only this directory includes it. */
#pragma once

#include "rsh/formats/torch.h"
#include "rsh/util/names.h"
#include "rsh/wire/pickle_values.h"

/* A view has ranges that were read before, and reads come from these. This is
 * the maximum of ranges. */
#define RSH_TORCH_STRETCHES 3
struct rsh_torch_view {
	const struct rsh_byte_source *file;
	/* The archive is this part of the file.  Offsets are counted from its
	 * beginning. */
	uint64_t base, size;
	uint32_t n;
	struct {
		uint64_t at, n;
		uint8_t *data;
	} stretch[RSH_TORCH_STRETCHES];
};

/* Reads these bytes of the file into the view, at most up to the file's end. */
int rsh_torch_view_load(struct rsh_torch_view *v, uint64_t at, uint64_t n,
			struct rsh_error *err);
/* Returns whether the view has these bytes. */
bool rsh_torch_view_has(const struct rsh_torch_view *v, uint64_t at,
			uint64_t n);
/* Reads like pread(2), from the view if it has the bytes. */
ssize_t rsh_torch_view_pread(void *ctx, void *buf, size_t len, uint64_t offset);
void rsh_torch_view_clear(struct rsh_torch_view *v);

/* This is a storage before its place is known. */
struct rsh_torch_stored {
	const char *key;
	/* Size in bytes of the elements that `count` counts; 0 if the class is
	 * not known. */
	uint32_t width;
	uint64_t count; /* from the first class that names it */
};

/* A key of the current name: where its text is in the name, or an index. */
struct rsh_torch_step {
	size_t at, n;
	bool is_index;
	uint64_t index;
};

struct rsh_torch_reader {
	struct rsh_byte_source src; /* reads through the view */
	/* The archive is a small one, an item of a distributed checkpoint: both
	 * of its ends are read first, and then nothing that is not needed. */
	bool is_item;
	/* Reads parts of tensors; NULL: they are refused. */
	const struct rsh_torch_parts *parts;
	struct rsh_torch_view view;
	struct rsh_error *err;
	struct rsh_arena values;    /* memory of the pickles' values */
	struct rsh_torch_file *file;
	struct rsh_names *keys;     /* keys of the storages, by number */
	struct rsh_torch_stored *stored;
	size_t n_stored, cap_stored;
	uint64_t pickle_bytes;      /* number of pickle bytes read so far */
	uint64_t listed_bytes;      /* of its directory; 0: not counted */

	/* The walk over the object uses these.  After a failure rc is the
	 * error, whose sentence is in err, and what is read has no meaning. */
	int rc;
	char *name;
	size_t n_name, cap_name;
	struct rsh_torch_step *steps; /* keys of the current name */
	size_t n_steps, cap_steps;
	uint64_t visits_left, name_bytes_left, path_bytes_left;
	uint64_t json_bytes_left, pickle_bytes_left;
	uint32_t search; /* number of the search for tensors in objects */
	/* why the keys of the current path are no name; NULL: they are one */
	const char *unnamed;
	bool has_floats; /* of a value: it has a storage of floats */
	struct rsh_torch_tensor *tensors;
	struct rsh_torch_value *found;
	struct rsh_torch_storage *storages;
	size_t n_tensors, cap_tensors, n_found, cap_found;

	/* It is last, because its window is large and is not set to 0. */
	struct rsh_pickle pickle;
};

/* Sets the sentence "<path>: damaged at offset <offset>: <what>".  Returns
 * -EBADMSG. */
int rsh_torch_bad(const struct rsh_torch_reader *r, uint64_t at,
		  const char *what);
/* Lets other threads read their files. */
void rsh_torch_listed_leave(struct rsh_torch_reader *r);
/* Reads a pickle by the rules of torch files, from r->pickle.at on and not
 * beyond `end`.  The storages that it names are added to the known ones. */
int rsh_torch_pickle(struct rsh_torch_reader *r, uint64_t end, bool goes_on,
		     struct rsh_pickle_value *out);
/* Returns whether it is known what the call of a name makes. */
bool rsh_torch_is_known(const struct rsh_pickle_class *class);
/* Finds the tensors and values of the object; that of an item is one tensor,
 * whose name is "". */
int rsh_torch_walk(struct rsh_torch_reader *r,
		   const struct rsh_pickle_value *root);
/* Reads the content of a zip archive.  It sets the places of file->storages. */
int rsh_torch_read_zip(struct rsh_torch_reader *r);
/* Reads the object of a zip archive as a value, and none of its storages. */
int rsh_torch_read_zip_value(struct rsh_torch_reader *r,
			     struct rsh_pickle_value *out);
/* Checks the places of a zip archive's entries and, if `full`, their CRCs.
 * *unsummed is true if it has none.  The object is not looked at. */
int rsh_torch_check_zip(struct rsh_torch_reader *r, bool full, bool *unsummed);
