/* SPDX-License-Identifier: Apache-2.0 */
/* app/options/output.c has the options of what is written. */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "options_i.h"

const unsigned rsh_types_of_words[] = {
	RSH_DTYPE_BFLOAT16, RSH_DTYPE_FLOAT16, RSH_DTYPE_FLOAT32,
};

int rsh_set_type(const struct rsh_setting *s)
{
	const char *ours = rsh_other_word(s->value, strlen(s->value));
	struct rsh_setting type = *s;

	if (ours)
		type.value = ours;
	return rsh_set_word(&type);
}

static int set_output(const struct rsh_setting *s)
{
	const struct rsh_output *output = rsh_output_find(s->value);

	if (!output)
		return rsh_option_refuse_word(s);
	*(const struct rsh_output **)s->to = output;
	return 0;
}

/* The converter refuses more, since it joins the prefix to a path.  Here only
 * the prefixes are refused that do not make the plain name of a file. */
static int check_prefix(const char *value, struct rsh_error *err)
{
	if (strchr(value, '/') || value[0] == '.' || strstr(value, ".."))
		return rsh_error_set(err, EINVAL, "prefix: \"%s\" must not "
				     "contain '/' or \"..\" or begin with "
				     "'.'", value);
	for (const char *c = value; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			return rsh_error_set(err, EINVAL, "prefix: the value "
					     "contains a control character");
	return 0;
}

const struct rsh_option rsh_output_rows[] = {
	{ "format", RSH_OUTPUT_WORDS,
	  "output format (default: ckpt; hf for models)", set_output,
	  .decides = RSH_DECIDES_OUTPUT, RSH_AT(vfs.output), .first = true },
	{ "part-size", "SIZE",
	  "with hf, dcp or hyperparallel: maximum size of a file (default: "
	  "5GB; hyperparallel: 64MiB)", rsh_set_size,
	  RSH_AT(vfs.plan.part_bytes), .min = 1, .decides = RSH_DECIDES_VALUE },
	{ "model-files", "DIR|none",
	  "with hf: also show files of DIR such as config.json (default: "
	  "none; SOURCE for a Hugging Face model)", rsh_set_text, .opens = true,
	  RSH_AT(vfs.model_files), .none = "none" },
	{ "optimizer", "auto|keep",
	  "with hf: leave out optimizer states, or keep them (default: auto)",
	  rsh_set_word, RSH_AT(vfs.keep_states),
	  .decides = RSH_DECIDES_VALUE },
	{ "prefix", "STR",
	  "show files as rank_N/STRN.ckpt (default: checkpoint_); with "
	  "megatron: name of the step, iter_N (default: release)", rsh_set_text,
	  .decides = RSH_DECIDES_TEXT, RSH_AT(vfs.tree.prefix),
	  .check = check_prefix, .may_be_empty = true },
	{ "rename", "FILE",
	  "JSON file that maps old parameter names to new ones", rsh_set_text,
	  RSH_AT(vfs.rename), .decides = RSH_DECIDES_FILE, .opens = true,
	  .may_be_empty = true, .once = true },
	{ "cast", "bfloat16|float16|float32",
	  "convert weights to this type (default: keep the type)", rsh_set_type,
	  .values = rsh_types_of_words, .decides = RSH_DECIDES_VALUE,
	  RSH_AT(vfs.plan.cast) },
	{ "unlisted", "copy|drop|error",
	  "parameters that the destination does not list: copy them, drop "
	  "them, or fail (default: copy; with --convert: error)", rsh_set_word,
	  .decides = RSH_DECIDES_VALUE, RSH_AT(vfs.plan.unlisted),
	  .commands = RSH_CONVERSIONS | RSH_IN(RSH_COMMAND_TABLE_CHECK),
	  .needs = "SOURCE" },
	{ "remove-redundancy", NULL,
	  "store each slice in the file of only one of the ranks that hold it",
	  rsh_set_flag, RSH_AT(vfs.plan.remove_redundancy),
	  .decides = RSH_DECIDES_VALUE },
	{ "compat", "mindspore",
	  "produce the bytes of MindSpore's converter, even if they are wrong",
	  rsh_set_word, .decides = RSH_DECIDES_VALUE, .min = true,
	  RSH_AT(vfs.plan.compat),
	  .excludes = "unlisted=drop|unlisted=error|only|drop|rename|cast|"
		      "remove-redundancy|convert|lora|lora-alpha|dequantize" },
	{ .name = NULL },
};
