/* SPDX-License-Identifier: Apache-2.0 */
/* formats/torch/torch_i.h - PyTorch's own files, for this directory only. */
#ifndef RSH_FORMATS_TORCH_I_H
#define RSH_FORMATS_TORCH_I_H

#include "rsh/source/format.h"

extern const struct rsh_resume_format rsh_torch_resume;

#endif
