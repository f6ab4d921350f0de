/* SPDX-License-Identifier: Apache-2.0 */
/* weights/decoder_names.h - whether the names of weights can be those of a
 * model of Hugging Face's.
 *
 * Known are decoders whose weights are all below model.layers, or are
 * model.embed_tokens, model.norm or lm_head; "model." may be absent, as
 * transformers adds it.  Quantised and draft models keep some of these names.
 * Nothing is said of other architectures, nor of optimizer states.
 *
 * This is arithmetic without I/O. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Returns the known architecture in the JSON text of "architectures", in its
 * quotes; NULL: there is none. */
const char *rsh_decoder_class(const char *json, size_t length);

struct rsh_decoder_names {
	const char *first; /* a weight that no such model has; NULL: none */
	bool fits;	   /* such a model may have one of the weights */
};
/* Looks at a name, which must outlive *d. */
void rsh_decoder_names_add(struct rsh_decoder_names *d, const char *name);
/* Writes a sentence if no weight is one of such a model; `path` is its
 * config.json.  Returns whether it did. */
bool rsh_decoder_names_misfit(const struct rsh_decoder_names *d,
			      const char *path, const char *class, char *text,
			      size_t size);
