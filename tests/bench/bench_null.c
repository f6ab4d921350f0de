/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A FUSE server that computes nothing: what the kernel leaves to any other.
 *
 *	bench_null SIZE MOUNTPOINT
 *	bench_null FILE... MOUNTPOINT
 *	bench_null -m FILE... MOUNTPOINT
 *
 * Shows a file `0` of SIZE bytes and answers every read at once from the same
 * megabyte of memory, in a huge page, past the page cache, with two threads one
 * of which looks out for the next request instead of sleeping.  No server that
 * copies its replies can be faster for long.  Or shows FILEs as `0`, `1` and so
 * on, and reads the bytes from there into that memory: no server that looks at
 * bytes before it sends them can be faster.  With -m all of the FILEs lie in
 * memory before it begins: of a file, a server that answers from memory has all,
 * and not a megabyte that stays in the processor's caches.  Ends when it is
 * unmounted.
 */
#define FUSE_USE_VERSION 314
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
	FIRST_INO = 2, FILES_MAX = 64, REPLY_MAX = 1 << 20, HUGE_PAGE = 2 << 20,
	THREADS = 2, LINGER_NS = 100000
};

static struct {
	uint64_t size;
	int fd;       /* -1: nothing is read */
	char *memory; /* where the bytes are, NULL: in `reply` */
} files[FILES_MAX];
static unsigned n_files;
static _Thread_local char *reply;
static atomic_flag lingering = ATOMIC_FLAG_INIT;

static void fill(fuse_ino_t ino, struct stat *st)
{
	memset(st, 0, sizeof(*st));
	st->st_ino = ino;
	st->st_nlink = 1;
	st->st_mode = S_IFDIR | 0555;
	if (ino >= FIRST_INO) {
		st->st_mode = S_IFREG | 0444;
		st->st_size = (off_t)files[ino - FIRST_INO].size;
	}
}

static void op_init(void *data, struct fuse_conn_info *conn)
{
	(void)data;
	conn->max_read = REPLY_MAX;
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e = { .attr_timeout = 60, .entry_timeout = 60 };
	char *end;
	unsigned long number = strtoul(name, &end, 10);

	if (parent != FUSE_ROOT_ID || *end || number >= n_files) {
		fuse_reply_err(req, ENOENT);
		return;
	}
	e.ino = FIRST_INO + number;
	fill(e.ino, &e.attr);
	fuse_reply_entry(req, &e);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino,
		       struct fuse_file_info *fi)
{
	struct stat st;

	(void)fi;
	fill(ino, &st);
	fuse_reply_attr(req, &st, 60);
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	fi->direct_io = 1;
	fuse_reply_open(req, fi);
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	const uint64_t at = (uint64_t)off, end = files[ino - FIRST_INO].size;
	const uint64_t left = at < end ? end - at : 0;
	const int fd = files[ino - FIRST_INO].fd;
	const char *memory = files[ino - FIRST_INO].memory;

	(void)fi;
	if (size > REPLY_MAX)
		size = REPLY_MAX;
	if (size > left)
		size = left;
	if (fd >= 0 && pread(fd, reply, size, off) != (ssize_t)size)
		fuse_reply_err(req, EIO);
	else
		fuse_reply_buf(req, memory ? memory + at : reply, size);
}

static const struct fuse_lowlevel_ops ops = {
	.init = op_init,
	.lookup = op_lookup,
	.getattr = op_getattr,
	.open = op_open,
	.read = op_read,
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void linger(struct fuse_session *session)
{
	struct pollfd device = { fuse_session_fd(session), POLLIN, 0 };
	const uint64_t until = now_ns() + LINGER_NS;

	if (atomic_flag_test_and_set(&lingering))
		return;
	while (poll(&device, 1, 0) == 0 && now_ns() < until)
		sched_yield();
	atomic_flag_clear(&lingering);
}

static void *serve(void *arg)
{
	struct fuse_session *session = arg;
	struct fuse_buf buf = { .mem = NULL };

	reply = aligned_alloc(HUGE_PAGE, HUGE_PAGE);
	if (!reply)
		return NULL;
	madvise(reply, HUGE_PAGE, MADV_HUGEPAGE);
	memset(reply, 7, HUGE_PAGE);
	while (!fuse_session_exited(session)) {
		int rc = fuse_session_receive_buf(session, &buf);

		if (rc == -EINTR)
			continue;
		if (rc <= 0)
			break;
		fuse_session_process_buf(session, &buf);
		linger(session);
	}
	fuse_session_exit(session);
	free(buf.mem);
	free(reply);
	return NULL;
}

static int run(struct fuse_session *session)
{
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, serve, session))
			return 1;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	return 0;
}

/* Reads all of the file. */
static bool hold(int number)
{
	const uint64_t size = files[number].size;
	const size_t room = (size_t)(size / HUGE_PAGE + 1) * HUGE_PAGE;
	char *memory = aligned_alloc(HUGE_PAGE, room);
	uint64_t at = 0;
	ssize_t n = 1;

	if (!memory)
		return false;
	madvise(memory, room, MADV_HUGEPAGE);
	for (; at < size && n > 0; at += (uint64_t)n)
		n = read(files[number].fd, memory + at, size - at);
	close(files[number].fd);
	files[number].fd = -1;
	files[number].memory = memory;
	return at == size;
}

static void show_files(char **words, int n)
{
	const bool held = strcmp(words[0], "-m") == 0;
	char *end;

	if (held) {
		words++;
		n--;
	}
	files[0].size = strtoull(words[0], &end, 10);
	files[0].fd = -1;
	if (files[0].size && !*end) {
		n_files = 1;
		return;
	}
	for (; n > 0 && n_files < FILES_MAX; n--, words++, n_files++) {
		struct stat st;

		files[n_files].fd = open(*words, O_RDONLY | O_CLOEXEC);
		if (files[n_files].fd < 0 || fstat(files[n_files].fd, &st)) {
			perror(*words);
			exit(1);
		}
		files[n_files].size = (uint64_t)st.st_size;
		if (held && !hold((int)n_files)) {
			perror(*words);
			exit(1);
		}
	}
}

int main(int argc, char **argv)
{
	char name[] = "bench_null", o[] = "-o", value[] = "ro,max_read=1048576";
	char *words[] = { name, o, value, NULL };
	struct fuse_args args = FUSE_ARGS_INIT(3, words);
	struct fuse_session *session;
	int rc = 1;

	if (argc > 2)
		show_files(argv + 1, argc - 2);
	if (n_files == 0) {
		fputs("usage: bench_null SIZE MOUNTPOINT\n"
		      "       bench_null [-m] FILE... MOUNTPOINT\n", stderr);
		return 2;
	}
	session = fuse_session_new(&args, &ops, sizeof(ops), NULL);
	if (!session)
		return 1;
	if (fuse_session_mount(session, argv[argc - 1]) == 0) {
		rc = run(session);
		fuse_session_unmount(session);
	}
	fuse_session_destroy(session);
	return rc;
}
