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

static void cleanup_builder(struct strategy_builder **b)
{
	rsh_strategy_builder_free(*b);
}

int rsh_strategy_parse_all(const struct rsh_memory *text, const char *path,
			   rsh_strategy_report_fn *report, void *ctx,
			   struct rsh_strategy_file **out,
			   struct rsh_error *err)
{
	const size_t len = text->len, n = strlen(path);
	__attribute__((cleanup(cleanup_builder))) struct strategy_builder *b =
		NULL;
	const bool json = n >= 5 && !strcmp(path + n - 5, ".json");
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
	b->report = report;
	b->report_ctx = ctx;
	rc = json ? rsh_strategy_read_json(text->data, len, path, b, err) :
		    rsh_strategy_read_pb(text->data, len, path, b, err);
	/* A checkpoint can be parsed as a protobuf strategy whose fields are
	 * all unknown. */
	if (rc != -ENOMEM && b->n_items + b->n_reported == 0) {
		if (is_checkpoint(text->data, len, path))
			return rsh_error_set(err, EBADMSG,
					     "%s: this is a checkpoint, not a strategy file",
					     path);
		if (!rc)
			return rsh_error_set(err, EBADMSG,
					     "%s: the strategy file holds no parameter layout",
					     path);
	}
	rc = rc ?: rsh_strategy_builder_finish(b, out, err);
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
