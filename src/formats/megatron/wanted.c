/* SPDX-License-Identifier: Apache-2.0 */
/* formats/megatron/wanted.c reads the mesh for which a tree is shown. */
#include "config.h"

#include "output_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "rsh/strategy/mesh.h"
#include "rsh/util/checked.h"
#include "rsh/util/text.h"

/* A tree of more files has a mistake in its mesh. */
#define FILES_MAX 65536

/* Megatron has no other axes.  Data and context parallel ranks have the same
 * weights. */
static int check_axes(const struct rsh_mesh *m, struct rsh_error *err)
{
	for (uint32_t i = 0; i < m->n; i++) {
		const char *name = m->axes[i].name;

		if (rsh_begins_any(name, "dual", "noop"))
			return rsh_error_set(err, EINVAL, "--dst-mesh: "
					     "--format megatron writes no "
					     "dualpipev and no noop layers of "
					     "MindSpeed-LLM (%s): its converter "
					     "makes them of the model without "
					     "--format", name);
		if (!rsh_is_any(name, "mp", "pp", "ep", "etp", "vp", "dp",
				"cp"))
			return rsh_error_set(err, EINVAL, "--dst-mesh: "
					     "--format megatron has no axis "
					     "%s, but tp, pp, ep, etp, vp, dp "
					     "and cp", name);
	}
	return 0;
}

static int read_step(const char *name, struct rsh_megatron_wanted *out,
		     struct rsh_error *err)
{
	char exact[40];

	out->step = name;
	if (strcmp(name, RSH_MEGATRON_RELEASE) == 0)
		return 0;
	if (!rsh_megatron_step_read(name, strlen(name), &out->iteration) ||
	    out->iteration > INT64_MAX)
		return rsh_error_set(err, EINVAL, "--prefix: \"%s\" is not "
				     "the name of a step of Megatron-LM, such "
				     "as release or iter_0000100", name);
	snprintf(exact, sizeof(exact), RSH_MEGATRON_ITERATION "%07" PRIu64,
		 out->iteration);
	return strcmp(name, exact) == 0 ? 0 :
	       rsh_error_set(err, EINVAL, "--prefix: Megatron-LM calls this "
			     "step %s", exact);
}

/* Reads a list of n numbers.  `ends`, which may be NULL, becomes their sums. */
static int read_layers(const char *list, uint32_t n, uint32_t *ends,
		       struct rsh_error *err)
{
	const char *at = list;
	uint64_t all = 0, size;

	for (uint32_t i = 0; i < n; i++) {
		const size_t digits = rsh_count_digits(at, strlen(at));

		if (!rsh_digits_read(at, digits, INT32_MAX, &size) ||
		    at[digits] != (i + 1 < n ? ',' : '\0'))
			return rsh_error_set(err, EINVAL, "--pipeline-layers: "
					     "\"%s\" is not a list of %u "
					     "numbers, one for each chunk of "
					     "the model (pp times vp)", list,
					     n);
		at += digits + 1;
		all += size;
		if (ends)
			ends[i] = (uint32_t)rsh_min_u64(all, UINT32_MAX);
	}
	return 0;
}

/* ---- the mesh ---- */

int rsh_megatron_wanted_read(const struct rsh_output_mesh *mesh,
			     struct rsh_megatron_wanted *out,
			     struct rsh_error *err)
{
	struct rsh_mesh m = { .n = 0 };
	uint64_t ranks;
	int rc = mesh->axes ? rsh_mesh_parse(mesh->axes, &m, err) : 0;

	rc = rc ?: check_axes(&m, err);
	if (rc)
		return rc;
	*out = (struct rsh_megatron_wanted){
		.tensor = rsh_mesh_size(&m, "mp"),
		.pipeline = rsh_mesh_size(&m, "pp"),
		.expert = rsh_mesh_size(&m, "ep"),
		.n_chunks = rsh_mesh_size(&m, "vp"),
		.layers = mesh->layers,
	};
	out->expert_tensor = rsh_mesh_has(&m, "etp") ?
			     rsh_mesh_size(&m, "etp") : out->tensor;
	if (out->tensor % out->expert_tensor != 0)
		return rsh_error_set(err, EINVAL, "--dst-mesh: etp=%u does not "
				     "divide tp=%u: files of ranks with these "
				     "sizes overwrite each other",
				     out->expert_tensor, out->tensor);
	if (out->n_chunks > 1 && out->pipeline == 1)
		return rsh_error_set(err, EINVAL, "--dst-mesh: vp=%u needs pp: "
				     "a stage alone has no virtual stages",
				     out->n_chunks);
	/* The least common multiple of it and the tensor ranks. */
	ranks = (uint64_t)out->expert_tensor * out->expert;
	if (ranks <= FILES_MAX)
		ranks *= out->tensor / rsh_gcd(out->tensor, ranks);
	if (ranks * out->pipeline > FILES_MAX ||
	    (uint64_t)out->pipeline * out->n_chunks > FILES_MAX)
		return rsh_error_set(err, EINVAL, "--dst-mesh: \"%s\" has more "
				     "than %d files or chunks", mesh->axes,
				     FILES_MAX);
	out->n_ranks = (uint32_t)ranks;
	rc = read_step(mesh->step, out, err);
	return rc || !mesh->layers ? rc :
	       read_layers(mesh->layers, out->pipeline * out->n_chunks, NULL,
			   err);
}

/* ---- layers ---- */

int rsh_megatron_wanted_divide(const struct rsh_megatron_wanted *w,
			       uint32_t n_layers, uint32_t *ends,
			       struct rsh_error *err)
{
	const uint32_t n = w->pipeline * w->n_chunks;
	int rc = w->layers ? read_layers(w->layers, n, ends, err) : 0;

	if (w->layers)
		return rc || ends[n - 1] == n_layers ? rc :
		       rsh_error_set(err, EINVAL, "--pipeline-layers: \"%s\" "
				     "has %u layers, and the model has %u",
				     w->layers, ends[n - 1], n_layers);
	if (n_layers % n != 0 || (n_layers == 0 && n > 1))
		return rsh_error_set(err, EINVAL, "the model has %u layers, "
				     "which cannot be divided equally over %u "
				     "chunks (pp=%u, vp=%u): --pipeline-layers "
				     "says how many each has", n_layers, n,
				     w->pipeline, w->n_chunks);
	for (uint32_t i = 0; i < n; i++)
		ends[i] = n_layers / n * (i + 1);
	return 0;
}
