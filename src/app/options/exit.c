/* SPDX-License-Identifier: Apache-2.0 */
/* app/options/exit.c converts errno numbers to exit statuses, and prints the
 * error of a command that failed. */
#include "config.h"

#include "rsh/app/options.h"

#include <errno.h>
#include <stdio.h>

#include "rsh/util/checked.h"
#include "rsh/util/log.h"
#include "rsh/util/text.h"

enum rsh_exit rsh_exit_of(int rc)
{
	return rc == 0 ? RSH_EXIT_GOOD :
	       rsh_is_one(-rc, EBADMSG, EDOM, EEXIST, EFBIG, EINVAL, EISDIR,
			  ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR, ENOTEMPTY,
			  ENOTSUP, EOVERFLOW, ERANGE, EXDEV) ?
		       RSH_EXIT_INPUT : RSH_EXIT_IO;
}

enum rsh_exit rsh_exit_failed(const struct rsh_options *o, int rc,
			      const struct rsh_error *err)
{
	char shown[2 * RSH_ERROR_TEXT_MAX];

	/* If the log goes somewhere else, the error is also printed on standard
	 * error. */
	if (o->log_to > RSH_LOG_TO_STDERR)
		fprintf(stderr, "reshardfs: error: %s\n",
			rsh_text_put(shown, sizeof(shown), err->text));
	rsh_log_error("%s", err->text);
	return rsh_exit_of(rc);
}
