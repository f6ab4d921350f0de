/* SPDX-License-Identifier: Apache-2.0 */
/* read/stream.h - open virtual files, read by lending: a reader is handed the
 * place where the bytes were prepared, and who goes from front to back finds
 * the next ones prepared.
 *
 * Windows of RSH_STREAM_MAX bytes are prepared ahead of a sequential reader in
 * the order of the virtual file, which is that of its plan: whichever source
 * files the bytes come from.  How many depends on how long one takes compared
 * with the reader's own pace, so that a slow source has many under way and a
 * fast one has two.  What is prepared is bounded for all files together.
 *
 * How much is read at a time from a source that is waited for, for all readers
 * together, follows what it gives: it begins with one window, or one read that
 * needs none, and becomes more while that pays, and fewer where it does not.
 *
 * Threads: any thread may use any stream, several at once.  No lock is held
 * while bytes are prepared.
 */
#ifndef RSH_READ_STREAM_H
#define RSH_READ_STREAM_H

#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "rsh/read/body.h"

/* The most bytes that are lent at once; also what a window holds. */
#define RSH_STREAM_MAX ((size_t)1024 * 1024)

#define RSH_STREAM_WINDOWS 24
#define RSH_STREAM_THREADS 16

/* What all open files of a mount share: windows and the threads that fill
 * them. */
struct rsh_streams;
/* One open file. */
struct rsh_stream;

struct rsh_streams_options {
	/* Windows that may be prepared and not yet read; 0:
	 * RSH_STREAM_WINDOWS. */
	unsigned max_windows;
	/* Threads that prepare, started when needed; 0: RSH_STREAM_THREADS. */
	unsigned max_threads;
	/* Windows and reads at a time, from a source that is waited for, and
	 * windows ahead of a reader from one that is not; 0: the default. */
	unsigned max_loads;
	/* Who returns a loan may be kept to prepare the next window, if the
	 * reader has been given its bytes by then and is slow. */
	bool lenders_prepare;
	/* Told in place of rsh_clock_ns(), by which readers and loads are
	 * measured; NULL: that. */
	uint64_t (*now)(void);
};

/* Since the start. */
struct rsh_stream_stats {
	uint64_t reads, bytes; /* lent */
	uint64_t found;        /* reads whose bytes were there */
	uint64_t waited;       /* reads that waited for a thread to prepare them */
	uint64_t windows;      /* prepared ahead */
	uint64_t unread;       /* of these dropped before anyone read them */
	uint64_t most_ahead;   /* windows that one stream had at most */
	uint64_t most_windows; /* and all streams together */
	uint64_t threads;      /* that prepare, now */
	uint64_t limit;        /* windows and reads at a time, now, from a
				* source that is waited for */
};

/* 0 or -errno. */
int rsh_streams_new(const struct rsh_streams_options *o,
		    struct rsh_streams **out);
/* Address space that so many windows take at most, on loan or not. */
uint64_t rsh_stream_maps(unsigned n_windows);
/* True if reads of the source have put threads to sleep lately, so that more of
 * them can be of use than there are processors. */
bool rsh_streams_sleep(struct rsh_streams *s);

/* Nothing is prepared from now on.  False if
 * a thread has not come back from its source after a while: the streams and what
 * their bodies read must then stay as they are. */
bool rsh_streams_stop(struct rsh_streams *s);
/* All loans are returned by then.  Closes the streams that are still open: a
 * kernel that unmounts need not wait until it has said that files were closed.
 * Leaves all as it is where rsh_streams_stop() gives false. */
void rsh_streams_free(struct rsh_streams *s);
void rsh_streams_stats(struct rsh_streams *s, struct rsh_stream_stats *out);

/* What the body reads has to outlive the streams.  0 or -ENOMEM. */
int rsh_stream_open(struct rsh_streams *s, const struct rsh_body *body,
		    struct rsh_stream **out);
/* Loans may still be out; does not wait for what is being prepared.  Whoever
 * holds the stream as well may be in a read, which then ends with -EINTR unless
 * the source is being read for it, and all later ones do. */
void rsh_stream_close(struct rsh_stream *st);
/* One who reads while another may close it holds it before, and drops it
 * afterwards. */
void rsh_stream_hold(struct rsh_stream *st);
void rsh_stream_drop(struct rsh_stream *st);

struct rsh_window;

/* Bytes that are lent: the parts in order.  They stay as they are until the
 * loan is returned. */
struct rsh_loan {
	struct iovec part[2];
	int n_parts;
	/* Private. */
	struct rsh_streams *streams;
	struct rsh_window *window[2];
};

/* Lends bytes [offset, offset+len) of the file, cut at its end and at
 * RSH_STREAM_MAX bytes: their number, or -errno as the body gives it.
 * Unless it is negative, rsh_loan_return() is due. */
ssize_t rsh_stream_lend(struct rsh_stream *st, uint64_t offset, size_t len,
			struct rsh_loan *loan);
void rsh_loan_return(struct rsh_loan *loan);

#endif
