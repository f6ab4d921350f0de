/* SPDX-License-Identifier: Apache-2.0 */
/* wire/torch_legacy_i.h - files of torch.save() from before PyTorch 1.6; only
 * this room includes it. */
#ifndef RSH_WIRE_TORCH_LEGACY_I_H
#define RSH_WIRE_TORCH_LEGACY_I_H

#include <stddef.h>

#include "rsh/wire/pickle.h"

/* Checks whether pickles and storages fill the file, which begins with the
 * magic number; *p stands at its beginning. */
int rsh_torch_legacy_check(struct rsh_pickle *p);

/* Is it one, by the first RSH_TORCH_START bytes? */
bool rsh_torch_is_tar(const uint8_t *start, size_t n);
/* Checks whether a tar archive of torch.save() reads to its end. */
int rsh_torch_tar_check(const struct rsh_byte_source *src,
			struct rsh_error *err);

#endif
