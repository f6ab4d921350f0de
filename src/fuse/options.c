/* SPDX-License-Identifier: Apache-2.0 */
/* fuse/options.c has the options of a server, and those that libfuse and the
 * kernel interpret. */
#include "config.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/fuse/server.h"
#include "rsh/util/mem.h"

#define AT(member) RSH_OPTION_AT(struct rsh_server_options, member)

char *rsh_mount_option_escape(const char *value)
{
	char *safe = rsh_alloc_array(strlen(value) + 1, 2), *to = safe;

	if (!safe)
		return NULL;
	for (; *value; *to++ = *value++)
		if (*value == ',' || *value == '\\')
			*to++ = '\\';
	*to = '\0';
	return safe;
}

/* Passes on an option of libfuse or the kernel. */
static int set_kernel(const struct rsh_setting *s)
{
	struct rsh_server_options *o = s->base;
	cleanup_free char *safe = rsh_mount_option_escape(s->value ?: "");

	if (safe)
		o->mount_opts = rsh_arena_format(
			s->memory, "%s%s%s%s%s", o->mount_opts ?: "",
			o->mount_opts ? "," : "", s->def->name,
			s->value ? "=" : "", safe);
	return safe && o->mount_opts ? 0 : rsh_error_nomem(s->err);
}

static int refuse_rw(const struct rsh_setting *s)
{
	return rsh_error_set(s->err, EINVAL, "-o %s: the file system is "
			     "read-only", s->def->name);
}

const struct rsh_option rsh_server_rows[] = {
	{ "io-mode", "auto|passthrough|direct|cached",
	  "how the kernel reads: from SOURCE itself, without the page cache, "
	  "or with it (default: auto, the first that works)", rsh_set_word,
	  AT(io_mode) },
	{ .name = NULL },
};

/* libfuse and the kernel interpret these, and mount(8) documents them. */
#define KERNEL(name, arg) { name, arg, "", set_kernel }

const struct rsh_option rsh_server_mount_rows[] = {
	{ "allow_other", NULL, "allow access by other users", set_kernel },
	{ "allow_root", NULL, "allow access by root", set_kernel },
	{ "auto_unmount", NULL, "unmount if the daemon dies", set_kernel },
	{ "default_permissions", NULL, "always set", rsh_set_nothing,
	  .aside = true },
	{ "ro", NULL, "always set", rsh_set_nothing, .aside = true },
	{ "rw", NULL, "refused: a mount is read-only", refuse_rw },
	{ "fsname", "NAME", "device name in df (default: SOURCE)", rsh_set_text,
	  AT(fsname), .may_be_empty = true },
	{ "subtype", "NAME", "type shown is fuse.NAME (default: reshardfs)",
	  rsh_set_text, AT(subtype), .may_be_empty = true },
	{ "max_read", "BYTES",
	  "maximum size of a read request (default: set by the kernel)",
	  rsh_set_number, AT(max_read), .min = 4096, .max = UINT_MAX },
	{ "max_threads", "N",
	  "maximum number of threads if SOURCE does not answer (default: 64)",
	  rsh_set_number, AT(max_threads), .min = 1, .max = 100000 },
	{ "max_idle_threads", "N",
	  "number of threads that serve requests (default: number of CPUs, 2 "
	  "to 8)", rsh_set_number, AT(max_idle_threads), .min = 1,
	  .max = 100000 },
	{ "clone_fd", NULL, "ignored", rsh_set_nothing, .aside = true },
	{ .name = NULL },
};

const struct rsh_option rsh_server_kernel_rows[] = {
	KERNEL("suid", NULL), KERNEL("nosuid", NULL), KERNEL("dev", NULL),
	KERNEL("nodev", NULL), KERNEL("exec", NULL), KERNEL("noexec", NULL),
	KERNEL("atime", NULL), KERNEL("noatime", NULL), KERNEL("sync", NULL),
	KERNEL("async", NULL), KERNEL("dirsync", NULL),
	KERNEL("context", "CONTEXT"), KERNEL("fscontext", "CONTEXT"),
	KERNEL("defcontext", "CONTEXT"), KERNEL("rootcontext", "CONTEXT"),
	{ .name = NULL },
};
