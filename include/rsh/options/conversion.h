/* SPDX-License-Identifier: Apache-2.0 */
/* options/conversion.h - the conversion that the options describe: the same in
 * all commands that speak of one. */
#ifndef RSH_OPTIONS_CONVERSION_H
#define RSH_OPTIONS_CONVERSION_H

#include "rsh/options/options.h"

/* As rsh_vfs_open() wants it; points into `o`. */
struct rsh_vfs_config rsh_conversion_of(const struct rsh_options *o);
/* Which files of SOURCE are meant, as rsh_source_open() wants it. */
struct rsh_source_options rsh_files_of(const struct rsh_options *o);

#endif
