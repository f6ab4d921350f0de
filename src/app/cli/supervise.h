/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/supervise.h lets a command that reads from a mount of reshardfs end
 * even if the mount does not answer. */
#ifndef RSH_APP_CLI_SUPERVISE_H
#define RSH_APP_CLI_SUPERVISE_H

/* Runs a command that changes nothing, and returns the exit status.  If one of
 * its words names a file in a mount of reshardfs, it runs in a separate
 * process, which is killed with a message when it has waited for 8 seconds
 * without progress.  The caller must not have started any thread; both
 * processes return. */
int rsh_supervise(int argc, char **argv, int (*run)(int argc, char **argv));

#endif
