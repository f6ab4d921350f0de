/* SPDX-License-Identifier: Apache-2.0 */
/* formats/outputs.h - the list of all outputs (output.h).  Any thread may call
 * these functions. */
#pragma once

#include "rsh/plan/conversion.h"
#include "rsh/formats/output.h"

/* The list has one line for each output, with its name for --format.  The first
 * is the default.  struct rsh_output rsh_output_NAME is in
 * the directory of its form, src/formats/NAME/, and those of the ranks' files
 * in src/formats/output.c. */
#define RSH_OUTPUT_LIST(EACH) \
	EACH(ckpt) \
	EACH(safetensors) \
	EACH(hf) \
	EACH(checkpoint2) \
	EACH(dcp) \
	EACH(hyperparallel) \
	EACH(megatron) \
	EACH(peft)

#define RSH_OUTPUT_DECLARE(name) \
	extern const struct rsh_output rsh_output_##name;
RSH_OUTPUT_LIST(RSH_OUTPUT_DECLARE)

/* This macro makes the names in the form of the table of options:
 * "ckpt|safetensors|..". */
#define RSH_OUTPUT_WORD(name) "|" #name
#define RSH_OUTPUT_WORDS (&(RSH_OUTPUT_LIST(RSH_OUTPUT_WORD))[1])

/* Returns the output with that name, or NULL. */
const struct rsh_output *rsh_output_find(const char *name);
/* Returns the default output. */
const struct rsh_output *rsh_output_default(void);
/* Returns the output for a whole model in the form of Hugging Face's tools. */
const struct rsh_output *rsh_output_of_models(void);

/* Returns whether the output's list of options has the option. */
bool rsh_output_supports(const struct rsh_output *o, const char *option);
/* Writes the names of the outputs whose lists have it: "hf or ..", or "". */
void rsh_output_names(const char *option, char *text, size_t size);

/* Sets in a conversion's options how the files of an output are written.
 * `part_bytes` is used for outputs with parts. */
void rsh_output_set(const struct rsh_output *o, uint64_t part_bytes,
		    struct rsh_plan_options *opts);
