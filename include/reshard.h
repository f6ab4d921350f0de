/* SPDX-License-Identifier: Apache-2.0 */
/* reshard.h - libreshard reads a checkpoint under another sharding strategy,
 * without a mount.
 *
 *	struct reshard *r;
 *	const char *options[] = { "src_strategy=old.ckpt",
 *				  "dst_strategy=new.ckpt", NULL };
 *
 *	if (reshard_open("checkpoints", options, &r))
 *		errx(1, "%s", reshard_error());
 *	n = reshard_read(r, 0, buf, sizeof(buf), 0);
 *	reshard_close(r);
 *
 * The files are those that `reshardfs mount` has with these options, byte for
 * byte.
 *
 * Errors: functions that return int return 0 or a negative errno value.  After
 * an error reshard_error() returns the message.
 *
 * Ownership: strings belong to the open source and are valid until it is
 * closed.
 *
 * Threads: any number of threads can use one open source at the same time,
 * until one of them closes it.  Other sources can be opened and closed at any
 * time.  A child of fork(2) must not use a source of its parent, because the
 * threads of the library do not exist in it.
 *
 * ABI: symbols have versions (LIBRESHARD_0.1; LIBRESHARD_0.3 for functions that
 * were added in that release).  A struct below changes only with the library's
 * soname.  A struct that begins with its size can grow at its end.
 */
#ifndef RESHARD_H
#define RESHARD_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct reshard;

/* Returns the version, such as "0.1.0". */
const char *reshard_version(void);

/* Opens the checkpoint at `source`, a path or an address.  `options` is NULL or
 * an array that ends with NULL.  Each string is "name=value" or "name", as
 * `reshardfs mount -o` takes it, without escapes: src_strategy and dst_strategy
 * (or dst_mesh), select, prefix, format and so on; see reshardfs-mount(1).
 * Options of the mount itself are refused.
 *
 * Warnings go to standard error or to log_to.  log_level and log_to apply to
 * the whole process; the last open decides.
 *
 * Returns 0 and sets *out, which the caller must pass to reshard_close().  On
 * failure returns a negative errno value and sets *out to NULL. */
int reshard_open(const char *source, const char *const *options,
		 struct reshard **out);
/* Closes the source.  `r` can be NULL.  No other thread may be using it. */
void reshard_close(struct reshard *r);

/* Returns the message of the last failure in this thread, or "" if there was
 * none.  Control characters and the like in names are escaped as "\xNN".  The
 * string is valid until the next failure or the next call in this thread. */
const char *reshard_error(void);

/* ---- files ---- */

/* The rank of a file that belongs to no rank: the index of a model in parts
 * (format=hf), and the files that name the step (format=checkpoint2). */
#define RESHARD_NO_RANK UINT32_MAX

struct reshard_file {
	uint32_t rank;    /* or the number of the part, from 0 */
	const char *name; /* "rank_0/checkpoint_0.ckpt" */
	uint64_t size;    /* bytes */
};

/* Returns the number of files.  File i is that of rank i; files of no rank come
 * last.  With format=checkpoint2 the second files of the ranks come after the
 * first ones. */
uint32_t reshard_n_files(const struct reshard *r);
/* Describes file i.  Returns 0 or -ENOENT. */
int reshard_file(const struct reshard *r, uint32_t i,
		 struct reshard_file *out);

/* Reads bytes [offset, offset + len) of file i into buf, up to the end of the
 * file.  Returns their number, or a negative errno value: -ENOENT if there is
 * no such file, -EIO if slices are lost, or the error of the source.  The
 * content of buf is undefined then.  Returns 0 if `offset` is at or after the
 * end, or if `len` is 0. */
ssize_t reshard_read(const struct reshard *r, uint32_t i, void *buf,
		     size_t len, uint64_t offset);

/* ---- records: the parameters in a file ---- */

#define RESHARD_MAX_DIMS 32

struct reshard_record {
	const char *name;  /* valid until the source is closed */
	const char *dtype; /* "Float32", "BFloat16", ...; always valid */
	uint32_t n_dims;
	int64_t dims[RESHARD_MAX_DIMS];
	uint64_t bytes; /* bytes of content */
	/* Start of the record in the file.  In a .ckpt this is the header of
	 * its first chunk; header and content follow for each chunk of 512 MiB.
	 * In a safetensors file it is the content, which has no header. */
	uint64_t offset;
	uint64_t stored; /* bytes from `offset`, with headers */
};

/* Returns the number of records in file i; 0 if there is no such file, or if it
 * belongs to no rank. */
uint32_t reshard_n_records(const struct reshard *r, uint32_t i);
/* Describes record n of file i, in the order of the file.  Returns 0 or
 * -ENOENT. */
int reshard_record(const struct reshard *r, uint32_t i, uint32_t n,
		   struct reshard_record *out);

/* ---- loading: records directly into memory ---- */

/* Bytes [offset, offset + bytes) of the content of a record, without headers,
 * and their destination, which the caller owns.  Destinations must not
 * overlap. */
struct reshard_want {
	uint32_t file;   /* number of the file, as for reshard_file() */
	uint32_t record; /* number of the record, as for reshard_record() */
	uint64_t offset;
	uint64_t bytes;
	void *to;
};

struct reshard_load_options {
	size_t size;      /* sizeof(struct reshard_load_options) */
	unsigned threads; /* maximum; 0: the library decides */
	/* NULL, or a function that gets the bytes loaded so far, and all bytes.
	 * Only the thread that called reshard_load() calls it: about 20 times a
	 * second, also while no data arrives, and once at the end.  A result
	 * other than 0 cancels the load. */
	int (*progress)(void *ctx, uint64_t done, uint64_t all);
	void *ctx;
};

/* Loads all n wants with several threads, in any order.  `o` can be NULL.  For
 * speed, put neighbouring wants of a record next to each other.
 *
 * Returns 0; -ECANCELED; -ENOENT if there is no such file or record; -EINVAL if
 * a want exceeds its record; -EIO if slices are lost; or the error of the
 * source.  After a failure the content of the destinations is undefined, and no
 * thread writes to them any more.
 *
 * For that reason the function waits for reads in progress after a failure or a
 * cancel, and a source that hangs delays it.  A program that cannot wait must
 * call it in a separate thread, and must leave the destinations and the open
 * source to that thread. */
int reshard_load(const struct reshard *r, const struct reshard_want *wants,
		 size_t n, const struct reshard_load_options *o);

#ifdef __cplusplus
}
#endif

#endif
