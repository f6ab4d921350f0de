/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/resumed.c plans what --resume shows: files as they are, of whose
 * insides nothing is known. */
#include "config.h"

#include "resumed_i.h"

#include "rsh/plan/blueprint.h"

int rsh_resume_plan(const struct rsh_resume *r, struct rsh_plan **out,
		    struct rsh_error *err)
{
	const struct rsh_plan_ops writer = { .ctx = NULL };
	struct rsh_source_view view;
	struct rsh_catalogue *c;
	size_t n;
	const struct rsh_resume_entry *e = rsh_resume_entries(r, &n);
	const struct rsh_blueprint b = { .n_ranks = (uint32_t)n };
	struct rsh_plan *p;
	int rc = 0;

	rsh_source_view(rsh_resume_source(r), NULL, &view);
	c = rsh_catalogue_new(&view);
	p = c ? rsh_blueprint_new(c, &writer, &b) : NULL;
	if (!p)
		return rsh_error_nomem(err);
	for (size_t i = 0; i < n && rc == 0; i++) {
		const struct rsh_shown_file f = { .rank = (uint32_t)i };

		rc = rsh_blueprint_add_whole(p, &f, e[i].file,
					     e[i].kind == RSH_RESUME_FILE ?
					     e[i].size : 0, err);
	}
	if (rc == 0)
		rc = rsh_blueprint_finish(p, NULL, NULL, err);
	if (rc) {
		rsh_plan_free(p);
		return rc;
	}
	*out = p;
	return 0;
}
