/* SPDX-License-Identifier: Apache-2.0 */
/* util/xxh3.h - includes xxhash.h for code that hashes whole files.  If the
 * library can choose the instructions at run time, XXH3 uses the widest ones
 * that the processor has. */
#pragma once

#include <xxhash.h>

#ifdef HAVE_XXH3_DISPATCH
#include <xxh_x86dispatch.h>
#endif
