/* SPDX-License-Identifier: Apache-2.0 */
/* wire/torch_check.c finds out in which of its formats a file of torch.save()
 * is, and has it checked. */
#include "config.h"

#include "rsh/wire/intact.h"

#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"
#include "rsh/wire/bytes.h"
#include "rsh/wire/pickle.h"
#include "torch_legacy_i.h"

#define PICKLE_PROTO 0x80
/* This is LONG1 0x1950a86a20f9469cfc6c, the first of several pickles. */
static const uint8_t torch_legacy_magic[] = {
	0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19,
};
/* The magic number is looked for in this much of a file; PROTO and FRAME may
 * stand before it. */
#define MAGIC_WITHIN 32

static int torch_check_plain(struct rsh_pickle *p)
{
	int rc = rsh_pickle_skip(p);

	if (rc)
		return rc;
	return p->at == p->src->size ? 0 :
	       rsh_bytes_damaged(p->src, p->at, "the file goes on after its "
				 "pickle", p->err);
}

static int torch_check_pickles(const struct rsh_byte_source *src, bool legacy,
			       struct rsh_error *err)
{
	cleanup_free struct rsh_pickle *p = calloc(1, sizeof(*p));

	if (!p)
		return rsh_error_nomem(err);
	p->src = src;
	p->err = err;
	return legacy ? rsh_torch_legacy_check(p) : torch_check_plain(p);
}

enum rsh_torch_form rsh_torch_form(const uint8_t *start, size_t n)
{
	if (n >= 4 && memcmp(start, "PK\3\4", 4) == 0)
		return RSH_TORCH_ZIP;
	if (n > 0 && start[0] == PICKLE_PROTO)
		return memmem(start, n < MAGIC_WITHIN ? n : MAGIC_WITHIN,
			      torch_legacy_magic, sizeof(torch_legacy_magic)) ?
			       RSH_TORCH_LEGACY : RSH_TORCH_PICKLE;
	return rsh_torch_is_tar(start, n) ? RSH_TORCH_TAR : RSH_TORCH_NONE;
}

int rsh_torch_check(const struct rsh_byte_source *src, bool full,
		    bool *unsummed, struct rsh_error *err)
{
	uint8_t start[RSH_TORCH_START] = { 0 };
	size_t n = src->size < sizeof(start) ? (size_t)src->size :
					       sizeof(start);
	int rc;

	*unsummed = false;
	if (src->size == 0)
		return rsh_bytes_damaged(src, 0, "it is empty", err);
	rc = rsh_bytes_read(src, start, n, 0, err);
	if (rc)
		return rc;
	switch (rsh_torch_form(start, n)) {
	case RSH_TORCH_ZIP:
		return rsh_zip_check(src, full, unsummed, err);
	case RSH_TORCH_LEGACY:
		return torch_check_pickles(src, true, err);
	case RSH_TORCH_PICKLE:
		return torch_check_pickles(src, false, err);
	case RSH_TORCH_TAR:
		return rsh_torch_tar_check(src, err);
	case RSH_TORCH_NONE:
		break;
	}
	return rsh_bytes_damaged(src, 0, "neither a zip archive nor a pickle "
				 "or a tar archive, so not of torch.save()", err);
}
