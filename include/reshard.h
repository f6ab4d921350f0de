/* SPDX-License-Identifier: Apache-2.0 */
/* reshard.h - libreshard shows a checkpoint tree under another sharding
 * strategy, to programs that read it without a mount.
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
 * The files are those that `reshardfs mount` shows with these options, byte for
 * byte.
 *
 * Errors: functions that return int give 0 or a negative errno value, and
 * reshard_error() then has the sentence.
 *
 * Ownership: names that are handed out belong to the open source and are valid
 * until it is closed.
 *
 * Threads: one open source may be used by any number of threads at once, until
 * one closes it; others may be opened and closed meanwhile.  A child of fork(2)
 * may not use it: the library may have threads at work, for its caches.
 *
 * ABI: symbols are versioned (LIBRESHARD_0.1, and LIBRESHARD_0.3 of what came
 * with that release).  A struct below changes only with the library's soname;
 * one that begins with its size may grow at its end.
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

/* Returns the version, as "0.1.0". */
const char *reshard_version(void);

/* Opens the tree at `source`.  `options`, NULL or an array that ends with NULL,
 * are "name=value" or "name" as `reshardfs mount -o` takes them, one a string
 * and nothing escaped: src_strategy and dst_strategy (or dst_mesh), select,
 * prefix, format and so on; reshardfs(1) describes them.  Options about the
 * mount itself are refused.
 *
 * Warnings go to standard error, or to where log_to says; log_level and
 * log_to hold for the whole process, as of the last open.
 *
 * Returns 0 and *out, to be given to reshard_close(); or a negative errno
 * value, with *out NULL. */
int reshard_open(const char *source, const char *const *options,
		 struct reshard **out);
/* Closes the source, which may be NULL.  No other thread may be using it. */
void reshard_close(struct reshard *r);

/* Returns the sentence for the last failure of a function in this thread, ""
 * before there was one; control characters and the like in names are "\xNN"
 * there.  It is valid until this thread fails or asks again. */
const char *reshard_error(void);

/* ---- files ---- */

/* A file that is of no rank has this one: the index of a model in parts
 * (format=hf), and what says which step it is (format=checkpoint2). */
#define RESHARD_NO_RANK UINT32_MAX

struct reshard_file {
	uint32_t rank;    /* or the number of the part, from 0 */
	const char *name; /* "rank_0/checkpoint_0.ckpt" */
	uint64_t size;    /* bytes */
};

/* Returns how many files there are.  File i is that of rank i; one of no rank
 * comes last.  With format=checkpoint2 the second files of ranks come after the
 * first ones. */
uint32_t reshard_n_files(const struct reshard *r);
/* Describes file i.  Returns 0 or -ENOENT. */
int reshard_file(const struct reshard *r, uint32_t i,
		 struct reshard_file *out);

/* Reads bytes [offset, offset + len) of file i, cut at its end, to buf.
 * Returns how many, or a negative errno value: -ENOENT, -EIO if slices are
 * lost, or what the source gave.  What buf has then is undefined.  0 means that
 * the file ends at `offset` or before, or that `len` is 0. */
ssize_t reshard_read(const struct reshard *r, uint32_t i, void *buf,
		     size_t len, uint64_t offset);

/* ---- records: the parameters in a file ---- */

#define RESHARD_MAX_DIMS 32

struct reshard_record {
	const char *name;  /* valid until the close */
	const char *dtype; /* "Float32", "BFloat16", ...; always valid */
	uint32_t n_dims;
	int64_t dims[RESHARD_MAX_DIMS];
	uint64_t bytes;  /* bytes of its content */
	/* What the file has of the record begins at `offset`: in a .ckpt the
	 * header of its first chunk, the content, and so for each chunk of 512
	 * MiB; in a safetensors file the content alone. */
	uint64_t offset;
	uint64_t stored; /* bytes from there on, headers included */
};

/* Returns how many records file i has, in the order of the file; 0 if there is
 * no such file, or it is of no rank. */
uint32_t reshard_n_records(const struct reshard *r, uint32_t i);
/* Describes record n of file i.  Returns 0 or -ENOENT. */
int reshard_record(const struct reshard *r, uint32_t i, uint32_t n,
		   struct reshard_record *out);

/* ---- loading: records straight to where they are wanted ---- */

/* Bytes [offset, offset + bytes) of the content of a record, without the
 * headers of chunks, and where they go.  Destinations must not overlap. */
struct reshard_want {
	uint32_t file;   /* as reshard_file() counts */
	uint32_t record; /* as reshard_record() counts */
	uint64_t offset;
	uint64_t bytes;
	void *to;
};

struct reshard_load_options {
	size_t size;      /* sizeof(struct reshard_load_options) */
	unsigned threads; /* so many at most; 0: as many as pays */
	/* NULL, or is told of the bytes that are there and of all.  Only the
	 * thread that called reshard_load() calls it, some 20 times a second,
	 * also while nothing moves, and once at the end.  What is not 0
	 * cancels. */
	int (*progress)(void *ctx, uint64_t done, uint64_t all);
	void *ctx;
};

/* Loads all n wants, in whichever order and with several threads; `o` may be
 * NULL.  Neighbouring wants of one record are best given one after the other.
 *
 * Returns 0; -ECANCELED; or another negative errno value: -ENOENT where there
 * is no such file or record, -EINVAL where a want goes beyond its record, -EIO
 * if slices are lost, or what the source gave.  What the destinations hold
 * after a failure is undefined, and no thread touches them any more.
 *
 * That is why no failure, and no cancel, ends it before the reads that are
 * under way have: they fill the destinations, and a source that hangs holds it
 * up.  Who must go on nevertheless calls it in a thread of his own, and leaves
 * that thread the destinations and the open source. */
int reshard_load(const struct reshard *r, const struct reshard_want *wants,
		 size_t n, const struct reshard_load_options *o);

#ifdef __cplusplus
}
#endif

#endif
