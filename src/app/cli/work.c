/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/work.c opens the tree of a command that reads all of its bytes, and
 * shows the progress of the command. */
#include "config.h"

#include "commands.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "rsh/app/reading.h"
#include "rsh/util/clock.h"

/* ---- signals ---- */

/* A command has so much time to remove its unfinished files. */
#define GRACE_SECONDS 2

static atomic_bool interrupted;
static volatile sig_atomic_t by;

/* A second signal ends the program.  It also ends after a time limit, because
 * it may wait for a source that does not answer. */
static void on_signal(int sig)
{
	by = sig;
	atomic_store(&interrupted, true);
	alarm(GRACE_SECONDS);
}

/* SA_RESETHAND has restored the default action of the signal `by`. */
static void on_alarm(int sig)
{
	(void)sig;
	rsh_temp_remove_all();
	raise(by);
}

/* ---- the work ---- */

void rsh_work_begin(struct rsh_work *w, const struct rsh_options *o,
		    const char *what)
{
	*w = (struct rsh_work){
		.options = o, .what = what, .start = rsh_clock_ns(),
	};
}

int rsh_work_open(struct rsh_work *w, bool contents_later,
		  struct rsh_error *err)
{
	int rc = rsh_store_io_new(&w->options->io, &w->io, err);

	if (rc)
		return rc;
	w->cfg = w->options->vfs;
	w->cfg.files.store.io = w->io;
	w->cfg.contents_later = contents_later;
	rc = rsh_vfs_open(&w->cfg, &w->vfs, err);
	if (rc == 0 && rsh_option_given(w->options, "keep-free"))
		rsh_reading_keep_free(w->options, w->vfs, w->io, true);
	return rc;
}

void rsh_work_end_progress(struct rsh_work *w)
{
	rsh_progress_end(w->progress);
	w->progress = NULL;
}

void rsh_work_end(struct rsh_work *w)
{
	rsh_work_end_progress(w);
	rsh_reading_log(RSH_LOG_INFO, w->io, NULL);
	rsh_vfs_free(w->vfs);
	rsh_store_io_free(w->io);
}

static void begin_progress(void *ctx, uint64_t total)
{
	struct rsh_work *w = ctx;

	w->progress = rsh_progress_start(stderr, w->what, total,
					 w->options->quiet);
}

static void progress(void *ctx, uint64_t bytes)
{
	struct rsh_work *w = ctx;

	rsh_progress_add(w->progress, bytes);
}

struct rsh_copy_control rsh_work_control(struct rsh_work *w)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction action = {
		.sa_handler = on_signal,
		.sa_flags = SA_RESTART | (int)SA_RESETHAND,
	};
	struct sigaction old;

	/* From now on SIGINT, SIGTERM and SIGHUP set `interrupted`. */
	sigemptyset(&action.sa_mask);
	signal(SIGALRM, on_alarm);
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		/* A signal that nohup(1) or a shell has set to be ignored stays
		 * ignored. */
		if (sigaction(signals[i], NULL, &old) == 0 &&
		    old.sa_handler != SIG_IGN)
			sigaction(signals[i], &action, NULL);
	return (struct rsh_copy_control){
		.stop = &interrupted,
		.begin = begin_progress,
		.progress = progress,
		.ctx = w,
		.n_jobs = w->options->jobs,
		.readahead = w->options->server.readahead,
	};
}

double rsh_work_seconds(const struct rsh_work *w)
{
	return rsh_clock_since(w->start);
}

uint64_t rsh_work_source_bytes(const struct rsh_work *w)
{
	struct rsh_store_io_stats s;

	rsh_store_io_stats_get(w->io, &s);
	return s.bytes;
}
