/* SPDX-License-Identifier: Apache-2.0 */
/* source/metadata_load.c reads the metadata.json of a Checkpoint 2.0 step where
 * a strategy is wanted.  It may be larger than memory has room for, so nothing
 * here takes it in whole. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "rsh/strategy/checkpoint2.h"
#include "rsh/util/mem.h"
#include "source_i.h"

#include <xxhash.h>

#define METADATA_NAME "metadata.json"
#define TRACKER_BYTES_MAX 64
#define LOOK_BYTES 256
#define PIECE_BYTES ((size_t)1 << 20)

/* A pipe is left alone, since what is read from it is gone. */
static bool metadata_is(const char *path)
{
	char head[LOOK_BYTES];
	struct stat st;
	cleanup_handle struct rsh_handle *h = NULL;
	ssize_t n;

	if (stat(path, &st) != 0 || !S_ISREG(st.st_mode) ||
	    rsh_handle_open_path(path, &h))
		return false;
	n = rsh_handle_pread(h, head, sizeof(head), 0);
	return n > 0 && rsh_ckpt2_is_metadata(head, (size_t)n);
}

/* Reads which step the tracker of a save directory names; false if it has
 * none. */
static bool metadata_tracked(const char *dir, uint64_t *step)
{
	char text[TRACKER_BYTES_MAX + 1], *path, *end;
	cleanup_handle struct rsh_handle *h = NULL;
	ssize_t n;

	if (asprintf(&path, "%s/" RSH_CKPT2_TRACKER, dir) < 0)
		return false;
	n = rsh_handle_open_path(path, &h);
	free(path);
	if (n == 0)
		n = rsh_handle_pread(h, text, TRACKER_BYTES_MAX, 0);
	if (n <= 0)
		return false;
	text[n] = '\0';
	errno = 0;
	*step = strtoull(text, &end, 10);
	end += strspn(end, " \t\r\n");
	return errno == 0 && end != text && *end == '\0' && !strchr(text, '-');
}

int rsh_metadata_find(const char *path, char **out, struct rsh_error *err)
{
	struct stat st;
	uint64_t step;
	char *p;
	int n;

	*out = NULL;
	if (stat(path, &st) != 0)
		return 0; /* whoever wants it anyhow says so */
	if (!S_ISDIR(st.st_mode))
		n = asprintf(&p, "%s", path);
	else if (metadata_tracked(path, &step))
		n = asprintf(&p, "%s/iteration_%08" PRIu64 "/" METADATA_NAME,
			     path, step);
	else
		n = asprintf(&p, "%s/" METADATA_NAME, path);
	if (n < 0)
		return rsh_error_nomem(err);
	if (metadata_is(p))
		*out = p;
	else
		free(p);
	return 0;
}

int rsh_metadata_load(const char *path, struct rsh_ckpt2 **out,
		      struct rsh_error *err)
{
	cleanup_handle struct rsh_handle *h = NULL;
	int rc = rsh_handle_open_path(path, &h);

	if (rc)
		return rsh_error_set(err, -rc, "%s: %s", path, strerror(-rc));
	return rsh_metadata_parse(-1, h, path, out, err);
}

int rsh_metadata_strategy(const char *path, struct rsh_names *names,
			  struct rsh_strategy **out, struct rsh_error *err)
{
	struct rsh_ckpt2 *c;
	int rc = rsh_metadata_load(path, &c, err);

	if (rc)
		return rc;
	rc = rsh_strategy_of_checkpoint2(c, path, names, out, err);
	rsh_ckpt2_free(c);
	return rc;
}

int rsh_metadata_digest(const char *path, uint64_t *xxh3,
			struct rsh_error *err)
{
	cleanup_handle struct rsh_handle *h = NULL;
	ssize_t n = rsh_handle_open_path(path, &h);
	cleanup_free char *piece = malloc(PIECE_BYTES);
	XXH3_state_t *hash = XXH3_createState();
	uint64_t at = 0;

	if (!piece || !hash) {
		XXH3_freeState(hash);
		return rsh_error_nomem(err);
	}
	XXH3_64bits_reset(hash);
	while (h && (n = rsh_handle_pread(h, piece, PIECE_BYTES, at)) > 0) {
		XXH3_64bits_update(hash, piece, (size_t)n);
		at += (uint64_t)n;
	}
	*xxh3 = XXH3_64bits_digest(hash);
	XXH3_freeState(hash);
	return n == 0 ? 0 : rsh_error_set(err, (int)-n, "%s: %s", path,
					  strerror((int)-n));
}
