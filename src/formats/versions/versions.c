/* SPDX-License-Identifier: Apache-2.0 */
/* formats/versions/versions.c - the format of a directory of versions, and of
 * one version in it that is a delta.  A full version is a model like others. */
#include "config.h"

#include "versions_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/formats/formats.h"
#include "rsh/formats/ranks.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

/* Trainers write the metadata first. */
#define BEGIN_BYTES 4096
/* Where the made files of a delta are if SOURCE is its directory. */
#define HERE "."

/* The state of a source. */
struct versions {
	struct rsh_store_options store;
	char *dir, *base;
	uint64_t one; /* SOURCE is this version; 0: it has all of them */
	struct rsh_version_chain *chain; /* of the chosen one; the store's */
	struct rsh_step_facts facts;
	char about[128];
};

static void versions_free(void *state)
{
	struct versions *v = state;

	if (!v)
		return;
	free(v->dir);
	free(v->base);
	free(v);
}

static struct rsh_versions_place place_of(const struct versions *v)
{
	return (struct rsh_versions_place){ v->dir, v->base, &v->store };
}

/* ---- bidding ---- */

/* Returns the number of the version whose directory a path is; 0: it is
 * none. */
static uint64_t version_at(const char *path)
{
	cleanup_free char *name = strdup(path);
	size_t n = name ? strlen(name) : 0;
	uint64_t version = 0;
	char *slash;

	while (n > 1 && name[n - 1] == '/')
		name[--n] = '\0';
	slash = n > 0 ? strrchr(name, '/') : NULL;
	if (n == 0 || !rsh_version_read(slash ? slash + 1 : name, &version))
		return 0;
	return version;
}

/* Returns whether the directory `dir` below SOURCE has the index of a delta. */
static bool has_delta(const struct rsh_look *l, const char *dir)
{
	cleanup_free char *path = rsh_text_format("%s%s" RSH_VERSION_INDEX,
						  dir, *dir ? "/" : "");
	cleanup_handle struct rsh_handle *h = NULL;
	char begin[BEGIN_BYTES];
	static const char word[] = "\"delta_encoding\"";
	ssize_t n;
	int rc;

	if (!path)
		return false;
	rc = rsh_handle_open(rsh_source_store(l->source), path, &h);
	if (rc) {
		rsh_look_fail(l, path, rc);
		return false;
	}
	n = rsh_handle_pread(h, begin, sizeof(begin), 0);
	if (n < 0)
		rsh_look_fail(l, path, (int)n);
	return n > 0 && memmem(begin, (size_t)n, word, strlen(word));
}

/* A trainer that removes what engines have loaded leaves one full version. */
static bool has_full(const struct rsh_look *l, const char *dir)
{
	static const char *const names[] = {
		RSH_VERSION_INDEX, RSH_VERSION_SINGLE, NULL,
	};
	bool found = false;

	for (size_t i = 0; names[i]; i++) {
		cleanup_free char *path = rsh_text_format("%s/%s", dir,
							  names[i]);
		struct rsh_stat st;
		int rc;

		if (rsh_look_has(l, names[i]))
			return false;
		rc = path ? rsh_store_look(rsh_source_store(l->source), path,
					   &st) : -ENOMEM;
		if (rc)
			rsh_look_fail(l, path ? path : dir, rc);
		found |= rc == 0;
	}
	return found;
}

static int versions_bid(const struct rsh_look *l, struct rsh_bid_more *more)
{
	const char *only = NULL;
	uint64_t version;
	size_t n = 0;

	if (l->file || !l->listed || !rsh_look_is_plain(l) ||
	    rsh_look_is_sharded(l))
		return RSH_BID_NO;
	more->owns_all = true;
	more->is_step = version_at(rsh_source_path(l->source)) > 0;
	for (size_t i = 0; i < l->n && n < 2; i++)
		if (rsh_version_read(l->names[i], &version)) {
			only = l->names[i];
			n++;
		}
	if (n > 1 || (n == 1 && (has_delta(l, only) || has_full(l, only))))
		return RSH_BID_STEPS;
	return more->is_step && rsh_look_has(l, RSH_VERSION_INDEX) &&
	       has_delta(l, "") ? RSH_BID_SURE : RSH_BID_NO;
}

/* ---- listing ---- */

/* Lists the files of a version, made or its own.  One that cannot be shown is
 * listed by its index: it fails if it is chosen. */
static int list_version(struct rsh_source *s, const char *dir,
			const struct rsh_version_name *name,
			const struct rsh_version_links *l)
{
	struct rsh_stat st = { .kind = RSH_IS_DIR };
	const uint32_t n = l ? l->n_files : 1;
	int rc = 0;

	if (*dir != '.' || dir[1])
		rsh_store_look(rsh_source_store(s), dir, &st);
	for (uint32_t i = 0; rc == 0 && i < n; i++) {
		cleanup_free char *path = rsh_text_format(
			"%s/%s", dir, l ? l->files[i] : RSH_VERSION_INDEX);

		rc = rsh_source_list(s, &(struct rsh_checkpoint){
			.step = { .n = 1, .numbers = { name->version } },
			.mtime = st.attr.mtime, .ctime = st.attr.ctime,
			.label = name->name, .name = path,
		});
	}
	return rc;
}

/* Lists all versions.  What is wrong with one is said when it is chosen. */
static int list_all(struct rsh_source *s, struct versions *v,
		    const struct rsh_source_options *opts,
		    struct rsh_error *err)
{
	const struct rsh_versions_place at = place_of(v);
	struct rsh_version_names names = { .n = 0 };
	int rc = rsh_version_names_read(&names, rsh_source_store(s));

	if (rc < 0)
		rc = rsh_store_open_error(rsh_source_store(s), "", rc, err);
	for (size_t i = 0; rc == 0 && i < names.n; i++) {
		const struct rsh_version_name *name = &names.v[i];
		struct rsh_version_links l;
		struct rsh_error why = RSH_ERROR_INIT;

		if (i > 0 && name->version == names.v[i - 1].version)
			continue;
		rc = rsh_version_links_find(&at, name->version, &l, &why);
		if (rc == -ENOMEM ||
		    list_version(s, name->name, name, rc ? NULL : &l))
			rc = rsh_error_nomem(err);
		else
			rc = 0;
		rsh_version_links_clear(&l);
	}
	rsh_version_names_clear(&names);
	return rc ?: rsh_source_sort_steps(s, opts, err);
}

/* SOURCE is the directory of a delta. */
static int list_one(struct rsh_source *s, struct versions *v,
		    struct rsh_error *err)
{
	const struct rsh_versions_place at = place_of(v);
	struct rsh_version_name name = { .version = v->one };
	struct rsh_version_links l;
	int rc = rsh_version_links_find(&at, v->one, &l, err);

	if (rc == 0) {
		name.name = strdup(l.n ? l.v[0].name : l.full);
		if (!name.name || list_version(s, HERE, &name, &l))
			rc = rsh_error_nomem(err);
		else
			rsh_source_take_list(s, name.name);
		free(name.name);
	}
	rsh_version_links_clear(&l);
	return rc;
}

/* A delta alone is no model. */
static int refuse_one(const struct rsh_source *s, struct rsh_error *err)
{
	static const struct rsh_small_file kind = { "map of a model's parts",
						    UINT64_C(256) << 20 };
	const char *path = rsh_source_path(s);
	struct rsh_version_index x = { .is_delta = false };
	cleanup_free uint8_t *data = NULL;
	size_t len;
	int rc = rsh_store_load(rsh_source_store(s), RSH_VERSION_INDEX, &kind,
				&data, &len, err) ?:
		 rsh_version_index_parse(data, len, RSH_VERSION_INDEX, path,
					 &x, err);

	if (rc == 0)
		rc = rsh_error_set(err, EINVAL, "%s is a delta of version %"
				   PRIu64 " (%s, zstd); mount the directory "
				   "above it, with --base and --select step=%"
				   PRIu64, path, x.base,
				   rsh_delta_forms[x.form], version_at(path));
	rsh_version_index_clear(&x);
	return rc;
}

static int versions_open(struct rsh_source *s,
			 const struct rsh_source_options *opts,
			 struct rsh_error *err)
{
	const int is_one = rsh_store_has(rsh_source_store(s),
					 RSH_VERSION_INDEX, err);
	struct versions *v;

	if (is_one < 0)
		return is_one;
	if (is_one && !opts->steps_dir)
		return refuse_one(s, err);
	v = calloc(1, sizeof(*v));
	rsh_source_keep(s, v, v ? &v->facts : NULL, versions_free);
	if (!v)
		return rsh_error_nomem(err);
	v->store = opts->store;
	v->one = is_one ? version_at(rsh_source_path(s)) : 0;
	v->dir = strdup(is_one ? opts->steps_dir : rsh_source_path(s));
	v->base = opts->base ? strdup(opts->base) : NULL;
	if (!v->dir || (opts->base && !v->base))
		return rsh_error_nomem(err);
	return is_one ? list_one(s, v, err) : list_all(s, v, opts, err);
}

/* ---- choosing ---- */

static int made_find(void *ctx, const char *name, uint32_t *file,
		     uint64_t *size)
{
	const struct rsh_version_chain *c = ctx;
	const char *below = strchr(name, '/');

	for (*file = 0; below && *file < c->links.n_files; ++*file)
		if (strcmp(c->links.files[*file], below + 1) == 0) {
			*size = rsh_store_identity(c->inputs, *file)->size;
			return 0;
		}
	return -ENOENT;
}

static int versions_choose(struct rsh_source *s, uint32_t i,
			   struct rsh_error *err)
{
	struct versions *v = rsh_source_state(s);
	const struct rsh_versions_place at = place_of(v);
	const struct rsh_checkpoint *c;
	struct rsh_made made = {
		.find = made_find, .read = rsh_version_read_file,
		.close = rsh_version_chain_close,
	};
	const struct rsh_version_index *x;
	cleanup_free char *dir = NULL;
	size_t first, end;
	int rc;

	v->chain = NULL;
	v->facts.about = NULL;
	/* The indexes of all versions that are read belong to this one. */
	v->store.opens_of = rsh_source_store(s);
	rsh_source_candidate_range(s, i, &first, &end);
	if (v->one)
		first = 0;
	else if (first == end)
		return rsh_error_set(err, ENOENT, "%s: it contains no version",
				     rsh_source_path(s));
	c = rsh_source_on_list(s, first);
	rc = rsh_version_chain_open(&at, v->one ? v->one : c->step.numbers[0],
				    &v->chain, err);
	if (rc)
		return rc;
	/* "delta of 3 (xor, xxh3-128), 8 tensors changed" */
	x = v->chain->links.n ? &v->chain->links.v[0].index : NULL;
	snprintf(v->about, sizeof(v->about), "full");
	if (x)
		snprintf(v->about, sizeof(v->about), "delta of %" PRIu64
			 " (%s, %s), %u tensor%s changed", x->base,
			 rsh_delta_forms[x->form], rsh_sum_forms[x->sum],
			 x->n_names, x->n_names == 1 ? "" : "s");
	v->facts.about = v->about;
	dir = strndup(c->name, strcspn(c->name, "/"));
	made.ctx = v->chain;
	made.inputs = v->chain->inputs;
	if (!dir || rsh_store_join_made(rsh_source_store(s), dir, &made))
		return rsh_error_nomem(err);
	if (v->chain->links.n > 0)
		rsh_log_info("%s: %s is made of %s and %u deltas, %u tensors "
			     "have changed", rsh_source_path(s), c->label,
			     v->chain->links.full, v->chain->links.n,
			     v->chain->n_tensors);
	return 0;
}

/* ---- files ---- */

/* With checksums, all changed tensors of the file are made. */
static int versions_scan(const struct rsh_scan_job *job,
			 struct rsh_ckpt_index **out, struct rsh_error *err)
{
	const struct versions *v = rsh_source_state(job->source);
	struct rsh_version_chain *c = v->chain;
	const bool full = job->how != RSH_SCAN_HEADERS;
	struct rsh_ckpt_index *ix;
	int rc;

	if (job->stored)
		return 0;
	rc = rsh_file_scan(RSH_FILE_SAFETENSORS, job->bytes, full, job->names,
			   &ix, err);
	if (rc)
		return rc;
	for (uint32_t i = c->first[job->file]; full && rc == 0 &&
	     i < c->first[job->file + 1]; i++)
		rc = rsh_version_verify(c, &c->tensors[i],
					c->tensors[i].n_patches, err);
	if (rc == 0) {
		*out = ix;
		return 0;
	}
	rsh_ckpt_index_free(ix);
	err->code = rc == -EKEYREJECTED ? EBADMSG : -rc;
	return -err->code;
}

static int versions_find_beside(const char *source,
				const struct rsh_source_options *opts,
				char **out, struct rsh_error *err)
{
	const struct rsh_versions_place at = {
		opts->steps_dir, opts->base, &opts->store,
	};
	const uint64_t version = version_at(source);
	struct rsh_version_links l = { .n = 0 };
	int rc = 0;

	*out = NULL;
	if (opts->steps_dir && version > 0)
		rc = rsh_version_links_find(&at, version, &l, err);
	if (rc == 0 && l.full)
		*out = l.is_base ? strdup(l.full) :
		       rsh_text_format("%s/%s", at.dir, l.full);
	if (rc == 0 && l.full && !*out)
		rc = rsh_error_nomem(err);
	rsh_version_links_clear(&l);
	return rc;
}

const struct rsh_format rsh_versions_format = {
	.name = "versions",
	.says = "directory of weight versions",
	.layout = RSH_LAYOUT_WHOLE,
	.owner = RSH_OWNER_MODEL,
	.by_name = true,
	.words = RSH_WORDS_EITHER,
	.shown = RSH_SHOWN_HF,
	.find_beside = versions_find_beside,
	.takes_base = true,
	.step_dirs = true,
	.bid = versions_bid,
	.open = versions_open,
	.choose = versions_choose,
	.scan = versions_scan,
	.read = rsh_ranks_offer,
};
