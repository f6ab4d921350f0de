/* SPDX-License-Identifier: Apache-2.0 */
/* unit/torch_support.c - see torch_support.h. */
#include "config.h"

#include "torch_support.h"

#include <ctype.h>
#include <zlib.h>

#include "rsh/source/format.h"
#include "support.h"

#define STORAGES_MAX 64

static const struct type {
	const char *name, *storage;
	unsigned width;
	bool is_float;
} types[] = {
	{ "F32", "FloatStorage", 4, true },
	{ "F64", "DoubleStorage", 8, true },
	{ "BF16", "BFloat16Storage", 2, true },
	{ "I64", "LongStorage", 8, false },
	{ "I32", "IntStorage", 4, false },
	{ "U8", "ByteStorage", 1, false },
	{ "F16", "HalfStorage", 2, true },
	{ "F8_E4M3", "Float8_e4m3fnStorage", 1, false },
};
#define N_TYPES (sizeof(types) / sizeof(types[0]))

/* A text on its way to a pickle. */
struct writing {
	const char *at, *text;
	struct buffer *to;
	uint32_t n; /* of storages */
	struct {
		struct buffer bytes;
		const struct type *type;
		uint64_t count;
	} storages[STORAGES_MAX];
};

static void put(struct writing *w, const void *data, size_t n)
{
	buffer_append(w->to, data, n);
}

static void put_byte(struct writing *w, char c)
{
	put(w, &c, 1);
}

static void put_le(struct buffer *b, uint64_t v, unsigned width)
{
	for (unsigned i = 0; i < width; i++)
		buffer_append(b, &(uint8_t){ (uint8_t)(v >> (8 * i)) }, 1);
}

static void put_int(struct writing *w, int64_t v)
{
	const bool small = v >= INT32_MIN && v <= INT32_MAX;

	put(w, small ? "J" : "\x8a\x8", small ? 1 : 2);
	put_le(w->to, (uint64_t)v, small ? 4 : 8);
}

static void put_float(struct writing *w, double v)
{
	uint64_t bits;

	memcpy(&bits, &v, sizeof(bits));
	put_byte(w, 'G');
	for (unsigned i = 8; i-- > 0;)
		put_byte(w, (char)(bits >> 8 * i));
}

static void put_text(struct writing *w, const char *s, size_t n)
{
	put_byte(w, 'X');
	put_le(w->to, n, 4);
	put(w, s, n);
}

static void put_class(struct writing *w, const char *module, size_t n_module,
		      const char *name, size_t n_name)
{
	put_byte(w, 'c');
	put(w, module, n_module);
	put_byte(w, '\n');
	put(w, name, n_name);
	put_byte(w, '\n');
}

/* ---- the text ---- */

static char look(struct writing *w)
{
	while (isspace((unsigned char)*w->at))
		w->at++;
	return *w->at;
}

static bool take(struct writing *w, char c)
{
	const bool is = look(w) == c;

	w->at += is;
	return is;
}

static void must(struct writing *w, char c)
{
	if (!take(w, c))
		fail_msg("no '%c' before \"%.60s\" in %s", c, w->at, w->text);
}

static int64_t take_int(struct writing *w)
{
	char *end;
	const int64_t v = strtoll(w->at, &end, 10);

	if (end == w->at)
		fail_msg("no number before \"%.60s\"", w->at);
	w->at = end;
	return v;
}

/* Numbers up to a "]". */
static uint32_t take_ints(struct writing *w, int64_t *v)
{
	uint32_t n = 0;

	while (!take(w, ']')) {
		assert_true(n < RSH_MAX_DIMS);
		v[n++] = take_int(w);
		take(w, ',');
	}
	return n;
}

static void put_value(struct writing *w);

static void put_items(struct writing *w, char close)
{
	put_byte(w, '(');
	while (!take(w, close)) {
		put_value(w);
		if (close == '}') {
			must(w, ':');
			put_value(w);
		}
		if (look(w) != close)
			must(w, ',');
	}
	put_byte(w, close == ']' ? 'e' : close == '}' ? 'u' : 't');
}

/* ---- tensors ---- */

static void put_element(struct buffer *b, const struct type *t, int64_t v)
{
	const float narrow = (float)v;
	const double wide = (double)v;
	uint32_t bits;

	memcpy(&bits, &narrow, sizeof(bits));
	/* Numbers of the normal ones, without rounding. */
	if (strcmp(t->name, "F16") == 0)
		put_le(b, v == 0 ? 0 : (bits >> 16 & 0x8000) |
		       (((bits >> 23 & 0xff) - 112) << 10) |
		       (bits >> 13 & 0x3ff), 2);
	else if (!t->is_float)
		put_le(b, (uint64_t)v, t->width);
	else if (t->width == 8)
		buffer_append(b, &wide, 8);
	else
		put_le(b, t->width == 2 ? bits >> 16 : bits, t->width);
}

static uint32_t add_storage(struct writing *w, const struct type *t,
			    uint64_t count, int64_t first)
{
	assert_true(w->n < STORAGES_MAX);
	w->storages[w->n].type = t;
	w->storages[w->n].count = count;
	for (uint64_t i = 0; i < count; i++)
		put_element(&w->storages[w->n].bytes, t, first + (int64_t)i);
	return w->n++;
}

static void put_ints(struct writing *w, const int64_t *v, uint32_t n)
{
	put_byte(w, '(');
	for (uint32_t i = 0; i < n; i++)
		put_int(w, v[i]);
	put_byte(w, 't');
}

static void put_tensor(struct writing *w, const struct type *t)
{
	int64_t dims[RSH_MAX_DIMS], strides[RSH_MAX_DIMS], step = 1, from = 0;
	const uint32_t n = take_ints(w, dims);
	uint32_t storage;
	char key[12];

	for (uint32_t d = n; d-- > 0; step *= dims[d])
		strides[d] = step;
	if (*w->at == '@') {
		w->at++;
		storage = (uint32_t)take_int(w);
		if (*w->at == '+')
			from = take_int(w);
	} else {
		if (*w->at == '/') {
			w->at++;
			step = take_int(w);
		}
		w->at += *w->at == '=';
		storage = add_storage(w, t, (uint64_t)step,
				      w->at[-1] == '=' ? take_int(w) : 0);
	}
	if (strncmp(w->at, ":[", 2) == 0) {
		w->at += 2;
		assert_int_equal(take_ints(w, strides), n);
	}
	assert_true(storage < w->n);
	put_class(w, "torch._utils", 12, "_rebuild_tensor_v2", 18);
	put(w, "((", 2);
	put_text(w, "storage", 7);
	put_class(w, "torch", 5, t->storage, strlen(t->storage));
	put_text(w, key, (size_t)snprintf(key, sizeof(key), "%u", storage));
	put_text(w, "cpu", 3);
	put_int(w, (int64_t)w->storages[storage].count);
	put(w, "tQ", 2);
	put_int(w, from);
	put_ints(w, dims, n);
	put_ints(w, strides, n);
	put(w, "\x89", 1);
	put_class(w, "collections", 11, "OrderedDict", 11);
	put(w, ")RtR", 4);
}

/* ---- values ---- */

/* A word, a tensor or the name of a class. */
static void put_word(struct writing *w)
{
	const char *begin = w->at, *dot = NULL;
	size_t n;

	while (isalnum((unsigned char)*w->at) || *w->at == '_' ||
	       *w->at == '.') {
		dot = *w->at == '.' ? w->at : dot;
		w->at++;
	}
	n = (size_t)(w->at - begin);
	for (size_t i = 0; i < N_TYPES; i++)
		if (*w->at == '[' && strlen(types[i].name) == n &&
		    memcmp(begin, types[i].name, n) == 0) {
			w->at++;
			put_tensor(w, &types[i]);
			return;
		}
	if (n == 4 && memcmp(begin, "None", 4) == 0)
		put_byte(w, 'N');
	else if (n == 4 && memcmp(begin, "True", 4) == 0)
		put(w, "\x88", 1);
	else if (n == 5 && memcmp(begin, "False", 5) == 0)
		put(w, "\x89", 1);
	else if (dot)
		put_class(w, begin, (size_t)(dot - begin), dot + 1,
			  (size_t)(w->at - dot - 1));
	else
		fail_msg("not a value: \"%.60s\" in %s", begin, w->text);
}

static void put_number(struct writing *w)
{
	char *end;
	const double v = strtod(w->at, &end);

	if (memchr(w->at, '.', (size_t)(end - w->at)) ||
	    memchr(w->at, 'e', (size_t)(end - w->at))) {
		put_float(w, v);
		w->at = end;
	} else {
		put_int(w, take_int(w));
	}
}

static void put_value(struct writing *w)
{
	const char c = look(w);
	int64_t memo;

	if (c == '\'') {
		const char *end = strchr(w->at + 1, '\'');

		put_text(w, w->at + 1, (size_t)(end - w->at - 1));
		w->at = end + 1;
	} else if (c == '-' || isdigit((unsigned char)c)) {
		put_number(w);
	} else if (take(w, '[')) {
		put_byte(w, ']');
		put_items(w, ']');
	} else if (take(w, '(')) {
		put_items(w, ')');
	} else if (take(w, '{')) {
		put_byte(w, '}');
		put_items(w, '}');
	} else if (take(w, '&')) {
		memo = take_int(w);
		put_value(w);
		put_byte(w, 'r');
		put_le(w->to, (uint64_t)memo, 4);
		return;
	} else if (take(w, '*')) {
		put_byte(w, 'j');
		put_le(w->to, (uint64_t)take_int(w), 4);
		return;
	} else {
		put_word(w);
	}
	while (*w->at == '(' || *w->at == '<' || *w->at == '!') {
		if (*w->at++ == '!') {
			put_value(w);
			put_byte(w, 'b');
			break;
		}
		put_items(w, w->at[-1] == '(' ? ')' : '>');
		put_byte(w, w->at[-1] == ')' ? 'R' : '\x81');
	}
}

static void write_text(struct writing *w)
{
	put(w, "\x80\2", 2);
	put_value(w);
	put_byte(w, '.');
	if (look(w))
		fail_msg("after the end: \"%.60s\" in %s", w->at, w->text);
}

void append_pickle(struct buffer *b, const char *text)
{
	struct writing w = { .at = text, .text = text, .to = b };

	write_text(&w);
	assert_int_equal(w.n, 0);
}

/* ---- archives ---- */

static void put_entry(struct buffer *b, struct buffer *directory,
		      const char *name, const void *data, size_t n)
{
	const uint32_t sum = (uint32_t)crc32(0, data, (uInt)n);
	const uint64_t at = b->len;

	put_le(b, 0x04034b50, 4);
	put_le(directory, 0x02014b50, 4);
	put_le(directory, 0, 2);
	for (int i = 0; i < 2; i++) {
		struct buffer *to = i ? directory : b;

		put_le(to, 0, 8);
		put_le(to, 0, 2);
		put_le(to, sum, 4);
		put_le(to, n, 4);
		put_le(to, n, 4);
		put_le(to, strlen(name), 2);
		put_le(to, 0, 2);
	}
	put_le(directory, 0, 8);
	put_le(directory, 0, 2);
	put_le(directory, at, 4);
	buffer_append(b, name, strlen(name));
	buffer_append(directory, name, strlen(name));
	buffer_append(b, data, n);
}

struct buffer torch_file(const char *text, const char *root, size_t n_root)
{
	struct buffer pickle = { NULL, 0 }, directory = { NULL, 0 };
	struct buffer b = { NULL, 0 };
	struct writing w = { .at = text, .text = text, .to = &pickle };
	uint64_t at;
	char name[256];

	write_text(&w);
	snprintf(name, sizeof(name), "%.*s/data.pkl", (int)n_root, root);
	put_entry(&b, &directory, name, pickle.data, pickle.len);
	snprintf(name, sizeof(name), "%.*s/byteorder", (int)n_root, root);
	put_entry(&b, &directory, name, "little", 6);
	for (uint32_t i = 0; i < w.n; i++) {
		snprintf(name, sizeof(name), "%.*s/data/%u", (int)n_root, root,
			 i);
		put_entry(&b, &directory, name, w.storages[i].bytes.data,
			  w.storages[i].bytes.len);
		buffer_free(&w.storages[i].bytes);
	}
	snprintf(name, sizeof(name), "%.*s/version", (int)n_root, root);
	put_entry(&b, &directory, name, "3\n", 2);
	at = b.len;
	buffer_append(&b, directory.data, directory.len);
	put_le(&b, 0x06054b50, 4);
	put_le(&b, 0, 4);
	put_le(&b, w.n + 3, 2);
	put_le(&b, w.n + 3, 2);
	put_le(&b, directory.len, 4);
	put_le(&b, at, 4);
	put_le(&b, 0, 2);
	buffer_free(&pickle);
	buffer_free(&directory);
	return b;
}

void torch_write(const char *tree, const struct torch_text *file)
{
	const char *base = strrchr(file->name, '/'), *suffix;
	struct buffer b;

	base = file->root ? file->root : base ? base + 1 : file->name;
	suffix = file->root ? NULL : strrchr(base, '.');
	b = torch_file(file->text, base, suffix ? (size_t)(suffix - base) :
						  strlen(base));
	tree_write(tree, file->name, b.data, b.len);
	buffer_free(&b);
}

void append_safetensors(struct buffer *b, const char *text)
{
	struct buffer contents = { NULL, 0 };
	char header[4096] = "{", name[256];
	size_t n = 1;
	int at = 0;

	while (sscanf(text, " %255s %n", name, &at) == 1) {
		struct writing w = { .at = text + at, .text = text };
		const struct type *t = types;
		int64_t dims[RSH_MAX_DIMS], count = 1, first = 0;
		uint32_t n_dims;

		while (strncmp(w.at, t->name, strlen(t->name)) != 0 ||
		       w.at[strlen(t->name)] != '[')
			assert_true(++t < types + N_TYPES);
		w.at += strlen(t->name) + 1;
		n_dims = take_ints(&w, dims);
		if (take(&w, '='))
			first = take_int(&w);
		n += (size_t)snprintf(header + n, sizeof(header) - n,
				      "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[",
				      n > 1 ? "," : "", name, t->name);
		for (uint32_t d = 0; d < n_dims; count *= dims[d++])
			n += (size_t)snprintf(header + n, sizeof(header) - n,
					      "%s%lld", d ? "," : "",
					      (long long)dims[d]);
		n += (size_t)snprintf(header + n, sizeof(header) - n,
				      "],\"data_offsets\":[%zu,", contents.len);
		for (int64_t i = 0; i < count; i++)
			put_element(&contents, t, first + i);
		n += (size_t)snprintf(header + n, sizeof(header) - n, "%zu]}",
				      contents.len);
		text = w.at + strspn(w.at, " ;");
	}
	assert_true(n + 1 < sizeof(header) && !*text);
	header[n++] = '}';
	put_le(b, n, 8);
	buffer_append(b, header, n);
	buffer_append(b, contents.data, contents.len);
	buffer_free(&contents);
}

static void write_safetensors(const char *tree, const struct torch_text *file)
{
	struct buffer b = { NULL, 0 };

	append_safetensors(&b, file->text);
	tree_write(tree, file->name, b.data, b.len);
	buffer_free(&b);
}

void torch_write_all(const char *tree, const struct torch_text *files)
{
	for (; files->name; files++) {
		const char *suffix = strrchr(files->name, '.');

		if (*files->text == '#') {
			tree_write(tree, files->name, files->text + 1,
				   strlen(files->text + 1));
		} else if (suffix && (strcmp(suffix, ".pkl") == 0 ||
				      strcmp(suffix, ".metadata") == 0)) {
			struct buffer b = { NULL, 0 };

			append_pickle(&b, files->text);
			tree_write(tree, files->name, b.data, b.len);
			buffer_free(&b);
		} else if (strchr(suffix ? suffix : "/", '/') ||
			   strcmp(suffix, ".json") == 0 ||
			   strcmp(suffix, ".txt") == 0) {
			tree_write(tree, files->name, files->text,
				   strlen(files->text));
		} else if (strcmp(suffix, ".safetensors") == 0) {
			write_safetensors(tree, files);
		} else {
			torch_write(tree, files);
		}
	}
}

int torch_check_step(const struct rsh_format *format,
		     const struct torch_text *files, bool full,
		     struct rsh_error *err)
{
	struct rsh_counters says = { .known = 0 };
	struct rsh_byte_source sources[16] = { { NULL } };
	struct buffer b[16];
	const char *names[16] = { NULL };
	size_t n = 0;
	int rc;

	for (; files[n].name; n++) {
		const char *root = files[n].root ? files[n].root :
						   files[n].name;

		assert_true(n < 16);
		b[n] = torch_file(files[n].text, root, strcspn(root, "."));
		sources[n] = buffer_source(&b[n]);
		sources[n].path = names[n] = files[n].name;
	}
	*err = (struct rsh_error)RSH_ERROR_INIT;
	rc = format->check(sources, names, n, full, &says, err);
	while (n-- > 0)
		buffer_free(&b[n]);
	return rc;
}
