/* SPDX-License-Identifier: Apache-2.0 */
/* wire/strategy_parse.c detects the format of a strategy file and calls its
 * reader. */
#include "rsh/wire/strategy_file.h"

#include <errno.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "rsh/util/names.h"
#include "rsh/wire/bytes.h"
#include "rsh/wire/ckpt.h"
#include "strategy_build_i.h"

/* The strategy files of the largest jobs have a few megabytes. */
#define MAX_FILE_BYTES ((size_t)256 * 1024 * 1024)

static bool is_json_name(const char *path)
{
	size_t len = strlen(path);

	return len >= 5 && !strcmp(path + len - 5, ".json");
}

/* Both kinds of file are named *.ckpt and are easily confused. */
static bool is_checkpoint(const void *data, size_t len, const char *path)
{
	struct rsh_memory bytes = { data, len };
	const struct rsh_byte_source src = {
		rsh_memory_pread, &bytes, len, path,
	};
	struct rsh_names *names = rsh_names_new();
	struct rsh_ckpt_index *index = NULL;
	bool is;

	if (!names)
		return false;
	is = !rsh_ckpt_scan(&src, names, &index, NULL);
	rsh_ckpt_index_free(index);
	rsh_names_free(names);
	return is;
}

static int read_into(struct strategy_builder *b, const void *data, size_t len,
		     const char *path, bool json, struct rsh_error *err)
{
	int rc = json ? rsh_strategy_read_json(data, len, path, b, err) :
			rsh_strategy_read_pb(data, len, path, b, err);

	/* A checkpoint can be parsed as a protobuf strategy whose fields are
	 * all unknown. */
	if (rc == -ENOMEM)
		return rc;
	if (!rsh_strategy_builder_n_seen(b) && is_checkpoint(data, len, path))
		return rsh_error_set(err, EBADMSG,
				     "%s: this is a checkpoint, not a strategy file",
				     path);
	if (!rc && !rsh_strategy_builder_n_seen(b))
		return rsh_error_set(err, EBADMSG,
				     "%s: the strategy file holds no parameter layout",
				     path);
	return rc;
}

static void cleanup_builder(struct strategy_builder **b)
{
	rsh_strategy_builder_free(*b);
}

int rsh_strategy_parse_all(const struct rsh_memory *text, const char *path,
			   rsh_strategy_report_fn *report, void *ctx,
			   struct rsh_strategy_file **out,
			   struct rsh_error *err)
{
	const size_t len = text->len;
	__attribute__((cleanup(cleanup_builder))) struct strategy_builder *b =
		NULL;
	bool json = is_json_name(path);
	int rc;

	if (!len)
		return rsh_error_set(err, EBADMSG,
				     "%s: the strategy file is empty", path);
	if (len > MAX_FILE_BYTES)
		return rsh_error_set(err, EBADMSG,
				     "%s: not a strategy file: it has %zu bytes",
				     path, len);
	b = rsh_strategy_builder_new(path, json);
	if (!b)
		return rsh_error_nomem(err);
	rsh_strategy_builder_report(b, report, ctx);
	rc = read_into(b, text->data, len, path, json, err);
	if (!rc)
		rc = rsh_strategy_builder_finish(b, out, err);
	if (!rc)
		(*out)->content_hash = XXH3_64bits(text->data, len);
	return rc;
}

int rsh_strategy_parse(const void *data, size_t len, const char *path,
		       struct rsh_strategy_file **out, struct rsh_error *err)
{
	return rsh_strategy_parse_all(&(struct rsh_memory){ data, len }, path,
				      NULL, NULL, out, err);
}
