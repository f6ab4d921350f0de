/* SPDX-License-Identifier: Apache-2.0 */
/* dialects/dialects.h - the frameworks whose jobs --resume knows, each a small
 * file: its names, what makes a step whole, what is shown of it.  (How trees are
 * resharded is converter/conversion.h.)
 *
 * The engine that finds, orders and chooses is source/resume.h.  What a
 * conversion reads of names, those of ModelCheckpoint, is in source/step.h, on
 * which the dialect of MindSpore stands.
 */
#ifndef RSH_DIALECTS_DIALECTS_H
#define RSH_DIALECTS_DIALECTS_H

#include "rsh/source/dialect.h"

extern const struct rsh_step_dialect rsh_mindspore_dialect;
extern const struct rsh_step_dialect rsh_torch_dialect;
extern const struct rsh_step_dialect rsh_tensorflow_dialect;
extern const struct rsh_step_dialect rsh_megatron_dialect;

/* All of them; NULL ends the list. */
extern const struct rsh_step_dialect *const rsh_step_dialects[];

#endif
