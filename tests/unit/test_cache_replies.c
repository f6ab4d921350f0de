/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever a server answers: what is read is right, nothing ends but the use of
 * the server. */
#include "config.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cache_support.h"

#define BLOCK (64 * KIB)
#define SIZE (BLOCK + 100)
#define LONG_MS 120000
#define N_RANDOM 10000

#define CONNECTIONS 16
#define REPLY_MAX 8192

/* ---- a server that answers as it is told ---- */

enum command { GET = 1, ADD = 2, SET = 4, DELETE = 8 };

struct reply {
	enum command to; /* these get it, the others an honest answer */
	uint8_t bytes[REPLY_MAX]; /* '@' stands for the name */
	size_t n;
};

static struct {
	int listens;
	uint16_t port;
	struct pollfd at[CONNECTIONS + 1];
	pthread_mutex_t lock; /* for these: */
	struct reply reply;
	bool is_used;
	unsigned requests;
} server = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* A request, as much as is answered. */
struct request {
	enum command command;
	char name[256];
};

static bool read_all(int fd, void *to, size_t n)
{
	return n == 0 || recv(fd, to, n, MSG_WAITALL) == (ssize_t)n;
}

static void read_over(int fd, size_t n)
{
	uint8_t some[4096];

	while (n) {
		size_t part = n < sizeof(some) ? n : sizeof(some);

		if (!read_all(fd, some, part))
			return;
		n -= part;
	}
}

static bool read_request(int fd, struct request *r)
{
	char line[2048] = "", word[16] = "";
	size_t n = 0, len;

	memset(r, 0, sizeof(*r));
	while (n < sizeof(line) - 1 && (n == 0 || line[n - 1] != '\n'))
		if (!read_all(fd, line + n++, 1))
			return false;
	if (sscanf(line, "%15s %255s %*u %*u %zu", word, r->name, &len) == 3)
		read_over(fd, len + 2);
	r->command = !strcmp(word, "get") ? GET : !strcmp(word, "add") ? ADD :
		     !strcmp(word, "set") ? SET :
		     !strcmp(word, "delete") ? DELETE : 0;
	return r->command;
}

static void answer_honestly(int fd, const struct request *r)
{
	const char *text = r->command == GET ? "END\r\n" :
			   r->command == DELETE ? "DELETED\r\n" : "STORED\r\n";

	send(fd, text, strlen(text), MSG_NOSIGNAL);
}

static void answer_as_told(int fd, const struct request *r)
{
	static uint8_t all[REPLY_MAX * 8];
	const size_t n_at = strlen(r->name);
	size_t n = 0;

	for (size_t i = 0; i < server.reply.n; i++) {
		if (server.reply.bytes[i] != '@') {
			all[n++] = server.reply.bytes[i];
		} else if (n + n_at + REPLY_MAX <= sizeof(all)) {
			memcpy(all + n, r->name, n_at);
			n += n_at;
		}
	}
	send(fd, all, n, MSG_NOSIGNAL);
}

/* Returns whether the connection stays.  To have a name deleted it must have
 * been found to be wrong. */
static bool answer(int fd)
{
	static const char wrong[] = "VALUE %s 0 5\r\nwrong\r\nEND\r\n";
	struct request r;
	bool told;

	if (!read_request(fd, &r))
		return false;
	pthread_mutex_lock(&server.lock);
	server.requests++;
	told = server.reply.to & r.command;
	server.is_used |= told;
	if (told)
		answer_as_told(fd, &r);
	else if (server.reply.to == DELETE && r.command == GET)
		dprintf(fd, wrong, r.name);
	else
		answer_honestly(fd, &r);
	pthread_mutex_unlock(&server.lock);
	return !told;
}

static void *serve(void *arg)
{
	(void)arg;
	server.at[0] = (struct pollfd){ server.listens, POLLIN, 0 };
	for (unsigned i = 1; i <= CONNECTIONS; i++)
		server.at[i].fd = -1;
	for (;;) {
		poll(server.at, CONNECTIONS + 1, -1);
		for (unsigned i = 1; i <= CONNECTIONS; i++) {
			struct pollfd *p = &server.at[i];

			if (p->fd < 0 && server.at[0].revents) {
				*p = (struct pollfd){
					accept(server.listens, NULL, NULL),
					POLLIN, 0,
				};
				server.at[0].revents = 0;
			} else if (p->fd >= 0 && p->revents &&
				   !answer(p->fd)) {
				close(p->fd);
				p->fd = -1;
			}
		}
	}
	return NULL;
}

static int start_server(void **state)
{
	struct sockaddr_in at = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	socklen_t n = sizeof(at);
	pthread_t thread;

	(void)state;
	server.listens = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	return bind(server.listens, (struct sockaddr *)&at, n) ||
	       listen(server.listens, 64) ||
	       getsockname(server.listens, (struct sockaddr *)&at, &n) ||
	       (server.port = ntohs(at.sin_port)) == 0 ||
	       pthread_create(&thread, NULL, serve, NULL);
}

static void tell(const struct reply *r)
{
	pthread_mutex_lock(&server.lock);
	server.reply = *r;
	server.is_used = false;
	server.requests = 0;
	pthread_mutex_unlock(&server.lock);
}

static unsigned requests(void)
{
	unsigned n;

	pthread_mutex_lock(&server.lock);
	n = server.requests;
	pthread_mutex_unlock(&server.lock);
	return n;
}

/* ---- what is made of it ---- */

static struct rsh_cache *node_open(struct made_file *f)
{
	const uint64_t name[2] = { 12, 34 };
	char list[32];
	const struct rsh_cache_options opts = {
		.memory_bytes = MIB, .block_bytes = BLOCK,
		.servers = { .list = list, .timeout_ms = LONG_MS,
			     .retry_seconds = LONG_MS, .wait_ms = 1 },
	};
	struct rsh_cache *c;

	snprintf(list, sizeof(list), "127.0.0.1:%u", server.port);
	c = cache_make(&opts);
	made_file_init(f, c, 5, SIZE);
	rsh_cache_file_share(c, f->handle, name);
	return c;
}

static void node_read(struct rsh_cache *c, struct made_file *f)
{
	rsh_cache_drop(c);
	assert_int_equal(read_checked(c, f, 0, SIZE), 0);
	rsh_cache_settle(c);
}

/* Reads everything twice.  Returns whether the server is still asked. */
static bool goes_on_after(const struct reply *r)
{
	struct made_file f = { 0 };
	struct rsh_cache *c = node_open(&f);
	unsigned before;

	tell(r);
	node_read(c, &f);
	before = requests();
	node_read(c, &f);
	rsh_cache_free(c);
	return requests() != before;
}

/* ---- lines ---- */

#define SOME(s) s, sizeof(s) - 1

static const struct {
	const char *bytes;
	size_t n;
	unsigned good_for;
} lines[] = {
	{ SOME(""), 0 },
	{ SOME("END\r\n"), GET },
	{ SOME("STORED\r\n"), ADD | SET },
	{ SOME("NOT_STORED\r\n"), ADD },
	{ SOME("EXISTS\r\n"), 0 },
	{ SOME("NOT_FOUND\r\n"), DELETE },
	{ SOME("DELETED\r\n"), DELETE },
	{ SOME("TOUCHED\r\n"), 0 },
	{ SOME("OK\r\n"), 0 },
	{ SOME("17\r\n"), 0 },
	{ SOME("VERSION 1.6.18\r\n"), 0 },
	{ SOME("STAT pid 1\r\nEND\r\n"), 0 },
	{ SOME("ERROR\r\n"), 0 },
	{ SOME("ERROR Too many open connections\r\n"), 0 },
	{ SOME("CLIENT_ERROR bad data chunk\r\n"), 0 },
	/* So it says that it is full. */
	{ SOME("SERVER_ERROR out of memory storing object\r\n"), ADD | SET },
	{ SOME("SERVER_ERROR\r\n"), 0 },
	{ SOME("RESET\r\n"), 0 },
	{ SOME("BUSY currently processing crawler request\r\n"), 0 },
	{ SOME("HD\r\n"), 0 },
	{ SOME("EN\r\n"), 0 },
	{ SOME("VA 2\r\nxx\r\n"), 0 },
	{ SOME("VALUE @ 0 5\r\nwrong\r\nEND\r\n"), GET },
	{ SOME("VALUE @ 0 5 77\r\nwrong\r\nEND\r\n"), GET },
	{ SOME("VALUE @ 0 5\r\nwro"), 0 },
	{ SOME("VALUE @ 0 5\r\nwrongXXEND\r\n"), 0 },
	{ SOME("VALUE @ 0 -5\r\nwrong\r\nEND\r\n"), 0 },
	{ SOME("VALUE @ 0 +5\r\nwrong\r\nEND\r\n"), 0 },
	{ SOME("VALUE @ 0 18446744073709551615\r\nwrong\r\nEND\r\n"), 0 },
	{ SOME("VALUE @ 0 18446744073709551621\r\nwrong\r\nEND\r\n"), 0 },
	{ SOME("VALUE @ 0 1099511627776\r\nwrong\r\nEND\r\n"), 0 },
	{ SOME("VALUE @ 0\r\nwrong\r\nEND\r\n"), 0 },
	{ SOME("VALUE @ 0 5 7 7\r\nwrong\r\nEND\r\n"), 0 },
	{ SOME("VALUE another 0 5\r\nwrong\r\nEND\r\n"), 0 },
	{ SOME("VALUE @x 0 5\r\nwrong\r\nEND\r\n"), 0 },
	{ SOME("VALUE @ 0 1\r\nx\r\nVALUE @ 0 1\r\nx\r\nVALUE @ 0 1\r\nx\r\n"
	       "VALUE @ 0 1\r\nx\r\nVALUE @ 0 1\r\nx\r\nEND\r\n"), 0 },
	{ SOME("VALUE\r\n"), 0 },
	{ SOME("ST\0RED\r\n"), 0 },
	{ SOME("STORED\n"), 0 },
	{ SOME("STORED \r\n"), 0 },
	{ SOME("stored\r\n"), 0 },
	{ SOME("\r\n"), 0 },
	{ SOME("\n"), 0 },
	{ SOME("220 mail.example ESMTP\r\n"), 0 },
};

#define N_LINES (sizeof(lines) / sizeof(lines[0]))

static void reply_of_line(size_t i, struct reply *r)
{
	memcpy(r->bytes, lines[i].bytes, lines[i].n);
	r->n = lines[i].n;
}

TEST(every_line_to_every_command)
{
	struct reply r = { 0 };

	for (size_t i = 0; i < N_LINES; i++) {
		for (r.to = GET; r.to <= DELETE; r.to *= 2) {
			bool good = lines[i].good_for & r.to;

			reply_of_line(i, &r);
			if (goes_on_after(&r) != good)
				fail_msg("\"%s\" to %d", lines[i].bytes, r.to);
			assert_true(server.is_used);
		}
	}
}

TEST(a_line_without_end)
{
	struct reply r = { .to = GET, .n = REPLY_MAX };

	memset(r.bytes, 'x', r.n);
	assert_false(goes_on_after(&r));
}

/* ---- at random ---- */

static void reply_draw(struct numbers *x, struct reply *r)
{
	static const char *const words[] = {
		"\r\n", "VALUE @ 0 ", "END\r\n", "STORED\r\n", "NOT_STORED\r\n",
		"4294967296", "-1", "@", " ",
	};
	const size_t n_words = sizeof(words) / sizeof(words[0]);
	unsigned n = (unsigned)numbers_below(x, 5);

	r->to = 1 << numbers_below(x, 4);
	reply_of_line(numbers_below(x, N_LINES), r);
	while (n--) {
		const char *word = words[numbers_below(x, n_words)];
		size_t at = numbers_below(x, r->n + 1);

		switch (numbers_below(x, 4)) {
		case 0: /* it ends there */
			r->n = at;
			break;
		case 1: /* a byte is another */
			r->bytes[at] = (uint8_t)numbers_next(x);
			r->n += at == r->n;
			break;
		case 2: /* it is repeated from there on */
			memmove(r->bytes + r->n, r->bytes + at, r->n - at);
			r->n += r->n - at;
			break;
		default: /* a word is put in */
			memmove(r->bytes + at + strlen(word), r->bytes + at,
				r->n - at);
			memcpy(r->bytes + at, word, strlen(word));
			r->n += strlen(word);
		}
	}
}

TEST(replies_at_random)
{
	const char *given = getenv("RSH_TEST_REPLIES");
	const unsigned n = given ? (unsigned)strtoul(given, NULL, 10) :
				   (unsigned)rounds(N_RANDOM);
	struct numbers x = { numbers_seed() };
	unsigned used = 0;
	struct reply r = { 0 };

	for (unsigned i = 0; i < n; i++) {
		reply_draw(&x, &r);
		goes_on_after(&r);
		used += server.is_used;
	}
	/* Deletions are mostly not asked for. */
	assert_true(used > n / 2);
}

int main(void)
{
	return unit_run(start_server, NULL);
}
