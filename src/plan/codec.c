#include <string.h>

#include "rsh/plan/conversion.h"

#define BF16_NAN 0x7fc0u

static uint16_t load16(const uint8_t *p)
{
	return (uint16_t)(p[0] | p[1] << 8);
}

static void store16(uint8_t *p, uint16_t v)
{
	p[0] = (uint8_t)v;
	p[1] = (uint8_t)(v >> 8);
}

/* What is left of a bfloat16 that went through float32 and back. */
static uint16_t canonical(uint16_t v)
{
	return (v & 0x7fff) > 0x7f80 ? BF16_NAN : v;
}

size_t rsh_codec_decode(enum rsh_codec codec, const uint8_t *in, size_t n_bytes,
			uint8_t *out)
{
	size_t n;

	switch (codec) {
	case RSH_CODEC_NONE:
		memmove(out, in, n_bytes);
		return n_bytes;
	case RSH_CODEC_BF16_NAN:
		for (size_t i = 0; i + 1 < n_bytes; i += 2)
			store16(out + i, canonical(load16(in + i)));
		return n_bytes;
	case RSH_CODEC_BF16_WIDE:
		n = n_bytes / 4;
		for (size_t i = 0; i < n; i++)
			store16(out + 2 * i, load16(in + 4 * i + 2));
		return 2 * n;
	case RSH_CODEC_BF16_WIDE_NAN:
		n = n_bytes / 4;
		for (size_t i = 0; i < n; i++)
			store16(out + 2 * i, canonical(load16(in + 4 * i + 2)));
		return 2 * n;
	}
	return 0;
}
