/* SPDX-License-Identifier: Apache-2.0 */
/* wire/checkpoint2_keep.c writes the data read from a metadata.json so that it
 * can be read again.  The text is a metadata.json without the repetitions for
 * every rank.  Each layout is written once; later parameters have the number of
 * the first parameter with that layout.  "stored", "holders" and "files"
 * replace storage_data. */
#include "checkpoint2_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"
#include "rsh/wire/json_text.h"
#include "rsh/wire/strategy_file.h"

static void keep_list(struct rsh_json_text *t, const uint32_t *v, uint32_t n)
{
	rsh_json_text_puts(t, "[");
	for (uint32_t i = 0; i < n; i++)
		rsh_json_text_printf(t, "%s%u", i ? "," : "", v[i]);
	rsh_json_text_puts(t, "]");
}

static void keep_layout(struct rsh_json_text *t, const struct rsh_ckpt2_param *p)
{
	const struct rsh_strategy_item *it = p->layout;

	rsh_json_text_puts(t, "{\"device_matrix\":");
	keep_list(t, it->mesh, it->n_mesh);
	rsh_json_text_puts(t, ",\"tensor_map\":[");
	for (uint32_t d = 0; d < it->n_map; d++) {
		const struct rsh_map_entry *e = &it->map[d];

		rsh_json_text_printf(t, "%s%s%s", d ? "," : "",
				     it->nested ? "[" : "", e->n ? "" : "-1");
		for (uint32_t k = 0; k < e->n; k++)
			rsh_json_text_printf(t, "%s%d", k ? "," : "",
					     e->axes[k]);
		rsh_json_text_puts(t, it->nested ? "]" : "");
	}
	rsh_json_text_puts(t, "],\"rank_list\":");
	keep_list(t, p->ranks->ranks, p->ranks->n);
	rsh_json_text_puts(t, "}");
}

/* first[] has for each layout the number of the first parameter that has it,
 * plus 1; 0: no parameter so far. */
static bool keep_param(struct rsh_json_text *t, const struct ckpt2_owned *c,
		       uint32_t i, uint32_t *first)
{
	const struct rsh_ckpt2_param *p = &c->pub.params[i];
	size_t layout = p->layout ? (size_t)(p->layout - c->layouts->items) : 0;

	rsh_json_text_puts(t, i ? "," : "");
	if (!rsh_json_text_put_string(t, p->name, strlen(p->name),
				      RSH_ESCAPES_SERDE))
		return false;
	rsh_json_text_printf(t,
			     ":{\"properties\":{\"dtype\":\"%s\"},"
			     "\"global_shape\":[",
			     rsh_dtype_name(p->dtype));
	for (uint32_t d = 0; d < p->n_dims; d++)
		rsh_json_text_printf(t, "%s%" PRId64, d ? "," : "", p->dims[d]);
	rsh_json_text_printf(t, "],\"stored\":%u", p->n_stored);
	if (!p->layout) {
		rsh_json_text_puts(t, ",\"holders\":");
		keep_list(t, p->ranks->ranks, p->ranks->n);
	}
	rsh_json_text_puts(t, ",\"layout\":");
	if (!p->layout) {
		rsh_json_text_puts(t, "null");
	} else if (first[layout]) {
		rsh_json_text_printf(t, "%u", first[layout] - 1);
	} else {
		keep_layout(t, p);
		first[layout] = i + 1;
	}
	rsh_json_text_puts(t, "}");
	return true;
}

static bool keep_all(struct rsh_json_text *t, const struct ckpt2_owned *c,
		     uint32_t *first)
{
	rsh_json_text_puts(t, "{\"state_dict_metadata\":{");
	for (uint32_t i = 0; i < c->pub.n_params; i++)
		if (!keep_param(t, c, i, first))
			return false;
	rsh_json_text_puts(t, "},\"files\":{");
	for (uint32_t i = 0; i < c->pub.n_files; i++) {
		const char *name = c->pub.files[i].name;

		rsh_json_text_puts(t, i ? "," : "");
		if (!rsh_json_text_put_string(t, name, strlen(name),
					      RSH_ESCAPES_SERDE))
			return false;
		rsh_json_text_printf(t, ":%u", c->pub.files[i].rank);
	}
	rsh_json_text_puts(t, "}}");
	return true;
}

int rsh_ckpt2_keep(const struct rsh_ckpt2 *pub, char **out, size_t *len)
{
	const struct ckpt2_owned *c = (const struct ckpt2_owned *)pub;
	cleanup_free uint32_t *first =
		calloc((size_t)c->layouts->n_items + 1, sizeof(*first));
	struct rsh_json_text t = { 0 };
	bool written = first && keep_all(&t, c, first);

	if (!written || t.failed) {
		rsh_json_text_clear(&t);
		return first && !written ? -EINVAL : -ENOMEM;
	}
	*out = t.data;
	*len = t.len;
	return 0;
}
