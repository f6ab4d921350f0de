/* SPDX-License-Identifier: Apache-2.0 */
/* read/stream.h - open virtual files.  A read returns a view: the buffers in
 * which the bytes were prepared, without a copy.  For a sequential reader the
 * next bytes are prepared ahead.  Mounts, hashes and exports use it.
 *
 * Windows of RSH_STREAM_MAX bytes are prepared ahead of a sequential reader in
 * the order of the virtual file, whichever source files the bytes come from.
 * How many windows depends on the time that one takes compared with the pace of
 * the reader: many for a slow source, two for a fast one.  The windows of all
 * files together are bounded.
 *
 * How many reads of a source that sleeps (a disk, a network) run at a time, for
 * all readers together, follows the throughput: it begins with one and grows
 * while this increases it.
 *
 * Threads: any thread may use any stream, several at once.  No lock is held
 * while bytes are prepared.  Errors are -errno.
 */
#pragma once

#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "rsh/read/body.h"

/* The largest view, and the size of a window. */
#define RSH_STREAM_MAX ((size_t)1024 * 1024)

#define RSH_STREAM_WINDOWS 24
#define RSH_STREAM_THREADS 16

/* What all open files of a mount share: windows and the threads that fill
 * them. */
struct rsh_streams;
/* One open file. */
struct rsh_stream;

struct rsh_streams_options {
	/* The most windows that are prepared and not yet read; 0:
	 * RSH_STREAM_WINDOWS. */
	unsigned max_windows;
	/* The most threads that prepare windows, started when needed; 0:
	 * RSH_STREAM_THREADS. */
	unsigned max_threads;
	/* The most windows and reads in progress at a time from a source that
	 * sleeps, and the most windows ahead of a reader of another source; 0:
	 * the default. */
	unsigned max_loads;
	/* The least windows and reads in progress at a time from a source that
	 * sleeps, if readers want them; 0: 1. */
	unsigned min_loads;
	/* If a read of a window takes longer than this, fewer run at a time; 0:
	 * no limit. */
	uint64_t longest_load_ns;
	/* True: a thread that releases a view may prepare the next window, if
	 * the reader has its bytes by then and is slow. */
	bool prepare_at_release;
	/* The clock for readers and loads; NULL: rsh_clock_ns(). */
	uint64_t (*now)(void);
};

/* Returns the options for a local source (`far` is 0) or for object storage,
 * where the first byte of each read takes milliseconds and `far` requests may
 * be in progress at a time.  `shared`: nodes share blocks, so that each needs
 * fewer reads at a time.  `loads` is max_loads. */
struct rsh_streams_options rsh_streams_suited(unsigned far, bool shared,
					      unsigned loads);

/* Counts what has happened since the streams were made. */
struct rsh_stream_stats {
	uint64_t reads, bytes;
	uint64_t found;        /* reads whose bytes were prepared before */
	uint64_t waited;       /* reads that waited for a window */
	uint64_t windows;      /* windows that were prepared ahead */
	uint64_t unread;       /* windows that were dropped unread */
	uint64_t most_ahead;   /* most windows that one stream had at a time */
	uint64_t most_windows; /* most windows that all streams had together */
	uint64_t threads;      /* threads that prepare, as of now */
	uint64_t limit;        /* windows and reads at a time, as of now, from a
				* source that sleeps */
};

/* Returns 0 or -errno. */
int rsh_streams_new(const struct rsh_streams_options *o,
		    struct rsh_streams **out);
/* Returns the most address space of this many windows. */
uint64_t rsh_stream_maps(unsigned n_windows);
/* Returns whether reads of the source have slept lately, so that more threads
 * than processors are useful. */
bool rsh_streams_sleep(struct rsh_streams *s);

/* Stops all preparing.  Returns false if a thread hangs in its source: then the
 * streams and what their bodies read must not be freed. */
bool rsh_streams_stop(struct rsh_streams *s);
/* All views must have been released.  Closes the streams that are still open,
 * since the kernel may unmount before it reports that files were closed.  Does
 * nothing if rsh_streams_stop() returns false. */
void rsh_streams_free(struct rsh_streams *s);
void rsh_streams_stats(struct rsh_streams *s, struct rsh_stream_stats *out);

/* What the body reads has to outlive the streams.  Returns 0 or -ENOMEM. */
int rsh_stream_open(struct rsh_streams *s, const struct rsh_body *body,
		    struct rsh_stream **out);
/* Closes a stream; views may still be in use, and the call does not wait for
 * windows that are being filled.  Reads of other threads that hold the stream
 * end with -EINTR, unless the source is being read for them. */
void rsh_stream_close(struct rsh_stream *st);
/* Sets a function that is called once when the stream is closed and no thread
 * reads its body any more.  It is called with a lock held, so it must not
 * wait. */
void rsh_stream_tell_end(struct rsh_stream *st, void (*ended)(void *ctx),
			 void *ctx);
/* A thread that reads while another thread may close the stream calls these two
 * before and after the read. */
void rsh_stream_hold(struct rsh_stream *st);
void rsh_stream_drop(struct rsh_stream *st);

struct rsh_window;

/* The bytes of a read: consecutive parts, unchanged until the view is
 * released. */
struct rsh_view {
	struct iovec part[2];
	int n_parts;
	/* The rest is private. */
	struct rsh_streams *streams;
	struct rsh_window *window[2];
};

/* Reads bytes [offset, offset+len) of the file, cut at its end and at
 * RSH_STREAM_MAX bytes.  Returns their number, or the -errno of the body.
 * Unless it is negative, the caller calls rsh_view_release(). */
ssize_t rsh_stream_read(struct rsh_stream *st, uint64_t offset, size_t len,
			struct rsh_view *view);
void rsh_view_release(struct rsh_view *view);
