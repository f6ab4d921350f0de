/* SPDX-License-Identifier: Apache-2.0 */
/* weights/adapters_lacks.c finds what an adapter_config.json says and the
 * adapter's file does not have.  PEFT refuses a file without a module of
 * "modules_to_save", and warns of missing matrices. */
#include <errno.h>
#include <string.h>

#include "adapters_i.h"
#include "rsh/util/mem.h"

/* A weight of the model whose module the config targets. */
struct targeted {
	const char *module;
	const char *target; /* of the config */
	bool changed;
};

/* Compares two names, in which all numbers are equal. */
static int names_order(const char *a, const char *b)
{
	static const char digits[] = "0123456789";

	for (; *a && *b; a++, b++) {
		const size_t x = strspn(a, digits), y = strspn(b, digits);

		if (x && y) {
			a += x - 1;
			b += y - 1;
		} else if (*a != *b) {
			break;
		}
	}
	return (unsigned char)*a - (unsigned char)*b;
}

RSH_ORDER(targeted_order, struct targeted,
	  strcmp(x->target, y->target) ?: names_order(x->module, y->module) ?:
	  y->changed - x->changed)

static bool is_changed(const struct adapting *w, uint32_t i)
{
	const struct adapters_change *c = &w->changes[i];

	return c->added_by == w->a + 1 || c->replaced_by == w->a + 1;
}

static bool is_tied(const struct adapting *w, uint32_t i)
{
	return w->tie.tied &&
	       (i + 1 == w->tie.embedding || i + 1 == w->tie.head);
}

/* Checks that a weight of each module that the config saves is replaced, if the
 * model has one.  A module of that name that PEFT's model does not have, as in
 * layers that predict more tokens, may be as it was. */
static int lacks_saved(const struct adapting *w, const char *const *modules,
		       uint32_t n)
{
	const struct rsh_adapter_config *config = w->adapters[w->a].config;
	const char *saved;

	for (size_t k = 0; (saved = rsh_adapter_config_saved(config, k)); k++) {
		const char *first = NULL;
		bool any = false;

		for (uint32_t i = 0; i < n && !any; i++) {
			if (!modules[i] || is_tied(w, i) ||
			    !rsh_adapter_name_ends(modules[i], saved))
				continue;
			first = first ? first : modules[i];
			any = w->changes[i].replaced_by == w->a + 1;
		}
		if (first && !any)
			return rsh_error_set(w->err, EINVAL, "%s: it has no "
				"weight for %.400s, which \"modules_to_save\" "
				"of its config has",
				rsh_catalogue_path(w->cat,
						   w->adapters[w->a].file),
				first);
	}
	return 0;
}

/* Finds the first module that has no matrices, though its target has none at
 * all or a module that differs only in numbers has some.  Returns how many
 * there are. */
static uint32_t lacks_matrices(const struct targeted *v, uint32_t n,
			       const char **first)
{
	uint32_t lacking = 0;

	for (uint32_t from = 0, to; from < n; from = to) {
		bool any = false;

		for (to = from; to < n &&
		     strcmp(v[to].target, v[from].target) == 0; to++)
			any |= v[to].changed;
		for (uint32_t i = from, k = from; i < to; i++) {
			/* v[k] is the first one of those that are alike */
			if (names_order(v[k].module, v[i].module) != 0)
				k = i;
			if (v[i].changed || (any && !v[k].changed))
				continue;
			if (lacking++ == 0)
				*first = v[i].module;
		}
	}
	return lacking;
}

int adapters_find_lacks(struct adapting *w)
{
	const struct rsh_adapter_config *config = w->adapters[w->a].config;
	cleanup_arena struct rsh_arena scratch = { 0 };
	const char **modules = rsh_arena_array(&scratch, const char *,
					       w->n + (size_t)1);
	struct targeted *v = rsh_arena_array(&scratch, struct targeted,
					     w->n + (size_t)1);
	struct rsh_adapted *done = &w->done[w->a];
	uint32_t n = 0;
	int rc;

	for (uint32_t i = 0; modules && v && i < w->n; i++) {
		const char *name = rsh_names_text(w->cat->names, w->v[i].name);
		const char *target;

		if (!rsh_has_suffix(name, ".weight"))
			continue;
		modules[i] = rsh_arena_strndup(&scratch, name, strlen(name) -
					       strlen(".weight"));
		if (!modules[i])
			break;
		target = rsh_adapter_config_target(config, modules[i]);
		if (target && w->v[i].n_dims == 2 && !is_tied(w, i))
			v[n++] = (struct targeted){
				.module = modules[i], .target = target,
				.changed = is_changed(w, i),
			};
	}
	rc = !modules || !v || scratch.failed ? rsh_error_nomem(w->err) :
	     lacks_saved(w, modules, w->n);
	if (rc == 0 && n > 0) {
		rsh_sort(v, n, targeted_order);
		done->n_lacking = lacks_matrices(v, n, &done->lacking);
	}
	if (done->n_lacking > 0) {
		done->lacking = rsh_arena_strndup(w->arena, done->lacking,
						  strlen(done->lacking));
		rc = done->lacking ? rc : rsh_error_nomem(w->err);
	}
	return rc;
}
