/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz/fuzz_versions.c - the index of a weight version; and a frame, which is
 * applied to a tensor in parts: the first byte says which, the next four are
 * the size of the tensor and of the parts.  Only bytes of the tensor change,
 * and the result does not depend on the parts. */
#include "config.h"

#include "fuzz_support.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/versions/versions_i.h"

#define HEAD 6
#define TENSOR_MAX 100000
#define GUARD 16

static int read_bytes(void *ctx, uint32_t file, uint64_t offset, void *buf,
		      size_t len)
{
	const struct fuzz_bytes *b = ctx;

	require(file == 0 && offset <= b->size && len <= b->size - offset);
	memcpy(buf, b->data + offset, len);
	return 0;
}

static int apply(struct fuzz_bytes *b, enum rsh_delta_form form, uint8_t *p,
		 size_t n, size_t part, size_t chunk)
{
	const struct rsh_frame_place at = { read_bytes, b, 0, 0, b->size,
					    chunk };
	struct rsh_change *c = NULL;
	int rc = rsh_change_open(&at, form, n, &c);

	require(rc == 0);
	for (size_t done = 0; rc == 0 && done < n; done += part) {
		const size_t some = n - done < part ? n - done : part;

		rc = rsh_change_apply(c, p + done, some);
	}
	rsh_change_close(c);
	require(rc == 0 || rc == -EBADMSG);
	return rc;
}

static void check_frame(struct fuzz_bytes *b, const uint8_t *head)
{
	const enum rsh_delta_form form = head[0] & 1;
	const size_t n = 1 + (head[1] | head[2] << 8 | head[3] << 16) %
			 TENSOR_MAX;
	const size_t part = 1 + (size_t)head[4] * head[5];
	const struct rsh_frame_place at = { read_bytes, b, 0, 0, b->size, 100 };
	uint8_t *x = calloc(2, n + GUARD), *y = x + n + GUARD;
	uint64_t size = 0;
	int rc;

	require(x);
	rc = rsh_frame_size(&at, &size);
	require(rc == 0 || rc == -EBADMSG);
	memset(x + n, 0xa5, GUARD);
	rc = apply(b, form, x, n, part, 1 + head[5]);
	for (size_t i = 0; i < GUARD; i++)
		require(x[n + i] == 0xa5);
	require(apply(b, form, y, n, n, b->size + 1) == rc);
	require(rc || memcmp(x, y, n) == 0);
	free(x);
}

static void check_index(const struct fuzz_bytes *b)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_version_index v;
	int rc = rsh_version_index_parse(b->data, b->size, "fuzz", "fuzz", &v,
					 &err);

	require(rc == 0 || ((rc == -EBADMSG || rc == -ENOTSUP) && *err.text));
	for (uint32_t i = 0; rc == 0 && i < v.n_names; i++) {
		const char *file = rsh_names_text(v.file_names,
						  v.names[i].file);

		require(v.names[i].file < v.n_files && !strchr(file, '/'));
		require(i == 0 ||
			strcmp(v.names[i - 1].name, v.names[i].name) < 0);
	}
	rsh_version_index_clear(&v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_bytes b;

	if (size < HEAD)
		return 0;
	b = (struct fuzz_bytes){ data + HEAD, size - HEAD };
	if (data[0] & 2)
		check_index(&b);
	else
		check_frame(&b, data);
	return 0;
}
