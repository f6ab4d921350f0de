/* SPDX-License-Identifier: Apache-2.0 */
/* outputs/outputs.c has the list of outputs, and the functions that all of them
 * share. */
#include "config.h"

#include "rsh/outputs/outputs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"

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

void rsh_output_names(unsigned takes, char *text, size_t size)
{
	size_t at = 0;

	for (size_t i = 0; i < N_OUTPUTS && at < size; i++)
		if ((outputs[i]->takes & takes) == takes)
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

/* ---- trees ---- */

int rsh_output_add_text(struct rsh_output_tree *t,
			const struct rsh_output_text *text, uint32_t *leaf)
{
	if (rsh_grow(&t->texts, &t->cap_texts, t->n_texts + 1,
		     sizeof(*t->texts)))
		return -ENOMEM;
	*leaf = rsh_plan_n_files(t->plan) + (uint32_t)t->n_texts;
	t->texts[t->n_texts++] = *text;
	return 0;
}

void rsh_output_tree_clear(struct rsh_output_tree *t)
{
	if (t->output && t->output->free)
		t->output->free(t->state);
	free(t->texts);
	free(t->values_text);
	*t = (struct rsh_output_tree){ 0 };
}

int rsh_output_file_name(const struct rsh_tree *t, uint32_t file, char *name,
			 size_t max)
{
	struct rsh_node node;

	rsh_tree_node(t, RSH_NODE_OF_FILE(file), &node);
	return rsh_node_name(&node, name, max);
}
