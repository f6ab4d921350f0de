/* SPDX-License-Identifier: Apache-2.0 */
/* app/options/set_i.h has what options do to struct rsh_options, for this room
 * only. */
#ifndef RSH_APP_SET_I_H
#define RSH_APP_SET_I_H

#include "rsh/app/table.h"

/* Does what the option does, and notes that it was given. */
rsh_option_setter rsh_option_take;

/* These set one member, the one at `def->at`: a flag, any text, text with
 * something in it, a path, a regular expression, faults, servers, a number from
 * def->min to def->max, a word of def->arg, where a strategy is from. */
rsh_option_setter rsh_set_flag, rsh_set_text, rsh_set_string, rsh_set_path,
	rsh_set_regex, rsh_set_faults, rsh_set_servers, rsh_set_number, rsh_set_word,
	rsh_set_strategy;

/* These set a uint64_t of bytes from def->min on, as "64M" or "5GB";
 * rsh_set_memory also takes "10%" of what the machine has. */
rsh_option_setter rsh_set_size, rsh_set_memory;

/* Sets a number of milliseconds by one of seconds. */
rsh_option_setter rsh_set_seconds;

/* Each of these is for the option of its name. */
rsh_option_setter rsh_set_prefix, rsh_set_select, rsh_set_file, rsh_set_output,
	rsh_set_model_files, rsh_set_config, rsh_set_index_cache, rsh_set_share,
	rsh_set_debug, rsh_set_log_to;

/* An option's `decides` may be one of these: they hash the bytes of a member, a
 * text, the content of the file that it names, or the format of an output. */
rsh_option_digester rsh_digest_value, rsh_digest_text, rsh_digest_file,
	rsh_digest_output;

/* Sets one of enum rsh_derive_option, the one at `def->min`. */
rsh_option_setter rsh_set_derive;

/* Takes -o, which has a list of options of this table (list.c). */
rsh_option_setter rsh_set_list;

/* Takes options that libfuse or the kernel understands. */
rsh_option_setter rsh_set_mount_opt;
/* Takes an option that asks for what is always so. */
rsh_option_setter rsh_set_nothing;
rsh_option_setter rsh_refuse_rw;

#endif
