/* SPDX-License-Identifier: Apache-2.0 */
/* plan/param_kind.c has the list of names that MindSpore's optimizers give
 * their parameters. */
#include <string.h>

#include "rsh/plan/param_kind.h"

static bool has_prefix(const char *name, const char *const *prefixes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
			return true;
	return false;
}

bool rsh_is_weight(const char *name, uint32_t n_dims)
{
	static const char *const prefixes[] = {
		"adam_m.", "adam_v.", "accu_grads.", "moments.", "moment1.",
		"moment2.", "momentum.", "exp_avg.", "exp_avg_sq.",
		"accum.", "mean_square.", "mean_gradient.",
	};

	return n_dims > 0 &&
	       !has_prefix(name, prefixes,
			   sizeof(prefixes) / sizeof(prefixes[0]));
}

static bool is_counter(const char *name)
{
	static const char *const names[] = {
		"global_step", "learning_rate", "weight_decay", "beta1_power",
		"beta2_power", "scale_sense", "current_iterator_step",
		"last_overflow_iterator_step", "epoch_num", "step_num",
		"loss_scale", "global_batch_size",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(name, names[i]) == 0)
			return true;
	return false;
}

enum rsh_kind rsh_kind_of(const char *name)
{
	static const char *const gradient = "accu_grads.", *const muon =
		"muon_m.";

	if (has_prefix(name, &gradient, 1))
		return RSH_KIND_GRADIENT;
	if (is_counter(name))
		return RSH_KIND_COUNTER;
	return rsh_is_weight(name, 1) && !has_prefix(name, &muon, 1) ?
		RSH_KIND_WEIGHT : RSH_KIND_STATE;
}

bool rsh_is_flattened_state(const char *name)
{
	static const char *const prefixes[] = { "optimizer.", "optim." };

	return has_prefix(name, prefixes, 2);
}

bool rsh_is_optimizer_param(const char *written)
{
	const enum rsh_kind kind = rsh_kind_of(written);

	return kind == RSH_KIND_STATE || kind == RSH_KIND_COUNTER;
}
