/* SPDX-License-Identifier: Apache-2.0 */
/* app/options/mount.c has the options of mounts and of their daemon. */
#include "config.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "options_i.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

/* Passes on an option of libfuse or the kernel. */
static int set_kernel(const struct rsh_setting *s)
{
	const char *value = s->value ? s->value : "";
	struct rsh_options *o = s->base;
	/* Every character of the value may need a backslash. */
	cleanup_free char *safe = malloc(2 * strlen(value) + 1);
	char *to = safe;

	for (; to && *value; *to++ = *value++)
		if (*value == ',' || *value == '\\')
			*to++ = '\\';
	if (to) {
		*to = '\0';
		o->mount_opts = rsh_arena_format(
			s->memory, "%s%s%s%s%s",
			o->mount_opts ? o->mount_opts : "",
			o->mount_opts ? "," : "", s->def->name,
			s->value ? "=" : "", safe);
	}
	return to && o->mount_opts ? 0 : rsh_error_nomem(s->err);
}

static int refuse_rw(const struct rsh_setting *s)
{
	return rsh_error_set(s->err, EINVAL, "-o %s: the file system is "
			     "read-only", s->def->name);
}

const struct rsh_option rsh_mount_rows[] = {
	{ "foreground", NULL, "run in the foreground", rsh_set_flag,
	  RSH_AT(foreground), .aside = true, .first = true, .letter = 'f' },
	{ "stack", NULL,
	  "mount again even if SOURCE is mounted there with the same options",
	  rsh_set_flag, RSH_AT(stack), .aside = true },
	{ "allow-non-empty", NULL,
	  "hide the files of a MOUNTPOINT that is not empty", rsh_set_flag,
	  RSH_AT(allow_non_empty), .aside = true },
	{ "sandbox", "auto|off",
	  "sandbox the daemon with landlock and seccomp, as far as the kernel "
	  "has them (default: auto)", rsh_set_word, RSH_AT(no_sandbox) },
	{ "steps-interval", "SECONDS",
	  "with --steps all: time between looks at SOURCE (default: 2; 30 on "
	  "networks)", rsh_set_number, RSH_AT(steps_interval), .min = 1,
	  .max = 86400, .unit = 1000, .needs = "steps=all" },
	{ "debug", NULL, "log every request; implies -f", rsh_set_flag,
	  RSH_AT(debug), .aside = true, .letter = 'd' },
	{ .name = NULL },
};

/* libfuse and the kernel interpret these, and mount(8) documents them. */
#define KERNEL(name, arg) { name, arg, "", set_kernel, .bare = true }

const struct rsh_option rsh_mount_option_rows[] = {
	{ "allow_other", NULL, "allow access by other users", set_kernel,
	  .bare = true },
	{ "allow_root", NULL, "allow access by root", set_kernel,
	  .bare = true },
	{ "auto_unmount", NULL, "unmount if the daemon dies", set_kernel,
	  .bare = true },
	{ "holder", "FD",
	  "unmount when all other ends of the pipe FD are closed",
	  rsh_set_number, .bare = true, RSH_AT(holder), .min = 3,
	  .max = INT_MAX },
	{ "default_permissions", NULL, "always set", rsh_set_nothing,
	  .bare = true, .aside = true },
	{ "ro", NULL, "always set", rsh_set_nothing, .bare = true,
	  .aside = true },
	{ "rw", NULL, "refused: a mount is read-only", refuse_rw,
	  .bare = true },
	{ "fsname", "NAME", "device name in df (default: SOURCE)", rsh_set_text,
	  .bare = true, RSH_AT(fsname), .may_be_empty = true },
	{ "subtype", "NAME", "type shown is fuse.NAME (default: reshardfs)",
	  rsh_set_text, .bare = true, RSH_AT(subtype), .may_be_empty = true },
	{ "max_read", "BYTES",
	  "maximum size of a read request (default: set by the kernel)",
	  rsh_set_number, .bare = true, RSH_AT(max_read), .min = 4096,
	  .max = UINT_MAX },
	{ "max_threads", "N",
	  "maximum number of threads if SOURCE does not answer (default: 64)",
	  rsh_set_number, .bare = true, RSH_AT(max_threads), .min = 1,
	  .max = 100000 },
	{ "max_idle_threads", "N",
	  "number of threads that serve requests (default: number of CPUs, 2 "
	  "to 8)", rsh_set_number, .bare = true, RSH_AT(max_idle_threads),
	  .min = 1, .max = 100000 },
	{ "clone_fd", NULL, "ignored", rsh_set_nothing, .bare = true,
	  .aside = true },
	{ .name = NULL },
};

const struct rsh_option rsh_kernel_rows[] = {
	KERNEL("suid", NULL), KERNEL("nosuid", NULL), KERNEL("dev", NULL),
	KERNEL("nodev", NULL), KERNEL("exec", NULL), KERNEL("noexec", NULL),
	KERNEL("atime", NULL), KERNEL("noatime", NULL), KERNEL("sync", NULL),
	KERNEL("async", NULL), KERNEL("dirsync", NULL),
	KERNEL("context", "CONTEXT"), KERNEL("fscontext", "CONTEXT"),
	KERNEL("defcontext", "CONTEXT"), KERNEL("rootcontext", "CONTEXT"),
	{ .name = NULL },
};
