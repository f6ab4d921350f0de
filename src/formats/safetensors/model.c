/* SPDX-License-Identifier: Apache-2.0 */
/* formats/safetensors/model.c - formats of whole models.  The first is
 * Hugging Face's model.safetensors.index.json and the files that it names, or
 * model.safetensors alone; other frameworks give them other names, and
 * mindformers writes .ckpt files.  The second is MindSpore's
 * param_name_map.json with part*.safetensors and hyper_param.safetensors. In
 * both, the parts are files of one rank.  The third is an adapter of PEFT. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rsh/formats/files.h"
#include "rsh/formats/formats.h"
#include "rsh/formats/ranks.h"
#include "rsh/formats/torch.h"
#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/wire/adapter_config.h"
#include "rsh/wire/file_type.h"
#include "rsh/wire/safetensors.h"

#define HF_MAP "model.safetensors.index.json"
#define MS_MAP "param_name_map.json"
/* A model of one part needs no map. */
#define HF_SINGLE "model.safetensors"
#define TORCH_SINGLE "pytorch_model.bin"
#define TORCH_MAP "pytorch_model.bin.index.json"
/* The first field of a strategy file is a number, and of a checkpoint a
 * message. */
#define STRATEGY_BEGIN 0x08

/* Logs that the directory also has the model in PyTorch's files. */
static void model_tell_torch(const struct rsh_source *s)
{
	static const char *const names[] = { TORCH_SINGLE, TORCH_MAP };
	struct rsh_stat st;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (rsh_store_look(rsh_source_store(s), names[i], &st) == 0) {
			rsh_log_info("%s: the safetensors are taken, as "
				     "transformers does; %s was not looked at",
				     rsh_source_path(s), names[i]);
			return;
		}
}

/* This file has parameters that are not in a strategy.  It is in the directory
 * of MindSpore's map, but is not listed in the map. */
#define MS_HYPER "hyper_param.safetensors"

/* Names of more parts are not tried. */
#define PARTS_MAX 10000

/* This is the state of a source. */
struct model {
	struct rsh_weight_map parts; /* all of them exist */
	struct rsh_step_facts facts;
};

/* ---- bidding ---- */

/* A model has no steps to select. */
static bool model_is_asked(const struct rsh_look *l)
{
	const struct rsh_source_options *o = l->opts;

	return rsh_look_is_plain(l) && !rsh_look_is_sharded(l) &&
	       (!o || (o->breakpoints != RSH_BREAKPOINTS_ONLY &&
		       (o->select == RSH_SELECT_NEWEST ||
			o->select == RSH_SELECT_MINDSPORE)));
}

/* torch_checkpointing may have a directory for the files of all ranks, and
 * describes them above it. */
static bool model_is_item(const struct rsh_look *l)
{
	const char *path = rsh_source_path(l->source);
	cleanup_free char *above = rsh_text_format("%s/../metadata.pkl", path);

	return above && !rsh_store_is_address(path) && access(above, F_OK) == 0;
}

/* Returns whether the file is one of a checkpoint that other files describe. */
static bool model_is_described(const struct rsh_look *l)
{
	static const char *const by[] = {
		"metadata.json", ".metadata", MS_MAP, "metadata.pkl",
	};

	for (size_t i = 0; i < sizeof(by) / sizeof(by[0]); i++)
		if (rsh_look_has(l, by[i]))
			return true;
	return model_is_item(l);
}

/* Returns whether the file may have a whole model. */
static bool model_is_whole(const struct rsh_look *l, const char *name)
{
	cleanup_handle struct rsh_handle *h = NULL;
	uint8_t start[RSH_TORCH_START];
	ssize_t n;

	if (rsh_file_type_of(name) == RSH_FILE_OTHER ||
	    !rsh_format_may_hold_model(name) || model_is_described(l) ||
	    rsh_format_is_of_rank(l, name))
		return false;
	/* Files of PyTorch and strategies may have the suffix .ckpt too.  What
	 * cannot be read is taken: opening it reports the error. */
	if (rsh_file_type_of(name) != RSH_FILE_CKPT ||
	    rsh_handle_open(rsh_source_store(l->source), name, &h))
		return true;
	n = rsh_handle_pread(h, start, sizeof(start), 0);
	return n <= 0 || (*start != STRATEGY_BEGIN &&
			  rsh_torch_form(start, (size_t)n) == RSH_TORCH_NONE);
}

/* A map of Hugging Face is preferred.  Neither is looked at if the other one
 * decides. */
static bool model_is_ms_parts(const struct rsh_look *l)
{
	const char *const name = MS_MAP;

	return (!l->listed || rsh_find(&name, l->names, l->n, rsh_by_text)) &&
	       !rsh_look_has(l, HF_MAP) && rsh_look_has(l, MS_MAP);
}

static int ms_parts_bid(const struct rsh_look *l, struct rsh_bid_more *more)
{
	(void)more;
	if (!model_is_asked(l))
		return RSH_BID_NO;
	if (l->file)
		return strcmp(l->file, MS_MAP) == 0 ? RSH_BID_SURE : RSH_BID_NO;
	return model_is_ms_parts(l) ? RSH_BID_MODEL : RSH_BID_NO;
}

/* Beside a strategy, files have slices. */
static bool model_is_strategy(const char *name)
{
	return strstr(name, "strategy") != NULL;
}

#define IS_ADAPTER "it is an adapter: --lora DIR merges it into the model of "  \
		   "SOURCE"

#define IS_ITEM "; %s/.. has metadata.pkl, which describes its files: give "    \
		"that directory"

/* Says why a single file is not taken as a model. */
static void model_hint_file(const struct rsh_look *l, char *buf, size_t max)
{
	if (strncmp(l->file, "adapter_model.", 14) == 0) {
		snprintf(buf, max, "; " IS_ADAPTER);
		return;
	}
	if (rsh_file_type_of(l->file) == RSH_FILE_OTHER)
		return;
	if (model_is_item(l))
		snprintf(buf, max, IS_ITEM, rsh_source_path(l->source));
	else if (rsh_format_is_slice(l->file))
		snprintf(buf, max, "; %s is one rank's slice of a model, as "
			 "DeepSeek writes them; nothing says how slices are "
			 "joined", l->file);
	else if (rsh_format_is_of_rank(l, l->file))
		rsh_format_hint_rank(l, l->file, buf, max);
	else if (!rsh_format_may_hold_model(l->file) || model_is_described(l))
		snprintf(buf, max, "; %s is a part of a model, or beside one: "
			 "give the directory or the map of the parts",
			 l->file);
}

/* Says how files are given to ranks whose names differ in the numbers from 0 to
 * n - 1.  Returns false if there are none. */
static bool model_hint_numbered(const struct rsh_look *l, const char *first,
				size_t n, char *buf, size_t max)
{
	size_t digits, found;

	for (const char *at = first; *at; at += digits ? digits : 1) {
		digits = rsh_count_digits(at, strlen(at));
		if (digits != 1 || *at != '0')
			continue;
		for (found = 1; found < n; found++) {
			cleanup_free char *text = rsh_text_format(
				"%.*s%zu%s", (int)(at - first), first, found,
				at + 1);
			const char *name = text;

			if (!name || !rsh_find(&name, l->names, l->n,
					       rsh_by_text))
				break;
		}
		if (found < n)
			continue;
		snprintf(buf, max, "; %s may be the file of one of %zu ranks, "
			 "and nothing beside it says how they are joined: use "
			 "--src-strategy FILE --rank-dir . --file '%.*s{rank}%s'",
			 first, n, (int)(at - first), first, at + 1);
		return true;
	}
	return false;
}

#define PART_WITHOUT_MAP "; %s may be a part of a model, and no " HF_MAP " is "  \
			 "beside it"

static void model_hint(const struct rsh_look *l, char *buf, size_t max)
{
	const char *first = NULL, *part = NULL, *strategy;
	const char *dir = rsh_path_name(rsh_source_path(l->source));
	const size_t n = rsh_look_count(l, rsh_format_is_map, &first) ?:
			 rsh_look_count(l, rsh_format_may_hold_model, &first);
	const bool lacks_map = rsh_look_lacks_map(l, &part);

	for (size_t i = 0; i < l->n && !lacks_map; i++)
		if (rsh_has_suffix(l->names[i], ".safetensors") &&
		    (!part || strverscmp(l->names[i], part) < 0))
			part = l->names[i];
	if (l->file)
		model_hint_file(l, buf, max);
	else if (rsh_look_has(l, HF_MAP) || rsh_look_has(l, MS_MAP) ||
		 rsh_look_has(l, HF_SINGLE))
		snprintf(buf, max, "; it is a whole model, of which no "
			 "strategy speaks: --src-strategy none");
	else if (rsh_look_has(l, RSH_ADAPTER_CONFIG_NAME))
		snprintf(buf, max, "; " IS_ADAPTER);
	else if (lacks_map && rsh_file_type_of(part) == RSH_FILE_OTHER)
		; /* parts of PyTorch have another map */
	else if (lacks_map)
		snprintf(buf, max, PART_WITHOUT_MAP, part);
	else if (n > 1 && model_is_item(l))
		snprintf(buf, max, IS_ITEM, rsh_source_path(l->source));
	/* What is above the directory of a rank is a better hint. */
	else if (n == 1 && !rsh_rank_dir_is(dir, strlen(dir)) &&
		 rsh_format_is_of_rank(l, first))
		rsh_format_hint_rank(l, first, buf, max);
	else if (n > 1 && model_hint_numbered(l, first, n, buf, max))
		;
	else if (n > 1 && rsh_format_is_of_rank(l, first))
		snprintf(buf, max, "; %s is a file of one rank, which may have "
			 "slices, and nothing beside it says how they are "
			 "joined", first);
	else if (n > 1 && rsh_look_count(l, model_is_strategy, &strategy) == 0)
		snprintf(buf, max, "; it has %zu files that may be a whole "
			 "model, such as %s: give one of them as SOURCE", n,
			 first);
	else if (part)
		snprintf(buf, max, PART_WITHOUT_MAP, part);
	else if (n == 0 && rsh_look_has(l, "config.json"))
		snprintf(buf, max, "; it has config.json, and no weights");
}

/* If there are both a map and one file, transformers loads the one file. */
static int hf_bid(const struct rsh_look *l, struct rsh_bid_more *more)
{
	const char *name;
	bool single;
	size_t n;

	if (more->hint)
		model_hint(l, more->hint, more->max);
	if (!model_is_asked(l))
		return RSH_BID_NO;
	if (l->file)
		return rsh_format_is_map(l->file) ||
		       model_is_whole(l, l->file) ? RSH_BID_SURE : RSH_BID_NO;
	/* A map is only looked at if it decides. */
	single = rsh_look_has(l, HF_SINGLE);
	if (!single && rsh_look_has(l, HF_MAP))
		return RSH_BID_MODEL;
	if (rsh_look_has(l, MS_MAP))
		return single && rsh_look_has(l, HF_MAP) ? RSH_BID_MODEL :
							   RSH_BID_NO;
	if (single)
		return RSH_BID_MODEL;
	/* Without the usual names it is the only map, or the only file. */
	n = rsh_look_count(l, rsh_format_is_map, &name);
	return n == 1 || (n == 0 && !rsh_look_lacks_map(l, &name) &&
			  rsh_look_count(l, rsh_format_may_hold_model,
					 &name) == 1 &&
			  model_is_whole(l, name)) ? RSH_BID_MODEL - 1 :
						     RSH_BID_NO;
}

/* ---- listing ---- */

static int model_add_parts(struct rsh_source *s,
			   const struct rsh_weight_map *map, bool hyper)
{
	for (uint32_t i = 0; i < map->n_files; i++)
		if (rsh_format_list_file(s, map->files[i]))
			return -ENOMEM;
	if (hyper && rsh_format_list_file(s, MS_HYPER))
		return -ENOMEM;
	rsh_source_take_list(s, "the model");
	return 0;
}

static int model_load_map(const struct rsh_source *s, const char *name,
			  struct rsh_weight_map *map, struct rsh_error *err)
{
	int rc = rsh_format_load_map(s, name, map, err);

	for (uint32_t i = 0; rc == 0 && i < map->n_files; i++)
		if (rsh_file_type_of(map->files[i]) == RSH_FILE_OTHER)
			rc = rsh_error_set(err, EINVAL, "%s/%s: %s is neither "
					   "a .safetensors nor a .ckpt file",
					   rsh_source_path(s), name,
					   map->files[i]);
	if (rc)
		rsh_weight_map_clear(map);
	return rc;
}

/* Lists the one file, and compares it with the parts of the map; NULL: there is
 * no map. */
static int model_list_single(struct rsh_source *s, const char *file,
			     const char *map_name, struct rsh_error *err)
{
	const struct rsh_weight_map one = { .n_files = 1, .files = &file };
	int rc = map_name ? rsh_format_check_duplicate(s, file, map_name, err) :
			    0;

	if (rc == 0 && model_add_parts(s, &one, false))
		rc = rsh_error_nomem(err);
	return rc;
}

static void model_close(void *state)
{
	struct model *m = state;

	if (m)
		rsh_weight_map_clear(&m->parts);
	free(m);
}

static bool model_has_part(const struct rsh_weight_map *map, const char *file)
{
	for (uint32_t i = 0; i < map->n_files; i++)
		if (strcmp(map->files[i], file) == 0)
			return true;
	return false;
}

/* Makes the name of part i (from malloc), and sets *more to whether i is one of
 * the parts that there should be, or may be.  The name of a part of Hugging
 * Face says of how many it is one; MindSpore numbers its own from 0.  Returns
 * NULL if names are of another kind, or memory is out. */
static char *model_part_name(const struct rsh_weight_map *map, uint32_t i,
			     bool *more)
{
	const char *like = map->n_files ? map->files[0] : "";
	const char *of = strstr(like, "-of-"), *digits = of;
	uint64_t total;
	size_t n;

	*more = i <= map->n_files;
	if (!of)
		return rsh_begins_any(like, "part") ?
			rsh_text_format("part%" PRIu32 ".safetensors", i) :
			NULL;
	while (digits > like && digits[-1] >= '0' && digits[-1] <= '9')
		digits--;
	n = rsh_count_digits(of + 4, strlen(of + 4));
	if (digits == of || !rsh_number_read(of + 4, n, &total))
		return NULL;
	*more = i < total && i < PARTS_MAX;
	return rsh_text_format("%.*s%0*" PRIu32 "%s", (int)(digits - like),
			       like, (int)(of - digits), i + 1, of);
}

/* Warns of a part in the directory that the map does not name. */
static void model_warn_unnamed(const struct rsh_source *s, const char *name,
			       const struct rsh_weight_map *map)
{
	bool more = true, found = false;

	for (uint32_t i = 0; more && !found; i++) {
		cleanup_free char *part = model_part_name(map, i, &more);
		struct rsh_stat st;

		if (!part || !more)
			return;
		found = !model_has_part(map, part) &&
			rsh_store_look(rsh_source_store(s), part, &st) == 0;
		if (found)
			rsh_log_warning("%s/%s does not name %s, which is "
					"there: no tensor of it is shown",
					rsh_source_path(s), name, part);
	}
}

static int model_list_parts(struct rsh_source *s, const char *name,
			    struct rsh_error *err)
{
	struct model *m = calloc(1, sizeof(*m));
	int rc, hyper;

	rsh_source_keep(s, m, m ? &m->facts : NULL, model_close);
	if (!m)
		return rsh_error_nomem(err);
	m->facts.map = &m->parts;
	/* transformers reads the last copy of a tensor that is in several
	 * parts. */
	m->facts.reads_last = strcmp(name, MS_MAP) != 0;
	rc = model_load_map(s, name, &m->parts, err);
	if (rc)
		return rc;
	model_warn_unnamed(s, name, &m->parts);
	hyper = strcmp(name, MS_MAP) != 0 ? 0 :
		rsh_store_has(rsh_source_store(s), MS_HYPER, err);
	if (hyper < 0)
		return hyper;
	for (uint32_t i = 0; i < m->parts.n_files; i++)
		hyper = hyper && strcmp(m->parts.files[i], MS_HYPER) != 0;
	if (model_add_parts(s, &m->parts, hyper))
		return rsh_error_nomem(err);
	rsh_log_info("%s/%s: a model of %zu parts", rsh_source_path(s), name,
		     rsh_source_n_on_list(s));
	return 0;
}

/* Lists the parts of the map, or the one file that has them all: transformers
 * loads that, even if there is a map. */
static int hf_list_map(struct rsh_source *s, const char *map,
		       struct rsh_error *err)
{
	cleanup_free char *single = strndup(map, (size_t)(strstr(map, ".index.")
							  - map));
	int has = single ? rsh_store_has(rsh_source_store(s), single, err) :
			   rsh_error_nomem(err);

	return has < 0 ? has :
	       has ? model_list_single(s, single, map, err) :
		     model_list_parts(s, map, err);
}

/* Lists the model of a directory without the usual names. */
static int hf_list_other_names(struct rsh_source *s, struct rsh_error *err)
{
	cleanup_free char *map = NULL, *file = NULL;
	size_t n_maps, n_files = 0;
	int rc = rsh_format_search(s, rsh_format_is_map, &map, &n_maps, err);

	if (rc == 0 && n_maps == 0)
		rc = rsh_format_search(s, rsh_format_may_hold_model, &file,
				       &n_files, err);
	if (rc)
		return rc;
	if (n_maps + n_files != 1)
		return rsh_error_set(err, ENOENT, "%s: the model in it was "
				     "removed, or another one came",
				     rsh_source_path(s));
	return map ? hf_list_map(s, map, err) :
		     model_list_single(s, file, NULL, err);
}

static int hf_open(struct rsh_source *s, const struct rsh_source_options *opts,
		   struct rsh_error *err)
{
	const struct rsh_store *store = rsh_source_store(s);
	const char *file = rsh_source_file(s);
	struct rsh_error unused = RSH_ERROR_INIT;
	int rc, single, map;

	(void)opts;
	if (file)
		return rsh_format_is_map(file) ?
		       model_list_parts(s, file, err) :
		       model_list_single(s, file, NULL, err);
	single = rsh_store_has(store, HF_SINGLE, err);
	if (single < 0)
		return single;
	/* Beside the one file a map that cannot be read is logged. */
	map = rsh_store_has(store, HF_MAP, single ? &unused : err);
	if (single)
		rc = model_list_single(s, HF_SINGLE, map ? HF_MAP : NULL, err);
	else
		rc = map < 0 ? map : map ? model_list_parts(s, HF_MAP, err) :
					   hf_list_other_names(s, err);
	if (rc == 0)
		model_tell_torch(s);
	return rc;
}

static int ms_parts_open(struct rsh_source *s,
			 const struct rsh_source_options *opts,
			 struct rsh_error *err)
{
	int rc = model_list_parts(s, MS_MAP, err);

	(void)opts;
	if (rc == 0)
		model_tell_torch(s);
	return rc;
}

/* ---- an adapter of PEFT ---- */

static int peft_bid(const struct rsh_look *l, struct rsh_bid_more *more)
{
	(void)more;
	return model_is_asked(l) && !l->file &&
	       rsh_look_has(l, RSH_ADAPTER_CONFIG_NAME) &&
	       rsh_look_has(l, RSH_ADAPTER_FILE_NAME) ? RSH_BID_MODEL - 2 :
							RSH_BID_NO;
}

static int peft_open(struct rsh_source *s,
		     const struct rsh_source_options *opts,
		     struct rsh_error *err)
{
	(void)opts;
	return model_list_single(s, RSH_ADAPTER_FILE_NAME, NULL, err);
}

#define MODEL                                                   \
	.says = "whole model", .layout = RSH_LAYOUT_WHOLE,      \
	.owner = RSH_OWNER_MODEL, .by_name = true,              \
	.words = RSH_WORDS_EITHER, .read = rsh_ranks_offer

const struct rsh_format rsh_hf_format = {
	MODEL,
	.name = "hf",
	.shown = RSH_SHOWN_HF_BESIDE,
	.bid = hf_bid,
	.open = hf_open,
	.judge = rsh_format_judge_model,
};

const struct rsh_format rsh_ms_parts_format = {
	MODEL,
	.name = "mindspore-parts",
	.bid = ms_parts_bid,
	.open = ms_parts_open,
};

const struct rsh_format rsh_peft_format = {
	.name = "peft",
	.says = "adapter of PEFT",
	.layout = RSH_LAYOUT_WHOLE,
	.owner = RSH_OWNER_MODEL,
	.by_name = true,
	.words = RSH_WORDS_EITHER,
	.is_adapter = true,
	.read = rsh_ranks_offer,
	.bid = peft_bid,
	.open = peft_open,
};
