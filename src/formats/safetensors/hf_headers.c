/* SPDX-License-Identifier: Apache-2.0 */
/* formats/safetensors/hf_headers.c keeps what the headers of a model's files
 * say beside their tensors, in "__metadata__".  Programs need it: torchao makes
 * its tensors by it, and MLX writes {"format": "mlx"}.
 *
 * Tensors may be in other files than before, so each file gets all of it.  It
 * may have the names, the types and the number of tensors in it, so nothing is
 * kept if these change. */
#include "config.h"

#include "hf_headers_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "rsh/plan/framing.h"
#include "rsh/source/format.h"
#include "rsh/source/inspect.h"
#include "rsh/util/log.h"

#define FORMAT "format"
#define FORMAT_USUAL "pt"
/* The headers of all files stay in memory. */
#define ALL_MAX (UINT64_C(64) << 20)
#define KEYS_SAID 3

struct headers {
	json_t *kept; /* all metadata, without the format */
	json_t *left; /* the keys that are left out */
	char *format; /* NULL: no file was seen */
	uint64_t bytes; /* of all files */
	bool differ, too_long;
};

static int headers_leave(struct headers *h, const char *key)
{
	return json_object_set_new(h->left, key, json_null()) ? -ENOMEM : 0;
}

static int headers_add_format(struct headers *h, const char *format)
{
	if (!h->format) {
		h->format = strdup(format);
		return h->format ? 0 : -ENOMEM;
	}
	if (strcmp(h->format, format) == 0)
		return 0;
	h->differ = true;
	return headers_leave(h, FORMAT);
}

static int headers_add(struct headers *h, const char *text)
{
	json_t *all = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	const char *key;
	json_t *value, *has;
	int rc = all ? 0 : -ENOMEM;

	json_object_foreach(all, key, value) {
		if (strcmp(key, FORMAT) == 0 && json_is_string(value))
			continue;
		has = json_object_get(h->kept, key);
		if (has && !json_equal(has, value))
			h->differ = true;
		else if (!json_is_string(value))
			h->too_long = true;
		else {
			rc = rc ?: json_object_set(h->kept, key, value) ?
				-ENOMEM : 0;
			continue;
		}
		rc = rc ?: headers_leave(h, key);
	}
	value = json_object_get(all, FORMAT);
	rc = rc ?: headers_add_format(h, json_string_value(value) ?:
				      FORMAT_USUAL);
	json_decref(all);
	return rc;
}

static int headers_collect(struct headers *h, const struct rsh_source *s)
{
	const char *before = NULL;
	int rc = 0;

	for (uint32_t i = 0; i < rsh_source_n_files(s) && rc == 0; i++) {
		const struct rsh_ckpt_index *ix = rsh_source_file_index(s, i);

		if (!ix)
			continue;
		h->bytes += ix->file_bytes;
		if (!ix->metadata)
			rc = headers_add_format(h, FORMAT_USUAL);
		else if (!before || strcmp(before, ix->metadata) != 0)
			rc = headers_add(h, ix->metadata);
		before = ix->metadata;
	}
	return rc;
}

/* ---- what is left out ---- */

static int headers_leave_all(struct headers *h)
{
	const char *key;
	json_t *value;
	int rc = 0;

	json_object_foreach(h->kept, key, value)
		rc = rc ?: headers_leave(h, key);
	return rc ?: h->format && strcmp(h->format, FORMAT_USUAL) != 0 ?
		     headers_leave(h, FORMAT) : 0;
}

/* The loaders of Hugging Face accept no other format. */
static bool headers_format_is_known(const struct headers *h)
{
	return strcmp(h->format, "pt") == 0 || strcmp(h->format, "mlx") == 0 ||
	       strcmp(h->format, "tf") == 0 || strcmp(h->format, "flax") == 0;
}

static uint64_t headers_length(const struct headers *h)
{
	uint64_t n = 0;
	const char *key;
	json_t *value;

	json_object_foreach(h->kept, key, value)
		n += strlen(key) + json_string_length(value);
	return n;
}

/* Two parts that follow each other have more than the limit together. */
static uint64_t headers_n_files(const struct headers *h, uint64_t part_bytes)
{
	return part_bytes ? h->bytes / part_bytes * 2 + 1 : 1;
}

static void headers_warn(const struct headers *h, const struct rsh_source *s,
			 bool as_saved)
{
	const size_t n = json_object_size(h->left);
	char keys[KEYS_SAID * 80] = "", more[32] = "";
	size_t said = 0, at = 0;
	const char *key;
	json_t *value;

	json_object_foreach(h->left, key, value)
		if (said < KEYS_SAID)
			at += (size_t)snprintf(keys + at, sizeof(keys) - at,
					       "%s\"%.60s\"",
					       said++ ? ", " : "", key);
	if (n > said)
		snprintf(more, sizeof(more), " and %zu more", n - said);
	if (n)
		rsh_log_warning("%s: the headers of its files have metadata "
				"that are left out, %s%s: %s",
				rsh_source_path(s), keys, more, !as_saved ?
				"they may not fit other names or tensors" :
				h->differ ? "its files differ in them" :
				h->too_long ? "they are too long" :
				"Hugging Face's loaders refuse such files");
}

/* ---- the form ---- */

static struct rsh_hf_form *headers_form(const struct headers *h,
					const char *format)
{
	const size_t n = json_object_size(h->kept) + 1;
	const size_t texts = headers_length(h) + n * 2 + sizeof(FORMAT) +
			     strlen(format);
	struct rsh_hf_form *f = malloc(sizeof(*f) + n * sizeof(*f->entries) +
				       texts);
	char *at = f ? (char *)&f->entries[n] : NULL;
	const char *key;
	json_t *value;

	if (!f)
		return NULL;
	f->n = 1;
	f->entries[0].key = FORMAT;
	f->entries[0].value = at;
	at = stpcpy(at, format) + 1;
	json_object_foreach(h->kept, key, value) {
		struct rsh_safetensors_entry *e = &f->entries[f->n++];

		e->key = at;
		at = stpcpy(at, key) + 1;
		e->value = at;
		at = stpcpy(at, json_string_value(value)) + 1;
	}
	return f;
}

static int headers_decide(struct headers *h, bool as_saved, uint64_t n_files,
			  const char **format)
{
	const bool long_ = headers_length(h) > RSH_INDEX_METADATA_MAX ||
			   headers_length(h) * n_files > ALL_MAX;
	const char *key;
	json_t *value;
	int rc = 0;

	*format = FORMAT_USUAL;
	if (!as_saved || long_) {
		h->too_long |= long_;
		rc = headers_leave_all(h);
	} else if (!h->format || !headers_format_is_known(h)) {
		rc = h->format ? headers_leave(h, FORMAT) : 0;
	} else if (!json_object_get(h->left, FORMAT)) {
		*format = h->format;
	}
	json_object_foreach(h->left, key, value)
		json_object_del(h->kept, key);
	return rc;
}

int rsh_hf_take_headers(const struct rsh_source *s, bool as_saved,
			const struct rsh_plan_options *opts, void **form)
{
	struct headers h = { .kept = json_object(), .left = json_object() };
	const char *format;
	int rc;

	*form = NULL;
	rc = !h.kept || !h.left ? -ENOMEM :
	     rsh_source_format(s)->owner != RSH_OWNER_MODEL ? 0 :
	     headers_collect(&h, s);
	rc = rc ?: headers_decide(&h, as_saved,
				  headers_n_files(&h, opts->part_bytes),
				  &format);
	if (rc == 0) {
		headers_warn(&h, s, as_saved);
		*form = headers_form(&h, format);
		rc = *form ? 0 : -ENOMEM;
	}
	json_decref(h.kept);
	json_decref(h.left);
	free(h.format);
	return rc;
}
