/* SPDX-License-Identifier: Apache-2.0 */
/* unit/torch_support.h - files of torch.save(), written from a text that looks
 * like Python:
 *
 *	{'w': F32[2,3]=5, 'step': 7, 'args': argparse.Namespace<>!{'n': 1.5}}
 *
 *	'text'  7  -1.5  True  False  None  [..]  (..)  {key: value, ..}
 *	a.b.C		the name of a class or function
 *	a.b.C(x, y)	what a call of it gives (REDUCE)
 *	a.b.C<x, y>	what its __new__() gives (NEWOBJ)
 *	X!y		X with the state y (BUILD)
 *	&1 X, *1	X, and the same object once more
 *	F32[2,3]=5	a tensor with a storage of its own, whose elements are 5,
 *			6, 7 and so on; without "=5" from 0 on.  F32 F64 BF16
 *			F16 I64 I32 U8; F8_E4M3 has these bytes
 *	F32[3]/8=5	the same in a storage of 8 elements
 *	F32[3]@0+2	a tensor of 3 elements of storage 0, from element 2 on
 *	F32[2,3]:[1,2]	a tensor with these strides
 *
 * Storages have numbers in the order of the text. */
#ifndef TORCH_SUPPORT_H
#define TORCH_SUPPORT_H

#include "wire_support.h"

/* Appends the pickle of a text. */
void append_pickle(struct buffer *b, const char *text);
/* Makes the archive around it, with checksums; the entries are below `root`. */
struct buffer torch_file(const char *text, const char *root, size_t n_root);

struct torch_text {
	const char *name, *text;
	const char *root; /* NULL: the name without its suffix, as in torch */
};
/* Writes it to a file below `tree`, making its directories. */
void torch_write(const char *tree, const struct torch_text *file);
/* Appends a safetensors file of the tensors "w F32[2,3]=5; v U8[2]", in this
 * order. */
void append_safetensors(struct buffer *b, const char *text);
/* Writes files up to one without a name.  Those whose names end with .json or
 * .txt, or have no suffix, have the text itself, .pkl and .metadata a pickle of
 * it, and .safetensors its tensors.  A text that begins with "#" is what
 * follows. */
void torch_write_all(const char *tree, const struct torch_text *files);


/* ---- steps, for --resume ---- */

struct rsh_format;
/* Gives what the check of a format says of files up to one without a name, which
 * are all of torch.save(); their paths are the names. */
int torch_check_step(const struct rsh_format *format,
		     const struct torch_text *files, bool full,
		     struct rsh_error *err);

#endif
