/* SPDX-License-Identifier: Apache-2.0 */
/* storage/store/objects.c is the medium of objects that lie behind HTTP.
 *
 * They are listed once, when the medium is opened: what they are called, how
 * large they are and what tells them apart comes from that listing, and a
 * handle costs no request.  A read of one that is no longer as it was listed
 * fails. */
#include "config.h"

#include "name_list_dir_i.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "rsh/storage/objects.h"
#include "rsh/util/checked.h"
#include "rsh/util/clock.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

#define SAY_AGAIN_NS UINT64_C(10000000000)

struct objects {
	struct rsh_medium base;
	struct rsh_objects *place;
	bool is_mine; /* the place goes with the medium */
	/* The directory below the place, with a slash at its end, and its
	 * address; NULL: the place itself. */
	char *below, *path;
	char *single; /* as in the medium */
	struct rsh_object_listing listing;
	atomic_uint_fast64_t said; /* when a failure was logged; 0: never */
	struct rsh_name_list flat;
	struct rsh_name_list_file
		*files; /* of `flat`, in the listing's order */
};

struct object_handle {
	struct rsh_handle base;
	const struct rsh_object *object;
};

static struct objects *objects_of(struct rsh_medium *m)
{
	return (struct objects *)m;
}

static const struct rsh_object *object_of(const struct rsh_handle *h)
{
	return ((const struct object_handle *)h)->object;
}

/* ---- names ---- */

static int object_open(struct rsh_medium *m, const char *name,
		       struct rsh_handle **out)
{
	const struct objects *o = objects_of(m);
	const struct rsh_name_list_file *f = rsh_name_list_find(&o->flat, name);
	struct object_handle *h;

	if (!f)
		return -ENOENT;
	h = calloc(1, sizeof(*h));
	if (!h)
		return -ENOMEM;
	h->base.medium = m;
	h->object = &o->listing.objects[f - o->files];
	*out = &h->base;
	return 0;
}

static int object_look(struct rsh_medium *m, const char *name,
		       struct rsh_stat *out)
{
	return rsh_name_list_look(&objects_of(m)->flat, name, out);
}

static int object_list(struct rsh_medium *m, const char *name,
		       struct rsh_dir **out)
{
	int rc = rsh_name_list_list(&objects_of(m)->flat, name, out);

	if (rc == 0)
		(*out)->ops = m->ops;
	return rc;
}

/* ---- open files ---- */

/* Of two objects with equal ones of these nothing tells that they differ. */
static void objects_hash(const struct objects *o, const char *name,
			 const char *etag, uint64_t out[2])
{
	const char *const texts[] = { rsh_objects_url(o->place), name,
				      etag ? etag : "" };
	XXH3_state_t state;
	XXH128_hash_t hash;

	XXH3_INITSTATE(&state);
	XXH3_128bits_reset(&state);
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		XXH3_128bits_update(&state, texts[i], strlen(texts[i]) + 1);
	hash = XXH3_128bits_digest(&state);
	out[0] = hash.low64;
	out[1] = hash.high64;
}

/* If the server says nothing by which a later object of the same name and size
 * differs, nothing of it is kept for the next mount. */
static bool object_shows_changes(const struct rsh_object *object)
{
	return (object->etag && *object->etag) || object->mtime.tv_sec;
}

static int object_identify(const struct rsh_handle *h,
			   struct rsh_store_identity *id, struct rsh_stat *st)
{
	const struct objects *o = objects_of(h->medium);
	const struct rsh_object *object = object_of(h);

	if (id) {
		*id = (struct rsh_store_identity){
			.size = object->size, .mtime = object->mtime,
			.ctime = object->mtime,
			.keeps_ctime = object_shows_changes(object),
		};
		objects_hash(o, object->name, object->etag, id->which);
	}
	if (st)
		rsh_name_list_stat(&o->flat,
				   &o->files[object - o->listing.objects], st);
	return 0;
}

/* The address and the ETag are in what tells objects apart here, too. */
static void object_share(const struct rsh_medium *m, const char *name,
			 const struct rsh_store_identity *id, uint64_t out[2])
{
	(void)m, (void)name;
	out[0] = id->which[0] ^ (uint64_t)id->mtime.tv_sec;
	out[1] = id->which[1];
}

/* The server is asked for nothing beyond the end. */
static ssize_t object_read(struct rsh_handle *h, const struct iovec *iov, int n,
			   uint64_t offset)
{
	const struct rsh_object *object = object_of(h);
	struct objects *o = objects_of(h->medium);
	uint64_t left = offset < object->size ? object->size - offset : 0;
	uint64_t now, said;
	struct iovec within[RSH_CACHE_LOAD_IOV];
	struct rsh_error err = RSH_ERROR_INIT;
	size_t all = 0;
	int rc, k;

	for (k = 0; k < n && k < RSH_CACHE_LOAD_IOV && left > 0; k++) {
		within[k] = iov[k];
		within[k].iov_len = (size_t)rsh_min_u64(iov[k].iov_len, left);
		left -= within[k].iov_len;
		all += within[k].iov_len;
	}
	if (all == 0)
		return 0;
	rc = rsh_objects_read(o->place, &(struct rsh_object_range){
			      object, offset, within, k }, 0, &err);
	if (rc == 0)
		return (ssize_t)all;
	rsh_error_keep(&err);
	/* Of many that fail together one is enough. */
	now = rsh_clock_ns();
	said = atomic_load(&o->said);
	if ((!said || now - said >= SAY_AGAIN_NS) &&
	    atomic_compare_exchange_strong(&o->said, &said, now))
		rsh_log_warning("%s", err.text);
	return rc;
}

/* ---- the place ---- */

static void objects_free(struct rsh_medium *m)
{
	struct objects *o = objects_of(m);

	rsh_object_listing_clear(&o->listing);
	if (o->is_mine)
		rsh_objects_free(o->place);
	free(o->files);
	free(o->below);
	free(o->path);
	free(o->single);
	free(o);
}

static const struct rsh_medium_ops objects_ops = {
	.keeps_nothing = true,
	.tries_again = true,
	.free = objects_free,
	.open = object_open,
	.look = object_look,
	.list = object_list,
	.dir_next = rsh_name_list_dir_next,
	.dir_look = rsh_name_list_dir_look,
	.dir_close = rsh_name_list_dir_close,
	.identify = object_identify,
	.share = object_share,
	/* Each read is told by the server that the object is the one that was
	 * listed. */
	.compare = NULL,
	.read = object_read,
};

/* A place that was opened before may be above the path. */
static int objects_take_path(struct objects *o, const char *path)
{
	const char *url = rsh_objects_url(o->place);
	const size_t n = strlen(url);

	if (strncmp(path, url, n) != 0 || path[n] != '/' || !path[n + 1])
		return 0;
	o->path = strdup(path);
	o->below = rsh_text_format("%s/", path + n + 1);
	return o->path && o->below ? 0 : -ENOMEM;
}

/* The address is that of a file: its directory is the root.  `name` is its name
 * below the place; "": it is the place. */
static int objects_take_single(struct objects *o, const char *name,
			       struct rsh_error *err)
{
	cleanup_free char *url = strdup(*name ? o->path :
					rsh_objects_url(o->place));
	char *slash = url ? strrchr(url, '/') : NULL;
	int rc = slash ? rsh_objects_list_single(o->place, name, &o->listing,
						 err) : rsh_error_nomem(err);

	if (rc)
		return rc;
	*slash = '\0';
	free(o->path);
	o->path = strdup(url);
	o->single = strdup(slash + 1);
	o->base.single = o->single;
	return o->path && o->single ? 0 : rsh_error_nomem(err);
}

/* Below a place that was opened before, an object with the name of the path is
 * asked for if nothing is below the path. */
static int objects_list_below(struct objects *o, bool single,
			      struct rsh_error *err)
{
	int rc = rsh_objects_list(o->place, o->below, &o->listing, err);
	cleanup_free char *name = NULL;

	if (rc != -ENOENT || !single)
		return rc;
	name = strndup(o->below, strlen(o->below) - 1);
	return name ? objects_take_single(o, name, err) : rsh_error_nomem(err);
}

/* The names of the list of files are the listing's. */
static int objects_take_listing(struct objects *o, bool single,
				struct rsh_error *err)
{
	const struct rsh_object_listing *l = &o->listing;
	struct rsh_medium *m = &o->base;
	struct rsh_stat root;
	const size_t n = o->below ? strlen(o->below) : 0;
	int rc = o->below ? objects_list_below(o, single, err) :
		 rsh_objects_list(o->place, NULL, &o->listing, err);

	if (rc == -ENOTDIR && single &&
	    !strncmp(rsh_objects_url(o->place), "s3://", 5))
		rc = objects_take_single(o, "", err);
	if (rc)
		return rc;
	o->files = rsh_alloc_array(l->n, sizeof(*o->files));
	if (!o->files)
		return rsh_error_nomem(err);
	for (size_t i = 0; i < l->n; i++)
		o->files[i] = (struct rsh_name_list_file){
			o->single ? o->single : l->objects[i].name + n,
			l->objects[i].size, l->objects[i].mtime,
		};
	o->flat =
		(struct rsh_name_list){ o->files, l->n, geteuid(), getegid() };
	if (rsh_name_list_look(&o->flat, "", &root))
		return rsh_error_nomem(err);
	m->attr = root.attr;
	m->path = o->path ? o->path : rsh_objects_url(o->place);
	objects_hash(o, o->below ? o->below : "", NULL, m->root.which);
	return 0;
}

/* Returns the place of the options that has the path, or NULL.  A joined one
 * may be above SOURCE, whose place does not have it. */
static struct rsh_objects *opened_place(const char *path,
					const struct rsh_store_options *opts)
{
	for (unsigned i = 0; i < opts->n_joined; i++)
		if (opts->joined[i] &&
		    strcmp(rsh_objects_url(opts->joined[i]), path) == 0)
			return opts->joined[i];
	return opts->place;
}

int rsh_objects_medium(const char *path, const struct rsh_store_options *opts,
		       struct rsh_medium **out, struct rsh_error *err)
{
	struct objects *o = calloc(1, sizeof(*o));
	int rc = 0;

	if (!o)
		return rsh_error_nomem(err);
	o->base.ops = &objects_ops;
	o->base.dirfd = -1;
	o->base.is_remote = true;
	o->place = opened_place(path, opts);
	o->is_mine = !o->place;
	if (o->is_mine)
		rc = rsh_objects_open(path, opts->objects, &o->place, err);
	else if (objects_take_path(o, path))
		rc = rsh_error_nomem(err);
	rc = rc ?: objects_take_listing(o, opts->single, err);
	if (rc) {
		objects_free(&o->base);
		return rc;
	}
	*out = &o->base;
	return 0;
}
