/* SPDX-License-Identifier: Apache-2.0 */
/* formats/torch/pickle.c has the rules for names and calls in a pickle of
 * torch.save(), and collects the storages that it refers to. */
#include "config.h"

#include "torch_i.h"

#include <errno.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/util/mem.h"
#include "rsh/wire/torch_dtype.h"

/* Keys are numbers in practice. */
#define KEY_MAX 63

/* This is the result of calling a name. */
enum torch_made {
	UNKNOWN, /* a value of which nothing is known */
	INERT,   /* a value without effect */
	REFUSED, /* only an attack calls it */
	MAPPING, /* a dictionary made from the arguments */
	SEQUENCE,
};

/* A "*" at the end of a module or name matches any rest. */
static const struct {
	const char *module, *name;
	enum torch_made made;
} torch_calls[] = {
	{ "torch._utils", "_rebuild_*", INERT },
	{ "torch._tensor", "_rebuild_from_type_v2", INERT },
	{ "torch_npu.*", "_rebuild_npu_tensor", INERT },
	{ "torch_npu.*", "Format", INERT },
	{ "collections", "OrderedDict", MAPPING },
	{ "collections", "defaultdict", MAPPING },
	{ "collections", "Counter", MAPPING },
	{ "builtins", "dict", MAPPING },
	{ "__builtin__", "dict", MAPPING },
	{ "builtins", "list", SEQUENCE },
	{ "__builtin__", "list", SEQUENCE },
	{ "builtins", "tuple", SEQUENCE },
	{ "__builtin__", "tuple", SEQUENCE },
	{ "torch", "Size", INERT },
	{ "torch", "device", INERT },
	{ "torch._C", "Generator", INERT },
	{ "torch.serialization", "_get_layout", INERT },
	{ "_codecs", "encode", INERT },
	{ "builtins", "bytes", INERT }, { "__builtin__", "bytes", INERT },
	{ "builtins", "set", INERT }, { "__builtin__", "set", INERT },
	{ "builtins", "frozenset", INERT },
	{ "__builtin__", "frozenset", INERT },
	{ "builtins", "bytearray", INERT },
	{ "__builtin__", "bytearray", INERT },
	{ "builtins", "complex", INERT }, { "__builtin__", "complex", INERT },
	{ "builtins", "slice", INERT }, { "__builtin__", "slice", INERT },
	{ "builtins", "range", INERT }, { "__builtin__", "range", INERT },
	{ "__builtin__", "xrange", INERT },
	{ "collections", "deque", INERT },
	{ "numpy", "dtype", INERT }, { "numpy", "ndarray", INERT },
	{ "numpy.core.multiarray", "scalar", INERT },
	{ "numpy._core.multiarray", "scalar", INERT },
	{ "numpy.core.multiarray", "_reconstruct", INERT },
	{ "numpy._core.multiarray", "_reconstruct", INERT },
	{ "datetime", "date", INERT }, { "datetime", "datetime", INERT },
	{ "datetime", "time", INERT }, { "datetime", "timedelta", INERT },
	{ "datetime", "timezone", INERT },
	{ "pathlib", "P*Path", INERT }, { "pathlib", "Path", INERT },
	{ "pathlib", "WindowsPath", INERT },
	{ "pathlib._local", "P*Path", INERT },
	{ "pathlib._local", "Path", INERT },
	{ "pathlib._local", "WindowsPath", INERT },
	/* These run programs or read files when Python loads the pickle. */
	{ "os", "*", REFUSED }, { "posix", "*", REFUSED },
	{ "nt", "*", REFUSED }, { "subprocess", "*", REFUSED },
	{ "commands", "*", REFUSED }, /* subprocess in Python 2 */
	{ "sys", "*", REFUSED }, { "runpy", "*", REFUSED },
	{ "pty", "*", REFUSED }, { "socket", "*", REFUSED },
	{ "shutil", "*", REFUSED }, { "importlib*", "*", REFUSED },
	{ "ctypes*", "*", REFUSED }, { "webbrowser", "*", REFUSED },
	{ "builtins", "eval", REFUSED }, { "__builtin__", "eval", REFUSED },
	{ "builtins", "exec", REFUSED }, { "__builtin__", "exec", REFUSED },
	{ "builtins", "compile", REFUSED },
	{ "__builtin__", "compile", REFUSED },
	{ "builtins", "__import__", REFUSED },
	{ "__builtin__", "__import__", REFUSED },
	{ "builtins", "open", REFUSED }, { "__builtin__", "open", REFUSED },
	{ "io", "open", REFUSED }, { "_io", "open", REFUSED },
	{ "__builtin__", "execfile", REFUSED },
};

static bool torch_name_fits(const char *pattern, const char *name)
{
	const char *star = strchr(pattern, '*');
	const size_t n = star ? (size_t)(star - pattern) : 0;
	const size_t n_after = star ? strlen(star + 1) : 0;
	const size_t len = strlen(name);

	if (!star)
		return strcmp(pattern, name) == 0;
	return len >= n + n_after && strncmp(pattern, name, n) == 0 &&
	       strcmp(name + len - n_after, star + 1) == 0;
}

static enum torch_made torch_find(const struct rsh_pickle_class *class)
{
	const size_t n = sizeof(torch_calls) / sizeof(torch_calls[0]);

	for (size_t i = 0; i < n; i++)
		if (torch_name_fits(torch_calls[i].module, class->module) &&
		    torch_name_fits(torch_calls[i].name, class->name))
			return torch_calls[i].made;
	return UNKNOWN;
}

bool rsh_torch_is_known(const struct rsh_pickle_class *class)
{
	return torch_find(class) != UNKNOWN;
}

static int torch_refuse(struct rsh_torch_reader *r,
			const struct rsh_pickle_class *class)
{
	return rsh_error_set(r->err, EBADMSG, "%s: its pickle would call "
			     "%.100s.%.100s, which weights never need; "
			     "nothing is called, and the file is refused",
			     r->src.path, class->module, class->name);
}

/* ---- containers ---- */

/* Makes a new container of n values. */
static int torch_make_list(struct rsh_torch_reader *r,
			   enum rsh_pickle_kind kind,
			   const struct rsh_pickle_value *values, uint32_t n,
			   struct rsh_pickle_value *out)
{
	struct rsh_pickle_list *l =
		rsh_arena_array(&r->values, struct rsh_pickle_list, 1);

	if (!l)
		return rsh_error_nomem(r->err);
	l->values = rsh_arena_array(&r->values, struct rsh_pickle_value, n);
	if (!l->values)
		return rsh_error_nomem(r->err);
	if (n > 0)
		memcpy(l->values, values, n * sizeof(*values));
	l->n = l->cap = n;
	*out = (struct rsh_pickle_value){ .kind = (uint8_t)kind, .list = l };
	return 0;
}

/* Makes the result of OrderedDict(), defaultdict(factory, ...), Counter(...)
 * and dict(). */
static int torch_make_mapping(struct rsh_torch_reader *r,
			      const struct rsh_pickle_call *c,
			      struct rsh_pickle_value *out)
{
	const bool has_factory =
		strcmp(c->callee->class->name, "defaultdict") == 0;
	const struct rsh_pickle_value *pair, *of =
		c->args->n > (uint32_t)has_factory ?
		&c->args->items[has_factory] : NULL;
	struct rsh_pickle_value *to;
	uint32_t n;
	int rc;

	if (c->args->n > 1 + (uint32_t)has_factory ||
	    (of && of->kind != RSH_PV_DICT && of->kind != RSH_PV_LIST))
		return torch_refuse(r, c->callee->class);
	if (of && of->kind == RSH_PV_DICT)
		return torch_make_list(r, RSH_PV_DICT, of->list->values,
				       of->list->n, out);
	rc = torch_make_list(r, RSH_PV_DICT, NULL, 0, out);
	if (rc || !of)
		return rc;
	/* A list of pairs. */
	to = rsh_arena_array(&r->values, struct rsh_pickle_value,
			     2 * (size_t)of->list->n);
	if (!to)
		return rsh_error_nomem(r->err);
	out->list->values = to;
	for (uint32_t i = 0; i < of->list->n; i++) {
		pair = rsh_pickle_items(&of->list->values[i], &n);
		if (!pair || n != 2)
			return rsh_torch_bad(r, r->pickle.at, "a dictionary "
					     "of values that are not pairs");
		*to++ = pair[0];
		*to++ = pair[1];
	}
	out->list->n = out->list->cap = 2 * of->list->n;
	return 0;
}

static int torch_make_sequence(struct rsh_torch_reader *r,
			       const struct rsh_pickle_call *c,
			       struct rsh_pickle_value *out)
{
	uint32_t n = 0;
	const struct rsh_pickle_value *of =
		c->args->n ? rsh_pickle_items(c->args->items, &n) : NULL;

	if (c->args->n > 0 && (c->args->n > 1 || !of))
		return torch_refuse(r, c->callee->class);
	return torch_make_list(r, RSH_PV_LIST, of, n, out);
}

/* ---- rules ---- */

/* Returns whether a call of getattr() is another than that by which the pickle
 * of a ShardedTensor names a class in a class; files of ranks have it for
 * nothing else. */
static bool torch_is_odd_getattr(const struct rsh_pickle_call *c)
{
	const struct rsh_pickle_value *of = c->args->items;

	return (rsh_pickle_is_class(c->callee, "builtins", "getattr") ||
		rsh_pickle_is_class(c->callee, "__builtin__", "getattr")) &&
	       (c->args->n != 2 || of->kind != RSH_PV_CLASS ||
		strncmp(of->class->module, "torch.distributed.", 18) != 0 ||
		strcmp(of->class->name, "ShardedTensor") != 0 ||
		!rsh_pickle_is_text(&of[1], "ProcessGroupState"));
}

/* A call that is not on the list becomes a value without a meaning.  The walk
 * refuses it if it has tensors. */
static int torch_call(void *ctx, const struct rsh_pickle_call *c,
		      struct rsh_pickle_value *out)
{
	struct rsh_torch_reader *r = ctx;
	const struct rsh_pickle_value *of = c->args->items;

	if (c->callee->kind != RSH_PV_CLASS)
		return 0;
	if (r->parts && (r->parts->take || r->parts->values_only) &&
	    torch_is_odd_getattr(c))
		return torch_refuse(r, c->callee->class);
	switch (torch_find(c->callee->class)) {
	case MAPPING:
		return torch_make_mapping(r, c, out);
	case SEQUENCE:
		return torch_make_sequence(r, c, out);
	case REFUSED:
		return torch_refuse(r, c->callee->class);
	case INERT:
		/* This would call the function in its arguments. */
		if (!rsh_pickle_is_class(c->callee, "torch._tensor",
					 "_rebuild_from_type_v2"))
			return 0;
		if (c->args->n == 0 || of->kind != RSH_PV_CLASS)
			return torch_refuse(r, c->callee->class);
		return torch_find(of->class) == INERT ? 0 :
		       torch_refuse(r, of->class);
	case UNKNOWN:
		break;
	}
	return 0;
}

/* A persistent id is ("storage", class, key, location, elements).  The old form
 * also has a view of another storage, which has been None for a long time. */
static int torch_persistent(void *ctx, uint64_t at,
			    const struct rsh_pickle_value *id)
{
	struct rsh_torch_reader *r = ctx;
	const struct rsh_pickle_value *v = id->items;
	const uint32_t known = rsh_names_count(r->keys);
	struct rsh_torch_stored s;
	uint64_t bytes;
	uint32_t number;

	if (id->kind != RSH_PV_TUPLE || (id->n != 5 && id->n != 6) ||
	    !rsh_pickle_is_text(&v[0], "storage") ||
	    !rsh_torch_is_storage(&v[1]) || v[2].kind != RSH_PV_TEXT ||
	    v[2].n > KEY_MAX || memchr(v[2].text, '\0', v[2].n) ||
	    v[3].kind != RSH_PV_TEXT || v[4].kind != RSH_PV_NUMBER ||
	    v[4].number < 0)
		return rsh_torch_bad(r, at, "a persistent id that names no "
				     "storage");
	if (id->n == 6 && v[5].kind != RSH_PV_NONE)
		return rsh_torch_bad(r, at, "a storage that is a view of "
				     "another one");
	number = rsh_names_add(r->keys, v[2].text, v[2].n);
	if (number == RSH_NAME_NONE)
		return rsh_error_nomem(r->err);
	s = (struct rsh_torch_stored){
		.key = rsh_names_text(r->keys, number),
		.width = rsh_torch_storage_bytes(v[1].class->name),
		.count = (uint64_t)v[4].number,
	};
	if (!rsh_mul_u64(s.count, s.width, &bytes) || bytes > INT64_MAX)
		return rsh_torch_bad(r, at, "a storage of more bytes than can "
				     "be");
	/* One storage may be named several times, also by several classes; its
	 * size in bytes must be the same then. */
	if (number < known)
		return r->stored[number].count * r->stored[number].width ==
		       bytes ? 0 :
		       rsh_torch_bad(r, at, "a storage of two sizes");
	if (rsh_push(r->stored, r->n_stored, r->cap_stored, s))
		return rsh_error_nomem(r->err);
	return 0;
}

int rsh_torch_pickle(struct rsh_torch_reader *r, uint64_t end, bool goes_on,
		     struct rsh_pickle_value *out)
{
	const struct rsh_pickle_rules rules = {
		.persistent_ids = true, .goes_on = goes_on,
		.any_object = true, .ctx = r,
		.call = torch_call, .persistent = torch_persistent,
	};
	struct rsh_byte_source within = r->src;
	const uint64_t at = r->pickle.at;
	int rc;

	within.size = end;
	r->pickle.src = &within;
	r->pickle.err = r->err;
	rc = rsh_pickle_values(&r->pickle, &rules, &r->values, out);
	r->pickle.src = NULL;
	r->pickle_bytes += r->pickle.at - at;
	return rc;
}
