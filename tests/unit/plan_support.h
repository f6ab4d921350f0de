/* SPDX-License-Identifier: Apache-2.0 */
/* plan_support.h - conversions of files that do not exist. */
#ifndef PLAN_SUPPORT_H
#define PLAN_SUPPORT_H

#include "strategy_support.h"

#include "rsh/plan/conversion.h"

#define MAX_FILES 64

/* A conversion on its way: strategies, then files, then the plan. */
struct job {
	struct rsh_names *names;
	struct rsh_strategy *src, *dst;
	const struct rsh_ckpt_index *index[MAX_FILES];
	char path[MAX_FILES][24]; /* "rank_7.ckpt" */
	enum rsh_file_type src_format, format; /* .ckpt unless set */
	uint64_t part_bytes;
	bool remove_redundancy, replicas, allow_missing, joined;
	struct rsh_plan *c;
	struct rsh_error err;
};

/* Layout items as LAYOUT() and its like make them, or NULL for no strategy;
 * the strategies are called src.json and dst.json. */
struct job *job_new(const char *src_items, const char *dst_items);
/* A source strategy of which the first operator is of a later stage. */
struct job *job_new_lone(const char *stage, const char *src_items,
			 const char *dst_items);
void job_free(struct job *j);
RSH_GUARD(cleanup_job_, struct job, job_free)
#define cleanup_job __attribute__((cleanup(cleanup_job_)))

/* A source file; the tensors end with one without a name. */
void job_file(struct job *j, uint32_t rank, const struct tensor *tensors);
/* The same file for ranks 0 to n - 1. */
void job_files(struct job *j, uint32_t n, const struct tensor *tensors);
/* The same file for ranks from first to last; up to four, or one of NULL. */
struct files {
	uint32_t first, last;
	const struct tensor *tensors;
};
void job_made(struct job *j, const struct files files[4]);
#define FILE_WITH(...) (const struct tensor[]){ __VA_ARGS__, { .name = NULL } }
#define F32(n, ...) { .name = (n), .dtype = RSH_DTYPE_FLOAT32, DIMS_OF(__VA_ARGS__) }
#define BF16(n, ...) { .name = (n), .dtype = RSH_DTYPE_BFLOAT16, DIMS_OF(__VA_ARGS__) }
#define DIMS_OF(...)                                      \
	.dims = (int64_t[]){ __VA_ARGS__ },               \
	.n_dims = sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)
#define I64_SCALAR(n) { .name = (n), .dtype = RSH_DTYPE_INT64 }

/* Plans; the test fails where the plan does. */
void job_plan(struct job *j);
void job_plan_compat(struct job *j);
/* Plans, which has to fail like this. */
void job_refused(struct job *j, int rc, const char *sentence);

/* The records of a virtual file: "w[4,2]", "*v[3]" for a copied one, and with
 * the type where it is not Float32: "Int8:b[4]", "Int64*epoch[]".  Also checks
 * that offsets and sizes are those of a file without gaps. */
void assert_records(const struct job *j, uint32_t rank, const char *want);
/* The pieces of a range: "h12" for 12 bytes of a header, "3@100+8" for 8 bytes
 * at 100 of the file of rank 3; with a codec "3@100+16>8" and, where the first
 * byte is inside an element, "3@100+2>1/1". */
void assert_pieces(const struct job *j, uint32_t rank, uint64_t offset,
		   uint64_t length, const char *want);
/* The pieces of the content of a record alone. */
void assert_content(const struct job *j, uint32_t rank, const char *record,
		    const char *want);
/* The file is that of source rank `origin`, byte for byte, and these are its
 * records in their order, one after the other: "w step". */
void assert_whole(const struct job *j, uint32_t rank, uint32_t origin,
		  const char *records);
/* The source ranks of a virtual file: "0 4". */
void assert_sources(const struct job *j, uint32_t rank, const char *want);
/* Exactly one note holds the words. */
void assert_note(const struct job *j, const char *words);
void assert_no_notes(const struct job *j);

#endif
