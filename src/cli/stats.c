/* cli/stats.c - `stats`: what a mount has counted so far. */
#include "config.h"

#include "stats.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "figures.h"
#include "output.h"
#include "rsh/util/mem.h"
#include "rsh/vfs/control.h"
#include "text.h"

/* Far more than a mount writes; the directory may be anybody's. */
#define MAX_BYTES 65536

static int read_all(int fd, char *text, size_t max, size_t *length)
{
	ssize_t n;

	for (*length = 0; *length < max; *length += (size_t)n) {
		n = read(fd, text + *length, max - *length);
		if (n < 0 && errno == EINTR)
			n = 0;
		else if (n < 0)
			return -errno;
		else if (n == 0)
			return 0;
	}
	return -EFBIG;
}

static int not_ours(const char *path, struct rsh_error *err)
{
	return rsh_error_set(err, EINVAL, "%s: not the mount point of a "
			     "reshardfs", path);
}

static int open_stats(const char *path, struct rsh_error *err)
{
	cleanup_fd int dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int fd;

	if (dir < 0)
		return rsh_error_set(err, errno, "%s: %s", path,
				     strerror(errno));
	/* Anybody's directory may have a pipe of that name. */
	fd = openat(dir, RSH_CONTROL_NAME "/stats",
		    O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
		return not_ours(path, err);
	if (fd < 0 && errno == EACCES)
		return rsh_error_set(err, EACCES, "%s: only who has mounted it "
				     "may see its statistics", path);
	return fd < 0 ? rsh_error_set(err, errno, "%s: %s", path,
				      strerror(errno)) : fd;
}

static int load(const char *path, json_t **out, struct rsh_error *err)
{
	cleanup_free char *text = malloc(MAX_BYTES);
	cleanup_fd int fd = -1;
	size_t length;
	int rc;

	if (!text)
		return rsh_error_nomem(err);
	fd = open_stats(path, err);
	if (fd < 0)
		return fd;
	rc = read_all(fd, text, MAX_BYTES, &length);
	if (rc && rc != -EFBIG && rc != -EISDIR)
		return rsh_error_set(err, -rc, "%s: %s", path, strerror(-rc));
	*out = rc ? NULL : json_loadb(text, length, 0, NULL);
	return *out ? 0 : not_ours(path, err);
}

static int print_heading(const struct rsh_output *out, json_t *all)
{
	const char *source, *step, *level;
	int pid;

	if (json_unpack(all, "{s:s,s:s,s:s,s:i}", "source", &source, "step",
			&step, "log_level", &level, "pid", &pid))
		return -EINVAL;
	rsh_output_put(out, source);
	fputs(": ", out->f);
	rsh_output_put(out, step);
	fprintf(out->f, ", process %d, log level ", pid);
	rsh_output_put(out, level);
	fputs("\n\n", out->f);
	return 0;
}

enum rsh_exit rsh_stats(const struct rsh_options *o)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_output out;
	json_t *all = NULL;
	int rc = load(o->mountpoint, &all, &err);

	rsh_output_init(&out, o);
	if (rc == 0 && o->json) {
		rc = rsh_output_json(&out, json_incref(all));
	} else if (rc == 0) {
		rc = print_heading(&out, all);
		if (rc == 0)
			rc = rsh_figures_print(all, &out);
		if (rc == -EINVAL)
			rc = not_ours(o->mountpoint, &err);
	}
	json_decref(all);
	if (rc == -ENOMEM)
		rsh_error_nomem(&err);
	return rc ? rsh_exit_failed(o, rc, &err) : RSH_EXIT_GOOD;
}
