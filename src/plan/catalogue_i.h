/* SPDX-License-Identifier: Apache-2.0 */
/* plan/catalogue_i.h - what the files of this room tell each other and
 * nobody else. */
#ifndef RSH_PLAN_CATALOGUE_I_H
#define RSH_PLAN_CATALOGUE_I_H

#include "rsh/plan/catalogue.h"

void rsh_copies_free(struct rsh_copies *c);

#endif
