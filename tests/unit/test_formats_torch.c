/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_formats_torch.c - files of torch.save(): genuine ones byte for
 * byte, and hostile ones, each of which is refused with a sentence. */
#include "config.h"

#include <jansson.h>
#include <zlib.h>

#include "rsh/formats/torch.h"
#include "rsh/util/arena.h"
#include "support.h"
#include "wire_support.h"

static int read_bytes(struct buffer *b, struct rsh_torch_file **f,
		      struct rsh_error *err)
{
	struct rsh_byte_source src = buffer_source(b);

	*err = (struct rsh_error)RSH_ERROR_INIT;
	return rsh_torch_file_read(&src, NULL, f, err);
}

/* ---- what a file may say ---- */

static void check_tensor_lies(const struct rsh_torch_file *f,
			      const struct rsh_torch_tensor *t)
{
	const struct rsh_torch_storage *s = &f->storages[t->storage];
	const unsigned width = rsh_dtype_size(t->dtype);
	uint64_t last = t->from, n = 1;

	assert_true(t->storage < f->n_storages && t->n_dims <= RSH_MAX_DIMS);
	for (uint32_t d = 0; d < t->n_dims; d++)
		n *= t->dims[d];
	assert_int_equal(n, t->elements);
	assert_true(s->offset <= f->file_bytes &&
		    s->bytes <= f->file_bytes - s->offset);
	for (uint32_t d = 0; d < t->n_dims && n > 0; d++)
		last += (t->dims[d] - 1) * t->strides[d];
	assert_true(n == 0 || width == 0 || last < s->bytes / width);
}

/* Whatever was read lies in the file, and has an index. */
static void check_file(struct rsh_torch_file *f)
{
	cleanup_names struct rsh_names *names = rsh_names_new();
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_ckpt_index *ix;

	for (uint32_t i = 0; i < f->n_tensors; i++)
		check_tensor_lies(f, &f->tensors[i]);
	assert_int_equal(rsh_torch_index(f, NULL, false, false, names,
					 &ix, &err), 0);
	assert_int_equal(ix->n_records, f->n_tensors);
	for (uint32_t i = 0; i < ix->n_records; i++)
		assert_true(rsh_record_end(ix, &ix->records[i]) <=
			    f->file_bytes);
	rsh_ckpt_index_free(ix);
}

/* ---- genuine files ---- */

struct shown {
	const struct rsh_torch_tensor *t;
	uint8_t *bytes;
};

/* Puts the elements where a plain loop over the strides says. */
static void take_by_strides(const struct buffer *b,
			    const struct rsh_torch_file *f, struct shown *s)
{
	const struct rsh_torch_tensor *t = s->t;
	const unsigned width = rsh_dtype_size(t->dtype);
	uint64_t at[RSH_MAX_DIMS] = { 0 };

	for (uint64_t i = 0; i < t->elements; i++) {
		uint64_t from = t->from;

		for (uint32_t d = 0; d < t->n_dims; d++)
			from += at[d] * t->strides[d];
		memcpy(s->bytes + i * width,
		       b->data + f->storages[t->storage].offset + from * width,
		       width);
		for (uint32_t d = t->n_dims; d-- > 0;) {
			if (++at[d] < t->dims[d])
				break;
			at[d] = 0;
		}
	}
}

/* One part of an offer, each of whose dimensions that is gone along is a
 * factor. */
static void take_part(const struct buffer *b, const struct rsh_offer *o,
		      const struct rsh_recipe_part *p, uint64_t content,
		      const uint64_t *dims, uint32_t n_dims, uint8_t *to)
{
	const unsigned width = rsh_dtype_size(o->dtype);
	uint64_t at[RSH_MAX_DIMS] = { 0 }, n = 1;

	for (uint32_t i = 0; i < p->n_factors; i++)
		n *= p->factors[i].size;
	for (uint64_t k = 0; k < n; k++) {
		uint64_t shown[RSH_MAX_DIMS] = { 0 }, in[RSH_MAX_DIMS] = { 0 };
		uint64_t x = 0, y = 0;

		for (uint32_t i = 0; i < p->n_factors; i++) {
			const struct rsh_factor *f = &p->factors[i];

			shown[f->shown_dim] += at[i] * f->shown_step;
			in[f->dim] += at[i] * f->step;
		}
		for (uint32_t d = 0; d < o->n_dims; d++)
			x = x * o->dims[d] + p->shown_from[d] + shown[d];
		for (uint32_t d = 0; d < n_dims; d++)
			y = y * dims[d] + p->from[d] + in[d];
		memcpy(to + x * width, b->data + content + y * width, width);
		for (uint32_t i = p->n_factors; i-- > 0;) {
			if (++at[i] < p->factors[i].size)
				break;
			at[i] = 0;
		}
	}
}

/* Puts the elements where the offer's recipe says. */
static void take_by_recipe(const struct buffer *b,
			   const struct rsh_ckpt_index *ix,
			   const struct rsh_catalogue *cat,
			   const struct rsh_offer *o, uint8_t *to)
{
	const struct rsh_recipe_part *parts = o->parts;
	const uint32_t n = o->n_parts;
	const struct rsh_tensor *in;
	const struct rsh_record *r;

	in = cat->tensors[parts->tensor];
	r = rsh_ckpt_find(ix, in->name);
	if (!r || r->content_bytes == 0)
		return;
	for (uint32_t i = 0; i < n; i++)
		take_part(b, o, &parts[i], ix->extents[r->first_extent].offset,
			  in->dims, in->n_dims, to);
}

static uint32_t sum_of(const uint8_t *bytes, uint64_t n)
{
	return (uint32_t)crc32(0, bytes, (uInt)n);
}

static void check_known(const struct buffer *b, const struct rsh_torch_file *f,
			const struct rsh_ckpt_index *ix,
			const struct rsh_catalogue *cat,
			const struct rsh_offer *o, const json_t *known)
{
	const json_t *shape = json_array_get(known, 1);
	const uint32_t sum =
		(uint32_t)json_integer_value(json_array_get(known, 3));
	struct shown s = { .t = NULL };
	uint64_t n;

	for (uint32_t i = 0; i < f->n_tensors; i++)
		if (strcmp(f->tensors[i].name,
			   rsh_names_text(cat->names, o->name)) == 0)
			s.t = &f->tensors[i];
	if (!s.t) {
		fail_msg("no tensor %s", rsh_names_text(cat->names, o->name));
		return;
	}
	assert_int_equal(s.t->n_dims, json_array_size(shape));
	for (uint32_t d = 0; d < s.t->n_dims; d++)
		assert_int_equal(s.t->dims[d], json_integer_value(
						       json_array_get(shape,
								      d)));
	assert_string_equal(rsh_safetensors_dtype(s.t->dtype),
			    json_string_value(json_array_get(known, 0)));
	n = s.t->elements * rsh_dtype_size(s.t->dtype);
	s.bytes = calloc(n + 1, 1);
	take_by_strides(b, f, &s);
	assert_int_equal(sum_of(s.bytes, n), sum);
	memset(s.bytes, 0xa5, n);
	take_by_recipe(b, ix, cat, o, s.bytes);
	assert_int_equal(sum_of(s.bytes, n), sum);
	free(s.bytes);
}

static bool is_known(void *ctx, const char *name)
{
	return json_object_get(ctx, name) &&
	       json_array_size(json_object_get(ctx, name)) == 4;
}

/* Every tensor of the case that the file has is right, by its strides and by
 * the recipe that shows it.  Returns how many there are. */
static uint32_t check_genuine(const char *path, json_t *tensors)
{
	struct buffer b = load_file(path);
	struct rsh_byte_source src = buffer_source(&b);
	struct rsh_names *names = rsh_names_new();
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_plan_options opts = {
		.wanted = is_known, .ctx = tensors,
	};
	struct rsh_arena arena = { NULL, 0 };
	struct rsh_offers offers;
	struct rsh_ckpt_index *ix;
	struct rsh_torch_file *f;
	uint32_t n_unsummed;

	assert_good(read_bytes(&b, &f, &err), err);
	check_file(f);
	assert_int_equal(rsh_torch_file_check(&src, f, &n_unsummed, &err), 0);
	assert_int_equal(rsh_torch_index(f, NULL, false, false, names,
					 &ix, &err), 0);
	if (rsh_torch_offers(
		    (const struct rsh_torch_file *const[]){ f }, 1,
		    &(struct rsh_read_job){
			.view = &(struct rsh_source_view){
				.n_ranks = 1, .names = names, .path = &path,
				.index = (const struct rsh_ckpt_index
					  *const[]){ ix },
			}, .opts = &opts, .arena = &arena,
		    }, &offers, &err))
		fail_msg("%s", err.text);
	assert_int_equal(rsh_offers_expand(&offers, &arena), 0);
	for (uint32_t i = 0; i < offers.n; i++) {
		const struct rsh_offer *o = &offers.v[i];

		check_known(&b, f, ix, offers.cat, o,
			    json_object_get(tensors,
					    rsh_names_text(names, o->name)));
	}
	rsh_catalogue_free(offers.cat);
	rsh_arena_clear(&arena);
	rsh_torch_file_free(f);
	rsh_ckpt_index_free(ix);
	rsh_names_free(names);
	buffer_free(&b);
	return offers.n;
}

static const char *const in_directories[][3] = {
	{ "consolidated-2.15", "consolidated.00.pth", NULL },
	{ "hf-bin", "pytorch_model.bin", NULL },
	{ "hf-bin-parts", "pytorch_model-00001-of-00002.bin",
	  "pytorch_model-00002-of-00002.bin" },
	{ "hyperparallel-torch", "_rank0_.safetensors", NULL },
};

TEST(test_genuine)
{
	struct buffer text = load_file("data/torch/expected.json");
	json_t *all = json_loadb((char *)text.data, text.len, 0, NULL), *c;
	const char *name;

	assert_non_null(all);
	json_object_foreach(all, name, c) {
		json_t *tensors = json_object_get(c, "tensors");
		const char *path = json_string_value(json_object_get(c,
								     "path"));
		char at[256];
		uint32_t n = 0, known = 0;
		const char *key;
		json_t *v;

		if (json_object_get(c, "refuse") || strcmp(name, "tar") == 0)
			continue;
		snprintf(at, sizeof(at), "data/torch/%s", path);
		for (size_t i = 0; i < sizeof(in_directories) /
					       sizeof(in_directories[0]); i++) {
			for (size_t k = 1; k < 3 && in_directories[i][k]; k++) {
				if (strcmp(in_directories[i][0], path))
					continue;
				snprintf(at, sizeof(at), "data/torch/%s/%s",
					 path, in_directories[i][k]);
				n += check_genuine(at, tensors);
			}
		}
		if (n == 0)
			n = check_genuine(at, tensors);
		json_object_foreach(tensors, key, v)
			known += json_array_size(v) == 4;
		assert_int_equal(n, known);
	}
	json_decref(all);
	buffer_free(&text);
}

static void refused(const char *path, int code, const char *words)
{
	cleanup_buffer struct buffer b = load_file(path);
	struct rsh_torch_file *f;
	struct rsh_error err;

	assert_int_equal(read_bytes(&b, &f, &err), -code);
	if (!strstr(err.text, words))
		fail_msg("%s", err.text);
}

TEST(test_refused)
{
	refused("data/torch/script-2.15.pt", ENOTSUP, "TorchScript");
	refused("data/torch/module-2.15.pt", ENOTSUP,
		"class torch.nn.modules.linear.Linear");
	refused("data/torch/tar.pth", ENOTSUP, "tar archive");
	refused("data/torch/hf-bin/config.json", EBADMSG, "torch.save()");
}

TEST(test_more_than_storages)
{
	struct buffer b = load_file("data/torch/legacy-flat-2.15.pth");
	struct rsh_torch_file *f;
	struct rsh_error err;

	buffer_append(&b, "", 1);
	assert_int_equal(read_bytes(&b, &f, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "bytes after the last storage"));
	buffer_free(&b);
}

static const char *value_of(const struct rsh_torch_file *f, const char *name)
{
	for (uint32_t i = 0; i < f->n_values; i++)
		if (strcmp(f->values[i].name, name) == 0)
			return f->values[i].plain.json ?
			       f->values[i].plain.json : "-";
	return "no such value";
}

TEST(test_values)
{
	struct buffer b = load_file("data/torch/nested-2.15.pt");
	struct rsh_torch_file *f;
	struct rsh_error err;

	assert_int_equal(read_bytes(&b, &f, &err), 0);
	assert_string_equal(value_of(f, "step"), "17");
	assert_string_equal(value_of(f, "optimizer.param_groups.0.betas"),
			    "[0.9, 0.999]");
	assert_string_equal(value_of(f, "config.big"), "1099511627776");
	rsh_torch_file_free(f);
	buffer_free(&b);
	b = load_file("data/torch/namespace-2.15.pt");
	assert_int_equal(read_bytes(&b, &f, &err), 0);
	assert_string_equal(value_of(f, "args"), "-");
	assert_string_equal(value_of(f, "size"), "[1, 2]");
	rsh_torch_file_free(f);
	buffer_free(&b);
}

/* ---- archives that are made here ---- */

struct entry {
	const char *name;
	const void *content;
	size_t n;
	const char *local_name; /* NULL: the same */
	uint16_t method;
};

static void put_le(struct buffer *b, uint64_t v, unsigned width)
{
	for (unsigned i = 0; i < width; i++)
		buffer_append(b, &(uint8_t){ (uint8_t)(v >> (8 * i)) }, 1);
}

static void put_header(struct buffer *b, const struct entry *e, bool central,
		       uint64_t at)
{
	const char *name = e->local_name && !central ? e->local_name : e->name;

	put_le(b, central ? 0x02014b50 : 0x04034b50, 4);
	if (central)
		put_le(b, 0, 2);
	put_le(b, 0, 2);
	put_le(b, 0, 2);
	put_le(b, e->method, 2);
	put_le(b, 0, 4);
	put_le(b, 0, 4); /* no CRC */
	put_le(b, e->n, 4);
	put_le(b, e->n, 4);
	put_le(b, strlen(name), 2);
	put_le(b, 0, 2);
	if (central) {
		put_le(b, 0, 2);
		put_le(b, 0, 2);
		put_le(b, 0, 2);
		put_le(b, 0, 4);
		put_le(b, at, 4);
	}
	buffer_append(b, name, strlen(name));
	if (!central)
		buffer_append(b, e->content, e->n);
}

static struct buffer make_zip(const struct entry *entries, size_t n)
{
	struct buffer b = { NULL, 0 };
	uint64_t at[8], directory, end;

	assert_true(n <= 8);
	for (size_t i = 0; i < n; i++) {
		at[i] = b.len;
		put_header(&b, &entries[i], false, 0);
	}
	directory = b.len;
	for (size_t i = 0; i < n; i++)
		put_header(&b, &entries[i], true, at[i]);
	end = b.len;
	put_le(&b, 0x06054b50, 4);
	put_le(&b, 0, 4);
	put_le(&b, n, 2);
	put_le(&b, n, 2);
	put_le(&b, end - directory, 4);
	put_le(&b, directory, 4);
	put_le(&b, 0, 2);
	return b;
}

static const uint8_t elements[24];

/* A pickle of these bytes in an archive with a storage of 24 bytes. */
static struct buffer make_file(const void *pickle, size_t n)
{
	const struct entry entries[] = {
		{ "a/data.pkl", pickle, n, NULL, 0 },
		{ "a/data/0", elements, sizeof(elements), NULL, 0 },
	};

	return make_zip(entries, 2);
}

/* Pieces of pickles. */
#define TEXT(n, s) "\x8c" n s
#define KEY(n, s) TEXT(n, s)
#define STORAGE_OF(class, count) \
	"(" TEXT("\7", "storage") class TEXT("\1", "0") TEXT("\3", "cpu") \
	count "tQ"
#define FLOATS "ctorch\nFloatStorage\n"
#define STORAGE STORAGE_OF(FLOATS, "K\6")
#define TENSOR_OF(storage, from, sizes, strides) \
	"ctorch._utils\n_rebuild_tensor_v2\n(" storage from sizes strides \
	"\x89" "ccollections\nOrderedDict\n)Rt" "R"
#define TENSOR TENSOR_OF(STORAGE, "K\0", "K\2K\3\x86", "K\3K\1\x86")
#define PARAMETER_OF(v) "ctorch._utils\n_rebuild_parameter\n" v "\x89N\x87R"
#define PARAMETER_OF_THREE(v) PARAMETER_OF(PARAMETER_OF(PARAMETER_OF(v)))
#define CALL "cos\nsystem\n" TEXT("\2", "ls") "\x85R"
#define IN_DICT(v) "\x80\2}" KEY("\1", "w") v "s."

struct made {
	const char *what;
	const char *pickle;
	size_t n;
	int code;
	const char *words;
};

#define MADE(what, pickle, code, words) \
	{ what, pickle, sizeof(pickle) - 1, code, words }

static const struct made made[] = {
	MADE("honest", IN_DICT(TENSOR), 0, ""),
	MADE("a call as a value", IN_DICT(CALL), EBADMSG, "os.system"),
	MADE("a call as a key", "\x80\2}" CALL "K\1s.", EBADMSG, "os.system"),
	MADE("a call that is thrown away", "\x80\2" CALL "0}.", EBADMSG,
	     "os.system"),
	MADE("a call below the object", "\x80\2" CALL "}.", EBADMSG,
	     "os.system"),
	MADE("a call as state", "\x80\2}" CALL "b.", EBADMSG, "os.system"),
	MADE("a call by NEWOBJ", IN_DICT("cos\nsystem\n" TEXT("\2", "ls")
					 "\x85\x81"), EBADMSG, "os.system"),
	MADE("a call by INST", IN_DICT("(" TEXT("\2", "ls") "ios\nsystem\n"),
	     EBADMSG, "0x69"),
	MADE("a call by OBJ", IN_DICT("(cos\nsystem\n" TEXT("\2", "ls") "o"),
	     EBADMSG, "0x6f"),
	MADE("a call by NEWOBJ_EX", IN_DICT("cos\nsystem\n" TEXT("\2", "ls")
					    "\x85}\x92"), EBADMSG, "os.system"),
	MADE("a name by STACK_GLOBAL", IN_DICT(TEXT("\2", "os")
		TEXT("\6", "system") "\x93" TEXT("\2", "ls") "\x85R"),
	     EBADMSG, "os.system"),
	MADE("an extension", IN_DICT("\x82\1"), EBADMSG, "0x82"),
	MADE("PERSID", IN_DICT("Px\n"), EBADMSG, "0x50"),
	MADE("a call of what was made", IN_DICT("cbuiltins\nset\n]\x85R"
		TEXT("\2", "ls") "\x85R"), 0, ""),
	MADE("a call of a call", IN_DICT("cmine\nmake\n)R)R)R"), 0, ""),
	MADE("getattr", IN_DICT("cbuiltins\ngetattr\n" TEXT("\1", "a")
				TEXT("\1", "b") "\x86R"), 0, ""),
	MADE("eval", IN_DICT("cbuiltins\neval\n" TEXT("\1", "1") "\x85R"),
	     EBADMSG, "builtins.eval, which weights never need"),
	MADE("a call without arguments", IN_DICT("cos\nabort\n)R"), EBADMSG,
	     "os.abort"),
	MADE("a call in a tensor's type",
	     IN_DICT("ctorch._tensor\n_rebuild_from_type_v2\n(cos\nsystem\n"
		     "ctorch\nTensor\n" TEXT("\2", "ls") "\x85}tR"), EBADMSG,
	     "os.system"),
	MADE("a call as a hook", IN_DICT("ctorch._utils\n_rebuild_tensor_v2\n("
		STORAGE "K\0K\2\x85K\1\x85\x89" CALL "tR"), EBADMSG,
	     "os.system"),
	MADE("a call as a storage's class", IN_DICT(TENSOR_OF(
		STORAGE_OF(CALL, "K\6"), "K\0", "K\2\x85", "K\1\x85")),
	     EBADMSG, "os.system"),
	MADE("a forged name", IN_DICT("cos\nsys\x1b[31mtem\n" TEXT("\2", "ls")
				      "\x85R"), EBADMSG, "call os."),
	/* inert ones */
	MADE("an instance", IN_DICT(TENSOR) , 0, ""),
	MADE("an instance with state", "\x80\2}" KEY("\1", "w") TENSOR "s"
	     KEY("\1", "a") "cargparse\nNamespace\n)\x81}" KEY("\1", "x")
	     "K\1sbs.", 0, ""),
	MADE("a member of an enum", "\x80\2}" KEY("\1", "w") TENSOR "s"
	     KEY("\1", "a") "cmine\nColour\nK\1\x85Rs.", 0, ""),
	MADE("an instance with arguments", IN_DICT("cmine\nThing\n"
		TEXT("\1", "x") "\x85\x81"), 0, ""),
	MADE("an instance with named arguments", IN_DICT("cmine\nThing\n"
		TEXT("\1", "x") "\x85}" KEY("\1", "a") "K\1s\x92"), 0, ""),
	MADE("a value that holds itself", IN_DICT("cmine\nA\n)\x81q\0h\0b"),
	     0, ""),
	MADE("NEWOBJ_EX of too few", "\x80\2}}\x92.", EBADMSG,
	     "more than there is"),
	MADE("POP_MARK and DUP", "\x80\2(K\1K\2" "1}2" "0" KEY("\1", "w")
	     TENSOR "s.", 0, ""),
	MADE("a large integer and bytes", IN_DICT(
		"\x8b\2\0\0\0\1\1\x96\1\0\0\0\0\0\0\0x\x86"), 0, ""),
	MADE("what a call has made as storage", IN_DICT(
		TENSOR_OF("cmine\nmake\n)R)R", "K\0", "K\2\x85",
			  "K\1\x85")), EBADMSG, "without a storage"),
	/* numbers */
	MADE("beyond its storage", IN_DICT(TENSOR_OF(STORAGE, "K\1",
		"K\2K\3\x86", "K\3K\1\x86")), EBADMSG, "leaves its storage"),
	MADE("a large stride", IN_DICT(TENSOR_OF(STORAGE, "K\0", "K\2K\3\x86",
		"\x8a\x8\1\1\1\1\1\1\1\x3fK\1\x86")), EBADMSG, "leaves"),
	MADE("a negative size", IN_DICT(TENSOR_OF(STORAGE, "K\0",
		"J\xff\xff\xff\xffK\3\x86", "K\3K\1\x86")), EBADMSG,
	     "cannot be"),
	MADE("a negative stride", IN_DICT(TENSOR_OF(STORAGE, "K\5", "K\2\x85",
		"J\xff\xff\xff\xff\x85")), EBADMSG, "cannot be"),
	MADE("sizes that overflow", IN_DICT(TENSOR_OF(STORAGE, "K\0",
		"\x8a\5\0\0\0\0\1\x8a\5\0\0\0\0\1\x86", "K\0K\0\x86")),
	     EBADMSG, "more elements"),
	MADE("fewer strides", IN_DICT(TENSOR_OF(STORAGE, "K\0", "K\2K\3\x86",
		"K\1\x85")), EBADMSG, "strides"),
	MADE("a size that is a truth", IN_DICT(TENSOR_OF(STORAGE, "K\0",
		"\x88\x85", "K\1\x85")), EBADMSG, "cannot be"),
	MADE("a storage of another size", IN_DICT(TENSOR_OF(
		STORAGE_OF(FLOATS, "K\7"), "K\0", "K\2\x85", "K\1\x85")),
	     EBADMSG, "24 bytes"),
	MADE("a storage that is not there", IN_DICT("(" TEXT("\7", "storage")
		FLOATS TEXT("\1", "1") TEXT("\3", "cpu") "K\6tQ"), EBADMSG,
	     "no entry for storage 1"),
	MADE("a storage of a path", IN_DICT("(" TEXT("\7", "storage") FLOATS
		TEXT("\6", "../a/0") TEXT("\3", "cpu") "K\6tQ"), EBADMSG,
	     "no entry"),
	MADE("a storage of two sizes", "\x80\2}" KEY("\1", "w") STORAGE "s"
	     KEY("\1", "v") STORAGE_OF(FLOATS, "K\5") "s.", EBADMSG,
	     "two sizes"),
	MADE("a storage of negative size", IN_DICT(STORAGE_OF(FLOATS,
		"J\xff\xff\xff\xff")), EBADMSG, "no storage"),
	MADE("a number as persistent id", IN_DICT("K\1Q"), EBADMSG,
	     "no storage"),
	MADE("a tensor without storage", IN_DICT(TENSOR_OF("K\1", "K\0",
		"K\2\x85", "K\1\x85")), EBADMSG, "without a storage"),
	MADE("an instance as storage", IN_DICT(TENSOR_OF("cmine\nA\n)\x81",
		"K\0", "K\2\x85", "K\1\x85")), EBADMSG, "without a storage"),
	MADE("a storage of 2^65 bytes", IN_DICT(STORAGE_OF(FLOATS,
		"\x8a\x8\xff\xff\xff\xff\xff\xff\xff\x7f")), EBADMSG,
	     "a storage of more bytes than can be"),
	MADE("a view as storage", IN_DICT(STORAGE_OF(FLOATS, "K\6K\1")),
	     EBADMSG, "a storage that is a view of another one"),
	/* tensors */
	MADE("a tensor of a storage alone", IN_DICT(
		"ctorch._utils\n_rebuild_tensor_v2\n(" STORAGE "tR"),
	     EBADMSG, "a tensor without sizes and strides"),
	MADE("a place that is a text", IN_DICT(TENSOR_OF(STORAGE,
		TEXT("\1", "a"), "K\2\x85", "K\1\x85")), EBADMSG,
	     "a tensor without a place and sizes"),
	MADE("sizes that are a number", IN_DICT(TENSOR_OF(STORAGE, "K\0", "K\2",
		"K\1\x85")), EBADMSG, "a tensor without a place and sizes"),
	MADE("no type", IN_DICT("ctorch._utils\n_rebuild_tensor_v3\n(" STORAGE
		"K\0K\2\x85K\1\x85\x89NNtR"), EBADMSG,
	     "a tensor without a type"),
	MADE("a parameter of a number", IN_DICT(PARAMETER_OF("K\1")), EBADMSG,
	     "a parameter without a tensor"),
	MADE("a parameter", IN_DICT(PARAMETER_OF(TENSOR)), 0, ""),
	MADE("a parameter of parameters", IN_DICT(PARAMETER_OF_THREE(
		PARAMETER_OF_THREE(PARAMETER_OF_THREE(PARAMETER_OF(TENSOR))))),
	     EBADMSG, "a tensor that is built of tensors without an end"),
	MADE("a type alone", IN_DICT("ctorch._tensor\n_rebuild_from_type_v2\n("
		"ctorch._utils\n_rebuild_tensor_v2\ntR"), EBADMSG,
	     "a tensor that is built of nothing"),
	MADE("a parameter of nothing", IN_DICT(
		"ctorch._utils\n_rebuild_parameter\n)R"), EBADMSG,
	     "a parameter without a tensor"),
	/* The memory behind the empty tuple begins with a tensor. */
	MADE("a parameter of nothing beside a tensor", IN_DICT(
		TENSOR "q\0" "0ctorch._utils\n_rebuild_parameter\n)h\0\x85"
		"0R"), EBADMSG, "a parameter without a tensor"),
	MADE("a parameter of a pair", IN_DICT(
		"ctorch._utils\n_rebuild_parameter\nK\1K\2\x86R"), EBADMSG,
	     "a parameter without a tensor"),
	MADE("a dictionary of triples", IN_DICT(
		"ccollections\nOrderedDict\n]K\1K\2K\3\x87" "a\x85R"), EBADMSG,
	     "a dictionary of values that are not pairs"),
	MADE("a dictionary of single values", IN_DICT(
		"ccollections\nOrderedDict\n]K\1\x85" "a\x85R"), EBADMSG,
	     "a dictionary of values that are not pairs"),
	MADE("a dictionary of pairs", IN_DICT(
		"ccollections\nOrderedDict\n]" TEXT("\1", "a") "K\2\x86" "a\x85R"),
	     0, ""),
	MADE("a dictionary of numbers", IN_DICT(
		"ccollections\nOrderedDict\n]K\1a\x85R"), EBADMSG,
	     "a dictionary of values that are not pairs"),
	MADE("a tuple as a value's name", "\x80\2}K\1\x85K\2s.", 0, ""),
	/* the machine */
	MADE("an underflow", "\x80\2s.", EBADMSG, "more than there is"),
	MADE("a mark that is not there", "\x80\2u.", EBADMSG, "mark"),
	MADE("a memo that is not there", "\x80\2h\7.", EBADMSG, "memo"),
	MADE("a pickle without an end", "\x80\2}", EBADMSG, "truncated"),
	MADE("more than one pickle", "\x80\2}.}.", EBADMSG, "after the end of the pickle"),
	MADE("a text beyond its end", "\x80\2" "X\xff\xff\xff\x7f" "a.",
	     EBADMSG, "truncated"),
	MADE("a list that holds itself", "\x80\2]q\0h\0a.", 0, ""),
	MADE("a dictionary that holds itself", "\x80\2}q\0" KEY("\1", "w")
	     "h\0s.", 0, ""),
	MADE("no instruction", "{}", EBADMSG, "no pickle instruction"),
	MADE("a pickle without a protocol", "}.", EBADMSG,
	     "damaged at offset 40: no pickle"),
	MADE("a protocol that is not known", "\x80\x22}.", EBADMSG,
	     "a pickle of a later protocol than 5"),
	MADE("a number", "\x80\2K\1.", ENOTSUP, "neither"),
	MADE("a bare tensor", "\x80\2" TENSOR ".", ENOTSUP, "without a name"),
};

static void check_made(const struct made *m)
{
	cleanup_buffer struct buffer b = make_file(m->pickle, m->n);
	struct rsh_torch_file *f;
	struct rsh_error err;
	int rc = read_bytes(&b, &f, &err);

	if (rc != -m->code || (rc && !strstr(err.text, m->words)))
		fail_msg("%s: rc %d, \"%s\"", m->what, rc, err.text);
	if (rc == 0)
		check_file(f);
	rsh_torch_file_free(f);
}

TEST(test_made)
{
	for (size_t i = 0; i < sizeof(made) / sizeof(made[0]); i++)
		check_made(&made[i]);
}

/* ---- names ---- */

#define AS_LISTED(s) (s), sizeof(s) - 1

/* In a file with these keys one tensor has no name of its own, or a value is
 * not shown; the others are found. */
TEST(test_unnamed)
{
	static const struct {
		const char *pickle;
		size_t n;
		uint32_t n_tensors;
		const char *name, *make; /* of the last value */
	} cases[] = {
		{ AS_LISTED("\x80\2}" KEY("\1", "w") TENSOR "s"
			    KEY("\1", "w") TENSOR "s."),
		  1, "w", "another value has its name" },
		{ AS_LISTED("\x80\2}" KEY("\3", "a.b") "K\1s" KEY("\1", "a")
			    "}" KEY("\1", "b") TENSOR "ss."),
		  0, "a.b", "another value has its name" },
		{ AS_LISTED("\x80\2}" KEY("\3", "a.b") TENSOR "s"
			    KEY("\1", "a") "}" KEY("\1", "b") "K\2ss."),
		  1, "a.b", NULL },
		{ AS_LISTED("\x80\2}" KEY("\3", "a.b") "K\1s" KEY("\1", "a")
			    "}" KEY("\1", "b") "K\2ss."), 0, "a.b", NULL },
		{ AS_LISTED("\x80\2}" KEY("\1", "\xff") TENSOR "s."),
		  0, "?", "its name is not UTF-8" },
		{ AS_LISTED("\x80\2}" KEY("\3", "\xed\xa0\x80") TENSOR "s."),
		  0, "?", "its name is not UTF-8" },
		{ AS_LISTED("\x80\2}" KEY("\1", "\0") TENSOR "s."),
		  0, "?", "its name is not UTF-8" },
		{ AS_LISTED("\x80\2}K\1\x85" TENSOR "s."),
		  0, "?", "its key is not a string" },
		{ AS_LISTED("\x80\2}" KEY("\1", "v") TENSOR "s" KEY("\1", "w")
			    "}K\1\x85}" KEY("\1", "a") TENSOR "sss."),
		  1, "w.?.a", "its key is not a string" },
		/* a storage, which no tensor has */
		{ AS_LISTED("\x80\2}K\1\x85" STORAGE "s."),
		  0, "?", "its key is not a string" },
		/* A list with a tensor and itself, and such a dictionary. */
		{ AS_LISTED("\x80\2}" KEY("\1", "w") "]q\0" TENSOR "ah\0as."),
		  1, "w.1", NULL },
		{ AS_LISTED("\x80\2}" KEY("\1", "w") "}q\0" KEY("\1", "a")
			    TENSOR "s" KEY("\1", "b") "h\0ss."),
		  1, "w.b", NULL },
		{ AS_LISTED("\x80\2}" KEY("\1", "w") "]q\0h\0as."),
		  0, "w", NULL },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		cleanup_buffer struct buffer b =
			make_file(cases[i].pickle, cases[i].n);
		const struct rsh_torch_value *v;
		struct rsh_torch_file *f;
		struct rsh_error err;

		assert_good(read_bytes(&b, &f, &err), err);
		check_file(f);
		assert_true(f->n_values > 0);
		v = &f->values[f->n_values - 1];
		if (f->n_tensors != cases[i].n_tensors ||
		    strcmp(v->name, cases[i].name) != 0 || v->plain.pickle ||
		    v->unnamed != !!cases[i].make || v->n_keys > 2 ||
		    (v->make && strcmp(v->make, cases[i].make) != 0))
			fail_msg("case %zu: %u tensors, %s (%s)", i,
				 f->n_tensors, v->name, v->make);
		rsh_torch_file_free(f);
	}
}

/* Lists 100,000 deep; a dictionary that is there 2^63 times. */
TEST(test_deep)
{
	struct buffer p = { NULL, 0 }, b;
	struct rsh_torch_file *f;
	struct rsh_error err;

	buffer_append(&p, "\x80\2", 2);
	for (int i = 0; i < 100000; i++)
		buffer_append(&p, "]", 1);
	for (int i = 1; i < 100000; i++)
		buffer_append(&p, "a", 1);
	buffer_append(&p, ".", 1);
	b = make_file(p.data, p.len);
	assert_int_equal(read_bytes(&b, &f, &err), -EBADMSG);
	buffer_free(&p);
	buffer_free(&b);
	/* Each dictionary holds the one before twice. */
	buffer_append(&p, "\x80\2}q\0", 5);
	for (uint8_t i = 1; i < 64; i++) {
		const uint8_t list[] = {
			'}', 'q', i, 0x8c, 1, 'a', 'h', (uint8_t)(i - 1), 's',
			0x8c, 1, 'b', 'h', (uint8_t)(i - 1), 's',
		};

		buffer_append(&p, list, sizeof(list));
	}
	buffer_append(&p, ".", 1);
	b = make_file(p.data, p.len);
	assert_int_equal(read_bytes(&b, &f, &err), -EBADMSG);
	if (!strstr(err.text, "room for"))
		fail_msg("%s", err.text);
	buffer_free(&p);
	buffer_free(&b);
}

/* Neither the negative of what is stored nor a long name is shown. */
TEST(test_not_shown)
{
	static const char negative[] = IN_DICT(
		"ctorch._utils\n_rebuild_tensor_v2\n(" STORAGE
		"K\0K\2\x85K\1\x85\x89N}" KEY("\3", "neg") "\x88stR");
	struct buffer p = { NULL, 0 };
	struct buffer b = make_file(negative, sizeof(negative) - 1);
	struct rsh_torch_file *f;
	struct rsh_error err;

	assert_int_equal(read_bytes(&b, &f, &err), 0);
	assert_int_equal(f->n_tensors, 0);
	assert_int_equal(f->n_values, 1);
	assert_string_equal(f->values[0].make, "conjugate or negative");
	rsh_torch_file_free(f);
	buffer_free(&b);
	buffer_append(&p, "\x80\2}X\x88\x13\0\0", 8);
	for (int i = 0; i < 5000; i++)
		buffer_append(&p, "a", 1);
	buffer_append(&p, TENSOR "s.", sizeof(TENSOR "s.") - 1);
	b = make_file(p.data, p.len);
	assert_int_equal(read_bytes(&b, &f, &err), 0);
	assert_int_equal(f->n_tensors, 0);
	assert_int_equal(f->n_values, 1);
	assert_true(f->values[0].unnamed);
	assert_string_equal(f->values[0].name, "?");
	assert_string_equal(f->values[0].make,
			    "its name has more than 4096 bytes");
	rsh_torch_file_free(f);
	buffer_free(&p);
	buffer_free(&b);
}

/* A full scan says whether all records have checksums. */
/* Each of these changes one field of the records at the end of an archive with
 * zip64. */
TEST(test_ends_of_zip64)
{
	static const struct {
		const char *record; /* its signature */
		unsigned at, n;     /* the bytes, which are inverted */
		const char *word;
	} cases[] = {
		{ "PK\6\7", 4, 4, "a zip64 locator that points outside" },
		{ "PK\6\7", 8, 8, "a zip64 locator that points outside" },
		{ "PK\6\7", 16, 4, "a zip64 locator that points outside" },
		{ "PK\6\6", 0, 4, "no zip64 end record" },
		{ "PK\6\6", 4, 8, "no zip64 end record" },
		{ "PK\6\6", 32, 8, "damaged" },
		{ "PK\6\6", 40, 8, "damaged" },
		{ "PK\6\6", 48, 8, "damaged" },
		{ "PK\5\6", 10, 2, "two end records that do not agree" },
		{ "PK\5\6", 12, 4, "two end records that do not agree" },
		{ "PK\5\6", 16, 4, "two end records that do not agree" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		cleanup_buffer struct buffer b =
			load_file("unit/data/torch_zip64.pt");
		uint8_t *at = b.data + b.len - 22;
		struct rsh_torch_file *f = NULL;
		struct rsh_error err;

		while (memcmp(at, cases[i].record, 4) != 0)
			at--;
		for (unsigned k = 0; k < cases[i].n; k++)
			at[cases[i].at + k] ^= 0xff;
		if (read_bytes(&b, &f, &err) != -EBADMSG ||
		    !strstr(err.text, cases[i].word))
			fail_msg("case %zu: \"%s\"", i, err.text);
	}
}

/* ---- the order of elements ---- */

/* A tensor whose elements are contiguous in the order of these dimensions.
 * Strides of dimensions of size 1 have no meaning. */
static void draw_strides(struct numbers *x, uint32_t n, uint64_t *dims,
			 uint64_t *strides)
{
	uint8_t order[RSH_MAX_DIMS];
	uint64_t next = 1;

	for (uint32_t i = 0; i < n; i++) {
		const uint32_t k = (uint32_t)numbers_below(x, i + 1);

		dims[i] = 1 + numbers_below(x, 2) * numbers_below(x, 4);
		order[i] = order[k];
		order[k] = (uint8_t)i;
	}
	for (uint32_t i = 0; i < n; i++) {
		const uint8_t d = order[i];

		strides[d] = dims[d] == 1 ? numbers_below(x, 100) : next;
		next *= dims[d];
	}
}

static void check_layout(const struct rsh_torch_tensor *t, bool dense)
{
	bool seen[RSH_MAX_DIMS] = { false }, row_major = true;
	struct rsh_torch_layout l;
	uint64_t next = 1, last = 0;

	rsh_torch_layout(t, &l);
	assert_int_equal(l.dense, dense);
	for (uint32_t i = t->n_dims; i-- > 0;) {
		const uint8_t d = l.order[i];

		assert_true(d < t->n_dims && !seen[d]);
		seen[d] = true;
		row_major &= d == i;
		if (dense && t->dims[d] > 1)
			assert_int_equal(t->strides[d], next);
		next *= t->dims[d];
		last += (t->dims[d] - 1) * t->strides[d];
	}
	assert_int_equal(rsh_torch_is_row_major(l.order, t->n_dims), row_major);
	assert_int_equal(l.span, dense ? next : last + 1);
}

TEST(test_orders)
{
	struct numbers x = { numbers_seed() };

	for (int i = 0; i < rounds(5000); i++) {
		uint64_t dims[6], strides[6], largest = 0;
		struct rsh_torch_tensor t = {
			.n_dims = (uint32_t)numbers_below(&x, 7),
			.dims = dims, .strides = strides, .elements = 1,
		};

		draw_strides(&x, t.n_dims, dims, strides);
		for (uint32_t d = 0; d < t.n_dims; d++) {
			t.elements *= dims[d];
			largest = dims[d] > 1 && strides[d] > largest ?
				  strides[d] : largest;
		}
		check_layout(&t, true);
		/* Now there is a gap. */
		for (uint32_t d = 0; d < t.n_dims && largest; d++)
			strides[d] += dims[d] > 1 && strides[d] == largest;
		check_layout(&t, !largest);
	}
}

TEST(test_summed)
{
	static const struct {
		const char *path;
		bool full, summed;
		uint32_t n_unsummed;
	} cases[] = {
		{ "data/torch/flat-2.15.pt", true, true, 0 },
		{ "data/torch/flat-2.15.pt", false, false, 0 },
		{ "data/torch/crc0-2.15.pt", true, false, 1 },
		{ "data/torch/crc0-2.15.pt", false, false, 0 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		cleanup_buffer struct buffer b = load_file(cases[i].path);
		cleanup_names struct rsh_names *names = rsh_names_new();
		const struct rsh_byte_source src = buffer_source(&b);
		struct rsh_error err = RSH_ERROR_INIT;
		struct rsh_ckpt_index *ix;

		assert_good(rsh_torch_scan_by_name(&src, cases[i].full, names,
						   &ix, &err), err);
		assert_int_equal(ix->summed, cases[i].summed);
		if (cases[i].full)
			assert_int_equal(ix->n_unsummed != 0,
					 cases[i].n_unsummed != 0);
		rsh_ckpt_index_free(ix);
	}
}

/* A list is one value, unless there is a tensor anywhere in it. */
TEST(test_lists)
{
#define LIST(what, name, n_values) { what, sizeof(what) - 1, name, n_values }
	static const struct {
		const char *pickle;
		size_t n;
		const char *name; /* NULL: no tensor */
		uint32_t n_values;
	} cases[] = {
		LIST(IN_DICT("]K\1aK\2a"), NULL, 1),
		LIST(IN_DICT("]" TENSOR "aK\1a"), "w.0", 1),
		LIST(IN_DICT("]K\1a" TENSOR "a"), "w.1", 1),
		LIST(IN_DICT("]K\1aK\2aK\3a" TENSOR "a"), "w.3", 3),
		LIST(IN_DICT("]K\1aK\2" TENSOR "\x86" "a"), "w.1.1", 2),
		LIST(IN_DICT("]K\1a]K\2a" TENSOR "aa"), "w.1.1", 2),
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct buffer b = make_file(cases[i].pickle, cases[i].n);
		struct rsh_torch_file *f;
		struct rsh_error err;

		assert_int_equal(read_bytes(&b, &f, &err), 0);
		assert_int_equal(f->n_tensors, cases[i].name != NULL);
		assert_int_equal(f->n_values, cases[i].n_values);
		if (cases[i].name)
			assert_string_equal(f->tensors[0].name, cases[i].name);
		rsh_torch_file_free(f);
		buffer_free(&b);
	}
}

static void check_archive(const char *what, const struct entry *entries,
			  size_t n, const char *words)
{
	cleanup_buffer struct buffer b = make_zip(entries, n);
	struct rsh_torch_file *f;
	struct rsh_error err;
	int rc = read_bytes(&b, &f, &err);

	if (rc != (*words ? -EBADMSG : 0) || !strstr(err.text, words))
		fail_msg("%s: rc %d, \"%s\"", what, rc, err.text);
	rsh_torch_file_free(f);
}

TEST(test_archives)
{
	static const char honest[] = IN_DICT(TENSOR);
	const struct entry object = {
		"a/data.pkl", honest, sizeof(honest) - 1, NULL, 0,
	};
	const struct entry storage = { "a/data/0", elements, 24, NULL, 0 };
	struct entry e[4] = { object, storage };

	check_archive("honest", e, 2, "");
	e[2] = storage;
	check_archive("a storage twice", e, 3, "twice");
	e[2] = object;
	check_archive("data.pkl twice", e, 3, "twice");
	e[2].name = "b/data.pkl";
	check_archive("two objects", e, 3, "second data.pkl");
	e[1].local_name = "a/data/1";
	check_archive("a local name that differs", e, 2, "another zip entry");
	e[1] = storage;
	e[1].method = 8;
	check_archive("a deflated storage", e, 2, "compressed");
	e[1] = storage;
	e[1].n = 20;
	check_archive("a short storage", e, 2, "20 bytes");
	e[1] = storage;
	e[1].name = "b/data/0";
	check_archive("a storage elsewhere", e, 2, "no entry");
	e[1] = storage;
	e[2] = (struct entry){ "a/byteorder", "big", 3, NULL, 0 };
	check_archive("of another byte order", e, 3, "little-endian");
	e[2] = (struct entry){ "a/byteorder", "little", 6, NULL, 0 };
	check_archive("of our byte order", e, 3, "");
	check_archive("without an object", &e[1], 2, "without data.pkl");
}

/* ---- damage ---- */

TEST(test_truncated)
{
	static const char *const files[] = {
		"data/torch/views-2.15.pt", "data/torch/legacy-views-2.15.pth.tar",
	};

	for (size_t i = 0; i < 2; i++) {
		struct buffer b = load_file(files[i]);

		for (size_t n = 0; n < b.len; n += n < 4096 ? 7 : 61) {
			struct buffer cut = { NULL, 0 };
			struct rsh_torch_file *f;
			struct rsh_error err;

			buffer_append(&cut, b.data, n);
			if (read_bytes(&cut, &f, &err) == 0)
				fail_msg("%s of %zu bytes", files[i], n);
			assert_true(*err.text);
			buffer_free(&cut);
		}
		buffer_free(&b);
	}
}

/* A changed byte gives a sentence or tensors that lie in the file. */
TEST(test_flipped)
{
	static const char *const files[] = {
		"data/torch/names-2.15.pt", "data/torch/legacy-views-2.15.pth.tar",
		"data/torch/protocol4-2.15.pt",
	};

	for (size_t i = 0; i < 3; i++) {
		struct buffer b = load_file(files[i]);

		for (size_t at = 0; at < b.len; at++) {
			const uint8_t was = b.data[at];
			struct rsh_torch_file *f;
			struct rsh_error err;

			b.data[at] ^= (uint8_t)(1u << at % 8);
			if (read_bytes(&b, &f, &err) == 0)
				check_file(f);
			else
				assert_true(*err.text);
			rsh_torch_file_free(f);
			b.data[at] = was;
		}
		buffer_free(&b);
	}
}
