/* SPDX-License-Identifier: Apache-2.0 */
/* wire/model_config.c reads a config.json. */
#include "config.h"

#include "rsh/wire/model_config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "rsh/wire/json_load.h"

struct rsh_model_config {
	json_t *root;
	/* text_config of models with several parts; NULL: none */
	const json_t *text;
	bool has_block;
	uint64_t block[2];
	char path[];
};

/* Finds a key at the top, or else in the configuration of the text model. */
static const json_t *model_find(const struct rsh_model_config *c,
				const char *key)
{
	const json_t *v = json_object_get(c->root, key);

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

static int model_load(struct rsh_model_config *c, const void *data, size_t len,
		      struct rsh_error *err)
{
	const json_t *q, *block;
	const char *method;
	int rc = rsh_json_load(&(struct rsh_memory){ data, len },
			       0, c->path, "a config.json", &c->root, err);

	if (rc)
		return rc;
	c->text = json_object_get(c->root, "text_config");
	rc = model_check_architectures(c, err);
	if (rc)
		return rc;
	/* A block size that is not valid is an error, because the weights
	 * cannot be computed without it. */
	q = model_find(c, "quantization_config");
	method = json_string_value(json_object_get(q, "quant_method"));
	block = json_object_get(q, "weight_block_size");
	if (!method || strcmp(method, "fp8") != 0 || !block ||
	    json_is_null(block))
		return 0;
	for (size_t i = 0; i < 2; i++) {
		const json_t *v = json_array_get(block, i);

		if (json_array_size(block) != 2 || !json_is_integer(v) ||
		    json_integer_value(v) <= 0)
			return rsh_error_set(err, EBADMSG, "%s: "
					     "\"weight_block_size\" is not two "
					     "numbers above 0", c->path);
		c->block[i] = (uint64_t)json_integer_value(v);
	}
	c->has_block = true;
	return 0;
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
	rc = model_load(c, data, len, err);
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

bool rsh_model_config_number(const struct rsh_model_config *c, const char *key,
			     uint64_t *out)
{
	const json_t *v = model_find(c, key);

	if (!json_is_integer(v) || json_integer_value(v) < 0)
		return false;
	*out = (uint64_t)json_integer_value(v);
	return true;
}

bool rsh_model_config_fp8(const struct rsh_model_config *c, uint64_t block[2])
{
	if (c->has_block)
		memcpy(block, c->block, sizeof(c->block));
	return c->has_block;
}
