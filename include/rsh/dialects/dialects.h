/* SPDX-License-Identifier: Apache-2.0 */
/* dialects/dialects.h offers the frameworks whose jobs --resume knows.  Each is
 * a small file that says which names mean what, what makes a step whole and
 * what is shown of it.  (How trees are resharded is converter/conversion.h.)
 *
 * The engine that finds, orders and chooses is source/resume.h; it is handed
 * the dialects, which are constant and may be used by any thread.  What a
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
extern const struct rsh_step_dialect rsh_dcp_dialect;
extern const struct rsh_step_dialect rsh_checkpoint2_dialect;

/* This list holds all of them; NULL ends it. */
extern const struct rsh_step_dialect *const rsh_step_dialects[];

#endif
