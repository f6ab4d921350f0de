/* SPDX-License-Identifier: Apache-2.0 */
/* formats/dcp/values.c reads the values of a distributed checkpoint that are
 * not tensors: the step, learning rates and so on. */
#include "config.h"

#include "dcp_i.h"

#include <errno.h>
#include <stdlib.h>

#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/thread.h"
#include "rsh/wire/pickle_values.h"

/* Values after the first VALUES_MAX are not read: these are objects of Megatron
 * that cannot be shown. */
#define VALUES_MAX 4096
/* Reads wait for the storage, so the number of threads depends on how many
 * requests it handles at once, not on the processors. */
#define VALUE_THREADS 32

struct values {
	struct rsh_source *source;
	const struct rsh_dcp_value **wanted; /* [value] */
	struct rsh_store_attr *attrs; /* [value]: attributes of its file */
	struct rsh_values *found;
};

/* Opens a value's file, which may be a file that is not listed by the
 * source. */
static int value_open(const struct values *all, const struct rsh_dcp_value *v,
		      struct rsh_handle **h, struct rsh_stat *st)
{
	int rc = rsh_handle_open(rsh_source_store(all->source), v->file, h);

	if (rc == 0)
		rc = rsh_handle_look(*h, st);
	return rc ? rc : st->kind == RSH_IS_FILE ? 0 : -EINVAL;
}

/* If a value cannot be read, the tensors are still shown. */
static int value_read(void *ctx, size_t i, struct rsh_error *err)
{
	const struct values *all = ctx;
	const struct rsh_dcp_value *v = all->wanted[i];
	struct rsh_error why = RSH_ERROR_INIT;
	struct rsh_byte_source bytes = { .pread_fn = rsh_handle_pread };
	cleanup_handle struct rsh_handle *h = NULL;
	struct rsh_stat st;
	int rc;

	if (!v->file || value_open(all, v, &h, &st))
		return 0;
	bytes.ctx = h;
	bytes.size = st.size;
	bytes.path = v->file;
	all->attrs[i] = (struct rsh_store_attr){
		.mode = st.attr.mode, .uid = st.attr.uid, .gid = st.attr.gid,
	};
	rc = rsh_dcp_value_read(&bytes, v->offset,
				rsh_source_dcp(all->source)->by_name ?
				RSH_DCP_BY_NAME : v->length,
				&all->found->values[i], &why);
	if (rc == -ENOMEM)
		return rsh_error_nomem(err);
	if (rc)
		rsh_log_info("%s: %s is not shown", why.text, v->name);
	return 0;
}

int rsh_dcp_values(struct rsh_source *source,
		   const struct rsh_plan_options *opts,
		   struct rsh_values *out, struct rsh_error *err)
{
	const struct rsh_dcp *d = rsh_source_dcp(source);
	const uint32_t n = d->n_values < VALUES_MAX ? d->n_values : VALUES_MAX;
	cleanup_free const struct rsh_dcp_value **wanted =
		calloc((size_t)n + 1, sizeof(*wanted));
	cleanup_free struct rsh_store_attr *attrs =
		calloc((size_t)n + 1, sizeof(*attrs));
	struct values all = { source, wanted, attrs, out };
	int rc = rsh_values_alloc(out, n);

	if (rc || !wanted || !attrs)
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < n; i++)
		if (!opts->wanted ||
		    opts->wanted(opts->ctx, d->values[i].name)) {
			wanted[out->n] = &d->values[i];
			out->names[out->n++] = d->values[i].name;
		}
	if (out->n > 0)
		rc = rsh_parallel_for(VALUE_THREADS, out->n, value_read, &all,
				      err);
	if (rc == 0) {
		bool first = true;

		for (uint32_t i = 0; i < all.found->n; i++) {
			if (!all.found->values[i].pickle)
				continue;
			rsh_values_join_attr(all.found, &all.attrs[i], first);
			first = false;
		}
	}
	return rc;
}
