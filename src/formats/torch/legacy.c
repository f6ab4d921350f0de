/* SPDX-License-Identifier: Apache-2.0 */
/* formats/torch/legacy.c reads the form of torch.save() from before PyTorch
 * 1.6, which PyTorch still writes on request.  It has five pickles (a magic
 * number, a version, the system, the object, the keys of the storages). Then,
 * for each storage in the order of the keys, it has the number of elements and
 * the elements. */
#include "config.h"

#include "reader_i.h"

#include <errno.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/util/mem.h"
#include "rsh/wire/bytes.h"

#define LEGACY_VERSION 1001
#define COUNT_BYTES 8
/* The pickles of a model have fewer bytes than this. */
#define PICKLES_MAX ((uint64_t)1024 * 1024 * 1024)

/* Reads the pickles before the object. */
static int legacy_read_system(struct rsh_torch_reader *r, uint64_t end)
{
	const struct rsh_pickle_value *little;
	struct rsh_pickle_value v;
	uint64_t at;
	/* The first one is the magic number, from which the form was
	 * detected. */
	int rc = rsh_torch_pickle(r, end, true, &v);

	at = r->pickle.at;
	if (rc == 0)
		rc = rsh_torch_pickle(r, end, true, &v);
	if (rc == 0 && (v.kind != RSH_PV_NUMBER || v.number != LEGACY_VERSION))
		rc = rsh_torch_bad(r, at, "a version that is not known");
	at = r->pickle.at;
	if (rc == 0)
		rc = rsh_torch_pickle(r, end, true, &v);
	if (rc)
		return rc;
	little = rsh_pickle_find(&v, "little_endian");
	return little && little->kind == RSH_PV_BOOL && little->number ? 0 :
	       rsh_torch_bad(r, at, "elements that are not little-endian");
}

static int legacy_place(struct rsh_torch_reader *r, size_t i, uint64_t *at)
{
	const struct rsh_torch_stored *s = &r->stored[i];
	struct rsh_torch_storage *to = &r->storages[i];
	uint8_t count[COUNT_BYTES];
	int rc;

	if (s->width == 0)
		return rsh_error_set(r->err, ENOTSUP, "%s: storage %s is of an "
				     "unknown class, so the place of the "
				     "next one is not known", r->src.path, s->key);
	if (to->key)
		return rsh_torch_bad(r, *at, "a storage that is listed twice");
	to->key = rsh_arena_strndup(&r->file->arena_, s->key, strlen(s->key));
	if (!to->key)
		return rsh_error_nomem(r->err);
	if (!rsh_mul_u64(s->count, s->width, &to->bytes) ||
	    r->src.size - *at < COUNT_BYTES ||
	    to->bytes > r->src.size - *at - COUNT_BYTES)
		return rsh_torch_bad(r, r->src.size, "truncated: the storages "
				     "do not end within the file");
	to->offset = *at + COUNT_BYTES;
	/* The count is known already, so it is compared only if these bytes
	 * were read with others. */
	if (rsh_torch_view_has(&r->view, *at, COUNT_BYTES)) {
		rc = rsh_bytes_read(&r->src, count, sizeof(count), *at, r->err);
		if (rc || rsh_le64(count) != s->count)
			return rc ? rc :
			       rsh_torch_bad(r, *at, "a storage of another "
					     "size than the object says");
	}
	*at = to->offset + to->bytes;
	return 0;
}

static int legacy_place_all(struct rsh_torch_reader *r,
			    const struct rsh_pickle_value *keys)
{
	uint64_t at = r->pickle.at;
	int rc = 0;

	if (keys->kind != RSH_PV_LIST || keys->list->n != r->n_stored)
		return rsh_torch_bad(r, at, "a list of storages that are not "
				     "those of the object");
	r->storages = rsh_arena_array(&r->file->arena_,
				      struct rsh_torch_storage, r->n_stored);
	if (!r->storages)
		return rsh_error_nomem(r->err);
	for (uint32_t i = 0; i < keys->list->n && rc == 0; i++) {
		const struct rsh_pickle_value *v = &keys->list->values[i];
		uint32_t number = v->kind == RSH_PV_TEXT ?
				  rsh_names_find(r->keys, v->text, v->n) :
				  RSH_NAME_NONE;

		if (number == RSH_NAME_NONE)
			return rsh_torch_bad(r, at, "a list of storages that "
					     "are not those of the object");
		rc = legacy_place(r, number, &at);
	}
	if (rc == 0 && at != r->src.size)
		rc = rsh_torch_bad(r, at, "bytes after the last storage");
	return rc;
}

int rsh_torch_read_legacy(struct rsh_torch_reader *r)
{
	const uint64_t end = rsh_min_u64(r->src.size, PICKLES_MAX);
	struct rsh_pickle_value root, keys;
	int rc;

	r->pickle.at = 0;
	rc = legacy_read_system(r, end);
	if (rc == 0)
		rc = rsh_torch_pickle(r, end, true, &root);
	if (rc == 0)
		rc = rsh_torch_pickle(r, end, true, &keys);
	if (rc == 0)
		rc = legacy_place_all(r, &keys);
	return rc ? rc : rsh_torch_walk(r, &root);
}
