/* cli/options.h - the command line. */
#ifndef RSH_CLI_OPTIONS_H
#define RSH_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "rsh/source/source.h"
#include "rsh/util/error.h"
#include "rsh/util/log.h"
#include "rsh/vfs/vfs.h"

enum rsh_command { RSH_COMMAND_MOUNT, RSH_COMMAND_HELP, RSH_COMMAND_VERSION };

struct rsh_options {
	enum rsh_command command;
	const char *source;
	const char *mountpoint;

	/* A path, or "none"; NULL while not given. */
	const char *src_strategy;
	const char *dst_strategy;
	const char *prefix;
	bool compat;
	bool no_replicas;
	bool allow_missing;
	unsigned dst_ranks; /* 0: not given */
	struct rsh_source_options files;
	bool has_select;
	unsigned fallbacks;
	const char *group_info; /* NULL: not given */
	enum rsh_unlisted unlisted;
	const char *only;   /* NULL: not given, also below */
	const char *drop;
	const char *rename;
	enum rsh_dtype cast;
	bool remove_redundancy;
	bool resume;
	bool has_format;
	enum rsh_format format;
	bool in_parts;       /* --format hf */
	uint64_t part_bytes; /* 0: not given */
	bool foreground;
	bool debug;
	const char *log_file; /* NULL: none */
	enum rsh_log_level log_level;
	bool has_log_level;

	const char *fsname;  /* NULL: SOURCE */
	const char *subtype;
	char *mount_opts;    /* for libfuse and the kernel; NULL: none */
	unsigned max_read;
	unsigned max_threads;
	unsigned max_idle_threads;
	bool clone_fd;

	/* Copies of -o arguments, into which the strings above point. */
	char **copies;
	size_t n_copies, cap_copies;
};

/* Reads argv; strings of it are kept, not copied.  0, or -EINVAL with a
 * sentence that names the option.  rsh_options_clear() is due in any case. */
int rsh_options_parse(int argc, char **argv, struct rsh_options *o,
		      struct rsh_error *err);
void rsh_options_clear(struct rsh_options *o);

void rsh_options_help(FILE *f);

#endif
