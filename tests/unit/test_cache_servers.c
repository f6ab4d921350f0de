/* SPDX-License-Identifier: Apache-2.0 */
/* Caches that share blocks through memcached, as nodes do, and the values that
 * they put there. */
#include "config.h"

#include <signal.h>
#include <arpa/inet.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "storage/cache/cache_i.h"
#include "cache_support.h"
#include "rsh/util/clock.h"

#define BLOCK (64 * KIB)
#define N_BLOCKS 8
#define SIZE (N_BLOCKS * BLOCK - 100)

/* Where a test goes well nobody waits for so long. */
#define LONG_MS 120000

/* ---- a server ---- */

struct memcached {
	pid_t pid;
	uint16_t port;
	char list[64];
};

static int try_to_connect(uint16_t port)
{
	const struct sockaddr_in at = {
		.sin_family = AF_INET, .sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	int rc = connect(fd, (const struct sockaddr *)&at, sizeof(at));

	close(fd);
	return rc;
}

static uint16_t free_port(void)
{
	struct sockaddr_in at = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
	close(fd);
	return ntohs(at.sin_port);
}

static void memcached_run(struct memcached *m)
{
	char port[16];
	const struct timespec pause = { .tv_nsec = 5000000 };

	snprintf(port, sizeof(port), "%u", m->port);
	m->pid = fork();
	assert_true(m->pid >= 0);
	if (m->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execlp("memcached", "memcached", "-l", "127.0.0.1", "-p", port,
		       "-U", "0", "-u", "root", NULL);
		_exit(127);
	}
	while (try_to_connect(m->port) != 0) {
		assert_int_equal(waitpid(m->pid, NULL, WNOHANG), 0);
		nanosleep(&pause, NULL);
	}
}

static void memcached_start(struct memcached *m)
{
	m->port = free_port();
	snprintf(m->list, sizeof(m->list), "127.0.0.1:%u", m->port);
	memcached_run(m);
}

static void memcached_end(struct memcached *m)
{
	kill(m->pid, SIGKILL);
	waitpid(m->pid, NULL, 0);
}

static const char *why_not(void)
{
	return system("command -v memcached >/dev/null") ?
	       "there is no memcached" : NULL;
}

/* ---- nodes ---- */

struct node {
	struct rsh_cache *cache;
	struct made_file file;
};

static void node_open(struct node *n, const char *list, unsigned wait_ms)
{
	const struct rsh_cache_options opts = {
		.memory_bytes = 8 * MIB, .block_bytes = BLOCK,
		.servers = { .list = list, .timeout_ms = LONG_MS,
			     .retry_seconds = 1, .wait_ms = wait_ms },
	};
	const uint64_t name[2] = { 12, 34 };

	n->cache = cache_make(&opts);
	made_file_init(&n->file, n->cache, 5, SIZE);
	rsh_cache_file_share(n->cache, n->file.handle, name);
}

static int node_read(struct node *n)
{
	return read_checked(n->cache, &n->file, 0, SIZE);
}

static void node_close(struct node *n)
{
	rsh_cache_free(n->cache);
}

/* What happens in another thread is waited for. */
static void until(bool (*fn)(void *), void *ctx)
{
	const struct timespec pause = { .tv_nsec = 1000000 };

	while (!fn(ctx))
		nanosleep(&pause, NULL);
}

static bool holds_back(void *node)
{
	return ((struct node *)node)->file.holding > 0;
}

static bool waits_for_another(void *node)
{
	return cache_stats(((struct node *)node)->cache).shared_waits > 0;
}

static void *read_in_thread(void *node)
{
	return (void *)(intptr_t)node_read(node);
}

static int joined(pthread_t thread)
{
	void *rc;

	assert_int_equal(pthread_join(thread, &rc), 0);
	return (int)(intptr_t)rc;
}

/* ---- values ---- */

static void value_is_what_was_sealed(const struct rsh_value_key *key)
{
	uint8_t digest[RSH_VALUE_DIGEST] = { 1, 2, 3 }, other[16] = { 1, 2, 4 };
	uint8_t value[RSH_VALUE_HEADER + 100];

	memset(value, 7, sizeof(value));
	rsh_value_seal(key, digest, value, 100, 100);
	assert_true(rsh_value_check(key, digest, value, sizeof(value), 100));
	assert_false(rsh_value_check(key, other, value, sizeof(value), 100));
	assert_false(rsh_value_check(key, digest, value, sizeof(value) - 1,
				     100));
	assert_false(rsh_value_check(key, digest, value, sizeof(value) - 1,
				     99));
	for (size_t bit = 0; bit < 8 * sizeof(value); bit++) {
		value[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_false(rsh_value_check(key, digest, value, sizeof(value),
					     100));
		value[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	assert_true(rsh_value_check(key, digest, value, sizeof(value), 100));

	/* Compressed it is shorter than the block, and never longer. */
	rsh_value_seal(key, digest, value, 40, 100);
	assert_true(rsh_value_check(key, digest, value, RSH_VALUE_HEADER + 40,
				    100));
	assert_false(rsh_value_check(key, digest, value, RSH_VALUE_HEADER + 41,
				     100));
	assert_false(rsh_value_check(key, digest, value, RSH_VALUE_HEADER + 40,
				     101));
	rsh_value_seal(key, digest, value, 100, 99);
	assert_false(rsh_value_check(key, digest, value, sizeof(value), 99));
	rsh_value_seal(key, digest, value, 0, 100);
	assert_false(rsh_value_check(key, digest, value, RSH_VALUE_HEADER,
				     100));
}

static void key_of(const char *dir, const char *text, struct rsh_value_key *key)
{
	struct rsh_error err = RSH_ERROR_INIT;
	char path[4096];

	tree_write(dir, "key", text, strlen(text));
	snprintf(path, sizeof(path), "%s/key", dir);
	assert_good(rsh_value_key_read(path, key, &err), err);
}

TEST(values)
{
	const struct rsh_value_key none = { 0 };
	uint8_t digest[RSH_VALUE_DIGEST] = { 0 }, value[RSH_VALUE_HEADER + 8];
	struct rsh_value_key a, b;
	char *dir = tree_make(), one[RSH_VALUE_NAME_MAX],
	     two[RSH_VALUE_NAME_MAX];

	value_is_what_was_sealed(&none);
	key_of(dir, "0123456789abcdef0123456789abcdef", &a);
	key_of(dir, "0123456789abcdef0123456789abcdeg", &b);
	value_is_what_was_sealed(&a);

	memset(value, 0, sizeof(value));
	rsh_value_seal(&a, digest, value, 8, 8);
	assert_false(rsh_value_check(&b, digest, value, sizeof(value), 8));
	assert_false(rsh_value_check(&none, digest, value, sizeof(value), 8));
	rsh_value_name(&a, digest, one);
	rsh_value_name(&b, digest, two);
	assert_string_not_equal(one, two);
	rsh_value_key_clear(&a);
	rsh_value_key_clear(&b);
	tree_remove(dir);
}

/* Python's hmac has made it. */
TEST(a_known_hmac)
{
	static const uint8_t wanted[] = {
		0xbe, 0x64, 0x7a, 0xf5, 0x85, 0x31, 0x9e, 0x00,
		0x63, 0xa9, 0x12, 0x24, 0x22, 0xea, 0x19, 0xdc,
		0xf9, 0x07, 0xe1, 0xd1, 0x0f, 0x94, 0xd5, 0x8b,
		0x0e, 0x90, 0x1f, 0xd6, 0x91, 0xe4, 0x71, 0xf5,
	};
	cleanup_tree char *dir = tree_make();
	uint8_t digest[RSH_VALUE_DIGEST], value[RSH_VALUE_HEADER + 3];
	FREED_BY(rsh_value_key_clear) struct rsh_value_key key;

	memset(digest, 'd', sizeof(digest));
	memcpy(value + RSH_VALUE_HEADER, "abc", 3);
	key_of(dir, "0123456789abcdef0123456789abcdef", &key);
	rsh_value_seal(&key, digest, value, 3, 3);
	assert_memory_equal(value, wanted, sizeof(wanted));
}

TEST(lists)
{
	static const char *const bad[] = {
		"", ",", "a,", ":1", "a:", "a:0", "a:65536", "a:1x", "a:-1",
		"a/b", "[]:1",
	};
	static const char *const good[] = {
		"a", "a:1,b:65535", "127.0.0.1", "[::1]:5", "[::1]",
	};
	struct rsh_error err = RSH_ERROR_INIT;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(rsh_cache_servers_check(bad[i], &err),
				 -EINVAL);
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		assert_int_equal(rsh_cache_servers_check(good[i], &err), 0);
}

/* ---- with a server ---- */

static void one_finds_what_another_loaded(const char *list)
{
	struct node a, b;

	node_open(&a, list, LONG_MS);
	node_open(&b, list, LONG_MS);
	assert_int_equal(node_read(&a), 0);
	assert_true(a.file.loads > 0);
	rsh_cache_settle(a.cache);
	assert_int_equal(node_read(&b), 0);
	assert_int_equal(b.file.loads, 0);
	assert_int_equal(cache_stats(b.cache).hits_shared, N_BLOCKS);
	assert_int_equal(cache_stats(a.cache).shared_written, N_BLOCKS);
	node_close(&a);
	node_close(&b);
}

static void nothing_is_shared_of_others(const char *list)
{
	FREED_BY(node_close) struct node a;

	node_open(&a, list, LONG_MS);
	a.file.loads = 0;
	made_file_init(&a.file, a.cache, 6, SIZE);
	assert_int_equal(node_read(&a), 0);
	assert_int_equal(a.file.bytes, SIZE);
	assert_int_equal(cache_stats(a.cache).shared_written, 0);
}

/* `fail`: the one who has claimed the blocks does not get them. */
static void one_waits_for_another(const char *list, int fail)
{
	struct node a, b;
	pthread_t first, second;

	node_open(&a, list, LONG_MS);
	node_open(&b, list, LONG_MS);
	a.file.hold_back = true;
	a.file.fail = fail;
	pthread_create(&first, NULL, read_in_thread, &a);
	until(holds_back, &a);
	pthread_create(&second, NULL, read_in_thread, &b);
	until(waits_for_another, &b);
	assert_int_equal(b.file.loads, 0);
	a.file.hold_back = false;
	assert_int_equal(joined(first), -fail);
	assert_int_equal(joined(second), 0);
	assert_int_equal(b.file.loads > 0, fail > 0);
	assert_int_equal(cache_stats(b.cache).shared_late, 0);
	node_close(&a);
	node_close(&b);
}

static void what_does_not_come_is_loaded(const char *list)
{
	struct node a, b;
	pthread_t first;

	node_open(&a, list, LONG_MS);
	node_open(&b, list, 1);
	a.file.hold_back = true;
	pthread_create(&first, NULL, read_in_thread, &a);
	until(holds_back, &a);
	assert_int_equal(node_read(&b), 0);
	assert_int_equal(b.file.bytes, SIZE);
	assert_true(cache_stats(b.cache).shared_late > 0);
	a.file.hold_back = false;
	assert_int_equal(joined(first), 0);
	node_close(&a);
	node_close(&b);
}

/* It has closed the connections, which says nothing against it. */
static void a_restart_goes_unnoticed(struct memcached *m)
{
	struct node a, b;

	node_open(&a, m->list, LONG_MS);
	assert_int_equal(node_read(&a), 0);
	rsh_cache_settle(a.cache);
	memcached_end(m);
	memcached_run(m);
	rsh_cache_drop(a.cache);
	assert_int_equal(node_read(&a), 0);
	rsh_cache_settle(a.cache);
	assert_int_equal(cache_stats(a.cache).shared_errors, 0);
	node_open(&b, m->list, LONG_MS);
	assert_int_equal(node_read(&b), 0);
	assert_int_equal(b.file.loads, 0);
	node_close(&a);
	node_close(&b);
}

static void fail_once(struct node *n, struct memcached *m)
{
	assert_int_equal(node_read(n), 0);
	rsh_cache_settle(n->cache);
	memcached_end(m);
	do {
		rsh_cache_drop(n->cache);
		assert_int_equal(node_read(n), 0);
		rsh_cache_settle(n->cache);
	} while (!cache_stats(n->cache).shared_errors);
	memcached_run(m);
}

static void a_dead_server_is_left_alone(struct memcached *m)
{
	FREED_BY(node_close) struct node a;
	uint64_t before;

	node_open(&a, m->list, LONG_MS);
	fail_once(&a, m);
	before = cache_stats(a.cache).hits_shared;
	/* It is tried again after a second. */
	do {
		rsh_cache_drop(a.cache);
		assert_int_equal(node_read(&a), 0);
		rsh_cache_settle(a.cache);
	} while (cache_stats(a.cache).hits_shared == before);
}

/* Who has claimed something there may have given it up. */
static void claims_of_one_that_failed_are_doubted(struct memcached *m)
{
	const uint64_t begin = rsh_clock_ns();
	struct node a, b;
	pthread_t first;

	node_open(&b, m->list, LONG_MS);
	fail_once(&b, m);
	node_open(&a, m->list, LONG_MS);
	a.file.hold_back = true;
	pthread_create(&first, NULL, read_in_thread, &a);
	until(holds_back, &a);
	do {
		rsh_cache_drop(b.cache);
		assert_int_equal(node_read(&b), 0);
	} while (!waits_for_another(&b));
	assert_true(cache_stats(b.cache).shared_late > 0);
	assert_true(rsh_clock_ns() - begin < LONG_MS / 2 * UINT64_C(1000000));
	a.file.hold_back = false;
	assert_int_equal(joined(first), 0);
	node_close(&a);
	node_close(&b);
}

/* ---- with two ---- */

/* Blocks that lie far apart have servers of their own. */
#define N_FAR 40
#define FAR (8 * MIB)

static void node_open_far(struct node *n, const char *list)
{
	const uint64_t name[2] = { 56, 78 };

	node_open(n, list, LONG_MS);
	made_file_init(&n->file, n->cache, 7, N_FAR * FAR);
	rsh_cache_file_share(n->cache, n->file.handle, name);
}

/* Returns how many were loaded. */
static unsigned far_read(struct node *n)
{
	n->file.loads = 0;
	for (unsigned i = 0; i < N_FAR; i++)
		assert_int_equal(read_checked(n->cache, &n->file, i * FAR,
					      BLOCK), 0);
	rsh_cache_settle(n->cache);
	return n->file.loads;
}

static unsigned far_read_once(const char *list)
{
	struct node n;
	unsigned loads;

	node_open_far(&n, list);
	loads = far_read(&n);
	node_close(&n);
	return loads;
}

static void what_a_dead_server_had_others_get(void)
{
	struct memcached a, b;
	char list[160];
	unsigned lost;

	memcached_start(&a);
	memcached_start(&b);
	snprintf(list, sizeof(list), "%s,%s", a.list, b.list);
	assert_int_equal(far_read_once(list), N_FAR);
	assert_int_equal(far_read_once(list), 0);
	memcached_end(&b);
	lost = far_read_once(list);
	assert_in_range(lost, 1, N_FAR - 1);
	assert_int_equal(far_read_once(list), 0);
	memcached_run(&b);
	assert_int_equal(far_read_once(list), lost);
	assert_int_equal(far_read_once(list), 0);
	memcached_end(&a);
	memcached_end(&b);
}

/* What is compressed is so on its way, too. */
static void what_shrinks_is_carried_compressed(const char *list)
{
	struct node a, b;
	struct rsh_cache_stats s;

	node_open(&a, list, LONG_MS);
	node_open(&b, list, LONG_MS);
	a.file.shape = b.file.shape = MADE_HALVES;
	assert_int_equal(node_read(&a), 0);
	rsh_cache_settle(a.cache);
	s = cache_stats(a.cache);
	assert_int_equal(s.shared_written, N_BLOCKS);
	assert_in_range(s.shared_written_bytes, SIZE / 3, SIZE * 6 / 10);
	assert_int_equal(s.packed, N_BLOCKS);
	assert_int_equal(node_read(&b), 0);
	s = cache_stats(b.cache);
	assert_int_equal(s.hits_shared, N_BLOCKS);
	assert_int_equal(s.packed, 0);
	assert_int_equal(s.n_packed, N_BLOCKS);
	assert_int_equal(b.file.loads, 0);
	node_close(&a);
	node_close(&b);
}

/* Stores a value past the cache. */
static void store(const struct memcached *m, const char *name,
		  const uint8_t *value, size_t n)
{
	const struct sockaddr_in at = {
		.sin_family = AF_INET, .sin_port = htons(m->port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	char answer[8] = "";

	assert_int_equal(connect(fd, (const struct sockaddr *)&at, sizeof(at)),
			 0);
	dprintf(fd, "set %s 0 0 %zu\r\n", name, n);
	assert_int_equal(write(fd, value, n), n);
	assert_int_equal(write(fd, "\r\n", 2), 2);
	assert_int_equal(recv(fd, answer, 6, MSG_WAITALL), 6);
	assert_string_equal(answer, "STORED");
	close(fd);
}

/* The hash is right, and what it is of cannot be unpacked to a block. */
static void what_cannot_be_unpacked_is_refused(const struct memcached *m)
{
	static const uint8_t wrong[][7] = {
		{ 9 }, { 1 }, { 4, 1, 0, 0, 0, 0 }, { 4, 0, 0, 0, 0 },
		{ 2, 255, 255, 255, 255 }, { 1, 2, 0, 0, 0, 0xf0, 7 },
	};
	const struct rsh_value_key none = { 0 };
	const uint64_t file[2] = { 12, 34 };
	uint8_t digest[RSH_VALUE_DIGEST], value[RSH_VALUE_HEADER + 7];
	char name[RSH_VALUE_NAME_MAX];
	FREED_BY(node_close) struct node n;

	node_open(&n, m->list, LONG_MS);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		const uint64_t words[5] = {
			SIZE, n.file.id.epoch, n.file.id.step, i * BLOCK, BLOCK,
		};

		rsh_value_digest(file, words, digest);
		rsh_value_name(&none, digest, name);
		memcpy(value + RSH_VALUE_HEADER, wrong[i], 7);
		rsh_value_seal(&none, digest, value, 7, BLOCK);
		store(m, name, value, sizeof(value));
	}
	assert_int_equal(node_read(&n), 0);
	assert_int_equal(cache_stats(n.cache).shared_rejected,
			 sizeof(wrong) / sizeof(*wrong));
}

TEST(nodes_share)
{
	struct memcached m;

	if (why_not()) {
		unit_skip(why_not());
		return;
	}
	memcached_start(&m);
	what_cannot_be_unpacked_is_refused(&m);
	memcached_end(&m);
	memcached_start(&m);
	what_shrinks_is_carried_compressed(m.list);
	memcached_end(&m);
	memcached_start(&m);
	one_finds_what_another_loaded(m.list);
	nothing_is_shared_of_others(m.list);
	for (int fail = 0; fail <= EIO; fail += EIO) {
		memcached_end(&m);
		memcached_start(&m);
		one_waits_for_another(m.list, fail);
	}
	memcached_end(&m);
	memcached_start(&m);
	what_does_not_come_is_loaded(m.list);
	a_restart_goes_unnoticed(&m);
	a_dead_server_is_left_alone(&m);
	claims_of_one_that_failed_are_doubted(&m);
	memcached_end(&m);
	what_a_dead_server_had_others_get();
}
