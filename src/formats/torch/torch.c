/* SPDX-License-Identifier: Apache-2.0 */
/* formats/torch/torch.c - two formats of PyTorch's own files: a single file (or
 * a directory that has only one), and models in the layouts of transformers and
 * Meta: pytorch_model.bin or its parts, or consolidated.00.pth. */
#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/formats/files.h"
#include "rsh/formats/formats.h"
#include "rsh/formats/torch.h"
#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/wire/safetensors.h"

#define TORCH_MAP "pytorch_model.bin.index.json"
#define TORCH_SINGLE "pytorch_model.bin"

/* This is the state of a source: one file or all parts of a model. */
struct rsh_source_torch {
	bool has_map;
	struct rsh_weight_map map; /* of its parts */
	uint32_t n;
	char **names; /* [n] */
	/* The mutex guards `files` while several threads make indexes.  Each
	 * file is parsed by one thread. */
	pthread_mutex_t lock;
	/* [n]: content, by the number of the file */
	struct rsh_torch_file **files;
};

/* ---- names ---- */

/* Returns whether the text is in the name, not behind a letter: temp_rank_0.pt
 * does not have "mp_rank_". */
static bool torch_has_word(const char *name, const char *text)
{
	const char *at = strstr(name, text);

	while (at && at > name && isalpha((unsigned char)at[-1]))
		at = strstr(at + 1, text);
	return at;
}

/* Returns the framework whose name this is for a rank's slice: Megatron's
 * directory mp_rank_00, DeepSpeed's
 * bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt and
 * layer_01-model_00-model_states.pt, verl's optim_world_size_2_rank_0.pt.
 * NULL: it is none. */
static const char *torch_slice_of(const char *name)
{
	const char *of = strstr(name, "_world_size_");

	if (of && strstr(of, "_rank_"))
		return "verl";
	if (torch_has_word(name, "zero_pp_rank_") ||
	    rsh_has_suffix(name, "model_states.pt") ||
	    rsh_has_suffix(name, "optim_states.pt"))
		return "DeepSpeed";
	if (rsh_format_is_slice(name))
		return "DeepSeek";
	return torch_has_word(name, "mp_rank_") ||
	       strcmp(name, "model_optim_rng.pt") == 0 ? "Megatron" : NULL;
}

/* Says what to do about such a file of a framework. */
static const char *torch_slice_advice(const char *name)
{
	return strcmp(name, "model_optim_rng.pt") == 0 ?
	       ": SOURCE is the directory of the iteration, with the mp_rank "
	       "directories of all ranks" :
	       rsh_has_suffix(name, "_states.pt") ?
	       ": SOURCE is the directory with the files of all ranks" :
	       "; nothing says how slices are joined";
}

/* Returns whether the name is that of a map from weights to parts. */
static bool torch_is_map(const char *name)
{
	return name[0] != '.' && (rsh_has_suffix(name, ".bin.index.json") ||
				  rsh_has_suffix(name, ".pt.index.json") ||
				  rsh_has_suffix(name, ".pth.index.json"));
}

/* A part of a model, whose suffix is .bin if it is that of transformers. */
static bool torch_is_part(const char *name)
{
	return rsh_format_is_part(name) &&
	       (rsh_has_suffix(name, ".bin") || rsh_has_suffix(name, ".pt") ||
		rsh_has_suffix(name, ".pth"));
}

static bool torch_is_consolidated(const char *name)
{
	static const char before[] = "consolidated.", after[] = ".pth";
	const size_t n = sizeof(before) - 1;
	size_t digits;

	if (strncmp(name, before, n) != 0)
		return false;
	digits = rsh_count_digits(name + n, strlen(name + n));
	return digits > 0 && strcmp(name + n + digits, after) == 0;
}

/* ---- bidding ---- */

/* A bare pickle is not accepted, because its content may be anything. */
static bool torch_is_file(const struct rsh_look *l, const char *name)
{
	cleanup_handle struct rsh_handle *h = NULL;
	enum rsh_torch_form form = RSH_TORCH_NONE;
	uint8_t start[RSH_TORCH_START];
	ssize_t n = rsh_handle_open(rsh_source_store(l->source), name, &h);

	if (n == 0)
		n = rsh_handle_pread(h, start, sizeof(start), 0);
	rsh_look_fail(l, name, n < 0 ? (int)n : 0);
	if (n > 0)
		form = rsh_torch_form(start, (size_t)n);
	return form != RSH_TORCH_NONE && form != RSH_TORCH_PICKLE;
}

/* A model has no steps to select. */
static bool torch_is_asked(const struct rsh_look *l)
{
	return rsh_look_is_plain(l) && !rsh_look_is_sharded(l);
}

/* If both exist, transformers prefers the safetensors. */
static bool torch_is_shadowed(const struct rsh_look *l)
{
	return rsh_look_has(l, "model.safetensors") ||
	       rsh_look_has(l, "model.safetensors.index.json") ||
	       rsh_look_has(l, "param_name_map.json");
}

static int torch_model_bid(const struct rsh_look *l, struct rsh_bid_more *more)
{
	const char *first;

	(void)more;
	if (!torch_is_asked(l))
		return RSH_BID_NO;
	if (l->file)
		return torch_is_map(l->file) ? RSH_BID_SURE : RSH_BID_NO;
	if (torch_is_shadowed(l))
		return RSH_BID_NO;
	if (rsh_look_has(l, TORCH_SINGLE) || rsh_look_has(l, TORCH_MAP) ||
	    rsh_look_count(l, torch_is_consolidated, &first) > 0)
		return RSH_BID_MODEL;
	return rsh_look_count(l, rsh_format_is_map, &first) == 0 &&
	       rsh_look_count(l, torch_is_map, &first) == 1 ?
	       RSH_BID_MODEL - 1 : RSH_BID_NO;
}

static void torch_hint(const struct rsh_look *l, char *buf, size_t max)
{
	const char *first = NULL, *part = NULL;
	const size_t n = rsh_look_count(l, rsh_format_may_hold_model, &first);

	for (size_t i = 0; i < l->n; i++) {
		const char *by = torch_slice_of(l->names[i]);

		if (!by || strcmp(by, "verl") == 0)
			continue;
		snprintf(buf, max, "; %s is one rank's slice of a model, as "
			 "%s writes them%s", l->names[i], by,
			 torch_slice_advice(l->names[i]));
		return;
	}
	if (!l->file && rsh_look_count(l, torch_is_part, &part) > 0)
		snprintf(buf, max, "; %s may be a part of a model, and no "
			 TORCH_MAP " is beside it", part);
	else if (n > 1 && torch_is_file(l, first))
		snprintf(buf, max, "; it has %zu files that may be of PyTorch, "
			 "such as %s: give one of them as SOURCE", n, first);
}

static int torch_file_bid(const struct rsh_look *l, struct rsh_bid_more *more)
{
	const char *first = NULL, *part;

	if (more->hint)
		torch_hint(l, more->hint, more->max);
	if (!torch_is_asked(l))
		return RSH_BID_NO;
	/* Files of distributed checkpoints are concatenations of such
	 * archives. */
	if (l->file && rsh_has_suffix(l->file, ".distcp"))
		return RSH_BID_NO;
	if (l->file)
		return torch_is_file(l, l->file) ? RSH_BID_SURE :
						       RSH_BID_NO;
	if (torch_is_shadowed(l) || torch_model_bid(l, more) ||
	    rsh_look_count(l, rsh_format_is_map, &first) > 0 ||
	    rsh_look_count(l, rsh_format_may_hold_model, &first) != 1 ||
	    torch_slice_of(first) || rsh_look_lacks_map(l, &part))
		return RSH_BID_NO;
	return torch_is_file(l, first) ? RSH_BID_MODEL - 1 : RSH_BID_NO;
}

/* ---- listing ---- */

static void torch_close(void *state)
{
	struct rsh_source_torch *t = state;

	if (!t)
		return;
	for (uint32_t i = 0; i < t->n; i++) {
		rsh_torch_file_free(t->files[i]);
		free(t->names[i]);
	}
	if (t->has_map)
		rsh_weight_map_clear(&t->map);
	pthread_mutex_destroy(&t->lock);
	free(t->files);
	free(t->names);
	free(t);
}

static int torch_state_new(struct rsh_source *s, struct rsh_error *err)
{
	struct rsh_source_torch *t = calloc(1, sizeof(*t));

	if (!t)
		return rsh_error_nomem(err);
	pthread_mutex_init(&t->lock, NULL);
	rsh_source_keep(s, t, NULL, torch_close);
	return 0;
}

static int torch_list_all(struct rsh_source *s, const char *const *names,
			  uint32_t n, struct rsh_error *err)
{
	struct rsh_source_torch *t = rsh_source_state(s);

	t->files = calloc((size_t)n + 1, sizeof(*t->files));
	t->names = calloc((size_t)n + 1, sizeof(*t->names));
	if (!t->files || !t->names)
		return rsh_error_nomem(err);
	t->n = n;
	for (uint32_t i = 0; i < n; i++) {
		t->names[i] = strdup(names[i]);
		if (!t->names[i] || rsh_format_list_file(s, names[i]))
			return rsh_error_nomem(err);
	}
	rsh_source_take_list(s, n == 1 ? names[0] : "the model");
	return 0;
}

/* ---- opening ---- */

/* Meta's models: a single file is whole, several files are slices.  The first
 * one has the number 0. */
static int torch_open_consolidated(struct rsh_source *s, struct rsh_error *err)
{
	cleanup_free char *found = NULL;
	const char *name;
	size_t n;
	int rc = rsh_format_search(s, torch_is_consolidated, &found, &n, err);

	if (rc)
		return rc;
	name = found;
	if (n > 1 || (n == 1 && strtoul(strchr(name, '.') + 1, NULL, 10) > 0))
		return rsh_error_set(err, ENOTSUP, "%s: consolidated.*.pth are "
				     "slices of one model, of which it has %zu,"
				     " and nothing in them says how they are "
				     "joined", rsh_source_path(s), n);
	return n == 1 ? torch_list_all(s, &name, 1, err) :
	       rsh_error_set(err, ENOENT, "%s: its model was removed",
			     rsh_source_path(s));
}

static int torch_file_open(struct rsh_source *s,
			   const struct rsh_source_options *opts,
			   struct rsh_error *err)
{
	const char *file = rsh_source_file(s);
	cleanup_free char *found = NULL;
	const char *by;
	size_t n;
	int rc = torch_state_new(s, err);

	(void)opts;
	if (rc)
		return rc;
	if (!file) {
		rc = rsh_format_search(s, rsh_format_may_hold_model, &found, &n,
				       err);
		if (rc == 0 && n != 1)
			rc = rsh_error_set(err, ENOENT,
					   "%s: the file of "
					   "PyTorch in it was removed, or "
					   "another one came",
					   rsh_source_path(s));
		file = found;
	}
	if (rc)
		return rc;
	by = torch_slice_of(file);
	if (by)
		return rsh_error_set(err, ENOTSUP, "%s/%s: one rank's slice of "
				     "a model, as %s writes them%s",
				     rsh_source_path(s), file, by,
				     torch_slice_advice(file));
	if (torch_is_consolidated(file))
		return torch_open_consolidated(s, err);
	if (rsh_format_is_part(file))
		rsh_log_warning("%s/%s: it is one part of a model; what other "
				"parts have is not shown", rsh_source_path(s),
				file);
	return torch_list_all(s, &file, 1, err);
}

static int torch_open_parts(struct rsh_source *s, const char *map,
			    struct rsh_error *err)
{
	struct rsh_source_torch *t = rsh_source_state(s);
	int rc = rsh_format_load_map(s, map, &t->map, err);

	t->has_map = rc == 0;
	if (rc == 0)
		rc = torch_list_all(s, t->map.files, t->map.n_files, err);
	if (rc == 0)
		rsh_log_info("%s/%s: a model of %u parts", rsh_source_path(s),
			     map, t->n);
	return rc;
}

/* transformers loads the one file, even if there is a map. */
static int torch_model_open(struct rsh_source *s,
			    const struct rsh_source_options *opts,
			    struct rsh_error *err)
{
	static const char *const single = TORCH_SINGLE;
	const struct rsh_store *store = rsh_source_store(s);
	const char *file = rsh_source_file(s);
	struct rsh_error unused = RSH_ERROR_INIT;
	cleanup_free char *map = NULL;
	int rc = torch_state_new(s, err), has_single, has_map;
	size_t n;

	(void)opts;
	if (rc)
		return rc;
	if (file)
		return torch_open_parts(s, file, err);
	has_single = rsh_store_has(store, TORCH_SINGLE, err);
	if (has_single < 0)
		return has_single;
	/* Beside the one file a map that cannot be read is logged. */
	has_map = rsh_store_has(store, TORCH_MAP, has_single ? &unused : err);
	if (has_single) {
		if (has_map)
			rc = rsh_format_check_duplicate(s, single, TORCH_MAP,
							err);
		return rc ? rc : torch_list_all(s, &single, 1, err);
	}
	if (has_map)
		return has_map < 0 ? has_map :
				     torch_open_parts(s, TORCH_MAP, err);
	return rsh_format_search(s, torch_is_map, &map, &n, err) ?:
	       n == 1 ? torch_open_parts(s, map, err) :
			torch_open_consolidated(s, err);
}

/* ---- indexes ---- */

/* Leaves out tensors that the map of the parts assigns to other parts. */
static int torch_leave_copies(const struct rsh_source_torch *t, uint32_t file,
			      struct rsh_torch_file *f, struct rsh_error *err)
{
	const struct rsh_weight_map *map = &t->map;
	cleanup_free const char **others =
		rsh_alloc_array(map->n_weights, sizeof(*others));
	struct rsh_torch_tensor *own = rsh_arena_array(
		&f->arena_, struct rsh_torch_tensor, f->n_tensors);
	uint32_t n_others = 0, n = 0;

	if (!others || !own)
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < map->n_weights; i++)
		if (strcmp(map->files[map->weights[i].file], t->names[file]) !=
		    0)
			others[n_others++] = map->weights[i].name;
	rsh_sort(others, n_others, rsh_by_text);
	for (uint32_t i = 0; i < f->n_tensors; i++)
		if (!rsh_find(&f->tensors[i].name, others, n_others,
			      rsh_by_text))
			own[n++] = f->tensors[i];
	f->n_copies = f->n_tensors - n;
	f->n_tensors = n;
	f->tensors = own;
	return 0;
}

static int torch_load(const struct rsh_source_torch *t, uint32_t file,
		      const struct rsh_byte_source *bytes,
		      struct rsh_torch_file **out, struct rsh_error *err)
{
	int rc = rsh_torch_file_read(bytes, NULL, out, err);

	if (rc == 0 && t->has_map)
		rc = torch_leave_copies(t, file, *out, err);
	if (rc) {
		rsh_torch_file_free(*out);
		*out = NULL;
	}
	return rc;
}

/* The content that was read is kept, also for torch_values(). */
static int torch_scan(const struct rsh_scan_job *job,
		      struct rsh_ckpt_index **out, struct rsh_error *err)
{
	struct rsh_source_torch *t = rsh_source_state(job->source);
	const uint32_t file = job->file;
	struct rsh_torch_file *f;
	int rc;

	/* An index has no strides, so the file must be read. */
	if (job->stored)
		return t->files[file] ? 0 : -ESTALE;
	rc = torch_load(t, file, job->bytes, &f, err) ?:
	     rsh_torch_index(f, job->bytes, job->how != RSH_SCAN_HEADERS,
			     false, job->names, out, err);
	if (rc) {
		rsh_torch_file_free(f);
		return rc;
	}
	(*out)->n_copies = f->n_copies;
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

/* ---- tensors ---- */

/* Checks that each part has the tensors that the map assigns to it, and no
 * others. */
static int torch_check_map(const struct rsh_source *s, uint32_t file,
			   struct rsh_error *err)
{
	const struct rsh_source_torch *t = rsh_source_state(s);
	const struct rsh_torch_file *f = t->files[file];
	const char *name = t->names[file];
	cleanup_free const char **held =
		rsh_alloc_array(f->n_tensors, sizeof(*held));
	uint32_t n = 0;

	if (!held)
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < f->n_tensors; i++)
		held[i] = f->tensors[i].name;
	rsh_sort(held, f->n_tensors, rsh_by_text);
	for (uint32_t i = 0; i < t->map.n_weights; i++) {
		const struct rsh_weight *w = &t->map.weights[i];

		if (strcmp(t->map.files[w->file], name) != 0)
			continue;
		n++;
		if (!rsh_find(&w->name, held, f->n_tensors, rsh_by_text))
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
					     t->names[i]);
		rc = t->has_map ? torch_check_map(s, i, err) : 0;
		if (rc)
			return rc;
	}
	return 0;
}

/* Logs which tensors are left out.  Refuses those that are wanted and of which
 * it is not known what they are. */
static int torch_check_left_out(const struct rsh_read_job *job,
				struct rsh_error *err)
{
	const struct rsh_source_torch *t = rsh_source_state(job->source);
	const struct rsh_plan_options *o = job->opts;
	const struct rsh_torch_value *first = NULL;
	uint32_t n = 0;

	for (uint32_t i = 0; i < t->n; i++)
		for (uint32_t k = 0; k < t->files[i]->n_values; k++) {
			const struct rsh_torch_value *v =
				&t->files[i]->values[k];

			if (!v->make ||
			    (v->unnamed && !rsh_plan_wants(o, v->name)))
				continue;
			if (v->unnamed)
				return rsh_error_set(err, ENOTSUP, "%.200s is "
						     "a tensor that cannot be "
						     "shown (%s): --drop "
						     "leaves it out", v->name,
						     v->make);
			if (v->lost && rsh_plan_wants(o, v->name))
				return rsh_error_set(err, ENOTSUP, "%s has "
						     "tensors, but is %s, "
						     "which is not known: "
						     "--drop leaves it out",
						     v->name, v->make);
			if (n++ == 0)
				first = v;
		}
	if (n)
		rsh_log_warning("%s: %u tensor%s no plain array%s left out, "
				"such as %s (%s)", rsh_source_path(job->source),
				n, n > 1 ? "s that are" : " that is",
				n > 1 ? "s are" : " is", first->name,
				first->make);
	return 0;
}

static int torch_read(const struct rsh_read_job *job, struct rsh_offers *out,
		      struct rsh_error *err)
{
	const struct rsh_source_torch *t = rsh_source_state(job->source);

	return torch_check_files(job->source, err) ?:
	       torch_check_left_out(job, err) ?:
	       rsh_torch_offers((const struct rsh_torch_file *const *)t->files,
				t->n, job, out, err);
}

/* ---- values ---- */

static int torch_values(struct rsh_source *s,
			const struct rsh_plan_options *opts,
			struct rsh_values *out, struct rsh_error *err)
{
	const struct rsh_source_torch *t = rsh_source_state(s);

	for (uint32_t i = 0; i < t->n; i++) {
		const struct rsh_torch_file *f = t->files[i];
		const struct rsh_store_attr *a =
			rsh_store_attr(rsh_source_store(s), i);
		int rc = 0;

		for (uint32_t k = 0; f && k < f->n_tensors && rc == 0; k++)
			rc = rsh_values_add_path(out, f->tensors[k].name,
						 f->tensors[k].keys,
						 f->tensors[k].n_keys);
		/* The state of the source keeps them for other plans. */
		for (uint32_t k = 0; f && k < f->n_values && rc >= 0; k++) {
			const struct rsh_torch_value *v = &f->values[k];

			rc = rsh_values_add_path(out, v->name, v->keys,
						 v->n_keys);
			if (rc == 0 && !v->make)
				rc = rsh_values_add(out, opts, v->name,
						    &v->plain, a);
		}
		if (rc < 0)
			return rsh_error_nomem(err);
	}
	rsh_values_sort_paths(out);
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

static int torch_list(const struct rsh_list_job *job, struct rsh_listed *out,
		      struct rsh_error *err)
{
	const struct rsh_source *s = job->source;
	struct rsh_source_torch *t = rsh_source_state(s);
	struct rsh_listed_tensor *tensors;
	const char **values;
	size_t n = 0, n_values = 0;

	/* The indexes have all that is needed to check the files against each
	 * other. */
	if (job->part == RSH_LIST_RECORDS)
		return torch_check_files(s, err);
	for (uint32_t i = 0; i < t->n; i++) {
		cleanup_format_file struct rsh_format_file f = { .path = NULL };
		int rc = 0;

		/* A file without an index has not been read. */
		if (!t->files[i])
			rc = rsh_format_file_open(s, t->names[i], &f, err) ?:
			     torch_load(t, i, &f.bytes, &t->files[i], err);
		if (rc)
			return rc;
		n += t->files[i]->n_tensors;
		n_values += t->files[i]->n_values;
	}
	tensors = rsh_arena_array(job->arena, struct rsh_listed_tensor, n);
	values = rsh_arena_array(job->arena, const char *, n_values);
	if (!tensors || !values)
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < t->n; i++) {
		const struct rsh_torch_file *f = t->files[i];

		if (torch_list_tensors(f, t->names[i], job->arena,
				       tensors + out->n_tensors))
			return rsh_error_nomem(err);
		out->n_tensors += f->n_tensors;
		for (uint32_t k = 0; k < f->n_values; k++)
			values[out->n_values++] = f->values[k].name;
	}
	out->tensors = tensors;
	out->values = values;
	out->files = (const char *const *)t->names;
	out->n_files = t->n;
	return 0;
}

/* ---- names of steps ---- */

static enum rsh_part torch_part(const char *file, struct rsh_step_name *out)
{
	static const char *const suffixes[] = { ".pth.tar", ".pth", ".pt" };

	for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++)
		if (rsh_has_suffix(file, suffixes[i])) {
			rsh_step_name_read(file, strlen(file) -
					   strlen(suffixes[i]), out);
			return RSH_PART_YES;
		}
	return RSH_PART_NO;
}

int rsh_torch_check_files(const struct rsh_byte_source *files,
			  const char *const *names, size_t n, bool full,
			  struct rsh_counters *says, struct rsh_error *err)
{
	bool unsummed;
	int rc = 0;

	(void)names;
	(void)says;
	for (size_t i = 0; i < n && rc == 0; i++) {
		rc = rsh_torch_check(&files[i], full, &unsummed, err);
		if (unsummed)
			rsh_step_say_unsummed(files[i].path);
	}
	return rc;
}

/* ---- the formats ---- */

/* While Megatron-Core and the Trainer write a step, it can have one file of
 * PyTorch that is not the model. */
static int torch_judge(const struct rsh_source *s, bool ended,
		       struct rsh_error *err)
{
	const struct rsh_source_torch *t = rsh_source_state(s);
	int rc = 0;

	if (!rsh_source_file(s))
		rc = ended && t->n == 1 &&
		     strcmp(t->names[0], "common.pt") == 0 ?
		     rsh_format_check_marker(s, "metadata.json", err) :
		     rsh_format_judge_model(s, ended, err);
	return rc ?: torch_check_files(s, err);
}

#define TORCH                                                   \
	.layout = RSH_LAYOUT_WHOLE, .owner = RSH_OWNER_MODEL,   \
	.scan = torch_scan, .read = torch_read,                 \
	.values = torch_values, .list = torch_list,             \
	.judge = torch_judge

const struct rsh_format rsh_torch_format = {
	TORCH,
	.name = "torch",
	.says = "checkpoint of PyTorch",
	.shown = RSH_SHOWN_HF,
	.bid = torch_file_bid,
	.open = torch_file_open,
	.framework = "PyTorch",
	.part = torch_part,
	.check = rsh_torch_check_files,
};

const struct rsh_format rsh_torch_model_format = {
	TORCH,
	.name = "torch-model",
	.says = "whole model",
	.shown = RSH_SHOWN_HF_BESIDE,
	.words = RSH_WORDS_EITHER,
	.bid = torch_model_bid,
	.open = torch_model_open,
};
