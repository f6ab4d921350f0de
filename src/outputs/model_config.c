/* SPDX-License-Identifier: Apache-2.0 */
/* outputs/model_config.c compares config.json and generation_config.json of a
 * model with the weights that are shown, and corrects them. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hf_config_i.h"
#include "rsh/source/tables.h"
#include "rsh/util/checked.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"

#define GENERATION_NAME "generation_config.json"
/* Two tensors are compared at SAMPLES places of SAMPLE_BYTES. */
#define SAMPLE_BYTES 4096
#define SAMPLES 3

/* This is the place of a weight in the shown files. */
struct shown_at {
	uint32_t file;
	uint64_t offset, bytes;
};

struct shown_weights {
	const struct rsh_output_tree *t;
	struct rsh_hf_weight *weights;
	struct shown_at *at;
	uint32_t n;
};

static int shown_list(const struct rsh_output_tree *t, struct shown_weights *s,
		      struct rsh_error *err)
{
	const uint32_t n_files = rsh_plan_n_files(t->plan);
	size_t n = 0;

	for (uint32_t f = 0; f < n_files; f++)
		n += rsh_plan_n_records(t->plan, f);
	*s = (struct shown_weights){
		.t = t,
		.weights = rsh_alloc_array(n ? n : 1, sizeof(*s->weights)),
		.at = rsh_alloc_array(n ? n : 1, sizeof(*s->at)),
	};
	if (!s->weights || !s->at)
		return rsh_error_nomem(err);
	for (uint32_t f = 0; f < n_files; f++)
		for (uint32_t i = 0; i < rsh_plan_n_records(t->plan, f); i++) {
			struct rsh_virtual_record r;

			rsh_plan_record(t->plan, f, i, &r);
			s->weights[s->n] = (struct rsh_hf_weight){
				r.shape.name, r.shape.dtype, r.shape.n_dims,
				r.shape.dims,
			};
			s->at[s->n++] = (struct shown_at){
				f, r.offset, r.shape.content_bytes,
			};
		}
	return 0;
}

/* Reads some bytes of a weight.  Returns false if they cannot be read. */
static bool shown_read(const struct shown_weights *s, uint32_t i, uint64_t at,
		       uint8_t *to, size_t len)
{
	const struct rsh_body b = rsh_body_of_plan(s->t->reader,
						   s->at[i].file);

	return !rsh_plan_is_lost(s->t->plan, s->at[i].file) &&
	       rsh_body_read(&b, to, len, s->at[i].offset + at) ==
	       (ssize_t)len;
}

static bool shown_differ(void *ctx, uint32_t a, uint32_t b)
{
	const struct shown_weights *s = ctx;
	const uint64_t bytes = s->at[a].bytes;
	const size_t len = (size_t)rsh_min_u64(bytes, SAMPLE_BYTES);

	for (unsigned i = 0; i < SAMPLES && s->at[b].bytes == bytes; i++) {
		const uint64_t at = (bytes - len) / (SAMPLES - 1) * i;
		uint8_t x[SAMPLE_BYTES], y[SAMPLE_BYTES];

		if (!shown_read(s, a, at, x, len) ||
		    !shown_read(s, b, at, y, len))
			return false;
		if (memcmp(x, y, len) != 0)
			return true;
	}
	return false;
}

static void shown_note(void *ctx, const char *sentence)
{
	(void)ctx;
	rsh_log_warning("%s", sentence);
}

/* ---- one file ---- */

/* A file that is not JSON is shown unchanged: Python cannot read it either. */
static int config_update_file(struct shown_weights *s, const char *dir,
			      struct rsh_model_file *f, bool complete,
			      struct rsh_error *err)
{
	const struct rsh_output_tree *t = s->t;
	const struct rsh_hf_weights w = {
		.v = s->weights, .n = s->n, .partial = t->partial,
		.differ = shown_differ, .note = shown_note, .ctx = s,
	};
	struct rsh_error why = RSH_ERROR_INIT;
	struct rsh_json_edit *e = NULL;
	cleanup_free char *path = NULL;
	char *text;
	size_t len;
	int rc;

	if (asprintf(&path, "%s/%s", dir, f->name) < 0) {
		path = NULL;
		return rsh_error_nomem(err);
	}
	rc = rsh_json_edit_open(f->text, (size_t)f->bytes, path, &e, &why);
	if (rc == -ENOMEM)
		return rsh_error_nomem(err);
	if (rc) {
		rsh_log_warning("%s; it is shown as it is, and was not "
				"compared with the weights", why.text);
		return 0;
	}
	if (complete && t->hold_config)
		rc = t->hold_config(t->ctx, e, path, err);
	if (rc == 0)
		rc = rsh_hf_config_update(&w, e, path, complete, err);
	if (rc >= 0 && rsh_json_edit_changed(e)) {
		rc = rsh_json_edit_write(e, &text, &len) ?
			rsh_error_nomem(err) : 0;
		if (rc == 0) {
			free(f->text);
			f->text = text;
			f->bytes = len;
		}
	}
	rsh_json_edit_free(e);
	return rc > 0 ? 0 : rc;
}

int rsh_model_configs_update(const struct rsh_output_tree *t,
			     struct rsh_model_files *files,
			     struct rsh_error *err)
{
	struct shown_weights s = { 0 };
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < files->n; i++) {
		struct rsh_model_file *f = &files->v[i];
		const bool config = strcmp(f->name,
					   RSH_MODEL_CONFIG_NAME) == 0;

		if (!config && strcmp(f->name, GENERATION_NAME) != 0)
			continue;
		if (!s.t)
			rc = shown_list(t, &s, err);
		if (rc == 0)
			rc = config_update_file(&s, files->dir, f, config,
						err);
	}
	free(s.weights);
	free(s.at);
	return rc;
}
