/* SPDX-License-Identifier: Apache-2.0 */
/* plan/name_filter.h - a name filter says which parameters the options select,
 * and under which names they are written.
 *
 * rsh_name_filter_fill() fills a filter once; then any thread may read it.
 */
#pragma once

#include "rsh/plan/blueprint.h"
#include "rsh/plan/catalogue.h"
#include "rsh/plan/options.h"

struct rsh_name_filter {
	bool filtered;        /* the options select names */
	bool *unwanted;       /* [name]: it is left out */
	const char **renamed; /* [name]: the name that is written, or NULL */
	enum rsh_division division;
	uint64_t part_bytes;
	bool two_files;       /* RSH_DIVIDE_KINDS, and some names are optimizer
			       * parameters */
};

/* Applies the options to each of the n names of `which`, or, if that is NULL,
 * to names 0 to n - 1.  0, -ENOMEM, or -EINVAL with a message: two parameters
 * would be written under one name. */
int rsh_name_filter_fill(struct rsh_name_filter *c,
			 const struct rsh_catalogue *cat, const uint32_t *which,
			 uint32_t n, const struct rsh_plan_options *o,
			 struct rsh_error *err);
/* Sets the error of a strategy that lists the name that --rename gives to a
 * parameter.  Returns -EINVAL. */
int rsh_name_filter_refuse_listed(const char *renamed, struct rsh_error *err);
void rsh_name_filter_clear(struct rsh_name_filter *c);

/* Returns the name that is written for a name; NULL: the name itself. */
const char *rsh_name_filter_name(const struct rsh_name_filter *c,
				 uint32_t name);
/* Returns whether a parameter belongs to the optimizer, and so to the second
 * file of RSH_DIVIDE_KINDS.  The catalogue's kinds were found. */
bool rsh_name_filter_apart(const struct rsh_name_filter *c,
			   const struct rsh_catalogue *cat, uint32_t name);
/* Finds quantised weights that the filter parts from the scales beside them: a
 * scale is left out, or the new names do not belong together.  Returns 0 and
 * *sentence (from malloc; NULL: there are none), or -ENOMEM. */
int rsh_name_filter_parted(const struct rsh_name_filter *c,
			   const struct rsh_catalogue *cat, char **sentence);
/* Returns -EINVAL with a message if the filter leaves no parameters in the
 * files of any rank.  The file of a single rank may have none, for example if
 * the selected parameters are in another stage. */
int rsh_name_filter_check(const struct rsh_name_filter *c,
			  const struct rsh_plan *p, struct rsh_error *err);

/* Adds a file to the plan as `division` says: as one file, in parts, or as two
 * files.  Returns what rsh_blueprint_add_file() does. */
int rsh_name_filter_add(const struct rsh_name_filter *c, struct rsh_plan *p,
			const struct rsh_shown_file *f, struct rsh_error *err);
