/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_vfs_weights.c - weights that are computed when they are read: made
 * dense, merged with adapters, divided and joined.  The numbers were computed by
 * plain loops over the definitions of the schemes. */
#include "config.h"

#include <math.h>

#include "rsh/weights/weights.h"
#include "shown_support.h"

static void assert_shown_as(const char *tree, struct rsh_vfs_config cfg,
			    const char *want)
{
	int rc;
	char *text = shown(tree, "", cfg, &rc);

	assert_string_equal(text, want);
	assert_int_equal(rc, 0);
	free(text);
}

/* ---- quantised weights ---- */

#define CONFIG(method) \
	"{\"model_type\":\"x\",\"quantization_config\":{\"quant_method\":" \
	method "}}"

static const struct dense {
	const char *name, *weights, *config, *want;
	enum rsh_dtype dtype;
} dense[] = {
	/* Codes of 0 to 7 from the lowest bits on, which 0x76543210 has; a group
	 * and a zero point for each row of them. */
	{ "gptq", "a.qweight I32[1,8]=1985229328; a.scales F16[8,8]=1; "
	  "a.qzeros I32[8,1]; a.g_idx I32[8]",
	  CONFIG("\"gptq\",\"bits\":4,\"group_size\":1"),
	  "a.weight F32[8,8] -1 -9 -17 -25 -33 -41 -49 -57 0 0 18 52 102 168 "
	  "250 348 3 0 19 54 105 172 255 354 8 0 20 56 108 176 260 360 15 0 21 "
	  "58 111 180 265 366 24 0 22 60 114 184 270 372 35 0 23 62 117 188 275 "
	  "378 48 0 24 64 120 192 280 384\n", RSH_DTYPE_FLOAT32 },
	{ "awq", "a.qweight I32[2,1]=1985229328; a.scales F16[2,8]=1; "
	  "a.qzeros I32[2,1]=286331153",
	  CONFIG("\"awq\",\"bits\":4,\"group_size\":1"),
	  "a.weight F32[8,2] -1 -9 6 30 0 0 16 48 5 13 30 70 14 30 48 96\n",
	  RSH_DTYPE_FLOAT32 },
	{ "fp8", "a.weight F8_E4M3[4,4]=56; a.weight_scale_inv F32[2,2]=1",
	  CONFIG("\"fp8\",\"weight_block_size\":[2,2]"),
	  "a.weight F32[4,4] 1 1.125 2.5 2.75 1.5 1.625 3.5 3.75 6 6.75 10 11 9 "
	  "9.75 14 15\n", RSH_DTYPE_FLOAT32 },
	{ "fp8_as_bfloat16",
	  "a.weight F8_E4M3[4,4]=56; a.weight_scale_inv F32[2,2]=1",
	  CONFIG("\"fp8\",\"weight_block_size\":[2,2]"),
	  "a.weight BF16[4,4] 1 1.125 2.5 2.75 1.5 1.625 3.5 3.75 6 6.75 10 11 "
	  "9 9.75 14 15\n", RSH_DTYPE_BFLOAT16 },
	/* Blocks at the end may be smaller. */
	{ "fp8_of_odd_blocks",
	  "a.weight F8_E4M3[3,3]=56; a.weight_scale_inv F32[2,2]=1",
	  CONFIG("\"fp8\",\"weight_block_size\":[2,2]"),
	  "a.weight F32[3,3] 1 1.125 2.5 1.375 1.5 3.25 5.25 5.625 8\n",
	  RSH_DTYPE_FLOAT32 },
};

TEST_ROWS(dense)
{
	const struct dense *d = *state;
	cleanup_tree char *tree = tree_make();

	torch_write_all(tree, (const struct torch_text[]){
		{ "./model.safetensors", d->weights },
		{ "./config.json", d->config }, { NULL } });
	assert_shown_as(tree, (struct rsh_vfs_config){
		.weights.dequantise = d->dtype }, d->want);
}

/* ---- adapters ---- */

#define ADAPTER(r, alpha) \
	"{\"peft_type\":\"LORA\",\"r\":" r ",\"lora_alpha\":" alpha \
	",\"target_modules\":[\"a\",\"b\"]}"
#define A(n, v) "base_model.model." n ".lora_A.weight " v "; "
#define B(n, v) "base_model.model." n ".lora_B.weight " v "; "

#define HEAD(tied) \
	"{\"architectures\":[\"AForCausalLM\"],\"tie_word_embeddings\":" tied \
	"}"

/* W + alpha / r * scale * B A */
static const struct merged {
	const char *name, *weights;
	struct torch_text adapters[6];
	double scale[2];
	const char *want;
	const char *config; /* of the model; NULL: none */
} merged[] = {
	{ "an_adapter", "a.weight F32[3,2]=1; n F32[1]=9",
	  { { "lora0/adapter_config.json", ADAPTER("2", "2") },
	    { "lora0/adapter_model.safetensors",
	      A("a", "F32[2,2]=1") B("a", "F32[3,2]=1") } }, { 1 },
	  "a.weight F32[3,2] 8 12 18 26 28 40\nn F32[1] 9\n" },
	{ "with_alpha", "a.weight F32[3,2]=1",
	  { { "lora0/adapter_config.json", ADAPTER("2", "4") },
	    { "lora0/adapter_model.safetensors",
	      A("a", "F32[2,2]=1") B("a", "F32[3,2]=1") } }, { 1 },
	  "a.weight F32[3,2] 15 22 33 48 51 74\n" },
	{ "with_a_scale", "a.weight F32[3,2]=1",
	  { { "lora0/adapter_config.json", ADAPTER("2", "2") },
	    { "lora0/adapter_model.safetensors",
	      A("a", "F32[2,2]=1") B("a", "F32[3,2]=1") } }, { 0.5 },
	  "a.weight F32[3,2] 4.5 7 10.5 15 16.5 23\n" },
	{ "two_adapters", "a.weight F32[3,2]=1",
	  { { "lora0/adapter_config.json", ADAPTER("2", "2") },
	    { "lora0/adapter_model.safetensors",
	      A("a", "F32[2,2]=1") B("a", "F32[3,2]=1") },
	    { "lora1/adapter_config.json", ADAPTER("2", "2") },
	    { "lora1/adapter_model.safetensors",
	      A("a", "F32[2,2]=1") B("a", "F32[3,2]=1") } }, { 1, 1 },
	  "a.weight F32[3,2] 15 22 33 48 51 74\n" },
	{ "of_two_modules", "a.weight F32[3,2]=1; b.weight BF16[1,1]=4",
	  { { "lora0/adapter_config.json", ADAPTER("1", "1") },
	    { "lora0/adapter_model.safetensors",
	      A("a", "F32[1,2]=1") B("a", "F32[3,1]=1")
	      A("b", "F32[1,1]=2") B("b", "F32[1,1]=3") } }, { 1 },
	  "a.weight F32[3,2] 2 4 5 8 8 12\nb.weight BF16[1,1] 10\n" },
	/* A tied head is the embedding, and no other module is. */
	{ "of_a_head", "model.embed_tokens.weight F32[2,1]=1; "
	  "lm_head.weight F32[2,1]=5",
	  { { "lora0/adapter_config.json", ADAPTER("1", "1") },
	    { "lora0/adapter_model.safetensors",
	      A("lm_head", "F32[1,1]=2") B("lm_head", "F32[2,1]=3") } }, { 1 },
	  "lm_head.weight F32[2,1] 11 14\n"
	  "model.embed_tokens.weight F32[2,1] 1 2\n", HEAD("false") },
	{ "of_a_tied_head", "model.embed_tokens.weight F32[2,1]=1",
	  { { "lora0/adapter_config.json", ADAPTER("1", "1") },
	    { "lora0/adapter_model.safetensors",
	      A("lm_head", "F32[1,1]=2") B("lm_head", "F32[2,1]=3") } }, { 1 },
	  "model.embed_tokens.weight F32[2,1] 7 10\n", HEAD("true") },
	{ "beside_a_tied_head", "model.embed_tokens.weight F32[2,1]=1; "
	  "a.weight F32[2,1]=5",
	  { { "lora0/adapter_config.json", ADAPTER("1", "1") },
	    { "lora0/adapter_model.safetensors",
	      A("a", "F32[1,1]=2") B("a", "F32[2,1]=3") } }, { 1 },
	  "a.weight F32[2,1] 11 14\nmodel.embed_tokens.weight F32[2,1] 1 2\n",
	  HEAD("true") },
};

static struct rsh_vfs_config with_loras(const char *tree,
					const double scale[2],
					char dirs[2][4096],
					char files[2][4096],
					const char *beside[2])
{
	struct rsh_vfs_config cfg = { .files.beside = beside };

	for (unsigned i = 0; i < 2 && scale[i] != 0; i++) {
		snprintf(dirs[i], 4096, "%s/lora%u", tree, i);
		snprintf(files[i], 4096, "%s/lora%u/adapter_model.safetensors",
			 tree, i);
		beside[i] = files[i];
		cfg.weights.loras[i].directory = dirs[i];
		cfg.weights.loras[i].scale = scale[i];
		cfg.weights.lora_files[i] = files[i];
		cfg.weights.n_loras = cfg.files.n_beside = i + 1;
	}
	return cfg;
}

TEST_ROWS(merged)
{
	const struct merged *m = *state;
	cleanup_tree char *tree = tree_make(), *loras = tree_make();
	static char dirs[2][4096], files[2][4096];
	const char *beside[2];

	torch_write_all(tree, (const struct torch_text[]){
		{ "./model.safetensors", m->weights },
		{ m->config ? "./config.json" : NULL, m->config }, { NULL } });
	torch_write_all(loras, m->adapters);
	assert_shown_as(tree, with_loras(loras, m->scale, dirs, files, beside),
			m->want);
}

/* What SOURCE has beside its weights is merged with --lora-alpha. */
static const struct own {
	const char *name, *weights;
	unsigned alpha;
	int code;
	const char *want;
} own[] = {
	{ "own_of_peft", "a.weight F32[3,2]=1; a.lora_A.weight F32[2,2]=1; "
	  "a.lora_B.weight F32[3,2]=1; n F32[1]=9", 2, 0,
	  "a.weight F32[3,2] 8 12 18 26 28 40\nn F32[1] 9\n" },
	{ "own_of_mindpet", "a.weight F32[3,2]=1; a.mindpet_delta_lora_a "
	  "F32[2,2]=1; a.mindpet_delta_lora_b F32[3,2]=1", 4, 0,
	  "a.weight F32[3,2] 15 22 33 48 51 74\n" },
	{ "own_of_two_ranks", "a.weight F32[3,2]=1; a.lora_a F32[1,2]=1; "
	  "a.lora_b F32[3,1]=1; b.weight F32[1,1]=1; b.lora_a F32[2,1]=1; "
	  "b.lora_b F32[1,2]=1", 2, 0,
	  "a.weight F32[3,2] 3 6 7 12 11 18\nb.weight F32[1,1] 6\n" },
	{ "own_half", "a.weight F32[3,2]=1; a.lora_A.weight F32[2,2]=1", 2,
	  EINVAL, "a.lora_A.weight is there, but a.lora_B.weight is missing" },
	{ "own_other_half", "a.weight F32[3,2]=1; a.lora_B.weight F32[3,2]=1",
	  2, EINVAL, "a.lora_B.weight is there, but a.lora_A.weight is missing"
	},
	{ "own_without_a_weight", "b.weight F32[3,2]=1; a.lora_A.weight "
	  "F32[2,2]=1; a.lora_B.weight F32[3,2]=1", 2, EINVAL, "a.lora_A" },
	{ "own_of_other_ranks", "a.weight F32[3,2]=1; a.lora_A.weight "
	  "F32[2,2]=1; a.lora_B.weight F32[3,1]=1", 2, EINVAL,
	  "a.lora_A.weight has rank 2, and its other matrix 1" },
	{ "own_of_doubles", "a.weight F32[3,2]=1; a.lora_A.weight F64[2,2]=1; "
	  "a.lora_B.weight F32[3,2]=1", 2, ENOTSUP, "a.lora_A.weight is Float64, "
	  "and not BFloat16, Float16 or Float32, or is transposed" },
	{ "own_vector", "a.weight F32[3,2]=1; a.lora_A.weight F32[2]=1; "
	  "a.lora_B.weight F32[3,2]=1", 2, ENOTSUP,
	  "a.lora_A.weight is not a matrix" },
	{ "own_none", "a.weight F32[3,2]=1", 2, EINVAL, "SOURCE has no adapter: "
	  "no tensor has a name such as MODULE.mindpet_delta_lora_a" },
};

TEST_ROWS(own)
{
	const struct own *o = *state;
	cleanup_tree char *tree = tree_make();
	int rc;
	char *text;

	torch_write_all(tree, (const struct torch_text[]){
		{ "./model.safetensors", o->weights }, { NULL } });
	text = shown(tree, "", (struct rsh_vfs_config){
		.weights.lora_alpha = o->alpha }, &rc);
	if (rc != -o->code ||
	    (rc ? !strstr(text, o->want) : strcmp(text, o->want) != 0))
		fail_msg("rc %d, \"%s\"", rc, text);
	free(text);
}

/* ---- which names are shown ---- */

/* Gives the names of what was shown, with blanks between them. */
static void names_of(char *text, char *names)
{
	*names = '\0';
	for (char *l = strtok(text, "\n"); l; l = strtok(NULL, "\n")) {
		if (strncmp(l, "warning: ", 9) == 0)
			continue;
		*strchr(l, ' ') = '\0';
		strcat(strcat(names, *names ? " " : ""), l);
	}
}

static const struct selected {
	const char *name, *only, *drop, *rename;
	bool leave_states;
	int code;
	const char *want; /* names */
} selected[] = {
	{ "all", NULL, NULL, NULL, false, 0, "a.x a.y adam_m.a.x b.x" },
	{ "only", "^a\\.", NULL, NULL, false, 0, "a.x a.y" },
	{ "only_some", "a|b", NULL, NULL, false, 0, "a.x a.y adam_m.a.x b.x" },
	{ "drop", NULL, "y$|^b", NULL, false, 0, "a.x adam_m.a.x" },
	{ "only_and_drop", "^a\\.", "x", NULL, false, 0, "a.y" },
	{ "nothing_is_left", "^c", NULL, NULL, false, EINVAL,
	  "no parameter is left" },
	{ "all_is_dropped", NULL, ".", NULL, false, EINVAL,
	  "no parameter is left" },
	{ "states_are_left_out", NULL, NULL, NULL, true, 0, "a.x a.y b.x" },
	{ "rename", NULL, NULL, "{\"a.x\": \"z\", \"none\": \"c\"}", false, 0,
	  "a.y adam_m.a.x b.x z" },
	{ "rename_in_a_circle", NULL, NULL, "{\"a.x\": \"a.y\", \"a.y\": "
	  "\"a.x\"}", false, 0, "a.x a.y adam_m.a.x b.x" },
	{ "rename_to_one_name", NULL, NULL, "{\"a.x\": \"z\", \"b.x\": \"z\"}",
	  false, EINVAL, "renaming gives two parameters the name z" },
	{ "rename_to_a_name_that_is_there", NULL, NULL, "{\"a.x\": \"b.x\"}",
	  false, EINVAL, "renaming gives two parameters the name b.x" },
	{ "rename_to_a_name_that_is_left_out", NULL, "^b", "{\"a.x\": "
	  "\"b.x\"}", false, 0, "a.y adam_m.a.x b.x" },
};

TEST_ROWS(selected)
{
	const struct selected *c = *state;
	cleanup_tree char *tree = tree_make(), *beside = tree_make();
	struct rsh_vfs_config cfg = {
		.choice.only = c->only, .choice.drop = c->drop,
		.leave_states = c->leave_states,
	};
	char path[4096], names[1024], *text;
	int rc;

	torch_write_all(tree, (const struct torch_text[]){
		{ "./model.safetensors", "a.x U8[1]=1; a.y U8[1]=2; adam_m.a.x "
		  "U8[1]=3; b.x U8[1]=4" }, { NULL } });
	if (c->rename) {
		tree_write(beside, "./map.json", c->rename, strlen(c->rename));
		snprintf(path, sizeof(path), "%s/map.json", beside);
		cfg.rename = path;
	}
	text = shown(tree, "", cfg, &rc);
	if (rc != -c->code || (rc && !strstr(text, c->want)))
		fail_msg("rc %d, \"%s\"", rc, text);
	if (rc == 0) {
		names_of(text, names);
		assert_string_equal(names, c->want);
	}
	free(text);
}

/* ---- names without wrappers ---- */

static const struct unwrapped {
	const char *name;
	struct torch_text file;
	const char *want; /* names */
	int code;
} unwrapped[] = {
#define T(names) { "./model.safetensors", names }
	{ "ddp", T("module.a U8[1]; module.b U8[1]"), "a b", 0 },
	{ "ddp_twice", T("module.module.a U8[1]"), "a", 0 },
	/* A model may have a module of this name. */
	{ "not_all", T("module.a U8[1]; b U8[1]"), "b module.a", 0 },
	{ "nothing_else", T("module. U8[1]"), "module.", 0 },
	{ "compiled", T("_orig_mod.a U8[1]; x._orig_mod.b U8[1]; c U8[1]"),
	  "a c x.b", 0 },
	{ "fsdp", T("_fsdp_wrapped_module.l._fsdp_wrapped_module.a U8[1]"),
	  "l.a", 0 },
	{ "checkpointed", T("l.0._checkpoint_wrapped_module.a U8[1]"), "l.0.a",
	  0 },
	{ "all_at_once", T("module._orig_mod.l._checkpoint_wrapped_module.a "
	  "U8[1]"), "l.a", 0 },
	{ "deepspeed", T("_forward_module.module.a U8[1]"), "a", 0 },
	{ "a_key_of_the_model", T("model.model.a U8[1]; model.lm_head.w U8[1]"),
	  "lm_head.w model.a", 0 },
	{ "a_model_of_this_name", T("model.a U8[1]; model.b U8[1]"),
	  "model.a model.b", 0 },
	{ "a_dictionary", { "./x.pt", "{'model': {'a': U8[1], 'b': U8[1]}, "
	  "'step': 7}" }, "a b", 0 },
	{ "a_dictionary_of_states", { "./x.pt", "{'model_state_dict': {'a': "
	  "U8[1]}}" }, "a", 0 },
	{ "lightning", { "./x.pt", "{'state_dict': {'model.a': U8[1]}, "
	  "'epoch': 3}" }, "model.a", 0 },
	{ "two_of_one_name", T("_orig_mod.a U8[1]; a U8[1]"),
	  "would both be a without the words of wrappers", EINVAL },
};

TEST_ROWS(unwrapped)
{
	const struct unwrapped *u = *state;
	const struct torch_text files[] = { u->file, { NULL } };
	cleanup_tree char *tree = tree_make();
	char names[1024], *text;
	int rc;

	torch_write_all(tree, files);
	text = shown(tree, "", (struct rsh_vfs_config){
		.weights.unwrap = true }, &rc);
	assert_int_equal(rc, -u->code);
	if (rc) {
		assert_non_null(strstr(text, u->want));
	} else {
		names_of(text, names);
		assert_string_equal(names, u->want);
	}
	free(text);
}

static const struct wrong {
	const char *name, *weights;
	struct torch_text adapter[3];
	const char *words;
} wrong[] = {
	{ "no_such_module", "c.weight F32[3,2]=1",
	  { { "lora0/adapter_config.json", ADAPTER("2", "2") },
	    { "lora0/adapter_model.safetensors",
	      A("a", "F32[2,2]=1") B("a", "F32[3,2]=1") } },
	  "base_model.model.a.lora_A.weight changes a.weight, which is not in "
	  "the source" },
	{ "another_rank_than_it_says", "a.weight F32[3,2]=1",
	  { { "lora0/adapter_config.json", ADAPTER("2", "2") },
	    { "lora0/adapter_model.safetensors",
	      A("a", "F32[1,2]=1") B("a", "F32[3,2]=1") } },
	  "base_model.model.a.lora_A.weight has rank 1, its other matrix 2, and "
	  "adapter_config.json says 2" },
	{ "another_number_of_rows", "a.weight F32[4,2]=1",
	  { { "lora0/adapter_config.json", ADAPTER("2", "2") },
	    { "lora0/adapter_model.safetensors",
	      A("a", "F32[2,2]=1") B("a", "F32[3,2]=1") } },
	  "give a product of [3,2], but a.weight has another shape" },
	{ "half_of_it", "a.weight F32[3,2]=1",
	  { { "lora0/adapter_config.json", ADAPTER("2", "2") },
	    { "lora0/adapter_model.safetensors", A("a", "F32[2,2]=1") } },
	  "base_model.model.a.lora_A.weight is there, but base_model.model.a."
	  "lora_B.weight is missing" },
};

TEST_ROWS(wrong)
{
	const struct wrong *m = *state;
	cleanup_tree char *tree = tree_make(), *loras = tree_make();
	static char dirs[2][4096], files[2][4096];
	const char *beside[2];
	int rc;
	char *text;

	torch_write_all(tree, (const struct torch_text[]){
		{ "./model.safetensors", m->weights }, { NULL } });
	torch_write_all(loras, m->adapter);
	text = shown(tree, "", with_loras(loras, (const double[]){ 1, 0 }, dirs,
					  files, beside), &rc);
	if (rc == 0 || !strstr(text, m->words))
		fail_msg("rc %d, \"%s\"", rc, text);
	free(text);
}

/* ---- large ones, which are read in parts ---- */

/* The elements of the only tensor that a configuration shows. */
static float *elements(const char *tree, struct rsh_vfs_config cfg, size_t n)
{
	cleanup_tree char *to = tree_make();
	float *v = calloc(n + 1, sizeof(*v));
	char path[4096];
	uint64_t header;
	FILE *f;

	cfg.output = &rsh_output_hf;
	cfg.plan.part_bytes = 1 << 30;
	shown_write(tree, "", cfg, to);
	snprintf(path, sizeof(path), "%s/model-00001-of-00001.safetensors", to);
	f = fopen(path, "rb");
	assert_non_null(f);
	assert_int_equal(fread(&header, 8, 1, f), 1);
	assert_int_equal(fseek(f, (long)header, SEEK_CUR), 0);
	assert_int_equal(fread(v, sizeof(*v), n + 1, f), n);
	fclose(f);
	return v;
}

TEST(a_transposed_matrix)
{
	enum { ROWS = 700, COLUMNS = 900 };
	cleanup_tree char *tree = tree_make();
	float *v;

	torch_write_all(tree, (const struct torch_text[]){
		{ "./pytorch_model.bin", "{'w': F32[700,900]:[1,700]}" },
		{ NULL } });
	v = elements(tree, (struct rsh_vfs_config){ 0 }, ROWS * COLUMNS);
	for (unsigned r = 0; r < ROWS; r++)
		for (unsigned c = 0; c < COLUMNS; c++)
			if (v[r * COLUMNS + c] != (float)(c * ROWS + r))
				fail_msg("[%u,%u] is %g", r, c,
					 (double)v[r * COLUMNS + c]);
	free(v);
}

/* The factors of rows and those of columns are in several chunks. */
static void check_large_adapter(unsigned rows, unsigned columns)
{
	enum { RANK = 4 };
	cleanup_tree char *tree = tree_make(), *loras = tree_make();
	static char dirs[2][4096], files[2][4096];
	char weight[64], adapter[256];
	const char *beside[2];
	float *v;

	snprintf(weight, sizeof(weight), "a.weight F32[%u,%u]", rows, columns);
	snprintf(adapter, sizeof(adapter), A("a", "F32[4,%u]=1")
		 B("a", "F32[%u,4]"), columns, rows);
	torch_write_all(tree, (const struct torch_text[]){
		{ "./model.safetensors", weight }, { NULL } });
	torch_write_all(loras, (const struct torch_text[]){
		{ "lora0/adapter_config.json", ADAPTER("4", "4") },
		{ "lora0/adapter_model.safetensors", adapter }, { NULL } });
	v = elements(tree, with_loras(loras, (const double[]){ 1, 0 }, dirs,
				      files, beside), (size_t)rows * columns);
	for (unsigned r = 0; r < rows; r++)
		for (unsigned c = 0; c < columns; c++) {
			double want = r * columns + c;

			for (unsigned k = 0; k < RANK; k++)
				want += (double)(r * RANK + k) *
					(1 + k * columns + c);
			if (fabs(v[r * columns + c] - want) > want * 1e-6)
				fail_msg("[%u,%u] is %g, not %g", r, c,
					 (double)v[r * columns + c], want);
		}
	free(v);
}

TEST(large_adapters)
{
	check_large_adapter(70000, 3);
	check_large_adapter(3, 70000);
	check_large_adapter(300, 500);
}

/* Scales of many rows are in several chunks. */
TEST(large_scales)
{
	enum { ROWS = 600, COLUMNS = 700 };
	cleanup_tree char *tree = tree_make();
	float *v;

	torch_write_all(tree, (const struct torch_text[]){
		{ "./model.safetensors", "a.weight F8_E4M3[600,700]; "
		  "a.weight_scale_inv F32[600,700]=1" },
		{ "./config.json", CONFIG("\"fp8\",\"weight_block_size\":[1,1]")
		}, { NULL } });
	v = elements(tree, (struct rsh_vfs_config){
		.weights.dequantise = RSH_DTYPE_FLOAT32 }, ROWS * COLUMNS);
	for (unsigned i = 0; i < ROWS * COLUMNS; i++) {
		const unsigned e = i >> 3 & 15, m = i & 7;
		double want = e ? ldexp(1 + m / 8.0, (int)e - 7) :
				  ldexp(m / 8.0, -6);

		want *= (i & 0x80 ? -1.0 : 1.0) * (1 + i);
		/* Two of the bytes are no numbers. */
		if ((i & 0x7f) != 0x7f && (double)v[i] != want)
			fail_msg("%u is %g, not %g", i, (double)v[i], want);
	}
	free(v);
}
