/* SPDX-License-Identifier: Apache-2.0 */
/* plan/converter/dst_stage.c decides which parameters are resharded or copied
 * for the ranks of one destination stage. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "converter_i.h"
#include "rsh/plan/policy.h"
#include "rsh/util/mem.h"

/* ---- resharded parameters ---- */

#define LAYOUT_TEXT 160

/* The state of adding one parameter. */
struct making {
	struct rsh_converter *c;
	struct rsh_slices s; /* in the source */
	const struct rsh_strategy_item *dst;
};

/* Prefixes the message with the file, the parameter and both layouts. */
static int refuse(const struct making *m, int rc, struct rsh_error *err)
{
	char from[LAYOUT_TEXT], to[LAYOUT_TEXT], dims[LAYOUT_TEXT];
	const struct rsh_converter *c = m->c;

	rsh_error_prefix(
		err,
		"%s: parameter %s of shape %s cannot go from %s%s%s%s "
		"to %s%s%s%s", rsh_catalogue_path(c->cat, m->s.rank),
		rsh_names_text(c->cat->names, m->s.name),
		rsh_record_dims_text(m->s.ix, m->s.rec, dims, sizeof(dims)),
		rsh_item_text(m->s.item, from, sizeof(from)),
		c->src ? " (" : "", c->src ? c->src->path : "",
		c->src ? ")" : "", rsh_item_text(m->dst, to, sizeof(to)),
		c->dst ? " (" : "", c->dst ? c->dst->path : "",
		c->dst ? ")" : "");
	return rc;
}

/* Returns whether some slice is in no stage although the stage of the reference
 * has a file that should hold it. */
static bool is_reduced(const struct making *m)
{
	const struct rsh_job_files *f = &m->c->files;
	uint32_t stage = (m->s.rank - f->first_rank) / f->stage_ranks;

	for (uint32_t i = 0; i < f->n_held; i++)
		if (!m->s.found[i] &&
		    rsh_catalogue_index(f->cat, rsh_job_rank(f, stage,
							     f->held[i])))
			return true;
	return false;
}

/* ---- grids ---- */

/* Adds a note if the converter would put the slices on other ranks. */
static int note_simple(const struct making *m,
		       const struct rsh_strategy_item *item,
		       const struct rsh_grid_sizes *whole,
		       const struct rsh_grid *mine)
{
	cleanup_grid struct rsh_grid *theirs = NULL;
	int rc;

	if (m->c->o.compat || !mine || !item || !item->opt_step ||
	    !item->opt_size)
		return 0;
	rc = rsh_grid_new(item, whole, RSH_GRID_CONVERTER, &theirs, NULL);
	if (rc)
		return rc;
	if (!rsh_grid_same_slices(mine, theirs))
		rsh_note_add(m->c, RSH_NOTE_SIMPLE_SHARD, m->s.name);
	return 0;
}

/* Rows that are split manually (manual_split) are unknown to the converter.
 * It gives the right rows to ranks that have the whole tensor, and if both
 * sides cut it in the same way.  Otherwise adds a note, or returns -EINVAL if
 * its result is wanted. */
static int check_manual(const struct making *m, const struct rsh_cut *from,
			const struct rsh_cut *to, struct rsh_error *err)
{
	if ((rsh_cut_grid(from) && rsh_cut_grid(to)) ||
	    rsh_cut_n_cells(to) == 1 ||
	    (m->s.item && m->dst && rsh_item_same_layout(m->s.item, m->dst)))
		return 0;
	if (m->c->o.compat)
		return rsh_error_set(err, EINVAL,
				     "MindSpore's converter misplaces rows that are split manually (manual_split)");
	rsh_note_add(m->c, RSH_NOTE_MANUAL, m->s.name);
	return 0;
}

/* ---- into the catalogue, and shown ---- */

/* Shows a tensor of the catalogue as the destination cuts it. */
static int show(const struct making *m, const struct rsh_tensor *t,
		uint32_t tensor, enum rsh_grid_rule rule, uint32_t *shown,
		struct rsh_error *err)
{
	int64_t whole[RSH_MAX_DIMS];
	const struct rsh_grid_sizes sizes = { whole, t->n_dims, false };
	struct rsh_factor factors[RSH_MAX_DIMS];
	const struct rsh_recipe_part part =
		rsh_recipe_whole(m->c->cat, tensor, NULL, factors);
	struct rsh_shown out = {
		.name = t->name,
		.n_dims = t->n_dims,
		.dims = t->dims,
		.recipe = { 1, &part, RSH_CODEC_NONE },
	};
	uint64_t ignored[RSH_MAX_DIMS];
	int rc;

	for (uint32_t d = 0; d < t->n_dims; d++)
		whole[d] = (int64_t)t->dims[d];
	rc = rsh_layout_cut(m->c->cat, m->dst, &sizes, rule, &out.cut, ignored,
			    err) ?:
	     check_manual(m, t->cut, out.cut, err) ?:
	     note_simple(m, m->s.item, &sizes, rsh_cut_grid(t->cut)) ?:
	     note_simple(m, m->dst, &sizes, rsh_cut_grid(out.cut));
	if (rc)
		return refuse(m, rc, err);
	out.recipe.codec = rsh_record_codec(m->c, m->s.rec, &out.dtype);
	rc = rsh_blueprint_show(m->c->plan, &out, shown, err);
	return rc == -EINVAL ? refuse(m, rc, err) : rc;
}

/* Adds and shows a parameter that has a reference record. */
static int reshard_as(struct making *m, const struct rsh_strategy_param *s,
		      uint32_t *shown, struct rsh_error *err)
{
	struct rsh_converter *c = m->c;
	const enum rsh_grid_rule rule = c->o.compat ? RSH_GRID_CONVERTER :
						      RSH_GRID_RUNTIME;
	const uint32_t stage = s && !c->by_stage ?
		rsh_param_source_stage(s)->stage : 0;
	uint32_t tensor;
	int rc = rsh_slices_find(&m->s, rsh_record_unit(c, m->s.rec), err);

	if (rc)
		return rc;
	m->s.first_file = rsh_job_rank(&c->files, stage, 0);
	rc = rsh_slices_add(&m->s, m->dst, rule, c->o.replicas, &tensor, err);
	if (rc)
		return refuse(m, rc, err);
	rc = show(m, c->cat->tensors[tensor], tensor, rule, shown, err);
	if (rc)
		return rc;
	if (rsh_room(c->resharded, c->resharded_cap, *shown + 1))
		return rsh_error_nomem(err);
	c->resharded[*shown] = (struct rsh_resharded){ tensor, is_reduced(m) };
	return 0;
}

/* Adds a parameter to the catalogue, from the files that `s` loads, and shows
 * it to the ranks of destination stage `stage`.  *out is RSH_COPIED if no
 * loaded file holds it. */
static int reshard_param(struct rsh_converter *c, const struct rsh_dst_stage *s,
			 uint32_t stage, uint32_t name, uint32_t *out,
			 struct rsh_error *err)
{
	const struct rsh_strategy_param *listed =
		rsh_strategy_find(c->src, name);
	const struct rsh_strategy_param *d = rsh_strategy_find(c->dst, name);
	struct making m = {
		.c = c,
		.s = { .files = &c->files, .name = name,
		       .n_stages = s->n_stages, .stages = s->stages },
	};
	int rc;

	*out = RSH_COPIED;
	if (listed)
		m.s.item = rsh_param_source_stage(listed)->item;
	if (d)
		m.dst = rsh_param_dest_stage(c->dst, d, stage * c->dst_ranks,
					     c->o.compat)->item;
	if (!rsh_slices_begin(&m.s))
		return 0;
	if (m.s.rec->dtype == RSH_DTYPE_STR)
		return rsh_error_set(err, EINVAL,
				     "%s: parameter %s is a string, but both "
				     "strategies list it as a tensor",
				     rsh_catalogue_path(c->cat, m.s.rank),
				     rsh_names_text(c->cat->names, name));
	if (d && !c->o.compat &&
	    !rsh_item_same_layout(m.dst,
				  rsh_param_dest_stage(c->dst, d,
						       stage * c->dst_ranks,
						       true)->item))
		rsh_note_add(c, RSH_NOTE_SHARED, name);
	rc = reshard_as(&m, listed, out, err);
	rsh_slices_clear(&m.s);
	return rc;
}

/* ---- the order of records ---- */

/* The names of a file's records are in the converter's order.  The converter
 * loads files from the highest rank on (in a by-stage conversion, from the
 * lowest).  Names are in the order in which they first occur in these files,
 * and resharded parameters come before copied ones. */

/* Adds the rank's index to the sequence unless the sequence has an equal
 * one. */
static void add_to_seq(struct stage_state *p, uint32_t rank, uint32_t *n)
{
	uint32_t *seen = &p->seen_index[p->c->cat->index_id[rank]];

	if (*seen == p->epoch)
		return;
	*seen = p->epoch;
	p->seq[(*n)++] = rank;
}

/* Adds the stage's file for a marked key.  If it is missing, adds the next file
 * of the stage (after the last file, the first), which has the same names in
 * the same order. */
static void order_load(struct stage_state *p, uint32_t stage, uint32_t held,
		       uint32_t *n)
{
	const struct rsh_converter *c = p->c;
	const struct rsh_job_files *f = &c->files;
	uint32_t from, to, next;

	if (held < f->n_held) {
		uint32_t rank = rsh_job_rank(f, stage, f->held[held]);

		if (rsh_catalogue_index(c->cat, rank) &&
		    (c->o.replicas || p->marks.exact[held])) {
			add_to_seq(p, rank, n);
			return;
		}
	}
	if (!c->o.replicas)
		return;
	rsh_job_files_of(f, stage, &from, &to);
	if (from == to)
		return;
	next = held < f->n_held ?
		rsh_catalogue_present_from(c->cat, rsh_job_rank(f, stage,
							f->held[held])) : to;
	add_to_seq(p, c->cat->present[next < to ? next : from], n);
}

/* Lists the distinct indexes in the order in which the converter loads files.
 * Sets p->seq to a rank for each, and returns their number. */
static uint32_t load_sequence(struct stage_state *p)
{
	const struct rsh_converter *c = p->c;
	const struct rsh_job_files *f = &c->files;
	const struct rsh_dst_stage *b = p->dst_stage;
	/* Whether there is a key above the last held one. */
	const bool any_above = f->n_held == 0 ||
			       f->held[f->n_held - 1] + 1 < f->stage_ranks;
	uint32_t n = 0;

	p->epoch++;
	if (c->by_stage) {
		uint32_t i, end;

		for (rsh_job_files_of(f, 0, &i, &end); i < end; i++)
			add_to_seq(p, c->cat->present[i], &n);
		return n;
	}
	if (!c->src && c->dst && !p->reduced) {
		for (uint32_t i = 0; i < b->n_stages && n == 0; i++)
			order_load(p, b->stages[i], 0, &n);
		return n;
	}
	for (uint32_t i = b->n_stages; i-- > 0;)
		for (uint32_t k = f->n_held + 1; k-- > 0;)
			if (p->marks.near[k] ||
			    (p->reduced && (k < f->n_held || any_above)))
				order_load(p, b->stages[i], k, &n);
	return n;
}

/* Adds the names of a file at the end.  If files lack parameters (p->reduced),
 * each has a part of a common order; then adds a name after the file's previous
 * name.  Returns the number of names. */
static uint32_t add_names(struct stage_state *p,
			  const struct rsh_ckpt_index *ix, uint32_t *names,
			  uint32_t n)
{
	uint32_t next = 0;

	for (uint32_t r = 0; r < ix->n_records; r++) {
		uint32_t name = ix->records[r].name;

		if (p->action[name] == ACTION_DROP)
			continue;
		if (p->seen[name] == p->epoch) {
			next = 0;
			while (p->reduced && names[next++] != name)
				;
			continue;
		}
		p->seen[name] = p->epoch;
		if (!p->reduced)
			next = n;
		memmove(names + next + 1, names + next,
			(n++ - next) * sizeof(*names));
		names[next++] = name;
	}
	return n;
}

/* Sets l->names to the names of the files of p->seq in order, resharded ones
 * first. */
static int order_walk_names(struct stage_state *p, struct name_list *l)
{
	const uint32_t n_names = p->c->cat->n_names;
	cleanup_free uint32_t *names = rsh_alloc_array(n_names, sizeof(*names));
	uint32_t n = 0;

	if (!names)
		return -ENOMEM;
	p->epoch++;
	for (uint32_t i = 0; i < l->n_seq; i++)
		n = add_names(p, rsh_catalogue_index(p->c->cat, p->seq[i]),
			      names, n);
	/* Add resharded parameters that only other files hold, so that they are
	 * read from there, or reported as missing. */
	for (uint32_t name = 0; name < n_names; name++)
		if (p->action[name] == ACTION_RESHARD &&
		    p->seen[name] != p->epoch &&
		    p->shown_of[name] != RSH_COPIED)
			names[n++] = name;
	l->names = rsh_arena_array(&p->arena, uint32_t, n);
	if (!l->names)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		if (p->action[names[i]] == ACTION_RESHARD)
			l->names[l->n++] = names[i];
	l->n_resharded = l->n;
	for (uint32_t i = 0; i < n; i++)
		if (p->action[names[i]] != ACTION_RESHARD)
			l->names[l->n++] = names[i];
	return 0;
}

/* Returns the names for the marked keys, valid until the next call; NULL: out
 * of memory. */
static const struct name_list *list_names(struct stage_state *p)
{
	const uint32_t n = load_sequence(p);
	const uint32_t *id = p->c->cat->index_id;
	struct name_list *l;

	for (uint32_t i = 0; i < p->n_lists; i++) {
		uint32_t same = 0;

		l = &p->lists[i];
		while (l->n_seq == n && same < n &&
		       l->seq[same] == id[p->seq[same]])
			same++;
		if (l->n_seq == n && same == n)
			return l;
	}
	if (rsh_grow(&p->lists, &p->lists_cap, p->n_lists + 1, sizeof(*l)))
		return NULL;
	l = &p->lists[p->n_lists++];
	*l = (struct name_list){
		.n_seq = n, .seq = rsh_arena_array(&p->arena, uint32_t, n),
	};
	if (!l->seq)
		return NULL;
	for (uint32_t i = 0; i < n; i++)
		l->seq[i] = id[p->seq[i]];
	return order_walk_names(p, l) ? NULL : l;
}

/* ---- actions of parameters ---- */

/* Returns whether the destination has the parameter in this stage. */
static bool dst_stage_has(const struct stage_state *p,
			  const struct rsh_strategy_param *src,
			  const struct rsh_strategy_param *dst)
{
	return p->c->by_stage ? src != NULL :
				rsh_param_in_stage(dst, p->stage);
}

static enum param_action action_of(const struct stage_state *p, uint32_t name)
{
	const struct rsh_converter *c = p->c;
	const struct rsh_strategy_param *s = rsh_strategy_find(c->src, name);
	const struct rsh_strategy_param *d = rsh_strategy_find(c->dst, name);
	bool here = d && dst_stage_has(p, s, d);
	/* The converter removes parameters of other destination stages from
	 * both strategies. */
	bool struck = d && !here;
	bool on_src = c->src ? s && !struck : true;
	bool on_dst = c->dst ? here : true;

	if (c->chosen.unwanted[name])
		return ACTION_DROP;
	if (!c->src && !c->dst)
		return ACTION_COPY;
	if (on_src && on_dst)
		return ACTION_RESHARD;
	if ((!c->src || (s && struck)) && (!c->dst || struck))
		return ACTION_DROP;
	return c->o.unlisted == RSH_UNLISTED_DROP && c->dst && !d ? ACTION_DROP
								  : ACTION_COPY;
}

static int collect_stages(struct stage_state *p, struct rsh_error *err)
{
	const struct rsh_strategy *src = p->c->src;
	cleanup_free bool *used = calloc(p->c->files.n_stages, sizeof(*used));

	p->dst_stage->stages = rsh_arena_array(&p->c->arena, uint32_t,
					       p->c->files.n_stages);
	if (!used || !p->dst_stage->stages)
		return rsh_error_nomem(err);
	if (!src && !p->c->dst) {
		used[0] = true;
	} else if (!src) {
		for (uint32_t i = 0; i < p->c->cat->n_present; i++)
			used[p->c->cat->present[i]] = true;
	} else if (p->c->by_stage) {
		used[0] = true;
	} else {
		for (uint32_t i = 0; i < src->n_params; i++) {
			const struct rsh_strategy_param *s = &src->params[i];
			const struct rsh_strategy_param *d =
				rsh_strategy_find(p->c->dst, s->name);

			if (d && !dst_stage_has(p, s, d))
				continue;
			for (uint32_t k = 0; k < s->n_stages; k++)
				used[s->stages[k].stage] = true;
		}
	}
	for (uint32_t s = 0; s < p->c->files.n_stages; s++)
		if (used[s])
			p->dst_stage->stages[p->dst_stage->n_stages++] = s;
	return 0;
}

/* Checks a resharded parameter that no loaded file holds.  It was not saved,
 * which is no error, unless its stage has no file at all. */
static int check_absent(struct stage_state *p, uint32_t name,
			struct rsh_error *err)
{
	const struct rsh_converter *c = p->c;
	const struct rsh_strategy_param *s = rsh_strategy_find(c->src, name);

	if (!c->src &&
	    rsh_catalogue_index(c->cat, rsh_stage_file_to_copy(p, 0)))
		return 0;
	for (uint32_t i = 0; i < (s ? s->n_stages : 1); i++) {
		uint32_t stage = s && !c->by_stage ? s->stages[i].stage : 0;

		if (rsh_job_files_check(&c->files, stage, name, err) == 0)
			continue;
		if (!c->o.replicas)
			return -ENOENT;
		p->absent = true;
		return rsh_blueprint_lose(c->plan, name, err);
	}
	return 0;
}

static int show_resharded(struct stage_state *p, struct rsh_error *err)
{
	for (uint32_t name = 0; name < p->c->cat->n_names; name++) {
		int rc;

		p->action[name] = (uint8_t)action_of(p, name);
		if (p->action[name] != ACTION_RESHARD)
			continue;
		rc = reshard_param(p->c, p->dst_stage, p->stage, name,
				   &p->shown_of[name], err);
		if (rc == 0 && p->shown_of[name] != RSH_COPIED &&
		    p->c->o.replicas)
			p->reduced |=
				p->c->resharded[p->shown_of[name]].reduced;
		/* Without a destination strategy every name is resharded, even
		 * if no source file can hold it. */
		if (rc == 0 && p->shown_of[name] == RSH_COPIED)
			rc = check_absent(p, name, err);
		if (rc)
			return rc;
	}
	return 0;
}

/* Handles a file without resharded records.  Either a file that it needs is
 * missing, or the strategies are of another model, which is an error. */
static int nothing_resharded(struct stage_state *p, struct rsh_shown_file *f,
			     struct rsh_error *err)
{
	const struct rsh_converter *c = p->c;

	for (uint32_t name = 0; name < c->cat->n_names; name++) {
		uint32_t t = p->shown_of[name];
		int rc = t == RSH_COPIED ? 0 :
			rsh_blueprint_probe(c->plan, t, f->rank, f->member,
					    &f->lost, err);

		if (rc)
			return rc;
	}
	if (f->lost)
		return 0;
	return rsh_error_set(err, EINVAL,
			     "rank %u: no parameter of the source files is "
			     "listed by %s%s%s", f->rank,
			     c->src ? c->src->path : c->dst->path,
			     c->src && c->dst ? " and " : "",
			     c->src && c->dst ? c->dst->path : "");
}

int rsh_dst_stage_file(void *ctx, struct rsh_shown_file *f,
		       struct rsh_file_names *out, struct rsh_error *err)
{
	struct stage_state *p = ctx;
	struct rsh_converter *c = p->c;
	struct rsh_copy_order *order = &c->orders[f->rank];
	const struct name_list *names;
	int rc = 0;

	if (!c->src && c->o.replicas)
		p->reduced = rsh_stage_is_part(p, rsh_stage_file_to_copy(
			p, c->dst ? 0 : f->member));
	else if (!c->src && !c->dst && !rsh_catalogue_index(c->cat, f->member))
		return rsh_error_set(err, ENOENT, "rank %u has no checkpoint "
				     "file", f->member);
	f->lost = p->absent;
	order->dst_stage = p->dst_stage;
	/* The converter takes copied records from the local rank modulo the
	 * source's device count. */
	order->copy_key = c->src || c->dst ?
		f->member % c->files.stage_ranks :
		rsh_stage_file_to_copy(p, f->member);
	if (rsh_stage_mark_keys(p, f->member))
		return rsh_error_nomem(err);
	order->keys = rsh_stage_keep_keys(p);
	if (!order->keys)
		return rsh_error_nomem(err);
	if (c->same)
		rc = rsh_stage_take_whole(p, f, &out->added, err);
	if (rc || out->added)
		return rc;
	names = list_names(p);
	if (!names)
		return rsh_error_nomem(err);
	out->names = names->names;
	out->n = names->n;
	if (names->n_resharded == 0 && (c->src || c->dst) && !p->absent &&
	    !c->chosen.filtered)
		rc = nothing_resharded(p, f, err);
	return rc;
}

bool rsh_dst_stage_deduplicates(void *ctx, uint32_t stage,
				const struct rsh_strategy_param *param)
{
	const struct stage_state *p = ctx;

	(void)stage;
	return p->action[param->name] == ACTION_RESHARD;
}

/* ---- beginning a stage ---- */

static struct rsh_marks new_marks(struct rsh_arena *a, size_t n)
{
	return (struct rsh_marks){ rsh_arena_array(a, bool, n),
				   rsh_arena_array(a, bool, n) };
}

void rsh_stage_clear(struct stage_state *p)
{
	rsh_stage_pairs_clear(p);
	free(p->lists);
	free(p->slots);
	rsh_arena_clear(&p->arena);
}

int rsh_dst_stage_begin(void *ctx, uint32_t stage, struct rsh_error *err)
{
	struct stage_state *p = ctx;
	struct rsh_converter *c = p->c;
	struct rsh_arena *a = &p->arena;

	rsh_stage_clear(p);
	*p = (struct stage_state){ .c = c, .w = p->w, .stage = stage };
	p->dst_stage = &c->dst_stages[stage];
	p->shown_of = p->w->shown;
	p->action = rsh_arena_array(a, uint8_t, c->cat->n_names);
	p->seen = rsh_arena_array(a, uint32_t, c->cat->n_names);
	p->seen_index = rsh_arena_array(a, uint32_t, c->cat->n_indexes);
	p->seq = rsh_arena_array(a, uint32_t, c->cat->n_indexes);
	p->whole = rsh_arena_array(a, uint8_t, c->cat->n_indexes);
	p->marks = new_marks(a, (size_t)c->files.n_held + 1);
	p->some = new_marks(a, (size_t)c->files.n_held + 1);
	if (a->failed)
		return rsh_error_nomem(err);
	return collect_stages(p, err) ?: show_resharded(p, err) ?:
	       rsh_stage_collect_pairs(p, err);
}
