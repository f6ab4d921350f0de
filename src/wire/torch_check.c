/* wire/torch_check.c - files of torch.save() from before it wrote zip archives,
 * and the choice between the two.
 *
 * A pickle is a program; here its instructions are only stepped over. */
#include "config.h"

#include "rsh/wire/intact.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "bytes_i.h"
#include "rsh/util/mem.h"

#define WINDOW_BYTES 65536

/* PROTO 2, LONG1 0x1950a86a20f9469cfc6c, STOP */
static const uint8_t legacy_magic[] = {
	0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46,
	0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, '.',
};
#define LEGACY_PICKLES 5
/* What stands before the content of each storage: its number of elements. */
#define STORAGE_COUNT_BYTES 8

struct walk {
	const struct rsh_byte_source *src;
	struct rsh_error *err;
	uint64_t at;
	uint64_t n_strings; /* seen in the present pickle */

	uint64_t window_at;
	size_t n_window;
	uint8_t window[WINDOW_BYTES];
};

/* How many bytes follow an instruction. */
enum operand {
	NOTHING,
	BYTES_1 = 1, BYTES_2 = 2, BYTES_4 = 4, BYTES_8 = 8,
	COUNTED_1, COUNTED_4, COUNTED_8, /* a length, then so many bytes */
	LINE, LINES_2,
	STOP,
	UNKNOWN,
};

static enum operand operand_of(uint8_t instruction)
{
	switch (instruction) {
	case '(': case '0': case '1': case '2': case 'N': case 'Q': case 'R':
	case ']': case 'a': case 'b': case 'd': case 'e': case 'l': case 'o':
	case 's': case 't': case 'u': case ')': case '}':
	case 0x81: case 0x85: case 0x86: case 0x87: case 0x88: case 0x89:
	case 0x8f: case 0x90: case 0x91: case 0x92: case 0x93: case 0x94:
	case 0x97: case 0x98:
		return NOTHING;
	case 'K': case 'h': case 'q': case 0x80: case 0x82:
		return BYTES_1;
	case 'M': case 0x83:
		return BYTES_2;
	case 'J': case 'j': case 'r': case 0x84:
		return BYTES_4;
	case 'G': case 0x95:
		return BYTES_8;
	case 'U': case 'C': case 0x8a: case 0x8c:
		return COUNTED_1;
	case 'X': case 'T': case 'B': case 0x8b:
		return COUNTED_4;
	case 0x8d: case 0x8e: case 0x96:
		return COUNTED_8;
	case 'F': case 'I': case 'L': case 'P': case 'S': case 'V': case 'g':
	case 'p':
		return LINE;
	case 'c': case 'i':
		return LINES_2;
	case '.':
		return STOP;
	default:
		return UNKNOWN;
	}
}

/* Makes the byte at w->at readable. */
static int fill(struct walk *w)
{
	uint64_t left;
	int rc;

	if (w->at >= w->window_at && w->at - w->window_at < w->n_window)
		return 0;
	left = w->at < w->src->size ? w->src->size - w->at : 0;
	if (left == 0)
		return rsh_bytes_damaged(w->src, w->src->size,
					 "truncated within a pickle", w->err);
	w->n_window = left < WINDOW_BYTES ? (size_t)left : WINDOW_BYTES;
	w->window_at = w->at;
	rc = rsh_bytes_read(w->src, w->window, w->n_window, w->at, w->err);
	if (rc)
		w->n_window = 0;
	return rc;
}

static int next_byte(struct walk *w, uint8_t *out)
{
	int rc = fill(w);

	if (rc == 0)
		*out = w->window[w->at++ - w->window_at];
	return rc;
}

static int skip(struct walk *w, uint64_t n)
{
	if (n > w->src->size - w->at)
		return rsh_bytes_damaged(w->src, w->at, "truncated: a pickle "
					 "goes on after the end of the file",
					 w->err);
	w->at += n;
	return 0;
}

static int skip_counted(struct walk *w, unsigned width)
{
	uint64_t n = 0;
	uint8_t byte;

	for (unsigned i = 0; i < width; i++) {
		int rc = next_byte(w, &byte);

		if (rc)
			return rc;
		n |= (uint64_t)byte << (8 * i);
	}
	return skip(w, n);
}

static int skip_line(struct walk *w)
{
	uint8_t byte = 0;
	int rc = 0;

	while (rc == 0 && byte != '\n')
		rc = next_byte(w, &byte);
	return rc;
}

static int skip_operand(struct walk *w, enum operand operand)
{
	int rc;

	switch (operand) {
	case NOTHING:
	case STOP:
		return 0;
	case BYTES_1:
	case BYTES_2:
	case BYTES_4:
	case BYTES_8:
		return skip(w, operand);
	case COUNTED_1:
		return skip_counted(w, 1);
	case COUNTED_4:
		return skip_counted(w, 4);
	case COUNTED_8:
		return skip_counted(w, 8);
	case LINE:
		return skip_line(w);
	case LINES_2:
		rc = skip_line(w);
		return rc ? rc : skip_line(w);
	case UNKNOWN:
		break;
	}
	return rsh_bytes_damaged(w->src, w->at - 1, "no pickle instruction",
				 w->err);
}

static bool is_string(uint8_t instruction)
{
	return instruction == 'X' || instruction == 'U' || instruction == 'T' ||
	       instruction == 0x8c || instruction == 0x8d;
}

static int skip_pickle(struct walk *w)
{
	uint8_t instruction = 0;
	int rc = 0;

	w->n_strings = 0;
	while (rc == 0 && instruction != '.') {
		rc = next_byte(w, &instruction);
		if (rc == 0)
			rc = skip_operand(w, operand_of(instruction));
		w->n_strings += is_string(instruction);
	}
	return rc;
}

static int check_legacy(struct walk *w)
{
	int rc = 0;

	for (unsigned i = 0; i < LEGACY_PICKLES && rc == 0; i++)
		rc = skip_pickle(w);
	if (rc)
		return rc;
	if ((w->src->size - w->at) / STORAGE_COUNT_BYTES < w->n_strings)
		return rsh_bytes_damaged(w->src, w->at, "truncated: storages "
					 "are missing", w->err);
	return 0;
}

static int check_plain(struct walk *w)
{
	int rc = skip_pickle(w);

	if (rc)
		return rc;
	return w->at == w->src->size ? 0 :
	       rsh_bytes_damaged(w->src, w->at, "the file goes on after its "
				 "pickle", w->err);
}

int rsh_torch_check(const struct rsh_byte_source *src, bool full,
		    struct rsh_error *err)
{
	cleanup_free struct walk *w = NULL;
	uint8_t start[sizeof(legacy_magic)] = { 0 };
	size_t n = src->size < sizeof(start) ? (size_t)src->size :
					       sizeof(start);
	int rc;

	if (src->size == 0)
		return rsh_bytes_damaged(src, 0, "it is empty", err);
	rc = rsh_bytes_read(src, start, n, 0, err);
	if (rc)
		return rc;
	if (memcmp(start, "PK\3\4", 4) == 0)
		return rsh_zip_check(src, full, err);
	if (start[0] != 0x80)
		return rsh_bytes_damaged(src, 0, "neither a zip archive nor a "
					 "pickle, so not of torch.save()", err);
	w = calloc(1, sizeof(*w));
	if (!w)
		return rsh_error_nomem(err);
	w->src = src;
	w->err = err;
	return memcmp(start, legacy_magic, sizeof(legacy_magic)) == 0 ?
	       check_legacy(w) : check_plain(w);
}
