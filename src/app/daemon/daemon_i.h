/* SPDX-License-Identifier: Apache-2.0 */
/* app/daemon/daemon_i.h has the parts of a mount: the child process that serves
 * it and the parent that waits until the child serves, signals, the mount that
 * a mount point already has, the tree of all steps, and the control directory.
 *
 * The child keeps the standard streams until it serves, so that the user of the
 * command sees all errors before that.  Then the child writes to a pipe, and
 * the parent checks the mount itself.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "rsh/app/mount.h"
#include "rsh/app/options.h"
#include "rsh/app/printer.h"
#include "rsh/fuse/server.h"
#include "rsh/storage/objects.h"
#include "rsh/storage/servers.h"
#include "rsh/vfs/control.h"
#include "rsh/vfs/steps.h"

struct rsh_daemon {
	pid_t child; /* 0 in the child */
	int pipe;    /* this process's end of the pipe */
};

/* Forks; both processes return.  Returns 0 or -errno. */
int rsh_daemon_start(struct rsh_daemon *d);

/* The parent must call this.  It waits until the child serves `mountpoint`.  If
 * the child fails or dies, it removes a mount that is left.  It returns the
 * child's exit status if the child exited, because the child has then already
 * printed the error. */
enum rsh_exit rsh_daemon_wait(struct rsh_daemon *d, const char *mountpoint);

/* The child must call this before it sets signal handlers.  It leaves the
 * terminal's session; from then on the child outlives its parent. */
void rsh_daemon_detach(void);
/* The child must call this, from any thread.  It leaves the standard streams
 * and, unless it has to `stay`, the working directory, and notifies the
 * parent. */
void rsh_daemon_ready(struct rsh_daemon *d, bool stay);

/* ---- messages to a service manager, as with sd_notify(3) ---- */

/* Sends one message, such as "READY=1", to the socket that NOTIFY_SOCKET names;
 * does nothing if there is no such socket.  Any thread may call it; errors are
 * logged. */
void rsh_notify(const char *message);

/* ---- signals ----
 *
 * SIGUSR1 writes statistics to the log.  SIGUSR2 switches the logging of all
 * requests on and off.  A thread waits for the signals, so that their work may
 * take locks and allocate memory.
 */

struct rsh_signals;

/* This must be called before there is any other thread.  From then on the
 * signals are pending until the thread takes them. */
void rsh_signals_block(void);
/* Takes the signals until rsh_signals_stop(); tell(ctx) writes the statistics.
 * Returns 0 or -errno. */
int rsh_signals_start(void (*tell)(void *ctx), void *ctx,
		      struct rsh_signals **out);
void rsh_signals_stop(struct rsh_signals *s);

/* Unmounts, by SIGTERM to the calling thread, when all processes have closed
 * the other end of the pipe `fd`; 0 means no pipe.  Returns 0 or -errno. */
int rsh_holder_watch(unsigned fd);

/* ---- the identity of a mount ---- */

/* Returns SOURCE and the options of a mount as texts, and what the environment
 * decides: what addresses mean, and the directory of tables.  Their order and
 * paths do not depend on how they were written, and options that do not change
 * what a mount shows are omitted, such as the destination of the log.  The
 * value is from jansson; NULL: memory is out.  The working directory and the
 * environment must still be those of the command. */
json_t *rsh_identity(const struct rsh_options *o);

/* ---- the mount that is there ---- */

/* This must be called before the mount, in the directory of the command and in
 * a process with one thread.  It waits while another process mounts there.
 * *lock is -1 or a descriptor; other processes wait for this one until
 * rsh_stack_unlock() or until the process ends.  The call does not wait for a
 * mount that hangs.  If a mount with the same source and options is there,
 * *shown is what it shows (from malloc; rsh_facts); or *same is true if it
 * follows its source, which is logged.  Another mount is a notice.  Returns 0
 * or -errno with a sentence, also for a mount whose daemon is gone or does not
 * answer. */
int rsh_stack_look(const struct rsh_options *o, const json_t *identity,
		   bool *same, char **shown, int *lock, struct rsh_error *err);
/* Logs that nothing is done; `step` may be NULL. */
void rsh_stack_tell_same(const char *mountpoint, const char *source,
			 const char *step);
/* Unlocks also for processes that have inherited the lock. */
void rsh_stack_unlock(int lock);

/* ---- the tree of all steps of a job ---- */

/* It must outlive the tree. */
struct rsh_mount_steps {
	const struct rsh_options *options;
	struct rsh_source_options files; /* how files of steps are read */
};

/* Returns 0 or -errno with a sentence; *out must be freed after a failure too,
 * if it is set. */
int rsh_mount_steps_open(struct rsh_mount_steps *m, struct rsh_vfs **out,
			 struct rsh_error *err);
/* Prints the content of .reshardfs/steps.  Any thread may call it. */
void rsh_mount_steps_print(struct rsh_printer *out, const struct rsh_vfs *v);
/* Makes a text with the command that prints the plan of each step, with these
 * options of the mount (from malloc).  Returns 0 or -ENOMEM. */
int rsh_mount_steps_plans(const struct rsh_options *o, const struct rsh_vfs *v,
			  char **text);

/* ---- the files of the control directory .reshardfs ---- */

/* The facts do not change once the mount serves. */
struct rsh_facts {
	const struct rsh_options *options;
	rsh_mount_planner *plan;
	const struct rsh_vfs *tree; /* the virtual tree beside that directory */
	struct rsh_store_io *io;
	const struct rsh_server *server;
	/* Both paths are absolute, or as they were given if they could not be
	 * resolved. */
	char *source, *mountpoint;
	uint64_t cache_bytes; /* upper limit of the cache */
	const json_t *identity; /* result of rsh_identity() */
	/* Tells step, files and conversion from others; NULL: the tree follows
	 * its source. */
	char *shown;
	uint64_t begun; /* time of the start, from rsh_clock_ns() */
};

/* This must be called before the mount, because it collects what cannot be
 * found later.  Returns 0 or -ENOMEM. */
int rsh_facts_init(struct rsh_facts *f, const struct rsh_options *o,
		   const json_t *identity,
		   rsh_mount_planner *plan);
/* Sets f->shown for the tree, which f has now and which was opened by `cfg`.
 * Returns 0, or -errno with a sentence. */
int rsh_facts_set_shown(struct rsh_facts *f, const struct rsh_vfs_config *cfg,
			struct rsh_error *err);
void rsh_facts_clear(struct rsh_facts *f);
/* This is the `make` of rsh_control_options; its context is a struct
 * rsh_facts. */
int rsh_facts_make(void *facts, enum rsh_control_file which, uint32_t rank,
		   char **text);

/* ---- the sandbox ----
 *
 * It is entered before the daemon reads files that other users have written:
 * landlock restricts the files, and seccomp the system calls.
 *
 * The sandbox must be entered before any thread is started, because landlock
 * restricts one thread and the threads and processes that it starts.  A process
 * under landlock cannot change mounts, and a process without new privileges
 * cannot use fusermount3, so fuse/mounter.c is forked before.  Whatever is
 * opened later needs a rule, or must be opened before: libgcc_s, which the
 * first cancelled thread loads, the time zone, and the files of
 * libcurl.  Use `strace -f` on a mount under test: it must not show EACCES.
 *
 * landlock rules are for inodes: a rule for the root of a mount does not apply
 * to the next mount on the same directory.  A rule for the parent directory
 * would let the parsers open its other entries.  So the mounter opens the file
 * and sends the descriptor.  It also looks up servers of objects, because the
 * rules for /etc/hosts and resolv.conf end when other files replace these.
 *
 * Builds with a sanitizer need ptrace and /proc: they have no filter of system
 * calls and may read /proc.
 */

/* Restricts this thread and all that it starts, permanently.  They lose new
 * privileges, all files except those that the options name, and the system
 * calls that serving does not need.  If other users may read the mount,
 * debuggers and core dumps cannot read the process's memory.  A restriction
 * that the kernel does not have is omitted.  Connections are allowed to the n
 * `places`, the addresses of SOURCE and of adapters, which are NULL for paths,
 * and to `servers`, which may be NULL.  Returns 0, or -errno with a sentence
 * about a file of the options that must be read for this. */
int rsh_sandbox_enter(const struct rsh_options *o,
		      struct rsh_objects *const *places, unsigned n,
		      const struct rsh_cache_servers *servers,
		      struct rsh_error *err);

/* ---- system calls that a daemon does not need ---- */

/* Makes these calls fail with EPERM in this thread and those that it starts.
 * PR_SET_NO_NEW_PRIVS must be set before.  Internet sockets are allowed only if
 * `internet` is true, and Unix sockets of datagrams, which the log and systemd
 * receive, only if `datagrams` is true.  Returns 0 or -errno: -ENOTSUP in a
 * build without libseccomp or with a sanitizer, which needs some of the
 * calls. */
int rsh_syscalls_refuse(bool internet, bool datagrams);
