/* cli/main.c - reshardfs(1). */
#include "config.h"

#include <stdio.h>

#include "mount.h"
#include "options.h"
#include "rsh/fuse/server.h"

enum { EXIT_GOOD = 0, EXIT_USAGE = 2 };

static int run(const struct rsh_options *o)
{
	switch (o->command) {
	case RSH_COMMAND_HELP:
		rsh_options_help(stdout);
		return EXIT_GOOD;
	case RSH_COMMAND_VERSION:
		printf("reshardfs %s\nlibfuse %s\n", PACKAGE_VERSION,
		       rsh_server_library_version());
		return EXIT_GOOD;
	case RSH_COMMAND_MOUNT:
		break;
	}
	return rsh_mount(o);
}

int main(int argc, char **argv)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_options o;
	int rc = rsh_options_parse(argc, argv, &o, &err);

	if (rc) {
		fprintf(stderr, "reshardfs: %s\n"
			"Try 'reshardfs --help'.\n", err.text);
		rc = EXIT_USAGE;
	} else {
		rc = run(&o);
	}
	rsh_options_clear(&o);
	return rc;
}
