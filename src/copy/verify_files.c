/* SPDX-License-Identifier: Apache-2.0 */
/* copy/verify_files.c verifies files by a manifest, without any source. */
#include "config.h"

#include "rsh/copy/verify.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "copy_i.h"
#include "rsh/util/mem.h"

struct job {
	struct rsh_manifest_index index;
	const char *dir;
	const struct rsh_copy_control *control;
	struct rsh_problem *problems; /* [entry] */
};

static int digest_listed(const struct job *j, const struct rsh_manifest_file *f,
			 int fd, struct rsh_problem *out)
{
	cleanup_free uint64_t *sums =
		rsh_alloc_array(f->n_records, sizeof(*sums));
	struct rsh_digest d;
	int rc;

	if (!sums || rsh_digest_init(&d, f->records, f->n_records, sums))
		return -ENOMEM;
	rc = rsh_copy_feed_real(fd, f->size, j->control, rsh_digest_sink, &d);
	if (rc == 0)
		rc = rsh_digest_compare(&d, f, j->dir, out);
	rsh_digest_clear(&d);
	return rc;
}

/* What cannot be read is a problem of the file; other failures are the
 * command's. */
static int check_listed(void *ctx, size_t i, struct rsh_error *err)
{
	struct job *j = ctx;
	const struct rsh_manifest_entry *e = &j->index.entries[i];
	struct rsh_problem *p = &j->problems[i];
	struct rsh_manifest_line line;
	cleanup_fd int fd = -1;
	uint64_t size;
	int rc = rsh_open_regular(j->dir, e->path, &fd, &size);

	if (rc == 0 && size != e->size)
		return rsh_problem_set(p, j->dir, e->path, "has %" PRIu64
				       " bytes, not %" PRIu64, size, e->size) ?
			rsh_error_nomem(err) : 0;
	if (rc == 0) {
		rc = rsh_manifest_index_get(&j->index, e, &line, err);
		if (rc)
			return rc;
		rc = digest_listed(j, &line.file, fd, p);
		rsh_manifest_line_clear(&line);
	}
	if (rc == -EINTR)
		return rsh_error_set(err, EINTR, "interrupted");
	if (rc == -ENOMEM ||
	    (rc && rsh_problem_set(p, j->dir, e->path, "%s", rc == -ENOENT ?
				   "is missing" : strerror(-rc))))
		return rsh_error_nomem(err);
	return 0;
}

static int check_listed_all(struct job *j, struct rsh_answer *out,
			    struct rsh_error *err)
{
	const struct rsh_copy_control *c = j->control;
	int rc;

	j->problems = calloc(j->index.n + 1, sizeof(*j->problems));
	if (!j->problems)
		return rsh_error_nomem(err);
	for (size_t i = 0; i < j->index.n; i++)
		out->bytes += j->index.entries[i].size;
	out->n_files = (uint32_t)j->index.n;
	if (c->begin)
		c->begin(c->ctx, out->bytes);
	rc = rsh_crew_run(c->n_jobs, j->index.n, check_listed, j, err);
	if (rsh_answer_take(out, j->problems, j->index.n) && rc == 0)
		rc = rsh_error_nomem(err);
	return rc;
}

int rsh_verify_files(const char *manifest, const char *dir,
		     const struct rsh_copy_control *control,
		     struct rsh_answer *out, struct rsh_error *err)
{
	struct job j = { .dir = dir, .control = control };
	int rc = rsh_manifest_index_open(&j.index, manifest, err);

	if (rc == 0)
		rc = check_listed_all(&j, out, err);
	rsh_manifest_index_clear(&j.index);
	return rc;
}
