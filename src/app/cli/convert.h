/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/convert.h has the parts of the command `convert`. */
#ifndef RSH_APP_CLI_CONVERT_H
#define RSH_APP_CLI_CONVERT_H

#include "printer.h"
#include "rsh/app/exit.h"
#include "rsh/util/names.h"
#include "rsh/weights/weights.h"

/* Checks the table at `path`, and the source of the options if there is one. */
enum rsh_exit rsh_convert_check(const struct rsh_options *o, const char *path);

/* ---- what a check prints ---- */

struct rsh_convert_report;

/* Begins a report, which rsh_convert_report_end() prints.  With `quiet` it
 * prints only what is wrong.  NULL: out of memory. */
struct rsh_convert_report *
rsh_convert_report_new(const struct rsh_printer *out, const char *table,
		       bool quiet);
void rsh_convert_report_free(struct rsh_convert_report *r);

/* Sets the n tensors of the source, and the side that they are on.  The tensors
 * and the names must outlive the report.  Returns 0 or -ENOMEM. */
int rsh_convert_report_source(struct rsh_convert_report *r,
			      const struct rsh_offer *in, uint32_t n,
			      const struct rsh_names *names,
			      enum rsh_side from);

/* These functions are callbacks for rsh_weights_check() and
 * rsh_weights_check_table(); the report is their context. */
void rsh_convert_report_made(void *report, const struct rsh_offer *offer,
			     const struct rsh_rule *rule,
			     const uint32_t *sources, uint32_t n);
void rsh_convert_report_passed(void *report, uint32_t source,
			       const struct rsh_rule *rule);
void rsh_convert_report_wrong(void *report, const char *sentence);
void rsh_convert_report_say(void *report, bool wrong, const char *sentence);

/* Prints the report; *good is false if anything is wrong.  Returns 0 or
 * -ENOMEM. */
int rsh_convert_report_end(struct rsh_convert_report *r, bool *good);

#endif
