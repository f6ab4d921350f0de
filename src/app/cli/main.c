/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/main.c has main() of reshardfs(1). */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "commands.h"
#include "rsh/app/commands.h"
#include "rsh/app/mount.h"
#include "rsh/app/options.h"
#include "rsh/fuse/server.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/memory_limits.h"
#include "rsh/util/text.h"
#include "rsh/util/version.h"

static int (*const commands[])(const struct rsh_options *o,
			       struct rsh_run *run) = {
	[RSH_COMMAND_UMOUNT] = rsh_umount,
	[RSH_COMMAND_LS] = rsh_ls,
	[RSH_COMMAND_PLAN] = rsh_plan,
	[RSH_COMMAND_EXPORT] = rsh_export_command,
	[RSH_COMMAND_VERIFY] = rsh_verify,
	[RSH_COMMAND_SHOW] = rsh_strategy_command,
	[RSH_COMMAND_MERGE] = rsh_strategy_command,
	[RSH_COMMAND_CHECK] = rsh_strategy_command,
	[RSH_COMMAND_DERIVE] = rsh_strategy_command,
	[RSH_COMMAND_INFER] = rsh_infer,
	[RSH_COMMAND_TABLES] = rsh_convert_command,
	[RSH_COMMAND_TABLE_SHOW] = rsh_convert_command,
	[RSH_COMMAND_TABLE_CHECK] = rsh_convert_command,
	[RSH_COMMAND_WARM] = rsh_warm,
	[RSH_COMMAND_STATS] = rsh_stats,
	[RSH_COMMAND_STEPS] = rsh_stats,
	[RSH_COMMAND_LIST] = rsh_list,
	[RSH_COMMAND_DOCTOR] = rsh_doctor,
	[RSH_COMMAND_COMPLETION] = rsh_completion,
	[RSH_COMMAND_HELP] = rsh_help,
};

/* If a standard stream is closed, the next file that is opened gets its number,
 * and the output or the log would be written to that file.  An O_PATH
 * descriptor can be neither read nor written, so printing still fails with an
 * error. */
static bool fill_standard_streams(void)
{
	cleanup_fd int fd = -1;

	do {
		fd = open("/", O_PATH);
	} while (fd >= 0 && fd <= STDERR_FILENO);
	return fd >= 0;
}

/* If the output could not be written, the command has failed. */
static enum rsh_exit finish_output(enum rsh_exit status)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return status;
	fprintf(stderr, "reshardfs: error: standard output: %s\n",
		strerror(errno));
	return status == RSH_EXIT_GOOD ? RSH_EXIT_IO : status;
}

static enum rsh_exit run_command(const struct rsh_options *o)
{
	struct rsh_run run = { .err = RSH_ERROR_INIT };
	int rc;

	if (o->command->id == RSH_COMMAND_MOUNT)
		return rsh_mount(o, rsh_plan_rank_text);
	rsh_printer_init(&run.out, o);
	rc = commands[o->command->id](o, &run);
	rc = rsh_printer_end(&run.out, rc, &run.err);
	return rc ? rsh_exit_failed(o, rc, &run.err) : run.status;
}

static enum rsh_exit run_or_help(const struct rsh_options *o)
{
	const bool helps = o->help || o->help_all;
	struct rlimit limit;
	int rc = 0;

	if (helps && o->unnamed) {
		rsh_help_program(stdout, o->help_all);
	} else if (helps) {
		rsh_help_command(stdout, o->command, o->help_all);
	} else if (o->version) {
		printf("reshardfs %s\nlibfuse %s\n", PACKAGE_VERSION,
		       rsh_server_library_version());
		if (*rsh_version_commit())
			printf("commit: %s\n", rsh_version_commit());
		if (*RSH_LACKS)
			printf("without: %s\n", RSH_LACKS);
	} else {
		rsh_log_set_level(o->log_level);
		if (o->log_to == RSH_LOG_TO_FILE)
			rc = rsh_log_to_file(o->log_file);
		else if (o->log_to == RSH_LOG_TO_SYSLOG)
			rsh_log_to_syslog();
		else if (o->log_to == RSH_LOG_TO_JOURNAL)
			rc = rsh_log_to_journal();
		/* The log still goes to standard error. */
		if (rc) {
			rsh_log_error("%s: %s", o->log_file ? o->log_file :
				      "the journal, " RSH_LOG_JOURNAL,
				      rc == -ENXIO ? "no process reads this pipe" :
				      strerror(-rc));
			return rsh_exit_of(rc);
		}
		/* A source of a thousand ranks has a thousand files. */
		if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
			limit.rlim_cur = limit.rlim_max;
			setrlimit(RLIMIT_NOFILE, &limit);
		}
		rsh_memory_save_addresses();
		return finish_output(run_command(o));
	}
	return finish_output(RSH_EXIT_GOOD);
}

static int run_program(int argc, char **argv)
{
	struct rsh_error err = RSH_ERROR_INIT;
	char shown[2 * RSH_ERROR_TEXT_MAX];
	struct rsh_options o;
	enum rsh_exit status = RSH_EXIT_USAGE;

	int rc = rsh_options_parse(argc, argv, &o, &err);

	rsh_log_set_json(o.log_json);
	if (rc == 0)
		status = run_or_help(&o);
	else if (o.look)
		status = rsh_exit_failed(&o, o.look, &err);
	else
		fprintf(stderr, "reshardfs: %s\n",
			rsh_text_put(shown, sizeof(shown), err.text));
	/* The help of `help` does not list the commands. */
	if (status == RSH_EXIT_USAGE && !o.unnamed &&
	    o.command->id != RSH_COMMAND_HELP)
		fprintf(stderr, "Try 'reshardfs %s --help'.\n",
			o.command->name);
	else if (status == RSH_EXIT_USAGE)
		fprintf(stderr, "Try 'reshardfs --help'.\n");
	rsh_options_clear(&o);
	return (int)status;
}

int main(int argc, char **argv)
{
	/* There is no stream for a message. */
	if (!fill_standard_streams())
		return RSH_EXIT_IO;
	/* What `ulimit -f` does not allow is an error of an export, EFBIG. */
	signal(SIGXFSZ, SIG_IGN);
	/* These commands only read, perhaps from a mount. */
	return argc > 2 && rsh_is_any(argv[1], "ls", "plan", "verify", "warm",
				      "stats") ?
		       rsh_supervise(argc, argv, run_program) :
		       run_program(argc, argv);
}
