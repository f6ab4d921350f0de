/* SPDX-License-Identifier: Apache-2.0 */
/* storage/objects/env.c reads the environment: settings, and the proxy. */
#include "config.h"

#include "objects_i.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "rsh/util/text.h"

const char *rsh_object_env(const char *name)
{
	const char *v = getenv(name);

	return v && *v ? v : NULL;
}

const char *rsh_object_first(const char *a, const char *b, const char *c)
{
	return a && *a ? a : b ? b : c;
}

/* Returns whether a list as no_proxy has it names the host, or may do so: of
 * networks this is not decided here. */
static bool env_is_exempt(const char *list, const char *host, size_t n)
{
	while (list && *list) {
		const size_t len = strcspn(list, ", ");
		const char *word = *list == '.' ? list + 1 : list;
		const size_t m = len - (size_t)(word - list);

		if ((len == 1 && *list == '*') || memchr(list, '/', len) ||
		    (m && m <= n && !strncasecmp(host + n - m, word, m) &&
		     (m == n || host[n - m - 1] == '.')))
			return true;
		list += len;
		list += strspn(list, ", ");
	}
	return false;
}

char *rsh_object_proxy(const char *address)
{
	const bool is_tls = !strncmp(address, "https:", 6);
	const char *host = strstr(address, "://") + 3;
	const char *given = rsh_object_first(
		is_tls ? rsh_object_env("https_proxy") :
			 rsh_object_env("http_proxy"),
		is_tls ? rsh_object_env("HTTPS_PROXY") : NULL,
		rsh_object_first(rsh_object_env("all_proxy"),
				 rsh_object_env("ALL_PROXY"), NULL));
	const char *list = rsh_object_first(rsh_object_env("no_proxy"),
					    rsh_object_env("NO_PROXY"), NULL);
	const char *scheme = given ? strstr(given, "://") : NULL;
	const char *at;

	if (!given || env_is_exempt(list, host, strcspn(host, ":/?")))
		return NULL;
	at = strrchr(given, '@');
	return rsh_text_format("%.*s%s",
			       scheme ? (int)(scheme - given) + 3 : 0, given,
			       at ? at + 1 : scheme ? scheme + 3 : given);
}
