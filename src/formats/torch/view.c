/* SPDX-License-Identifier: Apache-2.0 */
/* formats/torch/view.c keeps ranges of a file that were read before. */
#include "config.h"

#include "torch_i.h"

#include <stdlib.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/util/mem.h"
#include "rsh/wire/bytes.h"

int rsh_torch_bad(const struct rsh_torch_reader *r, uint64_t at,
		  const char *what)
{
	return rsh_bytes_damaged(&r->src, at, what, r->err);
}

bool rsh_torch_view_has(const struct rsh_torch_view *v, uint64_t at, uint64_t n)
{
	return rsh_any(i, v->n,
		       at >= v->stretch[i].at &&
		       at - v->stretch[i].at <= v->stretch[i].n &&
		       n <= v->stretch[i].n - (at - v->stretch[i].at));
}

ssize_t rsh_torch_view_pread(void *ctx, void *buf, size_t len, uint64_t offset)
{
	const struct rsh_torch_view *v = ctx;

	for (uint32_t i = 0; i < v->n; i++) {
		const uint64_t at = v->stretch[i].at;

		if (offset < at || offset - at > v->stretch[i].n ||
		    len > v->stretch[i].n - (offset - at))
			continue;
		memcpy(buf, v->stretch[i].data + (offset - at), len);
		return (ssize_t)len;
	}
	return v->file->pread_fn(v->file->ctx, buf, len, v->base + offset);
}

int rsh_torch_view_load(struct rsh_torch_view *v, uint64_t at, uint64_t n,
			struct rsh_error *err)
{
	int rc;

	n = rsh_min_u64(n, v->size - at);
	if (v->n == RSH_TORCH_STRETCHES || rsh_torch_view_has(v, at, n))
		return 0;
	v->stretch[v->n].data = rsh_alloc_array((size_t)n, 1);
	if (!v->stretch[v->n].data)
		return rsh_error_nomem(err);
	v->stretch[v->n].at = at;
	v->stretch[v->n].n = n;
	rc = rsh_bytes_read(v->file, v->stretch[v->n].data, (size_t)n,
			    v->base + at, err);
	if (rc)
		free(v->stretch[v->n].data);
	else
		v->n++;
	return rc;
}

void rsh_torch_view_clear(struct rsh_torch_view *v)
{
	for (uint32_t i = 0; i < v->n; i++)
		free(v->stretch[i].data);
	v->n = 0;
}
