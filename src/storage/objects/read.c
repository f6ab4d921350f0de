/* SPDX-License-Identifier: Apache-2.0 */
/* storage/objects/read.c reads ranges of objects into the caller's vectors. */
#include "config.h"

#include "objects_i.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/blocking.h"
#include "rsh/util/checked.h"
#include "rsh/util/clock.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"

/* The tag by which answers are known: of the first answer, or else of the
 * listing.  NULL: there is none. */
static const char *range_tag(const struct rsh_object *object)
{
	const char *held = atomic_load(&object->held);

	return !held ? object->etag : *held ? held : NULL;
}

/* Returns whether no answer with bytes of the object has been seen. */
static bool range_is_first(const struct rsh_object *object)
{
	return object->is_listed && !atomic_load(&object->held);
}

/* Bytes of the object are only taken from answers with the tag of the first
 * one. */
static void range_hold(struct rsh_objects *o, const struct rsh_object *object,
		       const char *tag)
{
	struct rsh_object *to = (struct rsh_object *)(uintptr_t)object;
	char *none = NULL, *held = strdup(tag);

	if (held && !atomic_compare_exchange_strong(&to->held, &none, held))
		free(held);
	if (!object->etag)
		return;
	/* Some servers list other tags than they send, of some objects or of
	 * all.  Or it is another object, of the same size and second. */
	if (strcmp(object->etag, tag) == 0)
		o->tags_agree = true;
	else if (!atomic_exchange(&o->tags_differ, true) && o->tags_agree)
		rsh_log_warning("%s/%s: its ETag is not the listed one, as "
				"those of other files are: if it was replaced "
				"since the mount was made, mount again", o->url,
				object->name);
}

static enum rsh_http_verdict range_judge(const struct object_transfer *t,
					 const char **why)
{
	const struct rsh_object *object = t->requests->object;
	const bool is_first = range_is_first(object);
	const struct rsh_http_asked asked = {
		.first = t->first, .len = t->len, .size = object->size,
		.etag = range_tag(object), .modified = object->mtime.tv_sec,
		.is_listed = is_first, .is_label = t->objects->is_s3,
	};
	const enum rsh_http_verdict v = rsh_http_judge(&t->answer, &asked, why);

	if (v == RSH_HTTP_RIGHT && is_first)
		range_hold(t->objects, object, t->answer.etag);
	return v;
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
static void range_condition(const struct rsh_objects *o,
			    struct object_request *q)
{
	const struct rsh_object *object = q->object;
	const char *tag = range_tag(object);

	if (o->no_conditions || (o->tags_differ && range_is_first(object)))
		return;
	q->etag = tag;
	q->unmodified_since = tag ? 0 : object->mtime.tv_sec;
}

/* Some servers refuse every condition, or list other tags than those of the
 * objects.  So the first request for an object is made again without one; its
 * answer is compared with the listing. */
static int range_carry_out_plainly(struct rsh_objects *o,
				   struct object_request *q)
{
	const bool never = q->is_unsupported;
	const char *asked = q->etag ? q->etag : "";
	int rc;

	rsh_object_again(q);
	q->etag = NULL;
	q->unmodified_since = 0;
	rc = rsh_object_carry_out(o, q);
	if (rc == 0 && (never || strcmp(asked, q->answer.etag) == 0))
		o->no_conditions = true;
	return rc;
}

static int range_carry_out(struct rsh_objects *o, struct object_request *q)
{
	const bool is_first = range_is_first(q->object);
	cleanup_secret char *address = rsh_object_address(o, q->object->name);
	int rc;

	if (!address)
		return rsh_error_nomem(&q->err);
	q->address = address;
	range_condition(o, q);
	rc = rsh_object_carry_out(o, q);
	if (rc && is_first && (q->etag || q->unmodified_since) &&
	    (q->answer.status == 412 || q->is_unsupported))
		rc = range_carry_out_plainly(o, q);
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
	what = rsh_object_what(o, object->name);
	if (!what)
		return rsh_error_nomem(err);
	q.what = what;
	rc = range_carry_out(o, &q);
	return rc ? rsh_error_set(err, q.err.code, "%s", q.err.text) : 0;
}
