/*
 * A FUSE server that computes nothing: what the kernel leaves to any other.
 *
 *	bench_null SIZE MOUNTPOINT
 *
 * Shows one file, `file`, of SIZE bytes, and answers every read at once from the
 * same megabyte of memory, in a huge page, past the page cache, with two threads one of which
 * looks out for the next request instead of sleeping.  Ends when it is
 * unmounted.  No server that copies its replies can be faster for long, and one
 * that also has to get the bytes from somewhere is slower.
 */
#define FUSE_USE_VERSION 314
#include <errno.h>
#include <fuse_lowlevel.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum {
	FILE_INO = 2, REPLY_MAX = 1 << 20, HUGE_PAGE = 2 << 20, THREADS = 2,
	LINGER_NS = 100000
};

static uint64_t file_size;
static char reply[HUGE_PAGE] __attribute__((aligned(HUGE_PAGE)));
static atomic_flag lingering = ATOMIC_FLAG_INIT;

static void fill(fuse_ino_t ino, struct stat *st)
{
	memset(st, 0, sizeof(*st));
	st->st_ino = ino;
	st->st_nlink = 1;
	st->st_mode = ino == FILE_INO ? S_IFREG | 0444 : S_IFDIR | 0555;
	st->st_size = ino == FILE_INO ? (off_t)file_size : 0;
}

static void op_init(void *data, struct fuse_conn_info *conn)
{
	(void)data;
	conn->max_read = REPLY_MAX;
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e = { .ino = FILE_INO, .attr_timeout = 60,
				      .entry_timeout = 60 };

	if (parent != FUSE_ROOT_ID || strcmp(name, "file") != 0) {
		fuse_reply_err(req, ENOENT);
		return;
	}
	fill(FILE_INO, &e.attr);
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
	const uint64_t at = (uint64_t)off;
	const uint64_t left = at < file_size ? file_size - at : 0;

	(void)ino, (void)fi;
	if (size > REPLY_MAX)
		size = REPLY_MAX;
	fuse_reply_buf(req, reply, size < left ? size : left);
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

int main(int argc, char **argv)
{
	char name[] = "bench_null", o[] = "-o", value[] = "ro,max_read=1048576";
	char *words[] = { name, o, value, NULL };
	struct fuse_args args = FUSE_ARGS_INIT(3, words);
	struct fuse_session *session;
	char none[] = "", *end = none;
	int rc = 1;

	if (argc == 3)
		file_size = strtoull(argv[1], &end, 10);
	if (file_size == 0 || *end) {
		fputs("usage: bench_null SIZE MOUNTPOINT\n", stderr);
		return 2;
	}
	madvise(reply, sizeof(reply), MADV_HUGEPAGE);
	memset(reply, 7, sizeof(reply));
	session = fuse_session_new(&args, &ops, sizeof(ops), NULL);
	if (!session)
		return 1;
	if (fuse_session_mount(session, argv[2]) == 0) {
		rc = run(session);
		fuse_session_unmount(session);
	}
	fuse_session_destroy(session);
	return rc;
}
