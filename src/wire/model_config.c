/* SPDX-License-Identifier: Apache-2.0 */
/* wire/model_config.c reads a config.json. */
#include "config.h"

#include "rsh/wire/model_config.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "rsh/wire/json_load.h"

/* ---- keys of "quantization_config" by methods ---- */

/* A key that is here says how weights are stored, and is read or follows from
 * the tensors; or how they were found, or how activations are rounded, which a
 * dense model does not do.  Any other key may mean that the model computes
 * something with the weights that a dense model does not do. */

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
} known_keys[] = {
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

/* Sets *key to the first key that is set and not known for the method, with the
 * keys above it ("meta.rotation"); the caller frees it.  NULL: all are known,
 * or the method has no list.  Returns 0 or -ENOMEM. */
static int quantisation_find_unknown(json_t *all, const char *method,
				     char **key)
{
	const char *const *keys = NULL;

	*key = NULL;
	for (size_t i = 0; i < sizeof(known_keys) / sizeof(known_keys[0]); i++)
		if (method && strcmp(method, known_keys[i].method) == 0)
			keys = known_keys[i].keys;
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

struct rsh_model_config {
	json_t *root;
	/* text_config of models with several parts; NULL: none */
	const json_t *text;
	bool is_quantised;
	struct rsh_quantisation quantisation;
	char *unknown; /* of the quantisation */
	char *method, *version; /* in lower case */
	char path[];
};

/* jansson before 2.14 has no json_object_getn(). */
static json_t *model_member(json_t *object, const char *key, size_t n)
{
	const char *name;
	json_t *v;

	json_object_foreach(object, name, v)
		if (strncmp(name, key, n) == 0 && !name[n])
			return v;
	return NULL;
}

/* Finds what is at a path of keys with dots.  "*" stands for each key of an
 * object, if all that are there have the same; otherwise *differ is set. */
static json_t *model_path(json_t *v, const char *key, bool *differ)
{
	const size_t n = strcspn(key, ".");
	json_t *found = NULL, *member;
	const char *name;

	if (strncmp(key, "*.", 2) != 0) {
		v = model_member(v, key, n);
		return v && key[n] ? model_path(v, key + n + 1, differ) : v;
	}
	json_object_foreach(v, name, member) {
		member = model_path(member, key + 2, differ);
		if (!member || json_is_null(member))
			continue;
		*differ |= found && !json_equal(member, found);
		found = member;
	}
	return *differ ? NULL : found;
}

/* Finds a key at the top, or else in the configuration of the text model; one
 * with dots in the objects that it names. */
static json_t *model_find(const struct rsh_model_config *c, const char *key)
{
	json_t *v = json_object_get(c->root, key);
	bool differ = false;

	if (strchr(key, '.'))
		return model_path(c->root, key, &differ);
	return v && !json_is_null(v) ? v : json_object_get(c->text, key);
}

static int model_check_architectures(const struct rsh_model_config *c,
				     struct rsh_error *err)
{
	const json_t *v = json_object_get(c->root, "architectures");
	size_t n = json_array_size(v);

	if (v && !json_is_null(v) && !json_is_array(v))
		n = 1;
	for (size_t i = 0; i < n; i++)
		if (!json_is_string(json_array_get(v, i)))
			return rsh_error_set(err, EBADMSG, "%s: "
					     "\"architectures\" is not a list of "
					     "names", c->path);
	return 0;
}

/* Adds the size of blocks.  The weights cannot be computed if it is not
 * valid. */
static int model_add_block(struct rsh_model_config *c, const json_t *block,
			   const char *key, struct rsh_error *err)
{
	struct rsh_quantisation *q = &c->quantisation;

	if (!block || json_is_null(block))
		return 0;
	if (q->n_blocks == RSH_QUANTISED_BLOCKS_MAX)
		return rsh_error_set(err, EBADMSG, "%s: more than %d sizes of "
				     "blocks", c->path,
				     RSH_QUANTISED_BLOCKS_MAX);
	for (size_t i = 0; i < 2; i++) {
		const json_t *v = json_array_get(block, i);

		if (json_array_size(block) != 2 || !json_is_integer(v) ||
		    json_integer_value(v) <= 0)
			return rsh_error_set(err, EBADMSG, "%s: \"%s\" is not "
					     "two numbers above 0", c->path,
					     key);
		q->blocks[q->n_blocks][i] = (uint64_t)json_integer_value(v);
	}
	q->n_blocks++;
	return 0;
}

/* Adds a group's size; -1 is no size, as null is. */
static void model_add_size(struct rsh_quantisation *q, const json_t *size)
{
	const json_int_t n = json_integer_value(size);

	if (!size || q->n_sizes >= RSH_QUANTISED_BLOCKS_MAX)
		q->n_sizes = RSH_QUANTISED_BLOCKS_MAX + 1;
	else
		q->sizes[q->n_sizes++] = n > 0 ? (uint64_t)n : 0;
}

/* Sets *out to the text of the first of these keys that has one, in lower case:
 * tools write "awq", "AWQ", "gemm" and "GEMM".  Returns 0 or -ENOMEM. */
static int model_read_word(const json_t *all, const char *const *keys,
			   char **out)
{
	const char *s = NULL;

	for (; *keys && !s; keys++)
		s = json_string_value(json_object_get(all, *keys));
	*out = s ? strdup(s) : NULL;
	for (char *p = *out; p && *p; p++)
		*p = (char)tolower((unsigned char)*p);
	return s && !*out ? -ENOMEM : 0;
}

/* Returns the number of the first of two keys that has one; 0: neither has. */
static json_int_t model_read_either(const json_t *all, const char *key,
				    const char *other)
{
	const json_t *v = json_object_get(all, key);

	return json_integer_value(json_is_integer(v) ? v :
				  json_object_get(all, other));
}

/* Reads the method and the version of its format. */
static int model_read_method(struct rsh_model_config *c, const json_t *all)
{
	static const char *const methods[] = {
		"quant_method", "method", NULL,
	};
	/* That of compressed-tensors is another thing. */
	static const char *const gptq[] = {
		"checkpoint_format", "format", "version", NULL,
	};
	static const char *const versions[] = {
		"checkpoint_format", "version", NULL,
	};
	int rc = model_read_word(all, methods, &c->method);

	return rc ? rc : model_read_word(all, c->method &&
					 strcmp(c->method, "gptq") == 0 ?
					 gptq : versions, &c->version);
}

static int model_read_quantisation(struct rsh_model_config *c,
				   struct rsh_error *err)
{
	struct rsh_quantisation *q = &c->quantisation;
	json_t *all = model_find(c, "quantization_config");
	const char *key;
	json_int_t bits;
	json_t *group;
	int rc;

	/* Older compressed-tensors has this name. */
	if (!all)
		all = model_find(c, "compression_config");
	c->is_quantised = json_is_object(all) && json_object_size(all) > 0;
	if (!c->is_quantised)
		return 0;
	if (model_read_method(c, all))
		return rsh_error_nomem(err);
	q->method = c->method;
	q->version = c->version;
	if (quantisation_find_unknown(all, q->method, &c->unknown))
		return rsh_error_nomem(err);
	q->unknown = c->unknown;
	bits = model_read_either(all, "bits", "w_bit");
	q->bits = bits > 0 ? (uint64_t)bits : 0;
	q->group_size = model_read_either(all, "group_size", "q_group_size");
	rc = model_add_block(c, json_object_get(all, "weight_block_size"),
			     "weight_block_size", err);
	json_object_foreach(json_object_get(all, "config_groups"), key, group) {
		const json_t *weights = json_object_get(group, "weights");
		const json_int_t width = json_integer_value(
			json_object_get(weights, "num_bits"));

		if (width > 0 && width < 32)
			q->widths |= UINT32_C(1) << width;
		model_add_size(q, json_object_get(weights, "group_size"));
		rc = rc ?: model_add_block(c, json_object_get(weights,
			      "block_structure"), "block_structure", err);
	}
	return rc;
}

int rsh_model_config_parse(const void *data, size_t len, const char *path,
			   struct rsh_model_config **out, struct rsh_error *err)
{
	struct rsh_model_config *c;
	int rc;

	if (len > RSH_MODEL_CONFIG_MAX)
		return rsh_error_set(err, EBADMSG, "%s: %zu bytes, a "
				     "config.json has %zu at most", path, len,
				     RSH_MODEL_CONFIG_MAX);
	c = calloc(1, sizeof(*c) + strlen(path) + 1);
	if (!c)
		return rsh_error_nomem(err);
	memcpy(c->path, path, strlen(path) + 1);
	rc = rsh_json_load(&(struct rsh_memory){ data, len },
			   0, c->path, "a config.json", &c->root, err);
	c->text = json_object_get(c->root, "text_config");
	rc = rc ?: model_check_architectures(c, err) ?:
		   model_read_quantisation(c, err);
	if (rc)
		rsh_model_config_free(c);
	else
		*out = c;
	return rc;
}

void rsh_model_config_free(struct rsh_model_config *c)
{
	if (!c)
		return;
	json_decref(c->root);
	free(c->unknown);
	free(c->method);
	free(c->version);
	free(c);
}

const char *rsh_model_config_path(const struct rsh_model_config *c)
{
	return c->path;
}

const char *rsh_model_config_architecture(const struct rsh_model_config *c,
					  uint32_t i)
{
	return json_string_value(json_array_get(
		json_object_get(c->root, "architectures"), i));
}

const char *rsh_model_config_type(const struct rsh_model_config *c)
{
	return json_string_value(json_object_get(c->root, "model_type"));
}

bool rsh_model_config_number(const struct rsh_model_config *c, const char *key,
			     uint64_t *out)
{
	const json_t *v = model_find(c, key);

	if (!json_is_integer(v) || json_integer_value(v) < 0)
		return false;
	*out = (uint64_t)json_integer_value(v);
	return true;
}

bool rsh_model_config_differs(const struct rsh_model_config *c, const char *key)
{
	bool differ = false;

	(void)model_path(c->root, key, &differ);
	return differ;
}

bool rsh_model_config_word(const struct rsh_model_config *c, const char *key,
			   uint64_t number, char *word, size_t size)
{
	const json_t *v = model_find(c, key);
	int n = 0;

	if (json_is_array(v))
		v = json_array_get(v, number);
	if (json_is_string(v))
		n = snprintf(word, size, "%s", json_string_value(v));
	else if (json_is_boolean(v))
		n = snprintf(word, size, "%s", json_is_true(v) ? "true" :
								 "false");
	return n > 0 && (size_t)n < size;
}

const struct rsh_quantisation *
rsh_model_config_quantisation(const struct rsh_model_config *c)
{
	return c->is_quantised ? &c->quantisation : NULL;
}

bool rsh_model_config_has(const struct rsh_model_config *c, const char *key)
{
	const json_t *v = model_find(c, key);

	return v && !json_is_null(v);
}

bool rsh_model_config_predicts_words(const struct rsh_model_config *c)
{
	const char *name;

	for (uint32_t i = 0; (name = rsh_model_config_architecture(c, i)); i++)
		if (strstr(name, "ForCausalLM") ||
		    strstr(name, "ForConditionalGeneration"))
			return true;
	return false;
}

bool rsh_model_config_is_tied(const struct rsh_model_config *c)
{
	return json_is_true(model_find(c, "tie_word_embeddings"));
}
