/* SPDX-License-Identifier: Apache-2.0 */
/* catalogue/catalogue_i.h - what the files of this room tell each other and
 * nobody else. */
#ifndef RSH_CATALOGUE_CATALOGUE_I_H
#define RSH_CATALOGUE_CATALOGUE_I_H

#include "rsh/catalogue/catalogue.h"

void rsh_copies_free(struct rsh_copies *c);

#endif
