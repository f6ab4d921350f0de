/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/states.c finds the parameters of a source that belong to an optimizer,
 * and so are not part of a model: states, gradients, steps and rates. */
#include "config.h"

#include "vfs_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "rsh/plan/blueprint.h"
#include "rsh/plan/param_kind.h"
#include "rsh/source/format.h"
#include "rsh/util/mem.h"

struct states {
	uint32_t n;
	uint64_t bytes;
	const char *example;
};

bool rsh_vfs_is_state(const char *name)
{
	return rsh_kind_of(name) != RSH_KIND_WEIGHT ||
	       rsh_is_flattened_state(name);
}

static void states_of_tensor(void *ctx, const char *name, uint64_t bytes)
{
	struct states *s = ctx;

	if (!rsh_vfs_is_state(name))
		return;
	s->bytes += bytes;
	if (s->n++ == 0)
		s->example = name;
}

/* The files of neighbouring ranks mostly share an index, so the result of the
 * last index is used again. */
static int states_of_ranks(const struct rsh_source_view *view,
			   struct states *s)
{
	cleanup_free bool *seen =
		calloc((size_t)rsh_names_count(view->names) + 1, sizeof(*seen));
	const struct rsh_ckpt_index *before = NULL;
	uint64_t bytes = 0;

	if (!seen)
		return -ENOMEM;
	for (uint32_t rank = 0; rank < view->n_ranks; rank++) {
		const struct rsh_ckpt_index *ix = view->index[rank];

		if (!ix)
			continue;
		if (ix != before)
			bytes = 0;
		for (uint32_t i = 0; ix != before && i < ix->n_records; i++) {
			const struct rsh_record *r = &ix->records[i];
			const char *name = rsh_names_text(view->names, r->name);

			if (!rsh_vfs_is_state(name))
				continue;
			bytes += r->content_bytes;
			if (!seen[r->name] && s->n++ == 0)
				s->example = name;
			seen[r->name] = true;
		}
		s->bytes += bytes;
		before = ix;
	}
	return 0;
}

int rsh_vfs_note_states(struct rsh_reshard *v)
{
	const struct rsh_format *f = rsh_source_format(v->source);
	struct rsh_source_view view;
	struct states s = { 0 };
	char size[32], *text;
	int rc = 0;

	rsh_source_view(v->source, v->names, &view);
	if (f->each)
		f->each(v->source, states_of_tensor, &s);
	else
		rc = states_of_ranks(&view, &s);
	if (rc || s.n == 0)
		return rc;
	if (s.bytes < 1000000)
		snprintf(size, sizeof(size), "%" PRIu64 " bytes", s.bytes);
	else
		snprintf(size, sizeof(size), "%.1f MB",
			 (double)s.bytes / 1e6);
	rc = asprintf(&text, "%u tensor%s of an optimizer, %s in the source, "
		      "%s left out, such as %s (--optimizer keep shows %s)",
		      s.n, s.n > 1 ? "s" : "", size, s.n > 1 ? "are" : "is",
		      s.example, s.n > 1 ? "them" : "it");
	return rsh_blueprint_note(v->plan, rc < 0 ? NULL : text);
}
