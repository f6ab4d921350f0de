/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/infer_json.c prints what was inferred as JSON. */
#include "config.h"

#include "infer.h"

#include <errno.h>

#include "ls.h"

static json_t *numbers_json(const uint32_t *numbers, uint32_t n)
{
	json_t *all = json_array();

	for (uint32_t i = 0; i < n; i++)
		json_array_append_new(all, json_integer(numbers[i]));
	return all;
}

static json_t *group_json(const struct rsh_infer_tensor *t, uint32_t first)
{
	json_t *group = json_array();

	for (uint32_t i = first; i < t->n; i++)
		if (t->group[i] == t->group[first])
			json_array_append_new(group,
					      json_integer(t->ranks[i]));
	return group;
}

static json_t *groups_json(const struct rsh_infer_tensor *t)
{
	json_t *groups = json_array();

	for (uint32_t i = 0; i < t->n; i++) {
		uint32_t k = 0;

		while (t->group[k] != t->group[i])
			k++;
		if (k == i)
			json_array_append_new(groups, group_json(t, i));
	}
	return groups;
}

static json_t *mesh_json(const struct rsh_infer_mesh *m)
{
	json_t *mesh = json_array(), *cut = json_array();

	for (unsigned i = 0; i < m->n_axes; i++) {
		json_array_append_new(mesh, json_integer(m->axes[i].size));
		if (m->axes[i].cuts)
			json_array_append_new(cut, json_integer(i));
	}
	return json_pack("{s:o,s:o}", "mesh", mesh, "cut", cut);
}

static json_t *tensor_json(const struct rsh_infer *x,
			   const struct rsh_infer_tensor *t)
{
	static const char *const verdicts[RSH_N_VERDICTS] = {
		[RSH_VERDICT_ALONE] = "alone",
		[RSH_VERDICT_UNREAD] = "unreadable",
		[RSH_VERDICT_SCATTERED] = "scattered",
		[RSH_VERDICT_SIMPLE] = "constant",
		[RSH_VERDICT_MESH] = "mesh",
		[RSH_VERDICT_SEVERAL] = "several",
		[RSH_VERDICT_NONE] = "none",
		[RSH_VERDICT_PRIVATE] = "private",
	};

	return json_pack("{s:o,s:s,s:o,s:o,s:i,s:o,s:o,s:s,s:o,s:b}", "name",
			 rsh_json_text(rsh_names_text(x->names, t->name)),
			 "dtype",
			 rsh_dtype_name((enum rsh_dtype)t->record->dtype),
			 "shape",
			 rsh_ls_shape_json(rsh_record_dims(t->index, t->record),
					   t->record->n_dims),
			 "bytes", rsh_json_u64(t->record->content_bytes),
			 "set", (int)t->set, "compared",
			 numbers_json(t->ranks, t->n), "groups",
			 groups_json(t), "verdict", verdicts[t->verdict],
			 "layout", t->verdict == RSH_VERDICT_MESH ?
			 mesh_json(&t->mesh) : json_null(), "fits", t->fits);
}

static json_t *set_json(const struct rsh_infer_set *s)
{
	return json_pack("{s:o,s:i,s:i,s:i,s:o,s:i}", "ranks",
			 numbers_json(s->ranks, s->n), "first", (int)s->first,
			 "span", (int)s->span, "tensors",
			 (int)s->n_tensors, "layout",
			 s->by_verdict[RSH_VERDICT_MESH] ?
			 mesh_json(&s->mesh) : json_null(), "explained",
			 (int)s->n_fit);
}

static json_t *sentences_json(const struct rsh_infer *x, size_t from,
			      size_t end)
{
	json_t *all = json_array();

	for (size_t i = from; i < end; i++)
		json_array_append_new(all, rsh_json_text(x->sentences[i]));
	return all;
}

int rsh_infer_json(const struct rsh_printer *out, const struct rsh_infer *x)
{
	json_t *tensors = json_array(), *sets = json_array();

	for (size_t i = 0; i < x->n_tensors; i++)
		json_array_append_new(tensors, tensor_json(x, &x->tensors[i]));
	for (size_t i = 0; i < x->n_sets; i++)
		json_array_append_new(sets, set_json(&x->sets[i]));
	return rsh_printer_json(
		out, json_pack("{s:o,s:o,s:o,s:o,s:o,s:o}", "source",
			       rsh_json_text(x->options->vfs.source), "step",
			       rsh_json_text(x->step), "parameters", tensors,
			       "sets", sets, "hints",
			       sentences_json(x, 0, x->n_hints), "unknown",
			       sentences_json(x, x->n_hints, x->n_sentences)));
}
