/* SPDX-License-Identifier: Apache-2.0 */
/* source/metadata.c finds and reads a metadata.json.  It keeps the parsed
 * content of a large one in the directory of the index cache, in a separate
 * file, which counts as an index file when old files are removed.  As with
 * indexes, the contents are not trusted: if anything is wrong with the file,
 * the metadata.json is read again. */
#include "config.h"

#define XXH_INLINE_ALL
#include "kept_i.h"
#include "source_i.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "rsh/strategy/checkpoint2.h"
#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

/* Reading a smaller one is faster than looking it up. */
#define KEPT_FROM_BYTES (UINT64_C(1) << 20)

/* ---- what was parsed before ---- */

struct kept_text {
	const uint8_t *data;
	size_t len;
};

static void kept_name(const struct rsh_index_key *key, char name[RSH_KEPT_NAME])
{
	rsh_kept_name(XXH3_64bits(key, sizeof(*key)), name);
}

static ssize_t kept_pread(void *ctx, void *buf, size_t len, uint64_t offset)
{
	const struct kept_text *t = ctx;
	size_t n = offset < t->len ? t->len - (size_t)offset : 0;

	n = n < len ? n : len;
	memcpy(buf, t->data + offset, n);
	return (ssize_t)n;
}

/* The content begins with the key of the metadata.json; the text of
 * rsh_ckpt2_keep() follows. */
static int kept_load(int dirfd, const struct rsh_index_key *key,
		     const char *path, struct rsh_ckpt2 **out)
{
	cleanup_free uint8_t *data = NULL;
	char name[RSH_KEPT_NAME];
	struct kept_text t;
	size_t len;
	int rc;

	kept_name(key, name);
	rc = rsh_kept_get(dirfd, name, RSH_KEPT_METADATA, &data, &len);
	if (rc)
		return rc;
	if (len < sizeof(*key) || memcmp(data, key, sizeof(*key)) != 0)
		return -EBADMSG;
	t = (struct kept_text){ data + sizeof(*key), len - sizeof(*key) };
	return rsh_ckpt2_parse_kept(&(struct rsh_byte_source){
		kept_pread, &t, t.len, path,
	}, out, NULL);
}

static int kept_save(int dirfd, const struct rsh_index_key *key,
		     const struct rsh_ckpt2 *c)
{
	cleanup_free char *text = NULL;
	cleanup_free uint8_t *data = NULL;
	char name[RSH_KEPT_NAME];
	size_t len;
	int rc = rsh_ckpt2_keep(c, &text, &len);

	if (rc)
		return rc;
	data = malloc(sizeof(*key) + len);
	if (!data)
		return -ENOMEM;
	memcpy(data, key, sizeof(*key));
	memcpy(data + sizeof(*key), text, len);
	kept_name(key, name);
	return rsh_kept_put(dirfd, name, RSH_KEPT_METADATA, data,
			    sizeof(*key) + len);
}

/* ---- both ---- */

int rsh_metadata_parse(int dirfd, struct rsh_handle *h, const char *path,
		       struct rsh_ckpt2 **out, struct rsh_error *err)
{
	struct rsh_byte_source src = { rsh_handle_pread, h, 0, path };
	struct rsh_index_key key, after;
	time_t now = time(NULL);
	struct rsh_stat st;
	int rc = rsh_handle_look(h, &st) ?: rsh_index_key_take(h, &key);

	if (rc)
		return rsh_error_file(err, -rc, path);
	if (st.kind != RSH_IS_FILE)
		return rsh_error_set(err, EBADMSG, "%s: not a regular file",
				     path);
	src.size = key.size;
	if (dirfd < 0 || key.size < KEPT_FROM_BYTES)
		return rsh_ckpt2_parse(&src, out, err);
	if (kept_load(dirfd, &key, path, out) == 0)
		return 0;
	rc = rsh_ckpt2_parse(&src, out, err);
	if (rc || !rsh_index_key_settled(&key, now) ||
	    rsh_index_key_take(h, &after) ||
	    memcmp(&key, &after, sizeof(key)) != 0)
		return rc;
	rc = kept_save(dirfd, &key, *out);
	if (rc)
		rsh_log_info("%s: the index cache cannot be written: %s", path,
			     strerror(-rc));
	return 0;
}

#define METADATA_NAME "metadata.json"
#define TRACKER_BYTES_MAX 64
#define LOOK_BYTES 256
#define PIECE_BYTES ((size_t)1 << 20)

/* A pipe is not opened, because bytes that are read from it are lost. */
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

/* Reads the step in the tracker of a save directory; returns false if there is
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

	*out = NULL;
	if (stat(path, &st) != 0)
		return 0; /* the caller reports it if it needs the file */
	if (!S_ISDIR(st.st_mode))
		p = strdup(path);
	else if (metadata_tracked(path, &step))
		p = rsh_text_format("%s/iteration_%08" PRIu64 "/" METADATA_NAME,
				    path, step);
	else
		p = rsh_text_format("%s/" METADATA_NAME, path);
	if (!p)
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
		return rsh_error_file(err, -rc, path);
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

int rsh_metadata_digest(const char *path, uint64_t *xxh3, struct rsh_error *err)
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
	return n == 0 ? 0 : rsh_error_file(err, (int)-n, path);
}
