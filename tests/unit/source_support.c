/* SPDX-License-Identifier: Apache-2.0 */
/* unit/source_support.c - see source_support.h. */
#include "config.h"

#include "source_support.h"

#include "rsh/wire/ckpt.h"

uint64_t tree_write_vector(const char *tree, const char *name,
			   const uint8_t *content, size_t n)
{
	const int64_t dims[] = { (int64_t)n };
	const struct rsh_record_shape shape = {
		.name = "data", .name_len = 4, .dtype = RSH_DTYPE_UINT8,
		.n_dims = 1, .dims = dims, .content_bytes = n,
	};
	size_t header = (size_t)rsh_ckpt_header_size(&shape, n);
	uint8_t *file = malloc(header + n);

	assert_non_null(file);
	assert_int_equal(rsh_ckpt_header_write(&shape, n, file), header);
	memcpy(file + header, content, n);
	tree_write(tree, name, file, header + n);
	free(file);
	return header;
}
