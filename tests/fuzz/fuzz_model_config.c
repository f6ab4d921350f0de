/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever the bytes are, a config.json ends in names and numbers, or in a
 * sentence; and what is shown of it is JSON that says what the weights are. */
#include "fuzz_support.h"

#include "formats/safetensors/hf_config_i.h"
#include "rsh/wire/model_config.h"

static void ask(const uint8_t *data, size_t size)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_model_config *c;
	const struct rsh_quantisation *q;
	uint64_t n;

	if (rsh_model_config_parse(data, size, "f", &c, &err)) {
		require(err.code && err.text[0] == 'f');
		return;
	}
	for (uint32_t i = 0; rsh_model_config_architecture(c, i); i++)
		require(strlen(rsh_model_config_architecture(c, i)) <= size);
	(void)rsh_model_config_number(c, "num_hidden_layers", &n);
	q = rsh_model_config_quantisation(c);
	for (uint32_t i = 0; q && i < q->n_blocks; i++)
		require(q->blocks[i][0] && q->blocks[i][1]);
	rsh_model_config_free(c);
}

static int open_again(const char *text, size_t len, struct rsh_json_edit **out)
{
	struct rsh_error err = RSH_ERROR_INIT;
	int rc = rsh_json_edit_open(text, len, "f", out, &err);

	require(rc == 0 || (err.code && err.text[0] == 'f'));
	return rc;
}

/* What is written holds what was set, and not what was left out. */
static void edit(const char *text, size_t size)
{
	struct rsh_json_edit *e, *again;
	char *out;
	size_t len;

	if (open_again(text, size, &e))
		return;
	require(!rsh_json_edit_write(e, &out, &len));
	require(len == size && memcmp(out, text, len) == 0);
	free(out);
	rsh_json_edit_drop(e, NULL, "a");
	rsh_json_edit_drop(e, "text_config", "b");
	require(!rsh_json_edit_set(e, NULL, "k", "[1]"));
	require(!rsh_json_edit_set(e, "text_config", "k", "{}"));
	require(!rsh_json_edit_write(e, &out, &len));
	require(!open_again(out, len, &again));
	require(!rsh_json_edit_find(again, NULL, "a") &&
		!rsh_json_edit_find(again, "text_config", "b"));
	require(rsh_json_edit_find(again, NULL, "k")->kind == RSH_JSON_OTHER);
	rsh_json_edit_free(again);
	rsh_json_edit_free(e);
	free(out);
}

static void settle(const char *text, size_t size)
{
	static const int64_t matrix[] = { 8, 4 }, vector[] = { 4 };
	static const struct rsh_hf_weight weights[] = {
		{ "model.embed_tokens.weight", RSH_DTYPE_FLOAT16, 2, matrix },
		{ "model.norm.weight", RSH_DTYPE_FLOAT16, 1, vector },
		{ "model.layers.0.input_layernorm.weight", RSH_DTYPE_FLOAT16,
		  1, vector },
		{ "model.layers.0.self_attn.o_proj.weight", RSH_DTYPE_FLOAT16,
		  2, matrix },
	};
	const struct rsh_hf_weights w = { .v = weights, .n = 4 };
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_json_edit *e, *again;
	char *out;
	size_t len;

	if (open_again(text, size, &e))
		return;
	if (rsh_hf_config_update(&w, e, "f", true, &err)) {
		require(err.code && err.text[0] == 'f');
		rsh_json_edit_free(e);
		return;
	}
	require(!rsh_json_edit_write(e, &out, &len));
	require(!open_again(out, len, &again));
	/* It has nothing left to say. */
	require(!rsh_hf_config_update(&w, again, "f", true, &err));
	require(!rsh_json_edit_changed(again));
	rsh_json_edit_free(again);
	rsh_json_edit_free(e);
	free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	ask(data, size);
	edit((const char *)data, size);
	settle((const char *)data, size);
	return 0;
}
