/* SPDX-License-Identifier: Apache-2.0 */
/* wire/manifest_parse.c parses lines of a manifest. */
#include "config.h"

#include "rsh/wire/manifest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "rsh/util/arena.h"
#include "rsh/util/checked.h"
#include "rsh/util/files.h"
#include "rsh/wire/ckpt.h"

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

/* ---- values; these functions return false if the value is missing ---- */

static bool manifest_get_u64(const json_t *o, const char *key, uint64_t *out)
{
	const json_t *v = json_object_get(o, key);

	if (!json_is_integer(v) || json_integer_value(v) < 0)
		return false;
	*out = (uint64_t)json_integer_value(v);
	return true;
}

/* JSON has an inode of 2^63 or more as a negative number.  Network file systems
 * have such inodes, and so have objects, whose inode is a hash. */
static bool get_inode(const json_t *o, uint64_t *out)
{
	const json_t *v = json_object_get(o, "inode");

	if (!json_is_integer(v))
		return false;
	*out = (uint64_t)json_integer_value(v);
	return true;
}

/* jansson accepts no NUL in a string. */
static bool get_text(const json_t *o, const char *key, const char **out)
{
	*out = json_string_value(json_object_get(o, key));
	return *out != NULL;
}

static bool get_hash(const json_t *o, const char *key, uint64_t *out)
{
	const char *s;
	char *end;

	if (!get_text(o, key, &s) || strlen(s) != 16 ||
	    strspn(s, "0123456789abcdef") != 16)
		return false;
	*out = strtoull(s, &end, 16);
	return true;
}

static bool get_mtime(const json_t *o, int64_t *s, uint32_t *ns)
{
	const json_t *v = json_object_get(o, "mtime");
	const json_t *first = json_array_get(v, 0), *rest = json_array_get(v, 1);

	if (!json_is_integer(first) || !json_is_integer(rest) ||
	    json_integer_value(rest) < 0 ||
	    json_integer_value(rest) >= 1000000000)
		return false;
	*s = json_integer_value(first);
	*ns = (uint32_t)json_integer_value(rest);
	return true;
}

/* ---- each kind of line ---- */

static bool get_strategy(const json_t *o, const char *key,
			 struct rsh_manifest_strategy *out)
{
	const json_t *v = json_object_get(o, key);

	*out = (struct rsh_manifest_strategy){ 0 };
	return json_is_null(v) || (get_text(v, "path", &out->path) &&
				   get_hash(v, "xxh3", &out->xxh3));
}

static bool read_shape(const struct parse *p, const json_t *shape,
		       struct rsh_manifest_record *r)
{
	int64_t *dims;
	size_t n = json_array_size(shape);

	if (!json_is_array(shape) || n > RSH_MAX_DIMS)
		return false;
	dims = rsh_arena_array(&p->owner->arena, int64_t, n);
	if (!dims)
		return false;
	for (size_t i = 0; i < n; i++) {
		const json_t *v = json_array_get(shape, i);

		if (!json_is_integer(v) || json_integer_value(v) < 0)
			return false;
		dims[i] = json_integer_value(v);
	}
	r->n_dims = (uint32_t)n;
	r->dims = dims;
	return true;
}

/* Reads a record. `from` is the end of the record before it. */
static bool read_record(const struct parse *p, const json_t *o, uint64_t from,
			uint64_t size, struct rsh_manifest_record *r)
{
	const char *dtype;

	if (!get_text(o, "name", &r->name) || !get_text(o, "dtype", &dtype) ||
	    !read_shape(p, json_object_get(o, "shape"), r) ||
	    !manifest_get_u64(o, "offset", &r->offset) ||
	    !manifest_get_u64(o, "bytes", &r->bytes) ||
	    !get_hash(o, "xxh3", &r->xxh3))
		return false;
	r->dtype = rsh_dtype_parse(dtype, strlen(dtype));
	return r->offset >= from && r->offset <= size &&
	       r->bytes <= size - r->offset;
}

static int read_file(const struct parse *p, const json_t *o,
		     struct rsh_manifest_file *f)
{
	const json_t *written = json_object_get(o, "written");
	const json_t *list;
	size_t n;
	struct rsh_manifest_record *records;
	uint64_t from = 0;

	if (!get_text(o, "file", &f->path) ||
	    !manifest_get_u64(o, "size", &f->size) ||
	    !get_hash(o, "xxh3", &f->xxh3))
		return bad(p, "a file that lacks something");
	/* A manifest must not decide which other files are read. */
	if (!rsh_path_is_plain(f->path))
		return bad(p, "a path that is not one below the tree");
	f->written = written != NULL;
	if (written && (!get_inode(written, &f->inode) ||
			!get_mtime(written, &f->mtime_s, &f->mtime_ns)))
		return bad(p, "a written file that lacks something");
	list = json_object_get(o, "records");
	n = json_array_size(list);
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

	if (json_object_get(o, "manifest")) {
		const char *kind;
		uint64_t version;

		out->kind = RSH_MANIFEST_HEAD;
		if (!get_text(o, "manifest", &kind) ||
		    strcmp(kind, "reshardfs") != 0 ||
		    !manifest_get_u64(o, "version", &version) || version < 1)
			return bad(p, "not the head of a reshardfs manifest");
		if (version > RSH_MANIFEST_VERSION)
			return rsh_error_set(
				p->err, ENOTSUP,
				"%s: a manifest of "
				"version %llu, this program reads %d",
				p->path, (unsigned long long)version,
				RSH_MANIFEST_VERSION);
		if (!get_text(o, "program", &out->head.program) ||
		    !get_text(o, "source", &out->head.source) ||
		    !get_text(o, "step", &out->head.step) ||
		    !get_strategy(o, "src_strategy", &out->head.src) ||
		    !get_strategy(o, "dst_strategy", &out->head.dst) ||
		    !get_hash(o, "conversion", &out->head.conversion) ||
		    !manifest_get_u64(o, "tree_files", &out->head.n_files) ||
		    !manifest_get_u64(o, "tree_bytes", &out->head.bytes))
			return bad(p, "a head that lacks something");
		return 0;
	}
	if (json_object_get(o, "source")) {
		uint64_t rank;

		out->kind = RSH_MANIFEST_SOURCE;
		if (!get_text(o, "source", &out->source.path) ||
		    !manifest_get_u64(o, "rank", &rank) || rank >= UINT32_MAX ||
		    !manifest_get_u64(o, "size", &out->source.size) ||
		    !get_inode(o, &out->source.inode) ||
		    !get_mtime(o, &out->source.mtime_s, &out->source.mtime_ns))
			return bad(p, "a source that lacks something");
		out->source.rank = (uint32_t)rank;
		return 0;
	}
	if (json_object_get(o, "file")) {
		out->kind = RSH_MANIFEST_FILE;
		return read_file(p, o, &out->file);
	}
	out->kind = RSH_MANIFEST_END;
	if (!json_object_get(o, "end") ||
	    !manifest_get_u64(o, "files", &out->n_files))
		return bad(p, "not a line of a reshardfs manifest");
	return 0;
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
