/* SPDX-License-Identifier: Apache-2.0 */
/* storage/objects/read.c reads ranges of objects into the caller's vectors. */
#include "config.h"

#include "objects_i.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "rsh/util/blocking.h"
#include "rsh/util/checked.h"
#include "rsh/util/clock.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

static enum rsh_http_verdict range_judge(const struct object_transfer *t,
					 const char **why)
{
	const struct rsh_object *object = t->requests->object;
	const struct rsh_http_asked asked = {
		.first = t->first, .len = t->len, .size = object->size,
		.etag = object->etag, .modified = object->mtime.tv_sec,
	};

	return rsh_http_judge(&t->answer, &asked, why);
}

/* Copies to the vectors, from where q->first has its place in them. */
static bool range_take(struct object_request *q, const char *data, size_t len)
{
	const struct rsh_object_range *r = q->ctx;
	uint64_t skip = q->first - r->offset;

	for (int i = 0; i < r->n && len; i++) {
		const struct iovec *v = &r->iov[i];
		size_t room;

		if (skip >= v->iov_len) {
			skip -= v->iov_len;
			continue;
		}
		room = v->iov_len - skip < len ? v->iov_len - skip : len;
		memcpy((char *)v->iov_base + skip, data, room);
		data += room;
		len -= room;
		skip = 0;
	}
	return true;
}

static int range_check(const struct rsh_object_range *r, uint64_t *len)
{
	uint64_t end;

	*len = 0;
	for (int i = 0; i < r->n; i++)
		if (!rsh_add_u64(*len, r->iov[i].iov_len, len))
			return -EINVAL;
	if (!rsh_add_u64(r->offset, *len, &end) || end > r->object->size)
		return -EINVAL;
	return 0;
}

/* The listing knows the second in which an object was modified and so does the
 * server; what either knows beyond that is not compared. */
static int range_carry_out(struct rsh_objects *o, struct object_request *q,
			   const struct rsh_object *object)
{
	char *address = rsh_object_address(o, object->name);
	int rc;

	if (!address)
		return rsh_error_nomem(&q->err);
	q->address = address;
	q->etag = object->etag;
	q->unmodified_since = object->mtime.tv_sec;
	rc = rsh_object_carry_out(o, q);
	rsh_secret_free(address);
	return rc;
}

int rsh_objects_read(struct rsh_objects *o, const struct rsh_object_range *r,
		     uint64_t deadline, struct rsh_error *err)
{
	struct rsh_object_range range = *r;
	const struct rsh_object *object = r->object;
	const uint64_t since = rsh_work_began();
	struct object_request q = {
		.deadline = deadline ? deadline : rsh_object_deadline(o),
		.patience = deadline ? 0 : o->timeout_ms * UINT64_C(1000000),
		.since = since ? since : rsh_clock_ns(), .sign = true,
		.judge = range_judge, .sink = range_take,
		.has_range = true, .first = r->offset, .object = object,
		.ctx = &range,
	};
	cleanup_free char *what = NULL;
	int rc = range_check(r, &q.len);

	if (rc)
		return rsh_error_set(err, EINVAL,
				     "%s: the range exceeds the object",
				     object->name);
	if (q.len == 0)
		return 0;
	what = rsh_text_format("%s%s%s", o->url, *object->name ? "/" : "",
			       object->name);
	if (!what)
		return rsh_error_nomem(err);
	q.what = what;
	rc = range_carry_out(o, &q, object);
	return rc ? rsh_error_set(err, q.err.code, "%s", q.err.text) : 0;
}
