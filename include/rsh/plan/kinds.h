/* SPDX-License-Identifier: Apache-2.0 */
/* plan/kinds.h - finds which parameters of a source are weights, and which
 * belong to an optimizer.
 *
 * No list of names has all optimizers, so the names are compared with each
 * other.  PREFIX.W and PREFIX_W are states of W, if PREFIX has no dot and
 *   - each name with this prefix is that of another parameter after it, whose
 *     dimensions it has, or one less, or it has one element;
 *   - PREFIX.: half of the weights have such a state, or 8 of them;
 *     PREFIX_: all weights of more than one element have one;
 *   - PREFIX is no usual name of a module, as "encoder".
 * A parameter without a dot in its name that has one element and no state is a
 * counter, if there are states.  Before this the list of param_kind.h applies.
 * "optimizer." before the names of all weights is the name of a cell of the
 * user, and is not looked at.
 */
#pragma once

#include "rsh/plan/files.h"
#include "rsh/plan/param_kind.h"
#include "rsh/util/error.h"

struct rsh_kinds;

/* Looks at the records of n files; some may have no index, or all (NULL).  The
 * names must outlive the result.  NULL: out of memory. */
struct rsh_kinds *rsh_kinds_new(struct rsh_names *names,
				const struct rsh_ckpt_index *const *index,
				uint32_t n);
void rsh_kinds_free(struct rsh_kinds *k);

/* Returns the kind of a name; the list decides if no file has the name.  `k`
 * may be NULL: the list decides all. */
enum rsh_kind rsh_kinds_of(const struct rsh_kinds *k, uint32_t name,
			   const char *text);
/* The same for a name of which only the text is known. */
enum rsh_kind rsh_kinds_of_text(const struct rsh_kinds *k, const char *text);

/* Returns a sentence about what was decided by structure alone, or could be
 * meant otherwise; NULL: there is nothing of this kind.  `k` may be NULL. */
const char *rsh_kinds_doubt(const struct rsh_kinds *k);
