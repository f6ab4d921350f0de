/* SPDX-License-Identifier: Apache-2.0 */
/* formats/dcp/join.c joins the metadata that each rank of one save wrote. */
#include "config.h"

#include "dcp_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/util/mem.h"
#include "rsh/wire/torch_dtype.h"

void rsh_dcp_free(struct rsh_dcp *d)
{
	if (!d)
		return;
	rsh_arena_clear(&d->arena_);
	free(d);
}

void rsh_dcp_box(const struct rsh_dcp_tensor *t, const struct rsh_dcp_chunk *c,
		 struct rsh_box *out)
{
	*out = (struct rsh_box){ .n_dims = t->n_dims };
	for (uint32_t d = 0; d < t->n_dims; d++) {
		out->from[d] = c->from[d];
		out->size[d] = c->size[d];
	}
}

bool rsh_dcp_is_countable(const struct rsh_dcp_tensor *t)
{
	uint64_t n = RSH_TORCH_ELEMENT_MAX;

	for (uint32_t d = 0; d < t->n_dims; d++)
		if (t->dims[d] > INT64_MAX ||
		    !rsh_mul_u64(n, t->dims[d] ? t->dims[d] : 1, &n) ||
		    n > INT64_MAX)
			return false;
	return true;
}

/* ---- files ---- */

struct dcp_path {
	const char *text;
	uint32_t id;
};

static int dcp_path_compare(const void *a, const void *b)
{
	return strcmp(((const struct dcp_path *)a)->text,
		      ((const struct dcp_path *)b)->text);
}

int rsh_dcp_files_sort(struct rsh_dcp_files *f, struct rsh_dcp *d,
		       struct rsh_error *err)
{
	const uint32_t n = rsh_names_count(f->names);
	cleanup_free struct dcp_path *paths =
		rsh_alloc_array(n, sizeof(*paths));
	const char **files = rsh_arena_array(&d->arena_, const char *, n);

	f->number = rsh_alloc_array(n, sizeof(*f->number));
	if (!paths || !files || !f->number)
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < n; i++)
		paths[i] = (struct dcp_path){ rsh_names_text(f->names, i), i };
	qsort(paths, n, sizeof(*paths), dcp_path_compare);
	for (uint32_t i = 0; i < n; i++) {
		files[i] = rsh_arena_strndup(&d->arena_, paths[i].text,
					     strlen(paths[i].text));
		if (!files[i])
			return rsh_error_nomem(err);
		f->number[paths[i].id] = i;
	}
	d->n_files = n;
	d->files = files;
	return 0;
}

void rsh_dcp_files_clear(struct rsh_dcp_files *f)
{
	rsh_names_free(f->names);
	free(f->number);
}

/* ---- tensors and values of several parts ---- */

static uint32_t dcp_tensor_file(const struct rsh_dcp_tensor *t)
{
	return t->n_chunks ? t->chunks[0].file : RSH_DCP_NO_FILE;
}

int rsh_dcp_tensor_by_name(const void *a, const void *b)
{
	const struct rsh_dcp_tensor *x = a, *y = b;

	return strcmp(x->name, y->name) ?:
	       rsh_compare_u64(dcp_tensor_file(x), dcp_tensor_file(y));
}

int rsh_dcp_value_by_name(const void *a, const void *b)
{
	const struct rsh_dcp_value *x = a, *y = b;
	int order = strcmp(x->name, y->name);

	/* Values without a file come last. */
	if (order || !x->file || !y->file)
		return order ? order : !x->file - !y->file;
	return strcmp(x->file, y->file);
}

struct dcp_join {
	struct rsh_dcp *d;
	struct rsh_dcp_files files;
	const char *path;
	struct rsh_error *err;

	/* The tensors and values of all parts, with the joined files'
	 * numbers. */
	struct rsh_dcp_tensor *tensors;
	struct rsh_dcp_value *values;
	size_t n_tensors, n_values;
};

static uint32_t join_file(struct dcp_join *j, const struct rsh_dcp *part,
			  uint32_t file)
{
	const char *path;

	if (file == RSH_DCP_NO_FILE)
		return file;
	path = part->files[file];
	return j->files.number[rsh_names_find(j->files.names, path,
					      strlen(path))];
}

static uint64_t *join_numbers(struct dcp_join *j, const uint64_t *from,
			      uint32_t n)
{
	uint64_t *to = rsh_arena_array(&j->d->arena_, uint64_t, n);

	if (to && n > 0)
		memcpy(to, from, n * sizeof(*to));
	return to;
}

/* Returns a copy of a path; NULL: out of memory. */
static struct rsh_path_key *join_keys(struct dcp_join *j,
				      const struct rsh_path_key *from,
				      uint32_t n)
{
	struct rsh_path_key *to = rsh_arena_array(&j->d->arena_,
						  struct rsh_path_key, n);

	for (uint32_t i = 0; to && i < n; i++) {
		to[i] = from[i];
		if (!from[i].text)
			continue;
		to[i].text = rsh_arena_strndup(&j->d->arena_, from[i].text,
					       strlen(from[i].text));
		if (!to[i].text)
			return NULL;
	}
	return to;
}

static int join_copy_tensor(struct dcp_join *j, const struct rsh_dcp *part,
			    const struct rsh_dcp_tensor *t)
{
	struct rsh_dcp_chunk *chunks = rsh_arena_array(
		&j->d->arena_, struct rsh_dcp_chunk, t->n_chunks);
	struct rsh_dcp_tensor *to = &j->tensors[j->n_tensors++];

	*to = *t;
	to->name = rsh_arena_strndup(&j->d->arena_, t->name, strlen(t->name));
	to->dims = join_numbers(j, t->dims, t->n_dims);
	to->chunks = chunks;
	to->keys = join_keys(j, t->keys, t->n_keys);
	if (!to->name || !to->dims || !chunks || !to->keys)
		return rsh_error_nomem(j->err);
	for (uint32_t i = 0; i < t->n_chunks; i++) {
		chunks[i] = t->chunks[i];
		chunks[i].file = join_file(j, part, t->chunks[i].file);
		chunks[i].from = join_numbers(j, t->chunks[i].from, t->n_dims);
		chunks[i].size = join_numbers(j, t->chunks[i].size, t->n_dims);
		if (!chunks[i].from || !chunks[i].size)
			return rsh_error_nomem(j->err);
	}
	return 0;
}

static int join_copy_value(struct dcp_join *j, const struct rsh_dcp_value *v)
{
	struct rsh_dcp_value *to = &j->values[j->n_values++];

	*to = *v;
	to->name = rsh_arena_strndup(&j->d->arena_, v->name, strlen(v->name));
	if (v->file)
		to->file = rsh_arena_strndup(&j->d->arena_, v->file,
					     strlen(v->file));
	to->keys = join_keys(j, v->keys, v->n_keys);
	return to->name && to->keys && (to->file || !v->file) ? 0 :
	       rsh_error_nomem(j->err);
}

/* Makes one tensor from n tensors that have the same name. */
static int join_unite(struct dcp_join *j, const struct rsh_dcp_tensor *t,
		      size_t n, struct rsh_dcp_tensor *out)
{
	struct rsh_dcp_chunk *chunks;
	uint64_t n_chunks = 0;

	for (size_t i = 0; i < n; i++) {
		n_chunks += t[i].n_chunks;
		if (t[i].dtype != t->dtype || t[i].n_dims != t->n_dims ||
		    memcmp(t[i].dims, t->dims, t->n_dims * sizeof(*t->dims)))
			return rsh_error_set(j->err, EBADMSG, "%s: ranks "
					     "contradict each other in type or "
					     "shape of \"%s\"", j->path,
					     t->name);
	}
	chunks = n_chunks > UINT32_MAX ? NULL :
		 rsh_arena_array(&j->d->arena_, struct rsh_dcp_chunk, n_chunks);
	if (!chunks)
		return rsh_error_nomem(j->err);
	*out = *t;
	out->chunks = chunks;
	out->n_chunks = (uint32_t)n_chunks;
	for (size_t i = 0; i < n; chunks += t[i++].n_chunks)
		if (t[i].n_chunks > 0)
			memcpy(chunks, t[i].chunks,
			       t[i].n_chunks * sizeof(*chunks));
	return 0;
}

static int join_unite_all(struct dcp_join *j)
{
	struct rsh_dcp_tensor *out = rsh_arena_array(
		&j->d->arena_, struct rsh_dcp_tensor, j->n_tensors);

	if (!out)
		return rsh_error_nomem(j->err);
	j->d->tensors = out;
	for (size_t i = 0, next; i < j->n_tensors; i = next) {
		const struct rsh_dcp_tensor *t = &j->tensors[i];
		int rc;

		for (next = i + 1; next < j->n_tensors &&
		     strcmp(j->tensors[next].name, t->name) == 0;)
			next++;
		rc = join_unite(j, t, next - i, &out[j->d->n_tensors++]);
		if (rc)
			return rc;
	}
	return 0;
}

static int join_all(struct dcp_join *j, const struct rsh_dcp *const *parts,
		    uint32_t n)
{
	cleanup_free struct rsh_dcp_tensor *tensors = NULL;
	size_t n_tensors = 0, n_values = 0;
	int rc;

	j->files.names = rsh_names_new();
	if (!j->files.names)
		return rsh_error_nomem(j->err);
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t f = 0; f < parts[i]->n_files; f++)
			if (rsh_names_add(j->files.names, parts[i]->files[f],
					  strlen(parts[i]->files[f])) ==
			    RSH_NAME_NONE)
				return rsh_error_nomem(j->err);
	rc = rsh_dcp_files_sort(&j->files, j->d, j->err);
	for (uint32_t i = 0; i < n && rc == 0; i++) {
		n_tensors += parts[i]->n_tensors;
		n_values += parts[i]->n_values;
		if (parts[i]->by_name != parts[0]->by_name)
			return rsh_error_set(j->err, EBADMSG, "%s: ranks of "
					     "two kinds of checkpoint",
					     j->path);
		j->d->by_name = parts[i]->by_name;
	}
	if (rc)
		return rc;
	j->tensors = tensors = rsh_alloc_array(n_tensors, sizeof(*tensors));
	j->values = rsh_arena_array(&j->d->arena_, struct rsh_dcp_value,
				    n_values);
	if (!tensors || !j->values)
		return rsh_error_nomem(j->err);
	for (uint32_t i = 0; i < n; i++) {
		for (uint32_t t = 0; t < parts[i]->n_tensors && rc == 0; t++)
			rc = join_copy_tensor(j, parts[i],
					      &parts[i]->tensors[t]);
		for (uint32_t v = 0; v < parts[i]->n_values && rc == 0; v++)
			rc = join_copy_value(j, &parts[i]->values[v]);
	}
	if (rc)
		return rc;
	qsort(tensors, n_tensors, sizeof(*tensors), rsh_dcp_tensor_by_name);
	qsort(j->values, n_values, sizeof(*j->values), rsh_dcp_value_by_name);
	for (size_t i = 0, last = 0; i < j->n_values; i++)
		if (i == 0 ||
		    strcmp(j->values[last].name, j->values[i].name) != 0) {
			last = j->d->n_values++;
			j->values[last] = j->values[i];
		}
	j->d->values = j->values;
	return join_unite_all(j);
}

int rsh_dcp_join(const struct rsh_dcp *const *parts, uint32_t n,
		 const char *path, struct rsh_dcp **out, struct rsh_error *err)
{
	struct dcp_join j = { .path = path, .err = err };
	int rc;

	*out = NULL;
	j.d = calloc(1, sizeof(*j.d));
	if (!j.d)
		return rsh_error_nomem(err);
	rc = join_all(&j, parts, n);
	rsh_dcp_files_clear(&j.files);
	if (rc)
		rsh_dcp_free(j.d);
	else
		*out = j.d;
	return rc;
}
