/* SPDX-License-Identifier: Apache-2.0 */
/* read/stream.h offers open virtual files that are read by lending: a reader is
 * handed the place where the bytes were prepared, and one that reads from front
 * to back finds the next bytes prepared.  Mounts, hashes and exports use it.
 *
 * Windows of RSH_STREAM_MAX bytes are prepared ahead of a sequential reader in
 * the order of the virtual file, which is that of its plan, whichever source
 * files the bytes come from.  How many windows these are depends on how long
 * one takes compared with the reader's own pace, so that a slow source has many
 * under way and a fast one has two.  What is prepared is bounded for all files
 * together.
 *
 * How much is read at a time from a source that is waited for, for all readers
 * together, follows what the source gives: it begins with one window, or one
 * read that needs no window, and becomes more while that pays, and less where
 * it does not.
 *
 * Threads: any thread may use any stream, several at once.  No lock is held
 * while bytes are prepared.  Errors are -errno.
 */
#ifndef RSH_READ_STREAM_H
#define RSH_READ_STREAM_H

#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "rsh/read/body.h"

/* So many bytes are lent at once at most; a window holds as many. */
#define RSH_STREAM_MAX ((size_t)1024 * 1024)

#define RSH_STREAM_WINDOWS 24
#define RSH_STREAM_THREADS 16

/* The streams have what all open files of a mount share: windows and the
 * threads that fill them. */
struct rsh_streams;
/* A stream is one open file. */
struct rsh_stream;

struct rsh_streams_options {
	/* So many windows may be prepared and not yet read; 0 stands for
	 * RSH_STREAM_WINDOWS. */
	unsigned max_windows;
	/* So many threads prepare at most; they are started when needed.  0
	 * stands for RSH_STREAM_THREADS. */
	unsigned max_threads;
	/* Bounds how many windows and reads are under way at a time from a
	 * source that is waited for, and how many windows are ahead of a reader
	 * from another one; 0 stands for the default. */
	unsigned max_loads;
	/* So many are under way from such a source at least, if there is use
	 * for them; 0 stands for 1. */
	unsigned min_loads;
	/* Where these take longer than this, there are fewer; 0: however long
	 * they take. */
	uint64_t longest_load_ns;
	/* True: a thread that returns a loan may be kept to prepare the next
	 * window, if the reader has been given its bytes by then and is
	 * slow. */
	bool lenders_prepare;
	/* Readers and loads are measured by this clock; NULL stands for
	 * rsh_clock_ns(). */
	uint64_t (*now)(void);
};

/* Gives the options for a source that lies near, which is a `far` of 0, or far
 * away, where the first byte of each read takes milliseconds and `far` requests
 * may be under way at a time.  `shared`: what other nodes have read is found
 * without it, so that each needs to ask for less at a time.  `loads` is
 * max_loads. */
struct rsh_streams_options rsh_streams_suited(unsigned far, bool shared,
					      unsigned loads);

/* Counts what has happened since the streams were made. */
struct rsh_stream_stats {
	uint64_t reads, bytes; /* that were lent */
	uint64_t found;        /* reads whose bytes were prepared before */
	uint64_t waited;       /* reads that waited for a thread to prepare them */
	uint64_t windows;      /* prepared ahead */
	uint64_t unread;       /* windows that were dropped before anyone read
				* them */
	uint64_t most_ahead;   /* most windows that one stream had at a time */
	uint64_t most_windows; /* most windows that all streams had together */
	uint64_t threads;      /* threads that prepare, as of now */
	uint64_t limit;        /* windows and reads at a time, as of now, from a
				* source that is waited for */
};

/* Returns 0 or -errno. */
int rsh_streams_new(const struct rsh_streams_options *o,
		    struct rsh_streams **out);
/* Returns how much address space so many windows take at most, on loan or
 * not. */
uint64_t rsh_stream_maps(unsigned n_windows);
/* True if reads of the source have put threads to sleep lately, so that more of
 * them can be of use than there are processors. */
bool rsh_streams_sleep(struct rsh_streams *s);

/* Stops preparing for good.  Returns false if a thread has not come back from
 * its source after a while: the streams and what their bodies read must then
 * stay as they are. */
bool rsh_streams_stop(struct rsh_streams *s);
/* All loans must have been returned before.  Closes the streams that are still
 * open, since a kernel that unmounts need not wait until it has said that files
 * were closed.  Leaves all as it is where rsh_streams_stop() gives false. */
void rsh_streams_free(struct rsh_streams *s);
void rsh_streams_stats(struct rsh_streams *s, struct rsh_stream_stats *out);

/* What the body reads has to outlive the streams.  Returns 0 or -ENOMEM. */
int rsh_stream_open(struct rsh_streams *s, const struct rsh_body *body,
		    struct rsh_stream **out);
/* Closes a stream; loans may still be out, and what is being prepared is not
 * waited for.  Another thread that holds the stream may be in a read: that one
 * ends with -EINTR unless the source is being read for it, and so do all later
 * ones. */
void rsh_stream_close(struct rsh_stream *st);
/* A thread that reads while another one may close the stream holds it before
 * the read and drops it afterwards. */
void rsh_stream_hold(struct rsh_stream *st);
void rsh_stream_drop(struct rsh_stream *st);

struct rsh_window;

/* Bytes that are lent: the parts follow each other in the file.  They stay as
 * they are until the loan is returned. */
struct rsh_loan {
	struct iovec part[2];
	int n_parts;
	/* Only the streams look at these two. */
	struct rsh_streams *streams;
	struct rsh_window *window[2];
};

/* Lends bytes [offset, offset+len) of the file, cut at its end and at
 * RSH_STREAM_MAX bytes.  Returns their number, or -errno as the body gives it.
 * Unless it is negative, rsh_loan_return() is due. */
ssize_t rsh_stream_lend(struct rsh_stream *st, uint64_t offset, size_t len,
			struct rsh_loan *loan);
void rsh_loan_return(struct rsh_loan *loan);

#endif
