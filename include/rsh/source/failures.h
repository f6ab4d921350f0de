/* SPDX-License-Identifier: Apache-2.0 */
/* source/failures.h collects the candidates that could not be used, and why.
 * They are logged if another candidate is used, or are one message if none is.
 * Threads: one thread uses it. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "rsh/util/error.h"

struct rsh_failure {
	char *which; /* the candidate's name in messages */
	char *why;   /* in full */
};

struct rsh_failures {
	const char *source; /* path of the source, which the caller owns */
	char text[RSH_ERROR_TEXT_MAX]; /* the reasons of all candidates, for one
				        * message */
	size_t length;
	size_t share; /* characters of each reason that are put into `text` */
	uint32_t n;
	struct rsh_failure *v;
};

/* Prepares for n failures.  Returns 0 or -ENOMEM. */
int rsh_failures_init(struct rsh_failures *f, const char *source, uint32_t n);
void rsh_failures_clear(struct rsh_failures *f);
/* Adds a candidate that cannot be used.  `who` says how many ranks have it;
 * NULL: it is a whole model.  Returns 0 or -ENOMEM. */
int rsh_failures_add(struct rsh_failures *f, const char *which,
		     const char *who, const struct rsh_error *err);
/* Logs a line for each of the first n candidates; `taken` is the one used
 * instead. */
void rsh_failures_log(const struct rsh_failures *f, uint32_t n,
		      const char *taken);
/* Sets the message about a candidate that cannot be read now because of *why,
 * so that no older one may be taken in its place; returns -code. */
int rsh_failures_unread(const char *source, const char *which,
			const struct rsh_error *why, struct rsh_error *err);
/* Sets the message that none of all n_all candidates can be used; returns
 * -code. */
int rsh_failures_none(const struct rsh_failures *f, uint32_t n_all, int code,
		      const char *what, struct rsh_error *err);
