/* SPDX-License-Identifier: Apache-2.0 */
/* outputs/model_files.c loads the files beside the weights of a model. */
#include "config.h"

#include "rsh/outputs/model_files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/files.h"
#include "rsh/util/mem.h"

/* Returns whether a file is one of weights, from any tool, a map of weights, or
 * the manifest of an export, which lists other files. */
static bool is_of_weights(const char *name)
{
	static const char *const suffixes[] = {
		".safetensors", ".index.json", ".bin", ".pt", ".pth", ".ckpt",
		".distcp", ".gguf", ".h5", ".msgpack", ".onnx",
	};

	for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++)
		if (rsh_has_suffix(name, suffixes[i]))
			return true;
	return strcmp(name, "param_name_map.json") == 0 ||
	       strcmp(name, "reshardfs-manifest.jsonl") == 0;
}

static bool is_model_file(struct rsh_dir *dir, const char *name)
{
	struct rsh_stat st;

	if (name[0] == '.' || is_of_weights(name))
		return false;
	/* A failure is reported when the file is opened. */
	return rsh_dir_look(dir, name, &st) || st.kind == RSH_IS_FILE;
}

/* ---- one file ---- */

static int model_files_take(struct rsh_model_files *all, struct rsh_store *s,
			    uint32_t file, uint64_t *bytes,
			    struct rsh_error *err)
{
	struct rsh_model_file *f = &all->v[file];
	const char *path = rsh_store_path(s, file);
	cleanup_handle struct rsh_handle *h = NULL;
	int rc = rsh_store_identify(s, file, &h, err);

	if (rc)
		return rc;
	f->attr = *rsh_store_attr(s, file);
	f->bytes = rsh_store_identity(s, file)->size;
	*bytes += f->bytes;
	if (f->bytes > RSH_MODEL_FILE_MAX || *bytes > RSH_MODEL_FILES_MAX)
		return rsh_error_set(err, EFBIG, "%s: too large to be shown "
				     "beside a model (--model-files names "
				     "another directory, or none)", path);
	f->text = rsh_alloc_array((size_t)f->bytes, 1);
	if (!f->text)
		return rsh_error_nomem(err);
	for (uint64_t done = 0; done < f->bytes;) {
		ssize_t n = rsh_handle_pread(h, f->text + done,
					     (size_t)(f->bytes - done), done);

		if (n <= 0)
			return rsh_error_set(err, n ? (int)-n : EIO, "%s: %s",
					     path, n ? strerror((int)-n) :
					     "it changes while it is read");
		done += (uint64_t)n;
	}
	return 0;
}

/* ---- all files ---- */

static int model_file_by_name(const void *a, const void *b)
{
	const struct rsh_model_file *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static int model_files_list(struct rsh_model_files *all,
			    const struct rsh_store *s)
{
	cleanup_dir struct rsh_dir *dir = NULL;
	int more = rsh_dir_open(s, "", &dir);
	const char *name;

	while (more >= 0 && (more = rsh_dir_next(dir, &name)) > 0) {
		if (!is_model_file(dir, name))
			continue;
		if (rsh_grow(&all->v, &all->cap, all->n + 1, sizeof(*all->v)))
			return -ENOMEM;
		all->v[all->n] = (struct rsh_model_file){
			.name = strdup(name),
		};
		if (!all->v[all->n++].name)
			return -ENOMEM;
	}
	if (all->n && more == 0)
		qsort(all->v, all->n, sizeof(*all->v), model_file_by_name);
	return more;
}

static int model_files_read(struct rsh_model_files *all, struct rsh_store *s,
			    struct rsh_error *err)
{
	uint64_t bytes = 0;
	int rc = model_files_list(all, s);

	if (rc)
		return rsh_error_file(err, -rc, rsh_store_root(s));
	for (size_t i = 0; rc == 0 && i < all->n; i++) {
		const struct rsh_store_entry e = { .name = all->v[i].name };

		if (rsh_store_add(s, &e))
			return rsh_error_nomem(err);
		rc = model_files_take(all, s, (uint32_t)i, &bytes, err);
	}
	return rc;
}

int rsh_model_files_load(const char *dir, const char *source,
			 const struct rsh_store_options *how,
			 struct rsh_model_files *out, struct rsh_error *err)
{
	struct rsh_store_options opts = {
		.follow_outside = how->follow_outside,
	};
	struct rsh_store *s = NULL;
	int rc;

	if (strcmp(dir, source) == 0) {
		opts.objects = how->objects;
		opts.place = how->place;
	}
	rc = rsh_store_open(dir, &opts, &s, err);
	*out = (struct rsh_model_files){ .dir = strdup(dir) };
	if (rc == 0 && !out->dir)
		rc = rsh_error_nomem(err);
	if (rc)
		rsh_error_prefix(err, "--model-files");
	else
		rc = model_files_read(out, s, err);
	rsh_store_free(s);
	return rc;
}

void rsh_model_files_clear(struct rsh_model_files *f)
{
	for (size_t i = 0; i < f->n; i++) {
		free(f->v[i].name);
		free(f->v[i].text);
	}
	free(f->v);
	free(f->dir);
	*f = (struct rsh_model_files){ 0 };
}
