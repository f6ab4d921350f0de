/* SPDX-License-Identifier: Apache-2.0 */
/* wire/checkpoint2_common.c writes and reads common.json. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "rsh/util/mem.h"
#include "rsh/wire/checkpoint2_emit.h"

#define NUMBER_BYTES 40

static const char *common_count(uint64_t n, char text[NUMBER_BYTES])
{
	if (n == 0)
		return "null";
	snprintf(text, NUMBER_BYTES, "%" PRIu64, n);
	return text;
}

/* It is read as a float if it looks like one. */
static const char *common_real(double v, char text[NUMBER_BYTES])
{
	if (!(v > 0) || !isfinite(v))
		return "null";
	snprintf(text, NUMBER_BYTES - 2, "%.17g", v);
	if (!strpbrk(text, ".e"))
		strcat(text, ".0");
	return text;
}

int rsh_ckpt2_common_format(const struct rsh_ckpt2_common *c, char **out)
{
	char epoch[NUMBER_BYTES], loss[NUMBER_BYTES], batch[NUMBER_BYTES];
	const int n = asprintf(
		out, "{\n    \"epoch_num\": %s,\n"
		"    \"step_num\": %" PRIu64 ",\n"
		"    \"global_step\": %" PRIu64 ",\n"
		"    \"loss_scale\": %s,\n"
		"    \"global_batch_size\": %s\n}",
		common_count(c->epoch, epoch), c->step, c->step,
		common_real(c->loss_scale, loss),
		common_count(c->batch_size, batch));

	return n < 0 ? -ENOMEM : n;
}

static void common_take(const json_t *all, const char *key, uint64_t *out)
{
	const json_int_t n = json_integer_value(json_object_get(all, key));

	if (n > 0)
		*out = (uint64_t)n;
}

int rsh_ckpt2_common_parse(const void *data, size_t len, const char *path,
			   struct rsh_ckpt2_common *c, struct rsh_error *err)
{
	json_error_t e;
	json_t *all = json_loadb(data, len, 0, &e);
	double loss;

	if (!json_is_object(all)) {
		json_decref(all);
		return rsh_error_set(err, EBADMSG, "%s: not a JSON object",
				     path);
	}
	common_take(all, "epoch_num", &c->epoch);
	common_take(all, "global_batch_size", &c->batch_size);
	loss = json_number_value(json_object_get(all, "loss_scale"));
	if (loss > 0)
		c->loss_scale = loss;
	json_decref(all);
	return 0;
}
