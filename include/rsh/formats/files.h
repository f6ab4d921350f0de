/* SPDX-License-Identifier: Apache-2.0 */
/* formats/files.h - files of a source that a format reads by name: a file that
 * is not indexed, a map of parts. */
#pragma once

#include "rsh/source/format.h"
#include "rsh/source/step.h"
#include "rsh/wire/ckpt.h"
#include "rsh/wire/file_type.h"
#include "rsh/wire/safetensors.h"

/* This is a file that is open for reading.  If all its bytes are zero, it is
 * closed. */
struct rsh_format_file {
	struct rsh_byte_source bytes; /* bytes.path has SOURCE and the name */
	struct rsh_handle *handle;
	char *path;
};

/* Opens a regular file below SOURCE.  Returns 0 or -errno with a sentence. The
 * caller must close the file in both cases. */
int rsh_format_file_open(const struct rsh_source *s, const char *name,
			 struct rsh_format_file *out, struct rsh_error *err);
void rsh_format_file_close(struct rsh_format_file *f);
#define cleanup_format_file __attribute__((cleanup(rsh_format_file_close)))

/* Compares n bytes of two files.  Returns 0, or -errno with a sentence. */
int rsh_format_same_bytes(const struct rsh_byte_source *a, uint64_t at_a,
			  const struct rsh_byte_source *b, uint64_t at_b,
			  uint64_t n, bool *same, struct rsh_error *err);

/* Adds a file to the source's list.  Returns 0 or -ENOMEM. */
int rsh_format_list_file(struct rsh_source *s, const char *name);

/* A directory of one step. */
struct rsh_format_step {
	struct rsh_source *source;
	const char *dir; /* below SOURCE; "" means SOURCE */
	const char *label; /* struct rsh_checkpoint */
	struct rsh_step step;
	const char *series;
};
/* Adds the files in the directory for which `take` returns true; it may set
 * more of *c.  Returns 0, -ENOMEM, or -errno if the directory cannot be read to
 * its end, and then adds none. */
int rsh_format_list_step(const struct rsh_format_step *d,
			 bool (*take)(const char *name,
				      struct rsh_checkpoint *c));
/* A step whose directory cannot be read stays a candidate: it is an error if it
 * is tried, and does not matter if a newer one is taken.  SOURCE itself must be
 * read.  Returns 0 or -errno with a sentence. */
int rsh_format_list_unread(const struct rsh_format_step *d, int rc,
			   struct rsh_error *err);

/* ---- a model whose files have any name ---- */

/* Returns whether the name has -00001-of-00003, as parts do.  A model of one
 * part is whole. */
bool rsh_format_is_part(const char *name);
/* Returns whether the name has 0-mp8, as DeepSeek's slices do.  All have the
 * same tensors, of which each has a part; nothing in them says which. */
bool rsh_format_is_slice(const char *name);
/* Returns whether a file with that name may have all weights of a model: not
 * one of its parts, not a rank's slice, and not what is saved beside a model,
 * such as optimizer.pt, recipe_state.pt and adapters. */
bool rsh_format_may_hold_model(const char *name);
/* Returns whether the name is that of a map from weights to .safetensors or
 * .ckpt files, such as NAME.safetensors.index.json. */
bool rsh_format_is_map(const char *name);
/* Returns whether the name of a file, or of a directory in which it is, has the
 * number of a rank.  Nothing in such a file says whether it is whole, unless
 * config.json is beside weights of Hugging Face.  If the user says that SOURCE
 * is not sharded, only rank_N means a rank, and the name of a file that is not
 * SOURCE itself; ckpt_N, which may be a step, does so only as the directory of
 * the file itself. */
bool rsh_format_is_of_rank(const struct rsh_look *l, const char *name);
/* Says why such a file is not taken as a model. */
void rsh_format_hint_rank(const struct rsh_look *l, const char *name, char *buf,
			  size_t max);
/* Returns whether parts of a model are there without a map of them, and sets
 * the first one.  Another file beside them is not the model then. */
bool rsh_look_lacks_map(const struct rsh_look *l, const char **part);
/* Returns the number of entries for which `is` returns true, and sets the first
 * one. */
size_t rsh_look_count(const struct rsh_look *l, bool (*is)(const char *),
		      const char **first);
/* Does the same with the directory of an open source; *first is from malloc.
 * Returns 0 or -errno with a sentence. */
int rsh_format_search(const struct rsh_source *s, bool (*is)(const char *),
		      char **first, size_t *n, struct rsh_error *err);

/* Reads the map from weights to parts of a model.  Returns 0, or -errno with a
 * sentence.  The caller owns the map. */
int rsh_format_load_map(const struct rsh_source *s, const char *name,
			struct rsh_weight_map *map, struct rsh_error *err);
/* Compares the one file that has a whole model with the parts that a map beside
 * it names, and logs that the file is taken.  A map or a part that cannot be
 * read is only logged.  Returns 0, or -errno with a sentence: -EINVAL if a
 * tensor has another type or shape, or samples of its values differ. */
int rsh_format_check_duplicate(const struct rsh_source *s, const char *single,
			       const char *map_name, struct rsh_error *err);

/* Checks that a step has the file `marker`, which its framework writes last, to
 * its end if it is JSON, and that no file of the step is younger: a directory
 * that is saved into again has the marker of the last save.  Returns 0 or
 * -errno with a sentence. */
int rsh_format_check_marker(const struct rsh_source *s, const char *marker,
			    struct rsh_error *err);
/* Is the `judge` of models as transformers saves them: the marker is
 * trainer_state.json or, if there is none, and SOURCE is not the directory of a
 * step of the Trainer, the map of the parts. */
int rsh_format_judge_model(const struct rsh_source *s, bool ended,
			   struct rsh_error *err);

/* ---- steps, for --resume ---- */

/* Reads the name of a step's directory at the beginning of a path: a prefix and
 * a number.  Returns what follows its '/', or NULL if it is none. */
const char *rsh_step_dir_read(const char *path, const char *prefix,
			      struct rsh_step_name *out);

/* Returns the index of a name among n names in ascending order; n if it is not
 * among them. */
size_t rsh_step_place(const char *const *names, size_t n, const char *name);

/* Checks that a file of this type is complete.  If `full`, reads all of it.
 * Sets *says, unless it is NULL.  Returns 0 or -errno with a sentence. */
int rsh_step_check_file(enum rsh_file_type type,
			const struct rsh_byte_source *file, bool full,
			struct rsh_counters *says, struct rsh_error *err);

/* Logs that the content of a file is not verified, because torch wrote 0 for
 * each CRC.  Logs only once in a process, because all files of a job are
 * alike. */
void rsh_step_say_unsummed(const char *path);
