/* SPDX-License-Identifier: Apache-2.0 */
/* unit/source_support.h - trees on disk for the tests of source and vfs. */
#ifndef UNIT_SOURCE_SUPPORT_H
#define UNIT_SOURCE_SUPPORT_H

#include <stddef.h>
#include <stdint.h>

#include "support.h"

/* A .ckpt with one UInt8 vector "data" of n bytes; returns the offset of its
 * content in the file. */
uint64_t tree_write_vector(const char *tree, const char *name,
			   const uint8_t *content, size_t n);

#endif
