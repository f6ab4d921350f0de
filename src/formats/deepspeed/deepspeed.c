/* SPDX-License-Identifier: Apache-2.0 */
/* formats/deepspeed/deepspeed.c - the format of checkpoints of DeepSpeed. */
#include "config.h"

#include "deepspeed_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/formats/files.h"
#include "rsh/formats/formats.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

/* ---- tensors ---- */

/* A file of an optimizer that made fewer steps than the job, beside those that
 * were skipped, may be that of an older save, from which the weights are then.
 * A job that goes on with a new optimizer has such files, too. */
static void warn_behind(const struct rsh_source_ds *st)
{
	const struct rsh_ds_head *h = st->head;

	for (uint32_t i = 0; i < st->all.n; i++) {
		const struct rsh_ds_file *f = st->all.files[i];

		if (st->listed[i].is.role != RSH_DS_OPTIMIZER ||
		    !f->zero.has_step ||
		    f->zero.step + h->skipped >= h->step)
			continue;
		rsh_log_warning("%s: %s is of step %" PRIu64 " of the "
				"optimizer, and %s of global step %" PRIu64
				" (%" PRIu64 " skipped): unless the optimizer "
				"was a new one, the weights are of another "
				"save", st->all.path, st->all.names[i],
				f->zero.step, st->all.names[st->model], h->step,
				h->skipped);
		return;
	}
}

static int ds_read(const struct rsh_read_job *job, struct rsh_offers *out,
		   struct rsh_error *err)
{
	const struct rsh_source_ds *st = rsh_source_state(job->source);
	int rc = rsh_joined_describe(rsh_source_state(job->source), err) ?:
		 rsh_joined_check(&st->all, job->opts, err) ?:
		 rsh_dcp_read(job, out, err);

	if (rc)
		return rc;
	/* What is not shown as it was saved. */
	if (st->from_module && !st->is_file)
		rsh_log(st->has_some ? RSH_LOG_WARNING : RSH_LOG_NOTICE,
			"%s: %s", st->all.path, st->from_module);
	else if (!st->is_file)
		warn_behind(st);
	if (st->extra)
		rsh_log_notice("%s: tensor %s is in no list of parameters, and "
			       "is shown as the module has it", st->all.path,
			       st->extra);
	if (*st->left_out)
		rsh_log(rsh_joined_wants_states(job->opts) ? RSH_LOG_WARNING :
							     RSH_LOG_NOTICE,
			"%s: %s", st->all.path, st->left_out);
	return 0;
}

/* ---- values ---- */

/* The values of a file. */
struct file_values {
	struct rsh_source_ds *st;
	enum rsh_ds_role role;
};

/* What says where tensors are, and what belongs to a job of one size, is not
 * shown.  Names those of the optimizer optimizer.param_groups.0.lr. */
static int value_take(void *ctx, const struct rsh_torch_value *v,
		      struct rsh_joined_value *out)
{
	const struct file_values *of = ctx;
	struct rsh_arena *arena = &of->st->all.arena;
	const char *first = v->n_keys ? v->keys[0].text : v->name;
	const char *rest = v->name, *last;
	const uint32_t n = v->n_keys;
	struct rsh_path_key *own;
	uint32_t i = 0;

	*out = (struct rsh_joined_value){ v->name, v->keys, n };
	if (of->role != RSH_DS_OPTIMIZER && of->role != RSH_DS_VALUES)
		return first && !rsh_is_any(
			first, "module", "buffer_names", "optimizer",
			"param_shapes", "frozen_param_shapes",
			"frozen_param_fragments", "shared_params", "ds_config",
			"ds_version", "dp_world_size", "mp_world_size",
			"checkpoint_parallel_dimensions",
			"sparse_tensor_module_names", "num_experts",
			"universal_checkpoint_info");
	/* Numbers of parameters have no meaning. */
	last = n > 0 ? v->keys[n - 1].text : NULL;
	if (n < 2 || (last && strcmp(last, "params") == 0))
		return 0;
	while (i + 1 < n && v->keys[i].text &&
	       rsh_is_any(v->keys[i].text, "optimizer_state_dict",
			  "base_optimizer_state"))
		rest += strlen(v->keys[i++].text) + 1;
	if (!v->keys[i].text || strcmp(v->keys[i].text, "param_groups") != 0)
		return 0;
	own = rsh_arena_array(arena, struct rsh_path_key, (size_t)n + 1);
	if (!own)
		return -ENOMEM;
	own[0].text = "optimizer";
	memcpy(own + 1, v->keys + i, (n - i) * sizeof(*own));
	*out = (struct rsh_joined_value){
		rsh_arena_format(arena, "optimizer.%s", rest), own, n - i + 1,
	};
	return out->name ? 1 : -ENOMEM;
}

/* The values are those of rank 0. */
static int ds_values(struct rsh_source *s, const struct rsh_plan_options *opts,
		     struct rsh_values *out, struct rsh_error *err)
{
	struct rsh_source_ds *st = rsh_source_state(s);
	struct file_values of = { st, RSH_DS_MODEL };
	int rc = rsh_joined_describe(&st->all, err);

	if (rc)
		return rc;
	rc = rsh_dcp_add_paths(st->all.dcp.pub, out) ?:
	     rsh_joined_values(&st->all, st->all.names[st->model], opts,
			       value_take, &of, out);
	of.role = RSH_DS_OPTIMIZER;
	for (uint32_t i = 0; i < st->all.n && rc == 0; i++)
		if (st->listed[i].is.role == RSH_DS_OPTIMIZER &&
		    st->listed[i].is.rank == 0)
			rc = rsh_joined_values(&st->all, st->all.names[i], opts,
					       value_take, &of, out);
	if (rc == 0 && st->is_universal && !st->from_module) {
		cleanup_free char *name = rsh_text_format(
			"%szero/optimizer_state.pt", st->all.dir);

		of.role = RSH_DS_VALUES;
		rc = name ? rsh_joined_values(&st->all, name, opts, value_take,
					      &of, out) : -ENOMEM;
	}
	rsh_values_sort_paths(out);
	return rc ? rsh_error_nomem(err) : 0;
}

/* ---- lists and checks ---- */

/* Each rank writes its file of the model, then that of the optimizer, under
 * their final names, and rank 0 then writes which step is the latest one. */
static int ds_judge(const struct rsh_source *s, bool ended,
		    struct rsh_error *err)
{
	const struct rsh_source_ds *st = rsh_source_state(s);
	size_t n = strlen(st->all.dir);
	cleanup_free char *latest = NULL;
	int rc = rsh_joined_judge_step(s, ended, err);

	if (rc || !ended || !st->lacks_optimizer)
		return rc;
	/* They may not be written yet, or were removed later. */
	while (n > 1 && st->all.dir[n - 2] != '/')
		n--;
	if (n == 0)
		return rsh_error_set(err, ENOENT, "files of the optimizer are "
				     "missing");
	latest = rsh_text_format("%.*s" RSH_DS_LATEST, (int)n - 1, st->all.dir);
	return latest ? rsh_format_check_marker(s, latest, err) :
			rsh_error_nomem(err);
}

/* Steps are directories.  The Trainer has the model's files beside them, and
 * others that belong to its job. */
static bool ds_is_beside(const char *name, bool is_dir)
{
	return !is_dir && !rsh_is_any(name, RSH_DS_LATEST,
				      RSH_DS_LATEST_UNIVERSAL,
				      "zero_to_fp32.py", "zero_to_torch.py",
				      "trainer_state.json");
}

/* ---- steps, for --resume ---- */

static enum rsh_part ds_step_part(const char *path, struct rsh_step_name *out)
{
	const char *file = rsh_step_dir_read(path, "global_step", out);
	struct rsh_ds_name is;

	if (!file)
		return RSH_PART_NO;
	return !*file || rsh_ds_name_read(file, &is) ? RSH_PART_YES :
						       RSH_PART_MAYBE;
}

/* Checks that each rank of a world has a file of a role. */
static int check_role(const char *const *names, size_t n, uint32_t world,
		      enum rsh_ds_role role, const char *path,
		      struct rsh_error *err)
{
	cleanup_free bool *has = calloc((size_t)world + 1, sizeof(*has));
	struct rsh_ds_name is;
	uint32_t rank;

	if (!has)
		return rsh_error_nomem(err);
	for (size_t i = 0; i < n; i++)
		if (rsh_ds_name_read(names[i], &is) && is.role == role &&
		    is.rank < world)
			has[is.rank] = true;
	rank = rsh_index(i, world, !has[i]);
	return rank == world ? 0 :
	       rsh_error_set(err, ENOENT, "%s: rank %u of %u has no such file",
			     path, rank, world);
}

/* Reads what a file of the optimizer says, without texts and arrays. */
static int read_optimizer(struct rsh_source_ds *st,
			  const struct rsh_byte_source *file,
			  struct rsh_ds_zero *out, struct rsh_error *err)
{
	void *read = NULL;
	int rc = rsh_ds_file_read(st, 0, file, false, NULL, &read, NULL, err);

	*out = (struct rsh_ds_zero){ .stage = 0 };
	if (rc == 0) {
		const struct rsh_ds_zero *z =
			&((struct rsh_ds_file *)read)->zero;

		out->world = z->world;
		out->has_step = z->has_step;
		out->step_group = z->step_group;
		out->step = z->step;
	}
	rsh_joined_file_free(read);
	return rc;
}

static int ds_step_check(const struct rsh_byte_source *files,
		      const char *const *names, size_t n, bool full,
		      struct rsh_counters *says, struct rsh_error *err)
{
	const char *model = NULL, *optimizer = NULL, *stated = NULL;
	struct rsh_ds_listed listed = { .param = NULL };
	struct rsh_source_ds st = { .listed = &listed };
	struct rsh_ds_zero first = { .stage = 0 }, z;
	uint32_t world = 0;
	struct rsh_ds_name is;
	bool is_3 = false;
	int rc = rsh_torch_check_files(files, names, n, full, says, err);

	for (size_t i = 0; i < n && rc == 0; i++) {
		if (!rsh_ds_name_read(names[i], &is))
			continue;
		if (is.role == RSH_DS_MODEL || is.role == RSH_DS_MODEL_PART)
			model = files[i].path;
		is_3 |= is.role == RSH_DS_MODEL_PART;
		if (is.role != RSH_DS_OPTIMIZER)
			continue;
		listed.is = is;
		rc = read_optimizer(&st, &files[i], &z, err);
		if (rc == 0 && stated && z.has_step &&
		    z.step_group == first.step_group && z.step != first.step)
			rc = rsh_error_set(err, EBADMSG, "%s: it is of step %"
					   PRIu64 " of the optimizer, and %s "
					   "is of step %" PRIu64,
					   files[i].path, z.step, stated,
					   first.step);
		if (!optimizer)
			world = z.world;
		optimizer = optimizer ? optimizer : files[i].path;
		if (!stated && z.has_step) {
			stated = files[i].path;
			first = z;
		}
	}
	if (rc == 0 && n > 0 && !model)
		rc = rsh_error_set(err, ENOENT, "%s: no file of a model is "
				   "beside it", files->path);
	if (rc || !optimizer)
		return rc;
	return check_role(names, n, world, RSH_DS_OPTIMIZER, optimizer, err) ?:
	       (is_3 ? check_role(names, n, world, RSH_DS_MODEL_PART, model,
				  err) : 0);
}

const struct rsh_format rsh_deepspeed_format = {
	RSH_JOINED_FORMAT,
	.name = "deepspeed",
	.says = "checkpoint of DeepSpeed",
	.beside = "..",
	.is_beside = ds_is_beside,
	.words = RSH_WORDS_EITHER,
	.bid = rsh_ds_bid,
	.open = rsh_ds_open,
	.choose = rsh_ds_choose,
	.judge = ds_judge,
	.read = ds_read,
	.values = ds_values,
	.framework = "DeepSpeed",
	.unlike_units = true,
	.part = ds_step_part,
	.latest_is_text = true,
	.check = ds_step_check,
};
