/* SPDX-License-Identifier: Apache-2.0 */
/* util/pattern.c compiles regular expressions. */
#include "config.h"

#include "rsh/util/pattern.h"

#include <errno.h>

static unsigned pattern_depth(const char *text)
{
	unsigned depth = 0, most = 0;

	for (; *text; text++) {
		if (*text == '\\' && text[1])
			text++;
		else if (*text == '(' && ++depth > most)
			most = depth;
		else if (*text == ')' && depth)
			depth--;
	}
	return most;
}

int rsh_pattern_compile(regex_t *to, const char *what, const char *text,
			struct rsh_error *err)
{
	char why[256];
	int rc;

	if (pattern_depth(text) > RSH_PATTERN_DEPTH)
		return rsh_error_set(err, EINVAL, "%s \"%.100s\": more than "
				     "%d groups are in one another", what,
				     text, RSH_PATTERN_DEPTH);
	rc = regcomp(to, text, REG_EXTENDED | REG_NOSUB);
	if (rc == 0)
		return 0;
	regerror(rc, to, why, sizeof(why));
	return rsh_error_set(err, EINVAL, "%s \"%s\": %s", what, text, why);
}
