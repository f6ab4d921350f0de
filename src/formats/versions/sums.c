/* SPDX-License-Identifier: Apache-2.0 */
/* formats/versions/sums.c computes the checksums that trainers write: XXH3 of
 * 128 bits without a seed, BLAKE3 and Adler-32, in hexadecimal digits. */
#include "config.h"

#include "versions_i.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <zlib.h>

#include "rsh/util/xxh3.h"

static size_t sum_digits(enum rsh_sum_form form)
{
	return form == RSH_SUM_ADLER32 ? 8 : form == RSH_SUM_XXH3 ? 32 : 64;
}

bool rsh_sum_is_valid(enum rsh_sum_form form, const char *text)
{
	return strlen(text) == sum_digits(form) &&
	       strspn(text, "0123456789abcdef") == strlen(text);
}

int rsh_summing_begin(struct rsh_summing *s, enum rsh_sum_form form)
{
	s->form = form;
	s->adler = 1;
	s->xxh3 = NULL;
	if (form == RSH_SUM_BLAKE3)
		rsh_blake3_init(&s->blake3);
	if (form != RSH_SUM_XXH3)
		return 0;
	s->xxh3 = XXH3_createState();
	return s->xxh3 && XXH3_128bits_reset(s->xxh3) == XXH_OK ? 0 : -ENOMEM;
}

void rsh_summing_add(struct rsh_summing *s, const void *p, size_t n)
{
	if (s->form == RSH_SUM_XXH3)
		XXH3_128bits_update(s->xxh3, p, n);
	else if (s->form == RSH_SUM_BLAKE3)
		rsh_blake3_add(&s->blake3, p, n);
	else
		s->adler = (uint32_t)adler32_z(s->adler, p, n);
}

void rsh_summing_end(struct rsh_summing *s, char text[RSH_SUM_TEXT])
{
	const size_t n = sum_digits(s->form) / 2;
	uint8_t sum[RSH_SUM_BYTES] = { 0 };

	if (s->form == RSH_SUM_BLAKE3)
		rsh_blake3_end(&s->blake3, sum);
	else if (s->form == RSH_SUM_XXH3 && s->xxh3)
		XXH128_canonicalFromHash((XXH128_canonical_t *)(void *)sum,
					 XXH3_128bits_digest(s->xxh3));
	for (unsigned i = 0; s->form == RSH_SUM_ADLER32 && i < 4; i++)
		sum[i] = (uint8_t)(s->adler >> (24 - 8 * i));
	XXH3_freeState(s->xxh3);
	s->xxh3 = NULL;
	for (size_t i = 0; i < n; i++)
		snprintf(text + 2 * i, 3, "%02x", sum[i]);
}
