/* SPDX-License-Identifier: Apache-2.0 */
/* dialects/dcp_values.c reads the values of a distributed checkpoint that are no
 * tensors: the step, learning rates and the like. */
#include "config.h"

#include "rsh/dialects/dcp.h"

#include <errno.h>
#include <stdlib.h>

#include "rsh/util/crew.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"

/* Nobody looks at more; such as there are of Megatron's objects are none that
 * could be shown. */
#define VALUES_MAX 4096
/* A read waits for another: what the storage takes at once counts. */
#define VALUE_THREADS 32

struct values {
	struct rsh_source *source;
	const struct rsh_source_view *view;
	const struct rsh_dcp *dcp;
	char **json;       /* [value]; NULL: it is not shown */
	const bool *taken; /* [value]: it is wanted */
};

struct value_file {
	struct rsh_source *source;
	uint32_t file;
	uint64_t size;
};

static ssize_t value_pread(void *ctx, void *buf, size_t len, uint64_t offset)
{
	const struct value_file *f = ctx;
	int rc;

	if (offset >= f->size)
		return 0;
	if (len > f->size - offset)
		len = (size_t)(f->size - offset);
	rc = rsh_source_read(f->source, f->file, offset, buf, len);
	return rc ? rc : (ssize_t)len;
}

/* What cannot be read is no reason not to show the tensors. */
static int value_read(void *ctx, size_t i, struct rsh_error *err)
{
	const struct values *all = ctx;
	const struct rsh_dcp_value *v = &all->dcp->values[i];
	const struct rsh_source_view *view = all->view;
	struct value_file f = { .source = all->source, .file = v->file };
	struct rsh_byte_source bytes = { .pread_fn = value_pread, .ctx = &f };
	struct rsh_error why = RSH_ERROR_INIT;
	int rc;

	if (!all->taken[i] || v->file >= view->n_ranks ||
	    !view->index[v->file])
		return 0;
	bytes.size = f.size = view->index[v->file]->file_bytes;
	bytes.path = view->path[v->file];
	rc = rsh_dcp_value_read(&bytes, v->offset, all->dcp->by_name ?
				RSH_DCP_BY_NAME : v->length, &all->json[i],
				&why);
	if (rc == -ENOMEM)
		return rsh_error_nomem(err);
	if (rc && rc != -ENOTSUP)
		rsh_log_info("%s: %s is not shown", why.text, v->name);
	return 0;
}

static void values_log(const struct values *all, uint32_t n)
{
	const char *first = NULL;
	uint32_t shown = 0, left = 0;

	for (uint32_t i = 0; i < n; i++) {
		shown += all->json[i] != NULL;
		if (!all->taken[i] || all->json[i])
			continue;
		if (left++ == 0)
			first = all->dcp->values[i].name;
	}
	if (left > 0)
		rsh_log_notice("%u values that are no tensors are not shown, "
			       "such as %s%s", left, first, shown ?
			       "; extra_state.json has the others" : "");
}

int rsh_dcp_extra_state(struct rsh_source *source,
			const struct rsh_source_view *view,
			const struct rsh_conversion_options *opts, char **text,
			size_t *len, struct rsh_error *err)
{
	const struct rsh_dcp *d = rsh_source_dcp(source);
	const uint32_t n = d->n_values < VALUES_MAX ? d->n_values : VALUES_MAX;
	cleanup_free bool *taken = calloc((size_t)n + 1, sizeof(*taken));
	cleanup_free char **json = calloc((size_t)n + 1, sizeof(*json));
	struct values all = { source, view, d, json, taken };
	bool any = false;
	int rc = taken && json ? 0 : rsh_error_nomem(err);

	*text = NULL;
	for (uint32_t i = 0; i < n && rc == 0; i++)
		taken[i] = !opts->wanted ||
			   opts->wanted(opts->ctx, d->values[i].name);
	if (rc == 0 && n > 0)
		rc = rsh_crew_run(VALUE_THREADS, n, value_read, &all, err);
	for (uint32_t i = 0; i < n && rc == 0; i++)
		any |= json[i] != NULL;
	if (rc == 0 && any && rsh_dcp_values_join(d->values, n, json, text,
						  len))
		rc = rsh_error_nomem(err);
	if (rc == 0)
		values_log(&all, n);
	for (uint32_t i = 0; json && i < n; i++)
		free(json[i]);
	return rc;
}
