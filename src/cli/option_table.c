/* cli/option_table.c - see option_table.h. */
#include "config.h"

#include "option_table.h"

#include <limits.h>

#include "option_set.h"

#define ALL RSH_IN_ALL
#define MOUNT RSH_IN(RSH_COMMAND_MOUNT)
/* What a conversion is made of and which files of SOURCE it takes. */
#define CONVERSIONS                                                  \
	(MOUNT | RSH_IN(RSH_COMMAND_LS) | RSH_IN(RSH_COMMAND_PLAN) | \
	 RSH_IN(RSH_COMMAND_EXPORT) | RSH_IN(RSH_COMMAND_VERIFY))
/* Those that have more to tell than whether they succeeded. */
#define PRINTS                                                     \
	(RSH_IN(RSH_COMMAND_LS) | RSH_IN(RSH_COMMAND_PLAN) |       \
	 RSH_IN(RSH_COMMAND_EXPORT) | RSH_IN(RSH_COMMAND_VERIFY) | \
	 RSH_IN(RSH_COMMAND_STRATEGY) | RSH_IN(RSH_COMMAND_WARM) | \
	 RSH_IN(RSH_COMMAND_STATS))

#define AT(member) offsetof(struct rsh_options, member)

static const struct rsh_option table[] = {
	{ "src-strategy", 0, "PATH|none", CONVERSIONS,
	  "the strategy SOURCE was trained under", rsh_set_path,
	  .at = AT(src_strategy) },
	{ "dst-strategy", 0, "PATH|none", CONVERSIONS,
	  "the strategy it is wanted in", rsh_set_path,
	  .at = AT(dst_strategy) },
	{ "prefix", 0, "STR", CONVERSIONS,
	  "virtual files are rank_N/STRN.ckpt (checkpoint_)", rsh_set_prefix },
	{ "compat", 0, "mindspore", CONVERSIONS,
	  "the converter's bytes, also where they are wrong", rsh_set_compat },
	{ "select", 0, "WHICH", CONVERSIONS,
	  "of several checkpoints: newest (default), a step E_S, mtime, "
	  "name=GLOB, mindspore", rsh_set_select },
	{ "breakpoint", 0, "include|only", CONVERSIONS,
	  "*_breakpoint.ckpt count (where there is nothing else)",
	  rsh_set_breakpoint },
	{ "check", 0, "structure|full", CONVERSIONS,
	  "what makes a file valid; full: its CRC as well (structure)",
	  rsh_set_check },
	{ "fallbacks", 0, "N", CONVERSIONS,
	  "older steps to try if one is not whole (5)", rsh_set_number,
	  .at = AT(fallbacks), .min = 0, .max = 1000000 },
	{ "rank-dir", 0, "TEMPLATE", CONVERSIONS,
	  "where a rank's files lie below SOURCE; {rank} is its number",
	  rsh_set_string, .at = AT(files.rank_dir) },
	{ "file", 0, "TEMPLATE", CONVERSIONS, "what their names are (*.ckpt)",
	  rsh_set_file, .at = AT(files.file) },
	{ "source-map", 0, "FILE.json", CONVERSIONS,
	  "the file of each rank: {\"0\": \"path\", ...}", rsh_set_string,
	  .at = AT(files.source_map) },
	{ "group-info", 0, "PATH", CONVERSIONS,
	  "group_info.pb to hold against the strategy", rsh_set_string,
	  .at = AT(group_info) },
	{ "replicas", 0, "auto|off", CONVERSIONS,
	  "make up for lost files from ranks that hold the same (auto)",
	  rsh_set_replicas },
	{ "allow-missing", 0, NULL, CONVERSIONS,
	  "take what can be had; files that need more give EIO", rsh_set_flag,
	  .at = AT(allow_missing) },
	{ "dst-ranks", 0, "N", CONVERSIONS,
	  "ranks shown of a job without any strategy (1)", rsh_set_number,
	  .at = AT(dst_ranks), .min = 1, .max = 1000000 },
	{ "unlisted", 0, "copy|drop|error", CONVERSIONS,
	  "records that the destination does not list (copy)",
	  rsh_set_unlisted },
	{ "only", 0, "REGEX", CONVERSIONS, "just parameters with such names",
	  rsh_set_text, .at = AT(only) },
	{ "drop", 0, "REGEX", CONVERSIONS, "no parameters with such names",
	  rsh_set_text, .at = AT(drop) },
	{ "rename", 0, "FILE", CONVERSIONS,
	  "JSON of old and new parameter names", rsh_set_text,
	  .at = AT(rename) },
	{ "cast", 0, "bfloat16|float16|float32", CONVERSIONS,
	  "weights as such", rsh_set_cast },
	{ "format", 0, "ckpt|safetensors|hf", CONVERSIONS,
	  "form of what is shown (ckpt)", rsh_set_format },
	{ "part-size", 0, "SIZE", CONVERSIONS,
	  "with hf: bytes of a part at most (5GB)", rsh_set_size,
	  .at = AT(part_bytes) },
	{ "remove-redundancy", 0, NULL, CONVERSIONS,
	  "each parameter with one rank of those that hold the same",
	  rsh_set_flag, .at = AT(remove_redundancy) },
	{ "resume", 0, NULL, MOUNT,
	  "convert nothing, show each rank's newest whole checkpoint",
	  rsh_set_flag, .at = AT(resume) },
	{ "foreground", 'f', NULL, MOUNT, "stay in the foreground",
	  rsh_set_flag, .at = AT(foreground) },
	{ "debug", 'd', NULL, MOUNT, "log every request; implies -f",
	  rsh_set_debug },
	{ NULL, 'o', "OPT[,OPT...]", CONVERSIONS,
	  "any long option of these, with '_' for '-', as mount(8) has them",
	  rsh_set_list },
	{ "lazy", 'z', NULL, RSH_IN(RSH_COMMAND_UMOUNT),
	  "also if it is in use: gone from the tree now, ended later",
	  rsh_set_flag, .at = AT(lazy) },
	{ "rank-list", 0, NULL, RSH_IN(RSH_COMMAND_PLAN),
	  "print the lists of rank_list_for_transform; SOURCE is not read",
	  rsh_set_flag, .at = AT(rank_list) },
	{ "rate", 0, "SIZE", RSH_IN(RSH_COMMAND_PLAN),
	  "bytes a second that the source is taken to give (1GB)",
	  rsh_set_size, .at = AT(rate) },

	{ "json", 0, NULL, PRINTS, "print JSON, for programs", rsh_set_flag,
	  .at = AT(json) },
	{ "color", 0, "auto|always|never", PRINTS,
	  "colours (auto: on a terminal)", rsh_set_color },
	{ "log-file", 0, "PATH", ALL, "append the log to PATH", rsh_set_path,
	  .at = AT(log_file) },
	{ "log-level", 0, "error|warning|notice|info|debug", ALL,
	  "how much is logged (notice)", rsh_set_log_level },
	{ "quiet", 'q', NULL, ALL, "say nothing but what went wrong",
	  rsh_set_flag, .at = AT(quiet) },
	{ "version", 'V', NULL, ALL, "print the version", rsh_set_flag,
	  .at = AT(version) },
	{ "help", 'h', NULL, ALL, "print this", rsh_set_flag, .at = AT(help) },

	{ "allow_other", 0, NULL, MOUNT, "other users may look in",
	  rsh_set_mount_opt, .bare = true },
	{ "allow_root", 0, NULL, MOUNT, "root may look in", rsh_set_mount_opt,
	  .bare = true },
	{ "auto_unmount", 0, NULL, MOUNT, "unmount when the daemon dies",
	  rsh_set_mount_opt, .bare = true },
	{ "default_permissions", 0, NULL, MOUNT, "always so", rsh_set_nothing,
	  .bare = true },
	{ "ro", 0, NULL, MOUNT, "always so", rsh_set_nothing, .bare = true },
	{ "rw", 0, NULL, MOUNT, "refused", rsh_refuse_rw, .bare = true },
	{ "fsname", 0, "NAME", MOUNT, "device shown by df (SOURCE)",
	  rsh_set_text, .bare = true, .at = AT(fsname) },
	{ "subtype", 0, "NAME", MOUNT, "type shown is fuse.NAME (reshardfs)",
	  rsh_set_text, .bare = true, .at = AT(subtype) },
	{ "max_read", 0, "BYTES", MOUNT, "longest read request", rsh_set_number,
	  .bare = true, .at = AT(max_read), .min = 4096, .max = UINT_MAX },
	{ "max_threads", 0, "N", MOUNT, "most threads that serve requests",
	  rsh_set_number, .bare = true, .at = AT(max_threads), .min = 1,
	  .max = 100000 },
	{ "max_idle_threads", 0, "N", MOUNT, "idle ones that are kept",
	  rsh_set_number, .bare = true, .at = AT(max_idle_threads), .min = 1,
	  .max = 100000 },
	{ "clone_fd", 0, NULL, MOUNT, "a /dev/fuse descriptor for each thread",
	  rsh_set_flag, .bare = true, .at = AT(clone_fd) },
	{ "suid", 0, NULL, MOUNT, "see mount(8), here and below",
	  rsh_set_mount_opt, .bare = true },
	{ "nosuid", 0, NULL, MOUNT, "", rsh_set_mount_opt, .bare = true },
	{ "dev", 0, NULL, MOUNT, "", rsh_set_mount_opt, .bare = true },
	{ "nodev", 0, NULL, MOUNT, "", rsh_set_mount_opt, .bare = true },
	{ "exec", 0, NULL, MOUNT, "", rsh_set_mount_opt, .bare = true },
	{ "noexec", 0, NULL, MOUNT, "", rsh_set_mount_opt, .bare = true },
	{ "atime", 0, NULL, MOUNT, "", rsh_set_mount_opt, .bare = true },
	{ "noatime", 0, NULL, MOUNT, "", rsh_set_mount_opt, .bare = true },
	{ "sync", 0, NULL, MOUNT, "", rsh_set_mount_opt, .bare = true },
	{ "async", 0, NULL, MOUNT, "", rsh_set_mount_opt, .bare = true },
	{ "dirsync", 0, NULL, MOUNT, "", rsh_set_mount_opt, .bare = true },
	{ "context", 0, "CONTEXT", MOUNT, "", rsh_set_mount_opt, .bare = true },
	{ "fscontext", 0, "CONTEXT", MOUNT, "", rsh_set_mount_opt,
	  .bare = true },
	{ "defcontext", 0, "CONTEXT", MOUNT, "", rsh_set_mount_opt,
	  .bare = true },
	{ "rootcontext", 0, "CONTEXT", MOUNT, "", rsh_set_mount_opt,
	  .bare = true },
};

const struct rsh_option *rsh_option_table(size_t *n)
{
	*n = sizeof(table) / sizeof(table[0]);
	return table;
}
