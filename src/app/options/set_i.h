/* SPDX-License-Identifier: Apache-2.0 */
/* app/options/set_i.h declares the setters of options.  It is private to
 * app/options. */
#pragma once

#include "rsh/app/table.h"
#include "rsh/util/suggestion.h"

/* Sets the option, and records that it was given (list.c). */
rsh_option_setter rsh_option_take;

/* These set the member at `def->at`: a flag, any text, text that is not empty,
 * a path, a regular expression, faults, servers, a number from def->min to
 * def->max, a word of def->arg, the origin of a strategy. */
rsh_option_setter rsh_set_flag, rsh_set_text, rsh_set_string, rsh_set_path,
	rsh_set_regex, rsh_set_faults, rsh_set_servers, rsh_set_number,
	rsh_set_word, rsh_set_strategy;

/* These set a uint64_t of bytes, at least def->min, such as "64M" or "5GB";
 * rsh_set_memory also accepts a percentage of the machine's memory, such as
 * "10%". */
rsh_option_setter rsh_set_size, rsh_set_memory;

/* Sets milliseconds from a number of seconds. */
rsh_option_setter rsh_set_seconds;

/* Each of these sets the option that has its name. */
rsh_option_setter rsh_set_prefix, rsh_set_select, rsh_set_file, rsh_set_output,
	rsh_set_model_files, rsh_set_config, rsh_set_lora, rsh_set_index_cache,
	rsh_set_share, rsh_set_debug, rsh_set_log_to;

/* Sets the option of enum rsh_derive_option that `def->min` is. */
rsh_option_setter rsh_set_derive;

/* Sets options of libfuse or the kernel. */
rsh_option_setter rsh_set_mount_opt;
/* Accepts an option for behaviour that is always on. */
rsh_option_setter rsh_set_nothing;
rsh_option_setter rsh_refuse_rw;

/* Returns our word for that of another program, "float16" for "fp16"; it is in
 * capitals if it is an operand.  NULL: there is none. */
const char *rsh_other_word(const char *word, size_t n);
/* Writes " (did you mean --OPTION?)" for an unknown option, or "".  The words
 * before its name are "--" or "-o " if `before` is NULL. */
void rsh_option_guess(const struct rsh_command *command, const char *word,
		      size_t n, const char *before,
		      char text[RSH_SUGGESTION_BYTES]);
/* Returns whether an operand is no file but "name=value" of an option or of
 * another program's argument, and writes which option or operand that is. */
bool rsh_option_is_named(const struct rsh_command *command, const char *operand,
			 char text[RSH_SUGGESTION_BYTES]);

/* Writes the words "a|b|c" as "a, b or c". */
void rsh_words_put(char *to, size_t size, const char *words);
