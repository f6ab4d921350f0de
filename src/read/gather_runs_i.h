/* SPDX-License-Identifier: Apache-2.0 */
/* read/gather_runs_i.h - the runs that a gather has collected, and how they are
 * read; for gather.c and gather_read.c only. */
#pragma once

#include "gather_i.h"
#include "tiles_i.h"
#include "rsh/util/place.h"

#define RSH_BATCH_RUNS 1024
#define RSH_BATCH_GROUPS 128
#define RSH_HASH_SLOTS 256 /* a power of two, more than RSH_BATCH_GROUPS */
/* The most chunks of scales that are held until the runs are read. */
#define RSH_GATHER_SCALES 8

/* The maximum bytes of one read of neighbouring runs.  They fit into the
 * second-level cache, from which the runs are then copied. */
#define RSH_SPAN_MAX RSH_STRIP_BYTES

struct gather_run {
	uint64_t src;     /* offset in the file */
	uint8_t *dst;
	uint64_t n_rows;  /* 1; more only without a codec */
	uint64_t src_stride, dst_stride; /* from row to row */
	uint32_t src_len; /* with a codec at most RSH_SPAN_MAX */
	uint32_t dst_len;
	uint32_t skip;
	uint16_t codec;
	uint16_t next;    /* next run of the file; 0: none, because runs[0] is
			   * unused */
	uint32_t scales;  /* index in the gather's `scales` */
	uint64_t number;  /* number of the first element in its cell */
};

struct gather_scales {
	struct rsh_scales by;
	struct rsh_kept *chunk;
};

struct gather_group {
	uint32_t file;
	uint16_t first, last;
};

struct rsh_gather {
	struct rsh_gather *next_idle;
	struct rsh_gathers *all;
	struct rsh_source *source;
	struct rsh_store *store; /* store of the source */
	struct rsh_tiles *tiles;
	const struct rsh_wait *wait; /* for files that cannot be reached */
	uint8_t *scratch; /* allocated when it is first needed */
	unsigned n_runs, n_groups;
	struct gather_run runs[RSH_BATCH_RUNS + 1];
	struct gather_group groups[RSH_BATCH_GROUPS];
	uint8_t slots[RSH_HASH_SLOTS]; /* the group's number plus 1; 0: none */
	struct gather_scales scales[RSH_GATHER_SCALES];
	unsigned n_scales;
	struct rsh_tile_copies copies;
};

struct rsh_gathers {
	struct rsh_source *source;
	struct rsh_tiles *tiles;
	bool far;
	struct rsh_helpers helpers;
	pthread_mutex_t lock;  /* guards all below */
	struct rsh_gather *idle;
	unsigned n_idle;
};

/* Reads all runs and keeps them in the gather.  Returns 0 or -errno. */
int rsh_gather_read_runs(struct rsh_gather *g);
