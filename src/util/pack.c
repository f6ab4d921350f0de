/* SPDX-License-Identifier: Apache-2.0 */
/* util/pack.c packs bytes in pieces that fit the processor's caches.
 *
 * Format: one byte with the size of an element (1, 2, 4 or 8); then for each
 * piece its packed length in four bytes, little-endian, and so many bytes of
 * LZ4.  If PLAIN is added to the length, the piece follows as it was.
 */
#include "config.h"

#include "rsh/util/pack.h"

#include <endian.h>
#include <string.h>

#include <lz4.h>

#include "rsh/util/checked.h"
#include "rsh/util/vectors.h"

/* A sample has this many stretches of this many bytes, spread over the block.
 * Packing pays if the result for the sample is at most this fraction.  The
 * fraction is larger than that for a block, since a sample does not contain
 * repeats over a longer distance. */
#define STRETCHES 32
#define STRETCH_BYTES 256
#define SAMPLE_NUMERATOR 4
#define SAMPLE_DENOMINATOR 5
/* Samples are compressed with this acceleration of LZ4.  Data that compresses
 * well does so with acceleration, too.  For a model in bfloat16, samples of
 * data that does not compress are the greater part of the cost of compressing;
 * with acceleration each takes a quarter of the instructions. */
#define SAMPLE_HASTE 4

enum { UNIT_BYTES = 1, LENGTH_BYTES = 4 };

/* A bit that is not set in the length of any piece. */
#define PLAIN ((size_t)1 << 31)

/* ---- elements and planes ----
 *
 * Plane i has byte i of every element.  One pass moves the bytes at even places
 * before those at odd places.  As many passes as the unit can be halved turn
 * elements into planes.  The same number of passes that interleave the halves
 * turns planes into elements. */

#ifdef RSH_HAS_VECTORS

#define UNIT_MAX 8

#define EVEN(a, b)                                                         \
	__builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, \
				22, 24, 26, 28, 30)
#define ODD(a, b)                                                          \
	__builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, \
				23, 25, 27, 29, 31)

/* Moves whole vectors of the n elements and returns how many elements these
 * are.  `unit` and `join` are constants of each call, so that the vectors stay
 * in registers. */
static inline __attribute__((always_inline)) size_t
planes_by_vectors(const uint8_t *in, size_t n, unsigned unit, bool join,
		  uint8_t *out)
{
	const unsigned half = unit / 2;
	size_t at = 0;

	for (; at + RSH_VECTOR <= n; at += RSH_VECTOR) {
		rsh_vector_1 v[UNIT_MAX], w[UNIT_MAX];

		RSH_UNROLL
		for (unsigned i = 0; i < unit; i++)
			memcpy(&v[i], join ? in + i * n + at :
			       in + at * unit + i * RSH_VECTOR, RSH_VECTOR);
		RSH_UNROLL
		for (unsigned pass = 1; pass < unit; pass *= 2) {
			RSH_UNROLL
			for (unsigned i = 0; i < half; i++) {
				w[join ? 2 * i : i] = join ?
					RSH_LOW_1(v[i], v[half + i]) :
					EVEN(v[2 * i], v[2 * i + 1]);
				w[join ? 2 * i + 1 : half + i] = join ?
					RSH_HIGH_1(v[i], v[half + i]) :
					ODD(v[2 * i], v[2 * i + 1]);
			}
			RSH_UNROLL
			for (unsigned i = 0; i < unit; i++)
				v[i] = w[i];
		}
		RSH_UNROLL
		for (unsigned i = 0; i < unit; i++)
			memcpy(join ? out + at * unit + i * RSH_VECTOR :
			       out + i * n + at, &v[i], RSH_VECTOR);
	}
	return at;
}

#endif

/* Makes planes of elements, or with `join` elements of planes.  Bytes of an
 * incomplete element at the end stay there. */
static inline __attribute__((always_inline)) void
planes_move(const uint8_t *in, size_t len, unsigned unit, bool join,
	    uint8_t *out)
{
	const size_t n = len / unit;
	size_t at = 0;

#ifdef RSH_HAS_VECTORS
	at = unit == 2 ? planes_by_vectors(in, n, 2, join, out) :
	     unit == 4 ? planes_by_vectors(in, n, 4, join, out) :
			 planes_by_vectors(in, n, 8, join, out);
#endif
	for (; at < n; at++)
		for (unsigned i = 0; i < unit; i++)
			out[join ? at * unit + i : i * n + at] =
				in[join ? i * n + at : at * unit + i];
	memcpy(out + n * unit, in + n * unit, len - n * unit);
}

/* ---- packing ---- */

static unsigned unit_known(unsigned unit)
{
	return unit == 2 || unit == 4 || unit == 8 ? unit : 1;
}

/* Returns how many bytes LZ4 makes of a piece, 0 if they are more than `max`.
 * With a greater `haste` LZ4 looks for repeats at fewer places. */
static size_t piece_compress(const uint8_t *in, size_t len, unsigned unit,
			     int haste, uint8_t *out, size_t max)
{
	uint8_t planes[RSH_PACK_PIECE];

	if (unit > 1) {
		planes_move(in, len, unit, false, planes);
		in = planes;
	}
	return (size_t)LZ4_compress_fast((const char *)in, (char *)out,
					 (int)len, (int)max, haste);
}

static void length_put(uint8_t *at, size_t len)
{
	const uint32_t v = htole32((uint32_t)len);

	memcpy(at, &v, sizeof(v));
}

static size_t length_get(const uint8_t *at)
{
	uint32_t v;

	memcpy(&v, at, sizeof(v));
	return le32toh(v);
}

/* Returns the size of a packed piece with its length, 0 if it exceeds `max`. */
static size_t piece_pack(const uint8_t *in, size_t len, unsigned unit,
			 uint8_t *out, size_t max)
{
	size_t n;

	if (max <= LENGTH_BYTES)
		return 0;
	n = piece_compress(in, len, unit, 1, out + LENGTH_BYTES,
			   (size_t)rsh_min_u64(max - LENGTH_BYTES, len - 1));
	if (!n) {
		if (max - LENGTH_BYTES < len)
			return 0;
		memcpy(out + LENGTH_BYTES, in, len);
		length_put(out, PLAIN + len);
		return LENGTH_BYTES + len;
	}
	length_put(out, n);
	return LENGTH_BYTES + n;
}

size_t rsh_pack(const uint8_t *in, size_t len, unsigned unit, uint8_t *out,
		size_t max)
{
	size_t n = UNIT_BYTES;

	if (max < UNIT_BYTES)
		return 0;
	unit = unit_known(unit);
	out[0] = (uint8_t)unit;
	for (size_t at = 0, piece; at < len; at += piece) {
		size_t took;

		piece = (size_t)rsh_min_u64(len - at, RSH_PACK_PIECE);
		took = piece_pack(in + at, piece, unit, out + n, max - n);
		if (!took)
			return 0;
		n += took;
	}
	return n;
}

bool rsh_pack_pays(const uint8_t *in, size_t len, unsigned unit)
{
	uint8_t sample[STRETCHES * STRETCH_BYTES];
	uint8_t packed[sizeof(sample)];
	const size_t step = len / STRETCHES;
	size_t n = 0;

	unit = unit_known(unit);
	if (len <= sizeof(sample)) {
		memcpy(sample, in, len);
		n = len;
	}
	for (unsigned i = 0; i < STRETCHES && len > sizeof(sample); i++) {
		memcpy(sample + n, in + i * (step & ~(size_t)7), STRETCH_BYTES);
		n += STRETCH_BYTES;
	}
	return n && piece_compress(sample, n, unit, SAMPLE_HASTE, packed,
				   n * SAMPLE_NUMERATOR /
				   SAMPLE_DENOMINATOR) > 0;
}

/* ---- unpacking ---- */

/* A piece as it was packed. */
struct piece {
	const uint8_t *at;
	size_t n;
	bool plain;
};

/* Unpacks a whole piece of `len` bytes. */
static bool piece_unpack(const struct piece *p, unsigned unit, uint8_t *out,
			 size_t len)
{
	uint8_t planes[RSH_PACK_PIECE];
	uint8_t *const to = unit > 1 ? planes : out;

	if (p->plain) {
		memcpy(out, p->at, len);
		return true;
	}
	if (LZ4_decompress_safe((const char *)p->at, (char *)to, (int)p->n,
				(int)len) != (int)len)
		return false;
	if (unit > 1)
		planes_move(planes, len, unit, true, out);
	return true;
}

static bool piece_unpack_part(const struct piece *p, unsigned unit, size_t len,
			      size_t skip, uint8_t *out, size_t want)
{
	uint8_t whole[RSH_PACK_PIECE];

	if (want == len)
		return piece_unpack(p, unit, out, len);
	if (p->plain) {
		memcpy(out, p->at + skip, want);
		return true;
	}
	if (!piece_unpack(p, unit, whole, len))
		return false;
	memcpy(out, whole + skip, want);
	return true;
}

/* Parses the next piece, of `len` bytes unpacked; returns false if it is
 * damaged. */
static bool piece_next(const uint8_t **in, size_t *n, size_t len,
		       struct piece *p)
{
	size_t length;

	if (*n < LENGTH_BYTES)
		return false;
	length = length_get(*in);
	*p = (struct piece){
		.at = *in + LENGTH_BYTES, .n = length & ~PLAIN,
		.plain = length & PLAIN,
	};
	*n -= LENGTH_BYTES;
	if (p->n == 0 || p->n > len || p->n > *n || (p->plain && p->n != len))
		return false;
	*in = p->at + p->n;
	*n -= p->n;
	return true;
}

/* Unpacks a part and moves *in behind the last piece that has some of it. */
static bool pieces_unpack(const uint8_t **in, size_t *n, size_t len,
			  size_t offset, uint8_t *out, size_t want)
{
	unsigned unit;

	if (*n < UNIT_BYTES || offset > len || want > len - offset)
		return false;
	unit = **in;
	if (unit != 1 && unit_known(unit) != unit)
		return false;
	*in += UNIT_BYTES;
	*n -= UNIT_BYTES;
	for (size_t at = 0, piece; want; at += piece) {
		const size_t skip = offset > at ? offset - at : 0;
		struct piece p;
		size_t part;

		piece = (size_t)rsh_min_u64(len - at, RSH_PACK_PIECE);
		if (!piece_next(in, n, piece, &p))
			return false;
		if (skip >= piece)
			continue;
		part = (size_t)rsh_min_u64(piece - skip, want);
		if (!piece_unpack_part(&p, unit, piece, skip, out, part))
			return false;
		out += part;
		offset += part;
		want -= part;
	}
	return true;
}

bool rsh_unpack_part(const uint8_t *in, size_t n, size_t len, size_t offset,
		     uint8_t *out, size_t want)
{
	return pieces_unpack(&in, &n, len, offset, out, want);
}

bool rsh_unpack(const uint8_t *in, size_t n, uint8_t *out, size_t len)
{
	return pieces_unpack(&in, &n, len, 0, out, len) && n == 0;
}
