/* SPDX-License-Identifier: Apache-2.0 */
/* formats/duplicate.c checks a model that is there twice: whole in one file,
 * which transformers loads, and in parts with a map, which it ignores, but vLLM
 * loads.  If a tensor differs between them, one of them is out of date, and it
 * is not known which. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "rsh/formats/files.h"
#include "rsh/formats/torch.h"
#include "rsh/plan/slices.h"
#include "rsh/util/checked.h"
#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "rsh/wire/file_type.h"
#include "rsh/wire/safetensors.h"

#define TENSOR_TEXT 160

/* So many tensors are compared, and so many bytes in the middle of each: other
 * steps of a training differ in nearly all tensors. */
#define TWICE_TENSORS 64
#define TWICE_BYTES 4096

struct twice {
	const struct rsh_source *s;
	const char *single, *map_name;
	struct rsh_weight_map map;
	struct rsh_names *names; /* of this comparison */
	struct rsh_format_file file; /* the one file, and its index */
	struct rsh_ckpt_index *one;
	uint32_t n_parts, n_read;
	/* number of tensors that both have, and that only the parts have */
	uint32_t n_shared, n_more;
};

/* Opens a file in the root, and reads its header. */
static int twice_scan(const struct twice *t, const char *name,
		      struct rsh_format_file *f, struct rsh_ckpt_index **out,
		      struct rsh_error *err)
{
	return rsh_format_file_open(t->s, name, f, err) ?:
	       rsh_has_suffix(name, ".bin") ?
	       rsh_torch_scan_by_name(&f->bytes, false, t->names, out, err) :
	       rsh_file_scan(rsh_file_type_of(name), &f->bytes, false, t->names,
			     out, err);
}

/* Returns a text such as "Float32 [2,3]". */
static const char *twice_text(const struct rsh_ckpt_index *ix,
			      const struct rsh_record *r, char *text)
{
	size_t at = (size_t)snprintf(text, TENSOR_TEXT, "%s ",
				     rsh_dtype_name(r->dtype));

	rsh_record_dims_text(ix, r, text + at, TENSOR_TEXT - at);
	return text;
}

/* Compares the middle of a tensor in the one file, x, and in a part, y. */
static int twice_compare_values(const struct twice *t,
				const struct rsh_record *x,
				const struct rsh_format_file *file,
				const struct rsh_ckpt_index *part,
				const struct rsh_record *y, bool *same,
				struct rsh_error *err)
{
	const uint64_t n = rsh_min_u64(y->content_bytes, TWICE_BYTES);
	const uint64_t middle = (y->content_bytes - n) / 2;

	/* Another order of the elements has other bytes. */
	if (x->content_bytes != y->content_bytes || x->n_extents != 1 ||
	    y->n_extents != 1)
		return 0;
	return rsh_format_same_bytes(
		&t->file.bytes, t->one->extents[x->first_extent].offset + middle,
		&file->bytes, part->extents[y->first_extent].offset + middle, n,
		same, err);
}

/* Compares a tensor that the map expects in this part. */
static int twice_compare_tensor(struct twice *t, const char *name,
				const char *tensor, bool values,
				const struct rsh_format_file *file,
				const struct rsh_ckpt_index *part,
				struct rsh_error *err)
{
	const uint32_t id = rsh_names_find(t->names, tensor, strlen(tensor));
	const struct rsh_record *x = rsh_ckpt_find(t->one, id),
				*y = rsh_ckpt_find(part, id);
	char here[TENSOR_TEXT], there[TENSOR_TEXT];
	struct rsh_error why = RSH_ERROR_INIT;
	bool same = true;
	int rc;

	if (!y)
		return 0;
	t->n_more += !x;
	t->n_shared += x != NULL;
	if (!x)
		return 0;
	if (!rsh_record_is_alike(t->one, x, part, y))
		return rsh_error_set(err, EINVAL, "%s: there are two models: "
			"%s is %s in %s and %s in %s, which %s names: move one "
			"of them away", rsh_source_path(t->s), tensor,
			twice_text(t->one, x, here), t->single,
			twice_text(part, y, there), name, t->map_name);
	rc = values ? twice_compare_values(t, x, file, part, y, &same, &why) :
		      0;
	if (rc == -ENOMEM)
		return rsh_error_nomem(err);
	if (rc)
		rsh_log_info("%s; %s is not compared with %s", why.text, tensor,
			     t->single);
	else if (!same)
		return rsh_error_set(err, EINVAL, "%s: there are two models: "
			"%s has other values in %s than in %s, which %s names: "
			"move one of them away, or give %s or %s as SOURCE",
			rsh_source_path(t->s), tensor, t->single, name,
			t->map_name, t->single, t->map_name);
	return 0;
}

static int twice_compare_part(struct twice *t, uint32_t file,
			      struct rsh_error *err)
{
	cleanup_format_file struct rsh_format_file f = { .path = NULL };
	const char *name = t->map.files[file];
	const uint32_t every = 1 + t->map.n_weights / TWICE_TENSORS;
	struct rsh_error why = RSH_ERROR_INIT;
	struct rsh_ckpt_index *part;
	int rc;

	if (strcmp(name, t->single) == 0)
		return 0;
	t->n_parts++;
	rc = twice_scan(t, name, &f, &part, &why);
	if (rc == -ENOMEM)
		return rsh_error_nomem(err);
	if (rc) {
		rsh_log_info("%s; it is not compared with %s", why.text,
			     t->single);
		return 0;
	}
	t->n_read++;
	for (uint32_t i = 0; i < t->map.n_weights && rc == 0; i++)
		if (t->map.weights[i].file == file)
			rc = twice_compare_tensor(t, name,
						  t->map.weights[i].name,
						  i % every == 0, &f, part,
						  err);
	rsh_ckpt_index_free(part);
	return rc;
}

static void twice_tell(const struct twice *t)
{
	const uint32_t less = t->one->n_records - t->n_shared;

	if (t->n_parts == 0)
		return;
	if (t->n_read == 0)
		rsh_log_info("%s: %s is taken, as transformers does; none of "
			     "the parts that %s names can be read",
			     rsh_source_path(t->s), t->single, t->map_name);
	else if (t->n_more || less)
		rsh_log_warning("%s: %s is taken, as transformers does, and "
				"not the parts that %s names: %u of its "
				"tensors are in none of those that can be "
				"read, and it lacks %u of theirs",
				rsh_source_path(t->s), t->single, t->map_name,
				less, t->n_more);
	else
		rsh_log_info("%s: %s is taken, as transformers does, and not "
			     "the parts that %s names: both have the same "
			     "tensors, as samples of their values show",
			     rsh_source_path(t->s), t->single, t->map_name);
}

int rsh_format_check_duplicate(const struct rsh_source *s, const char *single,
			       const char *map_name, struct rsh_error *err)
{
	struct twice t = { .s = s, .single = single, .map_name = map_name };
	struct rsh_error why = RSH_ERROR_INIT;
	int rc = rsh_format_load_map(s, map_name, &t.map, &why);

	if (rc == -ENOMEM)
		return rsh_error_nomem(err);
	if (rc) {
		rsh_log_warning("%s; %s is taken", why.text, single);
		return 0;
	}
	t.names = rsh_names_new();
	rc = t.names ? twice_scan(&t, single, &t.file, &t.one, err) :
		       rsh_error_nomem(err);
	for (uint32_t i = 0; rc == 0 && i < t.map.n_files; i++)
		rc = twice_compare_part(&t, i, err);
	if (rc == 0)
		twice_tell(&t);
	rsh_weight_map_clear(&t.map);
	rsh_ckpt_index_free(t.one);
	rsh_format_file_close(&t.file);
	rsh_names_free(t.names);
	return rc;
}
