/* SPDX-License-Identifier: Apache-2.0 */
/* wire/quantisation_keys_i.h - which keys of a "quantization_config" are known
 * not to change what the dense weights are; for model_config.c only. */
#pragma once

#include <stdbool.h>

#include <jansson.h>

/* Sets *key to the first key that is set and not known for the method, with the
 * keys above it ("meta.rotation"); the caller frees it.  NULL: all are known,
 * or the method has no list.  Returns 0 or -ENOMEM. */
int quantisation_find_unknown(json_t *all, const char *method, char **key);
