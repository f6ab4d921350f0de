/* SPDX-License-Identifier: Apache-2.0 */
/* strategy/mesh.c parses a mesh such as "dp=2,mp=4", and finds its axes by
 * name. */
#include "rsh/strategy/mesh.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "rsh/strategy/strategy.h"
#include "rsh/util/text.h"

bool rsh_mesh_name(const char *text, size_t len, char out[RSH_MESH_NAME_SIZE])
{
	if (len == 0 || len >= RSH_MESH_NAME_SIZE ||
	    !isalpha((unsigned char)text[0]))
		return false;
	for (size_t i = 0; i < len; i++)
		if (!isalnum((unsigned char)text[i]) && text[i] != '_')
			return false;
	memcpy(out, text, len);
	out[len] = '\0';
	if (strcmp(out, "tp") == 0)
		memcpy(out, "mp", 3);
	return true;
}

static const struct rsh_mesh_axis *mesh_find(const struct rsh_mesh *m,
					     const char *name)
{
	for (uint32_t i = 0; i < m->n; i++)
		if (strcmp(m->axes[i].name, name) == 0)
			return &m->axes[i];
	return NULL;
}

int rsh_mesh_parse(const char *text, struct rsh_mesh *out,
		   struct rsh_error *err)
{
	struct rsh_mesh m = { 0 };
	uint64_t ranks = 1, size;
	const char *end;

	for (const char *s = text;; s = end + 1) {
		struct rsh_mesh_axis axis = { "", 0 };
		const char *eq;

		end = strchrnul(s, ',');
		eq = memchr(s, '=', (size_t)(end - s));
		if (!eq || !rsh_mesh_name(s, (size_t)(eq - s), axis.name) ||
		    !rsh_digits_read(eq + 1, (size_t)(end - eq - 1),
				     RSH_MAX_RANKS, &size) || !size)
			return rsh_error_set(err, EINVAL,
					     "mesh \"%s\": \"%.*s\" is not NAME=NUMBER, as in dp=2,mp=4, with a number from 1 to %u",
					     text, (int)(end - s), s,
					     RSH_MAX_RANKS);
		if (rsh_mesh_has(&m, axis.name))
			return rsh_error_set(err, EINVAL,
					     "mesh \"%s\": it names %s twice",
					     text, axis.name);
		if (m.n == RSH_MESH_MAX_AXES)
			return rsh_error_set(err, EINVAL,
					     "mesh \"%s\": more than %d axes",
					     text, RSH_MESH_MAX_AXES);
		axis.size = (uint32_t)size;
		m.axes[m.n++] = axis;
		if (!*end)
			break;
	}
	for (uint32_t i = 0; i < m.n && ranks <= RSH_MAX_RANKS; i++)
		ranks *= m.axes[i].size;
	if (ranks > RSH_MAX_RANKS)
		return rsh_error_set(err, EINVAL,
				     "mesh \"%s\": more than %u ranks", text,
				     RSH_MAX_RANKS);
	*out = m;
	return 0;
}

uint32_t rsh_mesh_size(const struct rsh_mesh *m, const char *name)
{
	const struct rsh_mesh_axis *axis = mesh_find(m, name);

	return axis ? axis->size : 1;
}

bool rsh_mesh_has(const struct rsh_mesh *m, const char *name)
{
	return mesh_find(m, name);
}

uint32_t rsh_mesh_stage_ranks(const struct rsh_mesh *m)
{
	return rsh_mesh_size(m, "dp") * rsh_mesh_size(m, "cp") *
	       rsh_mesh_size(m, "mp");
}
