/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_wire_http_answer.c - headers of answers, and what is made of
 * them. */
#include "config.h"

#include "rsh/wire/http_answer.h"
#include "tests.h"

#define NOW 1000000000 /* Sun, 09 Sep 2001 01:46:40 GMT */
#define TAG "ETag: \"a\"\r\n"
#define RANGE "Content-Range: bytes 10-19/100\r\n"

/* Each case is asked for bytes 10 to 19 of 100 of the object "a". */
static const struct judged {
	const char *text;
	enum rsh_http_verdict verdict;
} cases[] = {
	{ "HTTP/1.1 206 Partial\r\n" TAG RANGE, RSH_HTTP_RIGHT },
	{ "HTTP/2 206\r\n" TAG RANGE "content-length: 10\r\n", RSH_HTTP_RIGHT },
	{ "HTTP/1.1 302 Found\r\nContent-Length: 3\r\n\r\n"
	  "HTTP/1.1 206 Partial\r\n" TAG RANGE, RSH_HTTP_RIGHT },
	{ "HTTP/1.1 206 x\r\nETag: W/\"a\"\r\n"
	  "content-range:bytes 10-19/*\r\n", RSH_HTTP_RIGHT },
	{ "HTTP/1.1 206 x\r\nETag: a\r\n" RANGE, RSH_HTTP_RIGHT },
	{ "HTTP/1.1 206 x\r\nETag: W/\"A\"\r\n" RANGE, RSH_HTTP_RIGHT },
	{ "HTTP/1.1 206 x\r\nETag: \"aa\"\r\n" RANGE, RSH_HTTP_CHANGED },
	{ "HTTP/1.1 206 x\r\nETag: \"\r\n" RANGE, RSH_HTTP_CHANGED },
	{ "HTTP/1.1 206 x\r\n" TAG, RSH_HTTP_WRONG },
	{ "HTTP/1.1 206 x\r\n" RANGE, RSH_HTTP_WRONG },
	{ "HTTP/1.1 206 x\r\n" TAG RANGE RANGE, RSH_HTTP_WRONG },
	{ "HTTP/1.1 206 x\r\n" TAG RANGE "Content-Length: 9\r\n",
	  RSH_HTTP_WRONG },
	{ "HTTP/1.1 206 x\r\n" TAG RANGE "Content-Length: 1O\r\n",
	  RSH_HTTP_WRONG },
	{ "HTTP/1.1 206 x\r\n" TAG RANGE
	  "Content-Length: 10\r\nContent-Length: 11\r\n", RSH_HTTP_WRONG },
	{ "HTTP/1.1 206 x\r\n" TAG RANGE "Content-Encoding: br\r\n",
	  RSH_HTTP_WRONG },
	{ "HTTP/1.1 206 x\r\n" TAG RANGE "Content-Type: multipart/byteranges\r\n",
	  RSH_HTTP_WRONG },
	{ "HTTP/1.1 206 x\r\n" TAG "Content-Range: bytes 11-20/100\r\n",
	  RSH_HTTP_WRONG },
	{ "HTTP/1.1 206 x\r\n" TAG "Content-Range: bytes 10-18/100\r\n",
	  RSH_HTTP_WRONG },
	{ "HTTP/1.1 206 x\r\n" TAG "Content-Range: bytes 10-19/15\r\n",
	  RSH_HTTP_WRONG },
	{ "HTTP/1.1 206 x\r\n" TAG
	  "Content-Range: bytes 10-99999999999999999999/100\r\n",
	  RSH_HTTP_WRONG },
	{ "HTTP/1.1 206 x\r\n" TAG "Content-Range: bytes 10-19/101\r\n",
	  RSH_HTTP_CHANGED },
	{ "HTTP/1.1 206 x\r\nETag: \"b\"\r\n" RANGE, RSH_HTTP_CHANGED },
	{ "HTTP/1.1 200 OK\r\n" TAG, RSH_HTTP_WRONG },
	{ "HTTP/1.1 412 x\r\n", RSH_HTTP_CHANGED },
	{ "HTTP/1.1 416 x\r\nContent-Range: bytes */5\r\n", RSH_HTTP_CHANGED },
	{ "HTTP/1.1 416 x\r\nContent-Range: bytes */100\r\n", RSH_HTTP_WRONG },
	{ "HTTP/1.1 403 x\r\n", RSH_HTTP_REFUSED },
	{ "HTTP/1.1 404 x\r\n", RSH_HTTP_GONE },
	{ "HTTP/1.1 429 x\r\n", RSH_HTTP_LATER },
	{ "HTTP/1.1 503 x\r\n", RSH_HTTP_LATER },
	{ "HTTP/1.1 501 x\r\n", RSH_HTTP_UNSUPPORTED },
	{ "HTTP/1.1 x\r\n" TAG RANGE, RSH_HTTP_WRONG },
	{ "", RSH_HTTP_WRONG },
};

static void answer_parse(struct rsh_http_answer *a, const char *text)
{
	memset(a, 0, sizeof(*a));
	while (*text) {
		size_t n = strcspn(text, "\n") + 1;

		rsh_http_answer_line(a, text, n, NOW);
		text += n;
	}
}

TEST(answers_are_judged)
{
	const struct rsh_http_asked asked = {
		.first = 10, .len = 10, .size = 100, .etag = "\"a\"",
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct rsh_http_answer a;
		const char *why = NULL;

		answer_parse(&a, cases[i].text);
		if (rsh_http_judge(&a, &asked, &why) != cases[i].verdict)
			fail_msg("%s", cases[i].text);
		assert_true(why || cases[i].verdict == RSH_HTTP_RIGHT);
	}
}

TEST(whole_objects_will_do)
{
	struct rsh_http_asked asked = { .len = 100, .size = 100 };
	struct rsh_http_answer a;
	const char *why;

	answer_parse(&a, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n"
			 "Last-Modified: Sun, 09 Sep 2001 01:46:40 GMT\r\n");
	assert_int_equal(rsh_http_judge(&a, &asked, &why), RSH_HTTP_RIGHT);
	asked.modified = NOW;
	assert_int_equal(rsh_http_judge(&a, &asked, &why), RSH_HTTP_RIGHT);
	asked.modified = NOW - 1;
	assert_int_equal(rsh_http_judge(&a, &asked, &why), RSH_HTTP_CHANGED);
	asked.modified = 0;
	/* A part is taken from it, unless it is long. */
	asked.len = 99;
	assert_int_equal(rsh_http_judge(&a, &asked, &why), RSH_HTTP_RIGHT);
	asked.size = 101;
	assert_int_equal(rsh_http_judge(&a, &asked, &why), RSH_HTTP_WRONG);
	asked.size = RSH_HTTP_WHOLE_MAX + 1;
	answer_parse(&a, "HTTP/1.1 200 OK\r\nContent-Length: 8388609\r\n");
	assert_int_equal(rsh_http_judge(&a, &asked, &why), RSH_HTTP_WRONG);
	answer_parse(&a, "HTTP/1.1 200 OK\r\n");
	assert_int_equal(rsh_http_judge(&a, &asked, &why), RSH_HTTP_WRONG);
}

/* Tags of listings may not be those of answers; then size and date decide. */
TEST(listed_tags_may_differ)
{
#define DATE "Last-Modified: Sun, 09 Sep 2001 01:46:40 GMT\r\n"
	static const struct {
		const char *text;
		enum rsh_http_verdict verdict;
	} listed[] = {
		{ "HTTP/1.1 206 x\r\nETag: \"b\"\r\n" RANGE DATE, RSH_HTTP_RIGHT },
		{ "HTTP/1.1 206 x\r\n" RANGE DATE, RSH_HTTP_RIGHT },
		{ "HTTP/1.1 206 x\r\nETag: \"b\"\r\n" RANGE, RSH_HTTP_CHANGED },
		{ "HTTP/1.1 206 x\r\n" RANGE, RSH_HTTP_WRONG },
		{ "HTTP/1.1 206 x\r\nETag: \"b\"\r\n" DATE
		  "Content-Range: bytes 10-19/101\r\n", RSH_HTTP_CHANGED },
		{ "HTTP/1.1 206 x\r\nETag: \"b\"\r\n" RANGE
		  "Last-Modified: Sun, 09 Sep 2001 01:46:41 GMT\r\n",
		  RSH_HTTP_CHANGED },
	};
	struct rsh_http_asked asked = {
		.first = 10, .len = 10, .size = 100, .etag = "\"a\"",
		.modified = NOW, .is_listed = true, .is_label = true,
	};
	struct rsh_http_answer a;
	const char *why;

	for (size_t i = 0; i < sizeof(listed) / sizeof(listed[0]); i++) {
		answer_parse(&a, listed[i].text);
		if (rsh_http_judge(&a, &asked, &why) != listed[i].verdict)
			fail_msg("%s", listed[i].text);
	}
	answer_parse(&a, "HTTP/1.1 206 x\r\n" TAG RANGE
			 "Content-Encoding: aws-chunked\r\n");
	assert_int_equal(rsh_http_judge(&a, &asked, &why), RSH_HTTP_RIGHT);
	asked.modified = 0;
	answer_parse(&a, listed[0].text);
	assert_int_equal(rsh_http_judge(&a, &asked, &why), RSH_HTTP_CHANGED);
}

TEST(pauses_are_read)
{
	struct rsh_http_answer a;

	answer_parse(&a, "HTTP/1.1 503 x\r\nRetry-After: 7\r\n");
	assert_true(a.has_wait && a.wait_s == 7);
	answer_parse(&a, "HTTP/1.1 503 x\r\n"
			 "Retry-After: Sun, 09 Sep 2001 01:46:49 GMT\r\n");
	assert_true(a.has_wait && a.wait_s == 9);
	answer_parse(&a, "HTTP/1.1 503 x\r\nRetry-After: 99999999999\r\n");
	assert_true(a.has_wait && a.wait_s == UINT32_MAX);
	answer_parse(&a, "HTTP/1.1 503 x\r\nRetry-After: soon\r\n");
	assert_false(a.has_wait);
}

TEST(dates_are_read)
{
	static const char *const bad[] = {
		"", "Sun", "Sun, 09 Sep 2001 01:46:40", "2001-09-09T01:46:40",
		"2001-13-09T01:46:40Z", "2001-00-09T01:46:40Z",
		"2001-09-09T25:46:40Z", "2001-09-09T01:46:40.Z",
		"Sun, 09 Sept 2001 01:46:40 GMT",
	};
	int64_t t;
	long ns;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_false(rsh_http_date(bad[i], strlen(bad[i]), &t, &ns));
	assert_true(rsh_http_date("2001-09-09T01:46:40.5Z", 22, &t, &ns));
	assert_true(t == NOW && ns == 500000000);
	assert_true(rsh_http_date("2001-09-09T01:46:40Z", 20, &t, &ns));
	assert_true(t == NOW && ns == 0);
}
