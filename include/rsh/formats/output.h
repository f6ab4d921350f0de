/* SPDX-License-Identifier: Apache-2.0 */
/* formats/output.h - output formats: how files are written, what goes into
 * each, where they are in the tree, and which files are beside the weights.
 *
 * An output is output.c in its form's directory, and one line of the list in
 * formats/outputs.h.  Other code uses this struct, and names no output.
 *
 * Threads: an output is constant.  One thread builds a tree; any thread may
 * read it after that. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rsh/formats/model_files.h"
#include "rsh/formats/tree.h"
#include "rsh/plan/framing.h"
#include "rsh/plan/writer.h"
#include "rsh/read/body.h"
#include "rsh/source/format.h"
#include "rsh/storage/store.h"
#include "rsh/strategy/strategy.h"
#include "rsh/util/error.h"
#include "rsh/wire/json_edit.h"

/* This is what an output supports. */
enum rsh_output_takes {
	/* Ranks with separate files: --dst-strategy, --dst-mesh.  An output
	 * without this is one whole model. */
	RSH_TAKES_RANKS = 1 << 0,
	/* Files that MindSpore's converter reads and writes. */
	RSH_TAKES_CONVERTER = 1 << 1,
	/* Hugging Face's names of weights. */
	RSH_TAKES_HF_NAMES = 1 << 2,
	/* Values of the source that are not tensors: as JSON, or, with the
	 * second, each as a pickle. */
	RSH_TAKES_VALUES = 1 << 3,
	RSH_TAKES_PICKLES = 1 << 7,
	/* The files beside a model, such as config.json. */
	RSH_TAKES_MODEL_FILES = 1 << 5,
	/* The optimizer's tensors, which are left out unless --optimizer keeps
	 * them. */
	RSH_TAKES_OPTIMIZER = 1 << 6,
	/* The adapter of the source alone, with PEFT's names. */
	RSH_TAKES_ADAPTER = 1 << 8,
	/* Ranks of a mesh that the output itself divides the model over:
	 * --dst-mesh with --convert, --config. */
	RSH_TAKES_MESH = 1 << 9,
	/* No option, but a form without an optimizer: its tensors are always
	 * left out. */
	RSH_TAKES_WEIGHTS_ALONE = 1 << 10,
};

/* The mesh of an output with RSH_TAKES_MESH, as the user wrote it. */
struct rsh_output_mesh {
	const char *axes;   /* "tp=2,pp=4"; NULL: one rank */
	const char *layers; /* of stages, "1,3,2"; NULL: equal */
	const char *step;   /* the name of the step */
};

/* What `plan` gets. */
struct rsh_output_job {
	const struct rsh_offers *offers;
	const struct rsh_plan_options *opts;
	const struct rsh_output_mesh *mesh;
	struct rsh_source *source;
	const char *config; /* the model's config.json; NULL: that of SOURCE, if
			     * there is one */
};

struct rsh_output_tree;

struct rsh_output {
	const char *name; /* the value of --format */
	/* A number in manifests that distinguishes the output from others that
	 * have the same format and also no parts; 0: not needed.  It never
	 * changes. */
	uint8_t digest;
	const char *suffix; /* of the plan's files */
	const struct rsh_framing *framing;
	enum rsh_division division;
	uint64_t part_bytes; /* default of --part-size; 0: 5 GB */
	unsigned takes;
	/* The options that it supports and not every output does, "a|b"; NULL:
	 * there are none. */
	const char *options;
	/* The path of the file that shows readers that the others are complete.
	 * An export writes it last.  NULL: there is none. */
	const char *last;
	/* With RSH_TAKES_MESH: the default of --prefix, and a function that
	 * checks a mesh, which returns 0, or -EINVAL with a sentence. */
	const char *step;
	int (*check_mesh)(const struct rsh_output_mesh *mesh,
			  struct rsh_error *err);
	/* Plans the files.  Takes the catalogue of the offers over, also on
	 * failure.  Returns 0 or -errno with a sentence.  NULL: the general
	 * writer does it (plan/writer.h). */
	int (*plan)(const struct rsh_output_job *job, struct rsh_plan **out,
		    struct rsh_error *err);
	/* Makes the form for the plan's options of what the headers of the
	 * source's files say (from malloc; NULL: nothing), and warns of what
	 * the files will not say.  `as_saved` is that of struct
	 * rsh_output_tree.  Returns 0 or -ENOMEM.  This member may be NULL. */
	int (*take_headers)(const struct rsh_source *s, bool as_saved,
			    const struct rsh_plan_options *opts, void **form);
	/* Names the files of the plan, which are the nodes RSH_NODE_OF_FILE(i)
	 * and the leaves i, and adds the files beside them.  Returns 0 or
	 * -errno with a sentence.  The caller must call
	 * rsh_output_tree_clear(), also after a failure. */
	int (*build)(struct rsh_output_tree *t, struct rsh_error *err);
	/* Frees t->state, which may be NULL.  This member may be NULL. */
	void (*free)(void *state);
};

/* These are node numbers of a conversion.  The root is 1.  Files of the plan
 * have odd numbers.  All other nodes have even numbers, or numbers after those
 * of all files. */
#define RSH_NODE_OF_FILE(i) (3 + 2 * (uint64_t)(i))
#define RSH_NODE_BESIDE(i) (2 + 2 * (uint64_t)(i))

/* This is a file that is not in the plan. */
struct rsh_output_text {
	struct rsh_body body;
	/* The mode and the time of a file of the source.  NULL: the mode is
	 * `mode` without the permissions that a file of the plan does not have,
	 * and the time is that of the newest of these files. */
	const struct rsh_store_attr *attr;
	mode_t mode;
};

struct rsh_output_tree {
	/* ---- input ---- */
	const struct rsh_output *output;
	struct rsh_tree *tree; /* it has only a root */
	const struct rsh_plan *plan;
	struct rsh_source *source;
	const struct rsh_reader *reader;
	const struct rsh_strategy *src, *dst; /* NULL: none */
	const struct rsh_names *names;
	/* The members below are valid while the tree is built.  The members
	 * above must outlive it. */
	const char *prefix; /* of the files of ranks */
	const struct rsh_output_mesh *mesh;
	/* The files that are shown beside a model. */
	struct rsh_model_files_at beside;
	bool partial; /* the options leave tensors out */
	bool as_saved; /* the options change no tensor and no name */
	unsigned lora_alpha; /* of an adapter that is shown */
	/* The adapter_config.json that is shown; NULL: that of lora_alpha. */
	const char *adapter_config;
	/* Compares a config.json with the sizes with which the weights were
	 * made, and adds missing sizes.  NULL: the config.json is shown
	 * unchanged.  Returns 0, 1 if it is complete and the output changes
	 * nothing more, or -errno with a sentence. */
	int (*hold_config)(void *ctx, struct rsh_json_edit *e,
			   const char *path, struct rsh_error *err);
	void *ctx;
	/* values of the source that are not tensors */
	const struct rsh_values *values;

	/* ---- added by the output ---- */
	/* Text i is the leaf n + i, if the plan has n files. */
	struct rsh_output_text *texts;
	size_t n_texts, cap_texts;
	char *values_text;
	void *state; /* owned by the output */
};

/* Frees what was built. */
void rsh_output_tree_clear(struct rsh_output_tree *t);

/* ---- for outputs ---- */

/* Adds a text and returns its leaf, which is used in a row of the tree. Returns
 * 0 or -ENOMEM. */
int rsh_output_add_text(struct rsh_output_tree *t,
			const struct rsh_output_text *text, uint32_t *leaf);
/* Adds a text as the file with this node and name in the directory `parent`.
 * The arena or the output owns the name.  Returns 0 or -ENOMEM. */
int rsh_output_add_file(struct rsh_output_tree *t, uint64_t node,
			uint64_t parent, const char *name,
			const struct rsh_output_text *text);
/* Adds the values that are not tensors, if there are any, as a file of JSON in
 * the root.  Returns 0 or -ENOMEM. */
int rsh_output_add_values(struct rsh_output_tree *t);
/* Adds a file with values to the root, as file `number` of these.  Its mode
 * allows no more than those of all files with values or tensors.  The arena or
 * the output owns `name` and `bytes`.  Returns 0 or -ENOMEM. */
int rsh_output_add_values_file(struct rsh_output_tree *t, uint32_t number,
			       const char *name, const void *bytes, size_t n);
/* Builds the tree of an output that has a directory for each rank and a file in
 * it.  See `build` of struct rsh_output. */
int rsh_output_build_ranks(struct rsh_output_tree *t, struct rsh_error *err);
/* Writes the name that a file of the plan has in the tree, below its directory
 * if all files have one name.  Returns the result of snprintf(). */
int rsh_output_file_name(const struct rsh_tree *t, uint32_t file, char *name,
			 size_t max);
