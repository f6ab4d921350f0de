/* SPDX-License-Identifier: Apache-2.0 */
/* util/blocking.c asks the kernel how often this thread gave up the processor
 * by itself. */
#include "config.h"

#include "rsh/util/blocking.h"

#include <sys/resource.h>

/* To ask costs as much as a small read that does not sleep.  Of a thread that
 * did not sleep in its last ALERT calls only one call in SAMPLE is asked
 * about. */
#define ALERT 64
#define SAMPLE 8

#define NOT_ASKED (-1L)

static _Thread_local unsigned long waits;
static _Thread_local unsigned alert = ALERT; /* calls still to be asked about */
static _Thread_local unsigned passed;        /* calls passed over since then */

static _Thread_local uint64_t since; /* 0: no work has begun */

/* The kernel counts it elsewhere when another thread displaces this one. */
static long times_slept(void)
{
	struct rusage use;

	return getrusage(RUSAGE_THREAD, &use) == 0 ? use.ru_nvcsw : 0;
}

long rsh_blocking_begin(void)
{
	if (alert == 0 && ++passed < SAMPLE)
		return NOT_ASKED;
	passed = 0;
	return times_slept();
}

void rsh_blocking_end(long begin)
{
	if (begin == NOT_ASKED)
		return;
	if (times_slept() > begin) {
		waits++;
		alert = ALERT;
	} else if (alert) {
		alert--;
	}
}

unsigned long rsh_blocking_count(void)
{
	return waits;
}

void rsh_work_set_began(uint64_t ns)
{
	since = ns;
}

uint64_t rsh_work_began(void)
{
	return since;
}
