/* SPDX-License-Identifier: Apache-2.0 */
/* plan/codes.c finds out whether a catalogue has quantised weights: elements
 * that are codes, with scales beside them. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "rsh/plan/catalogue.h"
#include "rsh/util/files.h"

#define CODES_TEXT 4096

/* How the name of codes ends, and those of scales after what is before that. */
static const struct {
	const char *end;
	const char *scales[8];
} codes[] = {
	{ ".weight", { ".weight_scale", ".weight_scale_inv", ".scale",
		       ".scales", ".weight_scales", ".scale_weight",
		       ".weight.absmax", ".SCB" } },
	{ ".qweight", { ".scales" } },
	{ "_packed", { "_scale" } },
	{ "_blocks", { "_scales" } },
	{ "._data", { "._scale" } },
	{ ".W_q", { ".scale" } },
	{ "_qdata", { "_scale" } },
	{ "_proj", { "_proj_scale", "_proj_scale_inv" } },
};

static bool codes_may_be(uint8_t dtype)
{
	return dtype != RSH_DTYPE_FLOAT16 && dtype != RSH_DTYPE_BFLOAT16 &&
	       dtype != RSH_DTYPE_FLOAT32 && dtype != RSH_DTYPE_FLOAT64;
}

static bool codes_has_name(const struct rsh_catalogue *c, const char *text)
{
	const uint32_t name = rsh_names_find(c->names, text, strlen(text));

	if (name == RSH_NAME_NONE)
		return false;
	if (rsh_catalogue_first(c, name) != UINT32_MAX)
		return true;
	for (uint32_t i = 0; i < c->n_tensors; i++)
		if (c->tensors[i]->name == name)
			return true;
	return false;
}

/* Finds the scales of codes with this name, and writes their name to text.
 * Returns whether there are some. */
static bool codes_scales(const struct rsh_catalogue *c, const char *name,
			 char text[CODES_TEXT])
{
	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
		const char *const *s = codes[i].scales;

		if (!rsh_has_suffix(name, codes[i].end))
			continue;
		for (size_t k = 0; k < 8 && s[k]; k++) {
			snprintf(text, CODES_TEXT, "%.*s%s",
				 (int)(strlen(name) - strlen(codes[i].end)),
				 name, s[k]);
			if (codes_has_name(c, text))
				return true;
		}
	}
	return false;
}

static int codes_refuse(const struct rsh_catalogue *c, uint32_t name,
			uint8_t dtype, struct rsh_error *err)
{
	const char *text = rsh_names_text(c->names, name);
	char scales[CODES_TEXT];

	if (!codes_may_be(dtype) || !codes_scales(c, text, scales))
		return 0;
	return rsh_error_set(err, EINVAL, "%.400s is quantised: --cast would "
			     "round %.400s, and not the weight (use "
			     "--dequantize)", text, scales);
}

int rsh_catalogue_check_cast(const struct rsh_catalogue *c,
			     struct rsh_error *err)
{
	const struct rsh_ckpt_index *before = NULL;
	int rc = 0;

	for (uint32_t i = 0; i < c->n_tensors; i++)
		if (c->tensors[i]->quantised)
			return 0;
	for (uint32_t i = 0; rc == 0 && i < c->n_tensors; i++)
		rc = codes_refuse(c, c->tensors[i]->name, c->tensors[i]->dtype,
				  err);
	for (uint32_t f = 0; rc == 0 && f < c->n_present; f++) {
		const struct rsh_ckpt_index *ix = c->index[c->present[f]];

		for (uint32_t i = 0; rc == 0 && ix != before &&
		     i < ix->n_records; i++)
			rc = codes_refuse(c, ix->records[i].name,
					  ix->records[i].dtype, err);
		before = ix;
	}
	return rc;
}
