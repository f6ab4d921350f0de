/* util/waits.c - see waits.h. */
#include "config.h"

#include "rsh/util/waits.h"

#include <sys/resource.h>

static _Thread_local unsigned long waits;

long rsh_waits_begin(void)
{
	struct rusage use;

	/* Being displaced by another thread is counted elsewhere. */
	return getrusage(RUSAGE_THREAD, &use) == 0 ? use.ru_nvcsw : 0;
}

void rsh_waits_end(long begin)
{
	if (rsh_waits_begin() > begin)
		waits++;
}

unsigned long rsh_waits(void)
{
	return waits;
}
