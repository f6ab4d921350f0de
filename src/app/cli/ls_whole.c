/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/ls_whole.c prints, for `ls SOURCE`, what the format lists of a source
 * that is one whole model: tensors with their chunks, or what a model in parts
 * is.  It prints the next command to type. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "rsh/app/commands.h"
#include "rsh/app/options.h"
#include "rsh/source/format.h"
#include "rsh/source/tables.h"
#include "rsh/storage/store.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/weights/decoder_names.h"
#include "rsh/weights/weights.h"
#include "rsh/wire/model_config.h"

/* ---- the next command ---- */

void rsh_ls_next(struct rsh_printer *out, const struct rsh_options *o,
		 const struct rsh_source *s, bool known)
{
	/* A mount must not hide its SOURCE, which may be a mount itself: a
	 * directory "mnt", or something in it. */
	cleanup_free char *source = realpath(o->vfs.source, NULL);
	cleanup_free char *mnt = realpath("mnt", NULL);
	const size_t n = mnt ? strlen(mnt) : 0;
	const bool is_in = source && mnt && strncmp(source, mnt, n) == 0 &&
			   (source[n] == '/' || source[n] == '\0');
	const char *point = is_in ? "mnt2" : "mnt";
	const char *operands[] = { o->vfs.source, point, NULL };
	cleanup_free char *mount = !known ? NULL :
		rsh_options_line(o, rsh_command_find("mount"), operands);
	cleanup_free char *line = !mount ? NULL :
		rsh_text_format("mkdir -p %s && %s", point, mount);

	out->failed |= known && !line;
	if (rsh_source_other(s))
		rsh_say(out, "note: it has two kinds of checkpoint: a mount "
			"takes the %, not the %\n", rsh_source_format(s)->says,
			rsh_source_other(s));
	rsh_json(out, "next:%", line);
	if (line && !out->json)
		fprintf(out->f, "next: %s\n", line);
}

#define BESIDE_MAX 64 /* entries that are looked at */

static void say_beside(struct rsh_printer *out, const struct rsh_options *o,
		       const char *name, const char *path,
		       const struct rsh_format *f)
{
	const char *operands[] = { path, "mnt", NULL };
	cleanup_free char *line =
		rsh_options_line(o, rsh_command_find("mount"), operands);

	out->failed |= !line;
	rsh_say(out, "% is a %: ", name, f->says);
	if (line)
		fprintf(out->f, "%s\n", line);
}

void rsh_ls_beside(struct rsh_printer *out, const struct rsh_options *o)
{
	cleanup_dir struct rsh_dir *dir = NULL;
	const struct rsh_store_options *how = &o->vfs.files.store;
	const char *name;

	if (out->json || rsh_store_is_address(o->vfs.source) ||
	    rsh_dir_open_path(o->vfs.source, how, &dir))
		return;
	for (unsigned i = 0; i < BESIDE_MAX && rsh_dir_next(dir, &name) > 0;
	     i++) {
		cleanup_free char *path = rsh_text_format("%s/%s",
							  o->vfs.source, name);
		struct rsh_error unused = RSH_ERROR_INIT;
		const struct rsh_format *f;
		struct rsh_stat st;
		int bid;

		if (!path || *name == '.' || rsh_dir_look(dir, name, &st) ||
		    st.kind != RSH_IS_DIR)
			continue;
		f = rsh_source_format_at(path, how, o->vfs.files.formats, &bid,
					 &unused);
		if (f && bid >= RSH_BID_STEPS)
			say_beside(out, o, name, path, f);
	}
}

/* ---- a model in parts ---- */

/* The names of the tensors that are listed. */
struct listed_names {
	struct rsh_decoder_names known;
	struct rsh_names *names;
	struct rsh_offer *v; /* [n]: with names alone */
	uint32_t n;
};

/* Writes which of two forms the names have, if a table of the group `word` is
 * for the model, and the option that makes the other one. */
static void model_say_form(const struct listed_names *l,
			   const struct rsh_model_config *config,
			   const char *word, char *text, size_t size)
{
	struct rsh_error unused = RSH_ERROR_INIT;
	struct rsh_table_set set;
	bool told = false;
	enum rsh_side side;
	const char *right;

	*text = '\0';
	if (rsh_tables_load(word, config, &set, &unused) == 0 &&
	    rsh_weights_side(set.v[0], 0, l->v, l->n, l->names, &side,
			     &told, &unused) == 0 && told) {
		const char *left = strstr(set.v[0]->title, ": ");

		left = left ? left + 2 : set.v[0]->title;
		right = strstr(left, " = ");
		if (right && side == RSH_SIDE_HF)
			snprintf(text, size, "it has %.*s: --convert %s shows %s",
				 (int)(right - left), left, word, right + 3);
		else if (right)
			snprintf(text, size, "it has %s: --convert %s shows %.*s",
				 right + 3, word, (int)(right - left), left);
	}
	rsh_table_set_clear(&set);
}

/* Takes the first architecture of the config.json in SOURCE, and what is to be
 * said of the names of weights: that none is one of it, or which of two forms
 * they have.  A config.json that cannot be read is ignored, because the weights
 * are listed.  Returns 0 or -ENOMEM. */
static int model_take_config(struct rsh_ls_model *m, const char *path,
			     const struct rsh_source *source,
			     const struct listed_names *names)
{
	struct rsh_model_config *config = NULL;
	struct rsh_error why = RSH_ERROR_INIT;
	int rc = rsh_model_config_load(NULL, path, rsh_source_store(source),
				       &config, &why);
	const char *name = rc || !config ? NULL :
			   rsh_model_config_architecture(config, 0);
	cleanup_free char *quoted = name ? rsh_text_format("\"%s\"", name) :
					   NULL;
	const char *class = quoted ? rsh_decoder_class(quoted, strlen(quoted)) :
				     NULL;

	m->architecture = name ? strdup(name) : NULL;
	m->is_other = class &&
		      rsh_decoder_names_misfit(&names->known,
					       rsh_model_config_path(config),
					       class, m->other,
					       sizeof(m->other));
	if (config)
		model_say_form(names, config, "hf5", m->form, sizeof(m->form));
	rc = rc == -ENOMEM || (name && (!quoted || !m->architecture)) ?
	     -ENOMEM : 0;
	rsh_model_config_free(config);
	return rc;
}

/* Says how the experts of an adapter are named. */
static void model_say_adapter(const struct listed_names *l, char *text,
			      size_t size)
{
	static const char experts[] = ".experts.";
	bool apart = false, stacked = false;

	for (uint32_t i = 0; i < l->n; i++) {
		const char *at = strstr(rsh_names_text(l->names, l->v[i].name),
					experts);
		const char next = at ? at[strlen(experts)] : '\0';

		apart = apart || (next >= '0' && next <= '9');
		stacked = stacked || (at && !(next >= '0' && next <= '9'));
	}
	snprintf(text, size, "it is an adapter of PEFT%s: --lora DIR merges it "
		 "into the model of SOURCE%s", apart && !stacked ?
		 ", and its experts are apart" : stacked && !apart ?
		 ", and its experts are stacked" : "", apart || stacked ?
		 "; --convert hf5 --format peft --config MODEL shows the other "
		 "form" : "");
}

int rsh_ls_model_take(struct rsh_ls_model *m, const char *path,
		      const struct rsh_source *source,
		      const struct rsh_source_view *view)
{
	const struct rsh_ckpt_index *ix = view->index[0];
	struct listed_names names = {
		.names = view->names,
		.v = rsh_alloc_array(ix->n_records + 1, sizeof(*names.v)),
	};
	struct rsh_source_file_info f;
	int rc;

	if (!names.v)
		return -ENOMEM;

	m->n_parts = rsh_source_n_files(source);
	for (uint32_t i = 0; i < m->n_parts; i++) {
		rsh_source_file_info(source, i, &f);
		m->file_bytes += f.bytes;
	}
	m->n_tensors = ix->n_records;
	rsh_source_map_lacks(source, view->names, &ix, 1, m->lacks,
			     sizeof(m->lacks));
	for (uint32_t i = 0; i < ix->n_records; i++) {
		const struct rsh_record *r = &ix->records[i];

		m->n_of[r->dtype]++;
		m->bytes_of[r->dtype] += r->content_bytes;
		m->bytes += r->content_bytes;
		names.v[names.n++] = (struct rsh_offer){ .name = r->name };
		rsh_decoder_names_add(&names.known,
				      rsh_names_text(view->names, r->name));
	}
	if (rsh_source_format(source)->is_adapter) {
		m->is_adapter = true;
		model_say_adapter(&names, m->form, sizeof(m->form));
		rc = 0;
	} else {
		rc = model_take_config(m, path, source, &names);
	}
	free(names.v);
	return rc;
}

static void model_print_notes(struct rsh_printer *out,
			      const struct rsh_ls_model *m)
{
	if (m->is_other)
		rsh_say(out, "note: %\n", m->other);
	if (*m->form)
		rsh_say(out, "note: %\n", m->form);
	if (*m->lacks)
		rsh_say(out, "note: %\n", m->lacks);
}

void rsh_ls_model_print(struct rsh_printer *out, const void *model)
{
	const struct rsh_ls_model *m = model;
	const char *before = "";

	rsh_json(out, "{architecture:% parts:% tensors:% bytes:% types:[",
		 m->architecture, m->n_parts, m->n_tensors, m->bytes);
	rsh_say(out, "%: % tensor{|s}, %, in % part{|s} of %\n",
		m->architecture ? m->architecture :
		m->is_adapter ? "an adapter" : "a model without an architecture in its config.json",
		m->n_tensors, rsh_v_bytes(m->bytes), m->n_parts,
		rsh_v_bytes(m->file_bytes));
	for (unsigned d = 0; d < RSH_DTYPE_COUNT; d++) {
		const char *name = rsh_dtype_name((enum rsh_dtype)d);

		if (m->n_of[d] == 0)
			continue;
		rsh_json(out, "{dtype:% tensors:% bytes:%}", name, m->n_of[d],
			 m->bytes_of[d]);
		rsh_say(out, "%%: % tensor{|s}, %", before, name, m->n_of[d],
			rsh_v_bytes(m->bytes_of[d]));
		before = "; ";
	}
	rsh_json(out, "]}");
	rsh_say(out, "\n");
	model_print_notes(out, m);
}

/* ---- a model whose format lists it ---- */

static void put_chunks(struct rsh_printer *out, const void *ctx)
{
	const struct rsh_listed_tensor *t = ctx;

	rsh_json(out, "[");
	for (uint32_t i = 0; i < t->n_chunks; i++) {
		const struct rsh_listed_chunk *c = &t->chunks[i];

		rsh_json(out, "{from:% size:% file:% offset:% length:%}",
			 RSH_V_IF(c->from, rsh_v_sizes(c->from, t->n_dims)),
			 RSH_V_IF(c->size, rsh_v_sizes(c->size, t->n_dims)),
			 c->file,
			 RSH_V_IF(c->placed, c->offset),
			 RSH_V_IF(c->placed, c->length));
	}
	rsh_json(out, "]");
	if (t->shares) {
		/* Other tensors do not have this key. */
		rsh_json(out, "shares:%", t->shares);
		rsh_say(out, "as %", t->shares);
	} else {
		rsh_say(out, "%", t->n_chunks);
	}
}

static void print_whole(struct rsh_printer *out, const struct rsh_options *o,
			const struct rsh_source *s, const struct rsh_listed *l,
			const struct rsh_error *wrong)
{
	static const struct rsh_column columns[] = {
		{ "name", "TENSOR", .shorten = true },
		{ "dtype", "DTYPE" },
		{ "shape", "SHAPE" },
		{ "chunks", "CHUNKS", .right = true },
		{ NULL, NULL }
	};
	uint64_t bytes = 0;

	if (l->about)
		rsh_say(out, "%\n", l->about);
	rsh_json(out, "{source:% format:%", o->vfs.source,
		 rsh_source_format(s)->name);
	if (l->about)
		rsh_json(out, "about:%", l->about);
	rsh_json(out, "whole:% reason:% files:[",
		 rsh_v_bool(!wrong->code), RSH_V_IF(wrong->code, wrong->text));
	for (uint32_t i = 0; out->json && i < l->n_files; i++) {
		struct rsh_stat st;
		const bool has = rsh_store_look(rsh_source_store(s),
						l->files[i], &st) == 0 &&
				 st.kind == RSH_IS_FILE;

		rsh_json(out, "{name:% bytes:%}", l->files[i],
			 RSH_V_IF(has, st.size));
	}
	rsh_json(out, "] tensors:");
	rsh_rows(out, columns);
	for (uint32_t i = 0; i < l->n_tensors; i++) {
		const struct rsh_listed_tensor *t = &l->tensors[i];
		uint64_t whole = rsh_dtype_size(t->dtype);

		for (uint32_t d = 0; d < t->n_dims; d++)
			whole *= t->dims[d];
		bytes += whole;
		rsh_row(out, t->name, rsh_dtype_name(t->dtype),
			rsh_v_sizes(t->dims, t->n_dims),
			rsh_v_call(put_chunks, t));
	}
	rsh_rows_end(out);
	rsh_say(out, "% tensor{|s}, whole %, in % file{|s}", l->n_tensors,
		rsh_v_bytes(bytes), l->n_files);
	if (l->n_values > 0)
		rsh_say(out, "; % value{|s} that {is|are} no tensor{|s}",
			l->n_values);
	rsh_say(out, "\n");
	rsh_json(out, "values:%", rsh_v_texts(l->values, l->n_values));
}

static int names_take(struct listed_names *n, const struct rsh_listed *l)
{
	n->names = rsh_names_new();
	n->v = rsh_alloc_array((size_t)l->n_tensors + 1, sizeof(*n->v));
	if (!n->names || !n->v)
		return -ENOMEM;
	for (uint32_t i = 0; i < l->n_tensors; i++) {
		const char *name = l->tensors[i].name;

		n->v[n->n++].name = rsh_names_add(n->names, name, strlen(name));
		if (n->v[i].name == RSH_NAME_NONE)
			return -ENOMEM;
		rsh_decoder_names_add(&n->known, name);
	}
	return 0;
}

#define FITS_MAX 4

/* Tables that name all tensors, those with the fewest other names first. */
struct fitting {
	struct {
		const char *name;
		uint32_t others;
	} v[FITS_MAX + 1];
	size_t n;
};

static void fitting_find(struct fitting *f, const struct listed_names *names,
			 const struct rsh_table_list *l, const char *begin)
{
	for (size_t i = 0; names->n > 0 && i < l->n; i++) {
		struct rsh_error unused = RSH_ERROR_INIT;
		struct rsh_rule_table *t;
		uint32_t unnamed, others;
		size_t at = f->n;

		if (strncmp(l->v[i].name, begin, strlen(begin)) != 0 ||
		    rsh_rule_table_load(l->v[i].path, &t, &unused))
			continue;
		if (rsh_weights_count_names(t, RSH_SIDE_MINDSPORE, names->v,
					    names->n, names->names, &unnamed,
					    &others, &unused) == 0 &&
		    unnamed == 0) {
			for (; at > 0 && f->v[at - 1].others > others; at--)
				f->v[at] = f->v[at - 1];
			f->v[at].name = l->v[i].name;
			f->v[at].others = others;
			f->n += f->n < FITS_MAX;
		}
		rsh_rule_table_free(t);
	}
}

/* Writes which tables have the names of the tensors.  Only those are meant that
 * are called after the format: other software has the same names with other
 * elements. */
static int model_say_tables(const struct listed_names *names,
			    const struct rsh_source *source, char *text,
			    size_t size)
{
	cleanup_table_list struct rsh_table_list l = { 0 };
	struct fitting f = { .n = 0 };
	size_t at = 0;
	int rc = rsh_tables_list(&l) ? -ENOMEM : 0;

	if (rc == 0)
		fitting_find(&f, names, &l, rsh_source_format(source)->name);
	for (size_t i = 0; i < f.n; i++)
		rsh_text_add(text, size, &at, "%s%s", i ? ", " :
			     "tables that have its names: ", f.v[i].name);
	if (f.n > 0)
		rsh_text_add(text, size, &at, "%s; --convert TABLE --config "
			     "CONFIG shows Hugging Face's form", f.n > 1 ?
			     " (the model says which one is right)" : "");
	return rc;
}

int rsh_ls_whole(struct rsh_run *run, const struct rsh_options *o,
		 const struct rsh_source *source)
{
	struct rsh_printer *out = &run->out;
	struct listed_names names = { .names = NULL };
	struct rsh_ls_model model = { 0 };
	cleanup_arena struct rsh_arena arena = { NULL, 0 };
	const struct rsh_list_job job = {
		.source = source, .part = RSH_LIST_CHUNKS, .arena = &arena,
	};
	struct rsh_listed l = { .n_tensors = 0 };
	struct rsh_error wrong = RSH_ERROR_INIT;
	const struct rsh_format *f = rsh_source_format(source);
	int rc = f->list(&job, &l, &run->err);

	if (rc == 0 && f->judge && f->judge(source, false, &wrong) == -ENOMEM)
		rc = rsh_error_nomem(&run->err);
	/* Only people are told about the config.json. */
	if (rc == 0 && !out->json &&
	    (names_take(&names, &l) ||
	     model_take_config(&model, o->vfs.source, source, &names) ||
	     (!model.architecture &&
	      model_say_tables(&names, source, model.form,
			       sizeof(model.form)))))
		rc = rsh_error_nomem(&run->err);
	rsh_names_free(names.names);
	free(names.v);
	free(model.architecture);
	if (rc == 0) {
		run->status = wrong.code ? RSH_EXIT_NO : RSH_EXIT_GOOD;
		print_whole(out, o, source, &l, &wrong);
		model_print_notes(out, &model);
		rsh_ls_next(out, o, source, wrong.code == 0);
		rsh_json(out, "}");
		rsh_error_place(&wrong, o->vfs.source);
		if (wrong.code && !out->json)
			rsh_log_error("%s", wrong.text);
	}
	return rc;
}
