/* SPDX-License-Identifier: Apache-2.0 */
/* What a check finds in strategies. */
#include "strategy_support.h"

#include "rsh/strategy/derive.h"

struct findings {
	char text[4096];
	size_t at;
	unsigned n;
};

static void add(void *ctx, const char *sentence)
{
	struct findings *f = ctx;

	f->n++;
	f->at += (size_t)snprintf(f->text + f->at, sizeof(f->text) - f->at,
				  "%s\n", sentence);
}

static struct findings check(const char *const *jsons, uint32_t n,
			     const struct tensor *tensors)
{
	struct rsh_strategy_file **files = calloc(n, sizeof(*files));
	struct rsh_derive_shapes *shapes = rsh_derive_shapes_new();
	struct rsh_names *names = rsh_names_new();
	struct rsh_error err = RSH_ERROR_INIT;
	struct findings f = { .text = "" };
	char path[16];

	assert_non_null(files);
	for (uint32_t i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "%c.json", 'a' + (int)i);
		files[i] = parse_strategy(path, jsons[i]);
	}
	if (tensors) {
		struct rsh_ckpt_index *index = make_index(names, tensors);

		assert_int_equal(rsh_derive_shapes_add(shapes, NULL, 0, index,
						       names, &err), 0);
		rsh_ckpt_index_free(index);
	}
	assert_int_equal(rsh_strategy_check(&(struct rsh_strategy_checked){
		files, n, n > 1, "job", shapes,
	}, names, add, &f, &err), 0);
	rsh_derive_shapes_free(shapes);
	rsh_names_free(names);
	return f;
}

static void assert_finds(const char *const *jsons, uint32_t n,
			 const char *const *sentences)
{
	struct findings f = check(jsons, n, NULL);
	unsigned want = 0;

	for (; sentences[want]; want++)
		if (!strstr(f.text, sentences[want]))
			fail_msg("\"%s\" is not in:\n%s", sentences[want],
				 f.text);
	if (f.n != want)
		fail_msg("%u findings, not %u:\n%s", f.n, want, f.text);
}

#define FILES(...) \
	(const char *const[]){ __VA_ARGS__ }, \
	sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *)
#define FINDS(...) (const char *const[]){ __VA_ARGS__, NULL }
#define NOTHING (const char *const[]){ NULL }

TEST(test_good)
{
	assert_finds(FILES(FILE_OF("0", LAYOUT("w", "[2,2]", "[0,-1]"))),
		     NOTHING);
	/* Shared by two stages in the same way. */
	assert_finds(FILES(FILE_OF("0", LAYOUT("w", "[2,2]", "[0,-1]")),
			   FILE_OF("1", LAYOUT("w", "[2,2]", "[0,-1]"))),
		     NOTHING);
	/* Two ranks of one stage wrote the same. */
	assert_finds(FILES(FILE_OF("0", LAYOUT("w", "[2,2]", "[0,-1]")),
			   FILE_OF("0", LAYOUT("w", "[2,2]", "[0,-1]"))),
		     NOTHING);
}

/* All of them are told, not the first alone. */
TEST(test_items)
{
	assert_finds(
		FILES(FILE_OF("0", LAYOUT("w", "[2,2]", "[0,-1]") ","
			      LAYOUT("b", "[8]", "[0]") ","
			      SHARD("s", "[2,2]", "[0,-1]", "2", "4") ","
			      SHARD("t", "[2,2]", "[0,1]", "2", "-1") ","
			      LAYOUT("a-b", "[4]", "[-1]") ","
			      SHAPED("z", "[2,2]", "[0,-1]", "[9,4]"))),
		FINDS("a.json: parameter b has a mesh of 8 devices, but w of 4",
		      "a.json: parameter s: its optimizer shard of size 4",
		      "a.json: parameter t: it has an optimizer shard, but",
		      "a.json: parameter a-b: MindSpore's converter cannot",
		      "a.json: parameter z: dimension 0 of size 9"));
}

TEST(test_stages)
{
	assert_finds(FILES(FILE_OF("0", LAYOUT("w", "[4]", "[0]")),
			   FILE_OF("2", LAYOUT("v", "[4]", "[0]"))),
		     FINDS("job: pipeline stage 1 is missing"));
	assert_finds(FILES(FILE_OF("0", LAYOUT("w", "[4]", "[0]")),
			   FILE_OF("0", LAYOUT("v", "[4]", "[0]"))),
		     FINDS("b.json: it is of stage 0 like a.json"));
	assert_finds(FILES(FILE_OF("0", LAYOUT("w", "[4]", "[0]")),
			   FILE_OF("1", LAYOUT("w", "[4]", "[-1]"))),
		     FINDS("job: parameter w: stage 0 has mesh [4] map [0], stage 1 mesh [4] map [-1]"));
	assert_finds(FILES(FILE_OF("0", LAYOUT("w", "[4]", "[0]")),
			   FILE_OF("1", LAYOUT("w", "[8]", "[0]"))),
		     FINDS("b.json: parameter w has a mesh of 8 devices"));
}

TEST(test_merged)
{
	assert_finds(FILES(FILE_OF("0", LAYOUT("0-w", "[4]", "[0]") ","
				   LAYOUT("2-v", "[4]", "[0]"))),
		     FINDS("job: pipeline stage 1 is missing"));
	assert_finds(FILES(FILE_OF("0", LAYOUT("0-a-b", "[4]", "[0]"))),
		     FINDS("names with \"-\""));
}

TEST(test_shapes)
{
	const struct tensor tensors[] = {
		{ .name = "w", .dtype = RSH_DTYPE_FLOAT32,
		  .dims = (int64_t[]){ 6, 4 }, .n_dims = 2 },
		{ .name = "v", .dtype = RSH_DTYPE_FLOAT32,
		  .dims = (int64_t[]){ 8 }, .n_dims = 1 },
		{ .name = NULL },
	};
	static const char *const json[] = {
		FILE_OF("0", LAYOUT("0-w", "[4]", "[0,-1]") ","
			LAYOUT("0-v", "[4]", "[0,-1]") ","
			LAYOUT("0-other", "[4]", "[0]")),
	};
	struct findings f = check(json, 1, tensors);

	assert_int_equal(f.n, 2);
	assert_non_null(strstr(f.text, "parameter 0-w: dimension 0 of size 6"));
	assert_non_null(strstr(f.text, "parameter 0-v: its expanded tensor"));
}
