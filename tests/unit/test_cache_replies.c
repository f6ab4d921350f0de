/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever a server answers, in either protocol: what is read is right, nothing
 * ends but the use of the server. */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "cache_support.h"

#define BLOCK (64 * KIB)
#define SIZE (BLOCK + 100)
#define LONG_MS 120000
#define N_RANDOM 10000

#define CONNECTIONS 16
#define HEAD 24
#define REPLY_MAX 8192

/* ---- a server that answers as it is told ---- */

enum command {
	GET = 1, ADD = 2, SET = 4, DELETE = 8, LIST = 16, AUTH = 32,
	STEP = 64, ALL = 127,
};

struct reply {
	enum command to; /* these get it, the others an honest answer */
	uint8_t bytes[REPLY_MAX]; /* '@' stands for the name, or the number */
	size_t n;
	bool stays; /* the connection is not closed after it */
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
	bool is_binary;
	enum command command;
	uint8_t head[HEAD];
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

static enum command binary_command(uint8_t what)
{
	static const struct {
		uint8_t what;
		enum command command;
	} known[] = {
		{ 0x01, SET }, { 0x02, ADD }, { 0x04, DELETE }, { 0x0a, GET },
		{ 0x20, LIST }, { 0x21, AUTH }, { 0x22, STEP },
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (known[i].what == what)
			return known[i].command;
	return 0;
}

/* Of the packets of a get the last one is answered. */
static bool read_packets(int fd, struct request *r)
{
	do {
		size_t n_name, n;

		if (!read_all(fd, r->head + 1, HEAD - 1))
			return false;
		n_name = (size_t)r->head[2] << 8 | r->head[3];
		n = (size_t)r->head[9] << 16 | (size_t)r->head[10] << 8 |
		    r->head[11];
		read_over(fd, r->head[4]);
		assert_true(n_name < sizeof(r->name));
		if (r->head[1] != 0x0a && !read_all(fd, r->name, n_name))
			return false;
		read_over(fd, n - n_name - r->head[4]);
	} while (r->head[1] == 0x0d && read_all(fd, r->head, 1));
	r->command = binary_command(r->head[1]);
	return r->command;
}

static bool read_line(int fd, struct request *r)
{
	char line[2048] = { (char)r->head[0] }, word[16];
	size_t n = 1, len;

	while (n < sizeof(line) - 1 && line[n - 1] != '\n')
		if (!read_all(fd, line + n++, 1))
			return false;
	if (sscanf(line, "%15s %255s %*u %*u %zu", word, r->name, &len) == 3)
		read_over(fd, len + 2);
	r->command = !strcmp(word, "get") ? GET : !strcmp(word, "add") ? ADD :
		     !strcmp(word, "set") ? SET :
		     !strcmp(word, "delete") ? DELETE : 0;
	return r->command;
}

static bool read_request(int fd, struct request *r)
{
	memset(r, 0, sizeof(*r));
	if (!read_all(fd, r->head, 1))
		return false;
	r->is_binary = r->head[0] == 0x80;
	return r->is_binary ? read_packets(fd, r) : read_line(fd, r);
}

static void put_packet(uint8_t head[HEAD], uint8_t what, const char *value)
{
	memset(head, 0, HEAD);
	head[0] = 0x81;
	head[1] = what;
	head[11] = (uint8_t)strlen(value);
}

static void answer_honestly(int fd, const struct request *r)
{
	const char *text = r->command == GET ? "END\r\n" :
			   r->command == DELETE ? "DELETED\r\n" : "STORED\r\n";
	const char *value = r->command == LIST ? "PLAIN" : "";
	uint8_t packet[HEAD + 8];

	if (!r->is_binary) {
		send(fd, text, strlen(text), MSG_NOSIGNAL);
		return;
	}
	put_packet(packet, r->head[1], value);
	memcpy(packet + 12, r->head + 12, 4);
	memcpy(packet + HEAD, value, strlen(value));
	send(fd, packet, HEAD + strlen(value), MSG_NOSIGNAL);
}

static void answer_as_told(int fd, const struct request *r)
{
	static uint8_t all[REPLY_MAX * 8];
	const void *at = r->is_binary ? (const void *)(r->head + 12) : r->name;
	const size_t n_at = r->is_binary ? 4 : strlen(r->name);
	size_t n = 0;

	for (size_t i = 0; i < server.reply.n; i++) {
		if (server.reply.bytes[i] != '@') {
			all[n++] = server.reply.bytes[i];
		} else if (n + n_at + REPLY_MAX <= sizeof(all)) {
			memcpy(all + n, at, n_at);
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
	bool told, stays;

	if (!read_request(fd, &r))
		return false;
	pthread_mutex_lock(&server.lock);
	server.requests++;
	told = server.reply.to & r.command;
	server.is_used |= told;
	if (told)
		answer_as_told(fd, &r);
	else if (server.reply.to == DELETE && r.command == GET && !r.is_binary)
		dprintf(fd, wrong, r.name);
	else
		answer_honestly(fd, &r);
	stays = !told || server.reply.stays;
	pthread_mutex_unlock(&server.lock);
	return stays;
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

static const char *why_not(void)
{
	struct rsh_error err = RSH_ERROR_INIT;

	return rsh_cache_servers_check("127.0.0.1", &err) == -ENOTSUP ?
		       "built without memcached" : NULL;
}

static void log_in(bool wanted)
{
	if (wanted) {
		setenv("MEMCACHED_USERNAME", "job", 1);
		setenv("MEMCACHED_PASSWORD", "secret", 1);
	} else {
		unsetenv("MEMCACHED_USERNAME");
		unsetenv("MEMCACHED_PASSWORD");
	}
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

UNIT_TEST_NAME(every_line_to_every_command);

static void every_line_to_every_command(void **state)
{
	struct reply r = { 0 };

	(void)state;
	if (why_not()) {
		unit_skip(every_line_to_every_command_name, why_not());
		return;
	}
	log_in(false);
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

static void a_line_without_end(void **state)
{
	struct reply r = { .to = GET, .n = REPLY_MAX };

	(void)state;
	if (why_not())
		return;
	log_in(false);
	memset(r.bytes, 'x', r.n);
	assert_false(goes_on_after(&r));
}

/* ---- packets ---- */

/* What differs from an honest answer. */
static const struct {
	size_t at;
	uint8_t byte;
	unsigned good_for;
} packets[] = {
	{ 0, 0x80, 0 }, { 0, 0x00, 0 }, { 0, 'E', 0 },
	{ 1, 0x00, 0 }, { 1, 0x0b, 0 }, { 1, 0xff, 0 },
	{ 2, 0xff, 0 }, { 3, 0xff, 0 },          /* length of a name */
	{ 4, 0xff, 0 },                          /* of extras */
	{ 5, 0x01, GET | ADD | SET | LIST | AUTH }, /* type: who cares */
	{ 7, 0x01, 0 }, { 7, 0x02, ADD }, { 7, 0x03, ADD | SET },
	{ 7, 0x04, 0 }, { 7, 0x05, ADD }, { 7, 0x06, 0 }, { 7, 0x20, 0 },
	{ 7, 0x21, 0 }, { 7, 0x81, 0 }, { 7, 0x82, ADD | SET },
	{ 7, 0x83, 0 }, { 7, 0x84, 0 }, { 7, 0x85, 0 }, { 7, 0x86, 0 },
	{ 6, 0xff, 0 },                          /* status */
	{ 8, 0x80, 0 }, { 9, 0xff, 0 },          /* length */
	{ 12, 0xff, LIST | AUTH },               /* number */
	{ 16, 0xff, GET | ADD | SET | LIST | AUTH }, /* version */
};

static const uint8_t whats[] = { [GET] = 0x0a, [ADD] = 0x02, [SET] = 0x01,
				 [DELETE] = 0x04, [LIST] = 0x20, [AUTH] = 0x21,
				 [STEP] = 0x22 };

#define N_PACKETS (sizeof(packets) / sizeof(packets[0]))

/* The number is put in by the server, unless it is what differs. */
static void reply_of_packet(size_t i, struct reply *r)
{
	const char *value = r->to == LIST ? "PLAIN" : "";
	uint8_t head[HEAD];

	put_packet(head, whats[r->to], value);
	head[packets[i].at] = packets[i].byte;
	r->n = 0;
	for (size_t k = 0; k < HEAD; k++) {
		if (k != 12 || packets[i].at == 12) {
			r->bytes[r->n++] = head[k];
			continue;
		}
		r->bytes[r->n++] = '@';
		k += 3;
	}
	memcpy(r->bytes + r->n, value, strlen(value));
	r->n += strlen(value);
}

UNIT_TEST_NAME(every_packet_to_every_command);

static void every_packet_to_every_command(void **state)
{
	static const enum command commands[] = { GET, ADD, SET, LIST, AUTH };
	struct reply r = { 0 };

	(void)state;
	if (why_not()) {
		unit_skip(every_packet_to_every_command_name, why_not());
		return;
	}
	log_in(true);
	if (!goes_on_after(&r)) {
		unit_skip(every_packet_to_every_command_name,
			  "there is no libsasl2-modules");
		return;
	}
	for (size_t i = 0; i < N_PACKETS; i++) {
		for (size_t k = 0; k < 5; k++) {
			bool good = packets[i].good_for & commands[k];

			r.to = commands[k];
			r.stays = good;
			reply_of_packet(i, &r);
			if (goes_on_after(&r) != good)
				fail_msg("byte %zu = %d to %d", packets[i].at,
					 packets[i].byte, r.to);
			assert_true(server.is_used);
		}
	}
}

/* ---- at random ---- */

static void reply_draw(struct numbers *x, bool binary, struct reply *r)
{
	static const char *const words[] = {
		"\r\n", "VALUE @ 0 ", "END\r\n", "STORED\r\n", "NOT_STORED\r\n",
		"4294967296", "-1", "\x81\x0d", "\x81\x02", "@", " ",
	};
	const size_t n_words = sizeof(words) / sizeof(words[0]);
	unsigned n = (unsigned)numbers_below(x, 5);

	r->to = binary ? 1 << numbers_below(x, 7) : 1 << numbers_below(x, 4);
	if (binary)
		reply_of_packet(numbers_below(x, N_PACKETS), r);
	else
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

static void replies_at_random(void **state)
{
	const char *given = getenv("RSH_TEST_REPLIES");
	const unsigned n = given ? (unsigned)strtoul(given, NULL, 10) :
				   (unsigned)rounds(N_RANDOM);
	struct numbers x = { numbers_seed() };
	unsigned used = 0;
	struct reply r = { 0 };

	(void)state;
	if (why_not())
		return;
	for (unsigned i = 0; i < n; i++) {
		const bool binary = i % 2;

		log_in(binary);
		reply_draw(&x, binary, &r);
		goes_on_after(&r);
		used += server.is_used;
	}
	/* Steps of a login and deletions are mostly not asked for. */
	assert_true(used > n / 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		UNIT_TEST_MAY_SKIP(every_line_to_every_command),
		cmocka_unit_test(a_line_without_end),
		UNIT_TEST_MAY_SKIP(every_packet_to_every_command),
		cmocka_unit_test(replies_at_random),
	};

	return cmocka_run_group_tests(tests, start_server, NULL);
}
