/* SPDX-License-Identifier: Apache-2.0 */
/* source/hint.c guesses what somebody meant whose SOURCE is no checkpoint. */
#include "config.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/source/dcp.h"
#include "rsh/source/source.h"
#include "rsh/util/files.h"
#include "rsh/util/mem.h"
#include "rsh/wire/checkpoint2.h"
#include "source_i.h"

/* Looking at a directory takes some time, and one is enough. */
#define LOOKED_AT_MAX 64

static bool hint_is_checkpoint(const char *dir, const char *name,
			       const struct rsh_store_options *how)
{
	/* The place is that of the directory. */
	const struct rsh_store_options inner = { .objects = how->objects };
	cleanup_free char *path = NULL;
	bool ranks;

	if (name[0] == '.' || asprintf(&path, "%s/%s", dir, name) < 0) {
		path = NULL;
		return false;
	}
	return rsh_source_look(path, &inner, &ranks) != RSH_SOURCE_RANKS ||
	       ranks;
}

/* Keeps the first of the names in order, whatever the listing begins with. */
static void hint_keep(char kept[NAME_MAX + 1], const char *name)
{
	if (!*kept || strverscmp(name, kept) < 0)
		snprintf(kept, NAME_MAX + 1, "%s", name);
}

/* How long is the name without a number at its end? */
static size_t hint_series(const char *name)
{
	size_t n = strlen(name);

	while (n > 0 && name[n - 1] >= '0' && name[n - 1] <= '9')
		n--;
	return n;
}

/* Keeps the newest of steps. */
static void hint_keep_child(char kept[NAME_MAX + 1], const char *name)
{
	const size_t n = hint_series(name);
	const bool same = *kept && name[n] && hint_series(kept) == n &&
			  strncmp(kept, name, n) == 0;

	if (!same)
		hint_keep(kept, name);
	else if (strverscmp(name, kept) > 0)
		snprintf(kept, NAME_MAX + 1, "%s", name);
}

/* Is it all of a whole model, or the map of its parts? */
static bool hint_is_model(const char *name)
{
	return strcmp(name, RSH_MODEL_HF_MAP) == 0 ||
	       strcmp(name, RSH_MODEL_MS_MAP) == 0 ||
	       strcmp(name, RSH_MODEL_HF_SINGLE) == 0;
}

struct hint {
	char item[NAME_MAX + 1];  /* of a distributed checkpoint */
	char child[NAME_MAX + 1]; /* a checkpoint */
	char part[NAME_MAX + 1];  /* of a model */
	bool metadata, model;
};

static void hint_look(struct rsh_dir *dir, const char *path,
		      const struct rsh_store_options *how,
		      struct hint *h)
{
	unsigned looked_at = 0;
	const char *name;

	*h = (struct hint){ .metadata = false };
	while (rsh_dir_next(dir, &name) > 0) {
		h->metadata |= strcmp(name, RSH_DCP_METADATA) == 0;
		h->model |= hint_is_model(name);
		if (rsh_has_suffix(name, ".safetensors"))
			hint_keep(h->part, name);
		else if (rsh_has_suffix(name, ".distcp"))
			hint_keep(h->item, name);
		else if (looked_at++ < LOOKED_AT_MAX &&
			 hint_is_checkpoint(path, name, how))
			hint_keep_child(h->child, name);
	}
}

void rsh_source_hint(const char *path,
		     const struct rsh_store_options *how, char *buf,
		     size_t max)
{
	cleanup_dir struct rsh_dir *dir = NULL;
	int rc = rsh_dir_open_path(path, how, &dir);
	struct hint h;

	*buf = '\0';
	if (rc == -ENOTDIR) {
		snprintf(buf, max, "; %s is a file, and SOURCE has to be a "
			 "directory", path);
		return;
	}
	if (rc) {
		snprintf(buf, max, "; %s: %s", path, strerror(-rc));
		return;
	}
	hint_look(dir, path, how, &h);
	if (h.metadata)
		snprintf(buf, max, "; it is a distributed checkpoint");
	else if (*h.item)
		snprintf(buf, max, "; %s is of a distributed checkpoint, and "
			 "no " RSH_DCP_METADATA " is beside it: the save was "
			 "not finished", h.item);
	else if (h.model)
		snprintf(buf, max, "; it is a whole model, of which no "
			 "strategy speaks: --src-strategy none");
	else if (*h.part)
		snprintf(buf, max, "; %s may be a part of a model, and no "
			 RSH_MODEL_HF_MAP " is beside it", h.part);
	else if (*h.child)
		snprintf(buf, max, "; %s in it is a checkpoint: is that meant?",
			 h.child);
}

char *rsh_source_inside(const char *path, const struct rsh_store_options *how)
{
	cleanup_dir struct rsh_dir *dir = NULL;
	struct hint h;
	char *found;

	if (rsh_dir_open_path(path, how, &dir))
		return NULL;
	hint_look(dir, path, how, &h);
	if (!*h.child || asprintf(&found, "%s/%s", path, h.child) < 0)
		return NULL;
	return found;
}

bool rsh_source_is_one_step(const char *path,
			    const struct rsh_store_options *how)
{
	cleanup_dir struct rsh_dir *dir = NULL;
	struct rsh_ckpt2_name parts;
	const char *name;

	if (rsh_dir_open_path(path, how, &dir) == 0)
		while (rsh_dir_next(dir, &name) > 0)
			if (rsh_ckpt2_name_parse(name, &parts))
				return true;
	return rsh_source_kind(path, how) == RSH_SOURCE_DCP;
}
