/* SPDX-License-Identifier: Apache-2.0 */
/* catalogue/catalogue_i.h - between the files of catalogue/. */
#ifndef RSH_CATALOGUE_CATALOGUE_I_H
#define RSH_CATALOGUE_CATALOGUE_I_H

#include "rsh/catalogue/catalogue.h"

void rsh_copies_free(struct rsh_copies *c);

#endif
