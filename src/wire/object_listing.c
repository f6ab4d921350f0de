/* SPDX-License-Identifier: Apache-2.0 */
/* wire/object_listing.c parses the answers of S3 servers with expat.  expat
 * keeps one token at a time, and at most MAX_TEXT bytes of a text are kept.
 * The library is loaded by rsh_listing_start(). */
#include "rsh/wire/object_listing.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <expat.h>

#include "json_scan_i.h"
#include "rsh/util/library.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/wire/http_answer.h"

#define XML_FUNCTIONS(F) \
	F(ParserCreate) \
	F(ParserFree) \
	F(SetUserData) \
	F(SetElementHandler) \
	F(SetCharacterDataHandler) \
	F(SetStartDoctypeDeclHandler) \
	F(Parse) \
	F(StopParser) \
	F(GetErrorCode)

static struct {
#define XML_MEMBER(name) __typeof__(XML_##name) *name;
	XML_FUNCTIONS(XML_MEMBER)
} xml;

int rsh_listing_start(struct rsh_error *err)
{
	static const struct rsh_library_symbol symbols[] = {
#define XML_SYMBOL(name) { "XML_" #name, &xml.name },
		XML_FUNCTIONS(XML_SYMBOL)
	};

	return rsh_library_load("libexpat.so.1", "libexpat1 (RPM: expat)",
				"object storage", symbols,
				sizeof(symbols) / sizeof(symbols[0]), err);
}

/* A key has at most 1,024 bytes, each of which may be written as three. */
#define MAX_TEXT 4096
#define MAX_DEPTH 8

enum listing_element {
	IN_OTHER,
	IN_LIST,     /* ListBucketResult */
	IN_ERROR,    /* Error */
	IN_REFUSAL,  /* ErrorResponse of a token service, which has an Error */
	IN_CONTENTS, /* an object of a list */
	IN_KEY,
	IN_SIZE,
	IN_TAG,
	IN_MODIFIED,
	IN_MORE,
	IN_NEXT,
	IN_MARKER,
	IN_ENCODING,
	IN_CODE,
	IN_REGION,
	IN_ENDPOINT,
};

struct rsh_listing_parser {
	XML_Parser xml;
	struct rsh_object_listing *list;
	struct rsh_listing_page *page;
	size_t first;    /* the first object of this page */
	bool is_encoded; /* the keys are URL-encoded */
	int rc;
	enum listing_element open[MAX_DEPTH];
	unsigned depth;
	bool has_size;
	struct rsh_object object; /* the object being read */
	char text[MAX_TEXT];
	size_t len;
};

static const struct listing_name {
	enum listing_element parent, element;
	const char *name;
} names[] = {
	{ IN_LIST, IN_CONTENTS, "Contents" },
	{ IN_LIST, IN_MORE, "IsTruncated" },
	{ IN_LIST, IN_NEXT, "NextContinuationToken" },
	{ IN_LIST, IN_MARKER, "NextMarker" },
	{ IN_LIST, IN_ENCODING, "EncodingType" },
	{ IN_CONTENTS, IN_KEY, "Key" },
	{ IN_CONTENTS, IN_SIZE, "Size" },
	{ IN_CONTENTS, IN_TAG, "ETag" },
	{ IN_CONTENTS, IN_MODIFIED, "LastModified" },
	{ IN_REFUSAL, IN_ERROR, "Error" },
	{ IN_ERROR, IN_CODE, "Code" },
	{ IN_ERROR, IN_REGION, "Region" },
	{ IN_ERROR, IN_ENDPOINT, "Endpoint" },
};

/* Texts of a page. */
static const struct {
	enum listing_element element;
	size_t at, size;
} texts[] = {
#define LISTING_TEXT(element, member)                       \
	{ element, offsetof(struct rsh_listing_page, member), \
	  sizeof(((struct rsh_listing_page *)0)->member) }
	LISTING_TEXT(IN_NEXT, next), LISTING_TEXT(IN_MARKER, marker),
	LISTING_TEXT(IN_CODE, code), LISTING_TEXT(IN_REGION, region),
	LISTING_TEXT(IN_ENDPOINT, endpoint),
};

static void listing_fail(struct rsh_listing_parser *p, int rc)
{
	if (p->rc == 0)
		p->rc = rc;
	xml.StopParser(p->xml, XML_FALSE);
}

/* ---- texts ---- */

/* Decodes a key in place.  A name cannot contain a byte of zero. */
static bool listing_decode(char *s)
{
	const char *end = s + strlen(s);
	char *to = s;
	uint32_t c;

	for (; *s; s++) {
		if (*s != '%') {
			*to++ = *s == '+' ? ' ' : *s;
			continue;
		}
		if (!rsh_json_hex(s + 1, end, 2, &c) || !c)
			return false;
		*to++ = (char)c;
		s += 2;
	}
	*to = '\0';
	return true;
}

static const char *listing_keep(struct rsh_listing_parser *p)
{
	const char *s = rsh_arena_strndup(&p->list->arena, p->text, p->len);

	if (!s)
		listing_fail(p, -ENOMEM);
	return s;
}

/* ---- elements ---- */

/* Returns the element of a name, ignoring its prefix. */
static enum listing_element listing_find(const struct rsh_listing_parser *p,
					 const char *name)
{
	const char *colon = strrchr(name, ':');
	enum listing_element parent = IN_OTHER;

	if (colon)
		name = colon + 1;
	if (p->depth == 0)
		return !strcmp(name, "ListBucketResult") ? IN_LIST :
		       !strcmp(name, "Error") ? IN_ERROR :
		       !strcmp(name, "ErrorResponse") ? IN_REFUSAL : IN_OTHER;
	parent = p->open[p->depth - 1];
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (names[i].parent == parent && !strcmp(names[i].name, name))
			return names[i].element;
	return IN_OTHER;
}

static void XMLCALL listing_begin(void *ctx, const char *name,
				  const char **attributes)
{
	struct rsh_listing_parser *p = ctx;
	enum listing_element e;

	(void)attributes;
	if (p->depth == MAX_DEPTH) {
		listing_fail(p, -EBADMSG);
		return;
	}
	e = listing_find(p, name);
	if (p->depth == 0 &&
	    (e == IN_OTHER || (e == IN_LIST && !p->list))) {
		listing_fail(p, -EBADMSG);
		return;
	}
	if (e == IN_LIST)
		p->page->is_listing = true;
	if (e == IN_CONTENTS) {
		memset(&p->object, 0, sizeof(p->object));
		p->has_size = false;
	}
	p->open[p->depth++] = e;
	p->len = 0;
}

static void XMLCALL listing_end(void *ctx, const char *name)
{
	struct rsh_listing_parser *p = ctx;
	struct rsh_listing_page *page = p->page;
	int64_t seconds;
	long ns;

	(void)name;
	/* For an empty element, expat calls this function even after
	 * listing_begin() has failed. */
	if (p->rc)
		return;
	p->text[p->len] = '\0';
	switch (p->open[--p->depth]) {
	case IN_CONTENTS:
		p->object.is_listed = true;
		if (!p->object.name || !p->object.name[0] || !p->has_size)
			listing_fail(p, -EBADMSG);
		else if (rsh_push(p->list->objects, p->list->n, p->list->cap,
				  p->object))
			listing_fail(p, -ENOMEM);
		break;
	case IN_KEY:
		p->object.name = listing_keep(p);
		break;
	case IN_TAG:
		if (p->len && p->len < RSH_ETAG_MAX)
			p->object.etag = listing_keep(p);
		break;
	case IN_SIZE:
		p->has_size = rsh_digits_read(p->text, p->len, INT64_MAX,
					      &p->object.size);
		if (!p->has_size)
			listing_fail(p, -EBADMSG);
		break;
	case IN_MODIFIED:
		if (rsh_http_date(p->text, p->len, &seconds, &ns))
			p->object.mtime = (struct timespec){ seconds, ns };
		break;
	case IN_MORE:
		page->more = !strcmp(p->text, "true");
		break;
	case IN_ENCODING:
		p->is_encoded = !strcmp(p->text, "url");
		break;
	default:
		break;
	}
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		if (texts[i].element == p->open[p->depth])
			snprintf((char *)page + texts[i].at, texts[i].size,
				 "%s", p->text);
	p->len = 0;
}

/* Texts that are not used may have any length. */
static void XMLCALL listing_text(void *ctx, const char *s, int len)
{
	struct rsh_listing_parser *p = ctx;

	if (!p->depth || p->open[p->depth - 1] == IN_OTHER)
		return;
	if ((size_t)len >= MAX_TEXT - p->len) {
		listing_fail(p, -EBADMSG);
		return;
	}
	memcpy(p->text + p->len, s, (size_t)len);
	p->len += (size_t)len;
}

/* A document type allows entities, which no server uses. */
static void XMLCALL listing_doctype(void *ctx, const char *name,
				    const char *system, const char *public,
				    int subset)
{
	(void)name, (void)system, (void)public, (void)subset;
	listing_fail(ctx, -EBADMSG);
}

/* ---- pages ---- */

struct rsh_listing_parser *
rsh_listing_parser_new(struct rsh_object_listing *l,
		       struct rsh_listing_page *page)
{
	struct rsh_listing_parser *p = calloc(1, sizeof(*p));

	memset(page, 0, sizeof(*page));
	if (!p)
		return NULL;
	p->list = l;
	p->page = page;
	p->first = l ? l->n : 0;
	p->xml = xml.ParserCreate(NULL);
	if (!p->xml) {
		free(p);
		return NULL;
	}
	xml.SetUserData(p->xml, p);
	xml.SetElementHandler(p->xml, listing_begin, listing_end);
	xml.SetCharacterDataHandler(p->xml, listing_text);
	xml.SetStartDoctypeDeclHandler(p->xml, listing_doctype);
	return p;
}

int rsh_listing_parse(struct rsh_listing_parser *p, const void *data,
		      size_t len, bool last)
{
	struct rsh_object_listing *l = p->list;
	const char *at = data;

	if (p->rc)
		return p->rc;
	do {
		int n = len > 1 << 20 ? 1 << 20 : (int)len;

		len -= (size_t)n;
		if (xml.Parse(p->xml, at, n, last && !len) != XML_STATUS_OK) {
			if (!p->rc)
				p->rc = xml.GetErrorCode(p->xml) ==
					XML_ERROR_NO_MEMORY ?
					-ENOMEM : -EBADMSG;
			return p->rc;
		}
		at = n ? at + n : at;
	} while (len);
	if (last && p->is_encoded && !listing_decode(p->page->marker))
		p->rc = -EBADMSG;
	/* EncodingType may come after the keys. */
	for (size_t i = p->first; last && !p->rc && l && p->is_encoded &&
				  i < l->n; i++)
		if (!listing_decode((char *)(uintptr_t)l->objects[i].name))
			p->rc = -EBADMSG;
	return p->rc;
}

void rsh_listing_parser_free(struct rsh_listing_parser *p)
{
	if (!p)
		return;
	xml.ParserFree(p->xml);
	free(p);
}

void rsh_object_listing_clear(struct rsh_object_listing *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->objects[i].held);
	free(l->objects);
	rsh_arena_clear(&l->arena);
	memset(l, 0, sizeof(*l));
}
