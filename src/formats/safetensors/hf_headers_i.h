/* SPDX-License-Identifier: Apache-2.0 */
/* formats/safetensors/hf_headers_i.h - the metadata in the headers of a model's
 * files. */
#pragma once

#include <stdbool.h>

#include "rsh/plan/options.h"
#include "rsh/source/source.h"

/* See take_headers of struct rsh_output; the form is a struct rsh_hf_form. */
int rsh_hf_take_headers(const struct rsh_source *s, bool as_saved,
			const struct rsh_plan_options *opts, void **form);
