/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever the bytes are, a line of a manifest ends in numbers that are in
 * range, which come back from its text, or in a sentence. */
#include "fuzz_support.h"

#include "rsh/wire/manifest.h"

static void check_file(const struct rsh_manifest_file *f)
{
	uint64_t from = 0;

	require(f->path[0] && f->path[0] != '/' && !strstr(f->path, "/../"));
	for (uint32_t i = 0; i < f->n_records; i++) {
		const struct rsh_manifest_record *r = &f->records[i];

		require(r->offset >= from && r->bytes <= f->size - r->offset);
		from = r->offset + r->bytes;
		for (uint32_t d = 0; d < r->n_dims; d++)
			require(r->dims[d] >= 0);
	}
}

static void check_again(const struct rsh_manifest_line *line)
{
	struct rsh_manifest_line again;
	size_t len;
	char *text;

	require(!rsh_manifest_emit(line, &text, &len));
	/* A type that is not known is written as "?". */
	require(!rsh_manifest_parse(text, len, "g", 1, &again, NULL));
	require(again.kind == line->kind);
	if (line->kind == RSH_MANIFEST_FILE)
		require(again.file.n_records == line->file.n_records &&
			again.file.xxh3 == line->file.xxh3);
	rsh_manifest_line_clear(&again);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_manifest_line line;

	if (rsh_manifest_parse((const char *)data, size, "f", 1, &line,
			       &err)) {
		require(err.code && err.text[0]);
		return 0;
	}
	if (line.kind == RSH_MANIFEST_FILE)
		check_file(&line.file);
	check_again(&line);
	rsh_manifest_line_clear(&line);
	return 0;
}
