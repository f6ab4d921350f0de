/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/supervise.h lets a command that reads from a mount of reshardfs end also
 * if that mount does not answer. */
#ifndef RSH_APP_CLI_SUPERVISE_H
#define RSH_APP_CLI_SUPERVISE_H

/* Runs a command that changes nothing, and returns the exit status.  If any of
 * its words names what lies in a mount of reshardfs it runs in a process of its
 * own, and is given up with a sentence when it has waited for 8 seconds without
 * anything coming.  Called before there are threads; both processes return. */
int rsh_supervise(int argc, char **argv, int (*run)(int argc, char **argv));

#endif
