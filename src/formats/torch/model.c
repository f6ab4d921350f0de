/* SPDX-License-Identifier: Apache-2.0 */
/* formats/torch/model.c reads the content of PyTorch's files of a source. */
#include "config.h"

#include "torch_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/formats/files.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/wire/pickle_values.h"

/* ---- indexes ---- */

/* The content that was read is kept, also for rsh_torch_values(). */
int rsh_torch_scan(const struct rsh_scan_job *job, struct rsh_ckpt_index **out,
		   struct rsh_error *err)
{
	struct rsh_source_torch *t = rsh_source_state(job->source);
	const uint32_t file = job->file;
	struct rsh_torch_file *f;
	uint32_t n_unsummed = 0;
	int rc = rsh_torch_file_read(job->bytes, &f, err);

	if (rc == 0 && job->how != RSH_SCAN_HEADERS)
		rc = rsh_torch_file_check(job->bytes, f, &n_unsummed, err);
	if (rc == 0)
		rc = rsh_torch_index(f, job->names, out, err);
	if (rc) {
		rsh_torch_file_free(f);
		return rc;
	}
	(*out)->n_unsummed = n_unsummed;
	pthread_mutex_lock(&t->lock);
	if (job->how != RSH_SCAN_VERIFY || !t->files[file]) {
		struct rsh_torch_file *before = t->files[file];

		t->files[file] = f;
		f = before;
	}
	pthread_mutex_unlock(&t->lock);
	rsh_torch_file_free(f);
	return 0;
}

/* An index has no strides, so the file must be read. */
bool rsh_torch_fits(const struct rsh_source *s, uint32_t file,
		    const struct rsh_ckpt_index *ix, struct rsh_names *names)
{
	const struct rsh_source_torch *t = rsh_source_state(s);

	(void)ix, (void)names;
	return t->files[file];
}

bool rsh_torch_has_crc(const struct rsh_source *s,
		       const struct rsh_ckpt_index *ix)
{
	(void)s;
	return ix->n_records > 0 && ix->n_unsummed == 0;
}

/* ---- tensors ---- */

/* Checks that each part has the tensors that the map assigns to it, and no
 * others. */
static int torch_check_map(const struct rsh_source *s, uint32_t file,
			   struct rsh_error *err)
{
	const struct rsh_source_torch *t = rsh_source_state(s);
	const struct rsh_torch_file *f = t->files[file];
	const char *name = rsh_store_name(rsh_source_store(s), file);
	cleanup_free const char **held =
		rsh_alloc_array(f->n_tensors, sizeof(*held));
	uint32_t n = 0;

	if (!held)
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < f->n_tensors; i++)
		held[i] = f->tensors[i].name;
	qsort(held, f->n_tensors, sizeof(*held), rsh_by_text);
	for (uint32_t i = 0; i < t->map.n_weights; i++) {
		const struct rsh_weight *w = &t->map.weights[i];

		if (strcmp(t->map.files[w->file], name) != 0)
			continue;
		n++;
		if (!bsearch(&w->name, held, f->n_tensors, sizeof(*held),
			     rsh_by_text))
			return rsh_error_set(err, EBADMSG, "%s/%s: it lacks "
					     "tensor %s, which the map of its "
					     "parts says is in it",
					     rsh_source_path(s), name, w->name);
	}
	return n == f->n_tensors ? 0 :
	       rsh_error_set(err, EBADMSG, "%s/%s: it has %u tensors, and the "
			     "map of its parts says %u", rsh_source_path(s),
			     name, f->n_tensors, n);
}

static int torch_check_files(const struct rsh_source *s, struct rsh_error *err)
{
	const struct rsh_source_torch *t = rsh_source_state(s);

	for (uint32_t i = 0; i < t->n; i++) {
		int rc;

		if (!t->files[i])
			return rsh_error_set(err, ENOENT, "%s/%s: it cannot be "
					     "read", rsh_source_path(s),
					     rsh_store_name(rsh_source_store(s),
							    i));
		rc = t->has_map ? torch_check_map(s, i, err) : 0;
		if (rc)
			return rc;
	}
	return 0;
}

int rsh_torch_read(const struct rsh_read_job *job, struct rsh_offers *out,
		   struct rsh_error *err)
{
	const struct rsh_source_torch *t = rsh_source_state(job->source);
	int rc = torch_check_files(job->source, err);
	const struct rsh_torch_value *first = NULL;
	uint32_t n = 0;

	if (rc)
		return rc;
	for (uint32_t i = 0; i < t->n; i++)
		for (uint32_t k = 0; k < t->files[i]->n_values; k++)
			if (t->files[i]->values[k].make && n++ == 0)
				first = &t->files[i]->values[k];
	if (n)
		rsh_log_warning("%s: %u tensor%s no plain array%s left out, "
				"such as %s (%s)", rsh_source_path(job->source),
				n,
				n > 1 ? "s that are" : " that is",
				n > 1 ? "s are" : " is", first->name,
				first->make);
	return rsh_torch_offers((const struct rsh_torch_file *const *)t->files,
				t->n, job, out, err);
}

void rsh_torch_each(const struct rsh_source *s,
		    void (*fn)(void *ctx, const char *name, uint64_t bytes),
		    void *ctx)
{
	const struct rsh_source_torch *t = rsh_source_state(s);

	for (uint32_t i = 0; i < t->n; i++)
		for (uint32_t k = 0; t->files[i] && k < t->files[i]->n_tensors;
		     k++) {
			const struct rsh_torch_tensor *one =
				&t->files[i]->tensors[k];

			fn(ctx, one->name, one->elements *
					   rsh_dtype_size(one->dtype));
		}
}

/* The indexes have all that is needed to check the files against each other; no
 * content is read again. */
int rsh_torch_verify(const struct rsh_verifier *v)
{
	struct rsh_error why = RSH_ERROR_INIT;
	int rc = torch_check_files(v->source, &why);

	return rc == 0 || rc == -ENOMEM ? rc : v->problem(v->ctx, &why);
}

/* ---- values ---- */

/* The state of the source keeps its values for other plans, so they are
 * copied. */
static int torch_copy_plain(const struct rsh_plain *from, struct rsh_plain *to)
{
	*to = (struct rsh_plain){ .n_pickle = from->n_pickle };
	if (from->pickle) {
		to->pickle = rsh_alloc_array(from->n_pickle, 1);
		if (!to->pickle)
			return -ENOMEM;
		memcpy(to->pickle, from->pickle, from->n_pickle);
	}
	if (from->json) {
		to->json = strdup(from->json);
		if (!to->json)
			return -ENOMEM;
	}
	return 0;
}

/* Returns how many of the file's values are plain data, or -ENOMEM. */
static int torch_take_values(const struct rsh_torch_file *f,
			     const struct rsh_plan_options *opts,
			     struct rsh_values *out)
{
	int n_plain = 0;

	for (uint32_t i = 0; i < f->n_values; i++) {
		const struct rsh_torch_value *v = &f->values[i];

		if (v->make ||
		    (opts->wanted && !opts->wanted(opts->ctx, v->name)))
			continue;
		out->names[out->n] = v->name;
		if (torch_copy_plain(&v->plain, &out->values[out->n++]))
			return -ENOMEM;
		n_plain += v->plain.pickle != NULL;
	}
	return n_plain;
}

int rsh_torch_values(struct rsh_source *s,
		     const struct rsh_plan_options *opts,
		     struct rsh_values *out, struct rsh_error *err)
{
	const struct rsh_source_torch *t = rsh_source_state(s);
	bool first = true;
	size_t n = 0;

	for (uint32_t i = 0; i < t->n; i++)
		n += t->files[i] ? t->files[i]->n_values : 0;
	if (rsh_values_alloc(out, n))
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < t->n; i++) {
		int n_plain;

		if (!t->files[i])
			continue;
		n_plain = torch_take_values(t->files[i], opts, out);
		if (n_plain < 0)
			return rsh_error_nomem(err);
		if (n_plain == 0)
			continue;
		rsh_values_join_attr(out, rsh_store_attr(rsh_source_store(s),
							 i), first);
		first = false;
	}
	return 0;
}

/* ---- lists ---- */

/* Adds the tensors of a file, each in a box of the whole.  If tensors share a
 * storage, the entries of the later ones name the first one. */
static int torch_list_tensors(const struct rsh_torch_file *f, const char *file,
			      struct rsh_arena *arena,
			      struct rsh_listed_tensor *to)
{
	cleanup_free const char **first =
		calloc((size_t)f->n_storages + 1, sizeof(*first));

	if (!first)
		return -ENOMEM;
	for (uint32_t i = 0; i < f->n_tensors; i++) {
		const struct rsh_torch_tensor *t = &f->tensors[i];
		const unsigned width = rsh_dtype_size(t->dtype);
		struct rsh_listed_chunk *c =
			rsh_arena_array(arena, struct rsh_listed_chunk, 1);
		uint64_t *from = rsh_arena_array(arena, uint64_t, t->n_dims);

		if (!c || !from)
			return -ENOMEM;
		*c = (struct rsh_listed_chunk){
			.from = from, .size = t->dims, .file = file,
			.placed = true,
			.offset = f->storages[t->storage].offset +
				  t->from * width,
			.length = t->elements * width,
		};
		to[i] = (struct rsh_listed_tensor){
			.name = t->name, .dtype = t->dtype,
			.n_dims = t->n_dims, .dims = t->dims, .n_chunks = 1,
			.chunks = c,
			.shares = first[t->storage],
		};
		if (!first[t->storage])
			first[t->storage] = t->name;
	}
	return 0;
}

int rsh_torch_list(const struct rsh_source *s, struct rsh_arena *arena,
		   struct rsh_listed *out, struct rsh_error *err)
{
	struct rsh_source_torch *t = rsh_source_state(s);
	struct rsh_listed_tensor *tensors;
	const char **values;
	size_t n = 0, n_values = 0;

	*out = (struct rsh_listed){ .wrong = RSH_ERROR_INIT };
	for (uint32_t i = 0; i < t->n; i++) {
		cleanup_format_file struct rsh_format_file f = { .path = NULL };
		int rc = 0;

		/* A file without an index has not been read. */
		if (!t->files[i])
			rc = rsh_format_file_open(s, t->names[i], &f, err);
		if (rc == 0 && !t->files[i])
			rc = rsh_torch_file_read(&f.bytes, &t->files[i], err);
		if (rc)
			return rc;
		n += t->files[i] ? t->files[i]->n_tensors : 0;
		n_values += t->files[i] ? t->files[i]->n_values : 0;
	}
	tensors = rsh_arena_array(arena, struct rsh_listed_tensor, n);
	values = rsh_arena_array(arena, const char *, n_values);
	if (!tensors || !values)
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < t->n; i++) {
		const struct rsh_torch_file *f = t->files[i];

		if (f && torch_list_tensors(f, t->names[i], arena,
					    tensors + out->n_tensors))
			return rsh_error_nomem(err);
		out->n_tensors += f ? f->n_tensors : 0;
		for (uint32_t k = 0; f && k < f->n_values; k++)
			values[out->n_values++] = f->values[k].name;
	}
	out->tensors = tensors;
	out->values = values;
	out->files = (const char *const *)t->names;
	out->n_files = t->n;
	return 0;
}
