/* SPDX-License-Identifier: Apache-2.0 */
/* storage/objects/keys.c finds keys and settings where Amazon's tools have
 * them: the environment, profiles in files, services of containers and
 * machines, and the token service, which gives keys of a role for the token of
 * a web identity.  A service is asked only where the environment or an option
 * names it. */
#include "config.h"

#include "objects_i.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "rsh/util/files.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/util/thread.h"
#include "rsh/wire/aws_keys.h"

#define KEYS_FILE_MAX ((size_t)1 << 20)
/* Keys are renewed so many seconds before they expire. */
#define KEYS_EARLY 300
#define KEYS_CONTAINER_HOST "http://169.254.170.2"
#define KEYS_INSTANCE_HOST "http://169.254.169.254"
#define STS_ANSWER_MAX ((size_t)64 << 10)
#define STS_GLOBAL "https://sts.amazonaws.com"

void rsh_object_keys_clear(struct object_keys *k)
{
	rsh_secret_free(k->id);
	rsh_secret_free(k->secret);
	rsh_secret_free(k->token);
	memset(k, 0, sizeof(*k));
}

/* ---- settings ---- */

void rsh_object_settings_clear(struct keys_settings *s)
{
	char **texts = &s->region;

	for (size_t i = 0; i < sizeof(*s) / sizeof(*texts); i++)
		rsh_secret_free(texts[i]);
	memset(s, 0, sizeof(*s));
}

/* What a section or an answer sets. */
struct keys_found {
	struct object_keys keys;
	struct keys_settings settings;
	bool nomem;
	bool needs_program; /* keys are had by means that are not ours */
};

static void keys_take(struct keys_found *f, char **to, const char *value)
{
	rsh_secret_free(*to);
	*to = rsh_secret_dup(value);
	f->nomem |= !*to;
}

static void keys_setting(void *ctx, const char *parent, const char *key,
			 const char *value)
{
	struct keys_found *f = ctx;
	const struct {
		const char *key;
		char **to;
	} table[] = {
		{ "aws_access_key_id", &f->keys.id },
		{ "aws_secret_access_key", &f->keys.secret },
		{ "aws_session_token", &f->keys.token },
		{ "region", &f->settings.region },
		{ "endpoint_url", &f->settings.endpoint },
		{ "ca_bundle", &f->settings.ca_file },
		{ "services", &f->settings.services },
		{ "ignore_configured_endpoint_urls", &f->settings.ignores },
		{ "AccessKeyId", &f->keys.id },
		{ "SecretAccessKey", &f->keys.secret },
		{ "Token", &f->keys.token },
		{ "SessionToken", &f->keys.token },
		{ "role_arn", &f->settings.role },
		{ "web_identity_token_file", &f->settings.token_file },
		{ "role_session_name", &f->settings.session },
	};

	if (parent) {
		if (!strcmp(parent, "s3") && !strcmp(key, "addressing_style"))
			keys_take(f, &f->settings.style, value);
		return;
	}
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (!strcmp(key, table[i].key))
			keys_take(f, table[i].to, value);
	if (!strcmp(key, "Expiration"))
		rsh_http_date(value, strlen(value), &f->keys.expires, NULL);
	f->needs_program |= rsh_is_any(key, "credential_process", "role_arn",
				       "sso_session", "sso_start_url");
}

static void keys_service_setting(void *ctx, const char *parent,
				 const char *key, const char *value)
{
	struct keys_found *f = ctx;

	if (parent && !strcmp(parent, "s3") && !strcmp(key, "endpoint_url"))
		keys_take(f, &f->settings.endpoint, value);
}

static void keys_found_clear(struct keys_found *f)
{
	rsh_object_keys_clear(&f->keys);
	rsh_object_settings_clear(&f->settings);
	memset(f, 0, sizeof(*f));
}

/* ---- files ---- */

/* Opens a file by its present name.  Tools that renew keys or certificates
 * write another file and rename it, which the sandbox does not know. */
static int keys_open(const struct rsh_objects *o, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd >= 0)
		return fd;
	fd = -errno;
	return o->opener.open ? o->opener.open(o->opener.ctx, path) : fd;
}

/* Reads a file into secret memory, with a NUL behind it. */
static int keys_load(const struct rsh_objects *o, const char *path,
		     char **text, size_t *len)
{
	cleanup_fd int fd = keys_open(o, path);
	ssize_t n;

	if (fd < 0)
		return fd;
	*text = rsh_secret_alloc(KEYS_FILE_MAX + 1);
	if (!*text)
		return -ENOMEM;
	n = rsh_read_all(fd, *text, KEYS_FILE_MAX);
	if (n < 0 || (size_t)n == KEYS_FILE_MAX) {
		rsh_secret_free(steal_pointer(text));
		return n < 0 ? (int)n : -EFBIG;
	}
	(*text)[n] = '\0';
	*len = (size_t)n;
	return 0;
}

/* Reads a section of one file; no file is one without it. */
static int keys_of_file(const struct rsh_objects *o, const char *path,
			enum rsh_aws_section kind, const char *name,
			struct keys_found *f, bool *found,
			struct rsh_error *err)
{
	cleanup_secret char *text = NULL;
	size_t len;
	int rc = path ? keys_load(o, path, &text, &len) : -ENOENT;

	if (rsh_errno_is_absent(-rc))
		return 0;
	if (rc)
		return rsh_error_file(err, -rc, path);
	*found |= rsh_aws_section(text, len, kind, name,
				  kind == RSH_AWS_SERVICES ?
				  keys_service_setting : keys_setting, f);
	return f->nomem ? rsh_error_nomem(err) : 0;
}

/* What the section says that the profile names comes before what the profile
 * says of all services. */
static int keys_of_services(const struct rsh_objects *o, struct keys_found *f,
			    struct rsh_error *err)
{
	const char *name = f->settings.services;
	bool found = !name;
	int rc = name ? keys_of_file(o, o->config, RSH_AWS_SERVICES, name, f,
				     &found, err) : 0;

	if (rc || found)
		return rc;
	return rsh_error_set(err, ENOENT,
			     "there is no section \"services %s\", which profile \"%s\" uses, in %s",
			     name, o->profile, o->config ? o->config : "?");
}

/* What both files say; that of credentials has the last word. */
static int keys_of_profile(const struct rsh_objects *o, struct keys_found *f,
			   bool *found, struct rsh_error *err)
{
	return keys_of_file(o, o->config, RSH_AWS_PROFILE, o->profile, f, found,
			    err) ?:
	       keys_of_file(o, o->credentials, RSH_AWS_CREDENTIALS,
			    o->profile, f, found, err) ?:
	       keys_of_services(o, f, err);
}

/* ---- the environment ---- */

/* A daemon leaves the working directory, so a path is made absolute.  Links in
 * it are kept, since they may lead elsewhere when the file is opened again. */
char *rsh_object_absolute(struct rsh_objects *o, const char *path)
{
	cleanup_free char *here = NULL;

	if (!path || *path == '/')
		return rsh_object_keep(o, path);
	here = getcwd(NULL, 0);
	return rsh_arena_format(&o->texts, "%s/%s", here ? here : "", path);
}

/* Returns the path of the variable, or that below the home directory; NULL if
 * there is none. */
static char *keys_path(struct rsh_objects *o, const char *variable,
		       const char *name)
{
	const char *given = rsh_object_env(variable);
	const char *home = rsh_object_env("HOME");
	char *path = NULL;

	if (given && !strncmp(given, "~/", 2) && home)
		path = rsh_arena_format(&o->texts, "%s%s", home, given + 1);
	else if (!given && home)
		path = rsh_arena_format(&o->texts, "%s/.aws/%s", home, name);
	return rsh_object_absolute(o, path ? path : given);
}

/* Returns whether a request to this address can be read on a network.  AWS's
 * own programs send the token in clear to these hosts alone. */
static bool keys_are_exposed(const char *address)
{
	static const char *const local[] = {
		"127.", "localhost", "[::1]", "169.254.170.2", "169.254.170.23",
		"[fd00:ec2::23]",
	};
	size_t n;

	if (strncasecmp(address, "http://", 7) != 0)
		return false;
	address += 7;
	for (size_t i = 0; i < sizeof(local) / sizeof(local[0]); i++) {
		n = strlen(local[i]);
		if (strncasecmp(address, local[i], n) == 0 &&
		    (i == 0 ? strspn(address, "0123456789.") ==
			      strcspn(address, ":/") :
			      strcspn(address + n, ":/") == 0))
			return false;
	}
	return true;
}

/* Finds the service that is named, if one is. */
static int keys_find_service(struct rsh_objects *o,
			     const struct rsh_objects_options *opts,
			     struct rsh_error *err)
{
	const char *full = rsh_object_env("AWS_CONTAINER_CREDENTIALS_FULL_URI");
	const char *below =
		rsh_object_env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
	const char *host = rsh_object_env("AWS_EC2_METADATA_SERVICE_ENDPOINT");
	const char *token = rsh_object_env("AWS_CONTAINER_AUTHORIZATION_TOKEN");

	o->token_file = rsh_object_absolute(
		o, rsh_object_env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"));
	o->service_token = rsh_secret_dup(token);
	if (o->texts.failed || (token && !o->service_token))
		return rsh_error_nomem(err);
	if (!below && full && keys_are_exposed(full))
		return rsh_error_set(err, EINVAL,
				     "AWS_CONTAINER_CREDENTIALS_FULL_URI: \"%s\" would send a secret in clear; use https, or an address of this machine",
				     full);
	if (!below && !full && !host && opts->keys != RSH_OBJECTS_KEYS_INSTANCE)
		return 0;
	o->origin = below || full ? KEYS_CONTAINER : KEYS_INSTANCE;
	o->service = rsh_arena_format(&o->texts, "%s%s",
				      below ? KEYS_CONTAINER_HOST : "",
				      below ? below : full ? full : host ?
				      host : KEYS_INSTANCE_HOST);
	return o->service ? 0 : rsh_error_nomem(err);
}

/* Takes the settings of a web identity from the environment, or from a profile
 * that has one. */
static int keys_find_identity(struct rsh_objects *o,
			      const struct keys_settings *s,
			      struct rsh_error *err)
{
	const char *file = rsh_object_first(
		s ? s->token_file : NULL,
		rsh_object_env("AWS_WEB_IDENTITY_TOKEN_FILE"));
	const char *role = rsh_object_first(s ? s->role : NULL,
					    rsh_object_env("AWS_ROLE_ARN"));
	const char *session = rsh_object_first(
		s ? s->session : NULL,
		rsh_object_env("AWS_ROLE_SESSION_NAME"), "reshardfs");

	if (!role)
		return rsh_error_set(err, EINVAL,
				     "AWS_WEB_IDENTITY_TOKEN_FILE needs the name of a role: set AWS_ROLE_ARN");
	o->origin = KEYS_WEB_IDENTITY;
	o->token_file = rsh_object_absolute(o, file);
	o->role = rsh_object_keep(o, role);
	o->session = rsh_object_keep(o, session);
	return 0;
}

/* ---- which of them ---- */

static int keys_choose(struct rsh_objects *o,
		       const struct rsh_objects_options *opts,
		       struct keys_found *f, struct rsh_error *err)
{
	int rc;

	if (opts->keys == RSH_OBJECTS_KEYS_NONE || !o->is_s3)
		return 0;
	if (!opts->profile && rsh_object_env("AWS_ACCESS_KEY_ID") &&
	    rsh_object_env("AWS_SECRET_ACCESS_KEY")) {
		struct object_keys *k = &o->keys;
		const char *token = rsh_object_env("AWS_SESSION_TOKEN");

		o->origin = KEYS_FIXED;
		k->id = rsh_secret_dup(rsh_object_env("AWS_ACCESS_KEY_ID"));
		k->secret = rsh_secret_dup(
			rsh_object_env("AWS_SECRET_ACCESS_KEY"));
		k->token = rsh_secret_dup(token);
		return k->id && k->secret && (k->token || !token) ? 0 :
		       rsh_error_nomem(err);
	}
	if (!opts->profile && rsh_object_env("AWS_WEB_IDENTITY_TOKEN_FILE"))
		return keys_find_identity(o, NULL, err);
	if (f->keys.id && f->keys.secret) {
		o->origin = KEYS_PROFILE;
		o->keys = f->keys;
		memset(&f->keys, 0, sizeof(f->keys));
		return 0;
	}
	if (f->settings.token_file)
		return keys_find_identity(o, &f->settings, err);
	rc = keys_find_service(o, opts, err);
	if (rc || o->service)
		return rc;
	if (f->needs_program)
		return rsh_error_set(err, ENOTSUP,
				     "profile \"%s\": credentials from a program or a service are not supported: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
				     o->profile);
	return rsh_error_set(err, ENOENT,
			     "%s: no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or AWS_PROFILE, or use --source-keys none for unsigned requests, or --source-keys instance for the role of this machine",
			     o->url);
}

int rsh_object_keys_find(struct rsh_objects *o,
			 const struct rsh_objects_options *opts,
			 struct keys_settings *out, struct rsh_error *err)
{
	const char *named = rsh_object_first(
		opts->profile,
		rsh_object_env("AWS_PROFILE", "AWS_DEFAULT_PROFILE"));
	struct keys_found f = { .nomem = false };
	bool found = false;
	int rc;

	if (!o->is_s3)
		return 0;
	o->profile = rsh_object_keep(o, named ? named : "default");
	o->credentials = keys_path(o, "AWS_SHARED_CREDENTIALS_FILE",
				   "credentials");
	o->config = keys_path(o, "AWS_CONFIG_FILE", "config");
	if (o->texts.failed)
		return rsh_error_nomem(err);
	rc = keys_of_profile(o, &f, &found, err);
	if (rc == 0 && named && !found)
		rc = rsh_error_set(err, ENOENT,
				   "there is no profile \"%s\" in %s or %s",
				   named, o->credentials ? o->credentials : "?",
				   o->config ? o->config : "?");
	rc = rc ?: keys_choose(o, opts, &f, err);
	if (rc == 0) {
		*out = f.settings;
		memset(&f.settings, 0, sizeof(f.settings));
	}
	keys_found_clear(&f);
	return rc;
}

/* ---- services ---- */

/* Whether tools of old ask the global service in this region if
 * AWS_STS_REGIONAL_ENDPOINTS is "legacy". */
static bool sts_is_global(const char *region)
{
	const char *which = rsh_object_first(
		rsh_object_env("AWS_STS_REGIONAL_ENDPOINTS"), "");

	return !strcasecmp(which, "legacy") && rsh_is_any(
		region, "ap-northeast-1", "ap-south-1", "ap-southeast-1",
		"ap-southeast-2", "ca-central-1", "eu-central-1", "eu-north-1",
		"eu-west-1", "eu-west-2", "eu-west-3", "sa-east-1",
		"us-east-1", "us-east-2", "us-west-1", "us-west-2");
}

int rsh_object_sts_find(struct rsh_objects *o, bool ignores,
			struct rsh_error *err)
{
	const char *given =
		rsh_object_env("AWS_ENDPOINT_URL_STS", "AWS_ENDPOINT_URL");
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

/* The token of the environment, or what now stands in the file that it names,
 * since it is renewed too. */
static int keys_service_token(const struct rsh_objects *o, char **out,
			      struct rsh_error *err)
{
	const bool is_role = o->origin == KEYS_WEB_IDENTITY;
	size_t len;
	int rc;

	*out = NULL;
	if (!o->token_file) {
		*out = rsh_secret_dup(o->service_token);
		rc = o->service_token && !*out ? -ENOMEM : 0;
	} else {
		rc = keys_load(o, o->token_file, out, &len);
	}
	if (rc)
		return rsh_error_set(err, -rc, "cannot read the token %s%s: %s",
				     is_role ? "of the web identity, " :
				     "for the credentials service",
				     is_role ? o->token_file : "",
				     strerror(-rc));
	if (o->token_file)
		(*out)[strcspn(*out, "\r\n")] = '\0';
	return 0;
}

static int keys_ask(struct rsh_objects *o, struct object_get *g,
		    const char *name, const char *value, struct rsh_error *err)
{
	cleanup_secret char *header =
		value ? rsh_secret_format("%s: %s", name, value) : NULL;
	const char *headers[] = { header, NULL };

	if (value && !header)
		return rsh_error_nomem(err);
	g->q.what = "the credentials service";
	g->q.direct = true;
	g->q.headers = header ? headers : NULL;
	g->max = KEYS_FILE_MAX;
	return rsh_object_get(o, g, rsh_object_once, err);
}

static int keys_of_container(struct rsh_objects *o, struct object_get *g,
			     struct rsh_error *err)
{
	cleanup_secret char *token = NULL;
	int rc = keys_service_token(o, &token, err);

	g->q.address = o->service;
	return rc ?: keys_ask(o, g, "Authorization", token, err);
}

/* Asks what follows the service's address, with the token of a session. */
static int keys_of_path(struct rsh_objects *o, struct object_get *g,
			const char *session, const char *name,
			struct rsh_error *err)
{
	cleanup_free char *address = NULL;

	address = rsh_text_format("%s/latest/meta-data/iam/"
				  "security-credentials/%s", o->service, name);
	if (!address)
		return rsh_error_nomem(err);
	g->q.address = address;
	return keys_ask(o, g, "X-aws-ec2-metadata-token", session, err);
}

/* A session is begun, the machine's role is asked for, and then its keys. */
static int keys_of_instance(struct rsh_objects *o, struct object_get *g,
			    struct rsh_error *err)
{
	struct object_get session = { .q.deadline = g->q.deadline,
				      .q.is_put = true };
	struct object_get role = { .q.deadline = g->q.deadline };
	cleanup_free char *address =
		rsh_text_format("%s/latest/api/token", o->service);
	int rc;

	if (!address)
		return rsh_error_nomem(err);
	session.q.address = address;
	rc = keys_ask(o, &session, "X-aws-ec2-metadata-token-ttl-seconds",
		      "21600", err) ?:
	     keys_of_path(o, &role, session.data, "", err);
	if (rc == 0) {
		role.data[strcspn(role.data, "\r\n")] = '\0';
		rc = keys_of_path(o, g, session.data, role.data, err);
	}
	rsh_secret_free(session.data);
	rsh_secret_free(role.data);
	return rc;
}

static int keys_of_role(struct rsh_objects *o, struct object_get *g,
			struct rsh_error *err)
{
	cleanup_secret char *token = NULL, *form = NULL;
	cleanup_free char *what = rsh_text_format(
		"role %s: the token service %s", o->role, o->service);
	int rc = keys_service_token(o, &token, err);

	if (rc == 0) {
		form = rsh_object_form((struct object_parameter[]){
			{ "Action", "AssumeRoleWithWebIdentity" },
			{ "RoleArn", o->role },
			{ "RoleSessionName", o->session },
			{ "Version", "2011-06-15" },
			{ "WebIdentityToken", token }, { NULL, NULL } });
		rc = form && what ? 0 : rsh_error_nomem(err);
	}
	g->q.address = o->service;
	g->q.what = what;
	g->q.form = form;
	/* Otherwise libcurl waits until the server asks for the form. */
	g->q.headers = (const char *const[]){ "Expect:", NULL };
	g->max = STS_ANSWER_MAX;
	/* A proxy would see the token. */
	g->q.direct = !strncasecmp(o->service, "http:", 5);
	rc = rc ?: rsh_object_get(o, g, rsh_object_once, err);
	g->q.what = "the token service";
	return rc;
}

static int keys_of_service(struct rsh_objects *o, uint64_t deadline,
			   struct keys_found *f, struct rsh_error *err)
{
	const bool is_role = o->origin == KEYS_WEB_IDENTITY;
	struct object_get g = { .q.deadline = deadline };
	int rc = is_role ? keys_of_role(o, &g, err) :
		 o->origin == KEYS_CONTAINER ? keys_of_container(o, &g, err) :
					       keys_of_instance(o, &g, err);

	if (rc)
		return rc;
	if (!(is_role ? rsh_aws_xml : rsh_aws_answer)(g.data, g.len,
						      keys_setting, f) ||
	    !f->keys.id || !f->keys.secret)
		rc = rsh_error_set(err, EBADMSG, "%s returned no credentials%s",
				   g.q.what, is_role ?
				   "; AWS_ENDPOINT_URL_STS sets the service" :
				   "");
	rsh_secret_free(g.data);
	return rc;
}

/* ---- renewal ---- */

/* Returns whether the keys of a service have not been fetched yet, or keys
 * expire soon. */
static bool keys_are_due(struct rsh_objects *o, unsigned *number)
{
	rsh_hold_lock(&o->lock);
	*number = o->keys_number;
	return (o->service && !o->keys.id) ||
	       (o->keys.expires && !o->renewing &&
		time(NULL) + KEYS_EARLY >= o->keys.expires);
}

static int keys_fetch(struct rsh_objects *o, uint64_t deadline,
		      struct keys_found *f, struct rsh_error *err)
{
	bool found = false;
	int rc;

	if (o->origin > KEYS_PROFILE)
		return keys_of_service(o, deadline, f, err);
	if (o->origin != KEYS_PROFILE)
		return rsh_error_set(err, EACCES, "there are no other credentials");
	rc = keys_of_profile(o, f, &found, err);
	if (rc == 0 && (!f->keys.id || !f->keys.secret))
		rc = rsh_error_set(err, EACCES, "there are no longer any credentials");
	return rc;
}

/* Gets new keys, unless another thread has done so since renewal `number`.  If
 * another thread is doing so, waits for it. */
static int keys_renew(struct rsh_objects *o, unsigned number,
		      uint64_t deadline, struct rsh_error *err)
{
	struct keys_found f = { .nomem = false };
	int rc;
	bool other;

	pthread_mutex_lock(&o->lock);
	while (o->renewing)
		pthread_cond_wait(&o->renewed, &o->lock);
	other = o->keys_number != number;
	o->renewing = !other;
	pthread_mutex_unlock(&o->lock);
	if (other)
		return 0;
	rc = keys_fetch(o, deadline, &f, err);
	pthread_mutex_lock(&o->lock);
	if (rc == 0) {
		struct object_keys old = o->keys;

		o->keys = f.keys;
		f.keys = old;
		o->keys_number++;
	}
	o->renewing = false;
	pthread_cond_broadcast(&o->renewed);
	pthread_mutex_unlock(&o->lock);
	keys_found_clear(&f);
	return rc;
}

/* ---- certificates ---- */

static void keys_first_ca_file(void *ctx, const char *path)
{
	const char **first = ctx;

	if (!*first && access(path, F_OK) == 0)
		*first = path;
}

/* Reads the file of certificates, which libcurl reads only once, unless another
 * thread has done so since it was read for the `number`th time.  Returns
 * whether there is another text than that of the failed request. */
static bool keys_read_ca(struct rsh_objects *o, unsigned number)
{
	const char *path = o->ca_file;
	cleanup_secret char *secret = NULL;
	char *text;
	size_t len = 0;
	bool is_other;

	if (!path)
		rsh_object_each_ca_file(keys_first_ca_file, &path);
	if (!path || keys_load(o, path, &secret, &len))
		return false;
	text = malloc(len + 1);
	if (text)
		memcpy(text, secret, len + 1);
	pthread_mutex_lock(&o->lock);
	is_other = text && (o->ca_number != number || !o->ca_text ||
			    len != o->ca_length ||
			    memcmp(text, o->ca_text, len) != 0);
	if (is_other && o->ca_number == number) {
		free(o->ca_text);
		o->ca_text = text;
		o->ca_length = len;
		o->ca_number++;
		text = NULL;
	}
	pthread_mutex_unlock(&o->lock);
	free(text);
	return is_other;
}

/* ---- requests with credentials ---- */

static int keys_again(struct rsh_objects *o, struct object_request *q)
{
	rsh_object_again(q);
	if (!q->has_range && q->restart)
		q->restart(q);
	return rsh_object_once(o, q);
}

int rsh_object_carry_out(struct rsh_objects *o, struct object_request *q)
{
	unsigned number;
	int rc;

	if (q->sign && keys_are_due(o, &number)) {
		rc = keys_renew(o, number, q->deadline, &q->err);
		if (rc && !number)
			return rc;
	}
	rc = rsh_object_once(o, q);
	if (q->is_untrusted && o->opener.open && keys_read_ca(o, q->ca_number))
		rc = keys_again(o, q);
	if (!q->sign || !q->is_refused || o->origin <= KEYS_FIXED)
		return rc;
	if (keys_renew(o, q->keys_number, q->deadline, NULL))
		return rc;
	return keys_again(o, q);
}
