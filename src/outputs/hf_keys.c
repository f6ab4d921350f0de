/* SPDX-License-Identifier: Apache-2.0 */
/* outputs/hf_keys.c finds and sets keys of a config.json, and makes the
 * messages about them. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "hf_config_i.h"
#include "rsh/util/checked.h"
#include "rsh/util/log.h"

#define HF_NAMES 4

static const char *const hf_names[HF_N_KEYS][HF_NAMES] = {
	[HF_LAYERS] = { "num_hidden_layers", "num_layers", "n_layer",
			"n_layers" },
	[HF_VOCAB] = { "vocab_size", "padded_vocab_size" },
	[HF_HIDDEN] = { "hidden_size", "n_embd", "d_model" },
	[HF_MLP] = { "intermediate_size" },
	[HF_EXPERTS] = { "num_experts", "n_routed_experts",
			 "num_local_experts", "moe_num_experts" },
	[HF_EXPERT_MLP] = { "moe_intermediate_size" },
	[HF_HEAD_DIM] = { "head_dim" },
	[HF_HEADS] = { "num_attention_heads", "n_head", "n_heads" },
	[HF_KV_HEADS] = { "num_key_value_heads" },
	[HF_Q_RANK] = { "q_lora_rank" },
	[HF_KV_RANK] = { "kv_lora_rank" },
	[HF_NOPE_DIM] = { "qk_nope_head_dim" },
	[HF_ROPE_DIM] = { "qk_rope_head_dim" },
	[HF_V_DIM] = { "v_head_dim" },
};

bool hf_predicts_words(const struct hf_check *h)
{
	const struct rsh_json_member *m =
		rsh_json_edit_find(h->e, NULL, "architectures");
	static const char causal[] = "ForCausalLM\"";
	const char *s = m ? rsh_json_edit_text(h->e) + m->offset : NULL;

	return m && memmem(s, m->length, causal, sizeof(causal) - 1);
}

/* If a part of a model has no such key, the default of its class is used.  So
 * the top of the file, which may describe another part, is not searched. */
const struct rsh_json_member *hf_find(const struct hf_check *h,
				      const char *key)
{
	return rsh_json_edit_find(h->e, h->in, key);
}

const struct rsh_json_member *hf_size(const struct hf_check *h,
				      enum hf_key key, unsigned i)
{
	for (unsigned k = 0; k < HF_NAMES && hf_names[key][k]; k++) {
		const struct rsh_json_member *m = hf_find(h, hf_names[key][k]);

		if (m && m->kind == RSH_JSON_NUMBER && i-- == 0)
			return m;
	}
	return NULL;
}

bool hf_value(const struct hf_check *h, enum hf_key key, uint64_t *value)
{
	const struct rsh_json_member *m = hf_size(h, key, 0);

	*value = m ? m->number : h->added[key];
	return *value || m;
}

/* Returns whether the file has the key, with a size or another value. */
static bool hf_is_there(const struct hf_check *h, enum hf_key key)
{
	for (unsigned k = 0; k < HF_NAMES && hf_names[key][k]; k++)
		if (hf_find(h, hf_names[key][k]))
			return true;
	return false;
}

int hf_set(struct hf_check *h, const char *in, const char *key,
	   const char *value)
{
	const struct rsh_json_member *m = rsh_json_edit_find(h->e, in, key);

	rsh_log_info("%s: \"%s\" is shown as %s%s", h->path, key, value,
		     m ? "" : ", which was not there");
	return rsh_json_edit_set(h->e, in, key, value) ?
		rsh_error_nomem(h->err) : 0;
}

int hf_add(struct hf_check *h, const char *key, const char *value)
{
	return h->complete && !h->in ? hf_set(h, NULL, key, value) : 0;
}

/* Without "head_dim", transformers divides the hidden size by the number of
 * heads.  Classes with a norm of queries may have another default. */
static bool hf_is_usual(const struct hf_check *h, uint64_t head)
{
	const uint32_t norm = h->f.of[HF_QUERY_NORM];
	uint64_t heads, hidden, made;

	if (norm != HF_NONE && (uint64_t)h->f.w->v[norm].dims[0] == head)
		return false;
	return hf_value(h, HF_HEADS, &heads) &&
	       hf_value(h, HF_HIDDEN, &hidden) &&
	       rsh_mul_u64(heads, head, &made) && made == hidden;
}

void hf_add_size(struct hf_check *h, enum hf_key key, uint64_t size)
{
	if (h->added[key] && size && h->added[key] != size)
		h->doubtful[key] = true;
	if (!h->added[key] && hf_predicts_words(h) && !hf_is_there(h, key) &&
	    !(key == HF_HEAD_DIM && hf_is_usual(h, size)))
		h->added[key] = size;
}

int hf_add_sizes(struct hf_check *h)
{
	char text[24];
	int rc = 0;

	for (unsigned k = 0; rc == 0 && k < HF_N_KEYS; k++) {
		if (!h->added[k] || h->doubtful[k])
			continue;
		snprintf(text, sizeof(text), "%" PRIu64, h->added[k]);
		rc = hf_add(h, hf_names[k][0], text);
	}
	return rc;
}

/* ---- messages ---- */

const char *hf_shape_text(const struct hf_check *h, uint32_t i, char *text,
			  size_t size)
{
	const struct rsh_hf_weight *w = hf_weight(h, i);
	size_t at = (size_t)snprintf(text, size, "%.400s has shape [", w->name);

	for (uint32_t d = 0; d < w->n_dims && at < size; d++)
		at += (size_t)snprintf(text + at, size - at, "%s%" PRId64,
				       d ? "," : "", w->dims[d]);
	if (at < size)
		snprintf(text + at, size - at, "]");
	return text;
}

int hf_refuse(const struct hf_check *h, const char *key, const char *is,
	      const char *say)
{
	return rsh_error_set(h->err, EINVAL, "%s: \"%s\" is %s, and the "
			     "weights %s", h->path, key, is, say);
}

int hf_refuse_size(const struct hf_check *h, const struct rsh_json_member *m,
		   const char *say)
{
	char is[24];

	snprintf(is, sizeof(is), "%" PRIu64, m->number);
	return hf_refuse(h, m->key, is, say);
}

int hf_miss(const struct hf_check *h, const char *key, const char *is,
	    const char *say)
{
	char text[RSH_ERROR_TEXT_MAX];

	if (!h->f.w->partial)
		return hf_refuse(h, key, is, say);
	snprintf(text, sizeof(text), "%.1000s: \"%s\" is %s, and the weights "
		 "that are left %.400s", h->path, key, is, say);
	if (h->f.w->note)
		h->f.w->note(h->f.w->ctx, text);
	return 0;
}
