/* SPDX-License-Identifier: Apache-2.0 */
/* formats/deepspeed/names.c parses the names of DeepSpeed's files.  "pp_rank"
 * in them is the data parallel rank. */
#include "config.h"

#include "deepspeed_i.h"

#include <string.h>

#include "rsh/util/files.h"
#include "rsh/util/text.h"

bool rsh_ds_name_read(const char *name, struct rsh_ds_name *out)
{
	/* Texts and numbers; R: the rank, T: that of tensor parallel, L: the
	 * layer, E: the expert */
	static const struct {
		enum rsh_ds_role role;
		const char *form;
	} kinds[] = {
		{ RSH_DS_MODEL, "mp_rank_T_model_states.pt" },
		{ RSH_DS_MODEL_PART,
		  "zero_pp_rank_R_mp_rank_T_model_states.pt" },
		{ RSH_DS_OPTIMIZER,
		  "zero_pp_rank_R_mp_rank_T_optim_states.pt" },
		{ RSH_DS_OPTIMIZER,
		  "bf16_zero_pp_rank_R_mp_rank_T_optim_states.pt" },
		{ RSH_DS_EXPERT,
		  "layer_L_expert_E_mp_rank_T_model_states.pt" },
		{ RSH_DS_EXPERT, "expert_E_mp_rank_T_model_states.pt" },
		{ RSH_DS_EXPERT_OPTIMIZER,
		  "expp_rank_R_mp_rank_T_optim_states.pt" },
		{ RSH_DS_PIPELINE, "layer_L-model_T-model_states.pt" },
	};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		const char *form = kinds[i].form, *at = name;

		*out = (struct rsh_ds_name){ .role = kinds[i].role };
		for (; *form; form++) {
			uint32_t *number = *form == 'R' ? &out->rank :
					   *form == 'T' ? &out->tensor :
					   *form == 'L' ? &out->layer :
					   *form == 'E' ? &out->expert : NULL;
			const size_t n = number ?
				rsh_count_digits(at, strlen(at)) : 1;
			uint64_t v;

			if (number ? !rsh_digits_read(at, n, RSH_DS_RANKS_MAX,
						      &v) : *at != *form)
				break;
			if (number)
				*number = (uint32_t)v;
			at += n;
		}
		if (!*form && !*at)
			return true;
	}
	return false;
}

bool rsh_ds_name_is_model(const char *name)
{
	struct rsh_ds_name is;

	return rsh_ds_name_read(name, &is) &&
	       (is.role == RSH_DS_MODEL || is.role == RSH_DS_MODEL_PART ||
		is.role == RSH_DS_PIPELINE);
}

bool rsh_ds_step_read(const char *name, uint64_t *step)
{
	static const char universal[] = "_universal";
	size_t end = strlen(name), n = 0;

	if (rsh_has_suffix(name, universal))
		end -= strlen(universal);
	while (n < end && rsh_count_digits(name + end - n - 1, 1) == 1)
		n++;
	return rsh_number_read(name + end - n, n, step);
}
