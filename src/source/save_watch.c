/* SPDX-License-Identifier: Apache-2.0 */
/* source/save_watch.c waits for changes in a directory into which a job saves,
 * by inotify(7). */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "rsh/source/save_dir.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

/* Files of steps are in SOURCE/STEP/rank_N at most. */
#define WATCH_DEPTH 3
#define WATCHES_MAX 4096

#define CHANGES                                                          \
	(IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE |           \
	 IN_CLOSE_WRITE | IN_MOVE_SELF | IN_DELETE_SELF | IN_ONLYDIR)

struct rsh_save_watch {
	const struct rsh_save_dir_options *dir;
	int fd;      /* of inotify */
	int wake[2]; /* a pipe: rsh_save_watch_wake() writes to it */
	unsigned n;  /* directories that the last update has found */
	bool said;   /* it was logged that not all are watched */
};

/* Whatever is not watched is found at the end of the interval. */
static void watch_say(const struct rsh_save_dir_options *o, int code)
{
	rsh_log_notice("%s: new steps are found only each --steps-interval: %s",
		       o->path,
		       code == ENOSPC ? "fs.inotify.max_user_watches is used "
					"up" :
		       code == EMFILE ? "fs.inotify.max_user_instances is used "
					"up" :
		       code == E2BIG ? "it has too many directories to watch" :
				       strerror(code));
}

int rsh_save_watch_open(const struct rsh_save_dir_options *o,
			struct rsh_save_watch **out)
{
	struct rsh_save_watch *w = calloc(1, sizeof(*w));
	int rc = w ? 0 : -ENOMEM;

	*out = NULL;
	if (rc)
		return rc;
	w->dir = o;
	w->fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (w->fd < 0 || pipe2(w->wake, O_CLOEXEC | O_NONBLOCK)) {
		rc = -errno;
		watch_say(o, errno);
		if (w->fd >= 0)
			close(w->fd);
		free(w);
		return rc;
	}
	*out = w;
	return 0;
}

void rsh_save_watch_free(struct rsh_save_watch *w)
{
	if (!w)
		return;
	close(w->fd);
	close(w->wake[0]);
	close(w->wake[1]);
	free(w);
}

/* Returns whether the directory is watched.  One that is already watched stays
 * so. */
static bool watch_dir(struct rsh_save_watch *w, const char *path)
{
	int code = E2BIG;

	if (w->n++ < WATCHES_MAX) {
		if (inotify_add_watch(w->fd, path, CHANGES) >= 0)
			return true;
		code = errno;
	}
	/* Others have gone, or cannot be read, which the look says. */
	if (!w->said && (code == ENOSPC || code == E2BIG)) {
		watch_say(w->dir, code);
		w->said = true;
	}
	return false;
}

static void watch_add(struct rsh_save_watch *w, const struct rsh_store *store,
		      const char *dir, unsigned depth)
{
	cleanup_dir struct rsh_dir *at = NULL;
	cleanup_free char *full = rsh_text_format("%s/%s", w->dir->path, dir);
	const char *name;

	if (!full || !watch_dir(w, full) || depth == 1 ||
	    rsh_dir_open(store, dir, &at))
		return;
	while (rsh_dir_next(at, &name) > 0) {
		cleanup_free char *path = NULL;
		struct rsh_stat st;

		if (*name == '.' || rsh_dir_look(at, name, &st) ||
		    st.kind != RSH_IS_DIR)
			continue;
		path = rsh_text_format("%s%s%s", dir, *dir ? "/" : "", name);
		if (path)
			watch_add(w, store, path, depth - 1);
	}
}

void rsh_save_watch_update(struct rsh_save_watch *w)
{
	struct rsh_error unused = RSH_ERROR_INIT;
	struct rsh_store *store;

	/* Another directory may have its place now. */
	if (rsh_store_open(w->dir->path, &w->dir->files->store, &store,
			   &unused))
		return;
	w->n = 0;
	watch_add(w, store, "", WATCH_DEPTH);
	rsh_store_free(store);
}

/* Forgets the events: the next look finds what they say. */
static bool watch_drain(int fd)
{
	char buf[4096];
	bool any = false;

	while (read(fd, buf, sizeof(buf)) > 0)
		any = true;
	return any;
}

bool rsh_save_watch_wait(struct rsh_save_watch *w, uint64_t ns)
{
	struct pollfd p[] = {
		{ .fd = w->fd, .events = POLLIN },
		{ .fd = w->wake[0], .events = POLLIN },
	};

	/* The result of poll() does not matter: the descriptors are asked. */
	poll(p, 2, (int)(ns / 1000000));
	watch_drain(w->wake[0]);
	return watch_drain(w->fd);
}

void rsh_save_watch_wake(struct rsh_save_watch *w)
{
	const ssize_t n = write(w->wake[1], "", 1);

	(void)n; /* a full pipe wakes as well */
}
