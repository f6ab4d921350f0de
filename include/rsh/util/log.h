/* SPDX-License-Identifier: Apache-2.0 */
/* util/log.h - the program's log.
 *
 * A process has one log.  It goes to stderr by default, or to a file, to syslog
 * or to systemd's journal.  A line is "reshardfs: <level>: <text>"; in a file
 * it begins with a time stamp.  The text is escaped (text.h), so that a name in
 * it cannot begin a new line.  The last warnings and errors are kept in memory,
 * whatever the level.
 *
 * Threads: any thread may call all functions.  A line is one write(2).  Logging
 * keeps errno.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum rsh_log_level {
	RSH_LOG_ERROR,   /* something was refused or failed */
	RSH_LOG_WARNING, /* data differs from what a user may expect */
	RSH_LOG_NOTICE,  /* choices: steps, files, fallbacks (default) */
	RSH_LOG_INFO,    /* counts and times */
	RSH_LOG_DEBUG,   /* every request */
};

void rsh_log_set_level(enum rsh_log_level level);
enum rsh_log_level rsh_log_get_level(void);
const char *rsh_log_level_name(enum rsh_log_level level);

/* Writes a line to stderr or to a file as an object of JSON with `time`,
 * `level` and `message` from now on. */
void rsh_log_set_json(bool json);

/* Appends the log to the file `path` from now on; a new file has mode 0600.
 * Returns 0 or -errno. */
int rsh_log_to_file(const char *path);
/* Sends the log to syslog(3), facility daemon, from now on. */
void rsh_log_to_syslog(void);
#define RSH_LOG_JOURNAL "/run/systemd/journal/socket"
/* Sends the log to systemd's journal from now on.  Returns 0, or -errno if
 * there is no journal. */
int rsh_log_to_journal(void);

/* Returns the last 200 warnings and errors, formatted as lines of a log file,
 * the oldest first.  The caller frees the text; NULL means out of memory. */
char *rsh_log_recent(void);
/* Counts the errors and warnings since the start of the process. */
void rsh_log_counts(uint64_t *errors, uint64_t *warnings);

bool rsh_log_enabled(enum rsh_log_level level);
void rsh_log(enum rsh_log_level level, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

#define rsh_log_error(...) rsh_log(RSH_LOG_ERROR, __VA_ARGS__)
#define rsh_log_warning(...) rsh_log(RSH_LOG_WARNING, __VA_ARGS__)
#define rsh_log_notice(...) rsh_log(RSH_LOG_NOTICE, __VA_ARGS__)
#define rsh_log_info(...) rsh_log(RSH_LOG_INFO, __VA_ARGS__)
#define rsh_log_debug(...)                              \
	do {                                            \
		if (rsh_log_enabled(RSH_LOG_DEBUG))     \
			rsh_log(RSH_LOG_DEBUG, __VA_ARGS__); \
	} while (0)
