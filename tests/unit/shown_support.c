/* SPDX-License-Identifier: Apache-2.0 */
/* unit/shown_support.c - see shown_support.h. */
#include "config.h"

#include "shown_support.h"

#include <jansson.h>

#include "rsh/formats/formats.h"
#include "rsh/source/format.h"
#include "rsh/util/log.h"

/* What has the values. */
#define VALUES "extra_state.json"

/* Elements of the types of torch_support.h. */
static void put_element(FILE *to, const char *type, const uint8_t *p)
{
	union {
		uint32_t bits;
		float v;
	} f = { 0 };
	double d;
	int64_t i = 0;

	if (strcmp(type, "F32") == 0)
		memcpy(&f, p, 4);
	else if (strcmp(type, "BF16") == 0)
		f.bits = (uint32_t)(p[0] | p[1] << 8) << 16;
	if (strcmp(type, "F64") == 0) {
		memcpy(&d, p, 8);
		fprintf(to, " %g", d);
	} else if (*type == 'I' || *type == 'U') {
		memcpy(&i, p, *type == 'U' ? 1 : (size_t)atoi(type + 1) / 8);
		fprintf(to, " %lld", (long long)i);
	} else {
		fprintf(to, " %g", (double)f.v);
	}
}

static unsigned width_of(const char *type)
{
	return *type == 'U' ? 1 : (unsigned)atoi(type + (*type == 'B' ? 2 : 1)) /
				  8;
}

static void put_tensors(FILE *to, const uint8_t *data, size_t n)
{
	uint64_t header;
	const char *name;
	json_t *all, *t, *v;
	size_t i;

	assert_true(n > 8);
	memcpy(&header, data, 8);
	assert_true(header <= n - 8);
	all = json_loadb((const char *)data + 8, header, 0, NULL);
	assert_non_null(all);
	json_object_foreach(all, name, t) {
		const char *type = json_string_value(json_object_get(t,
								     "dtype"));
		const json_t *at = json_object_get(t, "data_offsets");
		const uint64_t from = (uint64_t)json_integer_value(
			json_array_get(at, 0)) + 8 + header;
		const uint64_t end = (uint64_t)json_integer_value(
			json_array_get(at, 1)) + 8 + header;

		if (strcmp(name, "__metadata__") == 0)
			continue;
		assert_true(from <= end && end <= n);
		fprintf(to, "%s %s[", name, type);
		json_array_foreach(json_object_get(t, "shape"), i, v)
			fprintf(to, "%s%lld", i ? "," : "",
				(long long)json_integer_value(v));
		fputc(']', to);
		for (uint64_t k = from; k < end; k += width_of(type))
			put_element(to, type, data + k);
		fputc('\n', to);
	}
	json_decref(all);
}

/* Gives what rsh_vfs_read() does, and all bytes. */
static ssize_t read_node(const struct rsh_vfs *v, uint64_t node, uint8_t **data)
{
	struct stat st;
	ssize_t n;

	assert_int_equal(rsh_vfs_stat(v, node, &st), 0);
	*data = malloc((size_t)st.st_size + 1);
	assert_non_null(*data);
	n = rsh_vfs_read(v, node, *data, (size_t)st.st_size + 1, 0);
	if (n >= 0)
		assert_int_equal(n, st.st_size);
	return n;
}

static void put_file(FILE *to, const struct rsh_vfs *v, uint64_t node)
{
	uint8_t *data;
	const ssize_t n = read_node(v, node, &data);

	if (n < 0)
		fprintf(to, "cannot be read: %s\n", strerror((int)-n));
	else
		put_tensors(to, data, (size_t)n);
	free(data);
}

static void put_model(FILE *to, const struct rsh_vfs *v)
{
	uint64_t node;
	char name[256];

	for (uint64_t i = 2; rsh_vfs_entry(v, RSH_VFS_ROOT, i, &node, name,
					   sizeof(name)) == 0; i++) {
		const char *end = strrchr(name, '.');

		if (end && strcmp(end, ".safetensors") == 0)
			put_file(to, v, node);
	}
}

static void put_sentence(FILE *to, const char *tree, const char *text)
{
	const char *at;

	while ((at = strstr(text, tree)) != NULL) {
		fprintf(to, "%.*sSOURCE", (int)(at - text), text);
		text = at + strlen(tree);
	}
	fputs(text, to);
}

/* Adds the last n lines of the log of warnings, without what is before the
 * level, and of equal ones in a row one. */
static void put_warnings(FILE *to, const char *tree, uint64_t n)
{
	char *all = rsh_log_recent(), *at = all + strlen(all), *level, *last = NULL;

	while (at > all && (at[-1] != '\n' || n-- > 0))
		at--;
	for (char *line = strtok(at, "\n"); line; line = strtok(NULL, "\n")) {
		level = strstr(line, "reshardfs: ");
		level = level ? level + strlen("reshardfs: ") : line;
		if (last && strcmp(level, last) == 0)
			continue;
		last = level;
		put_sentence(to, tree, level);
		fputc('\n', to);
	}
	free(all);
}

static uint64_t warnings(void)
{
	uint64_t errors, n;

	rsh_log_counts(&errors, &n);
	return errors + n;
}

char *shown(const char *tree, const char *below, struct rsh_vfs_config cfg,
	    int *rc)
{
	struct rsh_error err = RSH_ERROR_INIT;
	char path[4096], *text = NULL;
	const uint64_t before = warnings();
	struct rsh_vfs *v;
	size_t size;
	FILE *to = open_memstream(&text, &size);

	assert_non_null(to);
	snprintf(path, sizeof(path), "%s%s%s", tree, *below ? "/" : "", below);
	cfg.source = path;
	cfg.files.formats = rsh_formats;
	cfg.output = &rsh_output_hf;
	cfg.plan.part_bytes = cfg.plan.part_bytes ? cfg.plan.part_bytes :
						    1 << 30;
	*rc = rsh_vfs_open(&cfg, &v, &err);
	if (*rc) {
		put_sentence(to, tree, err.text);
	} else {
		put_model(to, v);
		rsh_vfs_free(v);
		put_warnings(to, tree, warnings() - before);
	}
	assert_int_equal(fclose(to), 0);
	return text;
}

static void write_dir(const struct rsh_vfs *v, uint64_t dir, const char *to,
		      const char *path)
{
	char name[256], below[1024];
	uint64_t node;

	for (uint64_t i = 2; rsh_vfs_entry(v, dir, i, &node, name,
					   sizeof(name)) == 0; i++) {
		uint8_t *data;
		struct stat st;

		snprintf(below, sizeof(below), "%s%s%s", path,
			 *path ? "/" : "", name);
		assert_int_equal(rsh_vfs_stat(v, node, &st), 0);
		if (S_ISDIR(st.st_mode)) {
			write_dir(v, node, to, below);
			continue;
		}
		assert_true(S_ISREG(st.st_mode));
		assert_int_equal(read_node(v, node, &data), st.st_size);
		tree_write(to, below, data, (size_t)st.st_size);
		free(data);
	}
}

void shown_write(const char *tree, const char *below, struct rsh_vfs_config cfg,
		 const char *to)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_vfs *v;
	char path[4096];

	snprintf(path, sizeof(path), "%s%s%s", tree, *below ? "/" : "", below);
	cfg.source = path;
	cfg.files.formats = rsh_formats;
	assert_good(rsh_vfs_open(&cfg, &v, &err), err);
	write_dir(v, RSH_VFS_ROOT, to, "");
	rsh_vfs_free(v);
}

void assert_shown(const char *tree, const char *below, const char *want)
{
	int rc;
	char *text = shown(tree, below, (struct rsh_vfs_config){ 0 }, &rc);

	assert_string_equal(text, want);
	assert_int_equal(rc, 0);
	free(text);
}

void assert_not_shown(const char *tree, const char *below, int code,
		      const char *words)
{
	int rc;
	char *text = shown(tree, below, (struct rsh_vfs_config){ 0 }, &rc);

	if (rc != -code || !strstr(text, words))
		fail_msg("rc %d, \"%s\"; wanted %d and \"%s\"", rc, text, -code,
			 words);
	free(text);
}

void assert_values(const char *tree, const char *below, const char *want)
{
	cleanup_tree char *to = tree_make();
	const struct rsh_vfs_config cfg = {
		.output = &rsh_output_hf, .plan.part_bytes = 1 << 30,
	};
	char path[4096], text[8192] = "";
	FILE *f;

	shown_write(tree, below, cfg, to);
	snprintf(path, sizeof(path), "%s/" VALUES, to);
	f = fopen(path, "r");
	if (f) {
		text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
		fclose(f);
	}
	assert_string_equal(text, want);
}

/* ---- lists ---- */

static void put_dims(FILE *to, const uint64_t *v, uint32_t n)
{
	fputc('[', to);
	for (uint32_t d = 0; v && d < n; d++)
		fprintf(to, "%s%llu", d ? "," : "", (unsigned long long)v[d]);
	fputc(']', to);
}

static int put_listed(void *ctx, const struct rsh_listed_tensor *t)
{
	FILE *to = ctx;

	fprintf(to, "%s %s", t->name, rsh_dtype_name(t->dtype));
	put_dims(to, t->dims, t->n_dims);
	for (uint32_t i = 0; i < t->n_chunks; i++) {
		const struct rsh_listed_chunk *c = &t->chunks[i];

		fputs(i ? ", " : ": ", to);
		put_dims(to, c->size, t->n_dims);
		fputc('@', to);
		for (uint32_t d = 0; c->from && d < t->n_dims; d++)
			fprintf(to, "%s%llu", d ? "," : "",
				(unsigned long long)c->from[d]);
		fprintf(to, " in %s", c->file ? c->file : "no file");
		if (c->placed)
			fprintf(to, " at %llu+%llu", (unsigned long long)
				c->offset, (unsigned long long)c->length);
	}
	if (t->shares)
		fprintf(to, " shares %s", t->shares);
	if (t->wrong)
		fprintf(to, " wrong: %s", t->wrong);
	fputc('\n', to);
	return 0;
}

void assert_listed(const char *tree, const char *below, const char *want)
{
	const struct rsh_source_options opts = {
		.formats = rsh_formats, .unsharded = true,
	};
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_listed all = { .n_tensors = 0 };
	struct rsh_arena arena = { NULL, 0 };
	char path[4096], *text = NULL;
	size_t size;
	FILE *to = open_memstream(&text, &size);
	struct rsh_list_job job = {
		.part = RSH_LIST_CHUNKS, .arena = &arena, .take = put_listed,
		.ctx = to,
	};
	struct rsh_source *s;

	snprintf(path, sizeof(path), "%s%s%s", tree, *below ? "/" : "", below);
	assert_good(rsh_source_open(path, 0, UINT32_MAX, &opts, &s, &err), err);
	assert_good(rsh_source_choose(s, 0, &err), err);
	job.source = s;
	assert_good(rsh_source_each(&job, &all, &err), err);
	fprintf(to, "%s\n", all.about ? all.about : "");
	for (uint32_t i = 0; i < all.n_values; i++)
		fprintf(to, "value %s\n", all.values[i]);
	assert_int_equal(fclose(to), 0);
	assert_string_equal(text, want);
	free(text);
	rsh_source_free(s);
	rsh_arena_clear(&arena);
}

void shown_tree_check(const struct shown_tree *t)
{
	cleanup_tree char *tree = tree_make();

	torch_write_all(tree, t->files);
	assert_shown(tree, "", t->want);
}

void shown_refused_check(const struct shown_refused *t)
{
	cleanup_tree char *tree = tree_make();

	torch_write_all(tree, t->files);
	assert_not_shown(tree, "", t->code, t->words);
}
