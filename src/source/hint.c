/* SPDX-License-Identifier: Apache-2.0 */
/* source/hint.c suggests another SOURCE or file if the given one is not a
 * checkpoint. */
#include "config.h"

#include "source_i.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "rsh/source/inspect.h"
#include "rsh/util/files.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

/* Opening directories takes time, and one suggestion is enough. */
#define LOOKED_AT_MAX 64

static bool hint_is_source(const char *path,
			   const struct rsh_store_options *how,
			   const struct rsh_format *const *formats,
			   const struct rsh_format **format)
{
	struct rsh_error unused = RSH_ERROR_INIT;
	int bid;

	*format = rsh_source_format_at(path, how, formats, &bid, &unused);
	return bid > RSH_BID_ANY;
}

static bool hint_is_checkpoint(const char *dir, const char *name,
			       const struct rsh_store_options *how,
			       const struct rsh_format *const *formats)
{
	/* how->place is the directory itself, so it is not used for its
	 * entries. */
	const struct rsh_store_options inner = { .objects = how->objects };
	const struct rsh_format *unused;
	cleanup_free char *path = name[0] == '.' ? NULL :
				  rsh_text_format("%s/%s", dir, name);

	return path && hint_is_source(path, &inner, formats, &unused);
}

/* Returns the length of the name without a number at its end. */
static size_t hint_series(const char *name)
{
	size_t n = strlen(name);

	while (n > 0 && name[n - 1] >= '0' && name[n - 1] <= '9')
		n--;
	return n;
}

/* Keeps the newest of several steps, and the first of other names in sorted
 * order; the order of the listing has no effect. */
static void hint_keep_child(char kept[NAME_MAX + 1], const char *name,
			    bool *several)
{
	const size_t n = hint_series(name);
	const bool same = *kept && name[n] && hint_series(kept) == n &&
			  strncmp(kept, name, n) == 0;

	*several |= same;
	if (same ? strverscmp(name, kept) > 0 :
		   !*kept || strverscmp(name, kept) < 0)
		snprintf(kept, NAME_MAX + 1, "%s", name);
}

/* Finds a source in a directory: the first one by name or, if names differ only
 * in a number at the end, the one with the greatest number. */
static void hint_find_child(struct rsh_dir *dir, const char *path,
			    const struct rsh_store_options *how,
			    const struct rsh_format *const *formats,
			    char child[NAME_MAX + 1], bool *several)
{
	unsigned looked_at = 0;
	const char *name;

	*child = '\0';
	*several = false;
	while (looked_at < LOOKED_AT_MAX && rsh_dir_next(dir, &name) > 0) {
		looked_at++;
		if (hint_is_checkpoint(path, name, how, formats))
			hint_keep_child(child, name, several);
	}
}

/* This collects the hint of a format. */
struct format_hint {
	const struct rsh_format *const *formats;
	char *buf;
	size_t max;
};

/* Directories such as rank0 or device_1 may be those of ranks. */
static void hint_about_names(const struct rsh_look *l, char *buf, size_t max)
{
	static const char *const words[] = { "rank", "device", "card", "npu" };

	/* A directory of a file system lists "." and "..". */
	bool any = false;

	for (size_t i = 0; i < l->n && !*buf; i++) {
		const char *name = l->names[i];
		const size_t n = hint_series(name);
		struct rsh_stat st;
		bool of_ranks = false;

		any |= strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
		for (size_t k = 0; k < sizeof(words) / sizeof(*words); k++)
			of_ranks |= strncasecmp(name, words[k],
						strlen(words[k])) == 0;
		/* The usual name needs no option. */
		if (of_ranks && name[n] && n < 32 &&
		    (n != 5 || strncmp(name, "rank_", n) != 0) &&
		    rsh_store_look(l->source->store, name, &st) == 0 &&
		    st.kind == RSH_IS_DIR)
			snprintf(buf, max, "; if %s is the directory of a "
				 "rank, use --rank-dir '%.*s{rank}'", name,
				 (int)n, name);
	}
	if (l->listed && !any)
		snprintf(buf, max, "; the directory is empty");
}

static int hint_ask_formats(const struct rsh_look *look, void *ctx)
{
	const struct format_hint *h = ctx;

	for (const struct rsh_format *const *f = h->formats; *f && !*h->buf;
	     f++)
		if ((*f)->hint)
			(*f)->hint(look, h->buf, h->max);
	if (!*h->buf && !look->file)
		hint_about_names(look, h->buf, h->max);
	return 0;
}

void rsh_source_hint_file(const struct rsh_source *s, const char *file,
			  char *buf, size_t max)
{
	struct format_hint h = { s->formats, buf, max };
	struct rsh_error unused = RSH_ERROR_INIT;

	*buf = '\0';
	rsh_source_look_at(s, NULL, file, hint_ask_formats, &h, &unused);
}

/* Writes what formats say of a directory: "; ...", or "". */
static void hint_of_directory(const char *path,
			      const struct rsh_store_options *how,
			      const struct rsh_format *const *formats,
			      char *buf, size_t max)
{
	const struct rsh_format *const none[] = { NULL };
	struct format_hint h = { formats ? formats : none, buf, max };
	struct rsh_error unused = RSH_ERROR_INIT;
	struct rsh_source *s;

	*buf = '\0';
	if (rsh_source_new(path, how, &s, &unused))
		return;
	rsh_source_look_at(s, NULL, NULL, hint_ask_formats, &h, &unused);
	rsh_source_free(s);
}

void rsh_source_hint(const char *path, const struct rsh_store_options *how,
		     const struct rsh_format *const *formats, char *buf,
		     size_t max)
{
	const struct rsh_store_options opts = {
		.objects = how->objects, .place = how->place,
	};
	cleanup_dir struct rsh_dir *dir = NULL;
	int rc = rsh_dir_open_path(path, how, &dir);
	char child[NAME_MAX + 1];
	bool several;

	if (rc) {
		snprintf(buf, max, "; %s: %s", path, strerror(-rc));
		return;
	}
	hint_of_directory(path, &opts, formats, buf, max);
	if (*buf)
		return;
	hint_find_child(dir, path, how, formats, child, &several);
	if (*child)
		snprintf(buf, max, "; %s in it is a checkpoint: did you mean "
				   "that%s?", child, several ?
			 ", or mount --steps all, which shows each step" : "");
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

/* Returns whether the last part of a path is the directory of a rank, or one
 * that MindFormers puts into it. */
static bool hint_is_of_rank(const char *path)
{
	static const char rank[] = "rank_";
	size_t n = strlen(path);
	const char *name, *slash;

	while (n > 1 && path[n - 1] == '/')
		n--;
	slash = memrchr(path, '/', n);
	name = slash ? slash + 1 : path;
	n -= (size_t)(name - path);
	if ((n == 10 && strncmp(name, "checkpoint", n) == 0) ||
	    (n == 7 && strncmp(name, "network", n) == 0)) {
		cleanup_free char *above = hint_above(path);

		return above && hint_is_of_rank(above);
	}
	return n > sizeof(rank) - 1 &&
	       strncmp(name, rank, sizeof(rank) - 1) == 0 &&
	       rsh_count_digits(name + sizeof(rank) - 1,
				n - (sizeof(rank) - 1)) ==
	       n - (sizeof(rank) - 1);
}

/* Returns the source of which a path is only a part: the directory of a file,
 * or of a rank.  What is above any other directory is another checkpoint. */
static char *hint_whole(const char *path, const struct rsh_store_options *how,
			const struct rsh_format *const *formats,
			const struct rsh_format **format)
{
	const struct rsh_store_options opts = { .objects = how->objects };
	cleanup_dir struct rsh_dir *dir = NULL;
	const bool is_file = rsh_dir_open_path(path, &opts, &dir) == -ENOTDIR;
	char *at = is_file ? hint_above(path) : strdup(path);

	if (at && is_file && hint_is_source(at, &opts, formats, format))
		return at;
	while (at && hint_is_of_rank(at)) {
		char *next = hint_above(at);

		free(at);
		at = next;
		if (at && hint_is_source(at, &opts, formats, format))
			return at;
	}
	free(at);
	return NULL;
}

char *rsh_source_meant(const char *path, const struct rsh_store_options *how,
		       const struct rsh_format *const *formats,
		       const struct rsh_format **format)
{
	cleanup_dir struct rsh_dir *dir = NULL;
	const struct rsh_store_options opts = { .objects = how->objects };
	char child[NAME_MAX + 1], said[512], *found;
	bool several;

	if (hint_is_source(path, &opts, formats, format))
		return NULL;
	found = hint_whole(path, how, formats, format);
	if (found || rsh_dir_open_path(path, &opts, &dir))
		return found;
	/* What a format says of the directory is true of its entries, too: a
	 * slice is no model. */
	hint_of_directory(path, &opts, formats, said, sizeof(said));
	if (*said)
		return NULL;
	hint_find_child(dir, path, &opts, formats, child, &several);
	found = *child ? rsh_text_format("%s/%s", path, child) : NULL;
	if (found)
		hint_is_source(found, &opts, formats, format);
	return found;
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

static const struct {
	const char *begin;
	const char *what;
} other_begins[] = {
	{ "PK\3\4", "a zip archive, as torch.save() writes them" },
	{ "\x80\2", "a pickle of Python" },
	{ "version https://git-lfs", "a pointer of git-lfs in place of the "
				     "file, which git lfs pull gets" },
	{ "GGUF", "a GGUF file" },
	{ "\x89HDF", "an HDF5 file" },
	{ "\x93NUMPY", "an array of numpy" },
	{ "\x1f\x8b", "a file compressed by gzip" },
	{ "{\"manifest\"", "a manifest, which reshardfs verify takes" },
	{ "<", "a web page or XML" },
};

static void other_read(const char *path, char *begin, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t n = fd < 0 ? -1 : read(fd, begin, size - 1);

	begin[n > 0 ? n : 0] = '\0';
	if (fd >= 0)
		close(fd);
}

/* The metadata.json of Megatron-Core is only one file of its checkpoint.  That
 * of a Checkpoint 2.0 is a strategy, whose errors must be reported. */
static bool other_is_megatron(const char *path)
{
	static const char name[] = "metadata.json";
	cleanup_free char *beside = NULL;
	const size_t n = strlen(path);

	if (!rsh_has_suffix(path, name) ||
	    (n >= sizeof(name) && path[n - sizeof(name)] != '/'))
		return false;
	beside = rsh_text_format("%.*s.metadata",
				 (int)(n + 1 - sizeof(name)), path);
	return beside && access(beside, F_OK) == 0;
}

const char *rsh_other_file(const char *path, bool *of_directory)
{
	char begin[32];

	*of_directory = true;
	if (other_is_megatron(path))
		return "a part of a distributed checkpoint";
	for (size_t i = 0; i < sizeof(other_names) / sizeof(*other_names); i++)
		if (rsh_has_suffix(path, other_names[i].name) ||
		    strcmp(path, other_names[i].name + 1) == 0)
			return other_names[i].what;
	*of_directory = false;
	other_read(path, begin, sizeof(begin));
	for (size_t i = 0; i < sizeof(other_begins) / sizeof(*other_begins);
	     i++)
		if (strncmp(begin, other_begins[i].begin,
			    strlen(other_begins[i].begin)) == 0)
			return other_begins[i].what;
	return NULL;
}
