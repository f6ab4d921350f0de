/* SPDX-License-Identifier: Apache-2.0 */
/* source/open.c opens a source: it finds the format, and the format lists the
 * files.  If SOURCE is not a checkpoint, it suggests another SOURCE or file. */
#include "config.h"

#include "kept_i.h"
#include "source_i.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rsh/source/failures.h"
#include "rsh/source/format.h"
#include "rsh/source/inspect.h"
#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/wire/file_type.h"

/* Opening directories takes time, and one suggestion is enough. */
#define LOOKED_AT_MAX 64
/* Files of other kinds are found in the first ones. */
#define FILES_MAX 8
/* Frameworks put slices two levels below the directory of a run. */
#define ENTRIES_DEEP 2

struct hinting {
	const char *source;
	struct rsh_store_options of_source;
	struct rsh_store_options others; /* of other directories */
	const struct rsh_format *const *formats;
	unsigned looked_at;
	char *buf;
	size_t max;
};

/* `how->place` is SOURCE itself. */
static struct hinting hint_begin(const char *path,
				 const struct rsh_store_options *how,
				 const struct rsh_format *const *formats,
				 char *buf, size_t max)
{
	*buf = '\0';
	return (struct hinting){
		path, { .objects = how->objects, .place = how->place },
		{ .objects = how->objects }, formats, 0, buf, max,
	};
}

static const struct rsh_store_options *hint_how(const struct hinting *k,
						const char *path)
{
	return path == k->source ? &k->of_source : &k->others;
}

static bool hint_is_source(const struct hinting *k, const char *path)
{
	struct rsh_error unused = RSH_ERROR_INIT;
	int bid;

	rsh_source_format_at(path, &k->others, k->formats, &bid, &unused);
	return bid > RSH_BID_ANY;
}

/* Returns the length of the name without a number at its end. */
static size_t hint_series(const char *name)
{
	size_t n = strlen(name);

	while (n > 0 && name[n - 1] >= '0' && name[n - 1] <= '9')
		n--;
	return n;
}

/* Returns the directory above a path; NULL if there is none, or if it cannot be
 * computed from the path. */
static char *hint_above(const char *path)
{
	const char *host = strstr(path, "://");
	size_t n = strlen(path);
	const char *slash;

	while (n > 1 && path[n - 1] == '/')
		n--;
	slash = memrchr(path, '/', n);
	if (host && (!slash || slash < host + strlen("://")))
		return NULL;
	return !slash ? strdup(".") : slash == path ? strdup("/") :
	       strndup(path, (size_t)(slash - path));
}

/* Returns the last part of a path, which has *n characters. */
static const char *hint_last(const char *path, size_t *n)
{
	const char *slash;

	*n = strlen(path);
	while (*n > 1 && path[*n - 1] == '/')
		--*n;
	slash = memrchr(path, '/', *n);
	if (!slash)
		return path;
	*n -= (size_t)(slash + 1 - path);
	return slash + 1;
}

/* Returns whether the last part of a path is the directory of a rank, or one
 * that MindFormers puts into it. */
static bool hint_is_of_rank(const char *path)
{
	size_t n;
	const char *name = hint_last(path, &n);

	if ((n == 10 && strncmp(name, "checkpoint", n) == 0) ||
	    (n == 7 && strncmp(name, "network", n) == 0)) {
		cleanup_free char *above = hint_above(path);

		return above && hint_is_of_rank(above);
	}
	return rsh_rank_dir_is(name, n);
}

/* ---- a checkpoint in a directory ---- */

/* This is the entry that was found first or has the greatest number. */
struct hint_child {
	char name[NAME_MAX + 1];
	char *path;   /* below the directory; NULL: none was found */
	bool several; /* of the same series */
};

static void hint_child_clear(struct hint_child *c)
{
	free(c->path);
}
#define cleanup_child __attribute__((cleanup(hint_child_clear)))

/* Keeps the newest of several steps, and the first of other names in sorted
 * order; the order of the listing has no effect. */
static void hint_keep_child(struct hint_child *c, const char *name, char *path)
{
	const size_t n = hint_series(name);
	const bool same = c->path && name[n] && hint_series(c->name) == n &&
			  strncmp(c->name, name, n) == 0;

	c->several |= same;
	if (c->path && (same ? strverscmp(name, c->name) <= 0 :
			       strverscmp(name, c->name) >= 0)) {
		free(path);
		return;
	}
	free(c->path);
	c->path = path;
	snprintf(c->name, sizeof(c->name), "%s", name);
}

/* Returns the snapshot that the branch "main" of a model in the cache of
 * Hugging Face names, below the directory `snapshots`. */
static char *hint_revision(const char *snapshots)
{
	cleanup_free char *ref = rsh_text_format("%s/../refs/main", snapshots);
	cleanup_free char *name = calloc(NAME_MAX + 1, 1);
	cleanup_fd int fd = ref && name ? open(ref, O_RDONLY | O_CLOEXEC) : -1;
	ssize_t n = fd < 0 ? -1 : read(fd, name, NAME_MAX);

	return n > 0 && name[strspn(name, "0123456789abcdef")] == '\0' ?
	       steal_pointer(&name) : NULL;
}

static void hint_find_child(const struct hinting *k, const char *path,
			    struct hint_child *c);

/* Returns the checkpoint that the entry of a directory is, or the snapshot of a
 * model that it is, as a path below the directory (from malloc); NULL: it is
 * neither. */
static char *hint_checkpoint(const struct hinting *k, const char *dir,
			     const char *name)
{
	const bool inside = strcmp(name, "snapshots") == 0;
	cleanup_free char *path = rsh_text_format("%s/%s", dir, name);
	cleanup_free char *snapshots =
		path ? rsh_text_format("%s%s", path, inside ? "" : "/snapshots")
		     : NULL;
	cleanup_child struct hint_child c = { .path = NULL };

	if (!snapshots)
		return NULL;
	if (hint_is_source(k, path))
		return strdup(name);
	hint_find_child(k, snapshots, &c);
	return c.path ? rsh_text_format("%s/%s%s", name,
					inside ? "" : "snapshots/", c.path) :
			NULL;
}

/* Finds a source in a directory: the one that a cache names, else the first one
 * by name or, if names differ only in a number at the end, the one with the
 * greatest number. */
static void hint_find_child(const struct hinting *k, const char *path,
			    struct hint_child *c)
{
	cleanup_free char *main_one = rsh_store_is_address(path) ? NULL :
				      hint_revision(path);
	cleanup_dir struct rsh_dir *dir = NULL;
	unsigned looked_at = 0;
	const char *name;

	if (main_one)
		c->path = hint_checkpoint(k, path, main_one);
	if (c->path || rsh_dir_open_path(path, hint_how(k, path), &dir))
		return;
	while (looked_at < LOOKED_AT_MAX && rsh_dir_next(dir, &name) > 0) {
		char *found;

		if (name[0] == '.')
			continue;
		looked_at++;
		found = hint_checkpoint(k, path, name);
		if (found)
			hint_keep_child(c, name, found);
	}
}

/* Directories such as rank0 or device_1 may be those of ranks. */
static void hint_about_names(const struct rsh_look *l, const struct hinting *k)
{
	/* A directory of a file system lists "." and "..". */
	bool any = false;

	for (size_t i = 0; i < l->n && !*k->buf; i++) {
		const char *name = l->names[i];
		const size_t n = hint_series(name);
		struct rsh_stat st;

		any |= strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
		/* The usual name needs no option. */
		if (rsh_rank_dir_may_be(name, strlen(name)) && n < 32 &&
		    (n != 5 || strncmp(name, "rank_", n) != 0) &&
		    rsh_store_look(l->source->store, name, &st) == 0 &&
		    st.kind == RSH_IS_DIR)
			snprintf(k->buf, k->max, "; if %s is the directory of a "
				 "rank, use --rank-dir '%.*s{rank}'", name,
				 (int)n, name);
	}
	if (l->listed && !any)
		snprintf(k->buf, k->max, "; the directory is empty");
}

/* Says what the first file is that has the name of a checkpoint of another
 * kind, and the first bytes of something else. */
static void hint_about_files(const struct rsh_look *l, const struct hinting *k)
{
	static const char *const suffixes[] = {
		".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".h5",
		".hdf5", ".npy", ".npz",
	};
	unsigned looked_at = 0;

	for (size_t i = 0; i < l->n && !*k->buf && looked_at < FILES_MAX; i++) {
		const struct rsh_store *store = l->source->store;
		cleanup_handle struct rsh_handle *h = NULL;
		uint8_t begin[RSH_FILE_BEGIN];
		const char *what = NULL;
		bool is = false;
		ssize_t n = 0;

		for (size_t s = 0; s < sizeof(suffixes) / sizeof(*suffixes);
		     s++)
			is |= rsh_has_suffix(l->names[i], suffixes[s]);
		if (is && rsh_handle_open(store, l->names[i], &h) == 0)
			n = rsh_handle_pread(h, begin, sizeof(begin), 0);
		/* Those of torch.save() are no reason to refuse a directory. */
		if (n > 0 && *begin != 0x80 && *begin != 'P')
			what = rsh_file_begins_as(begin, (size_t)n);
		looked_at += is;
		if (what)
			snprintf(k->buf, k->max, "; %s is %s", l->names[i], what);
	}
}

static int hint_ask_formats(const struct rsh_look *look, void *ctx)
{
	const struct hinting *k = ctx;

	for (const struct rsh_format *const *f = k->formats; *f && !*k->buf;
	     f++)
		if ((*f)->bid)
			(*f)->bid(look, &(struct rsh_bid_more){
					.hint = k->buf, .max = k->max });
	if (!*k->buf && !look->file)
		hint_about_files(look, k);
	if (!*k->buf && !look->file && look->source->path == k->source)
		hint_about_names(look, k);
	return 0;
}

/* Writes what formats say of a directory: "; ...", or "". */
static void hint_of_directory(const struct hinting *k, const char *path,
			      char *buf, size_t max)
{
	struct rsh_error unused = RSH_ERROR_INIT;
	struct hinting of = *k;
	cleanup_source struct rsh_source *s = NULL;

	*buf = '\0';
	if (rsh_source_new(path, hint_how(k, path), &s, &unused))
		return;
	of.source = path == k->source ? s->path : NULL;
	of.buf = buf;
	of.max = max;
	rsh_source_look_at(s, NULL, NULL, hint_ask_formats, &of, &unused);
}

/* Writes what formats say of the first directory by name, below a path, of
 * which they say anything. */
static void hint_of_entries(struct hinting *k, const char *path,
			    unsigned levels, char *buf, size_t max)
{
	cleanup_dir struct rsh_dir *dir = NULL;
	char first[NAME_MAX + 1] = "";
	struct rsh_stat st;
	const char *name;

	if (levels == 0 || rsh_dir_open_path(path, hint_how(k, path), &dir))
		return;
	while (k->looked_at < LOOKED_AT_MAX && rsh_dir_next(dir, &name) > 0) {
		cleanup_free char *entry = NULL;
		char said[512] = "";

		if (name[0] == '.' || rsh_dir_look(dir, name, &st) ||
		    st.kind != RSH_IS_DIR)
			continue;
		k->looked_at++;
		entry = rsh_text_format("%s/%s", path, name);
		if (!entry)
			return;
		/* Files of ranks may be called anything. */
		if (hint_is_of_rank(entry))
			continue;
		if (hint_is_source(k, entry))
			snprintf(said, sizeof(said), "; it is a checkpoint");
		else
			hint_of_directory(k, entry, said, sizeof(said));
		if (!*said)
			hint_of_entries(k, entry, levels - 1, said,
					sizeof(said));
		if (!*said || (*first && strcmp(first, name) <= 0))
			continue;
		snprintf(first, sizeof(first), "%s", name);
		snprintf(buf, max, "; in %s: %.400s", name, said + 2);
	}
}

/* Reads the headers of a whole model, whose files may be missing or cut. */
static int hint_read(const struct rsh_source *s, struct rsh_names *names,
		     struct rsh_error *err)
{
	const struct rsh_plan_options all = { .unlisted = RSH_UNLISTED_COPY };
	cleanup_arena struct rsh_arena arena = { NULL, 0 };
	struct rsh_source_view view;
	struct rsh_offers offers = { .cat = NULL };
	const struct rsh_read_job job = {
		.source = s, .view = &view, .opts = &all, .arena = &arena,
	};
	int rc = 0;

	if (s->n_files > 0 && s->n_bad == s->n_files)
		return rsh_error_set(err, s->first_bad.code, "%s",
				     s->first_bad.text);
	rsh_source_view(s, names, &view);
	if (s->format->layout == RSH_LAYOUT_WHOLE)
		rc = s->format->read(&job, &offers, err);
	if (rc == 0)
		rsh_catalogue_free(offers.cat);
	return rc;
}

/* Returns 0 if a checkpoint that needs no strategy can be opened, or -errno
 * with the sentence of the command that is proposed.  Others are only
 * listed. */
static int hint_try(const struct hinting *k, const char *path,
		    struct rsh_error *err)
{
	const struct rsh_source_options opts = {
		.formats = k->formats, .unsharded = true, .store = k->others,
	};
	const enum rsh_log_level level = rsh_log_get_level();
	cleanup_names struct rsh_names *names = rsh_names_new();
	cleanup_free char *file = NULL;
	cleanup_source struct rsh_source *s = NULL;
	int rc = names ? rsh_source_open_root(path, &opts.store, &s, &file,
					      err) : rsh_error_nomem(err);

	if (rc == 0) {
		s->n_listed_ranks = UINT32_MAX;
		s->file = steal_pointer(&file);
		rc = rsh_source_find_format(s, &opts, s->file, err);
	}
	if (rc == 0 && s->format && s->format->layout != RSH_LAYOUT_GIVEN) {
		/* Only the command that is proposed says this. */
		rsh_log_set_level(RSH_LOG_ERROR);
		rc = s->format->open(s, &opts, err) ?:
		     rsh_source_choose(s, 0, err) ?:
		     rsh_source_index(s, names, err) ?:
		     hint_read(s, names, err);
		rsh_log_set_level(level);
	}
	return rc;
}

void rsh_source_hint_around(const char *path,
			    const struct rsh_store_options *how,
			    const struct rsh_format *const *formats, char *buf,
			    size_t max)
{
	const struct hinting k = hint_begin(path, how, formats, buf, max);
	struct rsh_error unused = RSH_ERROR_INIT;
	cleanup_free char *at = hint_above(path);

	if (at && hint_is_source(&k, at) && hint_try(&k, at, &unused) == 0)
		snprintf(buf, max, "; it is in %s, which is a checkpoint: did "
			 "you mean that?", at);
}

/* Returns the source to which the directory of a rank belongs; NULL: the path
 * is none, or not in a source.  What is above any other directory is another
 * checkpoint. */
static char *hint_above_rank(const struct hinting *k)
{
	char *at = hint_is_of_rank(k->source) ? hint_above(k->source) : NULL;

	while (at && !hint_is_source(k, at)) {
		char *next = hint_is_of_rank(at) ? hint_above(at) : NULL;

		free(at);
		at = next;
	}
	return at;
}

void rsh_source_hint(const char *path, const struct rsh_store_options *how,
		     const struct rsh_format *const *formats, char *buf,
		     size_t max)
{
	struct hinting k = hint_begin(path, how, formats, buf, max);
	cleanup_child struct hint_child c = { .path = NULL };
	struct rsh_error why = RSH_ERROR_INIT;
	cleanup_free char *child = NULL, *above = NULL, *parent = NULL;
	struct rsh_dir *dir = NULL;
	int rc = rsh_dir_open_path(path, how, &dir);
	size_t n;

	rsh_dir_close(dir);
	if (rc) {
		snprintf(buf, max, "; %s: %s", path, strerror(-rc));
		return;
	}
	above = hint_above_rank(&k);
	if (above && hint_try(&k, above, &why) == 0) {
		snprintf(buf, max, "; it is one rank of %s: did you mean that?"
			 "%s", above,
			 strncmp(hint_last(path, &n), "ckpt_", 5) == 0 ?
			 " A whole model of a step needs --src-strategy none" :
			 "");
		return;
	}
	hint_of_directory(&k, path, buf, max);
	if (*buf)
		return;
	/* The sandbox of a mount does not let it list what is above SOURCE. */
	parent = hint_is_of_rank(path) ? hint_above(path) : NULL;
	dir = NULL;
	rc = parent ? rsh_dir_open_path(parent, &k.others, &dir) : 0;
	rsh_dir_close(dir);
	if (rc == -EACCES) {
		snprintf(buf, max, "; it has the name of one rank of %s: did "
			 "you mean that?", parent);
		return;
	}
	hint_find_child(&k, path, &c);
	child = c.path ? rsh_text_format("%s/%s", path, c.path) : NULL;
	if (!child)
		hint_of_entries(&k, path, ENTRIES_DEEP, buf, max);
	else if (hint_try(&k, child, &why))
		snprintf(buf, max, "; %s", why.text);
	else
		snprintf(buf, max, "; %s in it is a checkpoint: did you mean "
			 "that%s?", c.path, c.several ?
			 ", or mount --steps all, which shows each step" : "");
}

static const struct {
	const char *name;
	const char *what;
} other_names[] = {
	{ "/.metadata", "the metadata of a distributed checkpoint" },
	{ ".distcp", "a part of a distributed checkpoint" },
	{ "config.json", "a configuration of a model" },
	{ ".index.json", "the index of a model's parts" },
	{ "/tokenizer.json", "the tokenizer of a model" },
};

const char *rsh_other_file(const char *path)
{
	static const char name[] = "metadata.json";
	const char *base = rsh_path_name(path);
	cleanup_free char *beside = NULL;
	char begin[RSH_FILE_BEGIN];
	cleanup_fd int fd = -1;
	ssize_t n;

	/* The metadata.json of Megatron-Core is only one file of its
	 * checkpoint.  That of a Checkpoint 2.0 is a strategy, whose errors
	 * must be reported. */
	if (strcmp(base, name) == 0)
		beside = rsh_text_format("%.*s.metadata", (int)(base - path),
					 path);
	if (beside && access(beside, F_OK) == 0)
		return "a part of a distributed checkpoint";
	for (size_t i = 0; i < sizeof(other_names) / sizeof(*other_names); i++)
		if (rsh_has_suffix(path, other_names[i].name) ||
		    strcmp(path, other_names[i].name + 1) == 0)
			return other_names[i].what;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	n = fd < 0 ? -1 : read(fd, begin, sizeof(begin));
	return n > 0 ? rsh_file_begins_as(begin, (size_t)n) : NULL;
}

/* ---- opening ---- */

static void open_log_empty_dirs(const struct rsh_source *s)
{
	const struct rsh_listing *l = &s->listing;
	cleanup_free uint32_t *ranks = rsh_alloc_array(l->n, sizeof(*ranks));

	/* If memory is out nothing is logged. */
	if (!ranks || !rsh_log_enabled(RSH_LOG_INFO))
		return;
	for (size_t i = 0; i < l->n; i++)
		ranks[i] = l->files[i].rank;
	rsh_sort(ranks, l->n, rsh_by_u32);
	for (size_t d = 0; d < l->n_dirs; d++)
		if (!rsh_find(&l->dirs[d].rank, ranks, l->n, rsh_by_u32))
			rsh_log_info("%s/%s contains no checkpoint", s->path,
				     l->dirs[d].name);
}

/* SOURCE has no directories of ranks.  It may have a format that needs no
 * strategy although one is given, or the user may have meant another
 * directory. */
static int open_explain(struct rsh_source *s,
			const struct rsh_source_options *opts,
			struct rsh_error *err)
{
	const struct rsh_format *const format = s->format;
	struct rsh_source_options unsharded = *opts;
	const struct rsh_error why = *err;
	char hint[512];

	unsharded.unsharded = true;
	if (!opts->unsharded &&
	    rsh_source_find_format(s, &unsharded, NULL, err) == 0 &&
	    s->format->layout == RSH_LAYOUT_OWN)
		return rsh_source_needs_none(s, err);
	s->format = format;
	rsh_source_hint(s->path, &opts->store, s->formats, hint, sizeof(hint));
	return rsh_error_set(err, ENOENT, "%s%s", why.text, *hint ? hint :
			     ", nor another kind of checkpoint (man "
			     "reshardfs-sources)");
}

/* Opens the directories of files that do not belong to the checkpoint. */
static int open_beside(struct rsh_source *s,
		       const struct rsh_source_options *opts,
		       struct rsh_error *err)
{
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < opts->n_beside; i++) {
		const char *file = opts->beside[i];
		cleanup_free char *directory =
			strndup(file, (size_t)(strrchr(file, '/') - file));

		rc = directory ? rsh_store_join(s->store, directory, err) :
				 rsh_error_nomem(err);
	}
	return rc;
}

/* SOURCE is a file that no format accepts. */
static int open_refuse_file(const char *path, const struct rsh_source *s,
			    const struct rsh_store_options *how,
			    const char *file, struct rsh_error *err)
{
	static const char usual[] = ": SOURCE is the directory of a "
		"checkpoint, or one file with all its tensors";
	struct rsh_stat st;
	const char *what = rsh_other_file(path);
	const bool empty = rsh_store_look(s->store, file, &st) == 0 &&
			   st.kind == RSH_IS_FILE && st.size == 0;
	char hint[512];
	struct hinting k = hint_begin(path, how, s->formats, hint,
				      sizeof(hint));
	struct rsh_error unused = RSH_ERROR_INIT;

	if (!empty)
		rsh_source_look_at(s, NULL, file, hint_ask_formats, &k,
				   &unused);
	if (!*hint)
		rsh_source_hint_around(path, how, s->formats, hint,
				       sizeof(hint));
	return rsh_error_set(err, EINVAL, "%s: %s%s%s", path,
			     empty ? "the file is empty" :
			     what ? "this is " : "this file is not a checkpoint",
			     empty || !what ? "" : what,
			     *hint ? hint : usual);
}

int rsh_source_open(const char *path, uint32_t first, uint32_t n,
		    const struct rsh_source_options *opts,
		    struct rsh_source **out, struct rsh_error *err)
{
	cleanup_free char *file = NULL;
	struct rsh_source *s;
	int rc = rsh_source_open_root(path, &opts->store, &s, &file, err);

	if (rc)
		return rc;
	s->first_rank = first;
	s->n_listed_ranks = n;
	s->n_threads = opts->n_threads;
	s->check = opts->check;
	s->select = opts->select;
	s->beside = opts->beside;
	s->n_beside = opts->n_beside;
	s->scan_bin = opts->scan_bin;
	if (opts->index_cache)
		s->index_dirfd = rsh_index_dir_open(opts->index_cache,
						    opts->index_cache_asked);
	rc = rsh_source_find_format(s, opts, file, err);
	/* No format accepts that file as a source. */
	if (rc == 0 && !s->format) {
		rc = open_refuse_file(path, s, &opts->store, file, err);
		rsh_source_free(s);
		/* Of an address it is not known whether it is a file. */
		return rsh_store_is_address(path) ?
		       rsh_source_new(path, &opts->store, out, err) : rc;
	}
	s->file = steal_pointer(&file);
	/* What bids look into decides nothing but the format. */
	if (rc == 0 && rsh_store_keep_opened(s->store))
		rc = rsh_error_nomem(err);
	if (rc == 0)
		rc = s->format->open(s, opts, err);
	s->n_opened = rsh_store_n_opened(s->store);
	if (rc == 0)
		rc = open_beside(s, opts, err);
	if (rc == -ENOENT && s->no_rank_dirs)
		rc = open_explain(s, opts, err);
	if (rc) {
		rsh_source_free(s);
		return rc;
	}
	open_log_empty_dirs(s);
	*out = s;
	return 0;
}

/* ---- a directory of steps ---- */

/* Tries n candidates, until one is complete: sets *found to it. */
static int step_try_all(struct rsh_source *s, uint32_t n,
			struct rsh_failures *f, uint32_t *found,
			struct rsh_error *err)
{
	struct rsh_error why = RSH_ERROR_INIT;
	char which[256];
	int rc = -ENOENT;

	for (uint32_t i = 0; i < n && rc; i++) {
		struct rsh_names *names = rsh_names_new();

		/* A copy on another rank may replace a file that is
		 * damaged. */
		rc = !names ? -ENOMEM : rsh_source_choose(s, i, &why) ?:
		     rsh_source_index(s, names, &why) ?:
		     rsh_source_judge(s, true, &why);
		rsh_names_free(names);
		if (rc && s->unread.code)
			rc = rsh_error_set(&why, s->unread.code, "%s",
					   s->unread.text);
		rsh_source_candidate_text(s, i, which, sizeof(which));
		*found = i;
		if (rc == -ENOMEM)
			return rsh_error_nomem(err);
		if (rsh_errno_is_unread(-rc))
			return rsh_failures_unread(s->path, which, &why, err);
		if (rc && rsh_failures_add(f, which, NULL, &why))
			return rsh_error_nomem(err);
	}
	if (rc)
		return rsh_failures_none(f, rsh_source_n_candidates(s), -rc,
					 "no checkpoint that can be mounted",
					 err);
	rsh_failures_log(f, *found, which);
	return 0;
}

static int step_find(struct rsh_source *s, uint32_t fallbacks, uint32_t *found,
		     struct rsh_error *err)
{
	const uint32_t all = rsh_source_n_candidates(s);
	const uint32_t n = all - 1 > fallbacks ? fallbacks + 1 : all;
	struct rsh_failures f;
	int rc;

	if (rsh_failures_init(&f, s->path, n))
		return rsh_error_nomem(err);
	rc = step_try_all(s, n, &f, found, err);
	rsh_failures_clear(&f);
	return rc;
}

/* Returns the directory below SOURCE that has all files of a candidate (from
 * malloc), "" for SOURCE; NULL: memory is out. */
static char *candidate_dir(const struct rsh_source *s, uint32_t i)
{
	const struct rsh_checkpoint *one;
	size_t at, end, n;

	rsh_source_candidate_range(s, i, &at, &end);
	one = at < end ? &s->listing.files[at] : NULL;
	n = one && !one->unread && strncmp(one->name, "./", 2) != 0 ?
	    (size_t)(one->base - one->name) : 0;
	for (; at < end; at++) {
		const struct rsh_checkpoint *c = &s->listing.files[at];

		if ((size_t)(c->base - c->name) != n ||
		    strncmp(c->name, one->name, n) != 0)
			n = 0;
	}
	return n > 0 ? strndup(one->name, n - 1) : strdup("");
}

int rsh_source_find_step(const char *path,
			 const struct rsh_source_options *opts,
			 uint32_t fallbacks, char **out, struct rsh_error *err)
{
	struct rsh_source_options unsharded = *opts;
	cleanup_free char *dir = NULL;
	cleanup_source struct rsh_source *s = NULL;
	uint32_t i = 0;
	int rc;

	unsharded.unsharded = true;
	rc = rsh_source_open(path, 0, UINT32_MAX, &unsharded, &s, err);
	*out = NULL;
	if (rc)
		return rc;
	if (rsh_source_n_candidates(s) > 1)
		rc = step_find(s, fallbacks, &i, err);
	if (rc == 0) {
		dir = candidate_dir(s, i);
		if (dir && *dir && rsh_source_n_candidates(s) > 1)
			rsh_log_notice("%s: taking %s", s->path, dir);
		if (dir && *dir)
			*out = rsh_text_format("%s/%s", s->path, dir);
		if (!dir || (*dir && !*out))
			rc = rsh_error_nomem(err);
	}
	/* The files of one step may be in a subdirectory of it. */
	if (*out && !rsh_source_is_one_step(*out, &opts->store,
					    opts->formats)) {
		free(*out);
		*out = NULL;
	}
	/* What is beside the step is not in SOURCE any more. */
	if (*out)
		rsh_source_log_other(s);
	return rc;
}
