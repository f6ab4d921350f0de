/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever a server answers: a request ends, and the values that it gives are
 * those of names that were asked for, and not too long.  The first byte of an
 * input says what is asked, the others are the answer. */
#include "fuzz_support.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "storage/cache/memcached_i.h"

#define LARGEST 3000
#define BESIDE 1024

static const char *const names[] = { "rsh2-a", "rsh2-b" };

struct taken {
	size_t n;
};

static void take(void *ctx, const char *name, const uint8_t *value, size_t n)
{
	struct taken *t = ctx;
	uint8_t last = 0;

	require(name == names[0] || name == names[1]);
	require(n <= LARGEST + BESIDE && ++t->n <= 2);
	for (size_t i = 0; i < n; i++)
		last ^= value[i];
	require(n || !last);
}

static int ask(struct rsh_link *l, unsigned what)
{
	struct taken t = { 0 };

	switch (what & 3) {
	case 0:
		return rsh_link_get(l, names, 2, take, &t);
	case 1:
		return rsh_link_store(l, names[0], "value", 5, 10, true);
	case 2:
		return rsh_link_store(l, names[0], "value", 5, 0, false);
	default:
		return rsh_link_remove(l, names[1]);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rsh_link *l;
	int ends[2], code;

	if (!size || size > 65536)
		return 0;
	require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
	l = rsh_link_new(ends[0], 1000, LARGEST);
	require(l && rsh_link_begin(l, NULL) == 0);
	require(write(ends[1], data + 1, size - 1) == (ssize_t)size - 1);
	shutdown(ends[1], SHUT_WR);
	code = ask(l, data[0]);
	require(code >= 0 && code != ETIMEDOUT && code != EINVAL);
	rsh_link_free(l);
	close(ends[1]);
	return 0;
}
