/* SPDX-License-Identifier: Apache-2.0 */
/* weights/adapters_find.c finds weights by the names that an adapter has.  PEFT
 * saves the names of modules in memory; the files of vision-language models
 * have those of another release of transformers, which converts them when it
 * loads and saves. */
#include <stdio.h>
#include <string.h>

#include "adapters_i.h"

#define NAME_TEXT ((size_t)8192)

/* How a name may begin in memory, and in files. */
static const struct {
	const char *memory, *files;
} begins[] = {
	{ "model.language_model.", "language_model.model." },
	{ "model.language_model.", "language_model." },
	{ "model.language_model.", "model." },
	{ "language_model.model.", "model.language_model." },
	{ "language_model.", "model.language_model." },
	{ "model.", "model.language_model." },
	{ "model.", "language_model.model." },
	{ "model.", "" },
	{ "", "model." },
	{ "lm_head.", "language_model.lm_head." },
	{ "language_model.lm_head.", "lm_head." },
};

bool adapting_is_tied_head(const struct adapting *w, const char *name)
{
	const size_t n = strlen(name), all = strlen(w->tie.head_name);

	return w->tie.tied && n <= all &&
	       strcmp(w->tie.head_name + all - n, name) == 0 &&
	       (n == all || w->tie.head_name[all - n - 1] == '.');
}

struct rsh_offer *adapting_find(const struct adapting *w, const char *name)
{
	struct rsh_offer *found = NULL;

	if (adapting_is_tied_head(w, name))
		return &w->v[w->tie.embedding - 1];
	if (w->tie.head && strcmp(name, w->tie.head_name) == 0)
		return &w->v[w->tie.head - 1];
	found = adapting_offer(w, name);
	for (size_t i = 0; !found && i < sizeof(begins) / sizeof(begins[0]);
	     i++) {
		const size_t n = strlen(begins[i].memory);
		char text[NAME_TEXT];

		if (strncmp(name, begins[i].memory, n) != 0)
			continue;
		snprintf(text, sizeof(text), "%s%s", begins[i].files, name + n);
		found = w->tie.head && strcmp(text, w->tie.head_name) == 0 ?
			&w->v[w->tie.head - 1] : adapting_offer(w, text);
	}
	return found;
}
