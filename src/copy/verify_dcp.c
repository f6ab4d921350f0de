/* SPDX-License-Identifier: Apache-2.0 */
/* copy/verify_dcp.c asks whether the chunks of a distributed checkpoint are its
 * tensors, each element once. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>

#include "copy_i.h"
#include "rsh/dialects/dcp.h"
#include "rsh/store/store.h"

int rsh_verify_chunks(const struct rsh_source *source, struct rsh_answer *out)
{
	const struct rsh_dcp *d = rsh_source_dcp(source);
	const char *path = rsh_store_root(rsh_source_store(source));

	for (uint32_t i = 0; d && i < d->n_tensors; i++) {
		struct rsh_error why = RSH_ERROR_INIT;
		struct rsh_problem p = { 0 };
		uint64_t n = 0;
		int rc = rsh_dcp_uncovered(&d->tensors[i], &n, &why);

		if (rc == 0 && n > 0)
			rc = rsh_error_set(&why, EBADMSG, "tensor %s: %" PRIu64
					   " elements are in no chunk",
					   d->tensors[i].name, n);
		if (rc == 0)
			continue;
		if (rc == -ENOMEM ||
		    rsh_problem_set(&p, NULL, path, "%s", why.text) ||
		    rsh_answer_add(out, &p))
			return -ENOMEM;
	}
	return 0;
}
