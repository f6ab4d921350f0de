/* SPDX-License-Identifier: Apache-2.0 */
/* weights/wrapped.c removes the words of wrappers from names of weights. */
#include "rsh/weights/wrapped.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/plan/param_kind.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

static const char of_model[] = "module.";
static const char of_state[] = "model.";
static const char of_lightning[] = "state_dict.";

bool rsh_name_is_keyed(const char *name)
{
	return rsh_begins_any(name, "model.model.", "model.lm_head.",
			      "model.module.", "model._forward_module.");
}

/* Returns the length of the wrapper's word at s; 0 if there is none.  No model
 * has a module of such a name. */
static size_t wrapper_at(const char *s)
{
	static const char *const words[] = {
		"_orig_mod.", "_fsdp_wrapped_module.",
		"_checkpoint_wrapped_module.",
	};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strncmp(s, words[i], strlen(words[i])) == 0)
			return strlen(words[i]);
	return 0;
}

/* Writes the name without wrappers, except "module.", to a text of the same
 * size. */
static void strip(const char *name, char *to)
{
	while (*name) {
		const size_t n = wrapper_at(name);
		const size_t part = strcspn(name, ".");

		if (n > 0) {
			name += n;
			continue;
		}
		memcpy(to, name, part);
		to += part;
		name += part;
		if (*name == '.')
			*to++ = *name++;
	}
	*to = '\0';
}

bool rsh_name_is_wrapped(const char *name)
{
	if (strncmp(name, of_model, strlen(of_model)) == 0)
		return true;
	for (; name; name = strchr(name, '.')) {
		name += *name == '.';
		if (wrapper_at(name))
			return true;
	}
	return false;
}

static int unwrap_texts(const struct rsh_offers *in, struct rsh_arena *arena,
			char **texts)
{
	for (uint32_t i = 0; i < in->n; i++) {
		const char *name = rsh_names_text(in->cat->names,
						  in->v[i].name);

		texts[i] = rsh_arena_alloc(arena, strlen(name) + 1, 1);
		if (!texts[i])
			return -ENOMEM;
		strip(name, texts[i]);
	}
	return 0;
}

static bool is_beside(const char *name, bool keyed)
{
	return rsh_is_flattened_state(name) || rsh_is_job_state(name, keyed);
}

/* Removes a word if all names begin with it, and have more, but those of the
 * optimizer and the job beside the model.  Returns whether it did. */
static bool unwrap_word(char **texts, uint32_t n, const char *word, bool keyed)
{
	const size_t length = strlen(word);
	bool all = true, any = false;

	for (uint32_t i = 0; i < n && all; i++) {
		const bool state = is_beside(texts[i], keyed);

		all = state || (strncmp(texts[i], word, length) == 0 &&
				texts[i][length]);
		any |= !state;
	}
	for (uint32_t i = 0; i < n && all; i++)
		if (!is_beside(texts[i], keyed))
			texts[i] += length;
	return all && any;
}

/* Removes the key of a model in a training state, then the words of wrappers,
 * which may be in each other. */
static void unwrap_keys(char **texts, uint32_t n, const char *key)
{
	bool keyed = key && strcmp(key, "state_dict") == 0;
	bool modelled = false;

	if (key && unwrap_word(texts, n, key, keyed))
		unwrap_word(texts, n, ".", keyed);
	keyed |= unwrap_word(texts, n, of_lightning, true);
	unwrap_word(texts, n, "model_state_dict.", keyed);
	for (uint32_t i = 0; i < n && !modelled; i++)
		modelled = rsh_name_is_keyed(texts[i]);
	if (modelled)
		unwrap_word(texts, n, of_state, keyed);
	while (unwrap_word(texts, n, of_model, keyed) ||
	       unwrap_word(texts, n, "_forward_module.", keyed))
		;
}

RSH_ORDER(by_name, struct rsh_offer *const,
	  rsh_compare_u64((*x)->name, (*y)->name) ?: (*x > *y) - (*x < *y))

/* Refuses two tensors that would have one name. */
static int unwrap_check(const struct rsh_offers *io, const struct rsh_offer *v,
			struct rsh_arena *arena, struct rsh_error *err)
{
	const struct rsh_offer **all =
		rsh_arena_array(arena, const struct rsh_offer *, io->n);
	const struct rsh_names *names = io->cat->names;

	if (!all)
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < io->n; i++)
		all[i] = &v[i];
	rsh_sort(all, io->n, by_name);
	for (uint32_t i = 1; i < io->n; i++)
		if (all[i]->name == all[i - 1]->name)
			return rsh_error_set(err, EINVAL, "%s and %s would "
					     "both be %s without the words of "
					     "wrappers",
					     rsh_names_text(names, io->v[
						all[i - 1] - v].name),
					     rsh_names_text(names, io->v[
						all[i] - v].name),
					     rsh_names_text(names,
							    all[i]->name));
	return 0;
}

int rsh_weights_unwrap(struct rsh_offers *io, const char *key,
		       struct rsh_arena *arena, uint32_t *n,
		       struct rsh_error *err)
{
	struct rsh_offer *v = rsh_arena_array(arena, struct rsh_offer, io->n);
	char **texts = rsh_arena_array(arena, char *, io->n);

	*n = 0;
	if (!v || !texts || unwrap_texts(io, arena, texts))
		return rsh_error_nomem(err);
	unwrap_keys(texts, io->n, key);
	for (uint32_t i = 0; i < io->n; i++) {
		v[i] = io->v[i];
		v[i].name = rsh_names_add(io->cat->names, texts[i],
					  strlen(texts[i]));
		if (v[i].name == RSH_NAME_NONE)
			return rsh_error_nomem(err);
		*n += v[i].name != io->v[i].name;
	}
	rsh_catalogue_update_names(io->cat);
	if (*n == 0)
		return 0;
	if (unwrap_check(io, v, arena, err))
		return -err->code;
	io->v = v;
	return 0;
}
