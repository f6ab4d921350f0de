/* SPDX-License-Identifier: Apache-2.0 */
/* wire/quantisation_keys.c lists the keys of "quantization_config" by methods.
 * A key that is here says how weights are stored, and is read or follows from
 * the tensors; or how they were found, or how activations are rounded, which a
 * dense model does not do.  Any other key may mean that the model computes
 * something with the weights that a dense model does not do. */
#include "config.h"

#include "quantisation_keys_i.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>


/* transformers 5.24.0 (FineGrainedFP8Config, Mxfp4Config); the config.json of
 * DeepSeek-V3 and V4, Qwen3, MiniMax-M2 and gpt-oss. */
static const char *const fp8_keys[] = {
	"activation_scheme", "dequantize", "expert_dtype", "fmt",
	"ignored_layers", "modules_to_convert", "modules_to_not_convert",
	"quant_method", "scale_fmt", "weight_block_size", NULL
};

/* transformers 5.24.0 (GPTQConfig, AwqConfig), AutoGPTQ 0.7.1, GPTQModel 7.7.0
 * (BaseQuantizeConfig.to_dict), AutoAWQ 0.2.9. */
static const char *const words_keys[] = {
	"act_group_aware", "backend", "batch_size", "bits",
	"block_name_to_quantize", "cache_block_outputs", "checkpoint_format",
	"damp_auto_increment", "damp_percent", "dataset", "desc_act",
	"disable_exllama", "do_fuse", "dynamic", "exllama_config", "format",
	"fuse_max_seq_len", "group_size", "is_marlin_format", "lm_head",
	"max_input_length", "meta", "method", "model_file_base_name",
	"model_name_or_path", "model_seqlen",
	"module_name_preceding_first_block", "modules_in_block_to_quantize",
	"modules_to_fuse", "modules_to_not_convert", "pack_dtype",
	"pad_token_id", "q_group_size", "quant_method", "static_groups", "sym",
	"tokenizer", "true_sequential", "use_cuda_fp16", "use_exllama",
	"version", "w_bit", "zero_point", NULL
};

/* "meta" of GPTQModel 7.7.0, and of its older releases. */
static const char *const meta_keys[] = {
	"act_group_aware", "auto_forward_data_parallel", "damp_auto_increment",
	"damp_percent", "dense_vram_strategy", "dense_vram_strategy_devices",
	"fail_safe", "failsafe", "fallback", "foem", "gc_mode", "gptaq",
	"gptaq_alpha", "hessian", "hyb_act", "mock_quantization", "moe",
	"moe_vram_strategy", "moe_vram_strategy_devices", "mse",
	"offload_to_disk", "offload_to_disk_path", "pack_impl", "quantizer",
	"scale_search_chunked_activations", "static_groups", "telemetry",
	"true_sequential", "uri", "v2", "v2_alpha", "vram_strategy",
	"wait_for_submodule_finalizers", NULL
};

/* compressed-tensors 0.20.0 (QuantizationConfig), and older releases. */
static const char *const compressed_keys[] = {
	"config_groups", "dequantize", "format", "global_compression_ratio",
	"ignore", "kv_cache_scheme", "quant_method", "quantization_status",
	"run_compressed", "sparsity_config", "use_optimized_inference",
	"version", NULL
};
static const char *const sparsity_keys[] = {
	"format", "global_sparsity", "ignore", "registry_requires_subclass",
	"sparsity_structure", "targets", NULL
};
static const char *const group_keys[] = {
	"format", "input_activations", "output_activations", "targets",
	"weights", NULL
};
static const char *const weights_keys[] = {
	"actorder", "block_structure", "dynamic", "group_size", "num_bits",
	"observer", "observer_kwargs", "scale_dtype", "strategy", "symmetric",
	"type", "zp_dtype", NULL
};

static const struct {
	const char *method;
	const char *const *keys;
} methods[] = {
	{ "fp8", fp8_keys }, { "mxfp8", fp8_keys }, { "mxfp4", fp8_keys },
	{ "gptq", words_keys }, { "awq", words_keys },
	{ "compressed-tensors", compressed_keys },
};

static bool key_is_known(const char *const *keys, const char *key)
{
	for (; *keys; keys++)
		if (strcmp(*keys, key) == 0)
			return true;
	return false;
}

/* Returns whether a value is null, false or empty. */
static bool value_is_empty(const json_t *v)
{
	return !v || json_is_null(v) || json_is_false(v) ||
	       (json_is_string(v) && json_string_length(v) == 0) ||
	       (json_is_array(v) && json_array_size(v) == 0) ||
	       (json_is_object(v) && json_object_size(v) == 0);
}

/* Finds the first key of an object that is set and not known.  `of` is before
 * it in the result.  Returns 0 or -ENOMEM. */
static int keys_find(json_t *all, const char *const *keys, const char *of,
		     char **unknown)
{
	json_t *v;
	const char *key;

	json_object_foreach(all, key, v)
		if (!*unknown && !value_is_empty(v) && !key_is_known(keys, key))
			return asprintf(unknown, "%s%.200s", of, key) < 0 ?
				-ENOMEM : 0;
	return 0;
}

static int groups_find(json_t *groups, char **unknown)
{
	json_t *group;
	const char *name;
	char of[256];
	int rc = 0;

	json_object_foreach(groups, name, group) {
		snprintf(of, sizeof(of), "config_groups.%.100s.", name);
		rc = rc ?: keys_find(group, group_keys, of, unknown);
		snprintf(of, sizeof(of), "config_groups.%.100s.weights.", name);
		rc = rc ?: keys_find(json_object_get(group, "weights"),
				     weights_keys, of, unknown);
	}
	return rc;
}

/* Sparse weights are stored in another way. */
static int sparsity_find(const json_t *all, char **unknown)
{
	json_t *sparsity = json_object_get(all, "sparsity_config");
	const char *format =
		json_string_value(json_object_get(sparsity, "format"));

	if (*unknown || value_is_empty(sparsity))
		return 0;
	if (!format || strcmp(format, "dense") != 0)
		*unknown = strdup("sparsity_config.format");
	else
		return keys_find(sparsity, sparsity_keys, "sparsity_config.",
				 unknown);
	return *unknown ? 0 : -ENOMEM;
}

int quantisation_find_unknown(json_t *all, const char *method, char **key)
{
	const char *const *keys = NULL;

	*key = NULL;
	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
		if (method && strcmp(method, methods[i].method) == 0)
			keys = methods[i].keys;
	if (!keys)
		return 0;
	if (keys == words_keys)
		return keys_find(all, keys, "", key) ?:
		       keys_find(json_object_get(all, "meta"), meta_keys,
				 "meta.", key);
	return keys_find(all, keys, "", key) ?:
	       (keys != compressed_keys ? 0 :
		groups_find(json_object_get(all, "config_groups"), key) ?:
		sparsity_find(all, key));
}
