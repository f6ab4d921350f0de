/* SPDX-License-Identifier: Apache-2.0 */
/* wire/tar_check.c - does a tar archive reach its end?  PyTorch wrote such
 * files before 0.1.10, and still reads them. */
#include "config.h"

#include "torch_legacy_i.h"

#include <string.h>

#include "bytes_i.h"

#define BLOCK_BYTES 512u
#define NAME_AT 0
#define NAME_BYTES 100
#define SIZE_AT 124
#define SIZE_BYTES 12
#define SUM_AT 148
#define SUM_BYTES 8
#define MAGIC_AT 257

static const char *const members[] = {
	"sys_info", "pickle", "tensors", "storages",
};
#define N_MEMBERS (sizeof(members) / sizeof(members[0]))

static bool is_zero(const uint8_t *block)
{
	for (size_t i = 0; i < BLOCK_BYTES; i++)
		if (block[i])
			return false;
	return true;
}

/* Octal digits, or, of a size that they are too few for, a binary number. */
static bool get_number(const uint8_t *p, size_t n, uint64_t *out)
{
	size_t i = 0;

	*out = 0;
	if (p[0] == 0x80) {
		for (i = 1; i < n; i++) {
			if (*out >> 56)
				return false;
			*out = *out << 8 | p[i];
		}
		return true;
	}
	while (i < n && p[i] == ' ')
		i++;
	if (i == n || p[i] < '0' || p[i] > '7')
		return false;
	for (; i < n && p[i] >= '0' && p[i] <= '7'; i++)
		*out = *out * 8 + (uint64_t)(p[i] - '0');
	return true;
}

static bool sum_matches(const uint8_t *block)
{
	uint64_t said, sum = 0;

	for (size_t i = 0; i < BLOCK_BYTES; i++)
		sum += i >= SUM_AT && i < SUM_AT + SUM_BYTES ? ' ' : block[i];
	return get_number(block + SUM_AT, SUM_BYTES, &said) && said == sum;
}

/* Moves *at behind a member; notes which of those that are needed it is. */
static int skip_member(const struct rsh_byte_source *src, const uint8_t *block,
		       uint64_t *at, unsigned *seen, struct rsh_error *err)
{
	const char *name = (const char *)block + NAME_AT;
	uint64_t size;

	if (!sum_matches(block) ||
	    !get_number(block + SIZE_AT, SIZE_BYTES, &size))
		return rsh_bytes_damaged(src, *at, "no header of a tar archive",
					 err);
	*at += BLOCK_BYTES;
	if (size > src->size - *at)
		return rsh_bytes_damaged(src, *at, "truncated: the file ends "
					 "within an entry", err);
	*at += size;
	*at += (BLOCK_BYTES - size % BLOCK_BYTES) % BLOCK_BYTES;
	for (unsigned i = 0; i < N_MEMBERS; i++)
		if (strncmp(name, members[i], NAME_BYTES) == 0)
			*seen |= 1u << i;
	return 0;
}

bool rsh_torch_is_tar(const uint8_t *start, size_t n)
{
	return n >= RSH_TORCH_TAR_START &&
	       memcmp(start + MAGIC_AT, "ustar", 5) == 0;
}

int rsh_torch_tar_check(const struct rsh_byte_source *src,
			struct rsh_error *err)
{
	uint8_t block[BLOCK_BYTES];
	unsigned seen = 0, zeros = 0;
	uint64_t at = 0;
	int rc = 0;

	/* Two blocks of zeros end it. */
	while (rc == 0 && zeros < 2) {
		rc = rsh_bytes_read(src, block, sizeof(block), at, err);
		if (rc)
			break;
		zeros = is_zero(block) ? zeros + 1 : 0;
		if (zeros)
			at += BLOCK_BYTES;
		else
			rc = skip_member(src, block, &at, &seen, err);
	}
	if (rc || seen == (1u << N_MEMBERS) - 1)
		return rc;
	return rsh_bytes_damaged(src, at, "a tar archive, but not of "
				 "torch.save()", err);
}
