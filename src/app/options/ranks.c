/* SPDX-License-Identifier: Apache-2.0 */
/* app/options/ranks.c parses ranks and ranges of ranks in operands, and marks
 * them. */
#include "config.h"

#include "rsh/app/options.h"

#include <errno.h>
#include <string.h>

#include "rsh/util/mem.h"
#include "rsh/util/text.h"

static bool parse_ranks(const char *s, uint32_t *first, uint32_t *last)
{
	const size_t n = strcspn(s, "-");
	uint64_t from, to;

	if (!rsh_digits_read(s, n, UINT32_MAX - 1, &from))
		return false;
	to = from;
	if (s[n] && !rsh_digits_read(s + n + 1, strlen(s + n + 1),
				     UINT32_MAX - 1, &to))
		return false;
	*first = (uint32_t)from;
	*last = (uint32_t)to;
	return from <= to;
}

int rsh_ranks_check(const struct rsh_options *o, unsigned skip,
		    struct rsh_error *err)
{
	uint32_t first, last;

	for (unsigned i = skip; i < o->n_operands; i++)
		if (!parse_ranks(o->operands[i], &first, &last))
			return rsh_error_set(err, EINVAL, "\"%s\" is not a "
					     "rank or a range of ranks such "
					     "as 4-7", o->operands[i]);
	return 0;
}

int rsh_ranks_mark(const struct rsh_options *o, unsigned skip, uint32_t n,
		   bool *wanted, struct rsh_error *err)
{
	uint32_t first, last;

	memset(wanted, skip >= o->n_operands, n);
	for (unsigned i = skip; i < o->n_operands; i++) {
		if (!parse_ranks(o->operands[i], &first, &last) || last >= n)
			return rsh_error_set(err, EINVAL, "rank %s does not "
					     "exist: the last rank is %u",
					     o->operands[i], n ? n - 1 : 0);
		memset(wanted + first, true, (size_t)last - first + 1);
	}
	return 0;
}

int rsh_ranks_mark_files(const struct rsh_options *o, unsigned skip,
			 const struct rsh_plan *plan, bool **wanted,
			 struct rsh_error *err)
{
	const uint32_t n = rsh_plan_n_files(plan);
	const uint32_t per_rank = rsh_plan_files_of_rank(plan);
	bool *files = rsh_alloc_array(n, sizeof(*files));

	*wanted = files;
	if (!files)
		return rsh_error_nomem(err);
	/* The index of a file is not less than the index of its rank, so a loop
	 * from the end overwrites nothing that is still needed. */
	if (rsh_ranks_mark(o, skip, n / per_rank, files, err))
		return -EINVAL;
	for (uint32_t i = n; i-- > 0;)
		files[i] = files[i / per_rank];
	return 0;
}
