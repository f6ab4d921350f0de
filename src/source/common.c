/* SPDX-License-Identifier: Apache-2.0 */
/* source/common.c reads what common.json says of a step of Checkpoint 2.0. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/source/inspect.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "source_i.h"

/* It has a handful of numbers. */
#define COMMON_BYTES_MAX (64 * 1024)

static int common_load(const struct rsh_source *s, const char *name,
		       const char *path, struct rsh_ckpt2_common *out,
		       struct rsh_error *err)
{
	cleanup_free char *data = malloc(COMMON_BYTES_MAX);
	cleanup_handle struct rsh_handle *h = NULL;
	int rc = rsh_handle_open(s->store, name, &h);
	ssize_t n;

	if (!data)
		return rsh_error_nomem(err);
	if (rc)
		return rsh_store_open_error(s->store, name, rc, err);
	n = rsh_handle_pread(h, data, COMMON_BYTES_MAX, 0);
	if (n < 0)
		return rsh_error_set(err, (int)-n, "%s: %s", path,
				     strerror((int)-n));
	return rsh_ckpt2_common_parse(data, (size_t)n, path, out, err);
}

int rsh_source_common(const struct rsh_source *s, struct rsh_ckpt2_common *out)
{
	const struct rsh_candidate *c = &s->candidates[s->chosen];
	struct rsh_error err = RSH_ERROR_INIT;
	cleanup_free char *name = NULL, *path = NULL;
	const struct rsh_checkpoint *one;
	int rc;

	if (!s->checkpoint2 || c->first == c->end)
		return 0;
	one = &s->listing.files[c->first];
	if (asprintf(&name, "%.*scommon.json", (int)(one->base - one->name),
		     one->name) < 0)
		name = NULL;
	if (!name || asprintf(&path, "%s/%s", s->path, name) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	rc = common_load(s, name, path, out, &err);
	if (rc && rc != -ENOMEM)
		rsh_log_notice("%s", err.text);
	return rc == -ENOMEM ? rc : 0;
}
