/* SPDX-License-Identifier: Apache-2.0 */
#include "weights_support.h"

#include "rsh/strategy/grid.h"

void model_begin(struct model *m, const char *table, const char *config)
{
	struct rsh_source_view view = { 0 };

	memset(m, 0, sizeof(*m));
	m->unlisted = RSH_UNLISTED_ERROR;
	if (rsh_rule_table_parse(table, strlen(table), "T", &m->table,
				 &m->err) ||
	    (config && rsh_model_config_parse(config, strlen(config), "C",
					      &m->config, &m->err)))
		fail_msg("%s\n%s", m->err.text, table);
	m->names = rsh_names_new();
	assert_non_null(m->names);
	view.names = m->names;
	m->cat = rsh_catalogue_new(&view);
	assert_non_null(m->cat);
}

void model_end(struct model *m)
{
	free(m->in);
	rsh_arena_clear(&m->arena);
	rsh_catalogue_free(m->cat);
	rsh_names_free(m->names);
	rsh_model_config_free(m->config);
	rsh_rule_table_free(m->table);
}

void model_add(struct model *m, const char *name, enum rsh_dtype dtype,
	       uint32_t n_dims, const uint64_t *dims, bool turned)
{
	uint64_t stored[RSH_MAX_DIMS];
	struct rsh_tensor t = {
		.name = rsh_names_add(m->names, name, strlen(name)),
		.dtype = dtype,
		.n_dims = (uint8_t)n_dims,
		.dims = stored,
	};
	uint8_t order[RSH_MAX_DIMS];
	struct rsh_grid *grid;
	uint32_t number;

	assert_int_equal(rsh_grid_new_whole(n_dims, &grid, NULL), 0);
	t.cut = rsh_catalogue_keep_cut(m->cat, rsh_cut_of_grid(grid));
	t.copies = rsh_catalogue_keep_copies(m->cat, t.cut, NULL, 0, false);
	for (uint32_t d = 0; d < n_dims; d++)
		order[d] = (uint8_t)(turned ? n_dims - 1 - d : d);
	for (uint32_t d = 0; d < n_dims; d++)
		stored[d] = dims[order[d]];
	assert_int_equal(rsh_catalogue_add(m->cat, &t, &number), 0);
	if (m->n == m->cap) {
		m->cap = m->cap ? 2 * m->cap : 64;
		m->in = realloc(m->in, m->cap * sizeof(*m->in));
	}
	assert_non_null(m->in);
	m->in[m->n] = (struct rsh_offer){
		.name = t.name, .dtype = dtype, .n_dims = n_dims,
		.dims = rsh_arena_copy(&m->arena, dims, n_dims),
	};
	assert_int_equal(rsh_offer_whole(m->cat, &m->arena, number, order,
					 &m->in[m->n]), 0);
	m->n++;
}

void model_add_lines(struct model *m, const char *lines)
{
	char name[256];
	int used;

	while (sscanf(lines, " %255s%n", name, &used) == 1) {
		uint64_t dims[RSH_MAX_DIMS];
		unsigned long long d;
		uint32_t n = 0;

		lines += used;
		while (sscanf(lines, " %llu%n", &d, &used) == 1) {
			dims[n++] = d;
			lines += used;
			if (*lines != ',')
				break;
			lines++;
		}
		model_add(m, name, RSH_DTYPE_BFLOAT16, n, dims, false);
	}
}

__attribute__((format(printf, 2, 3)))
static void model_log(struct model *m, const char *fmt, ...)
{
	const size_t at = strlen(m->log);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(m->log + at, sizeof(m->log) - at, fmt, ap);
	va_end(ap);
}

static void model_note(void *ctx, const char *sentence)
{
	model_log(ctx, "%s\n", sentence);
}

static bool model_wants(void *ctx, const char *name)
{
	const struct model *m = ctx;

	return strncmp(name, m->only, strlen(m->only)) == 0;
}

static struct rsh_weights_options model_options(struct model *m,
						enum rsh_side from)
{
	return (struct rsh_weights_options){
		.table = m->table, .config = m->config, .from = from,
		.unlisted = m->unlisted, .leave_states = m->leave_states,
		.wanted = m->only ? model_wants : NULL,
		.note = model_note, .ctx = m,
	};
}

int model_convert(struct model *m, enum rsh_side from)
{
	const struct rsh_weights_options o = model_options(m, from);

	const struct rsh_dequantise dense = { .config = m->config,
					      .type = m->dense };
	struct rsh_offers in = { m->cat, m->in, m->n };
	struct rsh_offers out = { .n = 0 };
	int rc = rsh_weights_dequantise(&dense, &m->arena, &in, &m->err);

	m->n = in.n;
	if (rc == 0)
		rc = rsh_weights_convert(&o, &in, &m->arena, &out, &m->err);
	if (rc == 0) {
		m->out = out.v;
		m->n_out = out.n;
	}
	return rc;
}

static const char *model_text(const struct model *m, uint32_t name)
{
	return rsh_names_text(m->names, name);
}

static void model_told_made(void *ctx, const struct rsh_offer *offer,
			    const struct rsh_rule *rule,
			    const uint32_t *sources, uint32_t n)
{
	struct model *m = ctx;

	model_log(m, "%s:%u", model_text(m, offer->name),
		  rule ? rule->line : 0);
	for (uint32_t i = 0; i < n; i++)
		model_log(m, " %s", model_text(m, m->in[sources[i]].name));
	model_log(m, "\n");
}

static void model_told_passed(void *ctx, uint32_t source,
			      const struct rsh_rule *rule)
{
	struct model *m = ctx;

	model_log(m, "-%s:%u\n", model_text(m, m->in[source].name),
		  rule ? rule->line : 0);
}

static void model_told_wrong(void *ctx, const char *sentence)
{
	model_log(ctx, "!%s\n", sentence);
}

int model_check(struct model *m, enum rsh_side from)
{
	struct rsh_weights_options o = model_options(m, from);
	const struct rsh_weights_watch watch = {
		.made = model_told_made,
		.passed = model_told_passed,
		.wrong = model_told_wrong,
		.ctx = m,
	};

	o.note = NULL;
	return rsh_weights_check(&o, &(struct rsh_offers){
		m->cat, m->in, m->n,
	}, &m->arena, &watch, &m->err);
}

char *model_made(const struct model *m)
{
	size_t size;
	char *text = NULL;
	FILE *f = open_memstream(&text, &size);

	assert_non_null(f);
	for (uint32_t i = 0; i < m->n_out; i++) {
		fprintf(f, "%s", model_text(m, m->out[i].name));
		for (uint32_t d = 0; d < m->out[i].n_dims; d++)
			fprintf(f, "%c%llu", d ? ',' : ' ',
				(unsigned long long)m->out[i].dims[d]);
		fputc('\n', f);
	}
	fclose(f);
	return text;
}
