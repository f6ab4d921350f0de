/* SPDX-License-Identifier: Apache-2.0 */
/* plan/param_kind.c has the list of names that MindSpore's optimizers give
 * their parameters. */
#include <string.h>

#include "rsh/plan/param_kind.h"
#include "rsh/util/text.h"

bool rsh_kind_is_state_beside(const char *name, size_t length)
{
	static const char *const prefixes[] = {
		"linear.", "stat.", "moment.", "prev.", "step_size.", "ax.",
		"ax_.", "mu_", "eta_",
	};

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		if (strlen(prefixes[i]) == length &&
		    strncmp(name, prefixes[i], length) == 0)
			return true;
	return false;
}

enum rsh_kind rsh_kind_of(const char *name)
{
	if (rsh_begins_any(name, "accu_grads."))
		return RSH_KIND_GRADIENT;
	if (rsh_is_any(name, "global_step", "learning_rate", "weight_decay",
		       "beta1_power", "beta2_power", "scale_sense",
		       "current_iterator_step", "last_overflow_iterator_step",
		       "epoch_num", "step_num", "loss_scale",
		       "global_batch_size", "state_step", "step_t",
		       "afactor_step", "cov_step", "momentum", "fake_lr",
		       "fake_param"))
		return RSH_KIND_COUNTER;
	/* Names of MindSpore 2.10.0 (nn.optim, mint.optim, experimental.optim)
	 * and of mindformers 2.1.0 that are no usual names of modules. */
	return rsh_begins_any(
		name, "adam_m.", "adam_v.", "moments.", "moment1.", "moment2.",
		"momentum.", "momentum_buf.", "exp_avg.", "exp_avg_sq.",
		"max_exp_avg_sq.", "exp_inf.", "accum.", "accum_update.",
		"mean_square.", "mean_gradient.", "mean_grad.", "lamb_m.",
		"lamb_v.", "vhat.", "muon_m.", "main_param.",
		"pma_weight_ema.", "pma_weight_sma.", "exp_avg_sq_",
		"exp_avg_insta_", "mu_product_") ?
		RSH_KIND_STATE : RSH_KIND_WEIGHT;
}

bool rsh_is_flattened_state(const char *name)
{
	return rsh_begins_any(name, "optimizer.", "optim.", "optimizers.",
			      "optimizer_state_dict.", "optimizer_state.",
			      "optimizer_states.", "optim_state_dict.",
			      "optim_state.", "optim_states.");
}

bool rsh_is_job_state(const char *name, bool keyed)
{
	return rsh_begins_any(name, "lr_scheduler.", "lr_schedulers.",
			      "lr_scheduler_state_dict.",
			      "lr_scheduler_states.", "scheduler_state_dict.",
			      "scaler_state_dict.") ||
	       (keyed && rsh_begins_any(name, "callbacks.", "loops."));
}
