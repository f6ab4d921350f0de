/* SPDX-License-Identifier: Apache-2.0 */
/* wire/manifest_emit.c writes lines of a manifest as text. */
#include "config.h"

#include "rsh/wire/manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "rsh/util/mem.h"

static json_t *text_json(const char *s)
{
	json_t *text = json_string(s);
	cleanup_free char *escaped = NULL;
	char *to;

	if (text)
		return text;
	escaped = to = rsh_alloc_array(strlen(s) + 1, strlen("\\xNN"));
	if (!escaped)
		return NULL;
	for (; *s; s++)
		to += sprintf(to, (unsigned char)*s < 0x80 ? "%c" : "\\x%02x",
			      (unsigned char)*s);
	*to = '\0';
	return json_string(escaped);
}

static json_t *hash_json(uint64_t xxh3)
{
	char digits[24];

	snprintf(digits, sizeof(digits), "%016" PRIx64, xxh3);
	return json_string(digits);
}

static json_t *u64_json(uint64_t n)
{
	return json_integer((json_int_t)n);
}

/* ---- each kind of line ---- */

static json_t *strategy_json(const struct rsh_manifest_strategy *s)
{
	if (!s->path)
		return json_null();
	return json_pack("{s:o,s:o}", "path", text_json(s->path), "xxh3",
			 hash_json(s->xxh3));
}

static json_t *mtime_json(int64_t s, uint32_t ns)
{
	return json_pack("[I,i]", (json_int_t)s, (int)ns);
}

static json_t *record_json(const struct rsh_manifest_record *r)
{
	json_t *shape = json_array();

	for (uint32_t i = 0; i < r->n_dims && shape; i++)
		if (json_array_append_new(shape, json_integer(r->dims[i]))) {
			json_decref(shape);
			shape = NULL;
		}
	return json_pack("{s:o,s:s,s:o,s:o,s:o,s:o}", "name",
			 text_json(r->name), "dtype", rsh_dtype_name(r->dtype),
			 "shape", shape, "offset", u64_json(r->offset),
			 "bytes", u64_json(r->bytes), "xxh3",
			 hash_json(r->xxh3));
}

static json_t *file_json(const struct rsh_manifest_file *f)
{
	json_t *records = json_array();
	json_t *file = json_pack("{s:o,s:o,s:o}", "file", text_json(f->path),
				 "size", u64_json(f->size), "xxh3",
				 hash_json(f->xxh3));
	int rc = 0;

	for (uint32_t i = 0; i < f->n_records; i++)
		rc |= json_array_append_new(records,
					    record_json(&f->records[i]));
	if (f->written)
		rc |= json_object_set_new(
			file, "written",
			json_pack("{s:o,s:o}", "inode", u64_json(f->inode),
				  "mtime",
				  mtime_json(f->mtime_s, f->mtime_ns)));
	rc |= json_object_set_new(file, "records", records);
	if (rc) {
		json_decref(file);
		return NULL;
	}
	return file;
}

static json_t *line_json(const struct rsh_manifest_line *line)
{
	switch (line->kind) {
	case RSH_MANIFEST_HEAD:
		return json_pack("{s:s,s:i,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}",
				 "manifest", "reshardfs", "version",
				 RSH_MANIFEST_VERSION, "program",
				 text_json(line->head.program), "source",
				 text_json(line->head.source), "step",
				 text_json(line->head.step), "src_strategy",
				 strategy_json(&line->head.src), "dst_strategy",
				 strategy_json(&line->head.dst), "conversion",
				 hash_json(line->head.conversion), "tree_files",
				 u64_json(line->head.n_files), "tree_bytes",
				 u64_json(line->head.bytes));
	case RSH_MANIFEST_SOURCE:
		return json_pack("{s:o,s:i,s:o,s:o,s:o}", "source",
				 text_json(line->source.path), "rank",
				 (int)line->source.rank, "size",
				 u64_json(line->source.size), "inode",
				 u64_json(line->source.inode), "mtime",
				 mtime_json(line->source.mtime_s,
					    line->source.mtime_ns));
	case RSH_MANIFEST_FILE:
		return file_json(&line->file);
	case RSH_MANIFEST_END:
		break;
	}
	return json_pack("{s:s,s:o}", "end", "reshardfs", "files",
			 u64_json(line->n_files));
}

int rsh_manifest_emit(const struct rsh_manifest_line *line, char **out,
		      size_t *len)
{
	json_t *json = line_json(line);
	size_t n = json ? json_dumpb(json, NULL, 0, JSON_COMPACT) : 0;
	char *text = n ? malloc(n + 1) : NULL;

	if (text) {
		json_dumpb(json, text, n, JSON_COMPACT);
		text[n] = '\n';
		*out = text;
		*len = n + 1;
	}
	json_decref(json);
	return text ? 0 : -ENOMEM;
}
