/* SPDX-License-Identifier: Apache-2.0 */
/* app/daemon/json.c makes JSON of texts that need not be UTF-8. */
#include "config.h"

#include "rsh/app/json.h"

#include <stdlib.h>

#include "rsh/util/mem.h"
#include "rsh/util/text.h"

char *rsh_json_dump(json_t *value, size_t flags)
{
	cleanup_free char *text = value ? json_dumps(value, flags) : NULL;

	json_decref(value);
	return text ? rsh_text_json(text) : NULL;
}

json_t *rsh_json_text(const char *s)
{
	json_t *text = json_string(s);
	char *escaped;

	if (text)
		return text;
	escaped = rsh_text_escape(s);
	text = escaped ? json_string(escaped) : NULL;
	free(escaped);
	return text;
}
