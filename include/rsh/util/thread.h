/* SPDX-License-Identifier: Apache-2.0 */
/* util/thread.h - threads that take no signals: these are for the threads of the
 * program that waits for them, or, in a library, of whoever calls it.  Any thread
 * may call. */
#ifndef RSH_UTIL_THREAD_H
#define RSH_UTIL_THREAD_H

#include <pthread.h>

/* Starts a thread, which has to be joined.  Returns 0 or -errno. */
int rsh_thread_start(pthread_t *thread, void *(*run)(void *), void *arg);
/* Starts one that nobody joins.  Returns 0 or -errno. */
int rsh_thread_start_alone(void *(*run)(void *), void *arg);

#endif
