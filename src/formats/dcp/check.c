/* SPDX-License-Identifier: Apache-2.0 */
/* formats/dcp/check.c holds the elements of an item against its checksum. */
#include "rsh/formats/dcp.h"

#include <zlib.h>

#include "rsh/wire/bytes.h"

static uint32_t dcp_crc(uint32_t crc, const uint8_t *p, size_t n)
{
	return (uint32_t)crc32(crc, p, (uInt)n);
}

int rsh_dcp_item_check(const struct rsh_byte_source *file,
		       const struct rsh_dcp_item *item, struct rsh_error *err)
{
	uint32_t crc = 0;
	int rc;

	if (!item->has_crc)
		return 0;
	rc = rsh_bytes_crc(file, item->offset, item->bytes, dcp_crc, &crc,
			       err);

	if (rc || crc == item->crc)
		return rc;
	return rsh_bytes_damaged(file, item->offset, "the elements do not "
				 "match their CRC", err);
}
