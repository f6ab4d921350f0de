/* SPDX-License-Identifier: Apache-2.0 */
/* source/strategies.c reads strategies from disk, and joins and checks them.  A
 * metadata.json is a strategy too.  The parsed content of a large one is kept
 * in the directory of the index cache, in a separate file, which counts as an
 * index file when old files are removed.  As with indexes, the contents are not
 * trusted: if anything is wrong with the file, the metadata.json is read
 * again. */
#include "config.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "kept_i.h"
#include "source_i.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "rsh/source/format.h"
#include "rsh/source/inspect.h"
#include "rsh/source/strategies.h"
#include "rsh/strategy/checkpoint2.h"
#include "rsh/strategy/derive.h"
#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/wire/bytes.h"
#include "rsh/wire/strategy_emit.h"
#include "rsh/wire/strategy_file.h"

/* Reading a smaller one is faster than looking it up. */
#define KEPT_FROM_BYTES (UINT64_C(1) << 20)

/* ---- what was parsed before ---- */

/* The content begins with the key of the metadata.json; the text of
 * rsh_ckpt2_keep() follows. */
static int kept_load(int dirfd, const struct rsh_index_key *key,
		     const char *path, struct rsh_ckpt2 **out)
{
	cleanup_free uint8_t *data = NULL;
	char name[RSH_KEPT_NAME];
	struct rsh_memory text;
	size_t len;
	int rc;

	rsh_kept_name(XXH3_64bits(key, sizeof(*key)), name);
	rc = rsh_kept_get(dirfd, name, RSH_KEPT_METADATA, &data, &len);
	if (rc)
		return rc;
	if (len < sizeof(*key) || memcmp(data, key, sizeof(*key)) != 0)
		return -EBADMSG;
	text = (struct rsh_memory){ data + sizeof(*key), len - sizeof(*key) };
	return rsh_ckpt2_parse_kept(&(struct rsh_byte_source){
		rsh_memory_pread, &text, text.len, path,
	}, out, NULL);
}

static int kept_save(int dirfd, const struct rsh_index_key *key,
		     const struct rsh_ckpt2 *c)
{
	cleanup_free char *text = NULL;
	cleanup_free uint8_t *data = NULL;
	char name[RSH_KEPT_NAME];
	size_t len;
	int rc = rsh_ckpt2_keep(c, &text, &len);

	if (rc)
		return rc;
	data = malloc(sizeof(*key) + len);
	if (!data)
		return -ENOMEM;
	memcpy(data, key, sizeof(*key));
	memcpy(data + sizeof(*key), text, len);
	rsh_kept_name(XXH3_64bits(key, sizeof(*key)), name);
	return rsh_kept_put(dirfd, name, RSH_KEPT_METADATA, data,
			    sizeof(*key) + len);
}

/* ---- both ---- */

int rsh_metadata_parse(int dirfd, struct rsh_handle *h, const char *path,
		       struct rsh_ckpt2 **out, struct rsh_error *err)
{
	struct rsh_byte_source src = { rsh_handle_pread, h, 0, path };
	struct rsh_index_key key, after;
	time_t now = time(NULL);
	struct rsh_stat st;
	int rc = rsh_handle_look(h, &st) ?: rsh_index_key_take(h, &key);

	if (rc)
		return rsh_error_file(err, -rc, path);
	if (st.kind != RSH_IS_FILE)
		return rsh_error_set(err, EBADMSG, "%s: not a regular file",
				     path);
	src.size = key.size;
	if (dirfd < 0 || key.size < KEPT_FROM_BYTES)
		return rsh_ckpt2_parse(&src, out, err);
	if (kept_load(dirfd, &key, path, out) == 0)
		return 0;
	rc = rsh_ckpt2_parse(&src, out, err);
	if (rc || !rsh_index_key_settled(&key, now) ||
	    rsh_index_key_take(h, &after) ||
	    memcmp(&key, &after, sizeof(key)) != 0)
		return rc;
	rc = kept_save(dirfd, &key, *out);
	if (rc)
		rsh_log_info("%s: the index cache cannot be written: %s", path,
			     strerror(-rc));
	return 0;
}

#define METADATA_NAME "metadata.json"
#define PIECE_BYTES ((size_t)1 << 20)

/* Finds the metadata.json that a path means, which is that of the step in the
 * tracker if it is a save directory. */
static int metadata_find(const char *path, char **out, struct rsh_error *err)
{
	static const struct rsh_small_file tracker = { "tracker", 4096 };
	struct rsh_error unused = RSH_ERROR_INIT;
	cleanup_free char *of = NULL, *p = NULL;
	cleanup_free uint8_t *data = NULL;
	cleanup_handle struct rsh_handle *h = NULL;
	char head[256];
	struct stat st;
	uint64_t step;
	ssize_t n;
	size_t len;

	*out = NULL;
	if (stat(path, &st) != 0)
		return 0; /* the caller reports it if it needs the file */
	of = rsh_text_format("%s/" RSH_CKPT2_TRACKER, path);
	if (!of)
		return rsh_error_nomem(err);
	if (S_ISDIR(st.st_mode) &&
	    rsh_load_whole(of, &tracker, &data, &len, &unused) == 0)
		data[len] = '\0';
	if (!S_ISDIR(st.st_mode))
		p = strdup(path);
	else if (data && rsh_tracker_parse((const char *)data, &step))
		p = rsh_text_format("%s/iteration_%08" PRIu64 "/" METADATA_NAME,
				    path, step);
	else
		p = rsh_text_format("%s/" METADATA_NAME, path);
	if (!p)
		return rsh_error_nomem(err);
	/* A pipe is not opened, because bytes that are read from it are
	 * lost. */
	if (stat(p, &st) != 0 || !S_ISREG(st.st_mode) ||
	    rsh_handle_open_path(p, &h))
		return 0;
	n = rsh_handle_pread(h, head, sizeof(head), 0);
	if (n > 0 && rsh_ckpt2_is_metadata(head, (size_t)n))
		*out = steal_pointer(&p);
	return 0;
}

static int metadata_strategy(const char *path, struct rsh_names *names,
			     struct rsh_strategy **out, struct rsh_error *err)
{
	cleanup_handle struct rsh_handle *h = NULL;
	struct rsh_ckpt2 *c;
	int rc = rsh_handle_open_path(path, &h);

	if (rc)
		return rsh_error_file(err, -rc, path);
	rc = rsh_metadata_parse(-1, h, path, &c, err);
	if (rc)
		return rc;
	rc = rsh_strategy_of_checkpoint2(c, path, names, out, err);
	rsh_ckpt2_free(c);
	return rc;
}

/* ---- strategy files ---- */

/* The largest known strategies have a few megabytes per stage. */
#define STRATEGY_BYTES_MAX (UINT64_C(1) << 30)

static const struct rsh_small_file strategy_kind = { "strategy",
						   STRATEGY_BYTES_MAX };
static const struct rsh_small_file names_file = { "map of names",
						  STRATEGY_BYTES_MAX };

/* If the file is not a strategy, the error says what it is, because the
 * parser's error would not help. */
static int strategy_load_file(const char *path, struct rsh_strategy_file **out,
			      struct rsh_error *err)
{
	cleanup_free uint8_t *data = NULL;
	size_t len;
	int rc = rsh_load_whole(path, &strategy_kind, &data, &len, err) ?:
		 rsh_strategy_parse(data, len, path, out, err);
	const char *what = rc == -EBADMSG ? rsh_other_file(path) : NULL;

	return what ? rsh_error_set(err, EBADMSG, "%s: this is not a strategy, "
				    "but %s", path, what) : rc;
}

int rsh_name_map_load(const char *path, struct rsh_name_map **out,
		      struct rsh_error *err)
{
	cleanup_free uint8_t *data = NULL;
	size_t len;

	return rsh_load_whole(path, &names_file, &data, &len, err) ?:
	       rsh_name_map_parse(data, len, path, out, err);
}

static int strategy_read_names(DIR *dir, const char *path,
			       struct rsh_path_list *l, struct rsh_error *err)
{
	const struct dirent *e;
	char *file;
	int rc;

	while (errno = 0, (e = readdir(dir))) {
		if (e->d_name[0] == '.' ||
		    !(rsh_has_suffix(e->d_name, ".ckpt") ||
		      rsh_has_suffix(e->d_name, ".json")))
			continue;
		if (asprintf(&file, "%s/%s", path, e->d_name) < 0)
			return rsh_error_nomem(err);
		rc = rsh_path_list_add(l, file);
		free(file);
		if (rc)
			return rsh_error_nomem(err);
	}
	if (errno)
		return rsh_error_file(err, errno, path);
	if (l->n == 0)
		return rsh_error_set(err, EINVAL, "%s: no strategy file "
				     "(*.ckpt or *.json) in this directory",
				     path);
	return 0;
}

static int strategy_merge_files(const struct rsh_path_list *l,
				enum rsh_strategy_form form, const char *path,
				struct rsh_names *names,
				struct rsh_strategy **out,
				struct rsh_error *err)
{
	struct rsh_strategy_file **files =
		rsh_alloc_array(l->n, sizeof(*files));
	uint32_t n = 0;
	int rc = 0;

	if (!files)
		return rsh_error_nomem(err);
	for (; n < l->n && rc == 0; n++)
		rc = strategy_load_file(l->v[n], &files[n], err);
	if (rc == 0)
		return rsh_strategy_merge(&(struct rsh_strategy_set){ files, n,
				form, path }, names, out, err);
	for (n--; n > 0; n--)
		rsh_strategy_file_free(files[n - 1]);
	free(files);
	return rc;
}

/* The files that the path of a strategy means, or a metadata.json, which is the
 * strategy alone.  If all bytes are zero, there are none. */
struct strategy_at {
	struct rsh_path_list list;
	bool directory;
	char *metadata;
};

static void strategy_at_clear(struct strategy_at *at)
{
	rsh_path_list_clear(&at->list);
	free(at->metadata);
}
#define cleanup_at __attribute__((cleanup(strategy_at_clear)))

static int strategy_list(const char *path, bool as_listed,
			 struct strategy_at *at, struct rsh_error *err)
{
	struct rsh_path_list *l = &at->list;
	struct stat st;
	DIR *dir;
	int rc;

	if (stat(path, &st) != 0)
		return rsh_error_set(err, errno, "strategy %s: %s", path,
				     strerror(errno));
	at->directory = S_ISDIR(st.st_mode);
	if (!at->directory)
		return rsh_path_list_add(l, path) ? rsh_error_nomem(err) : 0;
	dir = opendir(path);
	if (!dir)
		return rsh_error_file(err, errno, path);
	rc = strategy_read_names(dir, path, l, err);
	closedir(dir);
	if (rc == 0 && !as_listed)
		rsh_sort(l->v, l->n, rsh_by_text);
	return rc;
}

static int strategy_find(const char *path, bool as_listed,
			 struct strategy_at *at, struct rsh_error *err)
{
	int rc = metadata_find(path, &at->metadata, err);

	return rc || at->metadata ? rc :
	       strategy_list(path, as_listed, at, err);
}

int rsh_strategy_load(const char *path, bool as_listed,
		      struct rsh_names *names, struct rsh_strategy **out,
		      struct rsh_error *err)
{
	cleanup_at struct strategy_at at = { .metadata = NULL };

	return strategy_find(path, as_listed, &at, err) ?: at.metadata ?
	       metadata_strategy(at.metadata, names, out, err) :
	       strategy_merge_files(&at.list, !at.directory ?
				    RSH_STRATEGY_FILE : as_listed ?
				    RSH_STRATEGY_DIR_AS_LISTED :
				    RSH_STRATEGY_DIR, path, names, out, err);
}

/* A metadata.json may be too large for memory. */
static int metadata_hash(const char *path, XXH3_state_t *hash,
			 struct rsh_error *err)
{
	cleanup_handle struct rsh_handle *h = NULL;
	cleanup_free char *piece = malloc(PIECE_BYTES);
	ssize_t n = piece ? rsh_handle_open_path(path, &h) : -ENOMEM;
	uint64_t at = 0;

	while (h && (n = rsh_handle_pread(h, piece, PIECE_BYTES, at)) > 0) {
		XXH3_64bits_update(hash, piece, (size_t)n);
		at += (uint64_t)n;
	}
	return n == -ENOMEM ? rsh_error_nomem(err) :
	       n ? rsh_error_file(err, (int)-n, path) : 0;
}

int rsh_strategy_digest(const char *path, uint64_t *xxh3, struct rsh_error *err)
{
	cleanup_at struct strategy_at at = { .metadata = NULL };
	XXH3_state_t *hash = XXH3_createState();
	int rc = hash ? strategy_find(path, false, &at, err) :
			rsh_error_nomem(err);

	if (hash)
		XXH3_64bits_reset(hash);
	if (rc == 0 && at.metadata)
		rc = metadata_hash(at.metadata, hash, err);
	for (size_t i = 0; i < at.list.n && rc == 0; i++) {
		cleanup_free uint8_t *data = NULL;
		const char *name = strrchr(at.list.v[i], '/');
		size_t len;

		rc = rsh_load_whole(at.list.v[i], &strategy_kind, &data, &len,
				    err);
		if (rc == 0 && at.directory)
			XXH3_64bits_update(hash, name, strlen(name) + 1);
		if (rc == 0)
			XXH3_64bits_update(hash, data, len);
	}
	if (rc == 0)
		*xxh3 = XXH3_64bits_digest(hash);
	XXH3_freeState(hash);
	return rc;
}

/* ---- joining ---- */

int rsh_strategies_join(char *const *paths, size_t n, bool *json, void **out,
			size_t *len, struct rsh_error *err)
{
	cleanup_at struct strategy_at at = { .metadata = NULL };
	char *const *v;
	cleanup_free struct rsh_strategy_bytes *files = NULL;
	cleanup_free uint8_t **data = NULL;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < n; i++)
		rc = strategy_list(paths[i], false, &at, err);
	v = at.list.v;
	n = at.list.n;
	for (size_t i = 1; rc == 0 && i < n; i++)
		if (rsh_has_suffix(v[i], ".json") !=
		    rsh_has_suffix(v[0], ".json"))
			rc = rsh_error_set(err, EINVAL, "%s and %s: strategies "
					   "in protobuf and in JSON form "
					   "cannot be merged", v[0], v[i]);
	if (rc)
		return rc;
	files = calloc(n, sizeof(*files));
	data = calloc(n, sizeof(*data));
	if (!files || !data)
		return rsh_error_nomem(err);
	*json = rsh_has_suffix(v[0], ".json");
	for (size_t i = 0; rc == 0 && i < n; i++) {
		rc = rsh_load_whole(v[i], &strategy_kind, &data[i],
				    &files[i].len, err);
		files[i].path = v[i];
		files[i].data = data[i];
	}
	if (rc == 0)
		rc = rsh_strategy_join(files, n, *json, out, len, err);
	for (size_t i = 0; i < n; i++)
		free(data[i]);
	return rc;
}

/* ---- checking ---- */

/* A metadata.json is checked by parsing it. */
int rsh_strategies_check(const char *path,
			 const struct rsh_derive_shapes *shapes,
			 struct rsh_names *names,
			 rsh_strategy_report_fn *report, void *ctx,
			 struct rsh_error *err)
{
	cleanup_at struct strategy_at at = { .metadata = NULL };
	struct rsh_error bad = RSH_ERROR_INIT;
	struct rsh_strategy *s = NULL;
	struct rsh_strategy_file **files;
	uint32_t n = 0;
	int rc = strategy_find(path, false, &at, &bad);

	if (rc == 0 && at.metadata && shapes)
		return rsh_error_set(err, EINVAL,
			"%s: --checkpoint is for strategy files, which have no "
			"shapes; a metadata.json has them", at.metadata);
	if (rc == 0 && at.metadata)
		rc = metadata_strategy(at.metadata, names, &s, &bad);
	rsh_strategy_free(s);
	if (rc == -ENOMEM)
		return rsh_error_nomem(err);
	if (rc)
		report(ctx, bad.text);
	if (rc || at.metadata)
		return 0;
	files = calloc(at.list.n, sizeof(*files));
	if (!files)
		return rsh_error_nomem(err);
	/* Files that are not valid are reported. */
	for (size_t i = 0; i < at.list.n && rc != -ENOMEM; i++) {
		cleanup_free uint8_t *data = NULL;
		size_t len;

		bad = (struct rsh_error)RSH_ERROR_INIT;
		rc = rsh_load_whole(at.list.v[i], &strategy_kind, &data, &len,
				    &bad) ?:
		     rsh_strategy_parse_all(&(struct rsh_memory){ data, len },
					    at.list.v[i], report, ctx,
					    &files[n], &bad);
		n += rc == 0;
		if (rc && rc != -ENOMEM)
			report(ctx, bad.text);
	}
	if (rc != -ENOMEM)
		return rsh_strategy_check(&(struct rsh_strategy_checked){
			files, n, at.directory, path, shapes,
		}, names, report, ctx, err);
	for (uint32_t i = 0; i < n; i++)
		rsh_strategy_file_free(files[i]);
	free(files);
	return rsh_error_nomem(err);
}

/* This says where shapes are read from and stored. */
struct shapes_reading {
	const char *path;
	const struct rsh_source_options *opts;
	const struct rsh_strategy *src;
	struct rsh_names *names;
	struct rsh_derive_shapes *out;
	bool any; /* a file of the stage was read */
};

/* Adds the shapes of the first candidate that has a readable file of the n
 * ranks. */
static int shapes_try_ranks(struct shapes_reading *r, uint32_t first,
			    uint32_t n, struct rsh_error *err)
{
	cleanup_source struct rsh_source *s = NULL;
	int rc = rsh_source_open(r->path, first, n, r->opts, &s, err);

	if (rc)
		return rc;
	if (!rsh_source_format(s)->by_name)
		rc = rsh_error_set(err, EINVAL, "%s: a %s, whose files have no "
				   "parameters of ranks", r->path,
				   rsh_source_format(s)->says);
	for (uint32_t i = 0; !rc && !r->any && i < rsh_source_n_candidates(s);
	     i++) {
		struct rsh_source_view view;

		rc = rsh_source_choose(s, i, err) ?:
		     rsh_source_index(s, r->names, err);
		if (rc)
			break;
		rsh_source_log_left_out(s);
		rsh_source_view(s, r->names, &view);
		for (uint32_t k = first; k < view.n_ranks && rc == 0; k++) {
			if (!view.index[k])
				continue;
			rc = rsh_derive_shapes_add(r->out, r->src, k,
						   view.index[k], view.names,
						   err);
			if (rc)
				rsh_error_prefix(err, "%s", view.path[k]);
			r->any |= rc == 0;
		}
	}
	return rc;
}

int rsh_source_shapes(const char *path, const struct rsh_source_options *opts,
		      const struct rsh_strategy *src, struct rsh_names *names,
		      struct rsh_derive_shapes *out, struct rsh_error *err)
{
	struct rsh_source_options headers = *opts;
	struct shapes_reading r = { path, &headers, src, names, out, false };
	const uint32_t ranks = src ? src->stage_ranks : 1;
	const uint32_t stages = src ? src->n_stages : 1;

	headers.check = RSH_CHECK_STRUCTURE;
	for (uint32_t s = 0; s < stages; s++) {
		int rc;

		/* All ranks of a stage hold slices of the same shapes, so the
		 * first file is enough.  If it is missing or cannot be read,
		 * all ranks are tried. */
		r.any = false;
		rc = shapes_try_ranks(&r, s * ranks, 1, err);
		if (ranks > 1 && (rc || !r.any))
			rc = shapes_try_ranks(&r, s * ranks, ranks, err);
		if (rc)
			return rc;
	}
	return 0;
}
