/* SPDX-License-Identifier: Apache-2.0 */
/* copy/items.c computes the CRCs that the headers of some formats have.  A mount
 * cannot know them, since a header is read before its content.  Files that are
 * written have them. */
#include "config.h"

#include "copy_i.h"

#include <errno.h>
#include <stdlib.h>

#include "rsh/plan/framing.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

void rsh_copy_items_init(struct rsh_copy_items *it, const struct rsh_vfs *vfs,
			 const struct rsh_copy_file *f)
{
	struct rsh_vfs_view view;

	*it = (struct rsh_copy_items){ .file = f->rank };
	if (f->rank == RSH_COPY_NO_RANK || !rsh_vfs_view(vfs, &view) ||
	    !view.output->framing->has_crc)
		return;
	it->plan = view.plan;
	it->framing = view.output->framing;
}

bool rsh_copy_has_items(const struct rsh_vfs *vfs,
			const struct rsh_copy_file *f)
{
	struct rsh_copy_items it;

	rsh_copy_items_init(&it, vfs, f);
	return it.framing;
}

bool rsh_copy_items_next(struct rsh_copy_items *it, struct rsh_copy_item *out)
{
	struct rsh_virtual_record r;
	struct rsh_chunks k;
	bool last;

	if (!it->framing ||
	    it->record >= rsh_plan_n_records(it->plan, it->file))
		return false;
	rsh_plan_record(it->plan, it->file, it->record, &r);
	it->framing->chunks(&r.shape, &k);
	last = it->chunk + 1 == k.n;
	*out = (struct rsh_copy_item){
		.shape = r.shape,
		.at = it->chunk * k.content_bytes,
		.offset = r.offset + it->chunk * (k.full_header +
						  k.content_bytes +
						  k.full_trailer),
		.n_header = last ? k.last_header : k.full_header,
		.n_trailer = last ? k.last_trailer : k.full_trailer,
	};
	out->bytes = rsh_min_u64(k.content_bytes,
				 r.shape.content_bytes - out->at);
	it->chunk = last ? 0 : it->chunk + 1;
	it->record += last;
	return true;
}

void rsh_copy_item_add(struct rsh_copy_item *item, const uint8_t *data,
		       size_t len, uint64_t offset)
{
	const uint64_t begin = item->offset + item->n_header;
	const uint64_t from = rsh_max_u64(begin, offset);
	const uint64_t to = rsh_min_u64(begin + item->bytes, offset + len);

	if (from < to)
		item->crc = rsh_crc32(item->crc, data + (from - offset),
				      (size_t)(to - from));
}

int rsh_copy_item_frame(const struct rsh_copy_items *it,
			const struct rsh_copy_item *item,
			rsh_copy_sink *header, rsh_copy_sink *trailer,
			void *ctx)
{
	const struct rsh_framing *f = it->framing;
	cleanup_free uint8_t *buf = malloc(
		rsh_max_u64(item->n_header, item->n_trailer));
	int rc = buf ? 0 : -ENOMEM;

	if (rc == 0 && header) {
		f->write_header(&item->shape, item->at, item->bytes, item->crc,
				buf);
		rc = header(ctx, buf, item->n_header, item->offset);
	}
	if (rc == 0 && trailer) {
		f->write_trailer(&item->shape, item->at, item->bytes,
				 item->crc, buf);
		rc = trailer(ctx, buf, item->n_trailer, item->offset +
			     item->n_header + item->bytes);
	}
	return rc;
}
