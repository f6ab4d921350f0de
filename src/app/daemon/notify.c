/* SPDX-License-Identifier: Apache-2.0 */
/* app/daemon/notify.c sends a message to the socket that NOTIFY_SOCKET names. */
#include "config.h"

#include "daemon_i.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "rsh/util/log.h"
#include "rsh/util/mem.h"

static int send_to(const char *name, const char *message)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	const size_t n = strlen(name), len = strlen(message);
	cleanup_fd int fd = -1;

	if ((*name != '/' && *name != '@') || n >= sizeof(to.sun_path))
		return -EINVAL;
	memcpy(to.sun_path, name, n);
	if (*name == '@')
		to.sun_path[0] = '\0'; /* an abstract name */
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (sendto(fd, message, len, MSG_NOSIGNAL, (struct sockaddr *)&to,
		   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) < 0)
		return -errno;
	return 0;
}

void rsh_notify(const char *message)
{
	const char *name = getenv("NOTIFY_SOCKET");
	int rc;

	if (!name || !*name)
		return;
	rc = send_to(name, message);
	if (rc)
		rsh_log_warning("NOTIFY_SOCKET %s: %s", name, strerror(-rc));
}
