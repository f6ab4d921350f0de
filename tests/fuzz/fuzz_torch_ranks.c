/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz/fuzz_torch_ranks.c - whatever the bytes, a file of one rank ends in a
 * sentence, or in tensors whose elements lie in it and whose axes are cut into
 * runs that are in the tensor, each index once. */
#include "config.h"

#include "fuzz_support.h"

#include <errno.h>

#include "formats/torch_ranks/torch_ranks_i.h"

#define RUNS_MAX 100000

static void check_cut(const struct rsh_ranks_how *h, uint32_t axis,
		      uint64_t size)
{
	uint64_t budget = RUNS_MAX;
	struct rsh_ranks_cut cut;
	int rc = rsh_ranks_cut_axis(h, axis, size, &budget, &cut);
	uint64_t all = 0;

	require(rc == 0 || rc == -EFBIG);
	for (uint32_t i = 0; rc == 0 && i < cut.n; i++) {
		uint64_t length = 0;

		require(cut.first[i] <= cut.first[i + 1]);
		for (uint32_t k = cut.first[i]; k < cut.first[i + 1]; k++) {
			require(cut.runs[k].from <= size &&
				cut.runs[k].n <= size - cut.runs[k].from);
			length += cut.runs[k].n;
		}
		require(length == cut.length[i]);
		all += length;
	}
	require(rc || all == size);
	for (uint32_t place = 0; rc == 0 && place < h->mesh->n; place++) {
		uint64_t from, n;
		uint32_t piece;

		rsh_ranks_cut_range(h, axis, size, place, &piece, &from, &n);
		require(piece < cut.n);
	}
	rsh_ranks_cut_clear(&cut);
}

static void check_spec(const struct rsh_ranks_spec *s)
{
	const struct rsh_ranks_how *h = s->how;

	require(s->name && s->n_dims <= RSH_MAX_DIMS);
	for (uint32_t i = 0; i < s->n_boxes; i++)
		for (uint32_t d = 0; d < s->n_dims; d++)
			require(s->boxes[i].from[d] <= s->dims[d] &&
				s->boxes[i].size[d] <=
					s->dims[d] - s->boxes[i].from[d]);
	if (!h)
		return;
	require(h->mesh->n_dims <= RSH_MESH_DIMS_MAX && h->mesh->n > 0);
	require(s->place == UINT32_MAX || s->place < h->mesh->n);
	for (uint32_t d = 0; d < h->mesh->n_dims; d++)
		require(h->placements[d].kind == RSH_RANKS_REPLICATED ||
			h->placements[d].kind == RSH_RANKS_PARTIAL ||
			h->placements[d].axis < s->n_dims);
	for (uint32_t axis = 0; axis < s->n_dims; axis++)
		check_cut(h, axis, s->dims[axis]);
}

static void check_file(const struct rsh_ranks_file *f, uint64_t size)
{
	for (uint32_t i = 0; i < f->n; i++) {
		const struct rsh_ranks_entry *e = &f->v[i];

		require(e->name && e->key && e->n_dims <= RSH_MAX_DIMS);
		require(e->offset <= size && e->bytes <= size - e->offset);
		require(!e->spec || e->spec->how || e->piece < e->spec->n_boxes);
	}
	for (size_t i = 0; i < f->specs.n; i++)
		check_spec(&f->specs.v[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_bytes b = { data, size };
	const struct rsh_byte_source src = { fuzz_pread_within, &b, size,
					     "fuzz" };
	struct rsh_names *names = rsh_names_new();
	struct rsh_ranks_listed listed = { .described = NULL };
	struct rsh_source_ranks st = { .listed = &listed };
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_ckpt_index *ix = NULL;
	void *f;
	int rc;

	pthread_mutex_init(&st.ways.lock, NULL);
	rc = rsh_ranks_file_read(&st, 0, &src, false, names, &f, &ix, &err);
	if (rc) {
		require((rc == -EBADMSG || rc == -ENOTSUP) && *err.text);
	} else {
		check_file(f, size);
		for (uint32_t i = 0; i < ix->n_records; i++)
			require(rsh_record_end(ix, &ix->records[i]) <= size);
		rsh_ckpt_index_free(ix);
		rsh_joined_file_free(f);
	}
	rsh_ranks_ways_clear(&st.ways);
	rsh_names_free(names);
	return 0;
}
