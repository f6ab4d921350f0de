/* SPDX-License-Identifier: Apache-2.0 */
/* storage/objects/list_i.h - how lists come about where the server gives none. */
#ifndef RSH_STORAGE_LIST_I_H
#define RSH_STORAGE_LIST_I_H

#include "objects_i.h"

/* Is this a path below the address, no component of which leads elsewhere? */
bool rsh_object_is_name(const char *name);
/* Adds to *list what an index file names, with what the server says of each.
 * 0 or -errno with a sentence. */
int rsh_object_list_index(struct rsh_objects *o, const char *prefix,
			  struct rsh_object_listing *list,
			  struct rsh_error *err);
/* Is the place itself a file? */
bool rsh_object_is_file(struct rsh_objects *o);
/* Makes a listing of names, which takes the memory of *list over. */
int rsh_object_list_make(const struct rsh_objects *o,
			 struct rsh_object_listing *list,
			 struct rsh_objects_listing *out,
			 struct rsh_error *err);

#endif
