/* SPDX-License-Identifier: Apache-2.0 */
/* formats/torch/listing.c finds PyTorch's own files: SOURCE is such a file, or
 * a directory with pytorch_model.bin or its parts, with consolidated.00.pth, or
 * with one file of torch.save() of any name. */
#include "config.h"

#include "torch_i.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/formats/files.h"
#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

#define TORCH_MAP "pytorch_model.bin.index.json"
#define TORCH_SINGLE "pytorch_model.bin"

/* ---- names ---- */

/* Returns whether the name is that of a file that may have a model's
 * weights. */
static bool torch_may_hold(const char *name)
{
	static const char *const suffixes[] = {
		".pt", ".pth", ".pth.tar", ".ckpt",
	};
	static const char *const others[] = {
		"optimizer.pt", "scheduler.pt", "scaler.pt",
	};

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (strcmp(name, others[i]) == 0)
			return false;
	if (strncmp(name, "rng_state", strlen("rng_state")) == 0)
		return false;
	for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++)
		if (rsh_has_suffix(name, suffixes[i]))
			return true;
	return false;
}

/* Returns whether the name is that of a rank's slice, as Megatron and DeepSpeed
 * write them. */
static bool torch_is_slice(const char *name)
{
	return strncmp(name, "mp_rank_", strlen("mp_rank_")) == 0 ||
	       strncmp(name, "zero_pp_rank_", strlen("zero_pp_rank_")) == 0 ||
	       strcmp(name, "model_optim_rng.pt") == 0;
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
static bool torch_is_file(const struct rsh_store *store, const char *name)
{
	cleanup_handle struct rsh_handle *h = NULL;
	enum rsh_torch_form form = RSH_TORCH_NONE;
	uint8_t start[RSH_TORCH_START];
	ssize_t n;

	if (rsh_handle_open(store, name, &h))
		return false;
	n = rsh_handle_pread(h, start, sizeof(start), 0);
	if (n > 0)
		form = rsh_torch_form(start, (size_t)n);
	return form != RSH_TORCH_NONE && form != RSH_TORCH_PICKLE;
}

/* A model has no steps to select. */
static bool torch_is_asked(const struct rsh_look *l)
{
	return rsh_look_is_plain(l) && !rsh_look_is_sharded(l);
}

/* Returns how many entries may have weights, and sets the first one. */
static size_t torch_count(const struct rsh_look *l, const char **first)
{
	size_t n = 0;

	for (size_t i = 0; i < l->n; i++)
		if (torch_may_hold(l->names[i]) && n++ == 0)
			*first = l->names[i];
	return n;
}

/* If both exist, transformers prefers the safetensors. */
static bool torch_is_shadowed(const struct rsh_look *l)
{
	return rsh_look_has(l, "model.safetensors") ||
	       rsh_look_has(l, "model.safetensors.index.json") ||
	       rsh_look_has(l, "param_name_map.json");
}

static size_t torch_count_consolidated(const struct rsh_look *l)
{
	size_t n = 0;

	for (size_t i = 0; i < l->n; i++)
		n += torch_is_consolidated(l->names[i]);
	return n;
}

int rsh_torch_model_bid(const struct rsh_look *l)
{
	if (l->file || !torch_is_asked(l) || torch_is_shadowed(l))
		return RSH_BID_NO;
	return rsh_look_has(l, TORCH_SINGLE) || rsh_look_has(l, TORCH_MAP) ||
	       torch_count_consolidated(l) > 0 ? RSH_BID_MODEL : RSH_BID_NO;
}

int rsh_torch_file_bid(const struct rsh_look *l)
{
	const struct rsh_store *store = rsh_source_store(l->source);
	const char *first = NULL;

	if (!torch_is_asked(l))
		return RSH_BID_NO;
	/* Files of distributed checkpoints are concatenations of such
	 * archives. */
	if (l->file && rsh_has_suffix(l->file, ".distcp"))
		return RSH_BID_NO;
	if (l->file)
		return torch_is_file(store, l->file) ? RSH_BID_SURE :
						       RSH_BID_NO;
	if (torch_is_shadowed(l) || rsh_torch_model_bid(l) ||
	    torch_count(l, &first) != 1)
		return RSH_BID_NO;
	return torch_is_file(store, first) ? RSH_BID_MODEL - 1 : RSH_BID_NO;
}

void rsh_torch_hint(const struct rsh_look *l, char *buf, size_t max)
{
	const char *first = NULL;
	const size_t n = torch_count(l, &first);

	for (size_t i = 0; i < l->n; i++) {
		if (!torch_is_slice(l->names[i]))
			continue;
		snprintf(buf, max, "; %s is one rank's slice of a model, as "
			 "Megatron and DeepSpeed write them, and nothing says "
			 "how slices are joined", l->names[i]);
		return;
	}
	if (n > 1 && torch_is_file(rsh_source_store(l->source), first))
		snprintf(buf, max, "; it has %zu files that may be of PyTorch, "
			 "such as %s: give one of them as SOURCE", n, first);
}

/* ---- listing ---- */

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
	rsh_source_take_list(s);
	return 0;
}

static int torch_state_new(struct rsh_source *s, struct rsh_error *err)
{
	struct rsh_source_torch *t = calloc(1, sizeof(*t));

	if (!t)
		return rsh_error_nomem(err);
	pthread_mutex_init(&t->lock, NULL);
	rsh_source_keep(s, t);
	return 0;
}

void rsh_torch_close(void *state)
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

/* ---- opening ---- */

/* Finds the first entry of the directory for which `is` returns true, and
 * counts these entries; *first is from malloc. */
static int torch_search(const struct rsh_source *s, bool (*is)(const char *),
			char **first, size_t *n, struct rsh_error *err)
{
	cleanup_dir struct rsh_dir *dir = NULL;
	const struct rsh_store *store = rsh_source_store(s);
	int more = rsh_dir_open(store, "", &dir);
	const char *name;

	*n = 0;
	*first = NULL;
	while (more >= 0 && (more = rsh_dir_next(dir, &name)) > 0) {
		if (!is(name) || (*n)++ > 0)
			continue;
		*first = strdup(name);
		if (!*first)
			return rsh_error_nomem(err);
	}
	return more < 0 ? rsh_store_open_error(store, "", more, err) : 0;
}

int rsh_torch_file_open(struct rsh_source *s,
			const struct rsh_source_options *opts,
			struct rsh_error *err)
{
	const char *file = rsh_source_file(s);
	cleanup_free char *found = NULL;
	size_t n;
	int rc = torch_state_new(s, err);

	(void)opts;
	if (rc)
		return rc;
	if (!file) {
		rc = torch_search(s, torch_may_hold, &found, &n, err);
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
	if (torch_is_slice(file))
		return rsh_error_set(err, ENOTSUP, "%s/%s: one rank's slice of "
				     "a model, as Megatron and DeepSpeed write "
				     "them; nothing in it says how slices are "
				     "joined", rsh_source_path(s), file);
	return torch_list_all(s, &file, 1, err);
}

/* Meta's models: a single file is whole, several files are slices. */
static int torch_open_consolidated(struct rsh_source *s, struct rsh_error *err)
{
	cleanup_free char *found = NULL;
	const char *name;
	size_t n;
	int rc = torch_search(s, torch_is_consolidated, &found, &n, err);

	if (rc)
		return rc;
	if (n > 1)
		return rsh_error_set(err, ENOTSUP, "%s: consolidated.*.pth are "
				     "%zu slices of one model, and nothing in "
				     "them says how they are joined",
				     rsh_source_path(s), n);
	name = found;
	return n == 1 ? torch_list_all(s, &name, 1, err) :
	       rsh_error_set(err, ENOENT, "%s: its model was removed",
			     rsh_source_path(s));
}

/* transformers loads the one file, even if there is a map. */
int rsh_torch_model_open(struct rsh_source *s,
			 const struct rsh_source_options *opts,
			 struct rsh_error *err)
{
	static const char *const single = TORCH_SINGLE;
	const struct rsh_store *store = rsh_source_store(s);
	struct rsh_source_torch *t;
	struct rsh_stat st;
	int rc = torch_state_new(s, err);

	(void)opts;
	if (rc)
		return rc;
	if (rsh_store_look(store, TORCH_SINGLE, &st) == 0)
		return torch_list_all(s, &single, 1, err);
	if (rsh_store_look(store, TORCH_MAP, &st))
		return torch_open_consolidated(s, err);
	t = rsh_source_state(s);
	rc = rsh_format_load_map(s, TORCH_MAP, &t->map, err);
	t->has_map = rc == 0;
	if (rc == 0)
		rc = torch_list_all(s, t->map.files, t->map.n_files, err);
	if (rc == 0)
		rsh_log_info("%s/" TORCH_MAP ": a model of %u parts",
			     rsh_source_path(s), t->n);
	return rc;
}
