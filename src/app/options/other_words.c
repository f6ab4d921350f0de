/* SPDX-License-Identifier: Apache-2.0 */
/* app/options/other_words.c has words of other programs for options and
 * operands. */
#include "config.h"

#include "options_i.h"

static const struct {
	const char *theirs, *ours;
} words[] = {
	/* arguments of MindSpore's and MindFormers' converters */
	{ "src-strategy-file", "src-strategy" },
	{ "dst-strategy-file", "dst-strategy" },
	{ "src-ckpt-strategy", "src-strategy" },
	{ "dst-ckpt-strategy", "dst-strategy" },
	{ "output-format", "format" },
	{ "ckpt-prefix", "prefix" },
	{ "src-checkpoints-dir", "SOURCE" },
	{ "src-checkpoint", "SOURCE" },
	{ "src-ckpt-path-or-dir", "SOURCE" },
	{ "dst-checkpoints-dir", "OUTDIR" },
	{ "dst-checkpoint", "OUTDIR" },
	{ "dst-ckpt-dir", "OUTDIR" },
};

const char *rsh_other_word(const char *word, size_t n)
{
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (rsh_suggestion_same(words[i].theirs, word, n))
			return words[i].ours;
	return NULL;
}
