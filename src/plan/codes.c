/* SPDX-License-Identifier: Apache-2.0 */
/* plan/codes.c finds out whether a catalogue has quantised weights: elements
 * that are codes, with scales beside them, and whether options part them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/plan/name_filter.h"
#include "rsh/util/files.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

#define CODES_TEXT 4096

/* How the name of codes ends, and, after what is before that, those of scales
 * and of what else is needed. */
static const struct {
	const char *end;
	const char *scales[8];
	const char *more[3];
} codes[] = {
	{ ".weight", { ".weight_scale", ".weight_scale_inv", ".scale",
		       ".scales", ".weight_scales", ".scale_weight",
		       ".weight.absmax", ".SCB" },
	  { ".weight_zero_point", ".weight_global_scale",
	    ".weight.quant_map" } },
	{ ".qweight", { ".scales" }, { ".qzeros", ".g_idx" } },
	{ "_packed", { "_scale" },
	  { "_zero_point", "_global_scale", "_shape" } },
	{ "_blocks", { "_scales" }, { NULL } },
	{ "._data", { "._scale" }, { NULL } },
	{ ":_data", { ":_scale" }, { ":_zero_point" } },
	{ ".W_q", { ".scale" }, { ".zero" } },
	{ "_qdata", { "_scale" }, { "_zero_point" } },
	{ "_proj", { "_proj_scale", "_proj_scale_inv" }, { NULL } },
};
#define N_CODES (sizeof(codes) / sizeof(codes[0]))

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
	return rsh_any(i, c->n_tensors, c->tensors[i]->name == name);
}

/* Finds the scales of codes with this name, and writes their name to text.
 * Returns whether there are some. */
static bool codes_scales(const struct rsh_catalogue *c, const char *name,
			 char text[CODES_TEXT])
{
	for (size_t i = 0; i < N_CODES; i++) {
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

/* Refuses codes that have scales, and those of a model that is quantised in an
 * unknown way: `by` says so. */
static int codes_refuse(const struct rsh_catalogue *c, uint32_t name,
			uint8_t dtype, uint32_t n_dims, const char *by,
			struct rsh_error *err)
{
	const char *text = rsh_names_text(c->names, name);
	char scales[CODES_TEXT];

	if (!codes_may_be(dtype))
		return 0;
	if (codes_scales(c, text, scales))
		return rsh_error_set(err, EINVAL, "%.400s is quantised: --cast "
				     "would round %.400s, and not the weight "
				     "(see --dequantize)", text, scales);
	/* Positions and counters are of other types, or vectors. */
	if (!by || n_dims < 2 || dtype == RSH_DTYPE_INT64 ||
	    dtype == RSH_DTYPE_BOOL)
		return 0;
	return rsh_error_set(err, EINVAL, "%s says that weights are quantised, "
			     "and %.400s is %s: --cast would round their "
			     "scales, and not the weights (see --dequantize)",
			     by, text, rsh_dtype_name(dtype));
}

int rsh_catalogue_check_cast(const struct rsh_catalogue *c, const char *by,
			     struct rsh_error *err)
{
	const struct rsh_ckpt_index *before = NULL;
	int rc = 0;

	for (uint32_t i = 0; i < c->n_tensors; i++)
		if (c->tensors[i]->quantised)
			return 0;
	for (uint32_t i = 0; rc == 0 && i < c->n_tensors; i++)
		rc = codes_refuse(c, c->tensors[i]->name, c->tensors[i]->dtype,
				  c->tensors[i]->n_dims, by, err);
	for (uint32_t f = 0; rc == 0 && f < c->n_present; f++) {
		const struct rsh_ckpt_index *ix = c->index[c->present[f]];

		for (uint32_t i = 0; rc == 0 && ix != before &&
		     i < ix->n_records; i++)
			rc = codes_refuse(c, ix->records[i].name,
					  ix->records[i].dtype,
					  ix->records[i].n_dims, by, err);
		before = ix;
	}
	return rc;
}

/* ---- options that part them ---- */

/* Writes the name that row i has for the k-th tensor beside codes; "": the row
 * has fewer.  Returns false after the last one, or if the row is of others. */
static bool codes_beside(const char *name, size_t i, size_t k,
			 char text[CODES_TEXT])
{
	const char *end = k < 8 ? codes[i].scales[k] :
			  k < 11 ? codes[i].more[k - 8] : NULL;

	if (k >= 11 || !rsh_has_suffix(name, codes[i].end))
		return false;
	snprintf(text, CODES_TEXT, "%.*s%s",
		 (int)(strlen(name) - strlen(codes[i].end)), name, end ?: "");
	if (!end)
		*text = '\0';
	return true;
}

/* Returns whether these names are those of codes and of what is beside them. */
static bool codes_belong(const char *name, const char *beside)
{
	char text[CODES_TEXT];

	for (size_t i = 0; i < N_CODES; i++)
		for (size_t k = 0; codes_beside(name, i, k, text); k++)
			if (strcmp(text, beside) == 0)
				return true;
	return false;
}

struct parted {
	const struct rsh_catalogue *c;
	const struct rsh_name_filter *filter;
	char *sentence; /* about the first ones; NULL: none was found */
	uint32_t first; /* their name */
	bool others, failed;
};

static const char *parted_name(const struct parted *p, uint32_t name)
{
	return rsh_name_filter_name(p->filter, name) ?:
	       rsh_names_text(p->c->names, name);
}

/* Compares codes with one tensor beside them.  Returns whether they are
 * parted. */
static bool parted_compare(struct parted *p, uint32_t name, uint32_t beside)
{
	const bool left = p->filter->unwanted[beside];
	const char *a = parted_name(p, name), *b = parted_name(p, beside);

	if (!left && codes_belong(a, b))
		return false;
	if (p->sentence) {
		p->others |= name != p->first;
		return true;
	}
	p->first = name;
	p->sentence = left ?
		rsh_text_format("%.400s is quantised, and %.400s, by which its "
				"values are computed, is left out",
				rsh_names_text(p->c->names, name),
				rsh_names_text(p->c->names, beside)) :
		rsh_text_format("%.400s is quantised, and is shown as %.400s, "
				"but %.400s, by which its values are computed, "
				"as %.400s",
				rsh_names_text(p->c->names, name), a,
				rsh_names_text(p->c->names, beside), b);
	p->failed |= !p->sentence;
	return true;
}

static void parted_look(struct parted *p, uint32_t name, uint8_t dtype)
{
	const char *text = rsh_names_text(p->c->names, name);
	char beside[CODES_TEXT];
	bool found = false;

	if (!codes_may_be(dtype) || name >= p->c->n_names ||
	    p->filter->unwanted[name])
		return;
	for (size_t i = 0; i < N_CODES && !found; i++)
		for (size_t k = 0; codes_beside(text, i, k, beside) && !found;
		     k++) {
			const uint32_t other = rsh_names_find(
				p->c->names, beside, strlen(beside));

			found = other < p->c->n_names &&
				codes_has_name(p->c, beside) &&
				parted_compare(p, name, other);
		}
}

int rsh_name_filter_parted(const struct rsh_name_filter *f,
			   const struct rsh_catalogue *c, char **sentence)
{
	struct parted p = { .c = c, .filter = f, .first = RSH_NAME_NONE };
	const struct rsh_ckpt_index *before = NULL;
	const bool any = (f->renamed ||
			  rsh_any(i, c->n_names, f->unwanted[i])) &&
			 rsh_all(i, c->n_tensors, !c->tensors[i]->quantised);

	*sentence = NULL;
	for (uint32_t i = 0; any && i < c->n_tensors; i++)
		parted_look(&p, c->tensors[i]->name, c->tensors[i]->dtype);
	for (uint32_t k = 0; any && k < c->n_present; k++) {
		const struct rsh_ckpt_index *ix = c->index[c->present[k]];

		for (uint32_t i = 0; ix != before && i < ix->n_records; i++)
			parted_look(&p, ix->records[i].name,
				    ix->records[i].dtype);
		before = ix;
	}
	*sentence = !p.sentence ? NULL :
		    rsh_text_format("%s%s", p.sentence, p.others ?
				    "; so are others" : "");
	p.failed |= p.sentence && !*sentence;
	free(p.sentence);
	return p.failed ? -ENOMEM : 0;
}
