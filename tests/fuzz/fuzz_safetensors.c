/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever the bytes are, the scan ends in an index that covers the file once,
 * or in a sentence; and a header made from the index is scanned to the same
 * records. */
#include "fuzz_support.h"

#include <errno.h>

#include "rsh/wire/safetensors.h"

struct scanned {
	struct rsh_ckpt_index *index;
	struct rsh_safetensors_meta meta;
};

/* `content` bytes follow the data, which nobody reads. */
static bool scan(const uint8_t *data, size_t size, uint64_t content,
		 struct rsh_names *names, struct scanned *s)
{
	struct fuzz_bytes bytes = { data, size };
	const struct rsh_byte_source src = { fuzz_pread, &bytes,
					     size + content, "f" };
	struct rsh_error err = RSH_ERROR_INIT;

	if (!rsh_safetensors_scan(&src, names, &s->index, &s->meta, &err))
		return true;
	require(err.code && err.text[0]);
	return false;
}

static void scanned_free(struct scanned *s)
{
	rsh_safetensors_meta_clear(&s->meta);
	rsh_ckpt_index_free(s->index);
}

/* Checks the index and gives the bytes of all tensors. */
static uint64_t check_index(const struct rsh_ckpt_index *ix)
{
	uint64_t content = 0, end = 0;

	for (uint32_t i = 0; i < ix->n_records; i++) {
		const struct rsh_record *r = &ix->records[i];

		require(rsh_ckpt_find(ix, r->name) == r);
		require(r->first_dim + r->n_dims <= ix->n_dims);
		require(r->first_extent + r->n_extents <= ix->n_extents);
		require(r->n_extents == (r->content_bytes ? 1 : 0));
		content += r->content_bytes;
	}
	for (uint32_t i = 0; i < ix->n_extents; i++) {
		require(!i || ix->extents[i].offset == end);
		end = ix->extents[i].offset + ix->extents[i].length;
	}
	require(!ix->n_extents || end == ix->file_bytes);
	return content;
}

static struct rsh_record_shape *shapes_of(const struct rsh_ckpt_index *ix,
					  const struct rsh_names *names)
{
	struct rsh_record_shape *shapes =
		calloc(ix->n_records + 1, sizeof(*shapes));

	for (uint32_t i = 0; i < ix->n_records; i++) {
		const struct rsh_record *r = &ix->records[i];
		const char *name = rsh_names_text(names, r->name);

		shapes[i] = (struct rsh_record_shape){
			name, strlen(name), (enum rsh_dtype)r->dtype,
			r->n_dims, rsh_record_dims(ix, r), NULL,
			r->content_bytes,
		};
	}
	return shapes;
}

static void check_again(const struct scanned *s, uint64_t content,
			struct rsh_names *names)
{
	const struct rsh_ckpt_index *ix = s->index;
	struct rsh_record_shape *shapes = shapes_of(ix, names);
	uint32_t *order = calloc(ix->n_records + 1, sizeof(*order));
	struct scanned again = { .index = NULL };
	uint8_t *header;
	size_t len;

	rsh_safetensors_order(shapes, ix->n_records, order);
	require(!rsh_safetensors_header(&(struct rsh_safetensors_contents){
		shapes, order, ix->n_records, s->meta.entries,
		s->meta.n_entries,
	}, &header, &len, NULL));
	require(len % 8 == 0);
	require(scan(header, len, content, names, &again));
	require(again.index->n_records == ix->n_records);
	require(again.meta.n_entries == s->meta.n_entries);
	for (uint32_t i = 0; i < ix->n_records; i++) {
		const struct rsh_record *r = &ix->records[i];
		const struct rsh_record *o =
			rsh_ckpt_find(again.index, r->name);

		require(o && o->dtype == r->dtype && o->n_dims == r->n_dims &&
			o->content_bytes == r->content_bytes);
		require(!r->n_dims ||
			!memcmp(rsh_record_dims(ix, r),
				rsh_record_dims(again.index, o),
				r->n_dims * sizeof(int64_t)));
	}
	scanned_free(&again);
	free(header);
	free(order);
	free(shapes);
}

static void check_crc(const uint8_t *data, size_t size,
		      const struct scanned *s, const struct rsh_names *names)
{
	struct fuzz_bytes bytes = { data, size };
	const struct rsh_byte_source src = { fuzz_pread, &bytes, size, "f" };
	struct rsh_error err = RSH_ERROR_INIT;
	int rc = rsh_safetensors_check_crc(&src, s->index, names, &s->meta,
					   &err);

	require(rc == 0 || (rc == -EBADMSG && err.text[0]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rsh_names *names = rsh_names_new();
	struct scanned s = { .index = NULL };

	if (scan(data, size, 0, names, &s)) {
		check_again(&s, check_index(s.index), names);
		check_crc(data, size, &s, names);
		scanned_free(&s);
	}
	rsh_names_free(names);
	return 0;
}
