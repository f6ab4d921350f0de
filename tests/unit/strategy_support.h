/* SPDX-License-Identifier: Apache-2.0 */
/* strategy_support.h - strategies as JSON text, and record indexes of files that
 * do not exist. */
#ifndef STRATEGY_SUPPORT_H
#define STRATEGY_SUPPORT_H

#include "rsh/strategy/grid.h"
#include "rsh/strategy/strategy.h"
#include "rsh/util/error.h"
#include "rsh/util/names.h"
#include "rsh/wire/ckpt.h"
#include "rsh/wire/strategy_file.h"
#include "tests.h"

/* One item of a strategy file's layout section; several are joined by ",". */
#define ITEM_(name, mesh, map, rest) \
	"\"" name "\":{\"dev_matrix\":" mesh ",\"tensor_map\":" map rest "}"
#define LAYOUT(name, mesh, map) ITEM_(name, mesh, map, "")
#define SHARD(name, mesh, map, step, size)                          \
	ITEM_(name, mesh, map, ",\"opt_weight_shard_step\":" step    \
	      ",\"opt_weight_shard_size\":" size)
#define SHAPED(name, mesh, map, shape) \
	ITEM_(name, mesh, map, ",\"tensor_shape\":" shape)

/* A strategy file: its layout items, and the stage of its first operator. */
#define FILE_OF(stage, items)                                              \
	"{\"parallel_layout_item\":{" items "},\"parallel_strategy_item\":" \
	"{\"MatMul\":{\"stage\":" stage "}}}"

/* The numbers of a list, as an argument pair. */
#define DIMS(...)                                               \
	(int64_t[]){ __VA_ARGS__ },                             \
	sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)
#define SCALAR NULL, 0

struct rsh_strategy_file *parse_strategy(const char *path, const char *json);
/* A strategy of one stage with these items. */
struct rsh_strategy *make_strategy(struct rsh_names *names, const char *path,
				   const char *json);

/* A tensor of a file that is made up. */
struct tensor {
	const char *name;
	enum rsh_dtype dtype;
	int64_t *dims;
	uint32_t n_dims;
	bool wide;              /* BFloat16 of four bytes an element */
	const uint64_t *chunks; /* lengths up to a 0; NULL: one chunk */
	uint64_t bytes;         /* of a `str` record */
};

/* Bytes in front of each chunk of a made-up file. */
#define GAP 100

/* The index of a file that holds these tensors, up to one without a name. */
struct rsh_ckpt_index *make_index(struct rsh_names *names,
				  const struct tensor *tensors);

#endif
