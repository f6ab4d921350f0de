/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "memory_medium.h"

#include <unistd.h>

#include "rsh/util/clock.h"
#include "storage/store/name_list_dir_i.h"
#include "tests.h"

#define FILES_MAX 16

static struct {
	struct rsh_name_list flat;
	struct rsh_name_list_file files[FILES_MAX];
	char names[FILES_MAX][64];
	uint8_t *bytes[FILES_MAX];
	unsigned version[FILES_MAX];
	atomic_uint reads;
	atomic_uint fails; /* reads that are to */
	atomic_uint waiting, wanted; /* reads, for each other */
	const char *unlooked;
} memory;

struct memory_handle {
	struct rsh_handle base;
	size_t file;
	unsigned version; /* that it was opened as */
};

void memory_add(const char *name, const void *bytes, size_t n)
{
	const size_t i = memory.flat.n++;

	assert_true(i < FILES_MAX);
	assert_true(i == 0 || strcmp(memory.files[i - 1].name, name) < 0);
	snprintf(memory.names[i], sizeof(memory.names[i]), "%s", name);
	memory.files[i] = (struct rsh_name_list_file){ memory.names[i], n,
						  { 5, 6 } };
	memory.bytes[i] = malloc(n + 1);
	assert_non_null(memory.bytes[i]);
	memcpy(memory.bytes[i], bytes, n);
	memory.flat.files = memory.files;
	memory.flat.uid = geteuid();
	memory.flat.gid = getegid();
}

void memory_add_from(const char *tree, const char *name)
{
	struct rsh_error err = RSH_ERROR_INIT;
	cleanup_free uint8_t *bytes = NULL;
	char path[512];
	size_t n;

	snprintf(path, sizeof(path), "%s/%s", tree, name);
	assert_int_equal(rsh_load_whole(path, &(struct rsh_small_file){
				"file", 1 << 20 }, &bytes, &n,
					&err), 0);
	memory_add(name, bytes, n);
}

void memory_replace(unsigned file)
{
	memory.version[file]++;
	memory.bytes[file][memory.files[file].size - 1] ^= 1;
}

void memory_fail(unsigned n)
{
	atomic_store(&memory.fails, n);
}

void memory_fail_look(const char *name)
{
	memory.unlooked = name;
}

void memory_meet(unsigned n)
{
	atomic_store(&memory.wanted, n);
	atomic_store(&memory.waiting, 0);
}

unsigned memory_reads(void)
{
	return atomic_load(&memory.reads);
}

void memory_clear(void)
{
	for (size_t i = 0; i < memory.flat.n; i++)
		free(memory.bytes[i]);
	memset(&memory, 0, sizeof(memory));
}

/* ---- as a medium ---- */

static int mem_open(struct rsh_medium *m, const char *name,
		    struct rsh_handle **out)
{
	const struct rsh_name_list_file *f =
		rsh_name_list_find(&memory.flat, name);
	struct memory_handle *h;

	if (!f)
		return -ENOENT;
	h = calloc(1, sizeof(*h));
	assert_non_null(h);
	h->base.medium = m;
	h->file = (size_t)(f - memory.files);
	h->version = memory.version[h->file];
	*out = &h->base;
	return 0;
}

static void mem_close(struct rsh_handle *h)
{
	free(h);
}

static int mem_look(struct rsh_medium *m, const char *name,
		    struct rsh_stat *out)
{
	(void)m;
	if (memory.unlooked && strcmp(name, memory.unlooked) == 0)
		return -EIO;
	return rsh_name_list_look(&memory.flat, name, out);
}

static int mem_list(struct rsh_medium *m, const char *name,
		    struct rsh_dir **out)
{
	int rc = rsh_name_list_list(&memory.flat, name, out);

	if (rc == 0)
		(*out)->ops = m->ops;
	return rc;
}

static int mem_identify(const struct rsh_handle *handle,
			struct rsh_store_identity *id, struct rsh_stat *st)
{
	const struct memory_handle *h = (const struct memory_handle *)handle;
	const struct rsh_name_list_file *f = &memory.files[h->file];

	if (id)
		*id = (struct rsh_store_identity){
			.size = f->size, .mtime = f->mtime, .ctime = f->mtime,
			.keeps_ctime = true,
			.which = { h->file, h->version },
		};
	if (st)
		rsh_name_list_stat(&memory.flat, f, st);
	return 0;
}

static int mem_compare(const struct rsh_handle *handle,
		       const struct rsh_store_identity *id, bool anew)
{
	const struct memory_handle *h = (const struct memory_handle *)handle;

	(void)anew;
	return memory.version[h->file] == id->which[1] ? 0 : RSH_CHANGED;
}

static bool mem_await_others(void)
{
	const uint64_t end = rsh_clock_ns() + UINT64_C(20000000000);

	if (atomic_fetch_add(&memory.waiting, 1) + 1 >=
	    atomic_load(&memory.wanted))
		atomic_store(&memory.wanted, 0);
	while (atomic_load(&memory.wanted)) {
		if (rsh_clock_ns() > end)
			return false;
		usleep(1000);
	}
	return true;
}

static ssize_t mem_read(struct rsh_handle *handle, const struct iovec *iov,
			int n, uint64_t offset)
{
	const struct memory_handle *h = (const struct memory_handle *)handle;
	const uint64_t size = memory.files[h->file].size;
	size_t done = 0;

	atomic_fetch_add(&memory.reads, 1);
	if (atomic_load(&memory.fails)) {
		atomic_fetch_sub(&memory.fails, 1);
		return -ECONNREFUSED;
	}
	if (!mem_await_others())
		return -ETIMEDOUT;
	for (int i = 0; i < n && offset < size; i++) {
		const size_t left = (size_t)(size - offset);
		const size_t len = left < iov[i].iov_len ? left :
							   iov[i].iov_len;

		memcpy(iov[i].iov_base, memory.bytes[h->file] + offset, len);
		offset += len;
		done += len;
	}
	return (ssize_t)done;
}

static void mem_free(struct rsh_medium *m)
{
	free(m);
}

static const struct rsh_medium_ops memory_ops = {
	.keeps_nothing = true,
	.free = mem_free,
	.open = mem_open,
	.look = mem_look,
	.list = mem_list,
	.dir_next = rsh_name_list_dir_next,
	.dir_look = rsh_name_list_dir_look,
	.dir_close = rsh_name_list_dir_close,
	.close = mem_close,
	.identify = mem_identify,
	.compare = mem_compare,
	.read = mem_read,
};

int memory_open(const char *path, const struct rsh_store_options *opts,
		struct rsh_medium **out, struct rsh_error *err)
{
	struct rsh_stat root;

	(void)path, (void)opts, (void)err;
	*out = calloc(1, sizeof(**out));
	assert_non_null(*out);
	assert_int_equal(rsh_name_list_look(&memory.flat, "", &root), 0);
	**out = (struct rsh_medium){
		.ops = &memory_ops, .attr = root.attr, .is_remote = true,
		.dirfd = -1,
	};
	return 0;
}
