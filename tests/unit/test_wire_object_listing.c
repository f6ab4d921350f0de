/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_wire_object_listing.c - pages of listings, however they are cut, and
 * where keys come from. */
#include "config.h"

#include "rsh/wire/aws_keys.h"
#include "rsh/wire/object_listing.h"
#include "tests.h"

#define HEAD "<?xml version=\"1.0\"?>\n" \
	"<s:ListBucketResult xmlns:s=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
#define TAIL "</s:ListBucketResult>"

/* Parses a page in two parts. */
static int parse_at(const char *text, size_t cut, struct rsh_object_listing *l,
		    struct rsh_listing_page *page)
{
	struct rsh_listing_parser *p = rsh_listing_parser_new(l, page);
	int rc;

	assert_non_null(p);
	rc = rsh_listing_parse(p, text, cut, false);
	if (rc == 0)
		rc = rsh_listing_parse(p, text + cut, strlen(text) - cut,
				       true);
	rsh_listing_parser_free(p);
	return rc;
}

static const char page[] = HEAD
	"<Name>b</Name><IsTruncated>true</IsTruncated>"
	"<Contents><Key>a%2Fb+c%C3%A4</Key><Size>12</Size>"
	"<LastModified>2001-09-09T01:46:40.250Z</LastModified>"
	"<ETag>&quot;x&#34;</ETag><Owner><ID>Key</ID><Key>no</Key></Owner>"
	"</Contents><Contents><Size>0</Size><Key>&lt;&amp;></Key></Contents>"
	"<EncodingType>url</EncodingType>"
	"<NextContinuationToken>1/+=</NextContinuationToken>" TAIL;

TEST(pages_are_read_however_they_are_cut)
{
	for (size_t cut = 0; cut < sizeof(page); cut++) {
		struct rsh_object_listing l = { NULL };
		struct rsh_listing_page p;

		assert_int_equal(parse_at(page, cut, &l, &p), 0);
		assert_true(p.is_listing && p.more);
		assert_string_equal(p.next, "1/+=");
		assert_int_equal(l.n, 2);
		assert_string_equal(l.objects[0].name, "a/b c\xc3\xa4");
		assert_string_equal(l.objects[0].etag, "\"x\"");
		assert_int_equal(l.objects[0].size, 12);
		assert_int_equal(l.objects[0].mtime.tv_sec, 1000000000);
		assert_int_equal(l.objects[0].mtime.tv_nsec, 250000000);
		assert_string_equal(l.objects[1].name, "<&>");
		assert_null(l.objects[1].etag);
		rsh_object_listing_clear(&l);
	}
}

static void expect_bad(const char *text)
{
	struct rsh_object_listing l = { NULL };
	struct rsh_listing_page p;

	if (parse_at(text, 0, &l, &p) != -EBADMSG)
		fail_msg("%s", text);
	rsh_object_listing_clear(&l);
}

TEST(what_is_no_listing_is_refused)
{
	static const char *const bad[] = {
		"", "{}", "<html></html>", "<html/>", HEAD, HEAD "</x>",
		"<!DOCTYPE x [<!ENTITY a \"b\">]>" HEAD TAIL,
		HEAD "<Contents><Key>a</Key></Contents>" TAIL,
		HEAD "<Contents><Size>1</Size></Contents>" TAIL,
		HEAD "<Contents><Key></Key><Size>1</Size></Contents>" TAIL,
		HEAD "<Contents><Key>a</Key><Size>-1</Size></Contents>" TAIL,
		HEAD "<Contents><Key>a</Key><Size>1e3</Size></Contents>" TAIL,
		HEAD "<Contents><Key>a</Key><Size>9223372036854775808</Size>"
		     "</Contents>" TAIL,
		HEAD "<EncodingType>url</EncodingType><Contents><Key>a%0</Key>"
		     "<Size>1</Size></Contents>" TAIL,
		HEAD "<EncodingType>url</EncodingType><Contents><Key>a%00</Key>"
		     "<Size>1</Size></Contents>" TAIL,
		HEAD "<EncodingType>url</EncodingType><NextMarker>a%0</NextMarker>"
		TAIL,
		HEAD "<a><a><a><a><a><a><a><a></a></a></a></a></a></a></a></a>"
		TAIL,
	};
	cleanup_free char *large = malloc(8192);

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		expect_bad(bad[i]);
	snprintf(large, 8192, HEAD "<Contents><Key>%05000d</Key><Size>1</Size>"
		 "</Contents>" TAIL, 0);
	expect_bad(large);
}

/* Version 1 of the protocol has keys for tokens. */
TEST(markers_are_read)
{
	static const struct {
		const char *text, *marker;
	} cases[] = {
		{ HEAD "<IsTruncated>true</IsTruncated>" TAIL, "" },
		{ HEAD "<IsTruncated>true</IsTruncated><NextMarker>a%20b"
		       "</NextMarker>" TAIL, "a%20b" },
		{ HEAD "<IsTruncated>true</IsTruncated><NextMarker>a%20b"
		       "</NextMarker><EncodingType>url</EncodingType>" TAIL,
		  "a b" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct rsh_object_listing l = { NULL };
		struct rsh_listing_page p;

		assert_int_equal(parse_at(cases[i].text, 0, &l, &p), 0);
		assert_true(p.more && !p.next[0]);
		assert_string_equal(p.marker, cases[i].marker);
		rsh_object_listing_clear(&l);
	}
}

TEST(refusals_are_read)
{
	struct rsh_listing_page p;

	assert_int_equal(parse_at("<Error><Code>SlowDown</Code><Message>m"
				  "</Message><Region>r-1</Region></Error>", 9,
				  NULL, &p), 0);
	assert_false(p.is_listing);
	assert_string_equal(p.code, "SlowDown");
	assert_string_equal(p.region, "r-1");
	assert_int_equal(parse_at(HEAD TAIL, 9, NULL, &p), -EBADMSG);
}

/* ---- keys ---- */

static void note(void *ctx, const char *parent, const char *key,
		 const char *value)
{
	char *to = ctx;

	snprintf(to + strlen(to), 256 - strlen(to), "%s%s%s=%s;",
		 parent ? parent : "", parent ? "." : "", key, value);
}

static bool sectioned(const char *text, enum rsh_aws_section kind,
		      const char *name, char got[256])
{
	char copy[512];

	got[0] = '\0';
	snprintf(copy, sizeof(copy), "%s", text);
	return rsh_aws_section(copy, strlen(copy), kind, name, note, got);
}

TEST(profiles_are_read)
{
	static const char text[] = "# all\n[ a ]\r\nk = v w \r\n  x = y\n"
		"; no\nnested =\n  k = 2\n # no = 1\n\n\tl=3\n"
		"[profile b]\nk=3\n[ services\ta ]\ns3=\r\n m = =\r\n"
		"[a]\n o=1\nl=4\nno\n[c\nx=1";
	char got[256];

	assert_true(sectioned(text, RSH_AWS_CREDENTIALS, "a", got));
	assert_string_equal(got, "k=v w;nested=;nested.k=2;nested.l=3;l=4;");
	assert_true(sectioned(text, RSH_AWS_PROFILE, "b", got));
	assert_string_equal(got, "k=3;");
	assert_true(sectioned(text, RSH_AWS_SERVICES, "a", got));
	assert_string_equal(got, "s3=;s3.m==;");
	assert_false(sectioned(text, RSH_AWS_PROFILE, "a", got));
	assert_false(sectioned(text, RSH_AWS_SERVICES, "b", got));
}

static bool answered(const char *text, char got[256])
{
	char copy[256];

	got[0] = '\0';
	snprintf(copy, sizeof(copy), "%s", text);
	return rsh_aws_answer(copy, strlen(copy), note, got);
}

TEST(answers_are_read)
{
	static const char *const bad[] = {
		"", "{", "{}x", "[]", "{\"a\"}", "{\"a\":}", "{\"a\":\"b",
		"{\"a\":\"b\",}", "{\"a\":[1,2}", "{\"a\": 1",
	};
	char got[256];

	assert_true(answered(" {\"a\" : \"b\\/c\", \"n\": 1, \"o\": {\"p\": "
			     "[\"}\", 2]},\n\"d\":\"\"}", got));
	assert_string_equal(got, "a=b/c;d=;");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (answered(bad[i], got))
			fail_msg("%s: %s", bad[i], got);
}

static bool xml_answered(const char *text, char got[256])
{
	char copy[256];

	got[0] = '\0';
	snprintf(copy, sizeof(copy), "%s", text);
	return rsh_aws_xml(copy, strlen(copy), note, got);
}

TEST(xml_answers_are_read)
{
	static const char *const bad[] = { "", "{}", "x<a>b</a>", "<", "<a",
					   "<a>b<c", "<a>b</a" };
	char got[256];

	assert_true(xml_answered(" <?xml v='1'?>\n<r x='y'><k>v</k><l/><o>\n"
				 "<m></m><n>a&amp;b=</n ></o><p>1</q><s>2</s>"
				 "</r>", got));
	assert_string_equal(got, "k=v;m=;s=2;");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (xml_answered(bad[i], got))
			fail_msg("%s: %s", bad[i], got);
}

static int library_is_loaded(void **state)
{
	(void)state;
	return rsh_listing_start(NULL);
}

int main(void)
{
	return unit_run(library_is_loaded, NULL);
}
