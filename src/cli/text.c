/* SPDX-License-Identifier: Apache-2.0 */
/* cli/text.c counts and cuts the characters of UTF-8 text, and writes sizes
 * and durations as people read them. */
#include "config.h"

#include "text.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_utf8_tail(char c)
{
	return ((unsigned char)c & 0xc0) == 0x80;
}

size_t rsh_text_length(const char *s)
{
	size_t n = 0;

	for (; *s; s++)
		n += !is_utf8_tail(*s);
	return n;
}

/* Returns where character number n begins. */
static char *character(char *s, size_t n)
{
	while (*s && n > 0)
		for (s++, n--; is_utf8_tail(*s); s++)
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
