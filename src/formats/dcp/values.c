/* SPDX-License-Identifier: Apache-2.0 */
/* formats/dcp/values.c reads the values of a distributed checkpoint that are
 * not tensors: the step, learning rates and so on. */
#include "config.h"

#include "dcp_i.h"

#include <errno.h>
#include <stdio.h>
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
	const struct rsh_dcp *dcp;
	struct rsh_store_attr *attrs; /* [value]: attributes of its file */
	char **json;       /* [value]; NULL: it is not shown */
	const bool *taken; /* [value]: it is wanted */
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
	const struct rsh_dcp_value *v = &all->dcp->values[i];
	struct rsh_error why = RSH_ERROR_INIT;
	struct rsh_byte_source bytes = { .pread_fn = rsh_handle_pread };
	cleanup_handle struct rsh_handle *h = NULL;
	struct rsh_stat st;
	int rc;

	if (!all->taken[i] || !v->file || value_open(all, v, &h, &st))
		return 0;
	bytes.ctx = h;
	bytes.size = st.size;
	bytes.path = v->file;
	all->attrs[i] = (struct rsh_store_attr){
		.mode = st.attr.mode & 0444, .uid = st.attr.uid,
		.gid = st.attr.gid,
	};
	rc = rsh_dcp_value_read(&bytes, v->offset, all->dcp->by_name ?
				RSH_DCP_BY_NAME : v->length, &all->json[i],
				&why);
	if (rc == -ENOMEM)
		return rsh_error_nomem(err);
	if (rc && rc != -ENOTSUP)
		rsh_log_info("%s: %s is not shown", why.text, v->name);
	return 0;
}

/* The mode of the text allows no more than the modes of all files whose values
 * it contains. */
static void values_join_attributes(const struct values *all, uint32_t n,
				   struct rsh_store_attr *out)
{
	bool any = false;

	for (uint32_t i = 0; i < n; i++) {
		const struct rsh_store_attr *a = &all->attrs[i];

		if (!all->json[i])
			continue;
		if (any)
			out->mode &= rsh_store_mode_as(a, out->uid, out->gid);
		else
			*out = *a;
		any = true;
	}
}

static int values_note(const struct values *all, uint32_t n, char **note)
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
	if (left == 0 || asprintf(note, "%u value%s no tensor%s not shown, "
				  "such as %s%s", left, left > 1 ?
				  "s that are" : " that is", left > 1 ?
				  "s are" : " is", first, shown ?
				  ", and extra_state.json has the others" :
				  "") >= 0)
		return 0;
	*note = NULL;
	return -ENOMEM;
}

int rsh_dcp_values(struct rsh_source *source,
		   const struct rsh_plan_options *opts,
		   struct rsh_values *out, char **note, struct rsh_error *err)
{
	const struct rsh_dcp *d = rsh_source_dcp(source);
	const uint32_t n = d->n_values < VALUES_MAX ? d->n_values : VALUES_MAX;
	cleanup_free bool *taken = calloc((size_t)n + 1, sizeof(*taken));
	cleanup_free char **json = calloc((size_t)n + 1, sizeof(*json));
	cleanup_free struct rsh_store_attr *attrs =
		calloc((size_t)n + 1, sizeof(*attrs));
	cleanup_free const char **names =
		rsh_alloc_array((size_t)n + 1, sizeof(*names));
	struct values all = { source, d, attrs, json, taken };
	bool any = false;
	int rc = taken && json && attrs && names ? 0 : rsh_error_nomem(err);

	*out = (struct rsh_values){ .text = NULL };
	for (uint32_t i = 0; i < n && rc == 0; i++)
		taken[i] = !opts->wanted ||
			   opts->wanted(opts->ctx, d->values[i].name);
	if (rc == 0 && n > 0)
		rc = rsh_parallel_for(VALUE_THREADS, n, value_read, &all, err);
	for (uint32_t i = 0; i < n && rc == 0; i++)
		any |= json[i] != NULL;
	for (uint32_t i = 0; i < n && rc == 0; i++)
		names[i] = d->values[i].name;
	if (rc == 0 && any && rsh_pickle_json_join(names, json, n, &out->text,
						   &out->len))
		rc = rsh_error_nomem(err);
	if (rc == 0)
		values_join_attributes(&all, n, &out->attr);
	*note = NULL;
	if (rc == 0 && values_note(&all, n, note))
		rc = rsh_error_nomem(err);
	for (uint32_t i = 0; json && i < n; i++)
		free(json[i]);
	return rc;
}
