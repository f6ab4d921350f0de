/* SPDX-License-Identifier: Apache-2.0 */
/* storage/objects/sts.c asks the token service for the keys of a role, in
 * exchange for the token of a web identity. */
#include "config.h"

#include "objects_i.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "rsh/util/mem.h"
#include "rsh/util/text.h"

#define STS_ANSWER_MAX ((size_t)64 << 10)
#define STS_GLOBAL "https://sts.amazonaws.com"

/* The regions for which tools of old ask the global service if
 * AWS_STS_REGIONAL_ENDPOINTS is "legacy". */
static const char *const of_old[] = {
	"ap-northeast-1", "ap-south-1", "ap-southeast-1", "ap-southeast-2",
	"ca-central-1", "eu-central-1", "eu-north-1", "eu-west-1", "eu-west-2",
	"eu-west-3", "sa-east-1", "us-east-1", "us-east-2", "us-west-1",
	"us-west-2",
};

static bool sts_is_global(const char *region)
{
	const char *which = rsh_object_first(
		rsh_object_env("AWS_STS_REGIONAL_ENDPOINTS"), "", NULL);

	for (size_t i = 0; i < sizeof(of_old) / sizeof(of_old[0]); i++)
		if (!strcmp(region, of_old[i]))
			return !strcasecmp(which, "legacy");
	return false;
}

int rsh_object_sts_find(struct rsh_objects *o, bool ignores,
			struct rsh_error *err)
{
	const char *given =
		rsh_object_first(rsh_object_env("AWS_ENDPOINT_URL_STS"),
				 rsh_object_env("AWS_ENDPOINT_URL"), NULL);
	const bool is_china = !strncmp(o->region, "cn-", 3);

	if (o->origin != KEYS_WEB_IDENTITY)
		return 0;
	if (given && !ignores)
		o->service = rsh_arena_format(&o->texts, "%s%s",
					      strstr(given, "://") ? "" :
					      "https://", given);
	else if (sts_is_global(o->region))
		o->service = rsh_object_keep(o, STS_GLOBAL);
	else
		o->service = rsh_arena_format(&o->texts,
					      "https://sts.%s.amazonaws.com%s",
					      o->region, is_china ? ".cn" : "");
	if (!o->service)
		return rsh_error_nomem(err);
	if (!rsh_objects_is_url(o->service) || *o->service != 'h')
		return rsh_error_set(err, EINVAL, "%s: not an address of a "
				     "token service (AWS_ENDPOINT_URL_STS)",
				     o->service);
	return 0;
}

int rsh_object_sts_ask(struct rsh_objects *o, const char *token,
		       struct object_get *g, struct rsh_error *err)
{
	const struct object_parameter parameters[] = {
		{ "Action", "AssumeRoleWithWebIdentity" },
		{ "RoleArn", o->role }, { "RoleSessionName", o->session },
		{ "Version", "2011-06-15" }, { "WebIdentityToken", token },
		{ NULL, NULL },
	};
	/* Otherwise libcurl waits until the server asks for the form. */
	static const char *const headers[] = { "Expect:", NULL };
	char *form = rsh_object_form(parameters);
	cleanup_free char *what = rsh_text_format(
		"role %s: the token service %s", o->role, o->service);
	int rc = form && what ? 0 : rsh_error_nomem(err);

	g->address = o->service;
	g->what = what;
	g->form = form;
	g->headers = headers;
	g->max = STS_ANSWER_MAX;
	/* A proxy would see the token. */
	g->direct = !strncasecmp(o->service, "http:", 5);
	rc = rc ?: rsh_object_get(o, g, rsh_object_once, err);
	rsh_secret_free(form);
	g->what = "the token service";
	return rc;
}
