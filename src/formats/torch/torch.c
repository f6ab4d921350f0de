/* SPDX-License-Identifier: Apache-2.0 */
/* formats/torch/torch.c - two formats of PyTorch's own files: a single file (or
 * a directory that has only one), and models in the layouts of transformers and
 * Meta. */
#include "config.h"

#include "torch_i.h"

#include <stdio.h>
#include <string.h>

#include "rsh/formats/files.h"
#include "rsh/formats/formats.h"

/* The file's name is shown for SOURCE. */
static void torch_step_text(const struct rsh_source *s, uint32_t i, char *text,
			    size_t size)
{
	const struct rsh_source_torch *t = rsh_source_state(s);

	(void)i;
	snprintf(text, size, "%s", t->n == 1 ? t->names[0] : "the model");
}

/* While Megatron-Core and the Trainer write a step, it can have one file of
 * PyTorch that is not the model. */
static int torch_file_whole(const struct rsh_source *s, struct rsh_error *err)
{
	const struct rsh_source_torch *t = rsh_source_state(s);

	if (rsh_source_file(s))
		return 0;
	if (t->n == 1 && strcmp(t->names[0], "common.pt") == 0)
		return rsh_format_check_marker(s, "metadata.json", err);
	return rsh_format_model_whole(s, err);
}

#define TORCH                                                              \
	.layout = RSH_LAYOUT_WHOLE, .owner = RSH_OWNER_MODEL, .lone = true, \
	.any_type = true, .any_copy = true, .close = rsh_torch_close,      \
	.scan = rsh_torch_scan, .fits = rsh_torch_fits,                    \
	.has_crc = rsh_torch_has_crc, .step_text = torch_step_text,        \
	.read = rsh_torch_read, .values = rsh_torch_values,                \
	.each = rsh_torch_each, .list = rsh_torch_list,                    \
	.verify = rsh_torch_verify

const struct rsh_format rsh_torch_format = {
	TORCH,
	.name = "torch",
	.says = "checkpoint of PyTorch",
	.shown = RSH_SHOWN_HF,
	.bid = rsh_torch_file_bid,
	.hint = rsh_torch_hint,
	.open = rsh_torch_file_open,
	.whole = torch_file_whole,
	.resume = &rsh_torch_resume,
};

const struct rsh_format rsh_torch_model_format = {
	TORCH,
	.name = "torch-model",
	.says = "whole model",
	.shown = RSH_SHOWN_HF_BESIDE,
	.words = RSH_WORDS_EITHER,
	.bid = rsh_torch_model_bid,
	.open = rsh_torch_model_open,
	.whole = rsh_format_model_whole,
};
