/* SPDX-License-Identifier: Apache-2.0 */
/* storage/objects/list.c lists what lies below an address of S3. */
#include "config.h"

#include "objects_i.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"

/* No source has so many files. */
#define LIST_MAX ((size_t)1 << 22)

/* ---- a page ---- */

struct list_page {
	struct rsh_object_listing *list;
	struct rsh_listing_page page;
	struct rsh_listing_parser *parser;
	size_t before; /* objects of the pages before this one */
	bool is_web_page;
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

/* Returns whether this is the begin of a web page. */
static bool list_is_web_page(const char *data, size_t len)
{
	static const char *const begins[] = { "<!doctype html", "<html" };

	for (; len && strchr(" \t\r\n", *data); data++)
		len--;
	return rsh_any(i, sizeof(begins) / sizeof(begins[0]),
		       len >= strlen(begins[i]) &&
		       strncasecmp(data, begins[i], strlen(begins[i])) == 0);
}

static bool list_parse(struct object_request *q, const char *data, size_t len,
		       bool last)
{
	struct list_page *p = q->ctx;
	char server[300];
	int rc = p->parser ? rsh_listing_parse(p->parser, data, len, last) :
			     -ENOMEM;

	if (rc == 0 && last && !p->page.is_listing)
		rc = -EBADMSG;
	if (rc == -ENOMEM)
		q->rc = rsh_error_set(&q->err, ENOMEM, "%s: out of memory",
				      q->what);
	if (rc == 0 || rc == -ENOMEM)
		return rc == 0;
	p->is_web_page = list_is_web_page(data, len);
	rsh_object_put_server(server, sizeof(server), q->address);
	q->rc = rsh_error_set(&q->err, EIO, "%s: the listing of the server "
			      "%s cannot be parsed: is it an S3 server?  "
			      "AWS_ENDPOINT_URL sets the server", q->what,
			      server);
	return false;
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
			 const struct object_list_at *at, struct list_page *p,
			 bool *is_unsupported, struct rsh_error *err)
{
	cleanup_secret char *address = rsh_object_list_address(o, prefix, at);
	struct object_request q = {
		.address = address, .what = o->url, .sign = true, .ctx = p,
		.deadline = rsh_object_deadline(o), .sink = list_take_page,
		.finish = list_finish, .restart = list_restart,
	};
	char text[RSH_ERROR_TEXT_MAX];
	int rc;

	if (!address)
		return rsh_error_nomem(err);
	p->before = p->list->n;
	p->is_web_page = false;
	list_restart(&q);
	rc = rsh_object_carry_out(o, &q);
	*is_unsupported = rc && q.is_unsupported;
	if (rc == -EIO && p->is_web_page) {
		q.why = RSH_OBJECT_PAGE;
		rsh_object_say(&q, "", text, sizeof(text));
		rsh_error_set(&q.err, EIO, "%s: %s; AWS_ENDPOINT_URL sets the "
			      "server", o->url, text);
	}
	rsh_listing_parser_free(p->parser);
	p->parser = NULL;
	return rc ? rsh_error_set(err, q.err.code, "%s", q.err.text) : 0;
}

/* Servers that know the first version of the protocol only, or no encoding of
 * keys, refuse the first page. */
static int list_first_page(struct rsh_objects *o, const char *prefix,
			   struct object_list_at *at, struct list_page *p,
			   struct rsh_error *err)
{
	struct rsh_error first = RSH_ERROR_INIT, again;
	bool is_unsupported;
	int rc = list_one_page(o, prefix, at, p, &is_unsupported, &first);

	while (rc && is_unsupported && !at->is_plain) {
		at->is_plain = at->is_first_version;
		at->is_first_version = true;
		rc = list_one_page(o, prefix, at, p, &is_unsupported, &again);
	}
	if (rc && strstr(first.text, "AccessDenied"))
		return rsh_error_set(err, first.code, "%s: the keys need the "
				     "right to list the bucket, s3:ListBucket"
				     "%s", first.text, o->pays ? "" :
				     ", or the bucket needs --requester-pays");
	return rc ? rsh_error_set(err, first.code, "%s", first.text) : 0;
}

static int list_repeats(const struct rsh_objects *o, struct rsh_error *err)
{
	return rsh_error_set(err, EIO, "%s: the server returns the same page "
			     "of the listing again", o->url);
}

/* Sets where the next page begins.  A server that says the same place twice
 * would never come to an end; if it knows keys for places, it may. */
static int list_advance(const struct rsh_objects *o, struct object_list_at *at,
			const struct list_page *p, struct rsh_error *err)
{
	const struct rsh_object_listing *l = p->list;
	const char *last = l->n > p->before ? l->objects[l->n - 1].name : "";
	const char *before = p->before ? l->objects[p->before - 1].name : "";
	const char *next = p->page.next;

	if (*last && strcmp(last, before) == 0)
		return list_repeats(o, err);
	if (!*next || strcmp(next, at->after) == 0)
		at->is_first_version = true;
	if (at->is_first_version)
		next = p->page.marker[0] ? p->page.marker : last;
	if (!*next || strcmp(next, at->after) == 0)
		return list_repeats(o, err);
	snprintf(at->after, sizeof(at->after), "%s", next);
	return 0;
}

static int list_pages(struct rsh_objects *o, const char *prefix,
		      struct rsh_object_listing *list, struct rsh_error *err)
{
	struct list_page p = { .list = list };
	struct object_list_at at = { .after = "" };
	bool unused;
	int rc = list_first_page(o, prefix, &at, &p, err);

	while (rc == 0 && p.page.more) {
		rc = list_advance(o, &at, &p, err) ?:
		     list_one_page(o, prefix, &at, &p, &unused, err);
		if (rc == 0 && list->n > LIST_MAX)
			rc = rsh_error_set(err, EFBIG,
					   "%s: more than %zu objects",
					   o->url, LIST_MAX);
	}
	return rc;
}

/* ---- the listing ---- */

RSH_ORDER(list_compare, struct rsh_object, strcmp(x->name, y->name))

/* Returns whether an empty object has the name of a directory: tools that show
 * buckets as directories make such objects. */
static bool list_is_directory(const struct rsh_object_listing *list, size_t at)
{
	const char *name = list->objects[at].name;
	const size_t n = strlen(name);

	/* Names with a byte below '/' after this one come first. */
	for (size_t i = at + 1; i < list->n && list->objects[at].size == 0; i++) {
		const char *next = list->objects[i].name;

		if (strncmp(next, name, n) != 0 || next[n] > '/')
			return false;
		if (next[n] == '/')
			return true;
	}
	return false;
}

/* Drops such objects from a sorted listing. */
static void list_drop_directories(struct rsh_object_listing *list)
{
	size_t to = 0;

	for (size_t i = 0; i < list->n; i++)
		if (!list_is_directory(list, i))
			list->objects[to++] = list->objects[i];
	list->n = to;
}

/* Keeps the objects that may have a name here, once, by name. */
static void list_settle(const struct rsh_objects *o,
			struct rsh_object_listing *list)
{
	const size_t skip = strlen(o->prefix), n = list->n;
	struct rsh_object *v = list->objects;
	const char *odd = NULL;
	size_t to = 1, n_odd = 0;

	list->n = 0;
	for (size_t i = 0; i < n; i++) {
		const char *name = v[i].name;

		if (strncmp(name, o->prefix, skip) || !name[skip])
			continue;
		if (!rsh_path_is_plain(name + skip)) {
			/* What ends in a slash stands for a directory. */
			if (name[strlen(name) - 1] != '/' && n_odd++ == 0)
				odd = name;
			continue;
		}
		v[list->n] = v[i];
		v[list->n++].name += skip;
	}
	if (n_odd)
		rsh_log_warning("%s: %zu keys are left out, such as \"%s\", "
				"since they cannot be paths: they have an empty "
				"part, . or ..", o->url, n_odd, odd);
	if (list->n == 0)
		return;
	qsort(v, list->n, sizeof(*v), list_compare);
	for (size_t i = 1; i < list->n; i++)
		if (strcmp(v[to - 1].name, v[i].name) != 0)
			v[to++] = v[i];
	list->n = to;
	list_drop_directories(list);
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
			     "--source-index names a list of files", o->url);
}

int rsh_objects_list(struct rsh_objects *o, const char *prefix,
		     struct rsh_object_listing *out, struct rsh_error *err)
{
	int rc;

	*out = (struct rsh_object_listing){ .n = 0 };
	rc = o->is_s3 ? list_pages(o, prefix, out, err) :
			rsh_object_list_index(o, prefix, out, err);
	if (rc == 0)
		list_settle(o, out);
	if (rc || out->n == 0)
		rsh_object_listing_clear(out);
	if (rc || out->n > 0)
		return rc;
	return prefix ? rsh_error_set(err, ENOENT, "%s: not found", o->url) :
			list_nothing(o, err);
}
