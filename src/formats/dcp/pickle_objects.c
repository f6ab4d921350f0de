/* SPDX-License-Identifier: Apache-2.0 */
/* formats/dcp/pickle_objects.c writes the objects of the metadata of a
 * distributed checkpoint, and its values that are not tensors. */
#include "config.h"

#include "pickle_objects_i.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"
#include "rsh/wire/torch_item.h"

/* Adds the names of all tensors.  Returns 0 or -ENOMEM. */
static int items_add_tensors(const struct rsh_plan *p, struct rsh_names *names)
{
	for (uint32_t f = 0; f < rsh_plan_n_files(p); f++)
		for (uint32_t i = 0; i < rsh_plan_n_records(p, f); i++) {
			struct rsh_virtual_record r;

			rsh_plan_record(p, f, i, &r);
			if (rsh_names_add(names, r.shape.name,
					  r.shape.name_len) == RSH_NAME_NONE)
				return -ENOMEM;
		}
	return 0;
}

int rsh_pickle_items_make(const struct rsh_output_tree *t, bool archives,
			  struct rsh_pickle_items *out)
{
	const struct rsh_values *v = t->values;
	struct rsh_names *names;
	size_t most = 0;
	int rc;

	*out = (struct rsh_pickle_items){ .n = 0 };
	if (v->n == 0)
		return 0;
	names = rsh_names_new();
	rc = names ? items_add_tensors(t->plan, names) : -ENOMEM;
	for (uint32_t i = 0; i < v->n; i++)
		most += v->values[i].n_pickle + RSH_TORCH_TAIL_MAX;
	out->v = rsh_alloc_array(v->n, sizeof(*out->v));
	out->bytes = rsh_alloc_array(most, 1);
	if (!out->v || !out->bytes)
		rc = -ENOMEM;
	for (uint32_t i = 0; rc == 0 && i < v->n; i++) {
		const struct rsh_plain *p = &v->values[i];
		uint8_t *to = out->bytes + out->n_bytes;
		size_t n = p->n_pickle;

		if (!p->pickle ||
		    rsh_names_find(names, v->names[i], strlen(v->names[i])) !=
			    RSH_NAME_NONE)
			continue;
		if (archives)
			n = rsh_torch_save_pickle(p->pickle, n, to);
		else
			memcpy(to, p->pickle, n);
		out->v[out->n++] = (struct rsh_pickle_item){
			v->names[i], out->n_bytes, n
		};
		out->n_bytes += n;
	}
	rsh_names_free(names);
	return rc;
}

void rsh_pickle_items_clear(struct rsh_pickle_items *items)
{
	free(items->v);
	free(items->bytes);
	*items = (struct rsh_pickle_items){ .n = 0 };
}

/* ---- what occurs often ---- */

/* Recalls a value that was written before, or keeps the one that the caller
 * writes next.  Returns whether it was recalled. */
static bool often_recall(struct rsh_pickle_objects *p, const char *text)
{
	const uint32_t id = rsh_names_find(p->often, text, strlen(text));

	if (id != RSH_NAME_NONE)
		rsh_pickle_recall(&p->out, p->memo[id]);
	return id != RSH_NAME_NONE;
}

static void often_keep(struct rsh_pickle_objects *p, const char *text)
{
	const uint32_t id = rsh_names_add(p->often, text, strlen(text));

	if (id == RSH_NAME_NONE ||
	    rsh_grow(&p->memo, &p->cap_memo, (size_t)id + 1, sizeof(*p->memo)))
		p->out.failed = true;
	else
		p->memo[id] = rsh_pickle_remember(&p->out);
}

static void objects_put_text(struct rsh_pickle_objects *p, const char *text,
			     bool often)
{
	if (often && often_recall(p, text))
		return;
	rsh_pickle_put_text(&p->out, text, strlen(text));
	if (often)
		often_keep(p, text);
}

/* Puts "module name". */
static void put_class(struct rsh_pickle_objects *p, const char *class,
		      bool often)
{
	const char *space = strchr(class, ' ');
	char module[128];

	if (often && often_recall(p, class))
		return;
	snprintf(module, sizeof(module), "%.*s", (int)(space - class), class);
	rsh_pickle_put_global(&p->out, module, space + 1);
	if (often)
		often_keep(p, class);
}

static void put_call(struct rsh_pickle_objects *p, const char *function,
		     const char *argument)
{
	if (often_recall(p, function))
		return;
	put_class(p, function, false);
	if (argument)
		objects_put_text(p, argument, false);
	else
		rsh_pickle_put_number(&p->out, 0);
	rsh_pickle_write(p, "\x85R");
	often_keep(p, function);
}

/* ---- writing ---- */

void rsh_pickle_objects_begin(struct rsh_pickle_objects *p)
{
	*p = (struct rsh_pickle_objects){ .often = rsh_names_new() };
	p->out.failed = !p->often;
	rsh_pickle_begin(&p->out);
}

void rsh_pickle_objects_clear(struct rsh_pickle_objects *p)
{
	rsh_pickle_clear(&p->out);
	rsh_names_free(p->often);
	free(p->memo);
}

void rsh_pickle_write(struct rsh_pickle_objects *p, const char *template, ...)
{
	va_list ap;
	const char *text;

	va_start(ap, template);
	for (const char *c = template; *c && !p->out.failed; c++) {
		if (*c != '%') {
			rsh_pickle_put(&p->out, (uint8_t)*c);
			continue;
		}
		switch (*++c) {
		case 'd':
			rsh_pickle_put_signed(&p->out, va_arg(ap, int64_t));
			break;
		case 'r':
			rsh_pickle_recall(&p->out, va_arg(ap, uint32_t));
			break;
		case 's':
		case 'k':
			objects_put_text(p, va_arg(ap, const char *), *c == 'k');
			break;
		case 'f':
			text = va_arg(ap, const char *);
			put_call(p, text, va_arg(ap, const char *));
			break;
		default: /* g, c, o */
			put_class(p, va_arg(ap, const char *), *c != 'g');
			if (*c == 'o')
				rsh_pickle_write(p, ")\x81}(");
		}
	}
	va_end(ap);
}

void rsh_pickle_put_tuple(struct rsh_pickle_objects *p, unsigned n,
			  const uint64_t *v)
{
	rsh_pickle_put(&p->out, '(');
	for (unsigned i = 0; i < n; i++)
		rsh_pickle_put_number(&p->out, v ? v[i] : 0);
	rsh_pickle_put(&p->out, 't');
}

/* ---- the metadata ---- */

int rsh_pickle_end_metadata(struct rsh_pickle_objects *p)
{
	rsh_pickle_write(p, "ub");
	rsh_pickle_end(&p->out);
	return p->out.failed ? -ENOMEM : 0;
}

void rsh_pickle_put_member(struct rsh_pickle_objects *p,
			   const struct rsh_output_tree *t,
			   const struct rsh_pickle_items *values,
			   const char *key, rsh_pickle_tensor_fn *put_tensor,
			   rsh_pickle_value_fn *put_value)
{
	uint32_t number = 0;

	rsh_pickle_write(p, "%s}(", key);
	for (uint32_t f = 0; f < rsh_plan_n_files(t->plan); f++)
		for (uint32_t i = 0; i < rsh_plan_n_records(t->plan, f); i++) {
			struct rsh_virtual_record r;

			rsh_plan_record(t->plan, f, i, &r);
			put_tensor(t, number++, f, &r);
		}
	for (uint32_t i = 0; i < values->n; i++)
		put_value(t, number++, &values->v[i]);
	rsh_pickle_put(&p->out, 'u');
}
