/* SPDX-License-Identifier: Apache-2.0 */
/* formats/ckpt/ckpt_i.h - MindSpore's files of ranks, for this directory only. */
#ifndef RSH_FORMATS_CKPT_I_H
#define RSH_FORMATS_CKPT_I_H

#include "rsh/source/format.h"

extern const struct rsh_resume_format rsh_ckpt_resume;

#endif
