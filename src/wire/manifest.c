/* SPDX-License-Identifier: Apache-2.0 */
/* wire/manifest.c writes and parses lines of a manifest, by tables of their
 * fields. */
#include "config.h"

#include "rsh/wire/manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "rsh/util/arena.h"
#include "rsh/util/files.h"
#include "rsh/util/mem.h"
#include "rsh/wire/ckpt.h"

/* ---- fields ---- */

struct field {
	const char *key;
	enum field_kind {
		TEXT,
		SIZE,
		RANK,
		DTYPE,
		HASH,
		/* JSON has an inode of 2^63 or more as a negative number.
		 * Network file systems have such inodes, and so have objects,
		 * whose inode is a hash. */
		INODE,
		SECONDS,
		NANOSECONDS, /* in a list with the seconds, which precede it */
		STRATEGY,
	} kind;
	size_t at; /* in the struct */
};

#define FIELD(key, kind, of, member) \
	{ key, kind, offsetof(struct rsh_manifest_##of, member) }
static const struct field head_fields[] = {
	FIELD("program", TEXT, head, program),
	FIELD("source", TEXT, head, source),
	FIELD("step", TEXT, head, step),
	FIELD("src_strategy", STRATEGY, head, src),
	FIELD("dst_strategy", STRATEGY, head, dst),
	FIELD("conversion", HASH, head, conversion),
	FIELD("tree_files", SIZE, head, n_files),
	FIELD("tree_bytes", SIZE, head, bytes),
	{ .key = NULL },
};
static const struct field strategy_fields[] = {
	FIELD("path", TEXT, strategy, path),
	FIELD("xxh3", HASH, strategy, xxh3),
	{ .key = NULL },
};
static const struct field source_fields[] = {
	FIELD("source", TEXT, source, path),
	FIELD("rank", RANK, source, rank),
	FIELD("size", SIZE, source, size),
	FIELD("inode", INODE, source, inode),
	FIELD("mtime", SECONDS, source, mtime_s),
	FIELD("mtime", NANOSECONDS, source, mtime_ns),
	{ .key = NULL },
};
static const struct field file_fields[] = {
	FIELD("file", TEXT, file, path),
	FIELD("size", SIZE, file, size),
	FIELD("xxh3", HASH, file, xxh3),
	{ .key = NULL },
};
static const struct field written_fields[] = {
	FIELD("inode", INODE, file, inode),
	FIELD("mtime", SECONDS, file, mtime_s),
	FIELD("mtime", NANOSECONDS, file, mtime_ns),
	{ .key = NULL },
};
/* The shape is between the two. */
static const struct field record_fields[] = {
	FIELD("name", TEXT, record, name),
	FIELD("dtype", DTYPE, record, dtype),
	{ .key = NULL },
};
static const struct field record_place_fields[] = {
	FIELD("offset", SIZE, record, offset),
	FIELD("bytes", SIZE, record, bytes),
	FIELD("xxh3", HASH, record, xxh3),
	{ .key = NULL },
};

/* ---- writing ---- */

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

static json_t *put(json_t *to, const struct field *fields, const void *of);

static json_t *field_json(enum field_kind kind, const void *at)
{
	const struct rsh_manifest_strategy *s = at;
	char digits[24];

	switch (kind) {
	case TEXT:
		return text_json(*(const char *const *)at);
	case RANK:
		return json_integer(*(const int32_t *)at);
	case DTYPE:
		return json_string(rsh_dtype_name(*(const enum rsh_dtype *)at));
	case HASH:
		snprintf(digits, sizeof(digits), "%016" PRIx64,
			 *(const uint64_t *)at);
		return json_string(digits);
	case SECONDS:
		return json_pack("[I]", (json_int_t)*(const int64_t *)at);
	case STRATEGY:
		return s->path ? put(json_object(), strategy_fields, s) :
				 json_null();
	default:
		return json_integer((json_int_t)*(const uint64_t *)at);
	}
}

/* Adds the fields of a struct to an object; NULL: memory is out. */
static json_t *put(json_t *to, const struct field *fields, const void *of)
{
	for (const struct field *f = fields; to && f->key; f++) {
		const void *at = (const char *)of + f->at;

		if (f->kind == NANOSECONDS ?
		    json_array_append_new(json_object_get(to, f->key),
					  json_integer(*(const uint32_t *)at)) :
		    json_object_set_new(to, f->key, field_json(f->kind, at))) {
			json_decref(to);
			to = NULL;
		}
	}
	return to;
}

static json_t *record_json(const struct rsh_manifest_record *r)
{
	json_t *o = put(json_object(), record_fields, r);
	json_t *shape = json_array();
	int rc = json_object_set_new(o, "shape", shape);

	for (uint32_t i = 0; i < r->n_dims && rc == 0; i++)
		rc = json_array_append_new(shape, json_integer(r->dims[i]));
	if (rc == 0)
		return put(o, record_place_fields, r);
	json_decref(o);
	return NULL;
}

static json_t *file_json(const struct rsh_manifest_file *f)
{
	json_t *records = json_array();
	json_t *file = put(json_object(), file_fields, f);
	int rc = f->written ? json_object_set_new(
		file, "written", put(json_object(), written_fields, f)) : 0;

	for (uint32_t i = 0; i < f->n_records; i++)
		rc |= json_array_append_new(records,
					    record_json(&f->records[i]));
	rc |= json_object_set_new(file, "records", records);
	if (rc == 0)
		return file;
	json_decref(file);
	return NULL;
}

static json_t *line_json(const struct rsh_manifest_line *line)
{
	switch (line->kind) {
	case RSH_MANIFEST_HEAD:
		return put(json_pack("{s:s,s:i}", "manifest", "reshardfs",
				     "version", RSH_MANIFEST_VERSION),
			   head_fields, &line->head);
	case RSH_MANIFEST_SOURCE:
		return put(json_object(), source_fields, &line->source);
	case RSH_MANIFEST_FILE:
		return file_json(&line->file);
	case RSH_MANIFEST_END:
		break;
	}
	return json_pack("{s:s,s:I}", "end", "reshardfs", "files",
			 (json_int_t)line->n_files);
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

/* ---- parsing ---- */

/* This owns the strings of the JSON and the arrays of the arena that a line
 * points to. */
struct owner {
	json_t *json;
	struct rsh_arena arena;
};

struct parse {
	struct owner *owner;
	const char *path;
	uint64_t number;
	struct rsh_error *err;
};

static int bad(const struct parse *p, const char *what)
{
	return rsh_error_set(p->err, EBADMSG, "%s: line %llu: %s", p->path,
			     (unsigned long long)p->number, what);
}

static bool get(const json_t *o, const struct field *fields, void *to);

static bool field_get(const json_t *v, enum field_kind kind, void *to)
{
	const json_t *number = kind == SECONDS ? json_array_get(v, 0) :
			       kind == NANOSECONDS ? json_array_get(v, 1) : v;
	const json_int_t n = json_integer_value(number);
	/* jansson accepts no NUL in a string. */
	const char *text = json_string_value(v);

	switch (kind) {
	case TEXT:
		*(const char **)to = text;
		return text;
	case DTYPE:
		*(enum rsh_dtype *)to =
			text ? rsh_dtype_parse(text, strlen(text)) : 0;
		return text;
	case HASH:
		*(uint64_t *)to = text ? strtoull(text, NULL, 16) : 0;
		return text && strlen(text) == 16 &&
		       strspn(text, "0123456789abcdef") == 16;
	case STRATEGY:
		memset(to, 0, sizeof(struct rsh_manifest_strategy));
		return json_is_null(v) || get(v, strategy_fields, to);
	case RANK:
	case NANOSECONDS:
		*(uint32_t *)to = (uint32_t)n;
		return json_is_integer(number) && n >= 0 &&
		       n < (kind == RANK ? UINT32_MAX : 1000000000);
	default:
		*(uint64_t *)to = (uint64_t)n;
		return json_is_integer(number) && (kind != SIZE || n >= 0);
	}
}

/* Returns whether an object has all fields. */
static bool get(const json_t *o, const struct field *fields, void *to)
{
	for (const struct field *f = fields; f->key; f++)
		if (!field_get(json_object_get(o, f->key), f->kind,
			       (char *)to + f->at))
			return false;
	return true;
}

/* Reads a record. `from` is the end of the record before it. */
static bool read_record(const struct parse *p, const json_t *o, uint64_t from,
			uint64_t size, struct rsh_manifest_record *r)
{
	const json_t *shape = json_object_get(o, "shape");
	const size_t n = json_array_size(shape);
	int64_t *dims = rsh_arena_array(&p->owner->arena, int64_t, n);

	if (!get(o, record_fields, r) || !get(o, record_place_fields, r) ||
	    !json_is_array(shape) || n > RSH_MAX_DIMS || !dims)
		return false;
	for (size_t i = 0; i < n; i++)
		if (!field_get(json_array_get(shape, i), SIZE, &dims[i]))
			return false;
	r->n_dims = (uint32_t)n;
	r->dims = dims;
	return r->offset >= from && r->offset <= size &&
	       r->bytes <= size - r->offset;
}

static int read_file(const struct parse *p, const json_t *o,
		     struct rsh_manifest_file *f)
{
	const json_t *written = json_object_get(o, "written");
	const json_t *list = json_object_get(o, "records");
	const size_t n = json_array_size(list);
	struct rsh_manifest_record *records;
	uint64_t from = 0;

	if (!get(o, file_fields, f))
		return bad(p, "a file that lacks something");
	/* A manifest must not decide which other files are read. */
	if (!rsh_path_is_plain(f->path))
		return bad(p, "a path that is not one below the tree");
	f->written = written != NULL;
	if (written && !get(written, written_fields, f))
		return bad(p, "a written file that lacks something");
	if (!json_is_array(list) || n >= UINT32_MAX)
		return bad(p, "a file without records");
	records = rsh_arena_array(&p->owner->arena, struct rsh_manifest_record,
				  n);
	if (!records)
		return rsh_error_nomem(p->err);
	for (size_t i = 0; i < n; i++) {
		if (!read_record(p, json_array_get(list, i), from, f->size,
				 &records[i]))
			return bad(p, "a record that lacks something, or is not "
				   "in its file after the previous one");
		from = records[i].offset + records[i].bytes;
	}
	f->n_records = (uint32_t)n;
	f->records = records;
	return 0;
}

static int read_line(const struct parse *p, struct rsh_manifest_line *out)
{
	const json_t *o = p->owner->json;
	const json_t *head = json_object_get(o, "manifest");
	const char *kind = json_string_value(head);
	uint64_t version;

	if (head) {
		out->kind = RSH_MANIFEST_HEAD;
		if (!kind || strcmp(kind, "reshardfs") != 0 ||
		    !field_get(json_object_get(o, "version"), SIZE, &version) ||
		    version < 1)
			return bad(p, "not the head of a reshardfs manifest");
		if (version > RSH_MANIFEST_VERSION)
			return rsh_error_set(
				p->err, ENOTSUP, "%s: a manifest of version "
				"%llu, this program reads %d", p->path,
				(unsigned long long)version,
				RSH_MANIFEST_VERSION);
		return get(o, head_fields, &out->head) ? 0 :
		       bad(p, "a head that lacks something");
	}
	if (json_object_get(o, "source")) {
		out->kind = RSH_MANIFEST_SOURCE;
		return get(o, source_fields, &out->source) ? 0 :
		       bad(p, "a source that lacks something");
	}
	if (json_object_get(o, "file")) {
		out->kind = RSH_MANIFEST_FILE;
		return read_file(p, o, &out->file);
	}
	out->kind = RSH_MANIFEST_END;
	return json_object_get(o, "end") &&
	       field_get(json_object_get(o, "files"), SIZE, &out->n_files) ? 0 :
	       bad(p, "not a line of a reshardfs manifest");
}

int rsh_manifest_parse(const char *text, size_t len, const char *path,
		       uint64_t number, struct rsh_manifest_line *out,
		       struct rsh_error *err)
{
	struct parse p = { NULL, path, number, err };
	json_error_t why;
	int rc;

	*out = (struct rsh_manifest_line){ 0 };
	if (len > RSH_MANIFEST_LINE_MAX)
		return bad(&p, "longer than lines of a manifest are");
	p.owner = calloc(1, sizeof(*p.owner));
	if (!p.owner)
		return rsh_error_nomem(err);
	out->owner_ = p.owner;
	p.owner->json = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
	if (p.owner->json)
		rc = read_line(&p, out);
	else if (json_error_code(&why) == json_error_out_of_memory)
		rc = rsh_error_nomem(err);
	else
		rc = bad(&p, "not JSON");
	if (rc)
		rsh_manifest_line_clear(out);
	return rc;
}

void rsh_manifest_line_clear(struct rsh_manifest_line *line)
{
	struct owner *owner = line->owner_;

	if (owner) {
		json_decref(owner->json);
		rsh_arena_clear(&owner->arena);
		free(owner);
	}
	*line = (struct rsh_manifest_line){ 0 };
}
