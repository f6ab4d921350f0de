/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz/fuzz_dcp_metadata.c - whatever the bytes, a .metadata ends in a sentence
 * or in a checkpoint all of whose boxes lie in their tensors, and which can be
 * joined with itself. */
#include "config.h"

#include "fuzz_support.h"

#include <errno.h>

#include "rsh/formats/dcp.h"

/* Only HyperParallel names files of other directories, from the directory
 * above. */
static bool is_allowed(const struct rsh_dcp *d, const char *file)
{
	const bool above = d->by_name && strncmp(file, "../", 3) == 0;

	while (above && strncmp(file, "../", 3) == 0)
		file += 3;
	return *file && *file != '/' && !strstr(file, "/../") &&
	       strcmp(file, "..") != 0 && (above || !strchr(file, '/'));
}

static void check_tensor(const struct rsh_dcp *d,
			 const struct rsh_dcp_tensor *t)
{
	require(strlen(t->name) > 0 && t->n_dims <= RSH_MAX_DIMS);
	for (uint32_t i = 0; i < t->n_chunks; i++) {
		const struct rsh_dcp_chunk *c = &t->chunks[i];
		struct rsh_box box;

		rsh_dcp_box(t, c, &box);
		for (uint32_t k = 0; k < t->n_dims; k++)
			require(box.from[k] <= t->dims[k] &&
				box.size[k] <= t->dims[k] - box.from[k]);
		require(c->file < d->n_files || c->file == RSH_DCP_NO_FILE);
		require(c->length == RSH_DCP_BY_NAME ||
			c->length <= INT64_MAX - c->offset);
	}
}

static void check(const struct rsh_dcp *d)
{
	for (uint32_t i = 0; i < d->n_files; i++)
		require(is_allowed(d, d->files[i]));
	for (uint32_t i = 0; i < d->n_tensors; i++) {
		check_tensor(d, &d->tensors[i]);
		require(i == 0 || strcmp(d->tensors[i - 1].name,
					d->tensors[i].name) < 0);
	}
	for (uint32_t i = 0; i < d->n_values; i++)
		require(!d->values[i].file || is_allowed(d, d->values[i].file));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_bytes b = { data, size };
	const struct rsh_byte_source src = { fuzz_pread_within, &b, size,
					     "fuzz" };
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_dcp_builder *both;
	struct rsh_dcp *d, *joined = NULL;
	int rc = rsh_dcp_parse(&src, &d, &err);

	if (rc) {
		require((rc == -EBADMSG || rc == -ENOTSUP) && *err.text);
		return 0;
	}
	check(d);
	both = rsh_dcp_builder_new("fuzz");
	require(both && rsh_dcp_builder_add(both, &src, &err) == 0 &&
		rsh_dcp_builder_add(both, &src, &err) == 0 &&
		rsh_dcp_builder_finish(both, &joined, &err) == 0);
	rsh_dcp_builder_free(both);
	check(joined);
	require(joined->n_tensors == d->n_tensors &&
		joined->n_values == d->n_values);
	rsh_dcp_free(joined);
	rsh_dcp_free(d);
	return 0;
}
