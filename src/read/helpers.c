/* SPDX-License-Identifier: Apache-2.0 */
/* read/helpers.c runs parts of a read in parallel by helper threads. */
#include "config.h"

#include "helpers_i.h"

#include "rsh/read/body.h"
#include "rsh/util/blocking.h"
#include "rsh/util/checked.h"

struct helped {
	rsh_parallel_work *work;
	void *ctx;
	uint64_t since;
};

static int helped_do(void *ctx, size_t i, struct rsh_error *err)
{
	const struct helped *h = ctx;

	rsh_work_set_began(h->since);
	return h->work(h->ctx, i, err);
}

/* Reserves helper threads.  Without one, the caller does one part after the
 * other. */
static unsigned helpers_take(struct rsh_helpers *h, size_t wanted)
{
	unsigned now = atomic_load(&h->n), n;

	do
		n = (unsigned)rsh_min_u64(wanted, RSH_READ_HELPERS - now);
	while (n && !atomic_compare_exchange_weak(&h->n, &now, now + n));
	return n;
}

int rsh_helpers_run(struct rsh_helpers *h, size_t n, rsh_parallel_work *work,
		    void *ctx)
{
	struct helped helped = { work, ctx, rsh_work_began() };
	struct rsh_error unused = RSH_ERROR_INIT;
	unsigned helpers;
	int rc;

	if (n == 0)
		return 0;
	helpers = helpers_take(h, n - 1);
	rc = rsh_parallel_for(1 + helpers, n, helped_do, &helped, &unused);
	atomic_fetch_sub(&h->n, helpers);
	return rc;
}
