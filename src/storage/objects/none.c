/* SPDX-License-Identifier: Apache-2.0 */
/* storage/objects/none.c stands for the room where it was not built in. */
#include "config.h"

#include "rsh/storage/objects.h"

#include <errno.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wunused-parameter"

int rsh_objects_hide(char *url, struct rsh_objects_options *opts)
{
	return 0;
}

void rsh_objects_options_clear(struct rsh_objects_options *opts)
{
}

int rsh_objects_find_libraries(struct rsh_error *err)
{
	return rsh_error_set(err, ENOSYS,
			     "this program was built without object storage");
}

int rsh_objects_open(const char *url, const struct rsh_objects_options *opts,
		     struct rsh_objects **out, struct rsh_error *err)
{
	return rsh_objects_find_libraries(err);
}

char *rsh_objects_identity(const char *url,
			   const struct rsh_objects_options *opts)
{
	return NULL;
}

/* There is no object to call the rest with. */

void rsh_objects_free(struct rsh_objects *o)
{
}

const char *rsh_objects_url(const struct rsh_objects *o)
{
	return "";
}

void rsh_objects_each_file(const struct rsh_objects *o,
			   void (*fn)(void *ctx, const char *path), void *ctx)
{
}

void rsh_objects_set_opener(struct rsh_objects *o,
			    const struct rsh_objects_opener *opener)
{
}

int rsh_objects_look_up(const char *host, char *to, size_t size)
{
	return -ENOSYS;
}

size_t rsh_objects_ports(const struct rsh_objects *o, uint16_t *ports,
			 size_t max)
{
	return 0;
}

int rsh_objects_list(struct rsh_objects *o, const char *prefix,
		     struct rsh_object_listing *out, struct rsh_error *err)
{
	return rsh_objects_find_libraries(err);
}

int rsh_objects_list_single(struct rsh_objects *o, const char *name,
			    struct rsh_object_listing *out,
			    struct rsh_error *err)
{
	return rsh_objects_list(o, NULL, out, err);
}

void rsh_object_listing_clear(struct rsh_object_listing *l)
{
}

int rsh_objects_read(struct rsh_objects *o, const struct rsh_object_range *r,
		     uint64_t deadline, struct rsh_error *err)
{
	return rsh_objects_find_libraries(err);
}

void rsh_objects_stats_get(const struct rsh_objects *o,
			   struct rsh_objects_stats *out)
{
	memset(out, 0, sizeof(*out));
}
