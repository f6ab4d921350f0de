/* SPDX-License-Identifier: Apache-2.0 */
/* formats/files.c opens files of a source, reads maps of parts, and checks the
 * files of steps. */
#include "config.h"

#include "rsh/formats/files.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/wire/bytes.h"
#include "rsh/wire/file_type.h"
#include "rsh/wire/json_load.h"

#define COMPARED_BYTES (1 << 20)

/* The maps of the largest known models have a few megabytes. */
static const struct rsh_small_file map_file = { "map of a model's parts",
						UINT64_C(256) << 20 };

int rsh_format_file_open(const struct rsh_source *s, const char *name,
			 struct rsh_format_file *out, struct rsh_error *err)
{
	const struct rsh_store *store = rsh_source_store(s);
	struct rsh_stat st;
	int rc;

	*out = (struct rsh_format_file){ .path = NULL };
	rc = rsh_handle_open(store, name, &out->handle);
	if (rc)
		return rsh_store_open_error(store, name, rc, err);
	out->path = rsh_text_format("%s/%s", rsh_source_path(s), name);
	if (!out->path)
		return rsh_error_nomem(err);
	rc = rsh_handle_look(out->handle, &st);
	if (rc)
		return rsh_error_file(err, -rc, out->path);
	if (st.kind != RSH_IS_FILE)
		return rsh_error_set(err, EINVAL, "%s: not a regular file",
				     out->path);
	out->bytes = (struct rsh_byte_source){
		rsh_handle_pread, out->handle, st.size, out->path,
	};
	return 0;
}

void rsh_format_file_close(struct rsh_format_file *f)
{
	rsh_handle_close(f->handle);
	free(f->path);
	*f = (struct rsh_format_file){ .path = NULL };
}

int rsh_format_same_bytes(const struct rsh_byte_source *a, uint64_t at_a,
			  const struct rsh_byte_source *b, uint64_t at_b,
			  uint64_t n, bool *same, struct rsh_error *err)
{
	cleanup_free uint8_t *x = malloc(2 * COMPARED_BYTES);
	int rc = x ? 0 : rsh_error_nomem(err);

	*same = true;
	for (uint64_t at = 0, part; rc == 0 && *same && at < n; at += part) {
		part = rsh_min_u64(COMPARED_BYTES, n - at);
		rc = rsh_bytes_read(a, x, (size_t)part, at_a + at, err) ?:
		     rsh_bytes_read(b, x + COMPARED_BYTES, (size_t)part,
				    at_b + at, err);
		*same = rc || memcmp(x, x + COMPARED_BYTES, (size_t)part) == 0;
	}
	return rc;
}

int rsh_format_list_file(struct rsh_source *s, const char *name)
{
	return rsh_source_list(s, &(struct rsh_checkpoint){ .name = name });
}

int rsh_format_list_step(const struct rsh_format_step *d,
			 bool (*take)(const char *name,
				      struct rsh_checkpoint *c))
{
	cleanup_dir struct rsh_dir *dir = NULL;
	int more = rsh_dir_open(rsh_source_store(d->source), d->dir, &dir);
	const size_t n = rsh_source_n_on_list(d->source);
	const char *name;

	while (more >= 0 && (more = rsh_dir_next(dir, &name)) > 0) {
		struct rsh_checkpoint c = {
			.step = d->step, .label = d->label,
			.series = d->series,
		};
		cleanup_free char *path = NULL;
		struct rsh_stat st;

		if (!take(name, &c))
			continue;
		if (rsh_dir_look(dir, name, &st))
			st = (struct rsh_stat){ .kind = RSH_IS_FILE };
		if (st.kind != RSH_IS_FILE)
			continue;
		c.mtime = st.attr.mtime;
		c.ctime = st.attr.ctime;
		c.name = path = rsh_text_format("%s%s%s", d->dir,
						*d->dir ? "/" : "", name);
		if (rsh_source_list(d->source, &c))
			more = -ENOMEM;
	}
	if (more < 0)
		rsh_source_unlist(d->source, n);
	return more;
}

int rsh_format_list_unread(const struct rsh_format_step *d, int rc,
			   struct rsh_error *err)
{
	const struct rsh_checkpoint c = {
		.step = d->step, .unread = rc, .label = d->label,
		.series = d->series, .name = d->dir,
	};

	if (rc == -ENOMEM)
		return rsh_error_nomem(err);
	if (!*d->dir || !rsh_errno_is_unread(-rc))
		return rsh_source_unreadable(d->source, d->dir, rc, err);
	return rsh_source_list(d->source, &c) ? rsh_error_nomem(err) : 0;
}

/* ---- a model whose files have any name ---- */

bool rsh_format_is_part(const char *name)
{
	static const char of[] = "-of-";
	const char *at = strstr(name, of), *count;
	size_t n;

	if (!at || at == name || !rsh_count_digits(at - 1, 1))
		return false;
	count = at + strlen(of);
	n = rsh_count_digits(count, strlen(count));
	return n > 0 && strtoul(count, NULL, 10) != 1;
}

bool rsh_format_is_slice(const char *name)
{
	static const char of[] = "-mp";
	const char *at = strstr(name, of);

	return at && at != name && rsh_count_digits(at - 1, 1) &&
	       strtoul(at + strlen(of), NULL, 10) > 1;
}

bool rsh_format_may_hold_model(const char *name)
{
	static const char *const suffixes[] = {
		".safetensors", ".ckpt", ".pt", ".pth", ".pth.tar",
	};

	if (name[0] == '.' || rsh_format_is_part(name) ||
	    rsh_format_is_slice(name) ||
	    rsh_begins_any(name, "optimizer.", "optimizer_state",
			   "optim_state", "scheduler.", "scaler.", "rng_state",
			   "random_states", "recipe_state", "trainer_state",
			   "training_state", "train_state", "adapter_model.",
			   "hyper_param."))
		return false;
	return rsh_any(i, sizeof(suffixes) / sizeof(suffixes[0]),
		       rsh_has_suffix(name, suffixes[i]));
}

/* diffusers puts the name of a variant into that of the map:
 * NAME.safetensors.index.fp16.json. */
bool rsh_format_is_map(const char *name)
{
	static const char index[] = ".index.";
	const char *at = strstr(name, index);
	cleanup_free char *of = NULL;

	if (name[0] == '.' || !at || !rsh_has_suffix(at, ".json"))
		return false;
	of = strndup(name, (size_t)(at - name));
	return of && rsh_file_type_of(of) != RSH_FILE_OTHER;
}

static bool is_map_of_parts(const char *name)
{
	return rsh_format_is_map(name) ||
	       (name[0] != '.' && rsh_has_suffix(name, ".index.json"));
}

static bool is_part_of_weights(const char *name)
{
	return name[0] != '.' && rsh_format_is_part(name) &&
	       (rsh_file_type_of(name) != RSH_FILE_OTHER ||
		rsh_has_suffix(name, ".bin") || rsh_has_suffix(name, ".pt") ||
		rsh_has_suffix(name, ".pth"));
}

bool rsh_look_lacks_map(const struct rsh_look *l, const char **part)
{
	const char *map;

	return rsh_look_count(l, is_part_of_weights, part) > 0 &&
	       rsh_look_count(l, is_map_of_parts, &map) == 0;
}

/* Returns whether a directory is that of a model or an adapter of Hugging Face,
 * whatever its name: rank_16 may be the rank of LoRA. */
static bool is_of_hugging_face(const struct rsh_look *l)
{
	static const char *const weights[] = {
		"model.safetensors", "model.safetensors.index.json",
		"pytorch_model.bin", "pytorch_model.bin.index.json",
	};

	if (rsh_look_has(l, "adapter_config.json"))
		return true;
	for (size_t i = 0; i < sizeof(weights) / sizeof(weights[0]); i++)
		if (rsh_look_has(l, weights[i]))
			return rsh_look_has(l, "config.json");
	return false;
}

bool rsh_format_is_of_rank(const struct rsh_look *l, const char *name)
{
	const bool whole = l->opts && l->opts->unsharded;
	const char *path = rsh_source_path(l->source);
	cleanup_free char *real = rsh_store_is_address(path) ? strdup(path) :
				  realpath(path, NULL);
	size_t begin, end, n;

	if (rsh_rank_in_name(name, strlen(name), &begin, &end) &&
	    !(whole && l->file))
		return true;
	if (is_of_hugging_face(l))
		return false;
	for (const char *at = real; at && *at; at += n) {
		at += strspn(at, "/");
		n = strcspn(at, "/");
		if (rsh_rank_dir_is(at, n) ?
		    *at == 'r' || (!whole && !at[n + strspn(at + n, "/")]) :
		    !whole && rsh_rank_dir_may_be(at, n))
			return true;
	}
	return false;
}

void rsh_format_hint_rank(const struct rsh_look *l, const char *name, char *buf,
			  size_t max)
{
	const struct rsh_source_options opts = { .unsharded = true };
	const struct rsh_look stated = { .source = l->source, .opts = &opts,
					 .file = l->file };

	snprintf(buf, max, "; %s is a file of one rank, which may have slices: "
		 "give the directory of all ranks%s", name,
		 rsh_format_is_of_rank(&stated, name) ? "" :
		 ", or --src-strategy none if it is a whole model");
}

size_t rsh_look_count(const struct rsh_look *l, bool (*is)(const char *),
		      const char **first)
{
	size_t n = 0;

	for (size_t i = 0; i < l->n; i++)
		if (is(l->names[i]) && n++ == 0)
			*first = l->names[i];
	return n;
}

int rsh_format_search(const struct rsh_source *s, bool (*is)(const char *),
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

int rsh_format_load_map(const struct rsh_source *s, const char *name,
			struct rsh_weight_map *map, struct rsh_error *err)
{
	cleanup_free uint8_t *data = NULL;
	cleanup_free char *path = NULL;
	size_t len;
	int rc = rsh_store_load(rsh_source_store(s), name, &map_file, &data,
				&len, err);

	if (rc)
		return rc;
	path = rsh_text_format("%s/%s", rsh_source_path(s), name);
	if (!path)
		return rsh_error_nomem(err);
	return rsh_weight_map_parse(data, len, path, map, err);
}

int rsh_format_check_marker(const struct rsh_source *s, const char *marker,
			    struct rsh_error *err)
{
	cleanup_format_file struct rsh_format_file json = { .path = NULL };
	bool ended = false;
	int rc = rsh_source_check_times(s, marker, err);

	if (rc)
		return rc;
	/* Other markers are written under another name first, or are read
	 * anyway. */
	if (!rsh_has_suffix(marker, ".json"))
		return 0;
	rc = rsh_format_file_open(s, marker, &json, err) ?:
	     rsh_json_is_ended(&json.bytes, &ended, err);
	return rc || ended ? rc :
	       rsh_error_set(err, EBADMSG, "its %s, which is written last, "
			     "does not end: the save has not ended, or it was "
			     "cut off", marker);
}

int rsh_format_judge_model(const struct rsh_source *s, bool ended,
			   struct rsh_error *err)
{
	static const char trainer[] = "trainer_state.json",
			  prefix[] = "checkpoint-";
	static const char *const maps[] = {
		"model.safetensors.index.json", "pytorch_model.bin.index.json",
	};
	const struct rsh_store *store = rsh_source_store(s);
	const char *base = rsh_path_name(rsh_source_path(s));
	const size_t n = strlen(prefix);
	int has;

	if (!ended)
		return 0;
	has = (strncmp(base, prefix, n) == 0 && base[n] &&
	       !base[n + rsh_count_digits(base + n, strlen(base + n))]) ? 1 :
	      rsh_store_has(store, trainer, err);
	if (has)
		return has < 0 ? has : rsh_format_check_marker(s, trainer, err);
	for (size_t i = 0; i < sizeof(maps) / sizeof(maps[0]); i++) {
		has = rsh_store_has(store, maps[i], err);
		if (has)
			return has < 0 ? has :
			       rsh_format_check_marker(s, maps[i], err);
	}
	return 0;
}

/* ---- steps ---- */

const char *rsh_step_dir_read(const char *path, const char *prefix,
			      struct rsh_step_name *out)
{
	const char *slash = strchr(path, '/');

	if (!slash || !rsh_number_after(prefix, path, (size_t)(slash - path),
					&out->step.numbers[0]))
		return NULL;
	out->step.n = 1;
	strcpy(out->series, prefix);
	snprintf(out->label, sizeof(out->label), "%.*s", (int)(slash - path),
		 path);
	return slash + 1;
}

size_t rsh_step_place(const char *const *names, size_t n, const char *name)
{
	const char *const *found = rsh_find(&name, names, n, rsh_by_text);

	return found ? (size_t)(found - names) : n;
}

int rsh_step_check_file(enum rsh_file_type type,
			const struct rsh_byte_source *file, bool full,
			struct rsh_counters *says, struct rsh_error *err)
{
	cleanup_names struct rsh_names *names = rsh_names_new();
	struct rsh_ckpt_index *ix;
	int rc = names ? rsh_file_scan(type, file, full, names, &ix, err) :
			 rsh_error_nomem(err);

	if (rc == 0 && says)
		rsh_counters_read(file, ix, names, says);
	if (rc == 0)
		rsh_ckpt_index_free(ix);
	return rc;
}

void rsh_step_say_unsummed(const char *path)
{
	static atomic_flag said = ATOMIC_FLAG_INIT;

	if (!atomic_flag_test_and_set(&said))
		rsh_log_warning("%s: the file has no CRCs (set_crc32_options(False)): "
				"its contents are not checked", path);
}
