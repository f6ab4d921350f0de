/* SPDX-License-Identifier: Apache-2.0 */
/* wire/http_answer.c reads the headers of answers to range requests. */
#include "rsh/wire/http_answer.h"

#include <locale.h>
#include <string.h>
#include <strings.h>

#include "rsh/util/text.h"

/* ---- texts of a header line ---- */

struct header_text {
	const char *p;
	size_t len;
};

static bool header_is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static void header_trim(struct header_text *t)
{
	while (t->len && header_is_blank(t->p[0]))
		t->p++, t->len--;
	while (t->len && header_is_blank(t->p[t->len - 1]))
		t->len--;
}

static bool header_is(const struct header_text *t, const char *word)
{
	return t->len == strlen(word) && !strncasecmp(t->p, word, t->len);
}

/* Removes a word from the beginning of the text, ignoring case. */
static bool header_word(struct header_text *t, const char *word)
{
	size_t n = strlen(word);

	if (t->len < n || strncasecmp(t->p, word, n))
		return false;
	t->p += n;
	t->len -= n;
	return true;
}

/* Removes digits from the beginning of the text. */
static bool header_number(struct header_text *t, uint64_t *out)
{
	const size_t n = rsh_count_digits(t->p, t->len);

	if (!rsh_number_read(t->p, n, out))
		return false;
	t->p += n;
	t->len -= n;
	return true;
}

/* ---- dates ---- */

/* Parses "Z" or ".123Z", of which the first nine digits are used.  Returns NULL
 * for anything else. */
static const char *date_fraction(const char *p, long *ns)
{
	const char *const begin = p + 1;

	if (*p == '.') {
		for (long unit = 100000000; *++p >= '0' && *p <= '9'; unit /= 10)
			*ns += (*p - '0') * unit;
		if (p == begin)
			return NULL;
	}
	return *p == 'Z' ? p + 1 : NULL;
}

bool rsh_http_date(const char *text, size_t len, int64_t *out, long *ns)
{
	const locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
	struct header_text t = { text, len };
	struct tm tm = { 0 };
	long fraction = 0;
	const char *end;
	char copy[64];

	header_trim(&t);
	if (t.len >= sizeof(copy))
		return false;
	memcpy(copy, t.p, t.len);
	copy[t.len] = '\0';
	end = strptime_l(copy, "%a, %d %b %Y %T GMT", &tm, c);
	if (!end) {
		memset(&tm, 0, sizeof(tm));
		end = strptime_l(copy, "%Y-%m-%dT%T", &tm, c);
		end = end ? date_fraction(end, &fraction) : NULL;
	}
	freelocale(c);
	if (!end || end != copy + t.len)
		return false;
	*out = timegm(&tm);
	if (ns)
		*ns = fraction;
	return true;
}

/* ---- headers ---- */

/* Parses "bytes 0-9/100".  A star may replace either the range or the total
 * size. */
static bool answer_parse_range(struct rsh_http_answer *a, struct header_text t)
{
	if (a->has_range || a->has_total || !header_word(&t, "bytes"))
		return false;
	header_trim(&t);
	if (!header_word(&t, "*")) {
		if (!header_number(&t, &a->first) || !header_word(&t, "-") ||
		    !header_number(&t, &a->last) || a->last < a->first)
			return false;
		a->has_range = true;
	}
	if (!header_word(&t, "/"))
		return false;
	if (header_word(&t, "*"))
		return a->has_range && t.len == 0;
	if (!header_number(&t, &a->total) || t.len ||
	    (a->has_range && a->last >= a->total))
		return false;
	a->has_total = true;
	return true;
}

static void answer_wait(struct rsh_http_answer *a, struct header_text t,
			time_t now)
{
	uint64_t seconds;
	int64_t date;

	if (rsh_http_date(t.p, t.len, &date, NULL))
		seconds = date > now ? (uint64_t)(date - now) : 0;
	else if (!header_number(&t, &seconds) || t.len)
		return;
	a->has_wait = true;
	a->wait_s = seconds > UINT32_MAX ? UINT32_MAX : (uint32_t)seconds;
}

static void answer_text(char *to, size_t size, const struct header_text *t)
{
	if (t->len >= size || memchr(t->p, '\0', t->len))
		return;
	memcpy(to, t->p, t->len);
	to[t->len] = '\0';
}

void rsh_http_answer_line(struct rsh_http_answer *a, const char *line,
			  size_t len, time_t now)
{
	struct header_text name = { line, len }, v;
	const char *colon;
	uint64_t status, length = 0;

	if (header_word(&name, "HTTP/")) {
		memset(a, 0, sizeof(*a));
		while (name.len && *name.p != ' ')
			name.p++, name.len--;
		header_trim(&name);
		if (header_number(&name, &status) && status <= 999)
			a->status = (int)status;
		return;
	}
	colon = memchr(line, ':', len);
	if (!colon)
		return;
	name = (struct header_text){ line, (size_t)(colon - line) };
	v = (struct header_text){ colon + 1, len - name.len - 1 };
	header_trim(&name);
	header_trim(&v);
	if (header_is(&name, "Content-Length")) {
		a->is_broken |= !header_number(&v, &length) || v.len ||
				(a->has_length && a->length != length);
		a->has_length = true;
		a->length = length;
	} else if (header_is(&name, "Content-Range")) {
		a->is_broken |= !answer_parse_range(a, v);
	} else if (header_is(&name, "Content-Encoding")) {
		a->is_encoded |= v.len && !header_is(&v, "identity");
	} else if (header_is(&name, "Content-Type")) {
		a->is_page |= header_is(&v, "text/html") ||
			      header_word(&v, "text/html;");
		a->is_multipart |= header_word(&v, "multipart/");
	} else if (header_is(&name, "ETag")) {
		answer_text(a->etag, sizeof(a->etag), &v);
	} else if (header_is(&name, "x-amz-bucket-region")) {
		answer_text(a->region, sizeof(a->region), &v);
	} else if (header_is(&name, "Last-Modified")) {
		rsh_http_date(v.p, v.len, &a->modified, NULL);
	} else if (header_is(&name, "Retry-After")) {
		answer_wait(a, v, now);
	}
}

/* ---- checks ---- */

enum rsh_http_verdict rsh_http_judge_status(int status, const char **why)
{
	switch (status) {
	case 200:
	case 206:
		return RSH_HTTP_RIGHT;
	case 401:
	case 403:
		*why = "denies access";
		return RSH_HTTP_REFUSED;
	case 404:
	case 410:
		*why = "has no such object";
		return RSH_HTTP_GONE;
	case 412:
		*why = "says that the object is another one";
		return RSH_HTTP_CHANGED;
	case 408:
	case 425:
	case 429:
		*why = "wants fewer requests";
		return RSH_HTTP_LATER;
	case 501:
	case 505:
		*why = "does not know such requests";
		return RSH_HTTP_UNSUPPORTED;
	}
	*why = status >= 500 ? "reports an error of its own" :
	       status >= 300 && status < 400 ? "redirects to another address" :
	       status >= 400 ? "finds the request wrong" :
	       "gives an unexpected answer";
	return status >= 500 && status < 600 ? RSH_HTTP_LATER : RSH_HTTP_WRONG;
}

/* Weak tags are compared as strong ones: proxies that compress make tags weak,
 * and compressed answers are refused anyway. */
static struct header_text answer_bare_tag(const char *tag)
{
	struct header_text t = { tag, strlen(tag) };

	header_word(&t, "W/");
	if (t.len >= 2 && t.p[0] == '"' && t.p[t.len - 1] == '"')
		t.p++, t.len -= 2;
	return t;
}

/* Servers differ in quotes and in the case of hexadecimal digits. */
static bool answer_same_tag(const char *a, const char *b)
{
	const struct header_text x = answer_bare_tag(a), y = answer_bare_tag(b);

	return x.len == y.len && strncasecmp(x.p, y.p, x.len) == 0;
}

/* Returns whether size and date say that the object is the listed one. */
static bool answer_fits_listing(const struct rsh_http_answer *a,
				const struct rsh_http_asked *asked)
{
	return asked->is_listed && asked->modified &&
	       a->modified == asked->modified &&
	       (a->has_total ? a->total == asked->size :
		a->status == 200 && a->has_length && a->length == asked->size);
}

static enum rsh_http_verdict judge_wrong(const char **why, const char *text)
{
	*why = text;
	return RSH_HTTP_WRONG;
}

static enum rsh_http_verdict judge_changed(const char **why)
{
	*why = "has another object of that name now";
	return RSH_HTTP_CHANGED;
}

enum rsh_http_verdict rsh_http_judge(const struct rsh_http_answer *a,
				     const struct rsh_http_asked *asked,
				     const char **why)
{
	enum rsh_http_verdict v = rsh_http_judge_status(a->status, why);

	if (a->status == 416 && a->has_total && !a->is_broken &&
	    a->total != asked->size)
		return judge_changed(why);
	if (v != RSH_HTTP_RIGHT)
		return v;
	if (a->is_broken)
		return judge_wrong(why, "sends headers that cannot be");
	if ((a->is_encoded && !asked->is_label) || a->is_multipart)
		return judge_wrong(why, "sends something else than bytes");
	if (asked->etag && !answer_same_tag(a->etag, asked->etag) &&
	    !answer_fits_listing(a, asked))
		return a->etag[0] ? judge_changed(why) :
		       judge_wrong(why, "does not name the object that it sends");
	if (!asked->etag && asked->modified && a->modified &&
	    a->modified != asked->modified)
		return judge_changed(why);
	if (a->has_total && a->total != asked->size)
		return judge_changed(why);
	/* The answer to a range request may be the whole object. */
	if (a->status == 200) {
		if (asked->len != asked->size &&
		    (!a->has_length || a->length != asked->size ||
		     asked->size > RSH_HTTP_WHOLE_MAX))
			return judge_wrong(why, "does not support ranges of "
						"bytes");
		return !a->has_length || a->length == asked->size ?
		       RSH_HTTP_RIGHT :
		       judge_wrong(why, "sends a body of another length");
	} else if (!a->has_range) {
		return judge_wrong(why, "does not say which range it sends");
	} else if (a->first != asked->first ||
		   a->last - a->first != asked->len - 1) {
		return judge_wrong(why, "sends another range");
	}
	if (a->has_length && a->length != asked->len)
		return judge_wrong(why, "sends a body of another length");
	return RSH_HTTP_RIGHT;
}
