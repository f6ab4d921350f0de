/* SPDX-License-Identifier: Apache-2.0 */
/* unit/objects_support.h - servers of objects, and what these hold. */
#ifndef UNIT_OBJECTS_SUPPORT_H
#define UNIT_OBJECTS_SUPPORT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct object_server {
	pid_t pid;
	int in; /* it ends when this is closed */
	unsigned port;
	char line[256]; /* what it says of itself: the port, and more */
};

/* Runs a server of lib/ with further arguments, NULL at the end. */
void object_server_run(struct object_server *s, const char *python,
		       const char *program, const char *const *more);
/* Does so with lib/object_server.py. */
void object_server_start(struct object_server *s, const char *const *more);
void object_server_stop(struct object_server *s);

/* The bytes of an object's range in its first version. */
void object_bytes(const char *name, uint64_t offset, uint8_t *buf, size_t len);

#endif
