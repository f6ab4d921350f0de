/* SPDX-License-Identifier: Apache-2.0 */
/* wire/model_config.c reads a config.json. */
#include "config.h"

#include "rsh/wire/model_config.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "quantisation_keys_i.h"
#include "rsh/wire/json_load.h"

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

/* Finds a key at the top, or else in the configuration of the text model. */
static json_t *model_find(const struct rsh_model_config *c, const char *key)
{
	json_t *v = json_object_get(c->root, key);

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
