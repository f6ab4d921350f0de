/* cli/text.c - see text.h. */
#include "config.h"

#include "text.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_tail(char c)
{
	return ((unsigned char)c & 0xc0) == 0x80;
}

/* The code point at `s` and its bytes; 0 bytes if it is not UTF-8. */
static size_t decode(const char *s, uint32_t *out)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	const unsigned char lead = (unsigned char)*s;
	size_t n = lead < 0x80 ? 1 : lead >> 5 == 6 ? 2 : lead >> 4 == 14 ? 3 :
		   lead >> 3 == 30 ? 4 : 0;
	uint32_t c = n == 1 ? lead : lead & (0x7fu >> n);

	for (size_t i = 1; i < n; i++) {
		if (!is_tail(s[i]))
			return 0;
		c = c << 6 | ((unsigned char)s[i] & 0x3f);
	}
	*out = c;
	return n && c >= least[n] && c <= 0x10ffff && c >> 11 != 0x1b ? n : 0;
}

/* Nothing is seen of it, or it changes how its neighbours are seen. */
static bool misleads(uint32_t c)
{
	return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0xad ||
	       (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
	       (c >= 0x2060 && c <= 0x206f) || c == 0xfeff;
}

char *rsh_text_escape(const char *s)
{
	char *text = malloc(4 * strlen(s) + 1), *to = text;
	uint32_t c = 0;

	while (text && *s) {
		size_t n = decode(s, &c);

		if (n && !misleads(c) && c != '\\') {
			to = mempcpy(to, s, n);
			s += n;
			continue;
		}
		for (size_t i = 0; i < (n ? n : 1); i++, s++)
			to += c == '\\' && n ?
			      sprintf(to, "\\\\") :
			      sprintf(to, "\\x%02x", (unsigned char)*s);
	}
	if (text)
		*to = '\0';
	return text;
}

size_t rsh_text_length(const char *s)
{
	size_t n = 0;

	for (; *s; s++)
		n += !is_tail(*s);
	return n;
}

/* Where character number n begins. */
static char *character(char *s, size_t n)
{
	while (*s && n > 0)
		for (s++, n--; is_tail(*s); s++)
			;
	return s;
}

void rsh_text_shorten(char *s, size_t n)
{
	static const char dots[] = "...";
	size_t have = rsh_text_length(s);
	const size_t n_dots = sizeof(dots) - 1;
	size_t head;
	char *to, *from;

	if (have <= n || n <= n_dots)
		return;
	head = (n - n_dots) / 2;
	to = character(s, head);
	from = character(s, have - (n - n_dots - head));
	/* More characters are taken out than there are dots. */
	memmove(to + n_dots, from, strlen(from) + 1);
	memcpy(to, dots, n_dots);
}

const char *rsh_text_bytes(uint64_t bytes, char *text, size_t size)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB",
					     "PiB", "EiB" };
	double n = (double)bytes;
	unsigned unit = 0;

	while (n >= 1023.95 && unit < 6) {
		n /= 1024;
		unit++;
	}
	snprintf(text, size, unit ? "%.1f %s" : "%.0f %s", n, units[unit]);
	return text;
}

const char *rsh_text_seconds(double seconds, char *text, size_t size)
{
	if (seconds < 0.9995)
		snprintf(text, size, "%.3g ms", seconds * 1000);
	else if (seconds < 119.95)
		snprintf(text, size, "%.1f s", seconds);
	else if (seconds < 7197)
		snprintf(text, size, "%.1f min", seconds / 60);
	else
		snprintf(text, size, "%.1f h", seconds / 3600);
	return text;
}
