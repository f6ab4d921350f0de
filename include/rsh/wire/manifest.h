/* SPDX-License-Identifier: Apache-2.0 */
/* wire/manifest.h - manifests of written trees: the size and xxh3 of every file
 * and record, and the sources of the tree.
 *
 * A manifest is in JSON Lines.  Each line is an object; its first key is the
 * kind of the line.  So a writer or reader keeps one line in memory only.  The
 * first line is the head, the last one the end; between them are the sources,
 * then the files.  reshardfs(5) describes the keys.  The functions keep no
 * state, so any thread may call them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rsh/util/error.h"
#include "rsh/tensor/dtype.h"

#define RSH_MANIFEST_VERSION 1

/* This is the default name of a manifest. */
#define RSH_MANIFEST_NAME "reshardfs-manifest.jsonl"

/* No line of a manifest is longer.  A line of this length has half a million
 * records. */
#define RSH_MANIFEST_LINE_MAX ((size_t)64 * 1024 * 1024)

enum rsh_manifest_kind {
	RSH_MANIFEST_HEAD,
	RSH_MANIFEST_SOURCE,
	RSH_MANIFEST_FILE,
	RSH_MANIFEST_END,
};

/* This is a strategy: its path as given, and the xxh3 of its content. */
struct rsh_manifest_strategy {
	const char *path; /* NULL: none */
	uint64_t xxh3;
};

struct rsh_manifest_head {
	/* version of the program that wrote the manifest */
	const char *program;
	const char *source;  /* SOURCE as an absolute path */
	const char *step;    /* the checkpoint that was used */
	struct rsh_manifest_strategy src, dst;
	/* This is the xxh3 of everything that determines the bytes.  If it
	 * differs, the manifest describes other files. */
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

/* This is a part of a file: a record with all its headers (.ckpt), or the bytes
 * of a tensor (safetensors). */
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
	/* For a written file these identify the file on disk, so that it can be
	 * recognized later.  They are not known for files that were only
	 * read. */
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
	void *owner_; /* owns everything that the line points to */
};

/* Writes a line with its line end.  Returns 0 and *text, which the caller
 * frees, or -ENOMEM.  If a name or path is not UTF-8, every byte above 0x7f in
 * it is written as "\xNN". */
int rsh_manifest_emit(const struct rsh_manifest_line *line, char **text,
		      size_t *len);

/* Reads one line. `path` and `number` are for messages.  Returns 0 and *out,
 * which the caller clears, or -errno with a sentence and nothing to clear.
 * -EBADMSG means that the line is not valid: numbers are out of range, records
 * overlap, are out of order or are beyond the file's end, or a path leads out
 * of the tree.  -ENOTSUP means a head of a later version.  Memory is in
 * proportion to `len`, which is at most RSH_MANIFEST_LINE_MAX. */
int rsh_manifest_parse(const char *text, size_t len, const char *path,
		       uint64_t number, struct rsh_manifest_line *out,
		       struct rsh_error *err);
void rsh_manifest_line_clear(struct rsh_manifest_line *line);
