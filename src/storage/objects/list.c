/* SPDX-License-Identifier: Apache-2.0 */
/* storage/objects/list.c lists what lies below an address of S3. */
#include "config.h"

#include "objects_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"

/* No source has so many files. */
#define LIST_MAX ((size_t)1 << 22)

/* ---- a page ---- */

struct list_page {
	struct rsh_object_listing *list;
	struct rsh_listing_page page;
	struct rsh_listing_parser *parser;
	size_t before; /* objects of the pages before this one */
};

/* What a page that broke off has left in the list's memory stays there until
 * the list is freed. */
static void list_restart(struct object_request *q)
{
	struct list_page *p = q->ctx;

	rsh_listing_parser_free(p->parser);
	p->list->n = p->before;
	p->parser = rsh_listing_parser_new(p->list, &p->page);
}

static int list_refuse(struct object_request *q)
{
	char server[300];

	rsh_object_put_server(server, sizeof(server), q->address);
	return rsh_error_set(&q->err, EIO, "%s: the listing of the server "
			     "%s cannot be parsed: is it an S3 server?  "
			     "AWS_ENDPOINT_URL sets the server",
			     q->what, server);
}

static bool list_parse(struct object_request *q, const char *data, size_t len,
		       bool last)
{
	struct list_page *p = q->ctx;
	int rc = p->parser ? rsh_listing_parse(p->parser, data, len, last) :
			     -ENOMEM;

	if (rc == 0 && last && !p->page.is_listing)
		rc = -EBADMSG;
	if (rc == -ENOMEM)
		q->rc = rsh_error_set(&q->err, ENOMEM, "%s: out of memory",
				      q->what);
	else if (rc)
		q->rc = list_refuse(q);
	return rc == 0;
}

static bool list_take_page(struct object_request *q, const char *data,
			   size_t len)
{
	return list_parse(q, data, len, false);
}

static bool list_finish(struct object_request *q)
{
	return list_parse(q, "", 0, true);
}

static int list_one_page(struct rsh_objects *o, const char *prefix,
			 const char *token, struct list_page *p,
			 struct rsh_error *err)
{
	char *address = rsh_object_list_address(o, prefix, token);
	struct object_request q = {
		.address = address, .what = o->url, .sign = true, .ctx = p,
		.deadline = rsh_object_deadline(o), .sink = list_take_page,
		.finish = list_finish, .restart = list_restart,
	};
	int rc;

	if (!address)
		return rsh_error_nomem(err);
	p->before = p->list->n;
	list_restart(&q);
	rc = rsh_object_carry_out(o, &q);
	rsh_listing_parser_free(p->parser);
	rsh_secret_free(address);
	p->parser = NULL;
	return rc ? rsh_error_set(err, q.err.code, "%s", q.err.text) : 0;
}

/* A server that says the same place twice would never come to an end. */
static int list_pages(struct rsh_objects *o, const char *prefix,
		      struct rsh_object_listing *list, struct rsh_error *err)
{
	struct list_page p = { .list = list };
	char token[RSH_LISTING_TOKEN_MAX] = "";
	int rc;

	do {
		rc = list_one_page(o, prefix, token, &p, err);
		if (rc == 0 && p.page.more && !strcmp(token, p.page.next))
			rc = rsh_error_set(err, EIO,
					   "%s: the server returns the same page of the listing again",
					   o->url);
		if (rc == 0 && list->n > LIST_MAX)
			rc = rsh_error_set(err, EFBIG,
					   "%s: more than %zu objects",
					   o->url, LIST_MAX);
		memcpy(token, p.page.next, sizeof(token));
	} while (rc == 0 && p.page.more);
	return rc;
}

/* ---- the listing ---- */

static int list_compare(const void *a, const void *b)
{
	const struct rsh_object *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static int list_make(const struct rsh_objects *o,
		     struct rsh_object_listing *list,
		     struct rsh_objects_listing *out, struct rsh_error *err)
{
	size_t skip = strlen(o->prefix);
	size_t to = 0;

	out->objects = rsh_alloc_array(list->n, sizeof(*out->objects));
	out->owned = malloc(sizeof(*list));
	if (!out->objects || !out->owned) {
		rsh_objects_listing_free(out);
		return rsh_error_nomem(err);
	}
	for (size_t i = 0; i < list->n; i++) {
		const struct rsh_listed *from = &list->objects[i];

		if (strncmp(from->key, o->prefix, skip) ||
		    !from->key[skip] || !rsh_object_is_name(from->key + skip))
			continue;
		out->objects[out->n++] = (struct rsh_object){
			.name = from->key + skip, .size = from->size,
			.mtime = from->mtime, .etag = from->etag,
		};
	}
	qsort(out->objects, out->n, sizeof(*out->objects), list_compare);
	for (size_t i = 0; i < out->n; i++)
		if (!to ||
		    strcmp(out->objects[to - 1].name, out->objects[i].name))
			out->objects[to++] = out->objects[i];
	out->n = to;
	memcpy(out->owned, list, sizeof(*list));
	memset(list, 0, sizeof(*list));
	return 0;
}

/* Says why there is nothing. */
static int list_nothing(struct rsh_objects *o, struct rsh_error *err)
{
	const char *slash = strrchr(o->url, '/');

	if ((!o->is_s3 || o->prefix[0]) && rsh_object_is_file(o))
		return rsh_error_set(err, ENOTDIR, "%s: this is a file; use "
				     "its directory, %.*s", o->url,
				     (int)(slash - o->url), o->url);
	if (o->is_s3)
		return rsh_error_set(err, ENOENT, "%s: not found: the bucket "
				     "has no object with the prefix \"%s\"",
				     o->url, o->prefix);
	return rsh_error_set(err, ENOENT, "%s: not found: there is neither a "
			     "list of files nor model.safetensors; "
			     "--source-index names a list of files",
			     o->url);
}

int rsh_objects_list(struct rsh_objects *o, const char *prefix,
		     struct rsh_objects_listing *out, struct rsh_error *err)
{
	struct rsh_object_listing list = { .n = 0 };
	int rc;

	memset(out, 0, sizeof(*out));
	rc = o->is_s3 ? list_pages(o, prefix, &list, err) :
			rsh_object_list_index(o, prefix, &list, err);
	rc = rc ?: list_make(o, &list, out, err);
	rsh_object_listing_clear(&list);
	if (rc == 0 && out->n == 0) {
		rsh_objects_listing_free(out);
		return prefix ? rsh_error_set(err, ENOENT, "%s: not found",
					      o->url) :
				list_nothing(o, err);
	}
	return rc;
}

void rsh_objects_listing_free(struct rsh_objects_listing *l)
{
	if (l->owned)
		rsh_object_listing_clear(l->owned);
	free(l->owned);
	free(l->objects);
	memset(l, 0, sizeof(*l));
}
