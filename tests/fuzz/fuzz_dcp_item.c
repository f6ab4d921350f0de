/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz/fuzz_dcp_item.c - whatever the bytes, an item ends in a sentence or in
 * elements that lie in it; the same bytes are taken for sharding info too. */
#include "config.h"

#include "fuzz_support.h"

#include <errno.h>

#include "rsh/formats/dcp.h"

/* The item does not begin where the file does. */
#define BEFORE 3

static ssize_t pread_item(void *ctx, void *buf, size_t len, uint64_t offset)
{
	/* A reader that reads outside of the item did not look at its ends. */
	require(offset >= BEFORE);
	return fuzz_pread_within(ctx, buf, len, offset - BEFORE);
}

static void check(const struct rsh_dcp_item *item, size_t size)
{
	uint64_t bytes = rsh_dtype_size(item->dtype);
	uint32_t seen = 0;

	require(bytes > 0 && item->n_dims <= RSH_MAX_DIMS);
	for (uint32_t i = 0; i < item->n_dims; i++) {
		bytes *= item->dims[i];
		require(item->order[i] < item->n_dims);
		seen |= UINT32_C(1) << item->order[i];
	}
	require(item->n_dims == 0 || seen == UINT32_MAX >> (32 - item->n_dims));
	require(bytes == item->bytes && item->offset >= BEFORE &&
		item->offset - BEFORE <= size &&
		bytes <= size - (item->offset - BEFORE));
}

static int see_offsets(void *ctx, const char *name, uint32_t n_dims,
		       const uint64_t *offsets)
{
	uint64_t *sum = ctx;

	*sum += strlen(name);
	for (uint32_t i = 0; i < n_dims; i++)
		*sum += offsets[i];
	return 0;
}

static void check_sharding(const uint8_t *data, size_t size)
{
	char *text = calloc(1, size + 1);
	struct rsh_error err = RSH_ERROR_INIT;
	uint64_t sum = 0;
	int rc;

	require(text != NULL);
	memcpy(text, data, size);
	rc = rsh_dcp_sharding_info(text, "fuzz", see_offsets, &sum, &err);
	require(rc == 0 || (rc == -EBADMSG && *err.text));
	free(text);
}

/* The pickle that was written is read as the same value. */
static void check_plain(const struct rsh_plain *p)
{
	struct fuzz_bytes b = { p->pickle, p->n_pickle };
	const struct rsh_byte_source bare = { fuzz_pread_within, &b,
					      p->n_pickle, "fuzz" };
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_plain again;

	if (!p->pickle)
		return;
	require(rsh_dcp_value_read(&bare, 0, bare.size, true, &again, &err) ==
		0);
	require(!again.pickle || (again.n_pickle == p->n_pickle &&
		memcmp(again.pickle, p->pickle, p->n_pickle) == 0));
	require(!p->json || !again.json || strcmp(p->json, again.json) == 0);
	rsh_plain_clear(&again);
}

/* The same bytes as a value that is no tensor, and as nothing but its pickle. */
static void check_value(const struct rsh_byte_source *src, size_t size)
{
	const struct rsh_byte_source bare = { fuzz_pread_within, src->ctx, size,
					      "fuzz" };
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_plain found;
	int rc = rsh_dcp_value_read(src, BEFORE, size, false, &found, &err);

	require(rc == 0 || (rc == -EBADMSG && *err.text));
	check_plain(&found);
	rsh_plain_clear(&found);
	rc = rsh_dcp_value_read(&bare, 0, size, true, &found, &err);
	require(rc == 0 || (rc == -EBADMSG && *err.text));
	check_plain(&found);
	rsh_plain_clear(&found);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_bytes b = { data, size };
	const struct rsh_byte_source src = { pread_item, &b, size + BEFORE,
					     "fuzz" };
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_dcp_item item;
	int rc = rsh_dcp_item_read(&src, BEFORE, size, &item, &err);

	require(rc == 0 || (rc == -EBADMSG && *err.text));
	if (rc == 0)
		check(&item, size);
	check_value(&src, size);
	check_sharding(data, size);
	return 0;
}
