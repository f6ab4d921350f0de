/* SPDX-License-Identifier: Apache-2.0 */
/* outputs/outputs.h - the outputs that there are (output.h).  Any thread may
 * call. */
#ifndef RSH_OUTPUTS_OUTPUTS_H
#define RSH_OUTPUTS_OUTPUTS_H

#include "rsh/converter/conversion.h"
#include "rsh/outputs/output.h"

/* The list: one line an output, as --format has it; the first is taken where
 * nothing else is said.  struct rsh_output rsh_output_NAME is in
 * src/outputs/NAME.c. */
#define RSH_OUTPUT_LIST(EACH) \
	EACH(ckpt) \
	EACH(safetensors) \
	EACH(hf) \
	EACH(checkpoint2) \
	EACH(dcp)

#define RSH_OUTPUT_DECLARE(name) \
	extern const struct rsh_output rsh_output_##name;
RSH_OUTPUT_LIST(RSH_OUTPUT_DECLARE)

/* Has the names as the table of options has words: "ckpt|safetensors|..". */
#define RSH_OUTPUT_WORD(name) "|" #name
#define RSH_OUTPUT_WORDS (&(RSH_OUTPUT_LIST(RSH_OUTPUT_WORD))[1])

/* Returns the output of that name, or NULL. */
const struct rsh_output *rsh_output_find(const char *name);
/* Returns the output that is taken where nothing else is said. */
const struct rsh_output *rsh_output_default(void);
/* Returns the output in which a whole model is shown as Hugging Face's tools
 * want it. */
const struct rsh_output *rsh_output_of_models(void);

/* Writes the names of the outputs that take all of these: "hf or .." */
void rsh_output_names(unsigned takes, char *text, size_t size);

/* Says in a conversion's options how the files of an output are written;
 * `part_bytes` is for those of parts. */
void rsh_output_set(const struct rsh_output *o, uint64_t part_bytes,
		    struct rsh_plan_options *opts);

#endif
