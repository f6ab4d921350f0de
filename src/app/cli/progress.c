/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/progress.c computes the rate and the time left; a thread draws the
 * bar or prints the line. */
#include "config.h"

#include "commands.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "rsh/app/printer.h"
#include "rsh/util/checked.h"
#include "rsh/util/clock.h"
#include "rsh/util/thread.h"

#define BAR_PAUSE_MS 200
#define LINE_PAUSE_MS 10000
#define MIN_BAR 10
#define MAX_LINE 512

struct rsh_progress {
	FILE *out;
	const char *what;
	uint64_t total;
	bool terminal;
	uint64_t start; /* by rsh_clock_ns() */
	_Atomic uint64_t done;

	pthread_t thread;
	pthread_mutex_t lock; /* guards `ended` */
	pthread_cond_t wake;
	bool ended;
};

/* ---- text ---- */

void rsh_progress_text(const struct rsh_progress_state *s, char *text,
		       size_t size)
{
	const uint64_t done = rsh_min_u64(s->done, s->total);
	const double rate = s->seconds > 0 ? (double)s->done / s->seconds : 0;
	char bytes[24], per_second[32], left[32] = "-";
	char all[32], so_far[32], bar[MAX_LINE], figures[128];
	int room, full, percent = 100;

	/* It is 100 only if nothing is left. */
	if (done < s->total)
		percent = (int)rsh_min_u64((uint64_t)((double)done /
						      (double)s->total * 100),
					   99);
	rsh_text_bytes((uint64_t)rate, bytes, sizeof(bytes));
	snprintf(per_second, sizeof(per_second), "%s/s", bytes);
	if (rate > 0) {
		/* The time left is written as "0:07", "12:00" or "3:00:00". */
		const double time = (double)(s->total - done) / rate;
		const unsigned long t = time < 360000 ?
			(unsigned long)(time + 0.5) : 360000;

		if (t < 3600)
			snprintf(left, sizeof(left), "%lu:%02lu", t / 60,
				 t % 60);
		else
			snprintf(left, sizeof(left), "%lu:%02lu:%02lu",
				 t / 3600, t / 60 % 60, t % 60);
	}

	if (s->width == 0) {
		rsh_text_bytes(s->total, all, sizeof(all));
		rsh_text_bytes(s->done, so_far, sizeof(so_far));
		snprintf(text, size, "%s: %d%% (%s of %s), %s, %s left",
			 s->what, percent, so_far, all, per_second, left);
		return;
	}
	snprintf(figures, sizeof(figures), "%3d%% %12s %8s left", percent,
		 per_second, left);
	/* One column is left free, because a terminal may wrap at the last
	 * one. */
	room = (int)s->width - 1 - (int)strlen(s->what) - (int)strlen(figures) -
	       (int)strlen(" [] ");
	if (room >= (int)sizeof(bar))
		room = (int)sizeof(bar) - 1;
	if (room >= MIN_BAR) {
		full = room * percent / 100;
		for (int i = 0; i < room; i++)
			bar[i] = i < full ? '=' : i == full ? '>' : ' ';
		bar[room] = '\0';
		snprintf(text, size, "%s [%s] %s", s->what, bar, figures);
		return;
	}
	snprintf(text, size, "%s %s", s->what, figures);
	if (strlen(text) >= s->width)
		text[s->width - 1] = '\0';
}

/* ---- printing ---- */

static void *shower(void *arg)
{
	struct rsh_progress *p = arg;
	const unsigned ms = p->terminal ? BAR_PAUSE_MS : LINE_PAUSE_MS;
	char text[MAX_LINE + 128];
	struct winsize w;

	for (;;) {
		const uint64_t until = rsh_clock_ns() + ms * UINT64_C(1000000);
		struct rsh_progress_state s = { .what = p->what };
		int rc = 0;
		bool ended;

		pthread_mutex_lock(&p->lock);
		while (!p->ended && rc == 0)
			rc = rsh_clock_wait(&p->wake, &p->lock, until);
		ended = p->ended;
		pthread_mutex_unlock(&p->lock);
		if (ended)
			return NULL;
		s.done = atomic_load(&p->done);
		s.total = p->total;
		s.seconds = rsh_clock_since(p->start);
		if (p->terminal)
			s.width = ioctl(fileno(p->out), TIOCGWINSZ, &w) == 0 &&
				  w.ws_col > 1 ? w.ws_col : 80;
		rsh_progress_text(&s, text, sizeof(text));
		fprintf(p->out, p->terminal ? "\r%s\033[K" : "%s\n", text);
		fflush(p->out);
	}
}

struct rsh_progress *rsh_progress_start(FILE *out, const char *what,
					uint64_t total, bool quiet)
{
	struct rsh_progress *p = quiet ? NULL : calloc(1, sizeof(*p));
	const char *term = getenv("TERM");

	if (!p)
		return NULL;
	p->out = out;
	p->what = what;
	p->total = total;
	p->terminal = isatty(fileno(out)) && term && strcmp(term, "dumb") != 0;
	p->start = rsh_clock_ns();
	pthread_mutex_init(&p->lock, NULL);
	if (rsh_clock_cond_init(&p->wake) ||
	    rsh_thread_start(&p->thread, shower, p)) {
		free(p);
		return NULL;
	}
	return p;
}

void rsh_progress_add(struct rsh_progress *p, uint64_t bytes)
{
	if (p)
		atomic_fetch_add(&p->done, bytes);
}

void rsh_progress_clear(struct rsh_progress *p)
{
	if (!p || !p->terminal)
		return;
	fputs("\r\033[K", p->out);
	fflush(p->out);
}

void rsh_progress_end(struct rsh_progress *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->ended = true;
	pthread_cond_signal(&p->wake);
	pthread_mutex_unlock(&p->lock);
	pthread_join(p->thread, NULL);
	rsh_progress_clear(p);
	pthread_cond_destroy(&p->wake);
	pthread_mutex_destroy(&p->lock);
	free(p);
}
