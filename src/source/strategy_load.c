/* SPDX-License-Identifier: Apache-2.0 */
/* source/strategy_load.c reads strategy files from disk. */
#include "config.h"

#include "source_i.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <xxhash.h>

#include "rsh/source/inspect.h"
#include "rsh/util/files.h"
#include "rsh/util/mem.h"
#include "rsh/wire/strategy_file.h"

/* The largest known strategies have a few megabytes per stage. */
#define STRATEGY_BYTES_MAX (UINT64_C(1) << 30)

const struct rsh_small_file rsh_strategy_kind = { "strategy",
						   STRATEGY_BYTES_MAX };
static const struct rsh_small_file names_file = { "map of names",
						  STRATEGY_BYTES_MAX };

/* If the file is not a strategy, the error says what it is, because the
 * parser's error would not help. */
static int strategy_say_other(const char *path, struct rsh_error *err)
{
	bool of_directory;
	const char *what = rsh_other_file(path, &of_directory);

	return what ? rsh_error_set(err, EBADMSG,
			"%s: this is not a strategy, but %s", path, what) : -EBADMSG;
}

static int strategy_load_file(const char *path, struct rsh_strategy_file **out,
			      struct rsh_error *err)
{
	cleanup_free uint8_t *data = NULL;
	size_t len;
	int rc = rsh_load_whole(path, &rsh_strategy_kind, &data, &len, err) ?:
		 rsh_strategy_parse(data, len, path, out, err);

	return rc == -EBADMSG ? strategy_say_other(path, err) : rc;
}

int rsh_name_map_load(const char *path, struct rsh_name_map **out,
		      struct rsh_error *err)
{
	cleanup_free uint8_t *data = NULL;
	size_t len;

	return rsh_load_whole(path, &names_file, &data, &len, err) ?:
	       rsh_name_map_parse(data, len, path, out, err);
}

static int strategy_read_names(DIR *dir, const char *path,
			       struct rsh_path_list *l, struct rsh_error *err)
{
	const struct dirent *e;
	char *file;
	int rc;

	while (errno = 0, (e = readdir(dir))) {
		if (e->d_name[0] == '.' ||
		    !(rsh_has_suffix(e->d_name, ".ckpt") ||
		      rsh_has_suffix(e->d_name, ".json")))
			continue;
		if (asprintf(&file, "%s/%s", path, e->d_name) < 0)
			return rsh_error_nomem(err);
		rc = rsh_path_list_add(l, file);
		free(file);
		if (rc)
			return rsh_error_nomem(err);
	}
	if (errno)
		return rsh_error_file(err, errno, path);
	if (l->n == 0)
		return rsh_error_set(err, EINVAL, "%s: no strategy file "
				     "(*.ckpt or *.json) in this directory",
				     path);
	return 0;
}

static int strategy_merge_files(const struct rsh_path_list *l,
				enum rsh_strategy_form form, const char *path,
				struct rsh_names *names,
				struct rsh_strategy **out,
				struct rsh_error *err)
{
	struct rsh_strategy_file **files =
		rsh_alloc_array(l->n, sizeof(*files));
	uint32_t n = 0;
	int rc = 0;

	if (!files)
		return rsh_error_nomem(err);
	for (; n < l->n && rc == 0; n++)
		rc = strategy_load_file(l->v[n], &files[n], err);
	if (rc == 0)
		return rsh_strategy_merge(&(struct rsh_strategy_set){ files, n,
				form, path }, names, out, err);
	for (n--; n > 0; n--)
		rsh_strategy_file_free(files[n - 1]);
	free(files);
	return rc;
}

int rsh_strategy_list(const char *path, bool as_listed,
		      struct rsh_path_list *list, bool *directory,
		      struct rsh_error *err)
{
	struct stat st;

	if (stat(path, &st) != 0)
		return rsh_error_set(err, errno, "strategy %s: %s", path,
				     strerror(errno));
	*directory = S_ISDIR(st.st_mode);
	if (*directory) {
		DIR *dir = opendir(path);
		int rc;

		if (!dir)
			return rsh_error_file(err, errno, path);
		rc = strategy_read_names(dir, path, list, err);
		closedir(dir);
		if (rc == 0 && !as_listed)
			qsort(list->v, list->n, sizeof(*list->v), rsh_by_text);
		return rc;
	}
	return rsh_path_list_add(list, path) ? rsh_error_nomem(err) : 0;
}

int rsh_strategy_load(const char *path, bool as_listed,
		      struct rsh_names *names, struct rsh_strategy **out,
		      struct rsh_error *err)
{
	cleanup_path_list struct rsh_path_list list = { 0 };
	enum rsh_strategy_form form = RSH_STRATEGY_FILE;
	cleanup_free char *metadata = NULL;
	bool directory;
	int rc = rsh_metadata_find(path, &metadata, err);

	if (metadata)
		return rsh_metadata_strategy(metadata, names, out, err);
	if (rc == 0)
		rc = rsh_strategy_list(path, as_listed, &list, &directory, err);
	if (rc)
		return rc;
	if (directory)
		form = as_listed ? RSH_STRATEGY_DIR_AS_LISTED :
				   RSH_STRATEGY_DIR;
	return strategy_merge_files(&list, form, path, names, out, err);
}

int rsh_strategy_digest(const char *path, uint64_t *xxh3, struct rsh_error *err)
{
	cleanup_path_list struct rsh_path_list list = { 0 };
	cleanup_free char *metadata = NULL;
	XXH3_state_t *hash;
	bool directory;
	int rc = rsh_metadata_find(path, &metadata, err);

	if (metadata)
		return rsh_metadata_digest(metadata, xxh3, err);
	if (rc == 0)
		rc = rsh_strategy_list(path, false, &list, &directory, err);
	if (rc)
		return rc;
	hash = XXH3_createState();
	if (!hash)
		return rsh_error_nomem(err);
	XXH3_64bits_reset(hash);
	for (size_t i = 0; i < list.n && rc == 0; i++) {
		cleanup_free uint8_t *data = NULL;
		const char *name = strrchr(list.v[i], '/');
		size_t len;

		rc = rsh_load_whole(list.v[i], &rsh_strategy_kind, &data, &len,
				    err);
		if (rc)
			break;
		if (directory)
			XXH3_64bits_update(hash, name, strlen(name) + 1);
		XXH3_64bits_update(hash, data, len);
	}
	*xxh3 = XXH3_64bits_digest(hash);
	XXH3_freeState(hash);
	return rc;
}
