/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "rsh/util/version.h"

#include "commit.h"

const char *rsh_version_commit(void)
{
	return RSH_COMMIT;
}
