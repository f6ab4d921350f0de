/* SPDX-License-Identifier: Apache-2.0 */
/* wire/ckpt_scan.c scans a .ckpt file of any size through a small window: it
 * reads the keys and lengths of protobuf fields once, and no content.
 *
 * Numbers in the file are not trusted before they are checked.  pb_next()
 * checks every field against the end of the message that contains it, so its
 * caller may rely on `offset + length <= end`. */
#include "rsh/wire/ckpt.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/tensor/box.h"
#include "rsh/util/checked.h"
#include "rsh/util/error.h"
#include "rsh/util/mem.h"
#include "rsh/wire/bytes.h"

#define PB_WINDOW_BYTES ((size_t)64 * 1024)
#define PB_VARINT_MAX 10 /* bytes of a number */
/* After a jump over more than NEAR_BYTES of content the scan reads JUMP_BYTES:
 * the next header is rarely longer, and then content follows again. */
#define NEAR_BYTES ((size_t)4 * 1024)
#define JUMP_BYTES ((size_t)512)

enum pb_wire { PB_VARINT = 0, PB_I64 = 1, PB_LEN = 2, PB_I32 = 5 };

struct pb_field {
	uint32_t number;
	enum pb_wire wire;
	uint64_t value;  /* the number of a PB_VARINT */
	uint64_t offset; /* of the payload */
	uint64_t length;
};

/* After a failure rc is the error, whose sentence is in err, and what is read
 * has no meaning. */
struct pb_scan {
	const struct rsh_byte_source *src;
	struct rsh_error *err;
	int rc;
	const char *name; /* the current parameter, for messages; or NULL */
	uint64_t window_offset;
	size_t window_len;
	uint8_t window[PB_WINDOW_BYTES];
};

/* These functions return false after a failure. */

/* Sets "<path>: [parameter "<name>" is] damaged at offset <offset>: ..". */
__attribute__((format(printf, 3, 4)))
static bool pb_damaged(struct pb_scan *s, uint64_t offset, const char *fmt, ...)
{
	va_list ap;

	if (s->rc)
		return false;
	va_start(ap, fmt);
	s->rc = rsh_bytes_vdamaged(s->src, s->name, offset, s->err, fmt, ap);
	va_end(ap);
	return false;
}

static bool pb_nomem(struct pb_scan *s)
{
	s->rc = s->rc ?: rsh_error_nomem(s->err);
	return false;
}

static bool pb_is(const struct pb_field *f, uint32_t number, enum pb_wire wire)
{
	return f->number == number && f->wire == wire;
}

/* ---- the window ---- */

static bool pb_read(struct pb_scan *s, void *buf, size_t len, uint64_t offset,
		    size_t at_least, size_t *got)
{
	if (s->rc)
		return false;
	s->rc = rsh_bytes_read_some(s->src, buf, len, offset, got, s->err);
	if (s->rc == 0 && *got < at_least)
		pb_damaged(s, offset + *got, "the file ends here, though it "
			   "has %" PRIu64 " bytes", s->src->size);
	return s->rc == 0;
}

/* Makes the bytes [offset, offset + need) readable until the next call.  All of
 * them must be within the file; need <= PB_WINDOW_BYTES.  NULL: failure. */
static const uint8_t *pb_look(struct pb_scan *s, uint64_t offset, size_t need)
{
	if (offset < s->window_offset ||
	    offset + need > s->window_offset + s->window_len) {
		bool onward =
			offset >= s->window_offset &&
			offset <= s->window_offset + s->window_len + NEAR_BYTES;
		uint64_t len =
			onward || need > JUMP_BYTES ? PB_WINDOW_BYTES : JUMP_BYTES;

		len = rsh_min_u64(len, s->src->size - offset);
		s->window_len = 0;
		pb_read(s, s->window, len, offset, need, &s->window_len);
		s->window_offset = offset;
	}
	return s->rc ? NULL : s->window + (offset - s->window_offset);
}

/* ---- protobuf fields ---- */

/* Reads a number and returns its size in bytes; 0 if it does not end within
 * avail bytes or does not fit into 64 bits. */
static size_t pb_varint(const uint8_t *p, size_t avail, uint64_t *out)
{
	uint64_t v = 0;

	for (size_t i = 0; i < avail && i < PB_VARINT_MAX; i++) {
		v |= (uint64_t)(p[i] & 0x7f) << (7 * i);
		if (p[i] & 0x80)
			continue;
		if (i == PB_VARINT_MAX - 1 && p[i] > 1)
			return 0;
		*out = v;
		return i + 1;
	}
	return 0;
}

/* Reads the key of the field at `pos` < end, and the number or length after it.
 * f->length is the number in the file, unchecked. */
static bool pb_decode(struct pb_scan *s, uint64_t pos, uint64_t end,
		      struct pb_field *f)
{
	size_t avail = rsh_min_u64(end - pos, 2 * PB_VARINT_MAX);
	const uint8_t *p = pb_look(s, pos, avail);
	uint64_t key;
	size_t taken, more = 0;

	if (!p)
		return false;
	taken = pb_varint(p, avail, &key);
	if (!taken || key > UINT32_MAX || key >> 3 == 0)
		return pb_damaged(s, pos, "no protobuf field begins here");
	*f = (struct pb_field){ (uint32_t)(key >> 3), (enum pb_wire)(key & 7) };
	switch (f->wire) {
	case PB_VARINT:
	case PB_LEN:
		more = pb_varint(p + taken, avail - taken, &f->value);
		if (!more)
			return pb_damaged(s, pos, "a number is cut short or too long");
		f->length = f->wire == PB_LEN ? f->value : 0;
		break;
	case PB_I64:
	case PB_I32:
		f->length = f->wire == PB_I64 ? 8 : 4;
		break;
	default:
		return pb_damaged(s, pos, "a field of wire type %d",
				  (int)f->wire);
	}
	f->offset = pos + taken + more;
	return true;
}

/* Reads the field at *pos of a message that ends at `end`, and moves *pos past
 * it.  Returns false at the end, too. */
static bool pb_next(struct pb_scan *s, uint64_t *pos, uint64_t end,
		    struct pb_field *f)
{
	if (s->rc || *pos >= end || !pb_decode(s, *pos, end, f))
		return false;
	if (f->length > end - f->offset)
		return pb_damaged(s, f->offset,
				  "a field of %" PRIu64
				  " bytes in a message that has %" PRIu64
				  " left", f->length, end - f->offset);
	*pos = f->offset + f->length;
	return true;
}

#define MAX_NAME_BYTES ((size_t)16 * 1024)
#define MAX_TYPE_BYTES ((size_t)64)

#define CRC_MAGIC "crc_num"
#define CRC_MAGIC_BYTES 7

/* This is one Value message during its reading. */
struct value {
	uint64_t offset;
	uint32_t name; /* RSH_NAME_NONE: no tag yet */
	bool has_tensor;
	bool has_type;
	bool has_content;
	enum rsh_dtype dtype;
	uint32_t n_dims;
	int64_t dims[RSH_MAX_DIMS];
	struct rsh_extent content;
};

struct scan {
	struct rsh_names *names;
	struct rsh_ckpt_index *index;
	size_t cap_records;
	size_t cap_extents;
	size_t cap_dims;

	/* offset of the end of the records, before the CRC trailer */
	uint64_t end;
	bool skipped; /* fields that are not records were skipped */

	/* This is the last record of the index, to which the next Value may
	 * belong. */
	uint32_t run_values; /* 0: there is no open record */
	uint64_t run_offset;
	bool run_has_content;

	/* This reads the file.  Its name is that of the current parameter. */
	struct pb_scan pb;
};

/* ---- Value ---- */

static bool read_tag(struct scan *s, const struct pb_field *f, struct value *v)
{
	const uint8_t *p;

	if (v->name != RSH_NAME_NONE)
		return pb_damaged(&s->pb, f->offset, "a second name");
	if (!f->length || f->length > MAX_NAME_BYTES)
		return pb_damaged(&s->pb, f->offset,
				  "a parameter name of %" PRIu64 " bytes",
				  f->length);
	p = pb_look(&s->pb, f->offset, f->length);
	if (!p)
		return false;
	if (memchr(p, '\0', f->length))
		return pb_damaged(&s->pb, f->offset,
				  "a parameter name with a NUL byte");
	v->name = rsh_names_add(s->names, (const char *)p, f->length);
	if (v->name == RSH_NAME_NONE)
		return pb_nomem(&s->pb);
	s->pb.name = rsh_names_text(s->names, v->name);
	return true;
}

static bool scan_add_dim(struct scan *s, uint64_t offset, uint64_t dim,
			 struct value *v)
{
	if (v->n_dims == RSH_MAX_DIMS)
		return pb_damaged(&s->pb, offset, "more than %d dimensions",
				  RSH_MAX_DIMS);
	if (dim > INT64_MAX)
		return pb_damaged(&s->pb, offset,
				  "a negative dimension (%" PRId64 ")",
				  (int64_t)dim);
	v->dims[v->n_dims++] = (int64_t)dim;
	return true;
}

static void read_packed_dims(struct scan *s, const struct pb_field *f,
			     struct value *v)
{
	const uint64_t end = f->offset + f->length;
	size_t taken = 0;
	uint64_t dim;

	for (uint64_t pos = f->offset; pos < end; pos += taken) {
		size_t avail = rsh_min_u64(end - pos, PB_VARINT_MAX);
		const uint8_t *p = pb_look(&s->pb, pos, avail);

		taken = p ? pb_varint(p, avail, &dim) : 0;
		if (!taken)
			pb_damaged(&s->pb, pos, "a dimension is cut short or too long");
		if (!taken || !scan_add_dim(s, pos, dim, v))
			return;
	}
}

static void read_type(struct scan *s, const struct pb_field *f, struct value *v)
{
	const uint8_t *p;

	if (v->has_type)
		pb_damaged(&s->pb, f->offset, "a second element type");
	else if (f->length > MAX_TYPE_BYTES)
		pb_damaged(&s->pb, f->offset, "an element type of %" PRIu64
			   " bytes", f->length);
	p = s->pb.rc ? NULL : pb_look(&s->pb, f->offset, f->length);
	if (!p)
		return;
	v->has_type = true;
	v->dtype = rsh_dtype_parse((const char *)p, f->length);
	if (!rsh_dtype_in_mindspore(v->dtype))
		pb_damaged(&s->pb, f->offset, "unknown element type \"%.*s\"",
			   (int)f->length, (const char *)p);
}

static void scan_read_tensor(struct scan *s, const struct pb_field *tensor,
			     struct value *v)
{
	uint64_t pos = tensor->offset, end = tensor->offset + tensor->length;
	struct pb_field f;

	if (v->has_tensor)
		pb_damaged(&s->pb, tensor->offset, "a second tensor");
	v->has_tensor = true;
	while (pb_next(&s->pb, &pos, end, &f)) {
		if (pb_is(&f, 1, PB_VARINT))
			scan_add_dim(s, f.offset, f.value, v);
		else if (pb_is(&f, 1, PB_LEN))
			read_packed_dims(s, &f, v);
		else if (pb_is(&f, 2, PB_LEN))
			read_type(s, &f, v);
		if (!pb_is(&f, 3, PB_LEN))
			continue;
		if (v->has_content)
			pb_damaged(&s->pb, f.offset, "a second content");
		v->has_content = true;
		v->content = (struct rsh_extent){ f.offset, f.length };
	}
}

static bool read_value(struct scan *s, const struct pb_field *value,
		       struct value *v)
{
	uint64_t pos = value->offset, end = value->offset + value->length;
	struct pb_field f;

	v->offset = value->offset;
	v->name = RSH_NAME_NONE;
	s->pb.name = NULL;
	v->has_tensor = v->has_type = v->has_content = false;
	v->n_dims = 0;
	while (pb_next(&s->pb, &pos, end, &f))
		if (pb_is(&f, 1, PB_LEN))
			read_tag(s, &f, v);
		else if (pb_is(&f, 2, PB_LEN))
			scan_read_tensor(s, &f, v);
		else if (pb_is(&f, 3, PB_LEN))
			s->pb.rc = rsh_error_set(
				s->pb.err, ENOTSUP,
				"%s: \"%s\" at offset %" PRIu64
				" is a map parameter (hash table), which cannot be resharded",
				s->pb.src->path, s->pb.name ? s->pb.name : "?",
				v->offset);
	if (v->name == RSH_NAME_NONE)
		return pb_damaged(&s->pb, v->offset,
				  "a record without a parameter name");
	return (v->has_tensor ||
		pb_damaged(&s->pb, v->offset, "no tensor")) &&
	       (v->has_type ||
		pb_damaged(&s->pb, v->offset, "no element type")) &&
	       s->pb.rc == 0;
}

/* ---- records: the Values of one parameter, joined ---- */

static const char *scan_dims_text(const struct value *v, char *buf, size_t size)
{
	return rsh_dims_text((const uint64_t *)v->dims, v->n_dims, buf, size);
}

/* Returns whether the content of the open record has the size of `elements`
 * elements. */
static bool scan_content_fits(const struct scan *s, struct rsh_record *r,
			      uint64_t elements)
{
	uint64_t bytes;

	if (!rsh_mul_u64(elements, rsh_dtype_size(r->dtype), &bytes))
		return false;
	if (r->content_bytes == bytes)
		return true;
	/* MindSpore <= 2.2 never cut such tensors into chunks, so twice the
	 * bytes in several Values means that the parameter was written
	 * twice. */
	r->wide_bf16 = r->dtype == RSH_DTYPE_BFLOAT16 && s->run_values == 1 &&
		       r->content_bytes % 2 == 0 &&
		       r->content_bytes / 2 == bytes;
	return r->wide_bf16;
}

/* Checks the last record; v is its last Value. */
static bool close_record(struct scan *s, const struct value *v)
{
	struct rsh_record *r;
	uint64_t elements;
	char dims[256];

	if (!s->run_values)
		return true;
	r = &s->index->records[s->index->n_records - 1];
	s->pb.name = rsh_names_text(s->names, r->name);
	if (r->dtype == RSH_DTYPE_STR) {
		if (s->run_values > 1)
			return pb_damaged(&s->pb, v->offset,
					  "a str in more than one record");
		return (r->content_bytes && r->content_bytes % 4 == 0) ||
		       pb_damaged(&s->pb, v->offset, "a str of %" PRIu64
				  " bytes, not a multiple of 4",
				  r->content_bytes);
	}
	if (!rsh_product_i64(v->dims, v->n_dims, &elements))
		return pb_damaged(&s->pb, v->offset,
				  "dimensions %s are out of range",
				  scan_dims_text(v, dims, sizeof(dims)));
	/* MindSpore <= 2.2 writes a scalar's dims as [0]. */
	if (v->n_dims == 1 && !v->dims[0] && scan_content_fits(s, r, 1)) {
		r->n_dims = 0;
		s->index->n_dims--;
		return true;
	}
	if (scan_content_fits(s, r, elements))
		return true;
	if (!s->run_has_content)
		return pb_damaged(&s->pb, s->run_offset, "no content");
	return pb_damaged(&s->pb, s->run_offset,
			  "its content has %" PRIu64
			  " bytes, which is not %s %s",
			  r->content_bytes, rsh_dtype_name(r->dtype),
			  scan_dims_text(v, dims, sizeof(dims)));
}

/* Adds v to the open record if it has the same name, else to a new record. */
static bool add_value(struct scan *s, const struct value *v,
		      const struct value *previous)
{
	struct rsh_ckpt_index *ix = s->index;
	struct rsh_record *r;
	size_t n;

	if (!s->run_values || previous->name != v->name) {
		if (!close_record(s, previous))
			return false;
		if (ix->n_records == UINT32_MAX ||
		    rsh_push(ix->records, ix->n_records, s->cap_records,
			     (struct rsh_record){
				     .name = v->name,
				     .first_dim = ix->n_dims,
				     .first_extent = ix->n_extents,
			     }))
			return pb_nomem(&s->pb);
		s->run_values = 0;
		s->run_offset = v->offset;
		s->run_has_content = false;
	}
	s->run_values++;
	r = &ix->records[ix->n_records - 1];
	/* Dims and type of a record are those of its last Value. */
	n = (size_t)r->first_dim + v->n_dims;
	if (n > UINT32_MAX || rsh_room(ix->dims, s->cap_dims, n))
		return pb_nomem(&s->pb);
	if (v->n_dims)
		memcpy(ix->dims + r->first_dim, v->dims,
		       v->n_dims * sizeof(*v->dims));
	ix->n_dims = (uint32_t)n;
	r->n_dims = (uint8_t)v->n_dims;
	r->dtype = (uint8_t)v->dtype;
	s->run_has_content |= v->has_content;
	if (!v->has_content || !v->content.length)
		return true;
	if (ix->n_extents == UINT32_MAX ||
	    rsh_push(ix->extents, ix->n_extents, s->cap_extents, v->content))
		return pb_nomem(&s->pb);
	r->n_extents++;
	r->content_bytes += v->content.length; /* bounded by the file's size */
	return true;
}

/* ---- the file ---- */

/* Sets the error for field `f`, which ends beyond the end of the file. The
 * parameter's name is the first field, so it is usually available. */
static void truncated(struct scan *s, const struct pb_field *f)
{
	struct value v = { .name = RSH_NAME_NONE };
	struct pb_field tag;

	s->pb.name = NULL;
	if (pb_is(f, 1, PB_LEN) && f->offset < s->end &&
	    pb_decode(&s->pb, f->offset, s->end, &tag) &&
	    pb_is(&tag, 1, PB_LEN) && tag.length <= s->end - tag.offset)
		read_tag(s, &tag, &v);
	s->pb.rc = 0;
	pb_damaged(&s->pb, f->offset,
		   "the file is truncated: a record of %" PRIu64
		   " bytes begins here, of which there are %" PRIu64,
		   f->length, s->end - f->offset);
}

static void scan_records(struct scan *s)
{
	struct value values[2]; /* the current and the previous one */
	unsigned current = 0;
	uint64_t pos = 0;
	struct pb_field f;

	while (pos < s->end) {
		s->pb.name = NULL;
		if (!pb_decode(&s->pb, pos, s->end, &f)) {
			if (s->pb.rc == -EBADMSG && !pos)
				rsh_error_set(
					s->pb.err, EBADMSG,
					"%s: not a checkpoint: it does not begin with a record",
					s->pb.src->path);
			return;
		}
		if (f.length > s->end - f.offset) {
			truncated(s, &f);
			return;
		}
		pos = f.offset + f.length;
		if (!pb_is(&f, 1, PB_LEN)) {
			s->skipped = true;
			continue;
		}
		if (!read_value(s, &f, &values[current]) ||
		    !add_value(s, &values[current], &values[!current]))
			return;
		current = !current;
	}
	close_record(s, &values[!current]);
}

static bool check_crc_trailer(struct scan *s)
{
	struct rsh_ckpt_index *ix = s->index;
	uint8_t tail[RSH_CRC_TRAILER_BYTES];
	uint64_t crc = 0;
	size_t got;

	s->end = s->pb.src->size;
	if (s->end < RSH_CRC_TRAILER_BYTES)
		return true;
	if (!pb_read(&s->pb, tail, sizeof(tail), s->end - sizeof(tail),
		     sizeof(tail), &got) ||
	    memcmp(tail, CRC_MAGIC, CRC_MAGIC_BYTES))
		return s->pb.rc == 0;
	s->end -= RSH_CRC_TRAILER_BYTES;
	for (unsigned i = CRC_MAGIC_BYTES; i < RSH_CRC_TRAILER_BYTES; i++) {
		if (crc >> 24)
			return pb_damaged(&s->pb, s->end, "the CRC is not a "
					  "number of 32 bits");
		crc = crc << 8 | tail[i];
	}
	ix->has_crc = true;
	ix->crc = (uint32_t)crc;
	return true;
}

static bool check_encryption(struct scan *s)
{
	static const struct {
		uint8_t magic[4]; /* an int32, little-endian */
		const char *name;
	} ciphers[] = {
		{ { 0xd8, 0x5e, 0x3a, 0x7f }, "AES-GCM" },
		{ { 0xd9, 0x5e, 0x3a, 0x7f }, "AES-CBC" },
		{ { 0xda, 0x5e, 0x3a, 0x7f }, "SM4-CBC" },
	};
	const uint8_t *p;

	if (s->end < sizeof(ciphers[0].magic))
		return true;
	p = pb_look(&s->pb, 0, sizeof(ciphers[0].magic));
	for (size_t i = 0; p && i < sizeof(ciphers) / sizeof(ciphers[0]); i++)
		if (!memcmp(p, ciphers[i].magic, sizeof(ciphers[i].magic)))
			s->pb.rc = rsh_error_set(
				s->pb.err, ENOTSUP,
				"%s: the checkpoint is encrypted (%s); it has to be saved without enc_key",
				s->pb.src->path, ciphers[i].name);
	return s->pb.rc == 0;
}

/* ---- by name ---- */

/* Sorts the records.  The content of the first record of a repeated name
 * becomes that of the last one, and the other records of it are removed. */
static void scan_index_names(struct scan *s)
{
	struct rsh_ckpt_index *ix = s->index;
	uint32_t twice, kept = 0;

	ix->by_name = rsh_alloc_array(ix->n_records, sizeof(*ix->by_name));
	if (!ix->by_name)
		pb_nomem(&s->pb);
	if (!ix->by_name || rsh_ckpt_index_sort(ix, &twice) == 0)
		return;
	for (uint32_t i = 1, first = 0; i < ix->n_records; i++) {
		struct rsh_record *r = &ix->records[ix->by_name[i]];
		struct rsh_record *to = &ix->records[ix->by_name[first]];

		if (r->name != to->name) {
			first = i;
			continue;
		}
		*to = *r;
		r->name = RSH_NAME_NONE;
	}
	for (uint32_t i = 0; i < ix->n_records; i++)
		if (ix->records[i].name != RSH_NAME_NONE)
			ix->records[kept++] = ix->records[i];
	ix->n_records = kept;
	rsh_ckpt_index_sort(ix, &twice);
}

/* Frees unused memory: the indexes of a job are in memory as long as the
 * mount. */
static void trim(void *ptr, size_t n, size_t elem)
{
	void *old, *p;

	memcpy(&old, ptr, sizeof(old));
	if (!old || !n)
		return;
	p = realloc(old, n * elem);
	if (p)
		memcpy(ptr, &p, sizeof(p));
}

int rsh_ckpt_scan(const struct rsh_byte_source *src, struct rsh_names *names,
		  struct rsh_ckpt_index **out, struct rsh_error *err)
{
	cleanup_free struct scan *s = malloc(sizeof(*s));
	struct rsh_ckpt_index *ix;
	int rc;

	if (!s)
		return rsh_error_nomem(err);
	memset(s, 0, offsetof(struct scan, pb.window));
	s->pb.src = src;
	s->pb.err = err;
	s->names = names;
	s->index = ix = calloc(1, sizeof(*ix));
	if (!ix)
		return rsh_error_nomem(err);
	ix->file_bytes = src->size;
	if (check_crc_trailer(s) && check_encryption(s))
		scan_records(s);
	rc = s->pb.rc;
	if (!rc && !src->size)
		rc = rsh_error_set(err, EBADMSG, "%s: the file is empty",
				   src->path);
	else if (!rc && !ix->n_records)
		rc = rsh_error_set(err, EBADMSG,
				   "%s: the file holds no parameter%s",
				   src->path, s->skipped ?
				   "; it is not a checkpoint" : "");
	if (rc == 0) {
		scan_index_names(s);
		rc = s->pb.rc;
	}
	if (rc) {
		rsh_ckpt_index_free(ix);
		return rc;
	}
	trim(&ix->records, ix->n_records, sizeof(*ix->records));
	trim(&ix->extents, ix->n_extents, sizeof(*ix->extents));
	trim(&ix->dims, ix->n_dims, sizeof(*ix->dims));
	*out = ix;
	return 0;
}
