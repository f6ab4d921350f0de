/* SPDX-License-Identifier: Apache-2.0 */
/* store/hub.c finds models in the cache of Hugging Face. */
#include "config.h"

#include "rsh/storage/hub.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rsh/util/mem.h"
#include "rsh/util/text.h"

#define REVISION_MAX 256

/* ---- snapshots ---- */

static const char hub_blobs[] = "/blobs";

size_t rsh_hub_model(const char *path)
{
	static const char model[] = "/models--", snapshots[] = "snapshots/";
	const char *at = path;
	size_t n;

	while ((at = strstr(at, model))) {
		at += strlen(model);
		n = strcspn(at, "/");
		if (at[n] && strncmp(at + n + 1, snapshots,
				     strlen(snapshots)) == 0)
			return (size_t)(at + n - path);
	}
	return 0;
}

bool rsh_hub_is_blob(const char *directory, const char *path)
{
	const size_t n = rsh_hub_model(directory), k = strlen(hub_blobs);

	return n > 0 && strncmp(directory, path, n) == 0 &&
	       strncmp(path + n, hub_blobs, k) == 0 && path[n + k] == '/' &&
	       !strchr(path + n + k + 1, '/');
}

char *rsh_hub_blobs(const char *directory)
{
	cleanup_free char *place = realpath(directory, NULL);
	const size_t n = place ? rsh_hub_model(place) : 0;

	return n > 0 ? rsh_text_format("%.*s%s", (int)n, place, hub_blobs) :
		       NULL;
}

/* ---- models by their names ---- */

/* Returns whether the text is a name on the Hub, MODEL or OWNER/MODEL. */
static bool hub_is_name(const char *name)
{
	const char *slash = strchr(name, '/');

	for (const char *at = name; *at; at++)
		if (!isalnum((unsigned char)*at) && !strchr("._-/", *at))
			return false;
	return !strchr("._-/", *name) &&
	       (!slash || (slash[1] && !strchr(slash + 1, '/')));
}

/* Returns the directory of the cache (from malloc); NULL: there is none, or
 * memory is out. */
static char *hub_cache(void)
{
	static const struct {
		const char *name, *below;
	} places[] = {
		{ "HF_HUB_CACHE", "" },
		{ "HUGGINGFACE_HUB_CACHE", "" },
		{ "HF_HOME", "/hub" },
		{ "XDG_CACHE_HOME", "/huggingface/hub" },
		{ "HOME", "/.cache/huggingface/hub" },
	};
	const char *home = getenv("HOME"), *at;

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		at = getenv(places[i].name);
		if (!at || !*at)
			continue;
		if (strncmp(at, "~/", 2) == 0 && home)
			return rsh_text_format("%s%s%s", home, at + 1,
					       places[i].below);
		return rsh_text_format("%s%s", at, places[i].below);
	}
	return NULL;
}

/* Returns the directory of a model in the cache (from malloc). */
static char *hub_model(const char *name)
{
	cleanup_free char *cache = hub_cache();
	const size_t n = strcspn(name, "/");

	return cache ? rsh_text_format("%s/models--%.*s%s%s", cache, (int)n,
				       name, name[n] ? "--" : "",
				       name[n] ? name + n + 1 : "") : NULL;
}

/* Returns whether the path is the directory of a model in such a cache. */
static bool hub_is_model(const char *path)
{
	static const char model[] = "models--";
	cleanup_free char *place = realpath(path, NULL);
	const char *base = place ? strrchr(place, '/') : NULL;
	cleanup_free char *refs = rsh_text_format("%s/refs", path);

	return base && strncmp(base + 1, model, strlen(model)) == 0 && refs &&
	       access(refs, F_OK) == 0;
}

/* Reads the revision that refs/main names.  Returns 0 or -errno. */
static int hub_revision(const char *ref, char revision[REVISION_MAX])
{
	cleanup_fd int fd = open(ref, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, revision, REVISION_MAX - 1);

	if (n < 0)
		return -errno;
	while (n > 0 && isspace((unsigned char)revision[n - 1]))
		n--;
	revision[n] = '\0';
	return n == 0 || *revision == '.' || strchr(revision, '/') ? -EBADMSG :
								     0;
}

static int hub_snapshot(const char *model, char **path, struct rsh_error *err)
{
	cleanup_free char *ref = rsh_text_format("%s/refs/main", model);
	cleanup_free char *snapshot = NULL;
	char revision[REVISION_MAX];
	int rc;

	if (!ref)
		return rsh_error_nomem(err);
	rc = hub_revision(ref, revision);
	if (rc)
		return rsh_error_set(err, -rc, "%s: %s: name a directory below "
				     "%s/snapshots, or download the model "
				     "again", ref, rc == -EBADMSG ?
				     "it names no revision" : strerror(-rc),
				     model);
	snapshot = rsh_text_format("%s/snapshots/%s", model, revision);
	if (!snapshot)
		return rsh_error_nomem(err);
	if (access(snapshot, F_OK) != 0)
		return rsh_error_set(err, errno, "%s: %s: %s/refs/main names "
				     "this revision; download the model again",
				     snapshot, strerror(errno), model);
	*path = steal_pointer(&snapshot);
	return 0;
}

int rsh_hub_find(const char *source, char **path, struct rsh_error *err)
{
	struct rsh_error unused = RSH_ERROR_INIT;
	cleanup_free char *model = NULL;

	*path = NULL;
	/* What is said of such a directory without a revision is said of any
	 * that has checkpoints in it. */
	if (access(source, F_OK) == 0)
		return hub_is_model(source) &&
		       hub_snapshot(source, path, &unused) == -ENOMEM ?
		       rsh_error_nomem(err) : 0;
	if (errno != ENOENT || !hub_is_name(source))
		return 0;
	model = hub_model(source);
	return model && access(model, F_OK) == 0 ?
	       hub_snapshot(model, path, err) : 0;
}

void rsh_hub_hint(const char *source, char *hint, size_t max)
{
	const size_t n = strcspn(source, "/");
	cleanup_free char *model = NULL, *owner = strndup(source, n);

	*hint = '\0';
	if (strstr(source, ":/") && !strchr("/.", *source)) {
		snprintf(hint, max, "; addresses begin with s3://, https:// or "
			 "http://");
		return;
	}
	if (!source[n] || !hub_is_name(source) || !owner ||
	    access(owner, F_OK) == 0)
		return;
	model = hub_model(source);
	snprintf(hint, max, "; it is not a model of the Hugging Face Hub that "
		 "was downloaded either%s%s%s: hf download %s gets it",
		 model ? " (there is no " : "", model ? model : "",
		 model ? ")" : "", source);
}
