/* SPDX-License-Identifier: Apache-2.0 */
/* formats/safetensors/hf_facts.c finds facts about a model in the names, shapes
 * and types of its weights. */
#include "hf_config_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/files.h"
#include "rsh/util/mem.h"

/* Layers with higher numbers are not counted; models have a few hundred. */
#define LAYERS_MAX 65536

/* ---- the decoder ---- */

static const struct hf_decoder {
	const char *prefix, *list;
} decoders[] = {
	{ "model.", "layers." },
	{ "", "layers." },
	{ "model.language_model.", "layers." },
	{ "language_model.model.", "layers." },
	{ "language_model.", "layers." },
	{ "gpt_neox.", "layers." },
	{ "transformer.", "h." },
	{ "", "h." },
};

static bool hf_begins(const char **s, const char *with)
{
	const size_t n = strlen(with);

	if (strncmp(*s, with, n) != 0)
		return false;
	*s += n;
	return true;
}

/* Reads a number and the dot after it. */
static bool hf_number(const char **s, uint32_t *out)
{
	const char *p = *s;

	for (*out = 0; *p >= '0' && *p <= '9' && *out < LAYERS_MAX; p++)
		*out = *out * 10 + (uint32_t)(*p - '0');
	if (p == *s || *p != '.' || *out >= LAYERS_MAX)
		return false;
	*s = p + 1;
	return true;
}

/* Moves *s past the number of the layer.  Returns false if the name has
 * none. */
static bool hf_layer(const struct hf_facts *f, const char **s, uint32_t *layer)
{
	return hf_begins(s, f->prefix) && hf_begins(s, f->list) &&
	       hf_number(s, layer);
}

static void hf_find_decoder(struct hf_facts *f)
{
	uint32_t layer;

	for (size_t d = 0; d < sizeof(decoders) / sizeof(decoders[0]); d++)
		for (uint32_t i = 0; i < f->w->n; i++) {
			struct hf_facts at = {
				.prefix = decoders[d].prefix,
				.list = decoders[d].list,
			};
			const char *s = f->w->v[i].name;

			if (!hf_layer(&at, &s, &layer))
				continue;
			if (f->prefix) {
				f->prefix = NULL;
				return;
			}
			f->prefix = at.prefix;
			f->list = at.list;
			break;
		}
}

/* ---- layers ---- */

/* Only layers for multi-token prediction have these. */
static bool hf_predicts(const char *rest)
{
	static const char *const names[] = {
		"eh_proj.", "enorm.", "hnorm.", "shared_head.", "embed_tokens.",
	};

	return rsh_any(i, sizeof(names) / sizeof(names[0]),
		       strncmp(rest, names[i], strlen(names[i])) == 0);
}

/* ---- shapes ---- */

#define NO { HF_KEY_NONE, HF_KEY_NONE, HF_KEY_NONE }
#define ONE(key) { HF_KEY_NONE, HF_##key, HF_KEY_NONE }
#define PRODUCT(times, a) { HF_##times, HF_##a, HF_KEY_NONE }
#define SUM(a, b) { HF_KEY_NONE, HF_##a, HF_##b }
#define TOP(name, ...) { name ".weight", false, HF_EITHER, __VA_ARGS__ }
#define LAYER(name, ...) { name ".weight", true, HF_EITHER, __VA_ARGS__ }
#define PLAIN(name, ...) { name ".weight", true, HF_PLAIN, __VA_ARGS__ }
#define VALUES(name, ...) \
	{ name ".weight", true, HF_PLAIN, __VA_ARGS__, .of_values = true }
#define RANKS(name, ...) { name ".weight", true, HF_RANKS, __VA_ARGS__ }
#define STACK(name) { name, true, HF_EITHER, 3, { ONE(EXPERTS), NO, NO } }
#define MATRIX(rows, columns) 2, { rows, columns }
#define SIZES(rows, columns) MATRIX(ONE(rows), ONE(columns))
#define VECTOR(key) 1, { ONE(key) }

const struct hf_shape hf_shapes[HF_N_SHAPES] = {
	TOP("embed_tokens", SIZES(VOCAB, HIDDEN)),
	TOP("embed_in", SIZES(VOCAB, HIDDEN)),
	TOP("embed", SIZES(VOCAB, HIDDEN)),
	TOP("wte", SIZES(VOCAB, HIDDEN)),
	TOP("norm", VECTOR(HIDDEN)),
	TOP("ln_f", VECTOR(HIDDEN)),
	TOP("final_layer_norm", VECTOR(HIDDEN)),
	LAYER("input_layernorm", VECTOR(HIDDEN)),
	LAYER("mlp.gate_proj", SIZES(MLP, HIDDEN)),
	LAYER("mlp.up_proj", SIZES(MLP, HIDDEN)),
	LAYER("mlp.down_proj", SIZES(HIDDEN, MLP)),
	LAYER("block_sparse_moe.experts.{}.w1", SIZES(MLP, HIDDEN)),
	LAYER("block_sparse_moe.experts.{}.w2", SIZES(HIDDEN, MLP)),
	LAYER("mlp.experts.{}.gate_proj", SIZES(EXPERT_MLP, HIDDEN)),
	LAYER("mlp.experts.{}.up_proj", SIZES(EXPERT_MLP, HIDDEN)),
	LAYER("mlp.experts.{}.down_proj", SIZES(HIDDEN, EXPERT_MLP)),
	{ "mlp.experts.gate_up_proj_bias", true, HF_EITHER,
	  MATRIX(ONE(EXPERTS), SUM(MLP, MLP)) },
	STACK("mlp.experts.gate_up_proj"),
	STACK("mlp.experts.down_proj"),
	VALUES("self_attn.o_proj",
	       MATRIX(ONE(HIDDEN), PRODUCT(HEADS, HEAD_DIM))),
	PLAIN("self_attn.k_proj",
	      MATRIX(PRODUCT(KV_HEADS, HEAD_DIM), ONE(HIDDEN))),
	VALUES("self_attn.v_proj",
	       MATRIX(PRODUCT(KV_HEADS, HEAD_DIM), ONE(HIDDEN))),
	[HF_QUERY_NORM] = PLAIN("self_attn.q_norm", 1, { NO }),
	[HF_FUSED_HEADS] = PLAIN("self_attn.qkv_proj", MATRIX(NO, ONE(HIDDEN))),
	LAYER("self_attn.q_a_proj", SIZES(Q_RANK, HIDDEN)),
	LAYER("self_attn.q_a_layernorm", VECTOR(Q_RANK)),
	LAYER("self_attn.kv_a_layernorm", VECTOR(KV_RANK)),
	LAYER("self_attn.kv_a_proj_with_mqa",
	      MATRIX(SUM(ROPE_DIM, KV_RANK), ONE(HIDDEN))),
	RANKS("self_attn.q_b_proj", 2,
	      { { HF_HEADS, HF_NOPE_DIM, HF_ROPE_DIM }, ONE(Q_RANK) }),
	LAYER("self_attn.kv_b_proj", 2,
	      { { HF_HEADS, HF_NOPE_DIM, HF_V_DIM }, ONE(KV_RANK) }),
	RANKS("self_attn.o_proj", MATRIX(ONE(HIDDEN), PRODUCT(HEADS, V_DIM))),
	LAYER("attn.wq_a", SIZES(Q_RANK, HIDDEN)),
	LAYER("attn_norm", VECTOR(HIDDEN)),
	LAYER("ffn_norm", VECTOR(HIDDEN)),
};

/* Compares a name with that of a shape, in which {} matches any number. */
static bool hf_is_called(const char *s, const char *name)
{
	const char *hole = strstr(name, "{}.");
	uint32_t number;

	if (!hole)
		return strcmp(s, name) == 0;
	if (strncmp(s, name, (size_t)(hole - name)) != 0)
		return false;
	s += hole - name;
	return hf_number(&s, &number) && strcmp(s, hole + 3) == 0;
}

bool hf_alike(const struct rsh_hf_weight *a, const struct rsh_hf_weight *b)
{
	return a->n_dims == b->n_dims &&
	       memcmp(a->dims, b->dims, a->n_dims * sizeof(*a->dims)) == 0;
}

static bool hf_is_float(enum rsh_dtype t)
{
	return t == RSH_DTYPE_FLOAT16 || t == RSH_DTYPE_BFLOAT16 ||
	       t == RSH_DTYPE_FLOAT32 || t == RSH_DTYPE_FLOAT64;
}

/* Integers are codes of quantised weights: several may be in one element, and
 * the matrix may be transposed. */
static bool hf_shape_is_known(enum rsh_dtype t)
{
	return hf_is_float(t) || t == RSH_DTYPE_FLOAT8E4M3FN ||
	       t == RSH_DTYPE_FLOAT8E5M2;
}

/* Returns whether a name below a layer is that of an expert. */
static bool hf_expert(const char *s, uint32_t *expert)
{
	return (hf_begins(&s, "mlp.experts.") ||
		hf_begins(&s, "block_sparse_moe.experts.") ||
		hf_begins(&s, "ffn.experts.")) && hf_number(&s, expert);
}

#define EXPERTS_MAX (1 << 24)

/* Finds an expert without a weight in a layer that has others. */
static int hf_find_expert_gap(struct hf_facts *f)
{
	const size_t n = f->n_experts, all = f->n_layers * n;
	cleanup_free bool *there = calloc(all + 1, sizeof(*there));
	uint32_t layer, expert;

	if (!there)
		return -ENOMEM;
	for (uint32_t i = 0; i < f->w->n; i++) {
		const char *s = f->w->v[i].name;

		if (hf_layer(f, &s, &layer) && layer < f->n_layers &&
		    hf_expert(s, &expert))
			there[layer * n + expert] = true;
	}
	for (layer = 0; layer < f->n_layers; layer++) {
		const bool *row = there + layer * n;
		const bool *gap = memchr(row, false, n);

		if (!gap || !memchr(row, true, n))
			continue;
		f->gap_expert = (uint32_t)(gap - row);
		f->gap_layer = layer;
		return 0;
	}
	return 0;
}

/* Finds the shapes, and counts experts and layers, except the layers for
 * prediction, which come last. */
static int hf_find_shapes(struct hf_facts *f)
{
	cleanup_free bool *predicts = calloc(LAYERS_MAX, sizeof(*predicts));
	cleanup_free bool *there = calloc(LAYERS_MAX, sizeof(*there));
	const bool *gap;
	bool varies[HF_N_SHAPES] = { false };
	uint32_t layer, expert, end = 0;

	if (!predicts || !there)
		return -ENOMEM;
	for (uint32_t i = 0; i < f->w->n; i++) {
		const struct rsh_hf_weight *w = &f->w->v[i];
		const char *s = w->name, *of_top = s;
		const bool of_layer = hf_layer(f, &s, &layer);

		if (of_layer) {
			predicts[layer] |= hf_predicts(s);
			there[layer] = true;
			f->layers_have_norms |= strstr(s, "norm") != NULL;
			end = layer >= end ? layer + 1 : end;
			if (hf_expert(s, &expert) && expert >= f->n_experts)
				f->n_experts = expert + 1;
			if (strncmp(s, "self_attn.kv_a", 14) == 0)
				f->attention = HF_RANKS;
		} else if (!hf_begins(&of_top, f->prefix)) {
			continue;
		} else {
			f->has_norm |= strstr(of_top, "norm") != NULL;
			f->embeds |= strstr(of_top, "emb") ||
				     strstr(of_top, "wte");
		}
		for (uint32_t k = 0; k < HF_N_SHAPES; k++) {
			if (hf_shapes[k].layer != of_layer ||
			    !hf_shape_is_known(w->dtype) ||
			    !hf_is_called(of_layer ? s : of_top,
					  hf_shapes[k].name))
				continue;
			if (f->of[k] == HF_NONE)
				f->of[k] = i;
			varies[k] |= w->n_dims != hf_shapes[k].n_dims ||
				     !hf_alike(w, &f->w->v[f->of[k]]);
		}
	}
	for (uint32_t k = 0; k < HF_N_SHAPES; k++)
		if (varies[k])
			f->of[k] = HF_NONE;
	while (end > 0 && predicts[end - 1])
		end--;
	f->n_layers = memchr(predicts, true, end) ? 0 : end;
	gap = memchr(there, false, f->n_layers);
	f->gap = gap ? (uint32_t)(gap - there) : HF_NONE;
	return f->n_experts > 0 &&
	       (uint64_t)f->n_layers * f->n_experts < EXPERTS_MAX ?
		hf_find_expert_gap(f) : 0;
}

/* ---- a part that sees ---- */

/* Returns whether a name is that of something for pictures. */
static bool hf_sees(const char *name)
{
	static const char *const words[] = {
		"vis", "vit", "image", "img", "patch", "pixel", "clip",
	};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strstr(name, words[i]))
			return true;
	return false;
}

/* Finds the longest list of blocks for pictures, and a gap in it. */
static int hf_find_tower(struct hf_facts *f)
{
	cleanup_free bool *there = calloc(LAYERS_MAX, sizeof(*there));
	const char *list = NULL, *gap;
	size_t length = 0;
	uint32_t n;

	if (!there)
		return -ENOMEM;
	for (uint32_t i = 0; i < f->w->n; i++) {
		const char *s = f->w->v[i].name, *at = s;

		if (hf_layer(f, &at, &n) || !hf_sees(s))
			continue;
		f->sees = true;
		at = s + strcspn(s, "0123456789");
		if (at > s && at[-1] == '.' && hf_number(&at, &n) &&
		    n >= f->n_blocks) {
			f->n_blocks = n + 1;
			list = s;
			length = strcspn(s, "0123456789");
		}
	}
	for (uint32_t i = 0; i < f->w->n && list; i++) {
		const char *at = f->w->v[i].name + length;

		if (strncmp(f->w->v[i].name, list, length) == 0 &&
		    hf_number(&at, &n))
			there[n] = true;
	}
	gap = memchr(there, false, f->n_blocks);
	f->gap_block = gap ? (uint32_t)((const bool *)gap - there) : HF_NONE;
	return 0;
}

/* ---- embedding and head ---- */

/* EAGLE joins the embedding and hidden states of the other model by this
 * matrix. */
static bool hf_is_of_draft(const struct rsh_hf_weight *w)
{
	return (strcmp(w->name, "fc.weight") == 0 ||
		strcmp(w->name, "model.fc.weight") == 0) && w->n_dims == 2 &&
	       w->dims[0] > 0 && w->dims[1] > w->dims[0] &&
	       w->dims[1] % w->dims[0] == 0;
}

static void hf_find_head(struct hf_facts *f)
{
	uint32_t layer;

	for (uint32_t k = 0; k < HF_N_SHAPES; k++)
		if (hf_shapes[k].dims[0].a == HF_VOCAB &&
		    f->embedding == HF_NONE)
			f->embedding = f->of[k];
	for (uint32_t i = 0; i < f->w->n; i++) {
		const char *s = f->w->v[i].name;

		f->drafts |= hf_is_of_draft(&f->w->v[i]);
		if ((strcmp(s, "lm_head.weight") == 0 ||
		     strcmp(s, "language_model.lm_head.weight") == 0) &&
		    f->w->v[i].n_dims == 2)
			f->head = i;
		else if (i != f->embedding && f->embedding != HF_NONE &&
			 hf_alike(&f->w->v[i], &f->w->v[f->embedding]) &&
			 !hf_layer(f, &s, &layer))
			f->other_head = true;
	}
}

/* ---- types ---- */

/* Quantization tools write these beside the tensors. */
static bool hf_is_scale(const char *name)
{
	static const char *const ends[] = {
		"_scale_inv", "_scale", "scales", "qzeros", "_zero_point",
		"absmax", "quant_map", "_packed", "qweight", "SCB",
	};

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		if (rsh_has_suffix(name, ends[i]))
			return true;
	return strstr(name, ".quant_state.") != NULL;
}

static void hf_find_types(struct hf_facts *f)
{
	double of[RSH_DTYPE_COUNT] = { 0 };
	uint32_t n = 0;

	for (uint32_t i = 0; i < f->w->n; i++) {
		const struct rsh_hf_weight *w = &f->w->v[i];
		const unsigned size = rsh_dtype_size(w->dtype);
		double elements = hf_is_float(w->dtype);

		for (uint32_t d = 0; d < w->n_dims; d++)
			elements *= (double)w->dims[d];
		of[w->dtype] += elements;
		if (size == 1 && w->dtype != RSH_DTYPE_BOOL && w->n_dims)
			f->packed = i;
		else if ((size == 2 || size == 4) && w->n_dims > 1 &&
			 !hf_is_float(w->dtype))
			f->packed_ints = i;
		if (hf_is_scale(w->name))
			f->scales = i;
	}
	for (unsigned t = 0; t < RSH_DTYPE_COUNT; t++) {
		n += of[t] > 0;
		if (of[t] > of[f->dtype])
			f->dtype = (enum rsh_dtype)t;
	}
	f->one_dtype = n == 1;
}

int hf_facts_find(const struct rsh_hf_weights *w, struct hf_facts *out)
{
	*out = (struct hf_facts){
		.w = w, .attention = HF_PLAIN,
		.gap = HF_NONE, .gap_expert = HF_NONE, .gap_block = HF_NONE,
		.embedding = HF_NONE, .head = HF_NONE,
		.packed = HF_NONE, .packed_ints = HF_NONE, .scales = HF_NONE,
	};
	for (uint32_t k = 0; k < HF_N_SHAPES; k++)
		out->of[k] = HF_NONE;
	hf_find_types(out);
	hf_find_decoder(out);
	if (!out->prefix)
		return 0;
	if (hf_find_shapes(out) || hf_find_tower(out))
		return -ENOMEM;
	hf_find_head(out);
	return 0;
}
