/* fuse/server.c - the life of a mount: session, mount, loop, unmount. */
#include "config.h"

#include "ops_i.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rsh/util/log.h"
#include "rsh/util/mem.h"

/* As long as it is set, libfuse's complaints become the error's sentence. */
static _Thread_local struct rsh_error *complaint;

void rsh_libfuse_listen(struct rsh_error *err)
{
	complaint = err;
}

static void take_complaint(const char *text)
{
	if (complaint->code)
		rsh_error_set(complaint, EIO, "%s; %s",
			      strdupa(complaint->text), text);
	else
		rsh_error_set(complaint, EIO, "%s", text);
}

__attribute__((format(printf, 2, 0)))
static void log_libfuse(enum fuse_log_level level, const char *fmt, va_list ap)
{
	enum rsh_log_level ours = level <= FUSE_LOG_ERR ? RSH_LOG_ERROR :
				  level == FUSE_LOG_WARNING ? RSH_LOG_WARNING :
				  level <= FUSE_LOG_INFO ? RSH_LOG_INFO :
							   RSH_LOG_DEBUG;
	char line[1024];
	size_t n;

	vsnprintf(line, sizeof(line), fmt, ap);
	n = strlen(line);
	while (n > 0 && line[n - 1] == '\n')
		line[--n] = '\0';
	if (complaint && ours == RSH_LOG_ERROR)
		take_complaint(line);
	else
		rsh_log(ours, "%s", line);
}

/* ---- options for libfuse ---- */

/* Appends "<sep><key><value>"; commas and backslashes of the value are
 * escaped as libfuse's option parser wants it. */
static bool add_option(char **opts, const char *key, const char *value)
{
	size_t have = *opts ? strlen(*opts) : 0;
	char *p = realloc(*opts, have + strlen(key) + 2 * strlen(value) + 2);

	if (!p)
		return false;
	*opts = p;
	p += have;
	if (have)
		*p++ = ',';
	p = stpcpy(p, key);
	for (; *value; value++) {
		if (*value == ',' || *value == '\\')
			*p++ = '\\';
		*p++ = *value;
	}
	*p = '\0';
	return true;
}

static bool collect_options(const struct rsh_server_options *o,
			    unsigned max_read, char **opts)
{
	char number[16], *have;

	snprintf(number, sizeof(number), "%u", max_read);
	if (!add_option(opts, "ro", "") ||
	    !add_option(opts, "default_permissions", "") ||
	    !add_option(opts, "subtype=", o->subtype) ||
	    !add_option(opts, "fsname=", o->fsname))
		return false;
	if (!add_option(opts, "max_read=", number))
		return false;
	if (!o->mount_opts)
		return true;
	have = *opts;
	if (asprintf(opts, "%s,%s", have, o->mount_opts) < 0)
		*opts = NULL;
	free(have);
	return *opts != NULL;
}

static int new_session(struct rsh_server *s, const struct rsh_server_options *o,
		       struct rsh_error *err)
{
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
	cleanup_free char *opts = NULL;

	if (!collect_options(o, s->max_read, &opts) ||
	    fuse_opt_add_arg(&args, "reshardfs") ||
	    fuse_opt_add_arg(&args, "-o") || fuse_opt_add_arg(&args, opts) ||
	    (o->debug && fuse_opt_add_arg(&args, "-d"))) {
		fuse_opt_free_args(&args);
		return rsh_error_nomem(err);
	}
	s->session = fuse_session_new(&args, &rsh_fuse_ops,
				      sizeof(rsh_fuse_ops), s);
	fuse_opt_free_args(&args);
	return s->session ? 0 : -EINVAL;
}

/* ---- read-ahead ---- */

#define READAHEAD_KB 1024

/* mountinfo writes blanks and backslashes as \ooo. */
static void unescape_octal(char *s)
{
	char *to = s;

	while (*s) {
		if (s[0] == '\\' && s[1] && s[2] && s[3]) {
			*to++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 |
				       (s[3] - '0'));
			s += 4;
		} else {
			*to++ = *s++;
		}
	}
	*to = '\0';
}

/* The number of the block device that stands for a mount in /sys/class/bdi,
 * without asking the file system, which does not answer yet. */
static bool device_of_mount(const char *mountpoint, char *device, size_t max)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	cleanup_free char *line = NULL;
	size_t cap = 0;
	bool found = false;

	if (!f)
		return false;
	/* The last line of a mount point is the mount on top. */
	while (getline(&line, &cap, f) > 0) {
		char where[PATH_MAX], dev[32];

		if (sscanf(line, "%*s %*s %31s %*s %4095s", dev, where) != 2)
			continue;
		unescape_octal(where);
		if (strcmp(where, mountpoint) == 0) {
			snprintf(device, max, "%s", dev);
			found = true;
		}
	}
	fclose(f);
	return found;
}

/* The kernel reads ahead 128 KiB on a new mount, whatever the file system
 * offers; root may raise that.  Without it reads are smaller, no more. */
static void raise_readahead(const char *mountpoint)
{
	char device[32], path[96], value[16];
	cleanup_fd int fd = -1;
	int n = snprintf(value, sizeof(value), "%d", READAHEAD_KB);

	if (!device_of_mount(mountpoint, device, sizeof(device)))
		return;
	snprintf(path, sizeof(path), "/sys/class/bdi/%s/read_ahead_kb", device);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, value, (size_t)n) != n)
		rsh_log_info("%s: %s: read-ahead stays at its default", path,
			     strerror(errno));
}

/* ---- mount ---- */

static int check_mountpoint(const char *path, char *resolved,
			    struct rsh_error *err)
{
	struct stat st;

	if (!realpath(path, resolved) || stat(resolved, &st) != 0)
		return rsh_error_set(err, errno, "%s: %s", path,
				     strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return rsh_error_set(err, ENOTDIR, "%s: not a directory", path);
	return 0;
}

/* While reads are computing as many as there are processors will do. */
#define FEW_THREADS 8
#define MAX_THREADS 64

static void choose_threads(struct rsh_server *s,
			   const struct rsh_server_options *o)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	n = n < 2 ? 2 : n < FEW_THREADS ? n : FEW_THREADS;
	s->n_threads = o->max_idle_threads ? o->max_idle_threads : (unsigned)n;
	s->max_threads = o->max_threads ? o->max_threads : MAX_THREADS;
	if (s->n_threads > s->max_threads)
		s->n_threads = s->max_threads;
}

static int mount_session(struct rsh_server *s, const char *mountpoint,
			 struct rsh_error *err)
{
	/* Shells start background jobs with SIGINT ignored, and libfuse leaves
	 * alone what is ignored. */
	signal(SIGTERM, SIG_DFL);
	signal(SIGINT, SIG_DFL);
	/* Before the mount: a signal must never find one that nobody takes
	 * down. */
	if (fuse_set_signal_handlers(s->session))
		return rsh_error_set(err, EINVAL, "cannot set signal handlers");
	s->has_signals = true;
	if (fuse_session_mount(s->session, mountpoint))
		return -EIO;
	s->mounted = true;
	raise_readahead(mountpoint);
	return rsh_device_attach(s);
}

int rsh_server_mount(struct rsh_vfs *vfs, const struct rsh_server_options *o,
		     struct rsh_server **out, struct rsh_error *err)
{
	const struct rsh_streams_options streams = {
		.lenders_prepare = true,
	};
	struct rsh_error said = RSH_ERROR_INIT;
	struct rsh_server *s;
	char mountpoint[PATH_MAX];
	int rc;

	rc = check_mountpoint(o->mountpoint, mountpoint, err);
	if (rc)
		return rc;
	s = calloc(1, sizeof(*s));
	if (!s)
		return rsh_error_nomem(err);
	if (pthread_mutex_init(&s->files.lock, NULL) ||
	    pthread_mutex_init(&s->passthrough.lock, NULL) ||
	    rsh_turns_init(&s->turns)) {
		free(s);
		return rsh_error_nomem(err);
	}
	s->vfs = vfs;
	s->io_mode = o->io_mode;
	choose_threads(s, o);
	/* A stream lends no more at once. */
	s->max_read = o->max_read && o->max_read < RSH_STREAM_MAX ?
		      o->max_read : (unsigned)RSH_STREAM_MAX;

	fuse_set_log_func(log_libfuse);
	rsh_libfuse_listen(&said);
	rc = new_session(s, o, &said);
	if (rc == 0)
		rc = rsh_streams_new(vfs, &streams, &s->streams);
	if (rc == 0)
		rc = rsh_digests_new(s->streams, &s->digests);
	if (rc == 0)
		rc = mount_session(s, mountpoint, &said);
	rsh_libfuse_listen(NULL);
	if (rc) {
		rsh_server_free(s);
		return rsh_error_set(err, -rc, "cannot mount on %s%s%s",
				     o->mountpoint, said.code ? ": " : "",
				     said.text);
	}
	*out = s;
	return 0;
}

static void unmount(struct rsh_server *s)
{
	if (!s->mounted)
		return;
	fuse_session_unmount(s->session);
	s->mounted = false;
}

int rsh_server_run(struct rsh_server *s, void (*ready)(void *ctx), void *ctx)
{
	int rc;

	s->ready = ready;
	s->ready_ctx = ctx;
	rc = rsh_loop_run(s);
	/* Those who wait are answered through the session's descriptor. */
	if (!rsh_digests_stop(s->digests))
		s->stuck = true;
	unmount(s);
	if (!rsh_streams_stop(s->streams))
		s->stuck = true;
	return rc;
}

bool rsh_server_is_stuck(const struct rsh_server *s)
{
	return s->stuck;
}

bool rsh_server_is_direct(const struct rsh_server *s)
{
	return s->direct_io;
}

void rsh_server_stats(const struct rsh_server *s, struct rsh_stream_stats *out)
{
	rsh_streams_stats(s->streams, out);
}

const char *rsh_server_library_version(void)
{
	return fuse_pkgversion();
}

void rsh_server_free(struct rsh_server *s)
{
	if (!s)
		return;
	unmount(s);
	if (s->has_signals)
		fuse_remove_signal_handlers(s->session);
	if (s->stuck)
		return;
	rsh_digests_free(s->digests);
	if (s->session)
		fuse_session_destroy(s->session);
	rsh_streams_free(s->streams);
	rsh_open_files_clear(&s->files);
	rsh_passthrough_free(s);
	pthread_mutex_destroy(&s->files.lock);
	pthread_mutex_destroy(&s->passthrough.lock);
	rsh_turns_destroy(&s->turns);
	free(s);
}
