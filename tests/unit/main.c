/* SPDX-License-Identifier: Apache-2.0 */
/* Apart from unit_run(), so that a program can have its own main(). */
#include "tests.h"

int main(void)
{
	return unit_run(NULL, NULL);
}
