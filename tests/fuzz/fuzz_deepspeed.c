/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz/fuzz_deepspeed.c - whatever the bytes, the file of a model and that of
 * an optimizer end in a sentence, or in a layout in which what a rank has of a
 * parameter is in it, and in indexes whose records lie in the files.
 *
 * The input is the stage and the rank, the length of the first file, and both
 * files. */
#include "config.h"

#include "fuzz_support.h"

#include <errno.h>
#include <string.h>

#include "formats/deepspeed/deepspeed_i.h"

#define HEAD 6
#define BOXES_CHECKED 4096

static int read_file(struct fuzz_bytes *b, struct rsh_source_ds *st,
		     struct rsh_ds_file **out)
{
	const struct rsh_byte_source src = { fuzz_pread_within, b, b->size,
					     "fuzz" };
	struct rsh_names *names = rsh_names_new();
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_ckpt_index *ix = NULL;
	void *read = NULL;
	int rc = rsh_ds_file_read(st, 0, &src, false, names, &read, &ix, &err);

	*out = read;
	if (rc) {
		require((rc == -EBADMSG || rc == -ENOTSUP) && *err.text);
	} else {
		for (uint32_t i = 0; i < ix->n_records; i++)
			require(rsh_record_end(ix, &ix->records[i]) <= b->size);
		rsh_ckpt_index_free(ix);
	}
	rsh_names_free(names);
	return rc;
}

/* The boxes of a run are in the parameter, and have its elements. */
static void check_run(const struct rsh_ds_param *p,
		      const struct rsh_ds_run *run)
{
	struct rsh_box boxes[RSH_DS_BOXES_MAX];
	const uint32_t n = rsh_ds_run_boxes(p, run, boxes);
	uint64_t elements = 0;

	require(run->from <= p->elements && run->n <= p->elements - run->from);
	for (uint32_t i = 0; i < n; i++) {
		for (uint32_t d = 0; d < p->n_dims; d++)
			require(boxes[i].from[d] <= p->dims[d] &&
				boxes[i].size[d] <=
					p->dims[d] - boxes[i].from[d]);
		elements += rsh_box_elements(&boxes[i]);
	}
	require(elements == run->n);
}

static void check_layout(const struct rsh_ds_layout *l)
{
	uint32_t checked = 0;

	for (uint32_t g = 0; g < l->head->n_groups; g++)
		for (uint32_t i = 0; i < l->head->groups[g].n; i++) {
			const struct rsh_ds_param *p =
				&l->head->groups[g].v[i];
			uint64_t all = 0;

			for (uint32_t rank = 0; rank < l->world; rank++) {
				const struct rsh_ds_run run =
					rsh_ds_run_of(l, g, p, rank);

				if (checked++ > BOXES_CHECKED)
					return;
				require(run.n == 0 || run.from == all);
				all += run.n;
				if (run.n > 0)
					check_run(p, &run);
			}
			require(all == p->elements);
		}
}

/* Makes the layout as the format does.  Returns whether there is one. */
static bool layout_make(struct rsh_ds_file *model, struct rsh_ds_file *zero,
			struct rsh_arena *arena, struct rsh_ds_layout *out)
{
	struct rsh_error err = RSH_ERROR_INIT;
	uint64_t *piece = rsh_arena_array(arena, uint64_t,
					  (size_t)zero->zero.n_groups + 1);
	int rc;

	for (uint32_t g = 0; g < zero->zero.n_groups; g++) {
		const struct rsh_ds_flat *f = rsh_ds_flat_find(zero, g, "");

		if (!f || f->is_odd)
			return false;
		piece[g] = f->elements;
	}
	rc = zero->zero.stage == 0 ? -EBADMSG :
	     rsh_ds_layout_make(&model->head, &zero->zero, piece, "fuzz", arena,
				out, &err);
	require(rc == 0 || zero->zero.stage == 0 || *err.text);
	return rc == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rsh_arena arena = { NULL, 0 };
	struct rsh_ds_file *model = NULL, *zero = NULL, *again = NULL;
	struct rsh_ds_listed listed = { .is.role = RSH_DS_MODEL };
	struct rsh_source_ds st = { .listed = &listed };
	struct fuzz_bytes a, b;
	uint32_t n;

	if (size < HEAD)
		return 0;
	memcpy(&n, data + 2, sizeof(n));
	n = n < size - HEAD ? n : (uint32_t)(size - HEAD);
	a = (struct fuzz_bytes){ data + HEAD, n };
	b = (struct fuzz_bytes){ data + HEAD + n, size - HEAD - n };
	if (data[0] % 4 == 3) {
		listed.is.role = RSH_DS_STATE;
		read_file(&a, &st, &model);
		rsh_joined_file_free(model);
		return 0;
	}
	listed.is.role = data[0] % 2 ? RSH_DS_MODEL_PART : RSH_DS_MODEL;
	listed.is.rank = data[1];
	if (read_file(&a, &st, &model) == 0) {
		listed.is.role = RSH_DS_OPTIMIZER;
		if (read_file(&b, &st, &zero) == 0 &&
		    layout_make(model, zero, &arena, &st.layout)) {
			check_layout(&st.layout);
			read_file(&b, &st, &again);
		}
	}
	rsh_joined_file_free(again);
	rsh_joined_file_free(zero);
	rsh_joined_file_free(model);
	rsh_arena_clear(&arena);
	return 0;
}
