/* SPDX-License-Identifier: Apache-2.0 */
/* plan/name_filter.h - what the options choose by name: which parameters are
 * shown, and under which names.
 *
 * A choice is asked for once and does not change then, so any thread may read
 * it.
 */
#ifndef RSH_PLAN_NAME_FILTER_H
#define RSH_PLAN_NAME_FILTER_H

#include "rsh/plan/blueprint.h"
#include "rsh/plan/catalogue.h"
#include "rsh/plan/options.h"

struct rsh_name_filter {
	bool filtered;        /* the options say which names are wanted */
	bool *unwanted;       /* [name]: it is left out */
	const char **renamed; /* [name]: what is written instead, or NULL */
	enum rsh_division division;
	uint64_t part_bytes;
	bool two_files;       /* a file a kind, and one of the names is apart */
};

/* Asks the options of each of the n names, which with `which` NULL are those
 * from 0 on.  0, -ENOMEM, or -EINVAL with a sentence: two of them would be
 * written under one name. */
int rsh_name_filter_ask(struct rsh_name_filter *c,
			const struct rsh_catalogue *cat, const uint32_t *which,
			uint32_t n, const struct rsh_plan_options *o,
			struct rsh_error *err);
void rsh_name_filter_clear(struct rsh_name_filter *c);

/* Gives what is written instead of a name; NULL: the name itself. */
const char *rsh_name_filter_name(const struct rsh_name_filter *c,
				 uint32_t name);
/* A rank may be left without parameters, say one of another stage, but not all
 * ranks: that is -EINVAL with a sentence. */
int rsh_name_filter_check(const struct rsh_name_filter *c,
			  const struct rsh_plan *p, struct rsh_error *err);

/* Adds a file to the plan as the options want it: as it is, in parts, or as two
 * files.  Returns what rsh_blueprint_add_file() does. */
int rsh_name_filter_add(const struct rsh_name_filter *c, struct rsh_plan *p,
			const struct rsh_shown_file *f, struct rsh_error *err);

#endif
