/* SPDX-License-Identifier: Apache-2.0 */
/* storage/objects/request.c waits for single requests, and gets complete
 * bodies. */
#include "config.h"

#include "objects_i.h"

#include <errno.h>
#include <string.h>

#include "rsh/util/clock.h"

#define MS UINT64_C(1000000)

uint64_t rsh_object_deadline(const struct rsh_objects *o)
{
	return rsh_clock_ns() + o->timeout_ms * MS;
}

static int request_carry_out(struct rsh_objects *o, struct object_request *q)
{
	int rc = rsh_object_submit(o, q);

	return rc ? rsh_error_nomem(&q->err) : rsh_object_wait(q);
}

int rsh_object_once(struct rsh_objects *o, struct object_request *q)
{
	const char *proxy = q->direct ? NULL : o->proxy;
	const uint64_t now = rsh_clock_ns();
	const bool was_lost = q->is_lost;
	int rc;

	rsh_object_look_up(o, q->address, proxy, 0);
	rc = request_carry_out(o, q);
	if (was_lost || !q->is_lost || !rc)
		return rc;
	rsh_object_look_up(o, q->lost,
			   proxy && !strcmp(q->lost, proxy) ? proxy : NULL,
			   now);
	q->rc = 0;
	return request_carry_out(o, q);
}

static bool get_take(struct object_request *q, const char *data, size_t len)
{
	struct object_get *g = q->ctx;

	if (len > g->max - g->len) {
		q->rc = rsh_error_set(&q->err, EFBIG, "%s: too large", q->what);
		return false;
	}
	memcpy(g->data + g->len, data, len);
	g->len += len;
	g->data[g->len] = '\0';
	return true;
}

static void get_restart(struct object_request *q)
{
	struct object_get *g = q->ctx;

	g->len = 0;
	g->data[0] = '\0';
}

int rsh_object_get(struct rsh_objects *o, struct object_get *g,
		   object_perform *perform, struct rsh_error *err)
{
	struct object_request q = {
		.address = g->address, .what = g->what, .ctx = g,
		.deadline = g->deadline, .sign = g->sign, .is_put = g->is_put,
		.direct = g->direct, .headers = g->headers, .form = g->form,
		.sink = get_take, .restart = get_restart,
	};
	int rc;

	g->data = rsh_secret_alloc(g->max + 1);
	if (!g->data)
		return rsh_error_nomem(err);
	get_restart(&q);
	rc = perform(o, &q);
	if (rc == 0)
		return 0;
	rsh_secret_free(g->data);
	g->data = NULL;
	return rsh_error_set(err, q.err.code, "%s", q.err.text);
}
