/* SPDX-License-Identifier: Apache-2.0 */
/* formats/safetensors/hf_config.c compares a config.json with the weights
 * beside it, and sets the keys that depend on them. */
#include "hf_config_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "rsh/weights/decoder_names.h"
#include "rsh/weights/wrapped.h"

#define HF_TEXT "text_config"

struct hf_check {
	struct hf_facts f;
	struct rsh_json_edit *e;
	const char *in; /* where the decoder's keys are; NULL: at the top */
	const char *path;
	bool complete;  /* add missing keys */
	uint64_t added[HF_N_KEYS]; /* sizes to add; 0: none */
	bool doubtful[HF_N_KEYS];  /* weights imply different values */
	struct rsh_error *err;
};

static const struct rsh_hf_weight *hf_weight(const struct hf_check *h,
					     uint32_t i)
{
	return &h->f.w->v[i];
}

/* ---- keys ---- */

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

/* If a part of a model has no such key, the default of its class is used.  So
 * the top of the file, which may describe another part, is not searched. */
static const struct rsh_json_member *hf_find(const struct hf_check *h,
					     const char *key)
{
	return rsh_json_edit_find(h->e, h->in, key);
}

/* Returns whether the value of a member has this text.  m may be NULL. */
static bool hf_mentions(const struct hf_check *h,
			const struct rsh_json_member *m, const char *text)
{
	return m && memmem(rsh_json_edit_text(h->e) + m->offset, m->length,
			   text, strlen(text));
}

/* Returns whether the model predicts the next word, and so has a head. */
static bool hf_predicts_words(const struct hf_check *h)
{
	return hf_mentions(h, rsh_json_edit_find(h->e, NULL, "architectures"),
			   "ForCausalLM\"");
}

/* Returns whether the decoder is the part for text of a model that describes
 * something: its embedding and its norm are those of a model for text. */
static bool hf_has_text(const struct hf_check *h)
{
	return hf_predicts_words(h) ||
	       (h->in && hf_mentions(h, rsh_json_edit_find(h->e, NULL,
							  "architectures"),
				     "ForConditionalGeneration\""));
}

/* Returns whether the class of the model divides the hidden size by the number
 * of heads, whatever the file says. */
static bool hf_has_no_head_dim(const struct hf_check *h)
{
	const struct rsh_json_member *type = hf_find(h, "model_type");

	return hf_mentions(h, type, "\"qwen2_vl") ||
	       hf_mentions(h, type, "\"qwen2_5_vl");
}

/* Returns the i-th of a key's names that has a size which all layers have; NULL
 * past the last. */
static const struct rsh_json_member *hf_size(const struct hf_check *h,
					     enum hf_key key, unsigned i)
{
	if ((key == HF_HEAD_DIM && hf_has_no_head_dim(h)) ||
	    ((key == HF_HEAD_DIM || key == HF_KV_HEADS) &&
	     (hf_find(h, "per_layer_config") || hf_find(h, "global_head_dim"))))
		return NULL;
	for (unsigned k = 0; k < HF_NAMES && hf_names[key][k]; k++) {
		const struct rsh_json_member *m = hf_find(h, hf_names[key][k]);

		if (m && m->kind == RSH_JSON_NUMBER && i-- == 0)
			return m;
	}
	return NULL;
}

/* Returns the size in the file, or the one that will be added.  Returns false
 * if there is none. */
static bool hf_value(const struct hf_check *h, enum hf_key key, uint64_t *value)
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

static int hf_set(struct hf_check *h, const char *in, const char *key,
		  const char *value)
{
	const struct rsh_json_member *m = rsh_json_edit_find(h->e, in, key);

	rsh_log_info("%s: \"%s\" is shown as %s%s", h->path, key, value,
		     m ? "" : ", which was not there");
	return rsh_json_edit_set(h->e, in, key, value) ?
		rsh_error_nomem(h->err) : 0;
}

/* Adds a key at the top, if missing keys are added at all. */
static int hf_add(struct hf_check *h, const char *key, const char *value)
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

/* Stores a size that is missing in the file.  If two weights imply different
 * values, the size is doubtful. */
static void hf_add_size(struct hf_check *h, enum hf_key key, uint64_t size)
{
	if (h->added[key] && size && h->added[key] != size)
		h->doubtful[key] = true;
	if (!h->added[key] && hf_predicts_words(h) && !hf_is_there(h, key) &&
	    !(key == HF_HEAD_DIM && hf_is_usual(h, size)))
		h->added[key] = size;
}

/* Adds all stored sizes that are not doubtful. */
static int hf_add_sizes(struct hf_check *h)
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

/* Writes "NAME has shape [..]" and returns `text`. */
static const char *hf_shape_text(const struct hf_check *h, uint32_t i,
				 char *text, size_t size)
{
	const struct rsh_hf_weight *w = hf_weight(h, i);
	size_t at = (size_t)snprintf(text, size, "%.400s has shape ", w->name);

	/* No size is negative. */
	if (at < size)
		rsh_dims_text((const uint64_t *)w->dims, w->n_dims, text + at,
			      size - at);
	return text;
}

/* Says that a key's value is `is`, and what the weights imply, `say`.  That is
 * an error unless the model is shown as it is saved, with its own file, as its
 * weights may be packed or made for another program.  If something is missing
 * in the weights, and the options leave tensors out, it is a note too. */
static int hf_differ(const struct hf_check *h, const char *key, const char *is,
		     const char *say, bool missing)
{
	const bool left = missing && h->f.w->partial;
	char text[RSH_ERROR_TEXT_MAX];

	if (!left && !h->f.w->as_saved)
		return rsh_error_set(h->err, EINVAL, "%s: \"%s\" is %s, and "
				     "the weights %s", h->path, key, is, say);
	snprintf(text, sizeof(text), "%.600s: \"%.80s\" is %.80s, and the weights "
		 "%s%.1000s%s", h->path, key, is, left ? "that are left " : "",
		 say, left ? "" : "; the model is shown as it is saved");
	if (h->f.w->note)
		h->f.w->note(h->f.w->ctx, text);
	return 0;
}

static int hf_differ_size(const struct hf_check *h,
			  const struct rsh_json_member *m, const char *say,
			  bool missing)
{
	char is[24];

	snprintf(is, sizeof(is), "%" PRIu64, m->number);
	return hf_differ(h, m->key, is, say, missing);
}

/* ---- numbers of layers and experts ---- */

/* Compares a number of layers or experts with the config.  The `more` layers
 * that the config has for prediction may be included in the weights. */
static int hf_check_count(struct hf_check *h, enum hf_key key, uint32_t n,
			  uint64_t more, const char *what)
{
	const struct rsh_json_member *m = hf_size(h, key, 0), *other;
	/* Some models count the attention and the MLP of a layer as two. */
	const uint64_t size = key == HF_LAYERS &&
		hf_mentions(h, hf_find(h, "layer_types"), "\"mlp\"") ?
		2 * (uint64_t)n : n;
	char say[96];

	if (n == 0)
		return 0;
	/* Models have different keys for the number of experts. */
	if (!m) {
		if (!h->f.w->partial && key != HF_EXPERTS)
			hf_add_size(h, key, size);
		return 0;
	}
	for (unsigned i = 0; (other = hf_size(h, key, i)); i++)
		if (other->number == size || (more && other->number < size &&
					      other->number + more == size))
			return 0;
	snprintf(say, sizeof(say), "say %" PRIu64 " (%s are numbered 0 to "
		 "%" PRIu32 ")", size, what, n - 1);
	return hf_differ_size(h, m, say, size < m->number);
}

/* Says that something is missing that the config has, if it has its size. */
static int hf_lacks(const struct hf_check *h, enum hf_key key, const char *say)
{
	const struct rsh_json_member *m = hf_size(h, key, 0);

	return m ? hf_differ_size(h, m, say, true) : 0;
}

/* Checks that there are weights of each layer, an embedding, and the norm after
 * the layers.  Some models have norms without weights, and layers that do
 * nothing; these say so in "block_configs". */
static int hf_check_there(struct hf_check *h)
{
	const struct hf_facts *f = &h->f;
	char say[64];
	int rc = 0;

	if (f->gap != HF_NONE && !hf_find(h, "block_configs")) {
		snprintf(say, sizeof(say), "have nothing of layer %" PRIu32,
			 f->gap);
		rc = hf_lacks(h, HF_LAYERS, say);
	}
	if (rc == 0 && f->gap_expert != HF_NONE) {
		snprintf(say, sizeof(say), "have nothing of expert %" PRIu32
			 " of layer %" PRIu32, f->gap_expert, f->gap_layer);
		rc = hf_lacks(h, HF_EXPERTS, say);
	}
	if (rc || f->n_layers == 0 || f->drafts || !hf_has_text(h))
		return rc;
	if (!f->embeds)
		rc = hf_lacks(h, HF_VOCAB, "have no embedding");
	if (rc == 0 && f->layers_have_norms && !f->has_norm &&
	    strcmp(f->list, "layers.") == 0)
		rc = hf_lacks(h, HF_LAYERS, "have no norm after the layers");
	return rc;
}

/* Checks that there are the weights of a tower for pictures that the config
 * has, and those of each of its blocks. */
static int hf_check_tower(struct hf_check *h)
{
	static const char in[] = "vision_config";
	static const char *const keys[] = {
		"depth", "num_hidden_layers", "num_layers", "n_layers",
	};
	const struct rsh_json_member *m = rsh_json_edit_find(h->e, NULL, in);
	const struct hf_facts *f = &h->f;
	char say[64];

	if (!m || m->kind != RSH_JSON_OBJECT || f->n_layers == 0 ||
	    !hf_has_text(h))
		return 0;
	if (!f->sees)
		return hf_differ(h, in, "there", "have no part for pictures",
				 true);
	for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++) {
		m = rsh_json_edit_find(h->e, in, keys[k]);
		if (!m || m->kind != RSH_JSON_NUMBER ||
		    m->number != f->n_blocks || f->gap_block == HF_NONE)
			continue;
		snprintf(say, sizeof(say), "have nothing of block %" PRIu32
			 " of the part for pictures", f->gap_block);
		return hf_differ_size(h, m, say, true);
	}
	return 0;
}

/* ---- shapes ---- */

/* In some models the embedding has more words than the head; "vocab_size" is
 * then the number of rows of the head. */
static bool hf_may_embed(const struct hf_check *h, uint64_t words)
{
	return h->f.head == HF_NONE ? !hf_predicts_words(h) :
	       (uint64_t)hf_weight(h, h->f.head)->dims[0] == words;
}

/* Compares a dimension that is the value of one key.  Some models have one size
 * of MLP for all layers, with or without experts. */
static int hf_check_one(struct hf_check *h, enum hf_key key, uint32_t weight,
			uint32_t d)
{
	const uint64_t size = (uint64_t)hf_weight(h, weight)->dims[d];
	const struct rsh_json_member *m = hf_size(h, key, 0), *other;
	char say[640], shape[600];
	uint64_t mlp;

	/* Mixtral's names are also those of models with dense layers. */
	if (key == HF_MLP && hf_size(h, HF_EXPERT_MLP, 0) &&
	    strstr(hf_weight(h, weight)->name, ".experts.")) {
		key = HF_EXPERT_MLP;
		m = hf_size(h, key, 0);
	}
	/* Models have different keys for the number of experts. */
	if (!m) {
		if (key != HF_EXPERTS && (key != HF_EXPERT_MLP ||
					  !hf_value(h, HF_MLP, &mlp) ||
					  mlp != size))
			hf_add_size(h, key, size);
		return 0;
	}
	for (unsigned i = 0; (other = hf_size(h, key, i)); i++)
		if (other->number == size ||
		    (key == HF_VOCAB && hf_may_embed(h, other->number)))
			return 0;
	snprintf(say, sizeof(say), "say %" PRIu64 " (%s)", size,
		 hf_shape_text(h, weight, shape, sizeof(shape)));
	return hf_differ_size(h, m, say, false);
}

/* Computes times * (a + b).  Returns false if the result is too large. */
static bool hf_compute(const uint64_t v[3], uint64_t *out)
{
	return rsh_add_u64(v[1], v[2], out) && rsh_mul_u64(v[0], *out, out);
}

/* Computes the one of the three values that is not known.  Returns 0 if no
 * number fits. */
static uint64_t hf_solve(uint64_t v[3], unsigned unknown, uint64_t size)
{
	uint64_t made;

	v[unknown] = unknown == 0;
	if (unknown == 0)
		return hf_compute(v, &made) && made && size % made == 0 ?
			size / made : 0;
	if (v[0] == 0 || size % v[0] || size / v[0] <= v[3 - unknown])
		return 0;
	return size / v[0] - v[3 - unknown];
}

static int hf_refuse_several(struct hf_check *h, const enum hf_key *keys,
			     const uint64_t *v, uint32_t weight, uint32_t d)
{
	const uint64_t size = (uint64_t)hf_weight(h, weight)->dims[d];
	const struct rsh_json_member *first = NULL, *m;
	char say[1024], shape[600], with[256] = "";
	uint64_t made = 0;
	size_t at = 0;

	for (unsigned i = 0; i < 3; i++) {
		m = keys[i] ? hf_size(h, keys[i], 0) : NULL;
		h->doubtful[keys[i]] |= !m;
		if (m && !first)
			first = m;
		else if (m)
			at += (size_t)snprintf(with + at, sizeof(with) - at,
					       "%s\"%.60s\" %" PRIu64,
					       at ? ", " : "", m->key,
					       m->number);
	}
	(void)hf_compute(v, &made);
	snprintf(say, sizeof(say), "say %" PRIu64 " where with %s it would be "
		 "%" PRIu64 " (%s)", size, with, made,
		 hf_shape_text(h, weight, shape, sizeof(shape)));
	return first ? hf_differ_size(h, first, say, false) : 0;
}

/* Compares a dimension that is computed from several keys.  If one key is
 * missing in the file, it is computed from the others. */
static int hf_check_several(struct hf_check *h, const struct hf_dim *dim,
			    uint32_t weight, uint32_t d)
{
	const enum hf_key keys[] = { dim->times, dim->a, dim->b };
	const uint64_t size = (uint64_t)hf_weight(h, weight)->dims[d];
	uint64_t v[] = { 1, 0, 0 }, made;
	unsigned n_unknown = 0, unknown = 0;

	for (unsigned i = 0; i < 3; i++)
		if (keys[i] && !hf_value(h, keys[i], &v[i])) {
			n_unknown++;
			unknown = i;
		}
	if (n_unknown > 1)
		return 0;
	if (n_unknown) {
		hf_add_size(h, keys[unknown], hf_solve(v, unknown, size));
		return 0;
	}
	if (hf_compute(v, &made) && made == size)
		return 0;
	return hf_refuse_several(h, keys, v, weight, d);
}

/* ---- heads ---- */

/* Returns the size of the dimension that is `times` heads; 0 if there is
 * none. */
static uint64_t hf_heads_of(const struct hf_check *h, enum hf_key times)
{
	for (uint32_t k = 0; k < HF_N_SHAPES; k++)
		for (uint32_t d = 0; d < hf_shapes[k].n_dims; d++) {
			const struct hf_dim *dim = &hf_shapes[k].dims[d];

			if (dim->times == times && dim->a == HF_HEAD_DIM &&
			    h->f.of[k] != HF_NONE)
				return (uint64_t)
					hf_weight(h, h->f.of[k])->dims[d];
		}
	return 0;
}

/* Checks sizes, and the numbers of layers and experts.  Passes
 * missing sizes to hf_add_size(). */
static int hf_check_sizes(struct hf_check *h)
{
	const struct rsh_json_member *more =
		hf_find(h, "num_nextn_predict_layers");
	const struct rsh_json_member *q = hf_size(h, HF_HEADS, 0);
	const struct rsh_json_member *kv = hf_size(h, HF_KV_HEADS, 0);
	const uint64_t queries = hf_heads_of(h, HF_HEADS);
	uint64_t keys = hf_heads_of(h, HF_KV_HEADS), a, b;
	/* Beside layers with keys of their own, others have another kind of
	 * attention. */
	const uint32_t fused = keys ? HF_NONE : h->f.of[HF_FUSED_HEADS];
	char say[160];
	int rc = hf_check_count(h, HF_LAYERS, h->f.n_layers,
				more && more->kind == RSH_JSON_NUMBER ?
				more->number : 0, "layers") ?:
		 hf_check_count(h, HF_EXPERTS, h->f.n_experts, 0, "experts") ?:
		 hf_check_there(h) ?: hf_check_tower(h);

	for (uint32_t k = 0; rc == 0 && k < HF_N_SHAPES; k++) {
		const struct hf_shape *s = &hf_shapes[k];

		if (h->f.of[k] == HF_NONE ||
		    (s->attention && s->attention != h->f.attention))
			continue;
		for (uint32_t d = 0; rc == 0 && d < s->n_dims; d++) {
			struct hf_dim dim = s->dims[d];

			if (dim.a == HF_HEAD_DIM && s->of_values &&
			    hf_size(h, HF_V_DIM, 0))
				dim.a = HF_V_DIM;
			if (dim.times || dim.b)
				rc = hf_check_several(h, &dim, h->f.of[k], d);
			else if (dim.a)
				rc = hf_check_one(h, dim.a, h->f.of[k], d);
		}
	}
	if (fused != HF_NONE) {
		a = (uint64_t)hf_weight(h, fused)->dims[0];
		keys = a > queries ? (a - queries) / 2 : 0;
	}
	/* Queries are compared with keys where "head_dim" did not tell: both
	 * have heads of the same size. */
	if (rc || h->f.attention != HF_PLAIN || !queries || !keys || !q ||
	    !kv || (hf_size(h, HF_HEAD_DIM, 0) && fused == HF_NONE) ||
	    (rsh_mul_u64(queries, kv->number, &a) &&
	     rsh_mul_u64(keys, q->number, &b) && a == b))
		return rc;
	snprintf(say, sizeof(say), "say %" PRIu64 " rows of keys for %" PRIu64
		 " of queries, whose \"%s\" is %" PRIu64, keys, queries, q->key,
		 q->number);
	return hf_differ_size(h, kv, say, false);
}

#define HF_QUANTIZED "quantization_config"

/* ---- types ---- */

static const struct hf_type {
	enum rsh_dtype dtype;
	const char *name;
	unsigned width;
} hf_types[] = {
	{ RSH_DTYPE_FLOAT16, "float16", 2 },
	{ RSH_DTYPE_BFLOAT16, "bfloat16", 2 },
	{ RSH_DTYPE_FLOAT32, "float32", 4 },
	{ RSH_DTYPE_FLOAT64, "float64", 8 },
};
#define HF_N_TYPES (sizeof(hf_types) / sizeof(hf_types[0]))

static const struct hf_type *hf_type_of(enum rsh_dtype t)
{
	for (size_t i = 0; i < HF_N_TYPES; i++)
		if (hf_types[i].dtype == t)
			return &hf_types[i];
	return NULL;
}

/* Corrects the types in one object.  A wider type is also correct if some of
 * the weights have it: it can represent every value of the others. */
static int hf_set_type(struct hf_check *h, const char *in,
		       const struct hf_type *is)
{
	static const char *const keys[] = { "dtype", "torch_dtype" };
	char text[24];
	int rc = 0;

	snprintf(text, sizeof(text), "\"%s\"", is->name);
	for (size_t k = 0; rc == 0 && k < 2; k++) {
		const struct rsh_json_member *m =
			rsh_json_edit_find(h->e, in, keys[k]);
		const char *s = m && m->kind == RSH_JSON_STRING ? m->string :
								  NULL;
		const struct hf_type *said = NULL;
		bool right = !m || (!s && m->kind != RSH_JSON_NULL);

		if (s && strncmp(s, "torch.", 6) == 0)
			s += 6;
		for (size_t i = 0; s && i < HF_N_TYPES; i++)
			if (strcmp(hf_types[i].name, s) == 0)
				said = &hf_types[i];
		right |= said ? said == is : s != NULL;
		for (uint32_t i = 0; said && said->width > is->width && !right &&
				     i < h->f.w->n; i++)
			right = hf_weight(h, i)->dtype == said->dtype;
		if (!right)
			rc = hf_set(h, in, keys[k], text);
	}
	return rc;
}

static int hf_set_all_types(struct hf_check *h)
{
	const struct hf_type *is = hf_type_of(h->f.dtype);
	const struct rsh_json_member *m;
	unsigned major = 0, minor = 0;
	char text[24];
	int rc;

	/* For quantized weights the type of the computation is not known. */
	if (!is || h->f.packed != HF_NONE || h->f.packed_ints != HF_NONE)
		return 0;
	rc = hf_set_type(h, NULL, is);
	/* Types of parts of the model (vision_config, ..) are known only if
	 * all weights have the same type. */
	for (uint32_t i = 0; rc == 0 && h->f.one_dtype &&
			     (m = rsh_json_edit_at(h->e, i)); i++)
		if (m->kind == RSH_JSON_OBJECT &&
		    strcmp(m->key, HF_QUANTIZED) != 0 &&
		    rsh_has_suffix(m->key, "_config"))
			rc = hf_set_type(h, m->key, is);
	if (rc || h->in || hf_find(h, "dtype") || hf_find(h, "torch_dtype"))
		return rc;
	/* transformers writes "dtype" since release 4.56; it reads both. */
	m = rsh_json_edit_find(h->e, NULL, "transformers_version");
	if (m && m->kind == RSH_JSON_STRING)
		(void)sscanf(m->string, "%3u.%3u", &major, &minor);
	snprintf(text, sizeof(text), "\"%s\"", is->name);
	return hf_add(h, major > 4 || (major == 4 && minor >= 56) ?
			 "dtype" : "torch_dtype", text);
}

/* ---- quantization ---- */

/* Sets an error if the config does not mention the quantization of its
 * weights. */
static int hf_check_unsaid(struct hf_check *h)
{
	const struct hf_facts *f = &h->f;
	char say[1024];

	if (!h->complete || f->packed == HF_NONE || f->scales == HF_NONE ||
	    hf_weight(h, f->packed)->dtype != RSH_DTYPE_FLOAT8E4M3FN ||
	    !rsh_has_suffix(hf_weight(h, f->scales)->name, "_scale_inv"))
		return 0;
	snprintf(say, sizeof(say), "are quantised: %.400s is %s, with "
		 "scales in %.400s", hf_weight(h, f->packed)->name,
		 rsh_dtype_name(hf_weight(h, f->packed)->dtype),
		 hf_weight(h, f->scales)->name);
	return hf_differ(h, HF_QUANTIZED, "not there", say, false);
}

/* Check "quantization_config" and set "dtype". */
static int hf_check_quantization(struct hf_check *h)
{
	const struct rsh_json_member *m =
		rsh_json_edit_find(h->e, NULL, HF_QUANTIZED), *method;
	bool fp8;

	if (!m && h->in)
		m = hf_find(h, HF_QUANTIZED);
	if (!m || m->kind != RSH_JSON_OBJECT)
		return hf_check_unsaid(h);
	method = rsh_json_edit_find(h->e, HF_QUANTIZED, "quant_method");
	/* Does any weight look like a result of the method? */
	fp8 = method && method->string && strstr(method->string, "fp8");
	if (h->f.packed != HF_NONE || h->f.scales != HF_NONE ||
	    (!fp8 && h->f.packed_ints != HF_NONE))
		return 0;
	rsh_log_info("%s: \"" HF_QUANTIZED "\" is left out, since no weight is "
		     "quantised", h->path);
	rsh_json_edit_drop(h->e, NULL, HF_QUANTIZED);
	rsh_json_edit_drop(h->e, HF_TEXT, HF_QUANTIZED);
	return 0;
}

/* ---- the head ---- */

static bool hf_is_false(const struct rsh_json_member *m)
{
	return m && m->kind == RSH_JSON_BOOL && !m->number;
}

/* Compares "tie_word_embeddings".  Both values are correct if head and
 * embedding exist and are equal. */
static int hf_check_tie(struct hf_check *h)
{
	static const char key[] = "tie_word_embeddings";
	const struct rsh_json_member *m = rsh_json_edit_find(h->e, NULL, key);
	const struct hf_facts *f = &h->f;
	const struct rsh_hf_weight *v = f->w->v, *head =
		f->head == HF_NONE ? NULL : &v[f->head];
	const bool tied = f->head == HF_NONE && !f->other_head &&
			  f->embedding != HF_NONE;
	char say[600];

	/* A model of several parts has two keys, and releases of transformers
	 * differ in which one they use. */
	if (f->drafts || !hf_has_text(h) ||
	    (h->in && !(tied && hf_is_false(m) &&
			hf_is_false(hf_find(h, key)))) ||
	    (m && (m->kind != RSH_JSON_BOOL || !m->number == !tied)))
		return 0;
	if (!tied && (f->head == HF_NONE || f->embedding == HF_NONE ||
		      !f->w->differ || head->dtype != v[f->embedding].dtype ||
		      !hf_alike(head, &v[f->embedding]) ||
		      !f->w->differ(f->w->ctx, f->embedding, f->head)))
		return 0;
	if (!m)
		return tied && f->w->partial ? 0 :
		       hf_add(h, key, tied ? "true" : "false");
	if (tied)
		return hf_differ(h, key, "false", "have no lm_head.weight",
				 true);
	snprintf(say, sizeof(say), "say false: %.200s is not %.200s",
		 head->name, v[f->embedding].name);
	return hf_differ(h, key, "true", say, false);
}

/* ---- names ---- */

static bool hf_is_adapted(const char *name)
{
	return strstr(name, ".base_layer.") != NULL;
}

/* Notes how many names are such, and returns whether there are some. */
static bool hf_names_note(const struct rsh_hf_weights *w, const char *path,
			  bool (*is)(const char *name), const char *why)
{
	const char *first = NULL;
	char text[RSH_ERROR_TEXT_MAX];
	uint32_t n = 0;

	for (uint32_t i = 0; i < w->n; i++)
		if (is(w->v[i].name) && n++ == 0)
			first = w->v[i].name;
	if (n == 0)
		return false;
	snprintf(text, sizeof(text), "%.600s: no model has the names of %u "
		 "weights, such as %.400s: %s", path, n, first, why);
	w->note(w->ctx, text);
	return true;
}

bool rsh_hf_names_check(const struct rsh_hf_weights *w, const char *path)
{
	/* Both may be in a name. */
	const bool wraps = hf_names_note(w, path, rsh_name_is_wrapped,
					 "they have words of wrappers, which "
					 "--unwrap removes");

	return hf_names_note(w, path, hf_is_adapted, "an adapter (PEFT) is "
			     "beside them, and is not merged") || wraps;
}

/* Says if no weight is one of the architecture: those of another form, or with
 * other words before them. */
static void hf_check_architecture(const struct hf_check *h)
{
	const struct rsh_json_member *m =
		rsh_json_edit_find(h->e, NULL, "architectures");
	struct rsh_decoder_names names = { NULL, false };
	const char *class = m ? rsh_decoder_class(rsh_json_edit_text(h->e) +
						  m->offset, m->length) : NULL;
	char text[RSH_ERROR_TEXT_MAX];

	for (uint32_t i = 0; i < h->f.w->n; i++)
		rsh_decoder_names_add(&names, hf_weight(h, i)->name);
	if (class && !h->f.w->partial &&
	    rsh_decoder_names_misfit(&names, h->path, class, text,
				     sizeof(text)))
		h->f.w->note(h->f.w->ctx, text);
}

/* ---- the whole file ---- */

int rsh_hf_config_update(const struct rsh_hf_weights *w,
			 struct rsh_json_edit *e, const char *path,
			 bool complete, struct rsh_error *err)
{
	const struct rsh_json_member *text = rsh_json_edit_find(e, NULL,
								HF_TEXT);
	struct hf_check h = { .e = e, .path = path, .err = err };
	int rc = hf_facts_find(w, &h.f);

	if (rc)
		return rsh_error_nomem(err);
	h.complete = complete &&
		     (rsh_json_edit_find(e, NULL, "model_type") ||
		      rsh_json_edit_find(e, NULL, "architectures"));
	if (h.complete && w->note && !rsh_hf_names_check(w, path))
		hf_check_architecture(&h);
	if (text && text->kind == RSH_JSON_OBJECT)
		h.in = HF_TEXT;
	/* It must be known where the decoder's keys are. */
	if (h.f.prefix && (h.in || !strstr(h.f.prefix, "language_model.")))
		rc = hf_check_sizes(&h) ?: hf_add_sizes(&h) ?: hf_check_tie(&h);
	if (rc == 0)
		rc = hf_check_quantization(&h);
	return rc ? rc : hf_set_all_types(&h);
}
