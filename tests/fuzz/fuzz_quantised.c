/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever a config.json says and whatever the headers of tensors are, the
 * quantised ones become dense tensors that a plan shows, or that ends in a
 * sentence.  The config.json is up to the first NUL; then there are lines of a
 * type, dimensions and a name: "F8_E4M3 6,9 a.weight". */
#include "fuzz_support.h"

#include <errno.h>
#include <stdio.h>

#include "plan/plan_i.h"
#include "rsh/plan/blueprint.h"
#include "rsh/plan/framing.h"
#include "rsh/util/checked.h"
#include "rsh/weights/quantised.h"
#include "rsh/wire/safetensors.h"

#define MAX_TENSORS 64
#define LINE 256

struct headers {
	struct rsh_names *names;
	struct rsh_catalogue *cat;
	struct rsh_offer v[MAX_TENSORS];
	struct rsh_recipe_part parts[MAX_TENSORS];
	struct rsh_factor factors[MAX_TENSORS][RSH_MAX_DIMS];
	uint32_t n;
	const uint8_t *content; /* of weight_shape */
	size_t n_content;
};

static enum rsh_dtype type_named(const char *name)
{
	enum rsh_dtype t = RSH_DTYPE_UNKNOWN + 1;

	while (t < RSH_DTYPE_COUNT && (!rsh_safetensors_dtype(t) ||
				       strcmp(rsh_safetensors_dtype(t), name)))
		t++;
	return t;
}

static void add_tensor(struct headers *h, const char *name,
		       enum rsh_dtype type, uint32_t n_dims,
		       const uint64_t *dims)
{
	struct rsh_tensor t = { .dtype = type, .n_dims = (uint8_t)n_dims,
				.dims = dims };
	struct rsh_grid *grid;
	uint64_t bytes = 64; /* no tensor of a file is larger */
	uint32_t number;

	for (uint32_t d = 0; d < n_dims; d++)
		if (!rsh_mul_u64(bytes, dims[d], &bytes) || bytes >> 62)
			return;
	if (h->n == MAX_TENSORS ||
	    rsh_names_find(h->names, name, strlen(name)) != RSH_NAME_NONE)
		return;
	grid = rsh_grid_make_whole(n_dims);
	require(grid);
	t.cut = rsh_catalogue_keep_cut(h->cat, rsh_cut_of_grid(grid));
	t.copies = rsh_catalogue_keep_copies(h->cat, t.cut, NULL, 0, false);
	t.name = rsh_names_add(h->names, name, strlen(name));
	require(rsh_catalogue_add(h->cat, &t, &number) == 0);
	h->parts[h->n] = rsh_recipe_whole(h->cat, number, NULL,
					  h->factors[h->n]);
	h->v[h->n] = (struct rsh_offer){
		.name = t.name, .dtype = type, .n_dims = n_dims,
		.dims = h->cat->tensors[number]->dims,
		.n_parts = 1, .parts = &h->parts[h->n], .boxes = true,
	};
	h->n++;
}

static void add_line(struct headers *h, char *line)
{
	uint64_t dims[RSH_MAX_DIMS];
	uint32_t n = 0;
	char *rest, *numbers, *name;
	enum rsh_dtype type = type_named(strtok_r(line, " ", &rest) ?: "");

	numbers = strtok_r(NULL, " ", &rest);
	name = strtok_r(NULL, " ", &rest);
	if (!numbers || !name || type == RSH_DTYPE_COUNT)
		return;
	for (char *d = strtok_r(numbers, ",", &rest); d && n < 5;
	     d = strtok_r(NULL, ",", &rest))
		dims[n++] = strtoull(d, NULL, 10);
	add_tensor(h, name, type, n, dims);
}

static void read_lines(struct headers *h, const uint8_t *data, size_t size)
{
	while (size) {
		const uint8_t *end = memchr(data, '\n', size);
		const size_t n = end ? (size_t)(end - data) : size;
		char line[LINE];

		snprintf(line, sizeof(line), "%.*s",
			 (int)(n < LINE ? n : LINE - 1), (const char *)data);
		add_line(h, line);
		data += n + (end != NULL);
		size -= n + (end != NULL);
	}
}

/* Gives bytes of the input. */
static int load(void *ctx, const struct rsh_catalogue *c,
		const struct rsh_tensor *t, uint8_t *to, size_t bytes,
		struct rsh_error *err)
{
	const struct headers *h = ctx;

	(void)c;
	require(t->n_dims == 1 && t->dims[0] == 2 && bytes <= 16);
	if (h->n_content < bytes)
		return rsh_error_set(err, EIO, "it cannot be read");
	memcpy(to, h->content, bytes);
	return 0;
}

/* A plan shows each tensor. */
static void show_all(const struct rsh_offers *io, enum rsh_dtype type)
{
	static const struct rsh_plan_ops ops = { .ctx = NULL };
	static const struct rsh_blueprint b = {
		.framing = &rsh_safetensors_framing, .n_ranks = 1,
	};
	struct rsh_plan *p = rsh_blueprint_new(io->cat, &ops, &b);

	require(p);
	for (uint32_t i = 0; i < io->n; i++) {
		const struct rsh_offer *o = &io->v[i];
		const uint32_t in = o->parts->tensor;
		const bool scaled = io->cat->tensors[in]->quantised;
		struct rsh_shown t = {
			.name = o->name, .dtype = o->dtype,
			.n_dims = (uint8_t)o->n_dims, .dims = o->dims,
			.recipe = { o->n_parts, o->parts, RSH_CODEC_NONE },
		};
		struct rsh_error err = RSH_ERROR_INIT;
		struct rsh_grid *grid = rsh_grid_make_whole(o->n_dims);
		uint32_t number;

		require(rsh_quantised_fits(io->cat->tensors[in]));
		require(!scaled || o->dtype == type);
		if (scaled)
			t.recipe.codec = rsh_codec_scaled(type);
		require(grid);
		t.cut = rsh_catalogue_keep_cut(io->cat, rsh_cut_of_grid(grid));
		/* Elements of a dense tensor may be too many for one file. */
		if (rsh_blueprint_show(p, &t, &number, &err))
			require(strstr(err.text, "too large"));
	}
	rsh_plan_free(p);
}

static void convert(struct rsh_model_config *config, const uint8_t *data,
		    size_t size)
{
	static const enum rsh_dtype types[] = {
		RSH_DTYPE_UNKNOWN, RSH_DTYPE_BFLOAT16, RSH_DTYPE_FLOAT16,
		RSH_DTYPE_FLOAT32,
	};
	struct rsh_source_view view = { .names = rsh_names_new() };
	struct headers h = {
		.names = view.names, .cat = rsh_catalogue_new(&view),
		.content = data, .n_content = size,
	};
	struct rsh_dequantise o = {
		.config = config, .type = types[size % 4], .ctx = &h,
		.load = size & 4 ? load : NULL,
	};
	struct rsh_arena arena = { 0 };
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_offers io;

	read_lines(&h, data, size);
	rsh_catalogue_update_names(h.cat);
	io = (struct rsh_offers){ h.cat, h.v, h.n };
	if (rsh_weights_dequantise(&o, &arena, &io, &err)) {
		require(err.code && err.text[0]);
		rsh_catalogue_free(h.cat);
	} else {
		show_all(&io, o.type ? o.type : RSH_DTYPE_BFLOAT16);
	}
	rsh_arena_clear(&arena);
	rsh_names_free(h.names);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *end = memchr(data, 0, size);
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_model_config *config;

	if (!end || rsh_model_config_parse(data, (size_t)(end - data), "f",
					   &config, &err))
		return 0;
	convert(config, end + 1, size - (size_t)(end - data) - 1);
	rsh_model_config_free(config);
	return 0;
}
