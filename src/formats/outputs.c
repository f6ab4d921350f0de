/* SPDX-License-Identifier: Apache-2.0 */
/* formats/outputs.c has the list of outputs. */
#include "config.h"

#include "rsh/formats/outputs.h"

#include <stdio.h>
#include <string.h>

#include "rsh/util/text.h"

#define OUTPUT_ADDRESS(name) &rsh_output_##name,
static const struct rsh_output *const outputs[] = {
	RSH_OUTPUT_LIST(OUTPUT_ADDRESS)
};
#define N_OUTPUTS (sizeof(outputs) / sizeof(outputs[0]))

const struct rsh_output *rsh_output_find(const char *name)
{
	for (size_t i = 0; i < N_OUTPUTS; i++)
		if (strcmp(outputs[i]->name, name) == 0)
			return outputs[i];
	return NULL;
}

const struct rsh_output *rsh_output_default(void)
{
	return outputs[0];
}

const struct rsh_output *rsh_output_of_models(void)
{
	for (size_t i = 0; i < N_OUTPUTS; i++)
		if (outputs[i]->takes & RSH_TAKES_MODEL_FILES)
			return outputs[i];
	return outputs[0];
}

bool rsh_output_supports(const struct rsh_output *o, const char *option)
{
	return rsh_word_place(o->options, "|", option, strlen(option)) >= 0;
}

void rsh_output_names(const char *option, char *text, size_t size)
{
	size_t at = 0;

	*text = '\0';
	for (size_t i = 0; i < N_OUTPUTS && at < size; i++)
		if (rsh_output_supports(outputs[i], option))
			at += (size_t)snprintf(text + at, size - at, "%s%s",
					       at ? " or " : "",
					       outputs[i]->name);
}

void rsh_output_set(const struct rsh_output *o, uint64_t part_bytes,
		    struct rsh_plan_options *opts)
{
	opts->framing = o->framing;
	opts->division = o->division;
	opts->part_bytes = o->division == RSH_DIVIDE_PARTS ? part_bytes : 0;
}
