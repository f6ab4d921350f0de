/* SPDX-License-Identifier: Apache-2.0 */
/* storage/objects/index.c lists what lies below an address of a server that
 * gives no listings: a file there names the others, and the server is asked for
 * a byte of each, which tells how large it is and whether ranges are to be
 * had. */
#include "config.h"

#include "objects_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/names.h"
#include "rsh/util/thread.h"
#include "rsh/wire/safetensors.h"

#define INDEX_OF_MODEL "model.safetensors.index.json"
#define INDEX_MAX ((size_t)64 << 20)
#define INDEX_NAMES_MAX ((size_t)1 << 16)
/* This many requests run at once. */
#define INDEX_THREADS 32

/* What lies beside weights, as the tools of Hugging Face write it. */
static const char *const usual[] = {
	"config.json", "generation_config.json", "tokenizer.json",
	"tokenizer_config.json", "tokenizer.model", "special_tokens_map.json",
	"added_tokens.json", "chat_template.jinja", "vocab.json", "merges.txt",
	"preprocessor_config.json", "LICENSE", "README.md",
};

/* ---- one object ---- */

static enum rsh_http_verdict probe_judge(const struct object_transfer *t,
					 const char **why)
{
	const struct rsh_http_answer *a = &t->answer;

	if (a->status == 416 && a->has_total && a->total == 0)
		return RSH_HTTP_RIGHT;
	if (a->status == 200 && a->has_length && a->length == 0)
		return RSH_HTTP_RIGHT;
	if (a->status == 206 && !a->is_broken && !a->is_encoded &&
	    a->has_range && a->has_total && a->first == 0 && a->last == 0)
		return RSH_HTTP_RIGHT;
	/* Servers that compress or cache small files give them whole. */
	if (a->status == 200 && a->has_length && !a->is_broken &&
	    !a->is_encoded && a->length <= RSH_HTTP_WHOLE_MAX)
		return RSH_HTTP_RIGHT;
	*why = "does not support ranges of bytes";
	return a->status == 200 || a->status == 206 ?
	       RSH_HTTP_WRONG : rsh_http_judge_status(a->status, why);
}

static bool probe_take(struct object_request *q, const char *data, size_t len)
{
	char *first = q->ctx;

	if (len && !*first)
		*first = *data;
	return true;
}

/* Asks for the first byte of a name below the address; "": of the address
 * itself. */
static int probe_one(struct rsh_objects *o, const char *name,
		     struct rsh_http_answer *out, struct rsh_error *err)
{
	static const char *const headers[] = { "Range: bytes=0-0", NULL };
	cleanup_free char *what = rsh_object_what(o, name);
	cleanup_secret char *address = rsh_object_address(o, name);
	char first = '\0';
	struct object_request q = {
		.address = address, .what = what, .sign = true,
		.headers = headers, .deadline = rsh_object_deadline(o),
		.judge = probe_judge, .sink = probe_take, .ctx = &first,
	};
	int rc = what && address ? rsh_object_carry_out(o, &q) :
				   rsh_error_nomem(&q.err);

	*out = q.answer;
	/* Some servers give a page for whatever they do not have. */
	if (rc == 0 && q.answer.is_page && first == '<')
		return rsh_error_set(err, ENOENT, "%s: the server "
				     RSH_OBJECT_PAGE, what);
	return rc ? rsh_error_set(err, q.err.code, "%s", q.err.text) : 0;
}

/* Servers without ranges give pages for directories as well. */
static bool probe_is_file_name(const char *url)
{
	return rsh_has_suffix(url, ".safetensors") ||
	       rsh_has_suffix(url, ".ckpt") || rsh_has_suffix(url, ".json") ||
	       rsh_has_suffix(url, ".distcp") || rsh_has_suffix(url, ".bin");
}

bool rsh_object_is_file(struct rsh_objects *o)
{
	struct rsh_http_answer answer = { .status = 0 };
	struct rsh_error err;

	probe_one(o, "", &answer, &err);
	return answer.status == 206 ||
	       (answer.status == 200 && probe_is_file_name(o->url));
}

static int probe_keep(struct rsh_object_listing *list, const char *name,
		      const struct rsh_http_answer *a)
{
	struct rsh_object *to;

	if (rsh_room(list->objects, list->cap, list->n + 1))
		return -ENOMEM;
	to = &list->objects[list->n];
	*to = (struct rsh_object){
		.name = rsh_arena_strndup(&list->arena, name, strlen(name)),
		.size = a->has_total ? a->total :
			a->status == 200 ? a->length : 0,
		.mtime.tv_sec = a->modified,
	};
	if (a->etag[0])
		to->etag = rsh_arena_strndup(&list->arena, a->etag,
					     strlen(a->etag));
	list->n++;
	return to->name && (to->etag || !a->etag[0]) ? 0 : -ENOMEM;
}

int rsh_objects_list_single(struct rsh_objects *o, const char *name,
			    struct rsh_object_listing *out,
			    struct rsh_error *err)
{
	struct rsh_http_answer answer = { .status = 0 };
	int rc = probe_one(o, name, &answer, err);

	*out = (struct rsh_object_listing){ .n = 0 };
	if (rc == 0 && (answer.status != 206 || !answer.has_total))
		rc = rsh_error_set(err, ENOENT, "%s%s%s: not found", o->url,
				   *name ? "/" : "", name);
	if (rc == 0 && probe_keep(out, name, &answer))
		rc = rsh_error_nomem(err);
	if (rc)
		rsh_object_listing_clear(out);
	return rc;
}

/* ---- all of them ---- */

struct index_probes {
	struct rsh_objects *o;
	struct rsh_names *names;
	uint32_t n_named; /* the others need not be there */
	struct rsh_http_answer *answers; /* status 0: it is not there */
};

static int probe_work(void *ctx, size_t i, struct rsh_error *err)
{
	struct index_probes *p = ctx;
	const char *name = rsh_names_text(p->names, (uint32_t)i);
	int rc = probe_one(p->o, name, &p->answers[i], err);

	if (rc == 0)
		return 0;
	memset(&p->answers[i], 0, sizeof(p->answers[i]));
	if (i >= p->n_named && (rc == -ENOENT || rc == -EACCES))
		return 0;
	if (rc == -ENOENT)
		rsh_log_warning("%s", err->text);
	return rc == -ENOENT ? 0 : rc;
}

static int probe_all(struct index_probes *p, struct rsh_object_listing *list,
		     struct rsh_error *err)
{
	uint32_t n = rsh_names_count(p->names);
	int rc;

	p->answers = calloc(n ? n : 1, sizeof(*p->answers));
	if (!p->answers)
		return rsh_error_nomem(err);
	rc = rsh_parallel_for(INDEX_THREADS, n, probe_work, p, err);
	for (uint32_t i = 0; i < n && rc == 0; i++)
		if (p->answers[i].status &&
		    probe_keep(list, rsh_names_text(p->names, i),
			       &p->answers[i]))
			rc = rsh_error_nomem(err);
	free(p->answers);
	return rc;
}

/* ---- names ---- */

static int index_add(struct rsh_names *names, const char *prefix,
		     const char *name, size_t len)
{
	cleanup_free char *copy = strndup(name, len);
	size_t n = prefix ? strlen(prefix) : 0;

	if (!copy)
		return -ENOMEM;
	if ((n && strncmp(copy, prefix, n)) || !rsh_path_is_plain(copy))
		return 0;
	return rsh_names_add(names, name, len) == RSH_NAME_NONE ? -ENOMEM : 0;
}

static int index_names(struct rsh_names *names, const char *prefix,
		       const struct object_get *g, struct rsh_error *err)
{
	const char begin = g->data[strspn(g->data, " \t\r\n")];
	const char *text = g->data;
	struct rsh_weight_map map;
	int rc = 0;

	if (begin == '{') {
		rc = rsh_weight_map_parse(g->data, g->len, g->q.what, &map, err);
		if (rc)
			return rc;
		for (uint32_t i = 0; i < map.n_files && rc == 0; i++)
			rc = index_add(names, prefix, map.files[i],
				       strlen(map.files[i]));
		rsh_weight_map_clear(&map);
		return rc ? rsh_error_nomem(err) : 0;
	}
	if (begin == '<')
		return rsh_error_set(err, EBADMSG, "%s: a web page, not a list "
				     "of names; --source-index names a file "
				     "with one name on each line, or the index "
				     "of a model's parts", g->q.what);
	/* A name is on each line; what begins with '#' is a remark. */
	while (*text && rc == 0) {
		size_t n = strcspn(text, "\r\n");

		if (n && text[0] != '#')
			rc = index_add(names, prefix, text, n);
		text += n + (text[n] != '\0');
	}
	return rc ? rsh_error_nomem(err) : 0;
}

/* Reads the index file, if there is one. */
static int index_load(struct rsh_objects *o, const char *prefix,
		      struct rsh_names *names, struct rsh_error *err)
{
	const char *name = o->index ? o->index : INDEX_OF_MODEL;
	cleanup_secret char *address = rsh_object_address(o, name);
	cleanup_free char *what = rsh_object_what(o, name);
	struct object_get g = {
		.q.address = address, .q.what = what, .q.sign = true,
		.q.deadline = rsh_object_deadline(o), .max = INDEX_MAX,
	};
	int rc = what && address ?
		rsh_object_get(o, &g, rsh_object_carry_out, err) :
		rsh_error_nomem(err);

	rc = rc ?: index_names(names, prefix, &g, err);
	if (rc == 0 && index_add(names, prefix, name, strlen(name)))
		rc = rsh_error_nomem(err);
	rsh_secret_free(g.data);
	return rc;
}

/* Which names there are to ask for: those of the index file, or of the usual
 * ones what is there. */
static int index_find_names(struct rsh_objects *o, const char *prefix,
			    struct index_probes *p, struct rsh_error *err)
{
	int rc = index_load(o, prefix, p->names, err);

	p->n_named = rsh_names_count(p->names);
	if (rc == 0 && p->n_named > INDEX_NAMES_MAX)
		return rsh_error_set(err, EFBIG, "%s: too many names", o->url);
	if (o->index || (rc && rc != -ENOENT))
		return rc;
	rc = rc ? index_add(p->names, prefix, "model.safetensors", 17) : 0;
	for (size_t i = 0; i < sizeof(usual) / sizeof(usual[0]) && rc == 0; i++)
		rc = index_add(p->names, prefix, usual[i], strlen(usual[i]));
	return rc ? rsh_error_nomem(err) : 0;
}

int rsh_object_list_index(struct rsh_objects *o, const char *prefix,
			  struct rsh_object_listing *list,
			  struct rsh_error *err)
{
	struct index_probes p = { .o = o, .names = rsh_names_new() };
	int rc;

	if (!p.names)
		return rsh_error_nomem(err);
	rc = index_find_names(o, prefix, &p, err) ?:
	     probe_all(&p, list, err);
	rsh_names_free(p.names);
	return rc;
}
