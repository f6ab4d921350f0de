/* SPDX-License-Identifier: Apache-2.0 */
/* util/version.h says which program this is.  Any thread may call it. */
#pragma once

/* Returns the commit from which the program was built, "67ca1707ab12", with
 * "-changed" if files differed from it; "": it was built from a release. */
const char *rsh_version_commit(void);
