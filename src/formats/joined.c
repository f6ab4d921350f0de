/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "rsh/formats/joined.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/formats/files.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/thread.h"

int rsh_joined_init(struct rsh_joined *j,
		    const struct rsh_joined_format *format,
		    const struct rsh_source *source, size_t n)
{
	j->format = format;
	j->source = source;
	pthread_mutex_init(&j->lock, NULL);
	j->files = calloc(n + 1, sizeof(*j->files));
	return j->files ? 0 : -ENOMEM;
}

void rsh_joined_clear(struct rsh_joined *j)
{
	for (uint32_t i = 0; j->files && i < j->n; i++)
		j->format->free_it(j->files[i]);
	rsh_dcp_free(j->dcp.pub);
	pthread_mutex_destroy(&j->lock);
	free(j->files);
	rsh_tensor_problems_clear(&j->problems);
}

/* ---- files ---- */

int rsh_joined_scan(const struct rsh_scan_job *job,
		    struct rsh_ckpt_index **out, struct rsh_error *err)
{
	struct rsh_joined *j = rsh_source_state(job->source);
	void *file;
	int rc;

	/* An index does not say what a file has of all tensors. */
	if (job->stored)
		return j->files[job->file] ? 0 : -ESTALE;
	rc = j->format->read(j, job->file, job->bytes,
			     job->how != RSH_SCAN_HEADERS, job->names, &file,
			     out, err);
	if (rc)
		return rc;
	pthread_mutex_lock(&j->lock);
	/* A description uses those that were read first. */
	if (!j->described && !j->files[job->file]) {
		j->files[job->file] = file;
		file = NULL;
	}
	pthread_mutex_unlock(&j->lock);
	j->format->free_it(file);
	return 0;
}

static int load_file(void *ctx, size_t i, struct rsh_error *err)
{
	struct rsh_joined *j = ctx;
	cleanup_format_file struct rsh_format_file f;
	struct rsh_error why = RSH_ERROR_INIT;
	int rc;

	if (j->files[i])
		return 0;
	rc = rsh_format_file_open(j->source,
				  j->format->name(j, (uint32_t)i), &f, &why) ?:
	     j->format->read(j, (uint32_t)i, &f.bytes, false, NULL,
			     &j->files[i], NULL, &why);
	if (rc == 0 || rc == -ENOMEM)
		return rc ? rsh_error_nomem(err) : 0;
	rsh_log_notice("%s", why.text);
	return rsh_errno_is_unread(-rc) ?
	       rsh_error_set(err, -rc, "%s", why.text) : 0;
}

int rsh_joined_load(const struct rsh_source *s, struct rsh_error *err)
{
	struct rsh_joined *j = rsh_source_state(s);

	return j->described ? 0 :
	       rsh_parallel_for(rsh_source_scan_threads(s), j->n, load_file, j,
				err);
}

/* ---- the description ---- */

struct rsh_dcp *rsh_joined_begin(struct rsh_joined *j)
{
	/* An attempt that failed may have left one. */
	rsh_dcp_free(j->dcp.pub);
	j->problems.n = 0;
	j->dcp.pub = calloc(1, sizeof(*j->dcp.pub));
	if (j->dcp.pub)
		j->dcp.pub->by_name = true;
	return j->dcp.pub;
}

static const char *name_at(const char *v, size_t i, size_t size)
{
	const char *name;

	memcpy(&name, v + i * size, sizeof(name));
	return name;
}

int rsh_joined_each(void *v, size_t n, size_t size,
		    int (*take)(void *ctx, void *first, size_t n), void *ctx)
{
	char *at = v;
	int rc = 0;

	for (size_t i = 0, end; i < n && rc == 0; i = end) {
		for (end = i + 1; end < n && strcmp(name_at(at, end, size),
						    name_at(at, i, size)) == 0;)
			end++;
		rc = take(ctx, at + i * size, end - i);
	}
	return rc;
}
