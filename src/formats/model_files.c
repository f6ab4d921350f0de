/* SPDX-License-Identifier: Apache-2.0 */
/* formats/model_files.c loads the files beside the weights of a model.
 *
 * A file of the directory, or a subdirectory with all that it has, is a unit,
 * which is shown whole or not at all. */
#include "config.h"

#include "rsh/formats/model_files.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/source/inspect.h"
#include "rsh/source/tables.h"
#include "rsh/storage/objects.h"
#include "rsh/util/files.h"
#include "rsh/util/mem.h"
#include "rsh/util/names.h"
#include "rsh/util/text.h"

/* Subdirectories of a model have few files; SOURCE may be beside others. */
#define FILES_IN_UNIT 1000
#define DEPTH_MAX 8
/* So many units are named in a message. */
#define NAMED_MAX 5

struct unit {
	char *name; /* with a slash at the end for a subdirectory */
	size_t first, n; /* its files */
	uint64_t bytes;
	char *why; /* it is left out; NULL: it is shown */
};

struct loading {
	struct rsh_store *store;
	struct rsh_names *own; /* the files of SOURCE; NULL: weights are passed
				* over */
	struct rsh_model_files *out;
	bool (*is_beside)(const char *name, bool is_dir);
	struct unit *units;
	size_t n, cap;
};

/* Returns whether a file is one of weights, from any tool, a map of weights, or
 * the manifest of an export, which lists other files. */
static bool is_of_weights(const char *name)
{
	static const char *const suffixes[] = {
		".safetensors", ".bin", ".pt", ".pth", ".ckpt",
		".distcp", ".gguf", ".h5", ".msgpack", ".onnx",
	};

	for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++)
		if (rsh_has_suffix(name, suffixes[i]))
			return true;
	return (strstr(name, ".index.") && rsh_has_suffix(name, ".json")) ||
	       strcmp(name, "param_name_map.json") == 0 ||
	       strcmp(name, "reshardfs-manifest.jsonl") == 0;
}

/* Notes the first reason to leave a unit out.  Returns 0 or -ENOMEM. */
__attribute__((format(printf, 2, 3)))
static int unit_leave(struct unit *u, const char *fmt, ...)
{
	va_list ap;
	int n;

	if (u->why)
		return 0;
	va_start(ap, fmt);
	n = vasprintf(&u->why, fmt, ap);
	va_end(ap);
	if (n < 0)
		u->why = NULL;
	return n < 0 ? -ENOMEM : 0;
}

static int unit_leave_failed(struct unit *u, const char *name, int rc)
{
	const bool whole = !strchr(name, '/');
	const char *why = rc == -ENOENT ? "a link to nothing" :
			  rc == -EXDEV ? "a link that leads out of the "
					 "directory" : strerror(-rc);

	return rc == -ENOMEM ? rc : unit_leave(u, "%s%s%s", whole ? "" : name,
					       whole ? "" : ": ", why);
}

/* ---- what is there ---- */

static int unit_add_file(struct loading *l, struct unit *u, const char *name,
			 const struct rsh_stat *st)
{
	struct rsh_model_files *out = l->out;

	if (u->n >= FILES_IN_UNIT)
		return unit_leave(u, "more than %d files", FILES_IN_UNIT);
	if (rsh_room(out->v, out->cap, out->n + 1))
		return -ENOMEM;
	out->v[out->n] = (struct rsh_model_file){
		.name = strdup(name), .bytes = st->size,
	};
	u->n++;
	if (!out->v[out->n++].name)
		return -ENOMEM;
	u->bytes += st->size;
	if (st->size <= RSH_MODEL_FILE_MAX)
		return 0;
	return unit_leave(u, "%slarger than %d MiB",
			  strchr(name, '/') ? "a file is " : "",
			  (int)(RSH_MODEL_FILE_MAX >> 20));
}

/* Adds what is below a subdirectory.  A unit that is left out is not listed to
 * its end. */
static int unit_add_below(struct loading *l, struct unit *u, const char *path,
			  unsigned depth)
{
	cleanup_dir struct rsh_dir *dir = NULL;
	int rc = rsh_dir_open(l->store, path, &dir);
	const char *name;

	if (rc)
		return unit_leave_failed(u, path, rc);
	if (depth > DEPTH_MAX)
		return unit_leave(u, "more than %d directories deep",
				  DEPTH_MAX);
	while (!u->why && (rc = rsh_dir_next(dir, &name)) > 0) {
		cleanup_free char *below = NULL;
		struct rsh_stat st;

		if (name[0] == '.')
			continue;
		below = rsh_text_format("%s/%s", path, name);
		if (!below)
			return -ENOMEM;
		/* Parts of the weights may be in a subdirectory. */
		if (l->own && rsh_names_find(l->own, below, strlen(below)) !=
			      RSH_NAME_NONE)
			continue;
		rc = rsh_dir_look(dir, name, &st);
		if (rc)
			rc = unit_leave_failed(u, below, rc);
		else if (st.kind == RSH_IS_DIR)
			rc = unit_add_below(l, u, below, depth + 1);
		else if (st.kind == RSH_IS_FILE)
			rc = unit_add_file(l, u, below, &st);
		if (rc)
			return rc;
	}
	return rc < 0 ? unit_leave_failed(u, path, rc) : 0;
}

static int units_add(struct loading *l, struct rsh_dir *dir, const char *name)
{
	const bool weights = is_of_weights(name);
	struct rsh_stat st;
	int rc = rsh_dir_look(dir, name, &st);
	const bool is_dir = rc == 0 && st.kind == RSH_IS_DIR;
	struct unit *u;

	if ((rc == 0 && st.kind == RSH_IS_OTHER) ||
	    (l->is_beside && !l->is_beside(name, is_dir)) ||
	    /* Its weights are shown, or it is not known. */
	    (weights && !is_dir &&
	     (!l->own || rsh_has_suffix(name, ".json") ||
	      rsh_has_suffix(name, ".jsonl") ||
	      rsh_names_find(l->own, name, strlen(name)) != RSH_NAME_NONE)))
		return 0;
	if (rsh_room(l->units, l->cap, l->n + 1))
		return -ENOMEM;
	u = &l->units[l->n];
	*u = (struct unit){
		.name = rsh_text_format("%s%s", name, is_dir ? "/" : ""),
		.first = l->out->n,
	};
	if (!u->name)
		return -ENOMEM;
	l->n++;
	if (rc)
		return unit_leave_failed(u, name, rc);
	if (is_dir)
		return unit_add_below(l, u, name, 1);
	return weights ? unit_leave(u, "not of these weights") :
			 unit_add_file(l, u, name, &st);
}

/* ---- what is read ---- */

RSH_ORDER(unit_by_size, struct unit,
	  rsh_compare_u64(x->bytes, y->bytes) ?: strcmp(x->name, y->name))

/* Small files are those that a model needs, so they have precedence. */
static int units_choose(struct loading *l)
{
	uint64_t bytes = 0;

	rsh_sort(l->units, l->n, unit_by_size);
	for (size_t i = 0; i < l->n; i++) {
		struct unit *u = &l->units[i];

		if (u->why)
			continue;
		if (u->bytes > RSH_MODEL_FILES_MAX - bytes &&
		    unit_leave(u, "more than %d MiB with the smaller ones",
			       (int)(RSH_MODEL_FILES_MAX >> 20)))
			return -ENOMEM;
		if (!u->why)
			bytes += u->bytes;
	}
	return 0;
}

/* Returns 0 or -errno. */
static int model_file_read(struct rsh_store *s, uint32_t file,
		     struct rsh_model_file *f)
{
	cleanup_handle struct rsh_handle *h = NULL;
	struct rsh_error why = RSH_ERROR_INIT;
	int rc = rsh_store_identify(s, file, &h, &why);

	if (rc)
		return rc;
	if (rsh_store_identity(s, file)->size != f->bytes)
		return -ESTALE;
	f->attr = *rsh_store_attr(s, file);
	f->text = rsh_alloc_array((size_t)f->bytes, 1);
	if (!f->text)
		return -ENOMEM;
	for (uint64_t done = 0; done < f->bytes;) {
		ssize_t n = rsh_handle_pread(h, f->text + done,
					     (size_t)(f->bytes - done), done);

		if (n <= 0)
			return n ? (int)n : -ESTALE;
		done += (uint64_t)n;
	}
	return 0;
}

static int units_read(struct loading *l)
{
	uint32_t file = 0;

	for (size_t i = 0; i < l->n; i++) {
		struct unit *u = &l->units[i];

		for (size_t k = 0; k < u->n && !u->why; k++) {
			struct rsh_model_file *f = &l->out->v[u->first + k];
			const struct rsh_store_entry e = { .name = f->name };
			int rc;

			if (rsh_store_add(l->store, &e))
				return -ENOMEM;
			rc = model_file_read(l->store, file++, f);
			if (rc && unit_leave_failed(u, f->name, rc))
				return -ENOMEM;
		}
	}
	return 0;
}

/* ---- the result ---- */

static void file_clear(struct rsh_model_file *f)
{
	free(f->name);
	free(f->text);
	*f = (struct rsh_model_file){ 0 };
}

RSH_ORDER(file_by_name, struct rsh_model_file, strcmp(x->name, y->name))

/* Drops the files of units that are left out, and says which these are. */
static int units_settle(struct loading *l)
{
	struct rsh_model_files *out = l->out;
	char text[2048];
	size_t at = 0, left = 0, n = 0;

	for (size_t i = 0; i < l->n; i++) {
		const struct unit *u = &l->units[i];

		for (size_t k = 0; u->why && k < u->n; k++)
			file_clear(&out->v[u->first + k]);
		if (u->why && ++left <= NAMED_MAX)
			rsh_text_add(text, sizeof(text), &at, "%s%s (%s)",
				     left > 1 ? ", " : "", u->name, u->why);
	}
	for (size_t i = 0; i < out->n; i++)
		if (out->v[i].name)
			out->v[n++] = out->v[i];
	out->n = n;
	rsh_sort(out->v, n, file_by_name);
	if (left > NAMED_MAX)
		rsh_text_add(text, sizeof(text), &at, " and %zu more",
			     left - NAMED_MAX);
	if (left)
		out->left_out = strdup(text);
	return left && !out->left_out ? -ENOMEM : 0;
}

bool rsh_model_files_own(const struct rsh_model_files_at *at)
{
	cleanup_free char *of_source = rsh_source_directory(at->source);

	return of_source && at->dir && !at->config &&
	       strcmp(at->dir, of_source) == 0;
}

static int directory_load(const struct rsh_model_files_at *at,
			  struct rsh_model_files *out, struct rsh_error *err)
{
	struct rsh_store_options opts = {
		.follow_outside = at->store->follow_outside,
		.objects = at->store->objects, .joined = at->store->joined,
		.n_joined = at->store->n_joined,
	};
	struct loading l = { .out = out, .is_beside = at->is_beside };
	cleanup_dir struct rsh_dir *dir = NULL;
	const char *name;
	int rc = 0;

	if (rsh_model_files_own(&(struct rsh_model_files_at){
		.dir = at->dir, .source = at->source })) {
		opts.place = at->store->place;
		l.own = at->own ? rsh_names_new() : NULL;
		rc = at->own && !l.own ? -ENOMEM : 0;
	}
	for (uint32_t i = 0; l.own && i < rsh_source_n_files(at->own); i++) {
		struct rsh_source_file_info info;

		rsh_source_file_info(at->own, i, &info);
		if (rsh_names_add(l.own, info.name, strlen(info.name)) ==
		    RSH_NAME_NONE)
			rc = -ENOMEM;
	}
	if (rc) {
		rsh_names_free(l.own);
		return rsh_error_nomem(err);
	}
	if (rsh_store_is_address(at->dir) &&
	    (rsh_objects_is_in(at->dir, at->source) ||
	     rsh_objects_is_in(at->source, at->dir) ||
	     (at->steps_dir &&
	      rsh_objects_is_in(at->dir, at->steps_dir))))
		opts.place = at->store->place;
	rc = rsh_store_open(at->dir, &opts, &l.store, err);
	if (rc) {
		rsh_error_prefix(err, "--model-files");
		rsh_names_free(l.own);
		return rc;
	}
	rc = rsh_dir_open(l.store, "", &dir);
	while (rc >= 0 && (rc = rsh_dir_next(dir, &name)) > 0)
		if (name[0] != '.')
			rc = units_add(&l, dir, name);
	if (rc)
		rc = rsh_error_file(err, -rc, rsh_store_root(l.store));
	else if (units_choose(&l) || units_read(&l) || units_settle(&l))
		rc = rsh_error_nomem(err);
	rsh_store_free(l.store);
	for (size_t i = 0; i < l.n; i++) {
		free(l.units[i].name);
		free(l.units[i].why);
	}
	free(l.units);
	rsh_names_free(l.own);
	return rc;
}

/* Puts a file of any name in the place of the directory's config.json. */
static int config_load(const char *path, struct rsh_model_files *out,
		       struct rsh_error *err)
{
	const struct rsh_small_file kind = { "config.json",
					     RSH_MODEL_FILE_MAX };
	struct rsh_model_file f = { .name = strdup(RSH_MODEL_CONFIG_NAME) };
	cleanup_handle struct rsh_handle *h = NULL;
	struct rsh_stat st;
	uint8_t *text;
	size_t i, len;
	int rc = f.name ? rsh_load_whole(path, &kind, &text, &len, err) :
			  rsh_error_nomem(err);

	if (rc == 0) {
		f.text = (char *)text;
		f.bytes = len;
		rc = rsh_handle_open_path(path, &h) ?: rsh_handle_look(h, &st);
		if (rc)
			rsh_error_file(err, -rc, path);
	}
	i = rsh_index(k, out->n,
		      strcmp(out->v[k].name, f.name ? f.name : "") == 0);
	if (rc == 0 && i == out->n &&
	    rsh_room(out->v, out->cap, out->n + 1))
		rc = rsh_error_nomem(err);
	if (rc) {
		file_clear(&f);
		return rc;
	}
	f.attr = st.attr;
	f.attr.mode &= 0444;
	if (i == out->n)
		out->n++;
	else
		file_clear(&out->v[i]);
	out->v[i] = f;
	qsort(out->v, out->n, sizeof(*out->v), file_by_name);
	return 0;
}

int rsh_model_files_load(const struct rsh_model_files_at *at,
			 struct rsh_model_files *out, struct rsh_error *err)
{
	const char *dir = at->dir ? at->dir : at->source;
	int rc;

	*out = (struct rsh_model_files){ .dir = strdup(dir) };
	if (!out->dir)
		return rsh_error_nomem(err);
	rc = at->dir ? directory_load(at, out, err) : 0;
	return rc || !at->config ? rc : config_load(at->config, out, err);
}

void rsh_model_files_clear(struct rsh_model_files *f)
{
	for (size_t i = 0; i < f->n; i++)
		file_clear(&f->v[i]);
	free(f->v);
	free(f->dir);
	free(f->left_out);
	*f = (struct rsh_model_files){ 0 };
}
