/* SPDX-License-Identifier: Apache-2.0 */
/* wire/manifest.h - what the files of a written tree hold: sizes and xxh3 of
 * every file and record, and what they were made of.
 *
 * A manifest is JSON Lines: each line is an object that says with its first key
 * what it is.  So a writer or reader never holds more than a line.  The first
 * line is the head, the last one the end; between them are the sources, then
 * the files.  reshardfs(5) has the keys.  Functions keep no state, so any
 * thread may call them. */
#ifndef RSH_WIRE_MANIFEST_H
#define RSH_WIRE_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rsh/util/error.h"
#include "rsh/tensor/dtype.h"

#define RSH_MANIFEST_VERSION 1

/* A manifest that is given no other name is called this. */
#define RSH_MANIFEST_NAME "reshardfs-manifest.jsonl"

/* No manifest has a longer line: one of this length tells of half a million
 * records. */
#define RSH_MANIFEST_LINE_MAX ((size_t)64 * 1024 * 1024)

enum rsh_manifest_kind {
	RSH_MANIFEST_HEAD,
	RSH_MANIFEST_SOURCE,
	RSH_MANIFEST_FILE,
	RSH_MANIFEST_END,
};

/* This is a strategy: its path as given, and the xxh3 of what it said. */
struct rsh_manifest_strategy {
	const char *path; /* NULL: none */
	uint64_t xxh3;
};

struct rsh_manifest_head {
	const char *program; /* version of the program that made it */
	const char *source;  /* SOURCE as an absolute path */
	const char *step;    /* the checkpoint that was taken */
	struct rsh_manifest_strategy src, dst;
	/* This is the xxh3 of everything that decides about the bytes: a
	 * manifest with another one is of other files. */
	uint64_t conversion;
	uint64_t n_files, bytes; /* of the whole tree */
};

/* This is a source file that the tree was made of. */
struct rsh_manifest_source {
	uint32_t rank;
	const char *path; /* below SOURCE, or absolute */
	uint64_t size, inode;
	int64_t mtime_s;
	uint32_t mtime_ns;
};

/* This is a stretch of a file: a record with all its headers (.ckpt), or the
 * bytes of a tensor (safetensors). */
struct rsh_manifest_record {
	const char *name;
	enum rsh_dtype dtype;
	uint32_t n_dims;
	const int64_t *dims;
	uint64_t offset, bytes;
	uint64_t xxh3;
};

struct rsh_manifest_file {
	const char *path; /* below the tree's root */
	uint64_t size;
	uint64_t xxh3;
	/* If it was written, these tell the real file, so that it can be
	 * recognized; of files that were only read nothing is known. */
	bool written;
	uint64_t inode;
	int64_t mtime_s;
	uint32_t mtime_ns;
	uint32_t n_records;
	const struct rsh_manifest_record *records;
};

struct rsh_manifest_line {
	enum rsh_manifest_kind kind;
	union {
		struct rsh_manifest_head head;
		struct rsh_manifest_source source;
		struct rsh_manifest_file file;
		uint64_t n_files; /* END: files in this manifest */
	};
	void *owner_; /* owns everything that is pointed to */
};

/* Writes a line with its line end.  Returns 0 and *text, which the caller
 * frees, or -ENOMEM.  In a name or a path that is not UTF-8 every byte above
 * 0x7f is written as "\xNN". */
int rsh_manifest_emit(const struct rsh_manifest_line *line, char **text,
		      size_t *len);

/* Reads one line; `path` and `number` are for messages.  Returns 0 and *out,
 * which the caller clears, or -errno with a sentence and nothing to clear.
 * -EBADMSG means that it is no such line: numbers are out of range, records
 * overlap, are out of order or lie beyond the file's end, or a path leads out
 * of the tree.  -ENOTSUP means a head of a later version.  It allocates in
 * proportion to `len`, which is RSH_MANIFEST_LINE_MAX at most. */
int rsh_manifest_parse(const char *text, size_t len, const char *path,
		       uint64_t number, struct rsh_manifest_line *out,
		       struct rsh_error *err);
void rsh_manifest_line_clear(struct rsh_manifest_line *line);

#endif
