/* SPDX-License-Identifier: Apache-2.0 */
/* outputs/hf_types.c sets the types in a config.json to those of the weights,
 * and compares its quantization with them. */
#include <stdio.h>
#include <string.h>

#include "hf_config_i.h"
#include "rsh/util/files.h"
#include "rsh/util/log.h"

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

/* Returns the type that a "dtype" names.  Returns NULL if weights are not
 * stored in it. */
static const struct hf_type *hf_type_said(const struct rsh_json_member *m)
{
	static const char torch[] = "torch.";
	const char *s = m->kind == RSH_JSON_STRING ? m->string : "";

	if (strncmp(s, torch, sizeof(torch) - 1) == 0)
		s += sizeof(torch) - 1;
	for (size_t i = 0; i < HF_N_TYPES; i++)
		if (strcmp(hf_types[i].name, s) == 0)
			return &hf_types[i];
	return NULL;
}

/* A wider type is also correct if some of the weights have it: it can represent
 * every value of the others. */
static bool hf_type_will_do(const struct hf_check *h,
			    const struct hf_type *said,
			    const struct hf_type *is)
{
	if (said == is)
		return true;
	if (said->width <= is->width)
		return false;
	for (uint32_t i = 0; i < h->f.w->n; i++)
		if (hf_weight(h, i)->dtype == said->dtype)
			return true;
	return false;
}

static int hf_set_type(struct hf_check *h, const char *in, const char *key,
		       const struct hf_type *is)
{
	const struct rsh_json_member *m = rsh_json_edit_find(h->e, in, key);
	const struct hf_type *said;
	char text[24];

	if (!m || (m->kind != RSH_JSON_STRING && m->kind != RSH_JSON_NULL))
		return 0;
	said = hf_type_said(m);
	if (said ? hf_type_will_do(h, said, is) : m->kind == RSH_JSON_STRING)
		return 0;
	snprintf(text, sizeof(text), "\"%s\"", is->name);
	return hf_set(h, in, key, text);
}

/* Sets the types of parts of the model (vision_config, ..).  They are known
 * only if all weights have the same type. */
static int hf_set_types_of_parts(struct hf_check *h, const struct hf_type *is)
{
	const struct rsh_json_member *m;
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && (m = rsh_json_edit_at(h->e, i)); i++) {
		if (m->kind != RSH_JSON_OBJECT ||
		    strcmp(m->key, HF_QUANTIZED) == 0 ||
		    !rsh_has_suffix(m->key, "_config"))
			continue;
		rc = hf_set_type(h, m->key, "dtype", is);
		if (rc == 0)
			rc = hf_set_type(h, m->key, "torch_dtype", is);
	}
	return rc;
}

/* transformers writes "dtype" since release 4.56; it reads both keys. */
static const char *hf_type_key(const struct hf_check *h)
{
	const struct rsh_json_member *m =
		rsh_json_edit_find(h->e, NULL, "transformers_version");
	unsigned major = 0, minor = 0;

	if (m && m->kind == RSH_JSON_STRING)
		(void)sscanf(m->string, "%3u.%3u", &major, &minor);
	return major > 4 || (major == 4 && minor >= 56) ? "dtype" :
							  "torch_dtype";
}

int hf_set_all_types(struct hf_check *h)
{
	const struct hf_type *is = hf_type_of(h->f.dtype);
	char text[24];
	int rc;

	/* For quantized weights the type of the computation is not known. */
	if (!is || h->f.packed != HF_NONE || h->f.packed_ints != HF_NONE)
		return 0;
	rc = hf_set_type(h, NULL, "dtype", is);
	if (rc == 0)
		rc = hf_set_type(h, NULL, "torch_dtype", is);
	if (rc == 0 && h->f.one_dtype)
		rc = hf_set_types_of_parts(h, is);
	if (rc || h->in || hf_find(h, "dtype") || hf_find(h, "torch_dtype"))
		return rc;
	snprintf(text, sizeof(text), "\"%s\"", is->name);
	return hf_add(h, hf_type_key(h), text);
}

/* ---- quantization ---- */

/* Returns whether any weight looks like a result of the method. */
static bool hf_is_quantized(const struct hf_check *h, const char *method)
{
	const struct hf_facts *f = &h->f;
	const bool fp8 = method && strstr(method, "fp8");

	return f->packed != HF_NONE || f->scales != HF_NONE ||
	       (!fp8 && f->packed_ints != HF_NONE);
}

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
	return hf_refuse(h, HF_QUANTIZED, "not there", say);
}

int hf_check_quantization(struct hf_check *h)
{
	const struct rsh_json_member *m =
		rsh_json_edit_find(h->e, NULL, HF_QUANTIZED), *method;

	if (!m && h->in)
		m = hf_find(h, HF_QUANTIZED);
	if (!m || m->kind != RSH_JSON_OBJECT)
		return hf_check_unsaid(h);
	method = rsh_json_edit_find(h->e, HF_QUANTIZED, "quant_method");
	if (hf_is_quantized(h, method ? method->string : NULL))
		return 0;
	rsh_log_info("%s: \"" HF_QUANTIZED "\" is left out, since no weight is "
		     "quantised", h->path);
	rsh_json_edit_drop(h->e, NULL, HF_QUANTIZED);
	rsh_json_edit_drop(h->e, HF_TEXT, HF_QUANTIZED);
	return 0;
}
