/* SPDX-License-Identifier: Apache-2.0 */
/* copy/digest.c reads virtual and real files in order, and computes the xxh3 of
 * a file and of its records in one pass, and the CRCs that the headers of some
 * formats have. */
#include "config.h"

#include "copy_i.h"

#include <errno.h>
#include <stdlib.h>

#include "rsh/plan/framing.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

int rsh_digest_init(struct rsh_digest *d,
		    const struct rsh_manifest_record *records, uint32_t n)
{
	*d = (struct rsh_digest){
		.file = XXH3_createState(), .record = XXH3_createState(),
		.records = records, .n = n,
		.sums = rsh_alloc_array(n, sizeof(*d->sums)),
	};
	if (!d->file || !d->record || !d->sums) {
		rsh_digest_clear(d);
		return -ENOMEM;
	}
	XXH3_64bits_reset(d->file);
	XXH3_64bits_reset(d->record);
	return 0;
}

void rsh_digest_clear(struct rsh_digest *d)
{
	XXH3_freeState(d->file);
	XXH3_freeState(d->record);
	free(d->sums);
	*d = (struct rsh_digest){ 0 };
}

/* Finishes the digests of records that end at `offset` or before. */
static void end_records(struct rsh_digest *d, uint64_t offset)
{
	while (d->at < d->n && d->records[d->at].offset +
			       d->records[d->at].bytes <= offset) {
		d->sums[d->at++] = XXH3_64bits_digest(d->record);
		XXH3_64bits_reset(d->record);
	}
}

int rsh_digest_sink(void *ctx, const uint8_t *data, size_t len, uint64_t offset)
{
	struct rsh_digest *d = ctx;
	const uint64_t end = offset + len;

	XXH3_64bits_update(d->file, data, len);
	end_records(d, offset);
	while (d->at < d->n && d->records[d->at].offset < end) {
		const struct rsh_manifest_record *r = &d->records[d->at];
		uint64_t from = rsh_max_u64(r->offset, offset);
		uint64_t to = rsh_min_u64(r->offset + r->bytes, end);

		XXH3_64bits_update(d->record, data + (from - offset),
				   (size_t)(to - from));
		if (to < r->offset + r->bytes)
			break;
		end_records(d, to);
	}
	return 0;
}

uint64_t rsh_digest_end(struct rsh_digest *d,
			struct rsh_manifest_record *records)
{
	end_records(d, UINT64_MAX);
	for (uint32_t i = 0; records && i < d->n; i++)
		records[i].xxh3 = d->sums[i];
	return XXH3_64bits_digest(d->file);
}

int rsh_digest_compare(struct rsh_digest *d, const struct rsh_manifest_file *f,
		       size_t order, const char *dir, struct rsh_answer *out)
{
	struct rsh_place at = { .order = order, .dir = dir, .name = f->path };
	const uint64_t sum = rsh_digest_end(d, NULL);
	uint32_t n = 0;

	for (uint32_t i = f->n_records; i-- > 0;)
		if (d->sums[i] != f->records[i].xxh3) {
			at.placed = true;
			at.record = f->records[i].name;
			at.offset = f->records[i].offset;
			n++;
		}
	if (n > 0)
		return rsh_answer_tell(out, &at, "differs from the manifest in "
				       "%u of %u records", n, f->n_records);
	return sum == f->xxh3 ? 0 :
	       rsh_answer_tell(out, &at, "differs from the manifest outside of "
			       "its records");
}

bool rsh_copy_stopped(const struct rsh_copy_control *c)
{
	return c->stop && atomic_load(c->stop);
}

static int pass_on(const struct rsh_copy_control *c, rsh_copy_sink *sink,
		   void *ctx, const uint8_t *data, size_t len, uint64_t offset)
{
	int rc = sink(ctx, data, len, offset);

	if (rc == 0 && c->progress)
		c->progress(c->ctx, len);
	return rc;
}

/* Passes the bytes [at, to) of a stream to a sink. */
static int feed_range(struct rsh_stream *stream, uint64_t at, uint64_t to,
		      const struct rsh_copy_control *c, rsh_copy_sink *sink,
		      void *ctx)
{
	int rc = 0;

	while (rc == 0 && at < to) {
		struct rsh_view view;
		ssize_t n = rsh_copy_stopped(c) ? -EINTR :
			rsh_stream_read(stream, at, (size_t)rsh_min_u64(
					RSH_STREAM_MAX, to - at), &view);
		uint64_t offset;

		if (n <= 0) {
			rc = n ? (int)n : -EIO;
			break;
		}
		offset = at;
		rc = 0;
		for (int i = 0; i < view.n_parts && rc == 0; i++) {
			rc = pass_on(c, sink, ctx, view.part[i].iov_base,
				     view.part[i].iov_len, offset);
			offset += view.part[i].iov_len;
		}
		rsh_view_release(&view);
		at += (uint64_t)n;
	}
	return rc;
}

int rsh_copy_feed_virtual(const struct rsh_vfs *vfs,
			  struct rsh_streams *streams,
			  const struct rsh_copy_file *f,
			  const struct rsh_copy_control *c,
			  rsh_copy_sink *sink, void *ctx)
{
	struct rsh_stream *stream;
	int rc = rsh_vfs_open_stream(vfs, f->node, streams, &stream);

	if (rc)
		return rc;
	rc = feed_range(stream, 0, f->size, c, sink, ctx);
	rsh_stream_close(stream);
	return rc;
}

static int crc_sink(void *ctx, const uint8_t *data, size_t len, uint64_t offset)
{
	rsh_copy_item_add(ctx, data, len, offset);
	return 0;
}

int rsh_copy_feed_exported(const struct rsh_vfs *vfs,
			   struct rsh_streams *streams,
			   const struct rsh_copy_file *f,
			   const struct rsh_copy_control *c,
			   rsh_copy_sink *sink, void *ctx)
{
	const struct rsh_copy_control silent = { .stop = c->stop };
	struct rsh_copy_items items;
	struct rsh_copy_item item;
	struct rsh_stream *stream;
	int rc;

	rsh_copy_items_init(&items, vfs, f);
	if (!items.framing)
		return rsh_copy_feed_virtual(vfs, streams, f, c, sink, ctx);
	rc = rsh_vfs_open_stream(vfs, f->node, streams, &stream);
	if (rc)
		return rc;
	while (rc == 0 && rsh_copy_items_next(&items, &item)) {
		const uint64_t from = item.offset + item.n_header;
		const uint64_t to = from + item.bytes;

		rc = feed_range(stream, from, to, &silent, crc_sink, &item) ?:
		     rsh_copy_item_frame(&items, &item, sink, NULL, ctx) ?:
		     feed_range(stream, from, to, c, sink, ctx) ?:
		     rsh_copy_item_frame(&items, &item, NULL, sink, ctx);
	}
	rsh_stream_close(stream);
	return rc;
}

int rsh_copy_feed_real(const struct rsh_byte_source *file,
		       const struct rsh_copy_control *c, rsh_copy_sink *sink,
		       void *ctx)
{
	cleanup_free uint8_t *buf = malloc(RSH_STREAM_MAX);
	uint64_t at = 0;
	int rc = buf ? 0 : -ENOMEM;

	while (rc == 0 && at < file->size) {
		ssize_t n;

		if (rsh_copy_stopped(c))
			return -EINTR;
		n = file->pread_fn(file->ctx, buf, (size_t)rsh_min_u64(
				   RSH_STREAM_MAX, file->size - at), at);
		if (n <= 0)
			return n ? (int)n : -EIO;
		rc = pass_on(c, sink, ctx, buf, (size_t)n, at);
		at += (uint64_t)n;
	}
	return rc;
}

/* ---- the CRCs in headers ----
 *
 * A mount cannot know them, since a header is read before its content.  Files
 * that are written have them.
 */

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
