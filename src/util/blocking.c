/* SPDX-License-Identifier: Apache-2.0 */
/* util/blocking.c counts calls with a voluntary context switch
 * (getrusage(2)). */
#include "config.h"

#include "rsh/util/blocking.h"

#include <sys/resource.h>

/* getrusage() takes as long as a small read that does not sleep.  When none of
 * the last ALERT calls of a thread has slept, only one call in SAMPLE is
 * examined. */
#define ALERT 64
#define SAMPLE 8

#define NOT_EXAMINED (-1L)

static _Thread_local unsigned long n_slept;
static _Thread_local unsigned alert = ALERT; /* calls still to be examined */
static _Thread_local unsigned passed; /* calls since the last examined one */

static _Thread_local uint64_t work_began; /* 0: no request */

/* Involuntary context switches are not in this number. */
static long times_slept(void)
{
	struct rusage use;

	return getrusage(RUSAGE_THREAD, &use) == 0 ? use.ru_nvcsw : 0;
}

long rsh_blocking_begin(void)
{
	if (alert == 0 && ++passed < SAMPLE)
		return NOT_EXAMINED;
	passed = 0;
	return times_slept();
}

void rsh_blocking_end(long begin)
{
	if (begin == NOT_EXAMINED)
		return;
	if (times_slept() > begin) {
		n_slept++;
		alert = ALERT;
	} else if (alert) {
		alert--;
	}
}

unsigned long rsh_blocking_count(void)
{
	return n_slept;
}

void rsh_work_set_began(uint64_t ns)
{
	work_began = ns;
}

uint64_t rsh_work_began(void)
{
	return work_began;
}
