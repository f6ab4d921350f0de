/* SPDX-License-Identifier: Apache-2.0 */
/* wire/plain.h - values of plain data, as JSON and as a pickle.
 *
 * A value does not change after it is made; then any thread may read it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rsh_pickle_value;

/* This is a value of plain data: None, bools, numbers of 64 bits, texts, bytes,
 * and tuples, lists and dictionaries of these. */
struct rsh_plain {
	/* NULL: JSON cannot express it, because of a key, an infinity or a
	 * NaN */
	char *json;
	uint8_t *pickle; /* of protocol 2; NULL: it is not plain data, or is too
			  * deep or too long */
	size_t n_pickle;
	bool has_floats; /* it is no plain data, since it has tensors of floats,
			  * as weights are */
};
/* A step of the way through nested containers: the key of a dictionary or, with
 * `text` NULL, the index of a list. */
struct rsh_path_key {
	const char *text;
	uint64_t index;
};

struct rsh_arena;
/* Returns a copy of n keys and their texts; NULL: memory is out. */
struct rsh_path_key *rsh_path_keys_copy(const struct rsh_path_key *keys,
					uint32_t n, struct rsh_arena *arena);

/* These write a value in both forms.  The caller must call rsh_plain_clear().
 * Returns 0 or -ENOMEM. */
int rsh_plain_make(const struct rsh_pickle_value *v, struct rsh_plain *out);
int rsh_plain_make_number(int64_t v, struct rsh_plain *out);
int rsh_plain_make_real(double v, struct rsh_plain *out);
/* Makes a copy of a value.  The caller must call rsh_plain_clear(), also after
 * a failure.  Returns 0 or -ENOMEM. */
int rsh_plain_copy(const struct rsh_plain *from, struct rsh_plain *to);
void rsh_plain_clear(struct rsh_plain *p);
/* Makes a JSON object of n values.  Values without JSON are left out.  *out is
 * from malloc and ends in a newline.  Returns 0 or -ENOMEM. */
int rsh_plain_join(const char *const *names, const struct rsh_plain *values,
		   uint32_t n, char **out, size_t *len);
