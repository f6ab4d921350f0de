/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever a server's headers are, an answer that is taken for right is one for
 * the range that was asked for, or the whole of a small object. */
#include "fuzz_support.h"

#include "rsh/wire/http_answer.h"

static const struct rsh_http_asked asked = {
	.first = 10, .len = 10, .size = 100, .etag = "\"a\"",
};

static void check_right(const struct rsh_http_answer *a)
{
	const char *etag = a->etag + (strncasecmp(a->etag, "W/", 2) ? 0 : 2);

	require(!a->is_broken && !a->is_encoded);
	require(!a->has_total || a->total == 100);
	if (a->status == 200) {
		require(a->has_length && a->length == 100);
	} else {
		require(a->status == 206);
		require(a->has_range && a->first == 10 && a->last == 19);
		require(!a->has_length || a->length == 10);
	}
	/* Some servers leave out the quotes, or write other letters. */
	require(!strcasecmp(etag, "\"a\"") || !strcasecmp(etag, "a"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rsh_http_answer a = { 0 };
	const char *why = NULL;
	enum rsh_http_verdict v;

	while (size) {
		const uint8_t *end = memchr(data, '\n', size);
		size_t n = end ? (size_t)(end - data) + 1 : size;
		char *line = malloc(n);

		require(line);
		memcpy(line, data, n);
		rsh_http_answer_line(&a, line, n, 1000000000);
		free(line);
		data += n;
		size -= n;
	}
	require(memchr(a.etag, '\0', sizeof(a.etag)));
	require(memchr(a.region, '\0', sizeof(a.region)));
	require(!a.has_range || a.first <= a.last);
	require(!a.has_range || !a.has_total || a.is_broken ||
		a.last < a.total);
	v = rsh_http_judge(&a, &asked, &why);
	require(v == RSH_HTTP_RIGHT || why);
	if (v == RSH_HTTP_RIGHT)
		check_right(&a);
	return 0;
}
