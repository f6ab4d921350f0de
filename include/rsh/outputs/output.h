/* SPDX-License-Identifier: Apache-2.0 */
/* outputs/output.h - a form in which checkpoints are shown: how its files are
 * written, what goes into each, where they are in the tree, and what is beside
 * the weights.
 *
 * An output is one file of src/outputs/ and one line of the list in
 * outputs/outputs.h.  Other code asks the output, and names none.
 *
 * Threads: an output is constant.  One thread builds a tree; any thread may
 * read what was built. */
#ifndef RSH_OUTPUTS_OUTPUT_H
#define RSH_OUTPUTS_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rsh/outputs/tree.h"
#include "rsh/plan/framing.h"
#include "rsh/read/body.h"
#include "rsh/source/format.h"
#include "rsh/storage/store.h"
#include "rsh/strategy/strategy.h"
#include "rsh/util/error.h"
#include "rsh/wire/json_edit.h"

/* Says what goes with an output. */
enum rsh_output_takes {
	/* Ranks, each with files of its own: --dst-strategy, --dst-mesh.
	 * Without it the output is one whole model. */
	RSH_TAKES_RANKS = 1 << 0,
	/* What is for files that MindSpore's converter reads and writes:
	 * --dst-ranks, --compat. */
	RSH_TAKES_CONVERTER = 1 << 1,
	/* Names of weights as Hugging Face has them. */
	RSH_TAKES_HF_NAMES = 1 << 2,
	/* Values of the source that are no tensors, as a text. */
	RSH_TAKES_VALUES = 1 << 3,
	RSH_TAKES_PART_SIZE = 1 << 4,   /* --part-size */
	RSH_TAKES_MODEL_FILES = 1 << 5, /* --model-files */
	/* --optimizer: unless that says otherwise, what is an optimizer's is
	 * left out. */
	RSH_TAKES_OPTIMIZER = 1 << 6,
};

struct rsh_output_tree;

struct rsh_output {
	const char *name; /* as --format has it */
	/* What manifests tell it by from the outputs that have the same format
	 * and no parts either; 0: nothing.  It never changes. */
	uint8_t digest;
	const char *suffix; /* of the plan's files */
	const struct rsh_framing *framing;
	enum rsh_division division;
	unsigned takes;
	/* The path of the file by which readers know that the others are
	 * complete: an export writes it last.  NULL: there is none. */
	const char *last;
	/* Names the files of the plan, which are the nodes RSH_NODE_OF_FILE(i)
	 * and the leaves i, and adds what is beside them.  0 or -errno with a
	 * sentence; rsh_output_tree_clear() is due after a failure, too. */
	int (*build)(struct rsh_output_tree *t, struct rsh_error *err);
	/* Frees t->state, which may be NULL; may be NULL. */
	void (*free)(void *state);
};

/* These are nodes of a conversion.  The root is 1, files of the plan have odd
 * numbers, and what else there is has even ones, or numbers behind all
 * files. */
#define RSH_NODE_OF_FILE(i) (3 + 2 * (uint64_t)(i))
#define RSH_NODE_BESIDE(i) (2 + 2 * (uint64_t)(i))

/* This is a file that is none of the plan's. */
struct rsh_output_text {
	struct rsh_body body;
	/* Mode and age, those of a file of the source; NULL: as readable as
	 * `mode` and all files of the plan, and as new as the newest of
	 * them. */
	const struct rsh_store_attr *attr;
	mode_t mode;
};

struct rsh_output_tree {
	/* ---- what it is built of ---- */
	const struct rsh_output *output;
	struct rsh_tree *tree; /* has a root, and nothing in it */
	const struct rsh_plan *plan;
	struct rsh_source *source;
	const struct rsh_reader *reader;
	const struct rsh_strategy *src, *dst; /* NULL: none */
	const struct rsh_names *names;
	/* What follows is there while the tree is built.  Everything above
	 * outlives it. */
	const char *prefix; /* of the files of ranks */
	/* The directory whose files are shown beside a model, NULL: none; the
	 * path of SOURCE, and how SOURCE is opened. */
	const char *model_files;
	const char *source_path;
	const struct rsh_store_options *store;
	bool partial; /* tensors are left out by intent */
	/* Compares a config.json that is shown with the sizes that the weights
	 * were made with, and adds missing ones; NULL: it is shown as it is.  0
	 * or -errno with a sentence. */
	int (*hold_config)(void *ctx, struct rsh_json_edit *e,
			   const char *path, struct rsh_error *err);
	void *ctx;
	const struct rsh_values *values; /* of the source, that are no tensors */

	/* ---- what the output adds ---- */
	/* Text i is the leaf n + i, where the plan has n files. */
	struct rsh_output_text *texts;
	size_t n_texts, cap_texts;
	void *state; /* the output's own */
};

/* Frees what was built. */
void rsh_output_tree_clear(struct rsh_output_tree *t);

/* ---- for outputs ---- */

/* Adds a text and gives its leaf, for a row of the tree.  0 or -ENOMEM. */
int rsh_output_add_text(struct rsh_output_tree *t,
			const struct rsh_output_text *text, uint32_t *leaf);
/* Adds the values that are no tensors, if there are any, as a file in the root.
 * 0 or -ENOMEM. */
int rsh_output_add_values(struct rsh_output_tree *t);
/* Builds the tree of an output that has a directory for each rank and a file in
 * it, as `build` of struct rsh_output does. */
int rsh_output_build_ranks(struct rsh_output_tree *t, struct rsh_error *err);
/* Writes the name that a file of the plan has in the tree; returns what
 * snprintf() does. */
int rsh_output_file_name(const struct rsh_tree *t, uint32_t file, char *name,
			 size_t max);

#endif
