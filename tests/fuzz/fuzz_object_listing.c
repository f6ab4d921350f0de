/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever the bytes are, and wherever they are cut, the reader ends in the same
 * list of keys that are texts, or in a failure.  A first byte of 'k' has the rest
 * read as keys are kept, of 'j' as services give them. */
#include "fuzz_support.h"

#include <errno.h>

#include "rsh/wire/aws_keys.h"
#include "rsh/wire/object_listing.h"

static int parse(const uint8_t *data, size_t size, size_t cut,
		 struct rsh_object_listing *l, struct rsh_listing_page *page)
{
	struct rsh_listing_parser *p = rsh_listing_parser_new(l, page);
	int rc;

	require(p);
	rc = rsh_listing_parse(p, data, cut, false);
	if (rc == 0)
		rc = rsh_listing_parse(p, data + cut, size - cut, true);
	rsh_listing_parser_free(p);
	return rc;
}

static void check_list(const struct rsh_object_listing *l,
		       const struct rsh_listing_page *page)
{
	for (size_t i = 0; i < l->n; i++) {
		require(l->objects[i].name && l->objects[i].name[0]);
		require(l->objects[i].size <= INT64_MAX);
		require(!l->objects[i].etag || strlen(l->objects[i].etag) < 256);
	}
	require(memchr(page->next, '\0', sizeof(page->next)));
	require(memchr(page->marker, '\0', sizeof(page->marker)));
	require(memchr(page->code, '\0', sizeof(page->code)));
}

static void check_listing(const uint8_t *data, size_t size)
{
	struct rsh_object_listing a = { NULL }, b = { NULL };
	struct rsh_listing_page page, again;
	int rc = parse(data, size, 0, &a, &page);
	int rc_again = parse(data, size, size / 2, &b, &again);

	require(rc == 0 || rc == -EBADMSG);
	require(rc == rc_again);
	if (rc == 0) {
		check_list(&a, &page);
		require(a.n == b.n && page.more == again.more);
		for (size_t i = 0; i < a.n; i++)
			require(!strcmp(a.objects[i].name, b.objects[i].name));
	}
	rsh_object_listing_clear(&a);
	rsh_object_listing_clear(&b);
}

static void look(void *ctx, const char *parent, const char *key,
		 const char *value)
{
	require(!parent || strlen(parent) < SIZE_MAX);
	*(size_t *)ctx += strlen(key) + strlen(value);
}

static void check_keys(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);
	size_t sum = 0;

	require(text);
	if (size)
		memcpy(text, data, size);
	text[size] = '\0';
	if (size && text[0] == 'k')
		rsh_aws_section(text + 1, size - 1, size % 3, "a", look, &sum);
	else if (size)
		rsh_aws_answer(text + 1, size - 1, look, &sum);
	require(sum <= size);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	require(rsh_listing_start(NULL) == 0);
	if (size && (data[0] == 'k' || data[0] == 'j'))
		check_keys(data, size);
	else
		check_listing(data, size);
	return 0;
}
