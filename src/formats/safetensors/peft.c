/* SPDX-License-Identifier: Apache-2.0 */
/* formats/safetensors/peft.c shows an adapter (LoRA) as a directory of PEFT:
 *
 *   /adapter_model.safetensors
 *   /adapter_config.json
 *
 * The config of an adapter of MindSpore lists the modules by their full names,
 * so it is the same whether all layers have an adapter or some. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "rsh/formats/outputs.h"
#include "rsh/wire/adapter_config.h"
#include "rsh/wire/json_text.h"

static const char before[] = "base_model.model.", after[] = ".lora_A.weight";

/* Writes a member and what follows it. */
static void peft_put(struct rsh_json_text *to, const char *key,
		     const char *value)
{
	rsh_json_text_puts(to, "  ");
	rsh_json_text_put_string(to, key, strlen(key), RSH_ESCAPES_PYTHON);
	rsh_json_text_printf(to, ": %s", value);
}

static void peft_put_config(const struct rsh_output_tree *t,
			    struct rsh_json_text *to)
{
	const uint32_t n = rsh_plan_n_records(t->plan, 0);
	uint64_t rank = 0;

	rsh_json_text_puts(to, "{\n");
	peft_put(to, "base_model_name_or_path", "null,\n");
	peft_put(to, "bias", "\"none\",\n");
	peft_put(to, "fan_in_fan_out", "false,\n");
	peft_put(to, "inference_mode", "true,\n");
	peft_put(to, "lora_alpha", "");
	rsh_json_text_printf(to, "%llu,\n", (unsigned long long)t->lora_alpha);
	peft_put(to, "lora_dropout", "0.0,\n");
	peft_put(to, "peft_type", "\"LORA\",\n");
	peft_put(to, "task_type", "null,\n");
	peft_put(to, "target_modules", "[");
	/* The module of each matrix A; the rank is that of the last one. */
	for (uint32_t i = 0; i < n; i++) {
		struct rsh_virtual_record r;
		const char *name;
		size_t len;

		rsh_plan_record(t->plan, 0, i, &r);
		name = r.shape.name;
		len = strlen(name);
		if (strncmp(name, before, strlen(before)) != 0 ||
		    len < strlen(before) + strlen(after) ||
		    strcmp(name + len - strlen(after), after) != 0)
			continue;
		rsh_json_text_puts(to, rank ? ",\n    " : "\n    ");
		if (!rsh_json_text_put_string(to, name + strlen(before),
					      len - strlen(before) -
					      strlen(after),
					      RSH_ESCAPES_PYTHON))
			to->failed = true;
		rank = r.whole_dims[0];
	}
	rsh_json_text_puts(to, "\n  ],\n");
	peft_put(to, "r", "");
	rsh_json_text_printf(to, "%llu\n}\n", (unsigned long long)rank);
}

static void peft_free(void *state)
{
	rsh_json_text_clear(state);
	free(state);
}

static int peft_build(struct rsh_output_tree *t, struct rsh_error *err)
{
	struct rsh_json_text *config = t->state = calloc(1, sizeof(*config));
	static const struct rsh_item item = { RSH_ADAPTER_FILE_NAME,
					      RSH_NODE_FILE, 0 };
	const struct rsh_row row = {
		.n = 1, .step = 1, .parent = t->tree->root,
		.first = RSH_NODE_OF_FILE(0), .items = &item,
	};
	struct rsh_output_text text = { .mode = 0444 };

	if (!config)
		return rsh_error_nomem(err);
	if (t->adapter_config)
		rsh_json_text_puts(config, t->adapter_config);
	else
		peft_put_config(t, config);
	text.body = rsh_body_of_text(config->data, config->len);
	return config->failed || rsh_tree_add(t->tree, &row) ||
	       rsh_output_add_file(t, RSH_NODE_BESIDE(0), t->tree->root,
				   RSH_ADAPTER_CONFIG_NAME, &text) ?
	       rsh_error_nomem(err) : 0;
}

const struct rsh_output rsh_output_peft = {
	.name = "peft",
	.digest = 3,
	.suffix = ".safetensors",
	.framing = &rsh_hf_framing,
	.division = RSH_DIVIDE_RANKS,
	.takes = RSH_TAKES_HF_NAMES | RSH_TAKES_ADAPTER,
	.build = peft_build,
	.free = peft_free,
};
