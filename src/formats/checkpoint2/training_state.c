/* SPDX-License-Identifier: Apache-2.0 */
/* formats/checkpoint2/training_state.c reads the common.json of a step. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>

#include "steps_i.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/wire/json_load.h"

/* A common.json has only a few numbers. */
static const struct rsh_small_file common_file = { "common.json", 64 << 10 };

static void common_take(const json_t *all, const char *key, uint64_t *out)
{
	const json_int_t n = json_integer_value(json_object_get(all, key));

	if (n > 0)
		*out = (uint64_t)n;
}

int rsh_checkpoint2_common_parse(const void *data, size_t len, const char *path,
				 struct rsh_training_state *c,
				 struct rsh_error *err)
{
	json_t *all;
	double loss;
	int rc = rsh_json_load(&(struct rsh_memory){ data, len },
			       0, path, "a common.json", &all, err);

	if (rc)
		return rc;
	common_take(all, "epoch_num", &c->epoch);
	common_take(all, "global_batch_size", &c->batch_size);
	loss = json_number_value(json_object_get(all, "loss_scale"));
	if (loss > 0)
		c->loss_scale = loss;
	json_decref(all);
	return 0;
}

int rsh_checkpoint2_training_state(const struct rsh_source *s,
				   struct rsh_training_state *out)
{
	struct rsh_error err = RSH_ERROR_INIT;
	cleanup_free char *name = NULL, *path = NULL;
	cleanup_free uint8_t *data = NULL;
	const struct rsh_checkpoint *one;
	size_t first, end, len;
	int rc;

	rsh_source_candidate_range(s, rsh_source_chosen(s), &first, &end);
	if (first == end)
		return 0;
	one = rsh_source_on_list(s, first);
	if (asprintf(&name, "%.*scommon.json", (int)(one->base - one->name),
		     one->name) < 0)
		name = NULL;
	if (!name || asprintf(&path, "%s/%s", rsh_source_path(s), name) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	rc = rsh_store_load(rsh_source_store(s), name, &common_file, &data,
			    &len, &err);
	if (rc == 0)
		rc = rsh_checkpoint2_common_parse(data, len, path, out, &err);
	if (rc && rc != -ENOMEM)
		rsh_log_notice("%s", err.text);
	return rc == -ENOMEM ? rc : 0;
}
