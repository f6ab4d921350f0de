/* SPDX-License-Identifier: Apache-2.0 */
/* converter/chosen.h - what the options choose by name: which parameters are
 * shown, under which names, and what counts as a weight.
 *
 * Writers share this.  A choice is asked for once and does not change then, so
 * any thread may read it.
 */
#ifndef RSH_CONVERTER_CHOSEN_H
#define RSH_CONVERTER_CHOSEN_H

#include "rsh/catalogue/catalogue.h"
#include "rsh/converter/conversion.h"

struct rsh_chosen {
	bool filtered;        /* the options say which names are wanted */
	bool *unwanted;       /* [name]: it is left out */
	const char **renamed; /* [name]: what is written instead, or NULL */
};

/* Asks the options of each of the n names, which with `which` NULL are those
 * from 0 on.  0, -ENOMEM, or -EINVAL with a sentence: two of them would be
 * written under one name. */
int rsh_chosen_ask(struct rsh_chosen *c, const struct rsh_catalogue *cat,
		   const uint32_t *which, uint32_t n,
		   const struct rsh_conversion_options *o,
		   struct rsh_error *err);
void rsh_chosen_clear(struct rsh_chosen *c);

/* Gives what is written instead of a name; NULL: the name itself. */
const char *rsh_chosen_name(const struct rsh_chosen *c, uint32_t name);
/* A rank may be left without parameters, say one of another stage, but not all
 * ranks: that is -EINVAL with a sentence. */
int rsh_chosen_check(const struct rsh_chosen *c, const struct rsh_plan *p,
		     struct rsh_error *err);

/* Is it a weight, which a cast changes?  Scalars are none, nor what has the
 * prefixes that MindSpore's optimizers give their state. */
bool rsh_is_weight(const char *name, uint32_t n_dims);

#endif
