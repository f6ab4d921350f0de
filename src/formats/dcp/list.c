/* SPDX-License-Identifier: Apache-2.0 */
/* formats/dcp/list.c lists tensors and files from the metadata.  It opens no
 * file. */
#include "config.h"

#include "dcp_i.h"

#include <errno.h>
#include <inttypes.h>

/* Finds the first tensor whose boxes do not cover it, or else the first file
 * that is missing. */
static int list_judge(const struct rsh_source *s, struct rsh_error *wrong)
{
	const struct rsh_dcp *d = rsh_source_dcp(s);
	struct rsh_stat st;

	for (uint32_t i = 0; i < d->n_tensors && !wrong->code; i++) {
		const struct rsh_dcp_tensor *t = &d->tensors[i];
		uint64_t n = 0;
		int rc = rsh_dcp_uncovered(t, &n, wrong);

		if (rc == -ENOMEM)
			return rc;
		if (rc == 0 && n > 0)
			rsh_error_set(wrong, EBADMSG, "tensor %s: %" PRIu64
				      " elements are in no chunk", t->name, n);
	}
	for (uint32_t i = 0; i < d->n_files && !wrong->code; i++)
		if (rsh_store_look(rsh_source_store(s), d->files[i], &st) ||
		    st.kind != RSH_IS_FILE)
			rsh_error_set(wrong, ENOENT, "%s is missing",
				      d->files[i]);
	return 0;
}

static int list_chunks(const struct rsh_dcp *d, const struct rsh_dcp_tensor *t,
		       struct rsh_arena *arena, struct rsh_listed_tensor *out)
{
	struct rsh_listed_chunk *all = rsh_arena_array(
		arena, struct rsh_listed_chunk, (size_t)t->n_chunks + 1);

	for (uint32_t i = 0; all && i < t->n_chunks; i++) {
		const struct rsh_dcp_chunk *c = &t->chunks[i];
		const bool in_file = c->file != RSH_DCP_NO_FILE;

		all[i] = (struct rsh_listed_chunk){
			.from = c->from, .size = c->size,
			.file = in_file ? d->files[c->file] : NULL,
			.placed = in_file && c->length != RSH_DCP_BY_NAME,
			.offset = c->offset, .length = c->length,
		};
	}
	*out = (struct rsh_listed_tensor){
		.name = t->name, .dtype = t->dtype, .n_dims = t->n_dims,
		.dims = t->dims, .n_chunks = t->n_chunks, .chunks = all,
	};
	return all ? 0 : -ENOMEM;
}

int rsh_dcp_list(const struct rsh_source *s, struct rsh_arena *arena,
		 struct rsh_listed *out, struct rsh_error *err)
{
	const struct rsh_dcp *d = rsh_source_dcp(s);
	struct rsh_listed_tensor *tensors = rsh_arena_array(
		arena, struct rsh_listed_tensor, (size_t)d->n_tensors + 1);
	const char **values = rsh_arena_array(arena, const char *,
					      (size_t)d->n_values + 1);

	*out = (struct rsh_listed){
		.tensors = tensors, .n_tensors = d->n_tensors,
		.values = values, .n_values = d->n_values,
		.files = (const char *const *)d->files, .n_files = d->n_files,
		.wrong = RSH_ERROR_INIT,
	};
	if (!tensors || !values)
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < d->n_tensors; i++)
		if (list_chunks(d, &d->tensors[i], arena, &tensors[i]))
			return rsh_error_nomem(err);
	for (uint32_t i = 0; i < d->n_values; i++)
		values[i] = d->values[i].name;
	return list_judge(s, &out->wrong) ? rsh_error_nomem(err) : 0;
}
