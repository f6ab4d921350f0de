/* SPDX-License-Identifier: Apache-2.0 */
/* formats/safetensors/duplicate.c checks a directory that has a model twice:
 * whole in one file, which transformers loads, and in parts with a map, which
 * it ignores. If a tensor differs between them, one of them is out of date, and
 * it is not known which. */
#include "config.h"

#include "model_i.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "rsh/formats/files.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/wire/safetensors.h"

#define TORCH_SINGLE "pytorch_model.bin"
#define TORCH_MAP "pytorch_model.bin.index.json"
#define TENSOR_TEXT 160

struct twice {
	const struct rsh_source *s;
	struct rsh_names *names; /* of this comparison */
	struct rsh_ckpt_index *one;
	uint32_t n_parts, n_read;
	/* number of tensors that both have, and that only the parts have */
	uint32_t n_shared, n_more;
};

/* Reads the header of a file in the root. */
static int twice_scan(const struct twice *t, const char *name,
		      struct rsh_ckpt_index **out, struct rsh_error *err)
{
	cleanup_format_file struct rsh_format_file f;
	int rc = rsh_format_file_open(t->s, name, &f, err);

	return rc ? rc : rsh_safetensors_scan(&f.bytes, t->names, out, NULL,
					      err);
}

/* Returns a text such as "Float32 [2,3]". */
static const char *twice_text(const struct rsh_ckpt_index *ix,
			      const struct rsh_record *r, char *text)
{
	const int64_t *dims = rsh_record_dims(ix, r);
	size_t at = (size_t)snprintf(text, TENSOR_TEXT, "%s [",
				     rsh_dtype_name(r->dtype));

	for (uint32_t d = 0; d < r->n_dims && at + 24 < TENSOR_TEXT; d++)
		at += (size_t)snprintf(text + at, TENSOR_TEXT - at, "%s%lld",
				       d ? "," : "", (long long)dims[d]);
	snprintf(text + at, TENSOR_TEXT - at, "]");
	return text;
}

static int twice_compare(struct twice *t, const char *name,
			 const struct rsh_ckpt_index *part,
			 struct rsh_error *err)
{
	char here[TENSOR_TEXT], there[TENSOR_TEXT];

	for (uint32_t i = 0; i < part->n_records; i++) {
		const struct rsh_record *y = &part->records[i];
		const struct rsh_record *x = rsh_ckpt_find(t->one, y->name);

		if (!x) {
			t->n_more++;
			continue;
		}
		t->n_shared++;
		if (x->dtype != y->dtype || x->n_dims != y->n_dims ||
		    memcmp(rsh_record_dims(t->one, x),
			   rsh_record_dims(part, y),
			   x->n_dims * sizeof(int64_t)) != 0)
			return rsh_error_set(err, EINVAL, "%s: there are two "
					     "models: %s is %s in "
					     RSH_MODEL_HF_SINGLE " and %s in "
					     "%s, which " RSH_MODEL_HF_MAP
					     " names: move one of them away",
					     rsh_source_path(t->s),
					     rsh_names_text(t->names, y->name),
					     twice_text(t->one, x, here),
					     twice_text(part, y, there), name);
	}
	return 0;
}

static int twice_compare_part(struct twice *t, const char *name,
			      struct rsh_error *err)
{
	struct rsh_error why = RSH_ERROR_INIT;
	struct rsh_ckpt_index *part;
	int rc;

	if (strcmp(name, RSH_MODEL_HF_SINGLE) == 0)
		return 0;
	t->n_parts++;
	rc = twice_scan(t, name, &part, &why);
	if (rc == -ENOMEM)
		return rsh_error_nomem(err);
	if (rc) {
		rsh_log_info("%s; it is not compared with " RSH_MODEL_HF_SINGLE,
			     why.text);
		return 0;
	}
	t->n_read++;
	rc = twice_compare(t, name, part, err);
	rsh_ckpt_index_free(part);
	return rc;
}

static void twice_tell(const struct twice *t)
{
	const uint32_t less = t->one->n_records - t->n_shared;

	if (t->n_parts == 0)
		return;
	if (t->n_read == 0)
		rsh_log_info("%s: " RSH_MODEL_HF_SINGLE " is taken, as "
			     "transformers does; none of the parts that "
			     RSH_MODEL_HF_MAP " names can be read",
			     rsh_source_path(t->s));
	else if (t->n_more || less)
		rsh_log_warning("%s: " RSH_MODEL_HF_SINGLE " is taken, as "
				"transformers does, and not the parts that "
				RSH_MODEL_HF_MAP " names: %u of its tensors "
				"are in none of those that can be read, and "
				"it lacks %u of theirs", rsh_source_path(t->s),
				less, t->n_more);
	else
		rsh_log_info("%s: " RSH_MODEL_HF_SINGLE " is taken, as "
			     "transformers does, and not the parts that "
			     RSH_MODEL_HF_MAP " names: both have the same "
			     "tensors", rsh_source_path(t->s));
}

int rsh_model_check_duplicate(const struct rsh_source *s,
			  const struct rsh_weight_map *map,
			  struct rsh_error *err)
{
	struct twice t = { .s = s, .names = rsh_names_new() };
	int rc = t.names ? twice_scan(&t, RSH_MODEL_HF_SINGLE, &t.one, err) :
			   rsh_error_nomem(err);

	for (uint32_t i = 0; rc == 0 && i < map->n_files; i++)
		rc = twice_compare_part(&t, map->files[i], err);
	if (rc == 0)
		twice_tell(&t);
	rsh_ckpt_index_free(t.one);
	rsh_names_free(t.names);
	return rc;
}

void rsh_model_tell_torch(const struct rsh_source *s)
{
	static const char *const names[] = { TORCH_SINGLE, TORCH_MAP };
	struct rsh_stat st;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (rsh_store_look(rsh_source_store(s), names[i], &st) == 0) {
			rsh_log_info("%s: the safetensors are taken, as "
				     "transformers does; %s was not looked at",
				     rsh_source_path(s), names[i]);
			return;
		}
}
