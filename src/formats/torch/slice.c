/* SPDX-License-Identifier: Apache-2.0 */
/* formats/torch/slice.c recognises a file that has only one rank's part of a
 * model, by its content. */
#include "config.h"

#include "torch_i.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

int rsh_torch_refuse_part(struct rsh_torch_reader *r,
			  const struct rsh_pickle_class *class)
{
	return rsh_error_set(r->err, ENOTSUP, "%s: one rank's part of a model, "
			     "whose tensors are distributed (%.100s.%.100s): "
			     "SOURCE is the directory with the files of all "
			     "ranks (*.pt, *.pth or *.bin)", r->src.path,
			     class->module, class->name);
}

bool rsh_torch_is_part(const struct rsh_pickle_class *class)
{
	return strcmp(class->name, "_rebuild_wrapper_subclass") == 0 ||
	       strcmp(class->name, "DTensor") == 0 ||
	       strcmp(class->name, "ShardedTensor") == 0;
}

/* DeepSpeed says in each file which version wrote it. */
static int slice_check_deepspeed(const struct rsh_torch_reader *r,
				 const struct rsh_pickle_value *root)
{
	const struct rsh_pickle_value *states =
		rsh_pickle_find(root, "optimizer_state_dict");

	if (!rsh_pickle_find(root, "ds_version") &&
	    (!states ||
	     (!rsh_pickle_find(states, "single_partition_of_fp32_groups") &&
	      !rsh_pickle_find(states, "fp32_flat_groups"))))
		return 0;
	return rsh_error_set(r->err, ENOTSUP, "%s: one rank's part of a "
			     "checkpoint of DeepSpeed: SOURCE is the directory "
			     "with the files of all ranks, under the names "
			     "that DeepSpeed gave them", r->src.path);
}

/* Returns the size of args that is 1 if nothing is said about it. */
static int64_t slice_size(const struct rsh_pickle_value *args, const char *key)
{
	const struct rsh_pickle_value *v = rsh_pickle_find(args, key);

	return v && v->kind == RSH_PV_NUMBER ? v->number : 1;
}

/* Megatron-LM saves its model in slices with the arguments of the run, an
 * argparse.Namespace, from which the number of slices follows. */
static int slice_check_megatron(const struct rsh_torch_reader *r,
				const struct rsh_pickle_value *root)
{
	const struct rsh_pickle_value *args = rsh_pickle_find(root, "args");
	int64_t tensor, pipeline, expert;

	if (!rsh_pickle_find(root, "checkpoint_version") ||
	    !(rsh_pickle_find(root, "model") ||
	      rsh_pickle_find(root, "model0")))
		return 0;
	if (args && args->kind == RSH_PV_OBJECT)
		args = &args->object->state;
	if (!args || !rsh_pickle_find(args, "tensor_model_parallel_size"))
		return rsh_error_set(r->err, ENOTSUP, "%s: one rank's file of "
				     "Megatron-LM, and its args do not say "
				     "whether it has the whole model",
				     r->src.path);
	tensor = slice_size(args, "tensor_model_parallel_size");
	pipeline = slice_size(args, "pipeline_model_parallel_size");
	expert = slice_size(args, "expert_model_parallel_size");
	return tensor == 1 && pipeline == 1 && expert == 1 ? 0 :
	       rsh_error_set(r->err, ENOTSUP, "%s: one rank's slice of a model "
			     "of Megatron-LM: its args say tensor %" PRId64
			     ", pipeline %" PRId64 " and expert parallel size %"
			     PRId64 ": SOURCE is the directory of the "
			     "iteration, with the mp_rank directories of all "
			     "ranks", r->src.path, tensor, pipeline, expert);
}

int rsh_torch_check_whole(const struct rsh_torch_reader *r,
			  const struct rsh_pickle_value *root)
{
	return slice_check_deepspeed(r, root) ?: slice_check_megatron(r, root);
}
