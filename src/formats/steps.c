/* SPDX-License-Identifier: Apache-2.0 */
/* formats/steps.c checks steps. */
#include "config.h"

#include "rsh/formats/formats.h"
#include "rsh/formats/steps.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

const char *rsh_step_dir_read(const char *path, const char *prefix,
			      struct rsh_step_name *out)
{
	const size_t n = strlen(prefix);
	const char *slash = strchr(path, '/');

	if (!slash || strncmp(path, prefix, n) != 0 ||
	    !rsh_number_read(path + n, (size_t)(slash - path) - n,
			     &out->step.numbers[0]))
		return NULL;
	out->step.n = 1;
	strcpy(out->series, prefix);
	snprintf(out->label, sizeof(out->label), "%.*s", (int)(slash - path),
		 path);
	return slash + 1;
}

size_t rsh_step_place(const char *const *names, size_t n, const char *name)
{
	const char *const *found =
		bsearch(&name, names, n, sizeof(*names), rsh_by_text);

	return found ? (size_t)(found - names) : n;
}

int rsh_step_check_file(enum rsh_file_type type,
			const struct rsh_byte_source *file, bool full,
			struct rsh_error *err)
{
	struct rsh_names *names = rsh_names_new();
	struct rsh_ckpt_index *ix;
	int rc = names ? rsh_file_scan(type, file, full, names, &ix, err) :
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
