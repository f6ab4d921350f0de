/* SPDX-License-Identifier: Apache-2.0 */
/* app/daemon/syscalls.c applies a seccomp filter to the calling thread and to
 * those that it starts.
 *
 * The filter lists the calls that are refused, not those that are allowed:
 * libc, libfuse and jansson choose the calls, and other versions choose other
 * calls.  A call that is missing in a list of allowed calls would make a read
 * fail years later.  The list has calls for other programs, other processes,
 * privileges, networks and mounts, and for parts of the kernel that serving
 * does not need.
 */
#include "config.h"

#include "daemon_i.h"

#include <errno.h>

#if !defined(HAVE_SECCOMP) || defined(WITH_SANITIZER)

int rsh_syscalls_refuse(bool internet, bool datagrams)
{
	(void)internet;
	(void)datagrams;
	return -ENOTSUP;
}

#else

#include <sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* Names that this libseccomp or processor does not know are ignored. */
static const char *const refused[] = {
	/* These start programs or access other processes. */
	"execve", "execveat", "uselib", "ptrace", "process_vm_readv",
	"process_vm_writev", "process_madvise", "process_mrelease", "kcmp",
	"pidfd_open", "pidfd_getfd", "pidfd_send_signal", "kill", "tkill",
	"rt_sigqueueinfo", "rt_tgsigqueueinfo", "migrate_pages", "move_pages",
	/* These change privileges and namespaces. */
	"setuid", "setgid", "setreuid", "setregid", "setresuid", "setresgid",
	"setfsuid", "setfsgid", "setgroups", "capset", "unshare", "setns",
	"personality",
	/* These change owners, modes, times and attributes, which landlock does
	 * not restrict, or make links and special files. */
	"utime", "utimes", "futimesat", "chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown",
	"fchownat", "setxattr", "lsetxattr", "fsetxattr", "setxattrat",
	"removexattr", "lremovexattr", "fremovexattr", "removexattrat",
	"truncate", "truncate64", "mknod", "mknodat", "link", "linkat",
	"symlink", "symlinkat", "file_setattr",
	/* These are for mounts, and for opening files without their
	 * directories. */
	"mount", "umount", "umount2", "pivot_root", "chroot", "move_mount",
	"open_tree", "open_tree_attr", "fsopen", "fsconfig", "fsmount",
	"fspick", "mount_setattr", "name_to_handle_at", "open_by_handle_at",
	"swapon", "swapoff", "quotactl", "quotactl_fd", "fanotify_init",
	/* These are for parts of the kernel that serving does not need. */
	"bpf", "perf_event_open", "userfaultfd", "io_uring_setup",
	"io_uring_enter", "io_uring_register", "keyctl", "add_key",
	"request_key", "init_module", "finit_module", "delete_module",
	"kexec_load", "kexec_file_load", "modify_ldt", "lookup_dcookie",
	"nfsservctl", "vm86", "vm86old",
	/* These take processor time from others. */
	"setpriority", "ioprio_set", "sched_setscheduler", "sched_setparam",
	"sched_setattr",
	/* These affect the whole machine. */
	"reboot", "acct", "syslog", "vhangup", "iopl", "ioperm", "settimeofday",
	"stime", "clock_settime", "clock_settime64", "clock_adjtime",
	"clock_adjtime64", "adjtimex", "sethostname", "setdomainname",
};

/* Adds a rule unless an earlier one has failed: this call fails with that error
 * number if its arguments are like these. */
#define REFUSE(rc, f, code, ...) \
	((rc) = (rc) ?: seccomp_rule_add(f, SCMP_ACT_ERRNO(code), __VA_ARGS__))

/* Refuses calls by their names. */
static int refuse_names(scmp_filter_ctx f)
{
	/* Caches note the time of use in files that are open; other files are
	 * named by a path. */
	static const char *const times[] = { "utimensat", "utimensat_time64" };
	int rc = 0;

	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		const int number = seccomp_syscall_resolve_name(refused[i]);

		if (number != __NR_SCMP_ERROR)
			REFUSE(rc, f, EPERM, number, 0);
	}
	for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
		const int number = seccomp_syscall_resolve_name(times[i]);

		if (number != __NR_SCMP_ERROR)
			REFUSE(rc, f, EPERM, number, 1,
			       SCMP_A1(SCMP_CMP_NE, 0));
	}
	return rc;
}

/* Refuses all sockets except internet sockets and the netlink socket with which
 * the lookup of names reads the addresses of the machine, or these too.
 *
 * Programs of the user listen to streams of Unix sockets (docker.sock, D-Bus,
 * ssh-agent), and landlock does not restrict connections to them.  The log and
 * systemd receive datagrams.  The kernel takes SOCK_RAW for a datagram
 * socket. */
static int refuse_sockets(scmp_filter_ctx f, bool internet, bool datagrams)
{
	static const unsigned streams[] = { SOCK_STREAM, SOCK_SEQPACKET };
	int rc = 0;

	REFUSE(rc, f, EAFNOSUPPORT, SCMP_SYS(socket), 1,
	       SCMP_A0_32(SCMP_CMP_GT, AF_NETLINK));
	for (unsigned family = 0; family <= AF_NETLINK; family++)
		if (family != AF_UNIX &&
		    !(internet && (family == AF_INET || family == AF_INET6 ||
				   family == AF_NETLINK)))
			REFUSE(rc, f, EAFNOSUPPORT, SCMP_SYS(socket), 1,
			       SCMP_A0_32(SCMP_CMP_EQ, family));
	if (!datagrams)
		REFUSE(rc, f, EPERM, SCMP_SYS(socket), 1,
		       SCMP_A0_32(SCMP_CMP_EQ, AF_UNIX));
	for (unsigned i = 0; datagrams && i < 2; i++)
		REFUSE(rc, f, EPERM, SCMP_SYS(socket), 2,
		       SCMP_A0_32(SCMP_CMP_EQ, AF_UNIX),
		       SCMP_A1_32(SCMP_CMP_MASKED_EQ, 0xf, streams[i]));
	return rc;
}

int rsh_syscalls_refuse(bool internet, bool datagrams)
{
	static const unsigned flags[] = {
		CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWNET,
		CLONE_NEWIPC, CLONE_NEWUTS, CLONE_NEWCGROUP,
	};
	static const unsigned long words[] = { TIOCSTI, TIOCLINUX };
	scmp_filter_ctx f = seccomp_init(SCMP_ACT_ALLOW);
	int rc;

	if (!f)
		return -ENOMEM;
	/* Besides calls by name it refuses calls depending on their arguments:
	 * sockets except those of the log and of systemd, signals to other
	 * processes, input for the terminal. */
	rc = refuse_names(f) ?: refuse_sockets(f, internet, datagrams);
	REFUSE(rc, f, EPERM, SCMP_SYS(tgkill), 1,
	       SCMP_A0_32(SCMP_CMP_NE, (uint32_t)getpid()));
	for (int i = 0; i < 2; i++)
		REFUSE(rc, f, EPERM, SCMP_SYS(ioctl), 1,
		       SCMP_A1_32(SCMP_CMP_EQ, (uint32_t)words[i]));
	/* A filter cannot read the arguments of clone3, so clone3 is refused;
	 * libc then calls clone. */
	REFUSE(rc, f, ENOSYS, SCMP_SYS(clone3), 0);
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
		REFUSE(rc, f, EPERM, SCMP_SYS(clone), 1,
		       SCMP_A0(SCMP_CMP_MASKED_EQ, flags[i], flags[i]));
	rc = rc ?: seccomp_load(f);
	seccomp_release(f);
	return rc;
}

#endif
