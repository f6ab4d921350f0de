/* SPDX-License-Identifier: Apache-2.0 */
#include "plan_support.h"

#include <inttypes.h>

/* ---- jobs ---- */

static struct rsh_strategy *strategy(struct rsh_names *names, const char *path,
				     const char *stage, const char *items)
{
	struct rsh_strategy *s;
	char *json;

	if (!items)
		return NULL;
	assert_true(asprintf(&json, FILE_OF("%s", "%s"), items, stage) > 0);
	s = make_strategy(names, path, json);
	free(json);
	return s;
}

struct job *job_new_lone(const char *stage, const char *src_items,
			 const char *dst_items)
{
	struct job *j = calloc(1, sizeof(*j));

	assert_non_null(j);
	j->names = rsh_names_new();
	assert_non_null(j->names);
	j->src = strategy(j->names, "src.json", stage, src_items);
	j->dst = strategy(j->names, "dst.json", "0", dst_items);
	return j;
}

struct job *job_new(const char *src_items, const char *dst_items)
{
	return job_new_lone("0", src_items, dst_items);
}

static bool is_shared(const struct job *j, uint32_t rank)
{
	for (uint32_t r = 0; r < rank; r++)
		if (j->index[r] == j->index[rank])
			return true;
	return false;
}

void job_free(struct job *j)
{
	rsh_plan_free(j->c);
	for (uint32_t r = MAX_FILES; r-- > 0;)
		if (!is_shared(j, r))
			rsh_ckpt_index_free(
				(struct rsh_ckpt_index *)(uintptr_t)j->index[r]);
	rsh_strategy_free(j->src);
	rsh_strategy_free(j->dst);
	rsh_names_free(j->names);
	free(j);
}

void job_file(struct job *j, uint32_t rank, const struct tensor *tensors)
{
	assert_true(rank < MAX_FILES && !j->index[rank]);
	j->index[rank] = make_index(j->names, tensors);
	snprintf(j->path[rank], sizeof(j->path[rank]), "rank_%u.ckpt", rank);
}

void job_files(struct job *j, uint32_t n, const struct tensor *tensors)
{
	job_file(j, 0, tensors);
	for (uint32_t r = 1; r < n; r++) {
		j->index[r] = j->index[0];
		snprintf(j->path[r], sizeof(j->path[r]), "rank_%u.ckpt", r);
	}
}

static int try_plan(struct job *j, bool compat)
{
	struct rsh_plan_options opts = {
		.compat = compat, .may_compat = true,
		.framing = j->part_bytes ? &rsh_hf_framing :
			   j->format == RSH_FILE_CKPT ? &rsh_ckpt_framing :
			   &rsh_safetensors_framing,
		.division = j->part_bytes ? RSH_DIVIDE_PARTS : RSH_DIVIDE_RANKS,
		.part_bytes = j->part_bytes,
		.remove_redundancy = j->remove_redundancy,
		.replicas = j->replicas,
		.allow_missing = j->allow_missing,
	};
	const char *path[MAX_FILES];
	struct rsh_source_view view = {
		.n_ranks = MAX_FILES, .index = j->index, .path = path,
		.names = j->names, .format = j->src_format,
		.joined = j->joined,
	};

	assert_null(j->c);
	for (uint32_t r = 0; r < MAX_FILES; r++)
		path[r] = j->index[r] ? j->path[r] : NULL;
	return rsh_convert(j->src, j->dst, &view, &opts, &j->c, &j->err);
}

static void must_plan(struct job *j, bool compat)
{
	assert_good(try_plan(j, compat), j->err);
}

void job_made(struct job *j, const struct files files[4])
{
	for (size_t i = 0; i < 4 && files[i].tensors; i++)
		for (uint32_t r = files[i].first; r <= files[i].last; r++)
			job_file(j, r, files[i].tensors);
}

void job_plan(struct job *j)
{
	must_plan(j, false);
}

void job_plan_compat(struct job *j)
{
	must_plan(j, true);
}

void job_refused(struct job *j, int rc, const char *sentence)
{
	assert_int_equal(try_plan(j, false), rc);
	assert_null(j->c);
	assert_int_equal(j->err.code, -rc);
	assert_string_equal(j->err.text, sentence);
	job_free(j);
}

/* ---- what came out ---- */

void assert_records(const struct job *j, uint32_t rank, const char *want)
{
	struct unit_text t = { "", 0 };
	uint64_t at = 0, bytes;

	for (uint32_t i = 0; i < rsh_plan_n_records(j->c, rank); i++) {
		struct rsh_virtual_record r;
		const char *type = "";

		rsh_plan_record(j->c, rank, i, &r);
		if (r.shape.dtype != RSH_DTYPE_FLOAT32)
			type = rsh_dtype_name(r.shape.dtype);
		unit_put(&t, "%s%s%s%s[", i ? " " : "", type,
			 !r.resharded ? "*" : *type ? ":" : "", r.shape.name);
		for (uint32_t d = 0; d < r.shape.n_dims; d++)
			unit_put(&t, "%s%" PRId64, d ? "," : "",
				 r.shape.dims[d]);
		unit_put(&t, "]");
		assert_int_equal(r.offset, at);
		assert_true(rsh_ckpt_emit_size(&r.shape, &bytes));
		assert_int_equal(r.total_bytes, bytes);
		at += bytes;
	}
	assert_string_equal(t.s, want);
	assert_int_equal(rsh_plan_size(j->c, rank), at);
}

static void put_piece(struct unit_text *t, const struct rsh_piece *p)
{
	if (t->n)
		unit_put(t, " ");
	if (p->is_header) {
		unit_put(t, "h%" PRIu64, p->length);
		return;
	}
	unit_put(t, "%u@%" PRIu64 "+%" PRIu64, p->src_rank, p->src_offset,
		 p->src_length);
	if (p->codec != RSH_CODEC_NONE) {
		unit_put(t, ">%" PRIu64, p->length);
		if (p->skip)
			unit_put(t, "/%u", p->skip);
	} else {
		assert_int_equal(p->src_length, p->length);
	}
}

/* Returns where what the iterator gives ends. */
static uint64_t assert_iterated(struct rsh_piece_iter *it, uint64_t at,
				const char *want)
{
	struct unit_text t = { "", 0 };
	struct rsh_piece p;

	assert_non_null(it);
	while (rsh_piece_iter_next(it, &p)) {
		assert_int_equal(p.file_offset, at);
		assert_true(p.length > 0);
		at += p.length;
		put_piece(&t, &p);
	}
	assert_int_equal(rsh_piece_iter_status(it), 0);
	rsh_piece_iter_free(it);
	assert_string_equal(t.s, want);
	return at;
}

void assert_pieces(const struct job *j, uint32_t rank, uint64_t offset,
		   uint64_t length, const char *want)
{
	const uint64_t size = rsh_plan_size(j->c, rank);
	const uint64_t end = assert_iterated(
		rsh_piece_iter_new(j->c, rank, offset, length, NULL), offset,
		want);

	if (offset < size)
		assert_int_equal(end, length < size - offset ? offset + length :
				      size);
}

void assert_content(const struct job *j, uint32_t rank, const char *record,
		    const char *want)
{
	for (uint32_t i = 0; i < rsh_plan_n_records(j->c, rank); i++) {
		struct rsh_virtual_record r;

		rsh_plan_record(j->c, rank, i, &r);
		if (strcmp(r.shape.name, record) != 0)
			continue;
		assert_pieces(j, rank, r.offset + r.total_bytes -
			      r.shape.content_bytes, r.shape.content_bytes,
			      want);
		assert_int_equal(assert_iterated(rsh_piece_iter_content(
			j->c, rank, i, 0, UINT64_MAX, NULL), 0, want),
			r.shape.content_bytes);
		return;
	}
	fail_msg("rank %u has no record %s", rank, record);
}

void assert_whole(const struct job *j, uint32_t rank, uint32_t origin,
		  const char *records)
{
	const uint64_t size = j->index[origin]->file_bytes;
	struct unit_text t = { "", 0 };
	struct rsh_virtual_record r;
	char want[64];

	assert_int_equal(rsh_plan_size(j->c, rank), size);
	snprintf(want, sizeof(want), "%u@0+%" PRIu64, origin, size);
	assert_pieces(j, rank, 0, UINT64_MAX, want);
	snprintf(want, sizeof(want), "%u@7+3", origin);
	assert_pieces(j, rank, 7, 3, want);
	snprintf(want, sizeof(want), "%u", origin);
	assert_sources(j, rank, want);
	for (uint32_t i = 0; i < rsh_plan_n_records(j->c, rank); i++) {
		uint64_t end = i ? r.offset + r.total_bytes : 0;

		rsh_plan_record(j->c, rank, i, &r);
		unit_put(&t, "%s%s", i ? " " : "", r.shape.name);
		assert_false(r.resharded);
		assert_true(r.offset >= end);
		assert_true(r.offset + r.total_bytes <= size);
	}
	assert_string_equal(t.s, records);
}

void assert_sources(const struct job *j, uint32_t rank, const char *want)
{
	struct unit_text t = { "", 0 };
	uint32_t n;
	const uint32_t *ranks = rsh_plan_sources(j->c, rank, &n);

	for (uint32_t i = 0; i < n; i++)
		unit_put(&t, "%s%u", i ? " " : "", ranks[i]);
	assert_string_equal(t.s, want);
}

void assert_note(const struct job *j, const char *words)
{
	unsigned found = 0;
	const char *note;

	for (uint32_t i = 0; (note = rsh_plan_note(j->c, i)); i++)
		found += strstr(note, words) != NULL;
	if (found != 1)
		fail_msg("%u notes say \"%s\"", found, words);
}

void assert_no_notes(const struct job *j)
{
	const char *note = rsh_plan_note(j->c, 0);

	if (note)
		fail_msg("note: %s", note);
}
