/* SPDX-License-Identifier: Apache-2.0 */
/* plan/param_kind.c has the list of names that MindSpore's optimizers give
 * their parameters. */
#include <string.h>

#include "rsh/plan/param_kind.h"

/* Returns whether the first n bytes of a name, or if `begins` is true the begin
 * of it, are one of the words, which end with NULL. */
static bool is_of(const char *name, size_t n, bool begins,
		  const char *const *words)
{
	for (; *words; words++)
		if (strncmp(name, *words, strlen(*words)) == 0 &&
		    (begins || strlen(*words) == n))
			return true;
	return false;
}

bool rsh_kind_is_state_beside(const char *name, size_t length)
{
	static const char *const prefixes[] = {
		"linear.", "stat.", "moment.", "prev.", "step_size.", "ax.",
		"ax_.", "mu_", "eta_", NULL
	};

	return is_of(name, length, false, prefixes);
}

enum rsh_kind rsh_kind_of(const char *name)
{
	static const char *const gradients[] = { "accu_grads.", NULL };
	static const char *const counters[] = {
		"global_step", "learning_rate", "weight_decay", "beta1_power",
		"beta2_power", "scale_sense", "current_iterator_step",
		"last_overflow_iterator_step", "epoch_num", "step_num",
		"loss_scale", "global_batch_size", "state_step", "step_t",
		"afactor_step", "cov_step", "momentum", "fake_lr",
		"fake_param", NULL
	};
	/* Names of MindSpore 2.10.0 (nn.optim, mint.optim, experimental.optim)
	 * and of mindformers 2.1.0 that are no usual names of modules. */
	static const char *const states[] = {
		"adam_m.", "adam_v.", "moments.", "moment1.", "moment2.",
		"momentum.", "momentum_buf.", "exp_avg.", "exp_avg_sq.",
		"max_exp_avg_sq.", "exp_inf.", "accum.", "accum_update.",
		"mean_square.", "mean_gradient.", "mean_grad.", "lamb_m.",
		"lamb_v.", "vhat.", "muon_m.", "main_param.",
		"pma_weight_ema.", "pma_weight_sma.",
		"exp_avg_sq_", "exp_avg_insta_", "mu_product_", NULL
	};

	return is_of(name, 0, true, gradients) ? RSH_KIND_GRADIENT :
	       is_of(name, strlen(name), false, counters) ? RSH_KIND_COUNTER :
	       is_of(name, 0, true, states) ? RSH_KIND_STATE : RSH_KIND_WEIGHT;
}

bool rsh_is_flattened_state(const char *name)
{
	static const char *const prefixes[] = { "optimizer.", "optim.", NULL };

	return is_of(name, 0, true, prefixes);
}
