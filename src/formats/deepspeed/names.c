/* SPDX-License-Identifier: Apache-2.0 */
/* formats/deepspeed/names.c parses the names of DeepSpeed's files.  "pp_rank"
 * in them is the data parallel rank. */
#include "config.h"

#include "deepspeed_i.h"

#include <string.h>

#include "rsh/util/files.h"
#include "rsh/util/text.h"

#define MODEL_STATES "_model_states.pt"
#define OPTIM_STATES "_optim_states.pt"

/* Skips a text.  Returns false if it is not there. */
static bool skip_text(const char **at, const char *text)
{
	const size_t n = strlen(text);

	if (strncmp(*at, text, n) != 0)
		return false;
	*at += n;
	return true;
}

static bool skip_number(const char **at, uint32_t *out)
{
	const size_t n = rsh_count_digits(*at, strlen(*at));
	uint64_t number;

	if (!rsh_digits_read(*at, n, RSH_DS_RANKS_MAX, &number))
		return false;
	*out = (uint32_t)number;
	*at += n;
	return true;
}

/* Reads "mp_rank_00" and the end of the name. */
static bool read_end(const char *at, const char *end, struct rsh_ds_name *out)
{
	return skip_text(&at, "mp_rank_") && skip_number(&at, &out->tensor) &&
	       strcmp(at, end) == 0;
}

static bool read_expert(const char *at, struct rsh_ds_name *out)
{
	out->role = RSH_DS_EXPERT;
	if (skip_text(&at, "layer_") &&
	    (!skip_number(&at, &out->layer) || !skip_text(&at, "_")))
		return false;
	return skip_text(&at, "expert_") && skip_number(&at, &out->expert) &&
	       skip_text(&at, "_") && read_end(at, MODEL_STATES, out);
}

static bool read_pipeline(const char *at, struct rsh_ds_name *out)
{
	out->role = RSH_DS_PIPELINE;
	return skip_text(&at, "layer_") && skip_number(&at, &out->layer) &&
	       skip_text(&at, "-model_") && skip_number(&at, &out->tensor) &&
	       strcmp(at, "-model_states.pt") == 0;
}

static bool read_zero(const char *at, struct rsh_ds_name *out)
{
	const bool bf16 = skip_text(&at, "bf16_");

	if (!skip_text(&at, "zero_pp_rank_") || !skip_number(&at, &out->rank) ||
	    !skip_text(&at, "_"))
		return false;
	out->role = RSH_DS_MODEL_PART;
	if (!bf16 && read_end(at, MODEL_STATES, out))
		return true;
	out->role = RSH_DS_OPTIMIZER;
	return read_end(at, OPTIM_STATES, out);
}

static bool read_expert_optimizer(const char *at, struct rsh_ds_name *out)
{
	out->role = RSH_DS_EXPERT_OPTIMIZER;
	return skip_text(&at, "expp_rank_") && skip_number(&at, &out->rank) &&
	       skip_text(&at, "_") && read_end(at, OPTIM_STATES, out);
}

bool rsh_ds_name_read(const char *name, struct rsh_ds_name *out)
{
	*out = (struct rsh_ds_name){ .role = RSH_DS_MODEL };
	return read_end(name, MODEL_STATES, out) || read_zero(name, out) ||
	       read_expert(name, out) || read_expert_optimizer(name, out) ||
	       read_pipeline(name, out);
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
