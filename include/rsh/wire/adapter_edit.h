/* SPDX-License-Identifier: Apache-2.0 */
/* wire/adapter_edit.h - the adapter_config.json of an adapter whose modules
 * have got other names. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rsh/util/error.h"

/* A module of the adapter, or a parameter that is adapted by its own name. */
struct rsh_adapter_module {
	const char *was, *name; /* before and now, without PEFT's prefix */
	bool is_parameter;
	uint64_t rank;
	double scaling;
};

/* Writes the config of `text`, of which the rest stays as it is, so that PEFT
 * finds these modules with their ranks and scalings.  `path` is for messages.
 * Returns 0 and *out, which the caller frees, -ENOMEM, or -EBADMSG or -ENOTSUP
 * with a sentence: the text is not valid, or the config cannot say it. */
int rsh_adapter_config_edit(const char *text, size_t len, const char *path,
			    const struct rsh_adapter_module *v, size_t n,
			    char **out, size_t *out_len, struct rsh_error *err);
