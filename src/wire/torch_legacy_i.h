/* wire/torch_legacy_i.h - files of torch.save() from before PyTorch 1.6. */
#ifndef RSH_WIRE_TORCH_LEGACY_I_H
#define RSH_WIRE_TORCH_LEGACY_I_H

#include "pickle_i.h"

/* Whether pickles and storages fill the file, which begins with the magic
 * number; *p stands at its beginning. */
int rsh_torch_legacy_check(struct rsh_pickle *p);

#endif
