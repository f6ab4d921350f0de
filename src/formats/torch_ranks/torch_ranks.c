/* SPDX-License-Identifier: Apache-2.0 */
/* formats/torch_ranks/torch_ranks.c - the format of files of torch.save() that
 * each have one rank's part of a model. */
#include "config.h"

#include "torch_ranks_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/formats/files.h"
#include "rsh/formats/formats.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

/* ---- tensors ---- */

/* Logs the ranks that have no file of the model, but whose parts others
 * have. */
static void tell_missing(const struct rsh_source_ranks *st)
{
	uint32_t n = 0, first = 0;

	for (uint32_t rank = 0; rank < st->world; rank++) {
		bool has = false;

		for (uint32_t i = 0; i < st->all.n && !has; i++)
			has = rsh_ranks_role_of(st, i) == RSH_RANKS_MODEL &&
			      st->listed[i].rank == rank && st->all.files[i];
		if (!has && n++ == 0)
			first = rank;
	}
	if (n > 0)
		rsh_log_notice("%s: %u of %u ranks have no file of the model "
			       "that can be read, such as rank %u; what they "
			       "have is read from other ranks", st->all.path, n,
			       st->world, first);
}

/* PEFT puts its adapters beside the weights of the model, under other names. */
static void tell_peft(const struct rsh_source_ranks *st)
{
	const struct rsh_dcp *d = st->all.dcp.pub;
	const uint32_t i = rsh_index(
		k, d->n_tensors,
		rsh_begins_any(d->tensors[k].name, "base_model.model."));

	if (i < d->n_tensors)
		rsh_log_notice("%s: names are those of a model of PEFT, such "
			       "as %s: --rename gives tensors other names",
			       st->all.path, d->tensors[i].name);
}

static int ranks_read(const struct rsh_read_job *job, struct rsh_offers *out,
		      struct rsh_error *err)
{
	struct rsh_source_ranks *st = rsh_source_state(job->source);
	const struct rsh_plan_options *o = job->opts;
	struct rsh_error model = RSH_ERROR_INIT, states = RSH_ERROR_INIT;
	int rc = rsh_joined_describe(&st->all, err);

	if (rc)
		return rc;
	/* Nobody knows what files have of which none can be read, and what a
	 * rank has that shares no tensor with another one. */
	rsh_ranks_judge_files(st, false, &model);
	rsh_ranks_judge_files(st, true, &states);
	if (model.code)
		return rsh_error_set(err, model.code, "%s", model.text);
	if (states.code && rsh_joined_wants_states(o))
		return rsh_error_set(err, states.code, "%s (--drop "
				     "'^optimizer\\.' leaves it out)",
				     states.text);
	rc = rsh_joined_check(&st->all, o, err) ?: rsh_dcp_read(job, out, err);
	if (rc)
		return rc;
	tell_missing(st);
	tell_peft(st);
	if (rsh_joined_tell_states(&st->all))
		return rsh_error_nomem(err);
	if (st->is_flat)
		rsh_log(rsh_joined_wants_states(o) ? RSH_LOG_WARNING :
						     RSH_LOG_NOTICE,
			"%s: the state of the optimizer is that of flat "
			"parameters of FSDP1, and is left out", st->all.path);
	return 0;
}

/* ---- values ---- */

/* The values of an item, or of a file without one (UINT32_MAX). */
struct item_values {
	struct rsh_source_ranks *st;
	uint32_t item;
};

/* Of an optimizer the numbers of its parameters are not shown, of other files
 * no random states, which differ between ranks by right. */
static int value_take(void *ctx, const struct rsh_torch_value *v,
		      struct rsh_joined_value *out)
{
	const struct item_values *of = ctx;
	struct rsh_source_ranks *st = of->st;

	*out = (struct rsh_joined_value){ v->name, v->keys, v->n_keys };
	if (of->item == UINT32_MAX)
		return strcmp(v->name, "rng") != 0 &&
		       strncmp(v->name, "rng.", 4) != 0;
	if (st->items[of->item].role == RSH_RANKS_OPTIMIZER &&
	    (rsh_ranks_is_params(v) ||
	     (st->is_flat && strncmp(v->name, "state.", 6) == 0)))
		return 0;
	return rsh_ranks_name_show(st, of->item, v->name, v->keys, v->n_keys,
				   &st->all.arena, out) ?: 1;
}

/* The values are those of the lowest rank of each item. */
static int ranks_values(struct rsh_source *s,
			const struct rsh_plan_options *opts,
			struct rsh_values *out, struct rsh_error *err)
{
	struct rsh_source_ranks *st = rsh_source_state(s);
	struct item_values of = { st, 0 };
	int rc = rsh_joined_describe(&st->all, err);

	if (rc)
		return rc;
	rc = rsh_dcp_add_paths(st->all.dcp.pub, out);
	for (; of.item < st->n_items && rc == 0; of.item++) {
		const uint32_t i = rsh_ranks_lowest(st, of.item);

		if (i < st->all.n && !st->listed[i].described)
			rc = rsh_joined_values(&st->all, st->all.names[i], opts,
					       value_take, &of, out);
	}
	of.item = UINT32_MAX;
	if (rc == 0 && st->values)
		rc = rsh_joined_values(&st->all, st->values, opts, value_take,
				       &of, out);
	rsh_values_sort_paths(out);
	return rc ? rsh_error_nomem(err) : 0;
}

/* ---- steps, for --resume ---- */

/* The files of a step that are not of ranks: verl's and SkyRL's. */
static bool is_of_step(const char *name)
{
	return rsh_is_any(name, "data.pt", "trainer_state.pt");
}

/* Knows "global_step_5/", "global_step_5/actor/" and the files in both. */
static enum rsh_part step_part(const char *path, struct rsh_step_name *out)
{
	const char *unit = rsh_step_dir_read(path, RSH_RANKS_STEP, out), *file;
	struct rsh_ranks_name parts;

	if (!unit)
		return RSH_PART_NO;
	file = strchr(unit, '/');
	if (!*unit)
		return RSH_PART_YES;
	if (!file)
		return is_of_step(unit) ? RSH_PART_YES : RSH_PART_MAYBE;
	if (!file[1])
		return rsh_begins_any(unit, "actor/", "policy/", "critic/",
				      "ref/") ? RSH_PART_YES : RSH_PART_NO;
	return rsh_ranks_name_read(file + 1, &parts) ? RSH_PART_YES :
						       RSH_PART_MAYBE;
}

/* Checks that each rank of a world has a file of that role, or none has. */
static int check_role(const char *const *names, size_t n, uint32_t world,
		      enum rsh_ranks_role role, bool may_lack,
		      const char *path, struct rsh_error *err)
{
	cleanup_free bool *has = calloc((size_t)world + 1, sizeof(*has));
	struct rsh_ranks_name parts;
	uint32_t rank, found = 0;

	if (!has)
		return rsh_error_nomem(err);
	for (size_t i = 0; i < n; i++)
		if (rsh_ranks_name_read(names[i], &parts) &&
		    parts.world == world && parts.role == role) {
			has[parts.rank] = true;
			found++;
		}
	rank = rsh_index(i, world, !has[i]);
	return rank == world || (may_lack && found == 0) ? 0 :
	       rsh_error_set(err, ENOENT, "%s: rank %u of %u has no such file",
			     path, rank, world);
}

static int step_check(const struct rsh_byte_source *files,
		    const char *const *names, size_t n, bool full,
		    struct rsh_counters *says, struct rsh_error *err)
{
	static const enum rsh_ranks_role roles[] = {
		RSH_RANKS_MODEL, RSH_RANKS_OPTIMIZER, RSH_RANKS_VALUES,
	};
	struct rsh_error wrong = RSH_ERROR_INIT;
	struct rsh_source_ranks *st;
	struct rsh_ranks_name parts;
	cleanup_names struct rsh_names *all = NULL;
	uint32_t world = 0;
	int rc = 0;

	for (size_t i = 0; i < n && rc == 0; i++) {
		const bool is = rsh_ranks_name_read(names[i], &parts);

		if (!is && is_of_step(names[i]))
			rc = rsh_torch_check_files(&files[i], &names[i], 1,
						   full, says, err);
		if (is && world && parts.world != world)
			return rsh_error_set(err, EINVAL, "%s: files of %u and "
					     "of %u ranks are side by side",
					     files[i].path, world, parts.world);
		world = is ? parts.world : world;
	}
	for (size_t i = 0; i < 3 && rc == 0 && world; i++)
		rc = check_role(names, n, world, roles[i], i > 0,
				files->path, err);
	if (rc || !world)
		return rc;
	all = rsh_names_new();
	st = rsh_joined_new(&rsh_ranks_files, sizeof(*st), NULL, n);
	if (rsh_ranks_state_init(st, n) == 0)
		st->all.bytes = rsh_arena_array(
			&st->all.arena, const struct rsh_byte_source *, n);
	rc = all && st && st->all.bytes ? 0 : rsh_error_nomem(err);
	for (size_t i = 0; i < n && rc == 0; i++) {
		struct rsh_ckpt_index *ix = NULL;
		uint32_t file;

		if (!rsh_ranks_name_read(names[i], &parts))
			continue;
		/* Of values nothing is described. */
		if (parts.role == RSH_RANKS_VALUES) {
			rc = rsh_torch_check_files(&files[i], &names[i], 1,
						   full, says, err);
			continue;
		}
		file = rsh_joined_add_file(&st->all, names[i]);
		if (file == RSH_DCP_NO_FILE) {
			rc = rsh_error_nomem(err);
			break;
		}
		st->world = world;
		st->all.bytes[file] = &files[i];
		st->listed[file] = (struct rsh_ranks_listed){
			.rank = parts.rank,
			.item = parts.role == RSH_RANKS_OPTIMIZER,
			.at = parts.at, .n = parts.n,
		};
		rc = rsh_ranks_file_read(st, file, &files[i], full, all,
					 &st->all.files[file], &ix, err);
		if (rc == 0 && ix->n_unsummed)
			rsh_step_say_unsummed(files[i].path);
		rsh_ckpt_index_free(ix);
	}
	rc = rc ?: rsh_joined_describe(&st->all, err);
	if (rc == 0 && (rsh_joined_judge(&st->all, false, &wrong) ||
			rsh_joined_judge(&st->all, true, &wrong)))
		rc = rsh_error_nomem(err);
	if (rc == 0 && wrong.code)
		rc = rsh_error_set(err, wrong.code, "%s", wrong.text);
	rsh_joined_free(st);
	return rc;
}

const struct rsh_format rsh_torch_ranks_format = {
	RSH_JOINED_FORMAT,
	.name = "torch-ranks",
	.says = "checkpoint with a file of PyTorch for each rank",
	.below = "actor", /* of verl */
	.beside = "huggingface",
	.words = RSH_WORDS_EITHER,
	.bid = rsh_ranks_bid,
	.open = rsh_ranks_open,
	.choose = rsh_ranks_choose,
	.judge = rsh_joined_judge_step,
	.read = ranks_read,
	.values = ranks_values,
	.framework = "verl",
	.unlike_units = true,
	.tracked = RSH_RANKS_STEP,
	.part = step_part,
	.check = step_check,
};
