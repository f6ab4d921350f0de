/* SPDX-License-Identifier: Apache-2.0 */
/* formats/megatron/output.c shows a model as a step that Megatron-LM and
 * MindSpeed-LLM load, for any mesh:
 *
 *   /latest_checkpointed_iteration.txt                    "release", or "100"
 *   /release/mp_rank_TT[_PPP][_EEE]/model_optim_rng.pt    or iter_0000100
 *
 * With release Megatron-LM looks for no state of the optimizer. */
#include "config.h"

#include "output_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/formats/outputs.h"
#include "rsh/source/tables.h"
#include "rsh/util/text.h"

/* ---- the plan ---- */

/* Notes what the tree that is SOURCE has, and the one that is shown has not. */
static int note_schedule(const struct rsh_source *source, struct rsh_plan *p,
			 struct rsh_error *err)
{
	const uint64_t *args = rsh_megatron_source_args(source);

	if (!args || !(args[RSH_MEGATRON_NOOPS] || args[RSH_MEGATRON_DUAL]))
		return 0;
	return rsh_blueprint_note(p, rsh_text_format(
		"SOURCE has %s%s%s, and the tree that is shown has not: its "
		"run must not ask for it",
		args[RSH_MEGATRON_NOOPS] ? "noop_layers" : "",
		args[RSH_MEGATRON_NOOPS] && args[RSH_MEGATRON_DUAL] ?
		" and " : "", args[RSH_MEGATRON_DUAL] ? "dualpipev" : "")) ?
		rsh_error_nomem(err) : 0;
}

static int model_write(struct rsh_megatron_model *m,
		       const struct rsh_output_job *job, struct rsh_plan **out,
		       struct rsh_error *err)
{
	const struct rsh_megatron_wanted *w = m->wanted;
	struct rsh_megatron_form form = {
		.iteration = w->iteration, .n_chunks = w->n_chunks,
	};
	struct rsh_plan_options opts = *job->opts;
	struct rsh_offer *offers = rsh_arena_array(&m->arena, struct rsh_offer,
						   m->n);
	struct rsh_placed *places = rsh_arena_array(&m->arena, struct rsh_placed,
						   m->n);
	int rc;

	if (!offers || !places) {
		rsh_catalogue_free(m->cat);
		return rsh_error_nomem(err);
	}
	for (size_t i = 0; i < m->n; i++) {
		offers[i] = m->v[i].o;
		places[i] = m->v[i].place;
	}
	rsh_megatron_args_make(m, job->source, &form);
	opts.form = &form;
	rc = rsh_write_placed(&(struct rsh_offers){
		m->cat, offers, (uint32_t)m->n }, &(struct rsh_placement){
		.n_stages = w->pipeline, .stage_ranks = w->n_ranks,
		.block_ranks = w->expert_tensor, .n_blocks = w->expert,
		.places = places }, &opts, out, err) ?:
	     note_schedule(job->source, *out, err);
	if (rc || form.n_args > 0)
		return rc;
	return rsh_blueprint_note(*out, rsh_text_format(
		"the files have no args, since nothing says the number of "
		"heads (--config)")) ? rsh_error_nomem(err) : 0;
}

static int megatron_plan(const struct rsh_output_job *job,
			 struct rsh_plan **out, struct rsh_error *err)
{
	struct rsh_megatron_wanted wanted;
	struct rsh_megatron_model m = {
		.wanted = &wanted, .cat = job->offers->cat,
	};
	struct rsh_model_config *config = NULL;
	int rc = rsh_megatron_wanted_read(job->mesh, &wanted, err) ?:
		 rsh_model_config_load(job->config,
				       rsh_source_path(job->source),
				       rsh_source_store(job->source), &config,
				       err);

	m.config = config;
	if (rc == 0)
		rsh_megatron_heads_find(&m, job->source);
	rc = rc ?: rsh_megatron_place(&m, job->offers, job->opts, err);
	if (rc)
		rsh_catalogue_free(m.cat);
	else
		rc = model_write(&m, job, out, err);
	rsh_model_config_free(config);
	rsh_arena_clear(&m.arena);
	free(m.v);
	return rc;
}

static int megatron_check_mesh(const struct rsh_output_mesh *mesh,
			       struct rsh_error *err)
{
	struct rsh_megatron_wanted ignored;

	return rsh_megatron_wanted_read(mesh, &ignored, err);
}

/* ---- the tree ---- */

struct megatron_shown {
	char tracker[24];
};

/* Adds the directories of ranks to that of the step, and a file to each. */
static int add_ranks(struct rsh_output_tree *t,
		     const struct rsh_megatron_wanted *w)
{
	struct rsh_arena *arena = &t->tree->arena;
	const uint32_t n = rsh_plan_n_files(t->plan);
	struct rsh_item *dirs = rsh_arena_array(arena, struct rsh_item, n);
	struct rsh_item *files = rsh_arena_array(arena, struct rsh_item, n);
	const struct rsh_row rows[] = {
		{ .n = n, .first = RSH_NODE_BESIDE(0), .step = 2,
		  .parent = RSH_NODE_BESIDE(n), .items = dirs },
		{ .n = n, .first = RSH_NODE_OF_FILE(0), .step = 2,
		  .parent = RSH_NODE_BESIDE(0), .apart = 2, .items = files },
	};

	if (!dirs || !files)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		const uint32_t r = i % w->n_ranks;
		char stage[16] = "", expert[16] = "";

		if (w->pipeline > 1)
			snprintf(stage, sizeof(stage), "_%03" PRIu32,
				 i / w->n_ranks);
		if (w->expert > 1)
			snprintf(expert, sizeof(expert), "_%03" PRIu32,
				 r / w->expert_tensor % w->expert);
		dirs[i] = (struct rsh_item){ rsh_arena_format(
			arena, "mp_rank_%02" PRIu32 "%s%s", r % w->tensor,
			stage, expert), RSH_NODE_DIR, 0 };
		files[i] = (struct rsh_item){ RSH_MEGATRON_FILE, RSH_NODE_FILE,
					      i };
		if (!dirs[i].name)
			return -ENOMEM;
	}
	return rsh_tree_add(t->tree, &rows[0]) ?:
	       rsh_tree_add(t->tree, &rows[1]);
}

static int megatron_build(struct rsh_output_tree *t, struct rsh_error *err)
{
	struct megatron_shown *s = t->state = calloc(1, sizeof(*s));
	struct rsh_item *root = rsh_arena_array(&t->tree->arena,
						struct rsh_item, 2);
	const struct rsh_row row = {
		.n = 2, .first = RSH_NODE_BESIDE(rsh_plan_n_files(t->plan)),
		.step = 2, .parent = t->tree->root, .items = root,
	};
	struct rsh_output_text text = { .mode = 0444 };
	struct rsh_megatron_wanted w;
	int rc = s && root ? rsh_megatron_wanted_read(t->mesh, &w, err) :
			     rsh_error_nomem(err);

	if (rc)
		return rc;
	snprintf(s->tracker, sizeof(s->tracker), "%" PRIu64, w.iteration);
	text.body = strcmp(w.step, RSH_MEGATRON_RELEASE) == 0 ?
		    rsh_body_of_text(w.step, strlen(w.step)) :
		    rsh_body_of_text(s->tracker, strlen(s->tracker));
	root[0] = (struct rsh_item){ w.step, RSH_NODE_DIR, 0 };
	root[1] = (struct rsh_item){ RSH_MEGATRON_TRACKER, RSH_NODE_FILE, 0 };
	if (rsh_output_add_text(t, &text, &root[1].leaf) ||
	    rsh_tree_add(t->tree, &row) || add_ranks(t, &w))
		return rsh_error_nomem(err);
	return 0;
}

const struct rsh_output rsh_output_megatron = {
	.name = "megatron",
	.digest = 4,
	.suffix = ".pt",
	.framing = &rsh_megatron_framing,
	.division = RSH_DIVIDE_RANKS,
	.takes = RSH_TAKES_MESH | RSH_TAKES_WEIGHTS_ALONE,
	.last = RSH_MEGATRON_TRACKER,
	.step = RSH_MEGATRON_RELEASE,
	.check_mesh = megatron_check_mesh,
	.plan = megatron_plan,
	.build = megatron_build,
	.free = free,
};
