/* SPDX-License-Identifier: Apache-2.0 */
/* app/options/table.c has the list of all lists of options, and the options
 * that belong to no other file. */
#include "config.h"

#include "rsh/app/table.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "options_i.h"
#include "rsh/copy/copy.h"

#define EXPORT RSH_IN(RSH_COMMAND_EXPORT)
/* These commands process all bytes of a tree. */
#define WORKS (EXPORT | RSH_IN(RSH_COMMAND_VERIFY))
/* These commands read content. */
#define READS (RSH_MOUNTS | WORKS | RSH_IN(RSH_COMMAND_LIBRARY))
#define CHECK RSH_IN(RSH_COMMAND_CHECK)
#define DERIVE RSH_IN(RSH_COMMAND_DERIVE)
#define INFER RSH_IN(RSH_COMMAND_INFER)
#define TABLE_CHECK RSH_IN(RSH_COMMAND_TABLE_CHECK)
/* These commands print more than success or failure. */
#define PRINTS                                                          \
	(RSH_IN(RSH_COMMAND_LS) | RSH_IN(RSH_COMMAND_PLAN) | WORKS |    \
	 RSH_IN(RSH_COMMAND_WARM) | RSH_IN(RSH_COMMAND_STATS) |         \
	 RSH_IN(RSH_COMMAND_STEPS) | RSH_IN(RSH_COMMAND_LIST) |         \
	 RSH_IN(RSH_COMMAND_DOCTOR) |                                   \
	 RSH_IN(RSH_COMMAND_SHOW) | CHECK |                             \
	 INFER | RSH_IN(RSH_COMMAND_TABLES) | TABLE_CHECK)
/* These commands read files of a SOURCE. */
#define TREES (RSH_CONVERSIONS | CHECK | DERIVE | INFER | TABLE_CHECK)

static int set_share(const struct rsh_setting *s)
{
	struct rsh_options *o = s->base;
	unsigned i, n;
	int end = 0;

	if (strspn(s->value, "0123456789/") < strlen(s->value) ||
	    sscanf(s->value, "%5u/%5u%n", &i, &n, &end) != 2 ||
	    s->value[end] || i >= n)
		return rsh_error_set(s->err, EINVAL, "%s: \"%s\" is not a "
				     "share such as 0/4, the first of four, or "
				     "3/4, the last", s->def->name, s->value);
	o->share = i;
	o->n_shares = n;
	return 0;
}

static int set_log_to(const struct rsh_setting *s)
{
	static const char file[] = "file:";
	struct rsh_options *o = s->base;
	const bool is_file = strncmp(s->value, file, strlen(file)) == 0;
	const int i = rsh_option_word(s);

	/* The last word is "file:PATH". */
	if (!is_file && (i < 0 || i == RSH_LOG_TO_FILE - 1))
		return rsh_option_refuse_word(s);
	o->log_to = is_file ? RSH_LOG_TO_FILE : (enum rsh_log_to)(i + 1);
	o->log_file = is_file ? s->value + strlen(file) : NULL;
	return is_file && !*o->log_file ?
		rsh_error_set(s->err, EINVAL, "%s: the path is empty",
			      s->def->name) : 0;
}

static const struct rsh_option mode_rows[] = {
	{ "resume", NULL,
	  "convert nothing; show the newest checkpoint that is complete on "
	  "all ranks", rsh_set_flag, RSH_AT(resume), .first = true,
	  .excludes = "steps=all|select=mindspore" },
	{ "steps", "one|all",
	  "all: show every step of SOURCE in a directory, while a job saves "
	  "(default: one)", rsh_set_word, RSH_AT(steps), .first = true,
	  .excludes = "select|fallbacks|source-map|compat|"
		      "io-mode=passthrough" },
	{ .name = NULL },
};

static const struct rsh_option mount_rows[] = {
	{ "foreground", NULL, "run in the foreground", rsh_set_flag,
	  RSH_AT(foreground), .aside = true, .first = true, .letter = 'f' },
	{ "stack", NULL,
	  "mount again even if SOURCE is mounted there with the same options",
	  rsh_set_flag, RSH_AT(stack), .aside = true },
	{ "allow-non-empty", NULL,
	  "hide the files of a MOUNTPOINT that is not empty", rsh_set_flag,
	  RSH_AT(allow_non_empty), .aside = true },
	{ "sandbox", "auto|off",
	  "sandbox the daemon with landlock and seccomp, as far as the kernel "
	  "has them (default: auto)", rsh_set_word, RSH_AT(no_sandbox) },
	{ "steps-interval", "SECONDS",
	  "with --steps all: time between looks at SOURCE (default: 2; 30 on "
	  "networks)", rsh_set_number, RSH_AT(steps_interval), .min = 1,
	  .max = 86400, .unit = 1000, .needs = "steps=all" },
	{ "debug", NULL, "log every request; implies -f", rsh_set_flag,
	  RSH_AT(server.debug), .aside = true, .letter = 'd' },
	{ .name = NULL },
};

static const struct rsh_option derive_rows[] = {
	{ "output", "FILE", "file to write", rsh_set_text, RSH_AT(output),
	  .first = true, .letter = 'o',
	  .commands = RSH_IN(RSH_COMMAND_MERGE) | DERIVE, .must = true },
	{ "mesh", "MESH", "mesh to derive: dp=2,mp=4[,pp=2][,ep=4]",
	  rsh_set_derive, RSH_AT(vfs.derive), .min = RSH_DERIVE_MESH,
	  .first = true, .must = true },
	{ "checkpoint", "SOURCE",
	  "checkpoint saved with STRATEGY: shapes and order of its parameters "
	  "are used", rsh_set_text, RSH_AT(checkpoint), .first = true,
	  .is_source = true, .commands = CHECK | DERIVE,
	  .needs = "src-strategy" },
	{ .name = NULL },
};

static const struct rsh_option work_rows[] = {
	{ NULL, "OPT[,OPT...]", "comma-separated options, as in fstab",
	  .first = true, .letter = 'o', .commands = RSH_CONVERSIONS },
	{ "wait", "STEP",
	  "wait until this step is complete: its name or number (default: "
	  "list all)", rsh_set_text, RSH_AT(wait), .first = true,
	  .commands = RSH_IN(RSH_COMMAND_STEPS) },
	{ "jobs", "N", "files to process in parallel (default: CPUs)",
	  rsh_set_number, RSH_AT(jobs), .min = 1, .max = RSH_COPY_JOBS_MAX,
	  .first = true, .letter = 'j', .commands = WORKS },
	{ "verify", NULL, "read back each file and compare its hash",
	  rsh_set_flag, RSH_AT(verify), .first = true, .commands = EXPORT },
	{ "overwrite", NULL, "replace existing files of another conversion",
	  rsh_set_flag, RSH_AT(overwrite), .first = true, .commands = WORKS },
	{ "share", "I/N",
	  "process only share I, 0 to N-1, of N shares (default: everything)",
	  set_share, .commands = EXPORT | RSH_IN(RSH_COMMAND_WARM) },
	{ "manifest", "PATH",
	  "manifest to write (default: OUTDIR/reshardfs-manifest.jsonl)",
	  rsh_set_text, RSH_AT(manifest), .commands = EXPORT },
	{ "write-manifest", "PATH",
	  "write a manifest of what a mount would show", rsh_set_text,
	  RSH_AT(write_manifest), .first = true,
	  .commands = RSH_IN(RSH_COMMAND_VERIFY) },
	{ "lazy", NULL,
	  "unmount even if in use: the daemon ends when the last user is done",
	  rsh_set_flag, RSH_AT(lazy), .letter = 'z',
	  .commands = RSH_IN(RSH_COMMAND_UMOUNT) },
	{ "force", NULL,
	  "unmount even if SOURCE hangs: reads fail, the daemon is ended",
	  rsh_set_flag, RSH_AT(force), .commands = RSH_IN(RSH_COMMAND_UMOUNT) },
	{ "all", NULL, "unmount all mounts of this user (root: of all users)",
	  rsh_set_flag, RSH_AT(all_mounts), .letter = 'a',
	  .commands = RSH_IN(RSH_COMMAND_UMOUNT) },
	{ "all", NULL, "list also the mounts of other users (root: always)",
	  rsh_set_flag, RSH_AT(all_mounts), .letter = 'a',
	  .commands = RSH_IN(RSH_COMMAND_LIST) },
	{ "rank-list", NULL,
	  "print what rank_list_for_transform returns; SOURCE is not read",
	  rsh_set_flag, RSH_AT(rank_list), .first = true,
	  .commands = RSH_IN(RSH_COMMAND_PLAN),
	  .excludes = "convert|lora|lora-alpha|dequantize" },
	{ "slices", NULL,
	  "with --json: print the slices of each tensor and where their bytes "
	  "are", rsh_set_flag, RSH_AT(slices),
	  .commands = RSH_IN(RSH_COMMAND_PLAN) },
	{ "picture", "FILE",
	  "draw the plan into this .svg, .png or .pdf with matplotlib (default: "
	  "print it)",
	  rsh_set_text, RSH_AT(picture), .commands = RSH_IN(RSH_COMMAND_PLAN),
	  .excludes = "json|rank-list" },
	{ "contents", NULL, "read the files completely, to fill the caches",
	  rsh_set_flag, RSH_AT(contents), .letter = 'c',
	  .commands = RSH_IN(RSH_COMMAND_WARM) },
	{ "jobs", "N", "files to read in parallel (default: 4)", rsh_set_number,
	  RSH_AT(jobs), .min = 1, .max = 64, .letter = 'j',
	  .commands = RSH_IN(RSH_COMMAND_WARM) },
	{ .name = NULL },
};

static const struct rsh_option reading_rows[] = {
	{ "keep-free", "SIZE|N%",
	  "drop cached pages of SOURCE if less memory is free (default: 1.25 "
	  "times the largest file and 256MiB)", rsh_set_size, RSH_AT(keep_free),
	  .commands = READS },
	{ "readahead", "N",
	  "MiB of SOURCE to read in parallel, 1 to 16 (default: 16, or fewer "
	  "if that is faster)", rsh_set_number, RSH_AT(server.readahead),
	  .min = 1, .max = 16, .commands = RSH_MOUNTS | WORKS },
	{ .name = NULL },
};

static const struct rsh_option message_rows[] = {
	{ "json", NULL, "print JSON", rsh_set_flag, RSH_AT(json), .first = true,
	  .commands = PRINTS },
	{ "color", "auto|always|never",
	  "use colors (default: auto, on a terminal)", rsh_set_word,
	  RSH_AT(color), .commands = PRINTS },
	{ "log-to", "stderr|syslog|journal|file:PATH",
	  "where to write the log (default: stderr; syslog for a daemon)",
	  set_log_to, RSH_AT(log_to), .aside = true },
	{ "log-format", "text|json",
	  "how a line of the log on stderr or in a file is written (default: "
	  "text)", rsh_set_word, .aside = true, RSH_AT(log_json) },
	{ "log-level", "error|warning|notice|info|debug",
	  "lowest level to log (default: notice; warning for plan, export and "
	  "verify, error for ls)", rsh_set_word, .aside = true,
	  RSH_AT(log_level) },
	{ "quiet", NULL, "log only errors", rsh_set_flag, RSH_AT(quiet),
	  .aside = true, .letter = 'q' },
	{ "version", NULL, "print the version", rsh_set_flag, RSH_AT(version),
	  .letter = 'V' },
	{ "help", NULL, "print the most important options", rsh_set_flag,
	  RSH_AT(help), .letter = 'h' },
	{ "help-all", NULL, "print all options", rsh_set_flag,
	  RSH_AT(help_all) },
	{ .name = NULL },
};

static const struct rsh_option holder_rows[] = {
	{ "holder", "FD",
	  "unmount when all other ends of the pipe FD are closed",
	  rsh_set_number, RSH_AT(holder), .min = 3, .max = INT_MAX },
	{ .name = NULL },
};

#define IN(member) offsetof(struct rsh_options, member)

static const struct rsh_option_list lists[] = {
	{ "Source and destination", rsh_vfs_strategy_rows, IN(vfs),
	  RSH_CONVERSIONS, .checks = CHECK | TABLE_CHECK, .converts = true },
	{ NULL, rsh_weights_rows, IN(vfs.weights), RSH_CONVERSIONS,
	  .checks = TABLE_CHECK, .converts = true },
	{ NULL, mode_rows, 0, RSH_MOUNTS },
	{ "Strategy files", derive_rows, 0, DERIVE },
	{ NULL, rsh_derive_rows, IN(vfs.derive), DERIVE },
	{ "Files of SOURCE", rsh_source_rows, IN(vfs.files), TREES,
	  .needs = "checkpoint|SOURCE" },
	{ "Checks and lost files", rsh_source_check_rows, IN(vfs.files),
	  RSH_CONVERSIONS },
	{ NULL, rsh_plan_lost_rows, IN(vfs.plan), RSH_CONVERSIONS },
	{ NULL, rsh_vfs_fallback_rows, IN(vfs), RSH_CONVERSIONS },
	{ "Output", rsh_vfs_output_rows, IN(vfs), RSH_CONVERSIONS,
	  .converts = true },
	{ NULL, rsh_plan_rows, IN(vfs.plan), RSH_CONVERSIONS,
	  .checks = TABLE_CHECK, .converts = true },
	{ NULL, rsh_choice_rows, IN(vfs.choice), RSH_CONVERSIONS | INFER,
	  .converts = true },
	{ "Operation", mount_rows, 0, RSH_MOUNTS },
	{ NULL, work_rows, 0 },
	{ "Reading and caches", rsh_server_rows, IN(server), RSH_MOUNTS },
	{ NULL, rsh_source_cache_rows, IN(vfs.files), RSH_CONVERSIONS },
	{ NULL, reading_rows, 0 },
	{ NULL, rsh_store_io_rows, IN(io), READS },
	{ NULL, rsh_objects_rows, IN(objects), TREES },
	{ "Messages", message_rows, 0, RSH_IN_ALL },
	{ "Mount options, only with -o", holder_rows, 0, RSH_MOUNTS,
	  .bare = true },
	{ NULL, rsh_server_mount_rows, IN(server),
	  RSH_MOUNTS, .bare = true },
	{ "Mount options that mount(8) explains, only with -o",
	  rsh_server_kernel_rows, IN(server),
	  RSH_MOUNTS, .bare = true },
};

bool rsh_option_next(struct rsh_option_at *at)
{
	if (at->list)
		at->row++;
	else
		*at = (struct rsh_option_at){ lists, lists->rows };
	while (!at->row->name && !at->row->letter) {
		if (++at->list == lists + sizeof(lists) / sizeof(*lists))
			return false;
		at->row = at->list->rows;
	}
	return true;
}

bool rsh_option_next_of(const struct rsh_command *command,
			struct rsh_option_at *at)
{
	while (rsh_option_next(at))
		if (rsh_option_commands(at) & rsh_command_bits(command))
			return true;
	return false;
}

bool rsh_option_find(const struct rsh_command *command, const char *name,
		     size_t n, struct rsh_option_at *at)
{
	*at = (struct rsh_option_at){ .list = NULL };
	while (rsh_option_next_of(command, at))
		if (at->row->name &&
		    rsh_suggestion_same(at->row->name, name, n))
			return true;
	return false;
}
