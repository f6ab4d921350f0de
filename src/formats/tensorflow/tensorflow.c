/* SPDX-License-Identifier: Apache-2.0 */
/* formats/tensorflow/tensorflow.c finds and checks steps of TensorFlow
 * 2: <name>-<step>.index and its <name>-<step>.data-<i>-of-<n>, and the file
 * `checkpoint`, which names the newest step. */
#include "config.h"

#include "index_i.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/formats/formats.h"
#include "rsh/util/files.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

static const char tensorflow_index[] = ".index";
static const char tensorflow_data[] = ".data-";
static const char tensorflow_of[] = "-of-";

#define TENSORFLOW_DIGITS 5

/* Returns the ".data-00001-of-00002" at the end of a name, or NULL if there is
 * none. */
static const char *tensorflow_data_in(const char *file, uint64_t *i,
				      uint64_t *n)
{
	const char *p = strrchr(file, '.'), *digits, *of;

	if (!p || p == file ||
	    strncmp(p, tensorflow_data, strlen(tensorflow_data)) != 0)
		return NULL;
	digits = p + strlen(tensorflow_data);
	of = digits + rsh_count_digits(digits, strlen(digits));
	if (of - digits != TENSORFLOW_DIGITS ||
	    !rsh_number_read(digits, TENSORFLOW_DIGITS, i) ||
	    strncmp(of, tensorflow_of, strlen(tensorflow_of)) != 0)
		return NULL;
	of += strlen(tensorflow_of);
	return strlen(of) <= TENSORFLOW_DIGITS &&
	       rsh_number_read(of, strlen(of), n) && *i < *n ? p : NULL;
}

/* The last number in a name is the step, as tf.train.Checkpoint writes it. */
static enum rsh_part tensorflow_part(const char *file, struct rsh_step_name *out)
{
	const char *end = tensorflow_data_in(file, &(uint64_t){ 0 },
					     &(uint64_t){ 0 });
	const char *dash;

	if (rsh_has_suffix(file, tensorflow_index))
		end = file + strlen(file) - strlen(tensorflow_index);
	if (!end)
		return RSH_PART_NO;
	out->n_stem = (size_t)(end - file);
	snprintf(out->label, sizeof(out->label), "%.*s", (int)(end - file),
		 file);
	dash = strrchr(out->label, '-');
	out->step.n = dash && rsh_number_read(dash + 1, strlen(dash + 1),
					      &out->step.numbers[0]);
	snprintf(out->series, sizeof(out->series), "%.*s",
		 out->step.n ? (int)(dash - out->label) : (int)(end - file),
		 file);
	return RSH_PART_YES;
}

/* All data files must exist and have the same n in their names. */
static int tensorflow_check(const struct rsh_byte_source *files,
			    const char *const *names, size_t n, bool full,
			    struct rsh_counters *says, struct rsh_error *err)
{
	cleanup_free const struct rsh_byte_source **shards =
		calloc(n, sizeof(*shards));
	const struct rsh_byte_source *index = NULL;
	uint64_t shard = 0, of = 0;
	size_t n_found = 0;

	(void)says;
	if (!shards)
		return rsh_error_nomem(err);
	for (size_t i = 0; i < n; i++)
		if (rsh_has_suffix(names[i], tensorflow_index))
			index = &files[i];
	if (!index)
		return rsh_error_set(err, EBADMSG, "%s: there is no .index "
				     "beside it", files[0].path);
	if (n == 1)
		return rsh_error_set(err, EBADMSG, "%s: its data files are "
				     "not there", index->path);
	for (size_t i = 0; i < n; i++) {
		if (!tensorflow_data_in(names[i], &shard, &of))
			continue;
		if (of != n - 1)
			return rsh_error_set(err, EBADMSG, "%s: %zu of its "
					     "%llu data files are there",
					     files[i].path, n - 1,
					     (unsigned long long)of);
		shards[shard] = &files[i];
		n_found++;
	}
	return n_found == n - 1 ?
	       rsh_tf_index_check(index, shards, (uint32_t)n - 1, full, err) :
	       rsh_error_set(err, EBADMSG, "%s: two indexes", files[0].path);
}

/* This format is only shown with --resume. */
const struct rsh_format rsh_tensorflow_format = {
	.name = "tensorflow",
	.says = "checkpoint of TensorFlow",
	.framework = "TensorFlow",
	.tracked = "",
	.part = tensorflow_part,
	.check = tensorflow_check,
};
