/* SPDX-License-Identifier: Apache-2.0 */
/* contents/kinds.c tells what a tensor is, by its name and by those beside
 * it. */
#include "config.h"

#include "contents_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"

uint32_t rsh_contents_state_of(const struct rsh_contents *c, uint32_t name)
{
	const char *text = rsh_names_text(c->names, name);
	const char *dot = strchr(text, '.');

	return dot && dot[1] ?
		rsh_names_find(c->names, dot + 1, strlen(dot + 1)) :
		RSH_NAME_NONE;
}

static bool kind_is_float(enum rsh_dtype t)
{
	switch (t) {
	case RSH_DTYPE_FLOAT16:
	case RSH_DTYPE_FLOAT32:
	case RSH_DTYPE_FLOAT64:
	case RSH_DTYPE_BFLOAT16:
	case RSH_DTYPE_FLOAT8E4M3FN:
	case RSH_DTYPE_FLOAT8E5M2:
	case RSH_DTYPE_HIFLOAT8:
		return true;
	default:
		return false;
	}
}

/* Is it a weight by the last part of its name, as layers of MindSpore and
 * PyTorch call what they train? */
static bool kind_is_called_weight(const char *name)
{
	static const char *const words[] = {
		"weight", "bias", "gamma", "beta", "kernel", "embedding_table",
	};
	const char *dot = strrchr(name, '.');

	name = dot ? dot + 1 : name;
	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (strcmp(name, words[i]) == 0)
			return true;
	return false;
}

/* Is it a gradient?  "accu_grads.dense.weight" is what a rank has summed up of
 * its own batches, if the checkpoint was saved before the data parallel ranks
 * put theirs together. */
static bool kind_is_gradient(const char *name)
{
	return memmem(name, strcspn(name, "."), "grad", strlen("grad"));
}

static enum rsh_tensor_kind kind_of_subject(const struct rsh_contents *c,
					    const struct rsh_subject *s,
					    const bool *has_state)
{
	uint32_t of = rsh_contents_state_of(c, s->name);
	const char *name = rsh_names_text(c->names, s->name);

	if (of != RSH_NAME_NONE && rsh_ckpt_find(s->index, of))
		return kind_is_gradient(name) ? RSH_TENSOR_OWN :
						RSH_TENSOR_STATE;
	if (has_state[s->name])
		return RSH_TENSOR_TRAINED;
	return kind_is_float(s->record->dtype) && kind_is_called_weight(name) ?
		RSH_TENSOR_WEIGHT : RSH_TENSOR_OTHER;
}

int rsh_contents_name_kinds(struct rsh_contents *c)
{
	uint32_t n_names = rsh_names_count(c->names);
	cleanup_free bool *has_state = calloc((size_t)n_names + 1,
					      sizeof(*has_state));

	if (!has_state)
		return -ENOMEM;
	for (uint32_t i = 0; i < n_names; i++) {
		uint32_t of = rsh_contents_state_of(c, i);

		if (of != RSH_NAME_NONE)
			has_state[of] = true;
	}
	for (uint32_t i = 0; i < c->n_subjects; i++)
		c->subjects[i].kind = kind_of_subject(c, &c->subjects[i],
						      has_state);
	return 0;
}
