/* SPDX-License-Identifier: Apache-2.0 */
/* source/failures.h remembers which candidates were tried in vain, and why: for
 * the log once it is known what is taken instead, and for one sentence if
 * nothing is.  It is for one thread.
 */
#ifndef RSH_SOURCE_FAILURES_H
#define RSH_SOURCE_FAILURES_H

#include <stddef.h>
#include <stdint.h>

#include "rsh/util/error.h"

struct rsh_failure {
	char *which; /* the candidate, as people call it */
	char *why;   /* in full */
};

struct rsh_failures {
	const char *source; /* path of the source, which the caller owns */
	char text[RSH_ERROR_TEXT_MAX]; /* the reasons of all candidates, for one
					* message */
	size_t length;
	size_t share; /* characters of each reason that fit it */
	uint32_t n;
	struct rsh_failure *v;
};

/* Makes room for n failures.  0 or -ENOMEM. */
int rsh_failures_init(struct rsh_failures *f, const char *source, uint32_t n);
void rsh_failures_clear(struct rsh_failures *f);
/* Adds a candidate that cannot be taken.  `who` says how many ranks have it.  0
 * or -ENOMEM. */
int rsh_failures_add(struct rsh_failures *f, const char *which,
		     const char *who, const struct rsh_error *err);
/* Logs, when another candidate was taken, a line for each of the first n, which
 * were better. */
void rsh_failures_log(const struct rsh_failures *f, uint32_t n,
		      const char *taken);
/* Sets the sentence that none of all n_all candidates was taken, and returns
 * -code. */
int rsh_failures_none(const struct rsh_failures *f, uint32_t n_all, int code,
		      const char *what, struct rsh_error *err);

#endif
