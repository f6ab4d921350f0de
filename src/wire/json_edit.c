/* SPDX-License-Identifier: Apache-2.0 */
/* wire/json_edit.c stores the offsets of an object's members in its text, and
 * writes the text with some of them replaced. */
#include "config.h"

#include "rsh/wire/json_edit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "json_scan_i.h"
#include "rsh/util/arena.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/wire/bytes.h"
#include "rsh/wire/json_text.h"

#define NO_PARENT UINT32_MAX

struct edit_member {
	struct rsh_json_member m;
	uint32_t parent; /* the member whose value it is in, or NO_PARENT */
	uint64_t begin;  /* offset of its key's opening quote */
	const char *value; /* the new value; NULL: unchanged */
	bool dropped;
};

struct rsh_json_edit {
	const char *text;
	size_t len;
	struct edit_member *v; /* in the order of the text */
	uint32_t n;
	size_t cap;
	uint32_t n_read; /* members from this number on were added */
	bool changed;
	struct rsh_arena arena;
};

/* ---- reading ---- */

static bool edit_is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Sets what a value of n bytes is: a word, a number, or the beginning of a
 * string, a list or an object. */
static void edit_classify(struct rsh_json_member *m, const char *s, size_t n)
{
	m->kind = *s == 'n' ? RSH_JSON_NULL : *s == '{' ? RSH_JSON_OBJECT :
		  *s == '"' ? RSH_JSON_STRING :
		  *s == 't' || *s == 'f' ? RSH_JSON_BOOL :
		  rsh_number_read(s, n, &m->number) ? RSH_JSON_NUMBER :
						      RSH_JSON_OTHER;
	if (m->kind == RSH_JSON_BOOL)
		m->number = *s == 't';
}

/* Adds a member whose value begins at the scan's position.  Returns its number,
 * or NO_PARENT after a failure. */
static uint32_t edit_add(struct rsh_json_edit *e, struct json_scan *s,
			 const struct json_string *key, uint32_t parent,
			 uint64_t begin)
{
	struct edit_member *m;
	const char *text = rsh_arena_strndup(&e->arena, key->s, key->len);

	if (!text || rsh_room(e->v, e->cap, (size_t)e->n + 1)) {
		rsh_json_nomem(s);
		return NO_PARENT;
	}
	(void)rsh_json_peek(s);
	m = &e->v[e->n];
	*m = (struct edit_member){ .parent = parent, .begin = begin };
	m->m.key = text;
	m->m.offset = rsh_json_offset(s);
	return e->n++;
}

/* Reads the members of an object.  Objects in the object at the top are read
 * too, but no deeper ones. */
static void edit_read_object(struct rsh_json_edit *e, struct json_scan *s,
			     uint32_t parent)
{
	struct json_string key, text;
	uint64_t at;

	if (!rsh_json_begin(s, '{'))
		return;
	for (at = rsh_json_offset(s); rsh_json_key(s, &key);
	     at = rsh_json_offset(s)) {
		uint32_t i;

		while (edit_is_blank(e->text[at]) || e->text[at] == ',')
			at++;
		i = edit_add(e, s, &key, parent, at);
		if (i == NO_PARENT)
			return;
		if (parent == NO_PARENT && rsh_json_peek(s) == '{') {
			edit_read_object(e, s, i);
		} else if (rsh_json_peek(s) != '"') {
			rsh_json_skip(s);
		} else if (rsh_json_string(s, &text)) {
			e->v[i].m.string = rsh_arena_strndup(&e->arena, text.s,
							     text.len);
			if (!e->v[i].m.string)
				rsh_json_nomem(s);
		}
		if (s->rc)
			return;
		e->v[i].m.length = (size_t)(rsh_json_offset(s) -
					    e->v[i].m.offset);
		edit_classify(&e->v[i].m, e->text + e->v[i].m.offset,
			      e->v[i].m.length);
	}
}

int rsh_json_edit_open(const char *text, size_t len, const char *path,
		       struct rsh_json_edit **out, struct rsh_error *err)
{
	struct rsh_json_edit *e = calloc(1, sizeof(*e));
	struct rsh_memory bytes = { text, len };
	const struct rsh_byte_source src = {
		rsh_memory_pread, &bytes, len, path,
	};
	struct json_scan s;
	int rc;

	if (!e)
		return rsh_error_nomem(err);
	e->text = text;
	e->len = len;
	if (!rsh_json_open(&s, &src, err)) {
		free(e);
		return rsh_error_nomem(err);
	}
	edit_read_object(e, &s, NO_PARENT);
	(void)rsh_json_finish(&s);
	rc = s.rc;
	rsh_json_close(&s);
	e->n_read = e->n;
	if (rc)
		rsh_json_edit_free(e);
	else
		*out = e;
	return rc;
}

void rsh_json_edit_free(struct rsh_json_edit *e)
{
	if (!e)
		return;
	free(e->v);
	rsh_arena_clear(&e->arena);
	free(e);
}

/* ---- members ---- */

const char *rsh_json_edit_text(const struct rsh_json_edit *e)
{
	return e->text;
}

static bool edit_is(const struct rsh_json_edit *e, uint32_t i, const char *in,
		    const char *key)
{
	const struct edit_member *m = &e->v[i];

	if (strcmp(m->m.key, key) != 0)
		return false;
	if (m->parent == NO_PARENT || !in)
		return m->parent == NO_PARENT && !in;
	return strcmp(e->v[m->parent].m.key, in) == 0;
}

const struct rsh_json_member *rsh_json_edit_find(const struct rsh_json_edit *e,
						 const char *in,
						 const char *key)
{
	uint32_t object = e->n_read;

	/* If the object occurs twice, the last one is used. */
	for (uint32_t i = 0; in && i < e->n_read; i++)
		if (edit_is(e, i, NULL, in))
			object = i;
	for (uint32_t i = e->n_read; i-- > 0;)
		if (edit_is(e, i, in, key) && (!in || e->v[i].parent == object))
			return &e->v[i].m;
	return NULL;
}

const struct rsh_json_member *rsh_json_edit_at(const struct rsh_json_edit *e,
					       uint32_t i)
{
	for (uint32_t k = 0; k < e->n_read; k++)
		if (e->v[k].parent == NO_PARENT && i-- == 0)
			return &e->v[k].m;
	return NULL;
}

int rsh_json_edit_set(struct rsh_json_edit *e, const char *in, const char *key,
		      const char *value)
{
	const char *copy = rsh_arena_strdup(&e->arena, value);
	const char *added;
	bool found = false;

	if (!copy)
		return -ENOMEM;
	e->changed = true;
	for (uint32_t i = 0; i < e->n; i++)
		if (edit_is(e, i, in, key)) {
			e->v[i].value = copy;
			found = true;
			edit_classify(&e->v[i].m, value, strlen(value));
			/* A new string has no escapes. */
			if (e->v[i].m.kind == RSH_JSON_STRING &&
			    !(e->v[i].m.string = rsh_arena_strndup(
				      &e->arena, value + 1,
				      strlen(value) - 2)))
				return -ENOMEM;
		}
	if (found || in)
		return 0;
	added = rsh_arena_strdup(&e->arena, key);
	if (!added || rsh_push(e->v, e->n, e->cap,
			       (struct edit_member){
				       .m.key = added,
				       .parent = NO_PARENT,
				       .value = copy,
			       }))
		return -ENOMEM;
	return 0;
}

void rsh_json_edit_drop(struct rsh_json_edit *e, const char *in,
			const char *key)
{
	for (uint32_t i = 0; i < e->n_read; i++)
		if (edit_is(e, i, in, key))
			e->changed = e->v[i].dropped = true;
}

bool rsh_json_edit_changed(const struct rsh_json_edit *e)
{
	return e->changed;
}

/* ---- writing ---- */

struct edit_writer {
	const struct rsh_json_edit *e;
	struct rsh_json_text out;
	uint64_t at; /* the old text was written or skipped up to this offset */
};

/* Writes the old text up to `until`, and skips it up to `behind`. */
static void edit_keep(struct edit_writer *w, uint64_t until, uint64_t behind)
{
	if (until > w->at)
		rsh_json_text_put(&w->out, w->e->text + w->at, (size_t)(until - w->at));
	if (behind > w->at)
		w->at = behind;
}

static uint64_t edit_end(const struct edit_member *m)
{
	return m->m.offset + m->m.length;
}

/* Finds the next member of the same object, from i on in steps of `step`. If
 * `kept`, dropped members are ignored. */
static const struct edit_member *edit_neighbour(const struct rsh_json_edit *e,
						uint32_t i, int step, bool kept)
{
	const uint32_t parent = e->v[i].parent;

	for (uint32_t k = i + (uint32_t)step; k < e->n_read;
	     k += (uint32_t)step)
		if (e->v[k].parent == parent && !(kept && e->v[k].dropped))
			return &e->v[k];
	return NULL;
}

/* The comma before a removed member is removed with it, or else the comma after
 * it. */
static void edit_leave_out(struct edit_writer *w, uint32_t i)
{
	const struct rsh_json_edit *e = w->e;
	const struct edit_member *m = &e->v[i], *before, *next;

	before = edit_neighbour(e, i, -1, false);
	next = edit_neighbour(e, i, 1, false);
	if (edit_neighbour(e, i, -1, true))
		edit_keep(w, edit_end(before), edit_end(m));
	else
		edit_keep(w, m->begin, next ? next->begin : edit_end(m));
}

/* Writes a comma and the blanks that are before the last member. */
static void edit_put_gap(struct edit_writer *w, const struct edit_member *last)
{
	const char *text = w->e->text;
	size_t n = 0;

	while (last && last->begin > n &&
	       edit_is_blank(text[last->begin - n - 1]))
		n++;
	rsh_json_text_puts(&w->out, ",");
	rsh_json_text_put(&w->out, last ? text + last->begin - n : "", n);
}

/* Returns the offset after the bracket of the object at the top. */
static uint64_t edit_inside(const struct rsh_json_edit *e)
{
	uint64_t at = 0;

	while (edit_is_blank(e->text[at]))
		at++;
	return at + 1;
}

static void edit_put_all_added(struct edit_writer *w)
{
	const struct rsh_json_edit *e = w->e;
	const struct edit_member *last = NULL;
	bool any = false;

	for (uint32_t i = 0; i < e->n_read; i++)
		if (e->v[i].parent == NO_PARENT) {
			last = &e->v[i];
			any |= !last->dropped;
		}
	if (last)
		edit_keep(w, edit_end(last), edit_end(last));
	else if (e->n > e->n_read)
		edit_keep(w, edit_inside(e), edit_inside(e));
	for (uint32_t i = e->n_read; i < e->n; i++, any = true) {
		const char *text = w->e->text;
		const char *colon = ": ";
		size_t n = 2;

		if (last) {
			for (n = 0; text[last->m.offset - n - 1] != '"'; n++)
				;
			colon = text + last->m.offset - n;
		}
		if (any)
			edit_put_gap(w, last);
		rsh_json_text_puts(&w->out, "\"");
		rsh_json_text_puts(&w->out, e->v[i].m.key);
		rsh_json_text_puts(&w->out, "\"");
		rsh_json_text_put(&w->out, colon, n);
		rsh_json_text_puts(&w->out, e->v[i].value);
	}
}

int rsh_json_edit_write(const struct rsh_json_edit *e, char **out, size_t *len)
{
	struct edit_writer w = { .e = e };

	for (uint32_t i = 0; i < e->n_read; i++) {
		const struct edit_member *m = &e->v[i];

		/* The object that contains this member was removed. */
		if (edit_end(m) <= w.at)
			continue;
		if (m->dropped) {
			edit_leave_out(&w, i);
		} else if (m->value) {
			edit_keep(&w, m->m.offset, edit_end(m));
			rsh_json_text_puts(&w.out, m->value);
		}
	}
	edit_put_all_added(&w);
	edit_keep(&w, e->len, e->len);
	if (w.out.failed) {
		rsh_json_text_clear(&w.out);
		return -ENOMEM;
	}
	*out = w.out.data;
	*len = w.out.len;
	return 0;
}
