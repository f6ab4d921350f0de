/* SPDX-License-Identifier: Apache-2.0 */
/* outputs/hf_sizes.c compares the sizes in a config.json with the shapes of the
 * weights. */
#include <inttypes.h>
#include <stdio.h>

#include "hf_config_i.h"
#include "rsh/util/checked.h"

/* ---- numbers of layers and experts ---- */

/* Compares a number of layers or experts with the config.  The `more` layers
 * that the config has for prediction may be included in the weights. */
static int hf_check_count(struct hf_check *h, enum hf_key key, uint32_t n,
			  uint64_t more, const char *what)
{
	const struct rsh_json_member *m = hf_size(h, key, 0), *other;
	char say[96], is[24];

	if (n == 0)
		return 0;
	/* Models have different keys for the number of experts. */
	if (!m) {
		if (!h->f.w->partial && key != HF_EXPERTS)
			hf_add_size(h, key, n);
		return 0;
	}
	for (unsigned i = 0; (other = hf_size(h, key, i)); i++)
		if (other->number == n || (more && other->number < n &&
					   other->number + more == n))
			return 0;
	snprintf(say, sizeof(say), "say %" PRIu32 " (%s are numbered 0 to "
		 "%" PRIu32 ")", n, what, n - 1);
	snprintf(is, sizeof(is), "%" PRIu64, m->number);
	return n > m->number ? hf_refuse(h, m->key, is, say) :
			       hf_miss(h, m->key, is, say);
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

	if (!m) {
		if (key != HF_EXPERT_MLP || !hf_value(h, HF_MLP, &mlp) ||
		    mlp != size)
			hf_add_size(h, key, size);
		return 0;
	}
	for (unsigned i = 0; (other = hf_size(h, key, i)); i++)
		if (other->number == size ||
		    (key == HF_VOCAB && hf_may_embed(h, other->number)))
			return 0;
	snprintf(say, sizeof(say), "say %" PRIu64 " (%s)", size,
		 hf_shape_text(h, weight, shape, sizeof(shape)));
	return hf_refuse_size(h, m, say);
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
	return first ? hf_refuse_size(h, first, say) : 0;
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

int hf_check_sizes(struct hf_check *h)
{
	const struct rsh_json_member *more =
		hf_find(h, "num_nextn_predict_layers");
	const struct rsh_json_member *q = hf_size(h, HF_HEADS, 0);
	const struct rsh_json_member *kv = hf_size(h, HF_KV_HEADS, 0);
	const uint64_t queries = hf_heads_of(h, HF_HEADS);
	const uint64_t keys = hf_heads_of(h, HF_KV_HEADS);
	char say[160];
	uint64_t a, b;
	int rc = hf_check_count(h, HF_LAYERS, h->f.n_layers,
				more && more->kind == RSH_JSON_NUMBER ?
				more->number : 0, "layers");

	if (rc == 0)
		rc = hf_check_count(h, HF_EXPERTS, h->f.n_experts, 0,
				    "experts");
	for (uint32_t k = 0; rc == 0 && k < HF_N_SHAPES; k++) {
		const struct hf_shape *s = &hf_shapes[k];

		if (h->f.of[k] == HF_NONE ||
		    (s->attention && s->attention != h->f.attention))
			continue;
		for (uint32_t d = 0; rc == 0 && d < s->n_dims; d++) {
			const struct hf_dim *dim = &s->dims[d];

			if (dim->times || dim->b)
				rc = hf_check_several(h, dim, h->f.of[k], d);
			else if (dim->a)
				rc = hf_check_one(h, dim->a, h->f.of[k], d);
		}
	}
	/* Queries are compared with keys if "head_dim" is missing: both have
	 * heads of the same size. */
	if (rc || h->f.attention != HF_PLAIN || !queries || !keys || !q ||
	    !kv || hf_size(h, HF_HEAD_DIM, 0) ||
	    (rsh_mul_u64(queries, kv->number, &a) &&
	     rsh_mul_u64(keys, q->number, &b) && a == b))
		return rc;
	snprintf(say, sizeof(say), "say %" PRIu64 " rows of keys for %" PRIu64
		 " of queries, whose \"%s\" is %" PRIu64, keys, queries, q->key,
		 q->number);
	return hf_refuse_size(h, kv, say);
}
