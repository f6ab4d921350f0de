/* SPDX-License-Identifier: Apache-2.0 */
/* storage/hub.h - models by their names on the Hugging Face Hub, as `hf
 * download` and transformers have put them into their cache:
 *
 *   models--OWNER--MODEL/refs/main              the name of a revision
 *   models--OWNER--MODEL/snapshots/REVISION/    links to the files in blobs/
 *
 * The cache is HF_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub or
 * ~/.cache/huggingface/hub (huggingface_hub/constants.py).  Any thread may call
 * these functions.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "rsh/util/error.h"

/* Sets *path (from malloc) to the snapshot of refs/main if `source` is OWNER/
 * MODEL or MODEL, no file has this name, and the cache has the model, or if it
 * is the directory of a model in such a cache, with the revision; to NULL
 * otherwise.  Returns 0, -ENOMEM, or -errno with a sentence if the cache has a
 * model of this name without the revision. */
int rsh_hub_find(const char *source, char **path, struct rsh_error *err);

/* Writes what may be meant by a SOURCE that does not exist, "; ...": a mistyped
 * address, or a model that has to be downloaded; else "". */
void rsh_hub_hint(const char *source, char *hint, size_t max);

/* Returns the length of ".../models--NAME" if a path without links is that of a
 * snapshot or of a directory in it; 0 if it is not. */
size_t rsh_hub_model(const char *path);
/* Returns whether a path is that of a blob of the model of which `directory` is
 * a snapshot.  Both are without links. */
bool rsh_hub_is_blob(const char *directory, const char *path);
/* Returns the directory of the blobs of a snapshot (from malloc); NULL if
 * `directory` is not one, or memory is out. */
char *rsh_hub_blobs(const char *directory);
