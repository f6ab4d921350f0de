/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/printer.c finds out whether the output is a terminal, its width, and
 * whether to use color. */
#include "config.h"

#include "printer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "rsh/util/mem.h"
#include "text.h"

#define DEFAULT_WIDTH 80

static unsigned output_width(void)
{
	const char *columns = getenv("COLUMNS");
	unsigned long n = columns ? strtoul(columns, NULL, 10) : 0;
	struct winsize size;

	if (n > 0 && n < 10000)
		return (unsigned)n;
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
		return size.ws_col;
	return DEFAULT_WIDTH;
}

/* NO_COLOR is the variable of https://no-color.org. */
static bool wants_color(void)
{
	const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

	return !(no && *no) && !(term && strcmp(term, "dumb") == 0);
}

void rsh_printer_init(struct rsh_printer *out, const struct rsh_options *o)
{
	bool terminal = isatty(STDOUT_FILENO);

	*out = (struct rsh_printer){
		.f = stdout,
		.json = o->json,
		.color = o->color == RSH_COLOR_ALWAYS ||
			 (o->color == RSH_COLOR_AUTO && terminal &&
			  wants_color()),
		.width = terminal ? output_width() : 0,
	};
}

void rsh_printer_put(const struct rsh_printer *out, const char *text)
{
	cleanup_free char *escaped = rsh_text_escape(text);

	fputs(escaped ? escaped : "?", out->f);
}

void rsh_printer_line(const struct rsh_printer *out, const char *text)
{
	rsh_printer_put(out, text);
	fputc('\n', out->f);
}

int rsh_printer_json(const struct rsh_printer *out, json_t *value)
{
	cleanup_free char *text = rsh_json_dump(value, JSON_COMPACT |
						JSON_REAL_PRECISION(6));

	if (!text)
		return -ENOMEM;
	fprintf(out->f, "%s\n", text);
	return 0;
}
