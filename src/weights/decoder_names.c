/* SPDX-License-Identifier: Apache-2.0 */
/* weights/decoder_names.c compares names of weights with those that known
 * decoders have. */
#include "rsh/weights/decoder_names.h"

#include <stdio.h>
#include <string.h>

#include "rsh/plan/param_kind.h"
#include "rsh/util/text.h"

const char *rsh_decoder_class(const char *json, size_t length)
{
	static const char *const known[] = {
		"\"LlamaForCausalLM\"",
		"\"MistralForCausalLM\"",
		"\"MixtralForCausalLM\"",
		"\"Qwen2ForCausalLM\"",
		"\"Qwen2MoeForCausalLM\"",
		"\"Qwen3ForCausalLM\"",
		"\"Qwen3MoeForCausalLM\"",
		"\"DeepseekV2ForCausalLM\"",
		"\"DeepseekV3ForCausalLM\"",
		"\"Gemma2ForCausalLM\"",
		"\"Gemma3ForCausalLM\"",
		"\"GlmForCausalLM\"",
		"\"Glm4ForCausalLM\"",
		"\"Glm4MoeForCausalLM\"",
		"\"GptOssForCausalLM\"",
		"\"MiniMaxM2ForCausalLM\"",
		"\"NemotronForCausalLM\"",
		"\"Phi3ForCausalLM\"",
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (memmem(json, length, known[i], strlen(known[i])))
			return known[i];
	return NULL;
}

static bool decoder_may_have(const char *name)
{
	static const char model[] = "model.";

	if (rsh_begins_any(name, "lm_head."))
		return true;
	if (strncmp(name, model, strlen(model)) == 0)
		name += strlen(model);
	return rsh_begins_any(name, "layers.", "embed_tokens.", "norm.");
}

void rsh_decoder_names_add(struct rsh_decoder_names *d, const char *name)
{
	if (decoder_may_have(name))
		d->fits = true;
	else if (!d->first && rsh_kind_of(name) == RSH_KIND_WEIGHT &&
		 !rsh_is_flattened_state(name))
		d->first = name;
}

bool rsh_decoder_names_misfit(const struct rsh_decoder_names *d,
			      const char *path, const char *class, char *text,
			      size_t size)
{
	if (d->fits || !d->first)
		return false;
	snprintf(text, size, "%.600s: no weight has a name that %s has, such as "
		 "%.400s: transformers would initialize all weights; "
		 "--unwrap, --rename and --convert change names", path, class,
		 d->first);
	return true;
}
