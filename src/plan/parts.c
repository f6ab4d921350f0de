/* SPDX-License-Identifier: Apache-2.0 */
/* plan/parts.c makes several files of one: a whole model is cut into parts by
 * size, or what a rank has by name.
 *
 * By size, tensors are taken in order and a part is closed when the next one
 * would make it too large, as the Hugging Face tools do. */
#include <errno.h>
#include <string.h>

#include "plan_i.h"
#include "rsh/util/mem.h"

/* Says how many of the records from `first` on make up a part. */
static uint32_t part_length(const struct rsh_shown_file *f, uint32_t first,
			    uint64_t limit)
{
	uint64_t bytes = f->slots[first].content_bytes;
	uint32_t n = 1;

	/* A tensor larger than the limit is a part of its own. */
	for (; first + n < f->n; n++) {
		uint64_t next = f->slots[first + n].content_bytes;

		if (bytes > limit || next > limit - bytes)
			break;
		bytes += next;
	}
	return n;
}

int rsh_blueprint_add_parts(struct rsh_plan *p,
			    const struct rsh_shown_file *whole, uint64_t limit,
			    struct rsh_error *err)
{
	struct rsh_shown_file part = *whole;
	uint32_t first = 0;
	int rc;

	if (!limit)
		return rsh_blueprint_add_file(p, whole, err);
	do {
		part.n = whole->n ? part_length(whole, first, limit) : 0;
		part.slots = whole->slots + first;
		part.shapes = whole->shapes + first;
		rc = rsh_blueprint_add_file(p, &part, err);
		first += part.n;
	} while (rc == 0 && first < whole->n);
	return rc;
}

/* Puts the records that are not apart first, in either part as they were.
 * Returns 0 or -ENOMEM. */
static int part_records(const struct rsh_shown_file *f,
			bool (*apart)(const char *name), uint32_t *n_first)
{
	cleanup_free struct rsh_slot *slots =
		rsh_alloc_array(f->n, sizeof(*slots));
	cleanup_free struct rsh_record_shape *shapes =
		rsh_alloc_array(f->n, sizeof(*shapes));
	uint32_t n = 0, n_apart = 0;

	if (!slots || !shapes)
		return -ENOMEM;
	for (uint32_t i = 0; i < f->n; i++) {
		if (apart(f->shapes[i].name)) {
			slots[n_apart] = f->slots[i];
			shapes[n_apart++] = f->shapes[i];
		} else {
			f->slots[n] = f->slots[i];
			f->shapes[n++] = f->shapes[i];
		}
	}
	memcpy(f->slots + n, slots, n_apart * sizeof(*slots));
	memcpy(f->shapes + n, shapes, n_apart * sizeof(*shapes));
	*n_first = n;
	return 0;
}

int rsh_blueprint_add_two(struct rsh_plan *p, const struct rsh_shown_file *f,
			  bool (*apart)(const char *name),
			  struct rsh_error *err)
{
	struct rsh_shown_file one = *f;
	int rc;

	p->two_files = true;
	if (f->n && part_records(f, apart, &one.n))
		return rsh_error_nomem(err);
	rc = rsh_blueprint_add_file(p, &one, err);
	one.slots += one.n;
	one.shapes += one.n;
	one.n = f->n - one.n;
	return rc ? rc : rsh_blueprint_add_file(p, &one, err);
}
