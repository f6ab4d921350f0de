/* SPDX-License-Identifier: Apache-2.0 */
/* formats/steps.c finds, checks and shows steps that are directories. */
#include "config.h"

#include "rsh/formats/formats.h"
#include "rsh/formats/steps.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/wire/checkpoint2.h"
#include "rsh/wire/file_type.h"

int rsh_step_dir_add(struct rsh_finder *f, void *ctx, const char *name,
		     const struct rsh_stat *st, struct rsh_error *err)
{
	const struct rsh_step_dir *d = ctx;

	return rsh_finder_add(f, d->unit, d->name.label, name, &d->name, st) ?
	       rsh_error_nomem(err) : 0;
}

size_t rsh_step_place(const char *const *names, size_t n, const char *name)
{
	const char *const *found =
		bsearch(&name, names, n, sizeof(*names), rsh_by_text);

	return found ? (size_t)(found - names) : n;
}

int rsh_step_check_tensors(const struct rsh_byte_source *file, bool full,
			   struct rsh_error *err)
{
	struct rsh_names *names = rsh_names_new();
	struct rsh_ckpt_index *ix;
	int rc = names ? rsh_file_scan(RSH_FILE_SAFETENSORS, file, full,
				       names, &ix, err) :
			 rsh_error_nomem(err);

	if (rc == 0)
		rsh_ckpt_index_free(ix);
	rsh_names_free(names);
	return rc;
}

void rsh_step_say_unsummed(const char *path)
{
	static atomic_flag said = ATOMIC_FLAG_INIT;

	if (!atomic_flag_test_and_set(&said))
		rsh_log_warning("%s: the file has no CRCs (set_crc32_options(False)): "
				"its contents are not checked", path);
}

int rsh_step_dirs_show(struct rsh_resume *r, const struct rsh_saved *saved,
		       size_t n, bool tracked)
{
	int rc = 0;

	for (size_t i = 0; i < n && rc == 0; i++)
		rc = rsh_resume_show_files(r, &saved[i], saved[i].dir);
	if (rc == 0)
		rc = rsh_resume_show_link(r, saved, "", "latest", saved->label);
	if (rc || !tracked)
		return rc;
	return rsh_resume_show_text(r, saved, "", RSH_CKPT2_TRACKER,
				    rsh_resume_printf(r, "%" PRIu64,
						saved->step->numbers[0]));
}

int rsh_no_bid(const struct rsh_look *look)
{
	(void)look;
	return RSH_BID_NO;
}
