/* SPDX-License-Identifier: Apache-2.0 */
/* copy/verify_files.c compares files with a manifest, without a source. */
#include "config.h"

#include "rsh/copy/verify.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "copy_i.h"
#include "rsh/storage/store.h"
#include "rsh/util/compat.h"
#include "rsh/util/files.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

/* The largest manifest that is loaded from a remote store; it is loaded
 * whole. */
static const struct rsh_small_file manifest_file = { "manifest",
						     UINT64_C(1) << 30 };
/* The control directory in the root of a mount, which is not a file of the
 * tree. */
#define CONTROL_NAME ".reshardfs"

struct job {
	struct rsh_manifest_index index;
	const char *dir;
	struct rsh_store *tree; /* of dir */
	const struct rsh_copy_control *control;
	char *manifest;               /* path below dir; NULL: not in dir */
	struct rsh_answer *out;
};

/* ---- the files of the manifest ---- */

/* Checks a file of the manifest.  If it cannot be read, this is a problem in
 * the answer.  Other failures are errors of the command. */
static int check_listed(void *ctx, size_t i, struct rsh_error *err)
{
	struct job *j = ctx;
	const struct rsh_manifest_entry *e = &j->index.entries[i];
	const struct rsh_place at = {
		.order = i, .dir = j->dir, .name = e->path,
	};
	const struct rsh_manifest_file *f;
	struct rsh_manifest_line line;
	cleanup_handle struct rsh_handle *h = NULL;
	struct rsh_digest d;
	struct rsh_stat st;
	int rc = rsh_handle_open(j->tree, e->path, &h) ?:
		 rsh_handle_look(h, &st);
	const struct rsh_byte_source file = {
		.pread_fn = rsh_handle_pread, .ctx = h, .size = e->size,
	};

	if (rc == 0 && st.kind != RSH_IS_FILE) {
		rc = st.kind == RSH_IS_DIR ? -EISDIR : -EINVAL;
	} else if (rc == 0 && st.size != e->size) {
		rc = rsh_answer_tell(j->out, &at, "has %" PRIu64 " bytes, not "
				     "%" PRIu64, st.size, e->size);
	} else if (rc == 0) {
		rc = rsh_manifest_index_get(&j->index, e, &line, err);
		if (rc)
			return rc;
		f = &line.file;
		rc = rsh_digest_init(&d, f->records, f->n_records);
		if (rc == 0) {
			rc = rsh_copy_feed_real(&file, j->control,
						rsh_digest_sink, &d) ?:
			     rsh_digest_compare(&d, f, i, j->dir, j->out);
			rsh_digest_clear(&d);
		}
		rsh_manifest_line_clear(&line);
	}
	if (rc == -EINTR)
		return rsh_error_set(err, EINTR, "interrupted");
	if (rc && rc != -ENOMEM)
		rc = rsh_answer_tell(j->out, &at, "%s", rc == -ENOENT ?
				     "is missing" : strerror(-rc));
	return rc ? rsh_error_nomem(err) : 0;
}

/* ---- files that the manifest does not have ---- */

/* Returns whether the manifest has a file in the directory, or below it. */
static bool has_below(const struct rsh_manifest_index *x, const char *dir)
{
	const size_t len = strlen(dir);
	size_t lo = 0, hi = x->n;

	/* Paths that begin with `dir` and a byte below '/' sort before the
	 * paths in `dir`. */
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		const char *path = x->by_path[mid]->path;
		int d = strncmp(path, dir, len);

		if (d == 0)
			d = (unsigned char)path[len] - '/';
		if (d == 0)
			return true;
		if (d < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return false;
}

static int find_strangers(struct job *j, const char *dir,
			  struct rsh_error *err);

/* Reports a file that the manifest does not list.  If the manifest lists only
 * some files of its tree, the file may belong to the tree, so it is only
 * counted. */
static int tell_stranger(struct job *j, const char *path, const char *what)
{
	if (j->index.n < j->index.n_of) {
		j->out->n_unlisted++;
		return 0;
	}
	return rsh_answer_tell(j->out, &(struct rsh_place){
				.dir = j->dir, .name = path }, "%s", what);
}

/* Returns whether the directory is empty.  A directory that cannot be listed
 * does not count as empty. */
static bool is_empty_dir(const struct job *j, const char *path)
{
	cleanup_dir struct rsh_dir *d = NULL;
	const char *name;

	if (rsh_dir_open(j->tree, path, &d))
		return false;
	while (rsh_dir_next(d, &name) > 0)
		if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0)
			return false;
	return true;
}

static int look_at_stranger(struct job *j, struct rsh_dir *d, const char *name,
			    const char *path, struct rsh_error *err)
{
	struct rsh_stat st = { .kind = RSH_IS_OTHER };
	bool is_dir, in_root = strcmp(name, path) == 0;

	if (rsh_manifest_index_find(&j->index, path))
		return 0;
	is_dir = rsh_dir_look(d, name, &st) == 0 && st.kind == RSH_IS_DIR;
	/* These are not part of the tree: the manifest, the control directory
	 * of a mount, temporary files of an export, and empty directories. */
	if ((j->manifest && strcmp(path, j->manifest) == 0) ||
	    (in_root && strcmp(name, RSH_MANIFEST_NAME) == 0) ||
	    (in_root && is_dir && strcmp(name, CONTROL_NAME) == 0) ||
	    (strncmp(name, ".reshardfs-", 11) == 0 &&
	     rsh_has_suffix(name, ".part")) ||
	    (is_dir && is_empty_dir(j, path)))
		return 0;
	if (is_dir && has_below(&j->index, path))
		return find_strangers(j, path, err);
	return tell_stranger(j, path, is_dir ?
			     "is a directory that is not in the manifest" :
			     "is not in the manifest") ?
		rsh_error_nomem(err) : 0;
}

static int find_strangers(struct job *j, const char *dir, struct rsh_error *err)
{
	cleanup_dir struct rsh_dir *d = NULL;
	const char *name;
	int rc = rsh_dir_open(j->tree, dir, &d), more = 0;

	while (rc == 0 && (more = rsh_dir_next(d, &name)) > 0) {
		cleanup_free char *path = NULL;

		if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
			continue;
		if (rsh_copy_stopped(j->control))
			return rsh_error_set(err, EINTR, "interrupted");
		path = rsh_text_format("%s%s%s", dir, *dir ? "/" : "", name);
		rc = path ? look_at_stranger(j, d, name, path, err) :
			    rsh_error_nomem(err);
		if (rc)
			return rc;
	}
	if (rc == 0 && more == 0)
		return 0;
	return tell_stranger(j, *dir ? dir : ".", "cannot be listed") ?
		rsh_error_nomem(err) : 0;
}

/* ---- the whole check ---- */

static int open_manifest(struct job *j, const char *path, struct rsh_error *err)
{
	cleanup_free uint8_t *data = NULL;
	cleanup_fd int memfd = -1;
	size_t len = 0;
	int rc;

	if (!rsh_store_is_address(j->dir))
		return rsh_manifest_index_open(&j->index, path, err);
	/* The index reads lines of the manifest again later, so it needs a
	 * descriptor. */
	rc = rsh_store_load(j->tree, RSH_MANIFEST_NAME, &manifest_file, &data,
			    &len, err);
	if (rc)
		return rc;
	memfd = rsh_memfd_create(RSH_MANIFEST_NAME, MFD_CLOEXEC);
	rc = memfd < 0 ? -errno : rsh_write_all(memfd, data, len, 0);
	if (rc)
		return rsh_error_set(err, -rc, "%s/%s: %s", j->dir,
				     RSH_MANIFEST_NAME, strerror(-rc));
	return rsh_manifest_index_read(&j->index, steal_fd(&memfd), path, err);
}

int rsh_verify_files(const char *manifest, const char *dir,
		     const struct rsh_store_options *how,
		     const struct rsh_copy_control *control,
		     struct rsh_answer *out, struct rsh_error *err)
{
	/* A program that reads the tree follows all links, so the check does
	 * so, too. */
	const struct rsh_store_options opts = {
		.objects = how->objects, .place = how->place,
		.follow_outside = true,
	};
	struct job j = { .index = { .fd = -1 }, .dir = dir, .control = control,
			 .out = out };
	cleanup_free char *own = NULL;
	size_t n;
	int rc = 0;

	if (!manifest)
		manifest = own = rsh_text_format("%s/" RSH_MANIFEST_NAME, dir);
	if (!manifest)
		return rsh_error_nomem(err);
	rc = rsh_store_open(dir, &opts, &j.tree, err) ?:
	     open_manifest(&j, manifest, err);
	if (rc == 0) {
		for (size_t i = 0; i < j.index.n; i++)
			out->bytes += j.index.entries[i].size;
		out->n_files = (uint32_t)j.index.n;
		out->n_by_manifest = out->n_files;
		out->n_of = (uint32_t)j.index.n_of;
		if (control->begin)
			control->begin(control->ctx, out->bytes);
		rc = rsh_parallel_for(control->n_jobs, j.index.n, check_listed,
				      &j, err);
		rsh_answer_sort(out, 0);
	}
	n = out->n_problems;
	if (rc == 0) {
		cleanup_free char *real = realpath(j.dir, NULL);
		cleanup_free char *file = realpath(manifest, NULL);
		const size_t len = real ? strlen(real) : 0;

		/* The manifest may be in the directory under any name. */
		if (real && file && strncmp(file, real, len) == 0 &&
		    file[len] == '/')
			j.manifest = strdup(file + len + 1);
		rc = find_strangers(&j, "", err);
		rsh_answer_sort(out, n);
	}
	free(j.manifest);
	rsh_manifest_index_clear(&j.index);
	rsh_store_free(j.tree);
	return rc;
}
