/* SPDX-License-Identifier: Apache-2.0 */
/* formats/versions/index.c parses the index of a version:
 *
 *   {"metadata": {"version": "000002", "base_version": "000001",
 *                 "delta_encoding": "xor", "compression_format": "zstd",
 *                 "checksum_format": "xxh3-128"},
 *    "weight_map": {"model.norm.weight": "model-00000-of-00002.safetensors"}}
 *
 * A full version has the index of any model. */
#include "config.h"

#include "versions_i.h"

#include <errno.h>
#include <string.h>

#include <jansson.h>

#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/wire/file_type.h"
#include "rsh/wire/json_load.h"

#define PREFIX "weight_v"
#define DIGITS_MIN 6

const char *const rsh_delta_forms[] = { "xor", "overwrite", NULL };
const char *const rsh_sum_forms[] = { "xxh3-128", "blake3", "adler32", NULL };
static const char *const compressions[] = { "zstd", NULL };

bool rsh_version_read(const char *name, uint64_t *version)
{
	const size_t k = strlen(PREFIX);
	const size_t n = strlen(name);

	return n >= k + DIGITS_MIN &&
	       rsh_number_after(PREFIX, name, n, version) && *version > 0;
}

struct parsing {
	const json_t *metadata;
	const char *path, *label;
	struct rsh_version_index *out;
	struct rsh_error *err;
};

/* Finds the word of a key in a list that NULL ends. */
static int find_word(const struct parsing *p, const char *key,
		     const char *const *list, unsigned *out)
{
	const char *word =
		json_string_value(json_object_get(p->metadata, key)) ?: "";
	char known[64] = "";
	size_t at = 0;

	for (*out = 0; list[*out]; ++*out) {
		if (strcmp(word, list[*out]) == 0)
			return 0;
		rsh_text_add(known, sizeof(known), &at, "%s%s",
			     *out ? ", " : "", list[*out]);
	}
	return rsh_error_set(p->err, ENOTSUP, "%s: %s \"%s\" is not known "
			     "(%s)", p->label, key, word, known);
}

static int find_number(const struct parsing *p, const char *key, uint64_t *out)
{
	const json_t *v = json_object_get(p->metadata, key);
	const char *text = json_string_value(v);

	if (text && rsh_number_read(text, strlen(text), out))
		return 0;
	if (json_is_integer(v) && json_integer_value(v) >= 0) {
		*out = (uint64_t)json_integer_value(v);
		return 0;
	}
	return rsh_error_set(p->err, EBADMSG, "%s: \"%s\" is not a number",
			     p->path, key);
}

RSH_ORDER(by_name, struct rsh_changed_name, strcmp(x->name, y->name))

static int take_names(const struct parsing *p, json_t *map)
{
	struct rsh_version_index *v = p->out;
	const size_t n = json_object_size(map);
	const char *name;
	json_t *value;

	v->names = rsh_arena_array(&v->arena, struct rsh_changed_name, n);
	v->file_names = rsh_names_new();
	if ((n > 0 && !v->names) || !v->file_names)
		return rsh_error_nomem(p->err);
	json_object_foreach(map, name, value) {
		const char *file = json_string_value(value);
		struct rsh_changed_name *to = &v->names[v->n_names++];

		if (!file || strchr(file, '/') ||
		    rsh_file_type_of(file) != RSH_FILE_SAFETENSORS)
			return rsh_error_set(p->err, EBADMSG, "%s: the file of "
					     "\"%s\" is not the name of a "
					     ".safetensors file beside it",
					     p->path, name);
		to->name = rsh_arena_strdup(&v->arena, name);
		to->file = rsh_names_add(v->file_names, file, strlen(file));
		if (!to->name || to->file == RSH_NAME_NONE)
			return rsh_error_nomem(p->err);
	}
	v->n_files = rsh_names_count(v->file_names);
	rsh_sort(v->names, n, by_name);
	return 0;
}

int rsh_version_index_parse(const void *data, size_t len, const char *path,
			    const char *label, struct rsh_version_index *out,
			    struct rsh_error *err)
{
	cleanup_json json_t *root = NULL;
	struct parsing p = { .path = path, .label = label, .out = out,
			     .err = err };
	unsigned form = 0, sum = 0, compression;
	json_t *map;
	int rc;

	*out = (struct rsh_version_index){ .is_delta = false };
	rc = rsh_json_load(&(struct rsh_memory){ data, len },
			   JSON_REJECT_DUPLICATES, path, "a map of weights",
			   &root, err);
	if (rc)
		return rc;
	p.metadata = json_object_get(root, "metadata");
	if (!json_object_get(p.metadata, "delta_encoding"))
		return 0;
	out->is_delta = true;
	map = json_object_get(root, "weight_map");
	if (!json_is_object(map))
		return rsh_error_set(err, EBADMSG, "%s: \"weight_map\" is not "
				     "an object", path);
	rc = find_word(&p, "delta_encoding", rsh_delta_forms, &form) ?:
	     find_word(&p, "compression_format", compressions, &compression) ?:
	     find_word(&p, "checksum_format", rsh_sum_forms, &sum) ?:
	     find_number(&p, "version", &out->version) ?:
	     find_number(&p, "base_version", &out->base) ?:
	     take_names(&p, map);
	out->form = (enum rsh_delta_form)form;
	out->sum = (enum rsh_sum_form)sum;
	return rc;
}

void rsh_version_index_clear(struct rsh_version_index *v)
{
	rsh_names_free(v->file_names);
	v->file_names = NULL;
	rsh_arena_clear(&v->arena);
}
