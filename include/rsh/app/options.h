/* SPDX-License-Identifier: Apache-2.0 */
/* app/options.h offers the command line to all commands and to libreshard, as
 * one struct that is filled once and only read afterwards.
 *
 * Threads: one thread fills the struct; afterwards any thread may read it.  Its
 * pointers point to memory of argv, of the caller or of the struct itself;
 * rsh_options_clear() frees what the struct owns.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "rsh/fuse/server.h"
#include "rsh/plan/plan.h"
#include "rsh/storage/objects.h"
#include "rsh/util/arena.h"
#include "rsh/util/error.h"
#include "rsh/util/log.h"
#include "rsh/vfs/vfs.h"

struct rsh_command;

/* This is the destination of the log. */
enum rsh_log_to {
	RSH_LOG_TO_AUTO, /* stderr, and syslog once there is a daemon */
	/* these in the order of --log-to */
	RSH_LOG_TO_STDERR,
	RSH_LOG_TO_SYSLOG,
	RSH_LOG_TO_JOURNAL,
	RSH_LOG_TO_FILE, /* the one at log_file */
};

enum rsh_color { RSH_COLOR_AUTO, RSH_COLOR_ALWAYS, RSH_COLOR_NEVER };

/* This is an option as it was given on the command line. */
struct rsh_given {
	const char *name;
	const char *value; /* NULL: the option takes none */
	size_t at;         /* its position on the command line */
};

struct rsh_options {
	const struct rsh_command *command; /* or its form */
	bool unnamed; /* the name of the command was left out */
	/* If one of these is set, that text is printed and nothing else is
	 * done. */
	bool help, help_all, version;
	/* These are the operands of the command line; they point into argv. */
	char **operands;
	unsigned n_operands;
	bool json;
	bool quiet;
	enum rsh_color color;

	/* This has SOURCE and the wanted result.  Once the options are settled
	 * it is ready for rsh_vfs_open(). */
	struct rsh_vfs_config vfs;
	struct rsh_objects_options objects; /* to which vfs points */
	/* This is the format that SOURCE itself shows; NULL: SOURCE does not
	 * show one, or a strategy or names of files decide. */
	const struct rsh_format *format;
	int look; /* -errno if the command line was refused because SOURCE could
		   * not be looked at */
	const char *mountpoint;
	const char *checkpoint; /* NULL: not given, as for those below */
	const char *output;
	bool resume;
	bool steps; /* SOURCE is a directory of steps, which are all shown */
	unsigned steps_interval; /* ms; 0: not given */
	/* With `steps`: `vfs` as it was before anything depended on what SOURCE
	 * is.  Each step is a SOURCE of its own. */
	struct rsh_vfs_config asked;
	const char *wait; /* the step that `steps` waits for; NULL: none */
	const char *directory; /* OUTDIR */
	const char *manifest;
	unsigned jobs;         /* 0: not given */
	bool verify;
	bool overwrite;
	unsigned share, n_shares; /* n_shares: 0: not given */
	const char *write_manifest;
	bool lazy;
	bool all_mounts;
	bool force;
	bool rank_list;
	bool slices;
	const char *picture; /* file to draw into; NULL: none */
	bool contents;
	bool foreground;
	bool stack;
	bool allow_non_empty;
	bool no_sandbox;
	enum rsh_log_to log_to;
	const char *log_file; /* NULL: none */
	bool log_json;
	enum rsh_log_level log_level;

	struct rsh_server_options server;
	struct rsh_store_io_options io;
	uint64_t keep_free;
	unsigned holder; /* a file descriptor, 0: none */

	/* These are the given options, in order; values point into argv and
	 * `memory`. */
	struct rsh_given *given;
	size_t n_given, cap_given;

	/* This has what the strings above point to if it is not in argv. */
	struct rsh_arena memory;
};

/* Reads argv, which is reordered and kept, not copied.  Returns 0, or -EINVAL
 * with a sentence that names the option.  `command` is set in any case, and
 * rsh_options_clear() must be called.  If `help`, `help_all` or `version` is
 * set, nothing else was checked. */
int rsh_options_parse(int argc, char **argv, struct rsh_options *o,
		      struct rsh_error *err);
void rsh_options_clear(struct rsh_options *o);

/* ---- the same without a command line ---- */

/* rsh_options_init() sets the defaults, except those that depend on SOURCE or
 * on other options.  rsh_check_conversion() and then rsh_options_finish() set
 * these. */
void rsh_options_init(struct rsh_options *o);
void rsh_options_finish(struct rsh_options *o);
/* Sets one option of o->command, "name" or "name=value" as in -o; `given` is
 * copied.  Returns 0, or -EINVAL or -ENOMEM with a sentence. */
int rsh_options_set(struct rsh_options *o, const char *given,
		    struct rsh_error *err);

/* Sets *out to the options of a mount of one step, whose strings must outlive
 * it; `store` says how the step is opened.  The caller clears the memory of
 * *out, also after a failure.  Returns 0, or -errno with a sentence. */
struct rsh_saved_step;
int rsh_options_of_step(const struct rsh_options *o,
			const struct rsh_saved_step *step,
			const struct rsh_store_options *store,
			struct rsh_options *out, struct rsh_error *err);

/* Returns whether the option of that name was given. */
bool rsh_option_given(const struct rsh_options *o, const char *name);

/* Returns "none", "derived", "metadata.json" or the path; NULL if no strategy
 * was given. */
const char *rsh_strategy_text(const struct rsh_strategy_at *at);

/* Returns whether the strategies of both sides of a conversion are given. */
static inline bool rsh_options_convert(const struct rsh_options *o)
{
	return o->vfs.src.from && o->vfs.dst.from;
}

/* ---- the exit status ---- */

enum rsh_exit {
	RSH_EXIT_GOOD = 0,
	RSH_EXIT_NO = 1,    /* the command worked; its result is negative */
	RSH_EXIT_USAGE = 2, /* the command line is wrong */
	RSH_EXIT_INPUT = 3, /* an input is absent or not valid */
	RSH_EXIT_IO = 4,    /* the system refused: I/O, permission, memory */
};

/* Returns the exit status for 0 or -errno. */
enum rsh_exit rsh_exit_of(int rc);

/* Writes the error to standard error and the log; returns the exit status for
 * `rc`. */
enum rsh_exit rsh_exit_failed(const struct rsh_options *o, int rc,
			      const struct rsh_error *err);

/* ---- operands that name ranks, "3" or "4-7" ---- */

/* Checks that the operands from number `skip` on are ranks.  Returns 0, or
 * -EINVAL with a sentence. */
int rsh_ranks_check(const struct rsh_options *o, unsigned skip,
		    struct rsh_error *err);
/* Marks in wanted[0..n) the ranks that the operands from number `skip` on name,
 * or all ranks if there are no such operands.  Returns 0, or -EINVAL with a
 * sentence if a rank does not exist. */
int rsh_ranks_mark(const struct rsh_options *o, unsigned skip, uint32_t n,
		   bool *wanted, struct rsh_error *err);
/* Marks the files of the ranks that the operands from number `skip` on name, in
 * an array by the files of a plan.  The caller owns the array (from malloc).
 * Returns 0, -EINVAL or -ENOMEM with a sentence. */
int rsh_ranks_mark_files(const struct rsh_options *o, unsigned skip,
			 const struct rsh_plan *plan, bool **wanted,
			 struct rsh_error *err);

/* ---- command lines to paste into a shell ---- */

/* Any thread may call these.  The caller owns what they return (from
 * malloc). */

/* Makes the command line of a command with the operands (the array ends with
 * NULL) and those given options that the command takes.  If it is not the
 * command that was called, options that do not change what a mount shows are
 * left out.  The line can be printed on a terminal.  NULL: out of memory. */
char *rsh_options_line(const struct rsh_options *o,
		       const struct rsh_command *command,
		       const char *const *operands);

/* ---- the digest of a conversion, for manifests ---- */

/* Hashes all options that decide about the bytes, except the strategies and the
 * options that choose files of SOURCE: manifests compare the content of those.
 * The options must be settled; `store` is SOURCE's.  Returns 0, or -errno with
 * a sentence about a file that cannot be read. */
int rsh_options_digest(const struct rsh_vfs_config *cfg,
		       const struct rsh_store *store, uint64_t *digest,
		       struct rsh_error *err);
