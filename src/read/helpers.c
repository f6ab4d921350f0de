/* SPDX-License-Identifier: Apache-2.0 */
/* read/helpers.c runs parts of a read in parallel by helper threads. */
#include "config.h"

#include "tiles_i.h"

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

int rsh_helpers_run(struct rsh_helpers *h, size_t n, rsh_parallel_work *work,
		    void *ctx)
{
	struct helped helped = { work, ctx, rsh_work_began() };
	struct rsh_error unused = RSH_ERROR_INIT;
	unsigned now = atomic_load(&h->n), helpers;
	int rc;

	if (n == 0)
		return 0;
	/* Without a helper, the caller does one part after the other. */
	do
		helpers = (unsigned)rsh_min_u64(n - 1, RSH_READ_HELPERS - now);
	while (helpers && !atomic_compare_exchange_weak(&h->n, &now,
							now + helpers));
	rc = rsh_parallel_for(1 + helpers, n, helped_do, &helped, &unused);
	atomic_fetch_sub(&h->n, helpers);
	return rc;
}
