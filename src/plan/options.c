/* SPDX-License-Identifier: Apache-2.0 */
/* plan/options.c has the options of struct rsh_plan_options. */
#include "config.h"

#include "rsh/plan/options.h"

#include <string.h>

#define AT(member) RSH_OPTION_AT(struct rsh_plan_options, member)

const struct rsh_plan_options rsh_plan_usual = { .replicas = true };

const unsigned rsh_floats_of_words[] = {
	RSH_DTYPE_BFLOAT16, RSH_DTYPE_FLOAT16, RSH_DTYPE_FLOAT32,
};

int rsh_set_float(const struct rsh_setting *s)
{
	static const char *const words[][2] = {
		{ "bf16", "bfloat16" }, { "fp16", "float16" },
		{ "half", "float16" }, { "fp32", "float32" },
	};
	struct rsh_setting type = *s;

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (strcmp(s->value, words[i][0]) == 0)
			type.value = words[i][1];
	return rsh_set_word(&type);
}

static const unsigned yes_no[] = { true, false };

const struct rsh_option rsh_plan_lost_rows[] = {
	{ "replicas", "auto|off",
	  "if a file is lost or damaged: read the data from ranks that hold "
	  "the same, or fail (default: auto)", rsh_set_word, .values = yes_no,
	  .converts = true, AT(replicas) },
	{ "allow-missing", NULL,
	  "if data is lost, fail only reads that need it", rsh_set_flag,
	  AT(allow_missing), .converts = true, .decides = RSH_DECIDES_VALUE,
	  .first = true },
	{ .name = NULL },
};

const struct rsh_option rsh_plan_rows[] = {
	{ "part-size", "SIZE",
	  "with hf, dcp or hyperparallel: maximum size of a file (default: "
	  "5GB; hyperparallel: 64MiB)", rsh_set_size, AT(part_bytes), .min = 1,
	  .decides = RSH_DECIDES_VALUE },
	{ "cast", "bfloat16|float16|float32",
	  "convert weights to this type (default: keep the type)", rsh_set_float,
	  .values = rsh_floats_of_words, AT(cast),
	  .decides = RSH_DECIDES_VALUE },
	{ "unlisted", "copy|drop|error",
	  "parameters that the destination does not list: copy them, drop "
	  "them, or fail (default: copy; with --convert: error)", rsh_set_word,
	  AT(unlisted), .decides = RSH_DECIDES_VALUE, .needs = "SOURCE",
	  .checks = true },
	{ "remove-redundancy", NULL,
	  "store each slice in the file of only one of the ranks that hold it",
	  rsh_set_flag, AT(remove_redundancy), .decides = RSH_DECIDES_VALUE },
	{ "compat", "mindspore",
	  "produce the bytes of MindSpore's converter, even if they are wrong",
	  rsh_set_word, .min = true, AT(compat), .decides = RSH_DECIDES_VALUE,
	  .excludes = "unlisted=drop|unlisted=error|only|drop|rename|cast|"
		      "remove-redundancy|convert|lora|lora-alpha|dequantize" },
	{ "dst-ranks", "N",
	  "number of ranks to show if neither side has a strategy (default: 1)",
	  rsh_set_number, AT(n_shown_ranks), .min = 1, .max = 1000000,
	  .decides = RSH_DECIDES_VALUE,
	  .excludes = "convert|lora|lora-alpha|dequantize" },
	{ .name = NULL },
};
