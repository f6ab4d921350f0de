/* SPDX-License-Identifier: Apache-2.0 */
/* storage/cache/cache_i.h - the parts of a cache; for this layer only. */
#pragma once

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "memcached_i.h"
#include "rsh/storage/cache.h"
#include "rsh/storage/servers.h"

/* ---- the file of a block in the directory (block_file.c) ----
 *
 * All numbers are little-endian:
 *
 *    0  "rshblk3\n"
 *    8  identity of the source file: device, inode, size, seconds and
 *       nanoseconds of its mtime, epoch, step, state; 8 bytes each
 *   72  offset of the block in the source file, 8 bytes
 *   80  length of the block, 8 bytes
 *   88  number of bytes after the header, 8 bytes: the length of the block,
 *       or less if it is compressed
 *   96  xxh3 of the bytes after the header, 8 bytes
 *  104  xxh3 of bytes 0 to 103, 8 bytes
 *  112  the content, or the result of rsh_pack()
 */

#define RSH_BLOCK_MAX (UINT32_C(4) << 20)
#define RSH_BLOCK_FILE_HEADER 112

/* A key identifies a block: blocks with equal keys have the same content. */
struct rsh_block_key {
	struct rsh_cache_file_id file;
	uint64_t offset;
	uint32_t len;
};

/* A file's name is 32 hexadecimal digits and a suffix. */
#define RSH_BLOCK_FILE_SUFFIX ".blk"
#define RSH_BLOCK_FILE_NAME_MAX (32 + sizeof(RSH_BLOCK_FILE_SUFFIX))

void rsh_block_file_name(const struct rsh_block_key *key,
			 char name[RSH_BLOCK_FILE_NAME_MAX]);
bool rsh_block_file_is_name(const char *name);

/* Makes the header for n bytes. */
void rsh_block_file_header(const struct rsh_block_key *key,
			   const void *bytes, uint32_t n,
			   uint8_t header[RSH_BLOCK_FILE_HEADER]);
/* Returns whether the header and n bytes are those that were written for the
 * key. */
bool rsh_block_file_check(const uint8_t header[RSH_BLOCK_FILE_HEADER],
			  const struct rsh_block_key *key,
			  const void *bytes, uint32_t n);

/* ---- the value of a block on a server (value.c) ----
 *
 * The name of a value is printable: "rsh2-", four bytes that distinguish keys
 * of --cache-key-file, "-", and the 16 bytes of the digest.  The bytes are in
 * hexadecimal digits.  All numbers are little-endian:
 *
 *    0  HMAC-SHA256 of all bytes after it; without a key their 128 bits of
 *       xxh3, and zeros
 *   32  "rshval2\n"
 *   40  digest of the block's key, 16 bytes
 *   56  length of the block, 8 bytes
 *   64  the content, to the end, or the result of rsh_pack() if that is
 *       shorter
 *
 * The number after "rsh" changes when names are distributed to servers in
 * another way, so that no program waits for a value on a server where another
 * program does not store it.
 *
 * A name without a block may have a lease as its value: the node that stored it
 * is loading the block.
 */

#define RSH_VALUE_HEADER 64
#define RSH_VALUE_DIGEST 16
#define RSH_VALUE_NAME_MAX 48
#define RSH_VALUE_LEASE "rshlease"

struct rsh_value_key {
	uint8_t *bytes; /* NULL: no key */
	size_t n;
	uint8_t print[4];
};

/* Reads the file; without a path (NULL) makes an empty key.  Returns 0, or
 * -errno with a sentence. */
int rsh_value_key_read(const char *path, struct rsh_value_key *out,
		       struct rsh_error *err);
void rsh_value_key_clear(struct rsh_value_key *key);

/* Makes the digest of a block.  `file` is the name of its file on all nodes,
 * and `words` identify the block. */
void rsh_value_digest(const uint64_t file[2], const uint64_t words[5],
		      uint8_t digest[RSH_VALUE_DIGEST]);
void rsh_value_name(const struct rsh_value_key *key,
		    const uint8_t digest[RSH_VALUE_DIGEST],
		    char name[RSH_VALUE_NAME_MAX]);

/* Fills in the header of a value of a block of `len` bytes, which has `stored`
 * bytes after the header. */
void rsh_value_seal(const struct rsh_value_key *key,
		    const uint8_t digest[RSH_VALUE_DIGEST], uint8_t *value,
		    uint32_t stored, uint32_t len);
/* Returns whether these n bytes are the value of this block as it was
 * sealed. */
bool rsh_value_check(const struct rsh_value_key *key,
		     const uint8_t digest[RSH_VALUE_DIGEST],
		     const uint8_t *value, size_t n, uint32_t len);

/* Address space is mapped for this many blocks at a time. */
#define RSH_SLAB_BLOCKS 16

/* ---- blocks (memory.c) ---- */

enum rsh_block_state {
	RSH_BLOCK_FREE,    /* it has no part of a file */
	RSH_BLOCK_LOADING, /* its content is being loaded */
	RSH_BLOCK_PLAIN,
	RSH_BLOCK_FAILED,  /* the load failed; the block cannot be found */
};

/* A frame of memory and the block in it.  The cache's lock guards it, except
 * the bytes at `mem`: while the block is LOADING only the thread that loads it
 * uses them, and while it is PLAIN they do not change.
 *
 * The content in a frame may be compressed.  The uncompressed content is then
 * in another frame (the copy), or nowhere.  The copy of a block without users
 * is in a list and is evicted when memory is needed.  When a block is
 * compressed it and its copy exchange their memory, so pointers to the content
 * stay valid.
 */
struct rsh_cache_block {
	struct rsh_cache_block *hash_next;
	TAILQ_ENTRY(rsh_cache_block) list; /* the list that the block is in */
	uint8_t *mem;      /* block_bytes of address space */
	uint64_t number;   /* position in the file, in blocks */
	uint64_t last_use; /* the cache's clock when the last user released
			    * it */
	rsh_cache_file file;
	uint32_t refs;     /* users; with users the block is in no list */
	uint32_t resident; /* bytes at mem that count as memory */
	uint32_t len;      /* bytes of the content */
	uint32_t handed;   /* bytes that were read, at most len */
	uint32_t packed;   /* size of the compressed content at mem; 0: mem has
			    * the content uncompressed.  Once it is not 0,
			    * packed and mem do not change */
	struct rsh_cache_block *copy; /* the copy of a compressed block, and the
				       * block of a copy; NULL: none */
	int error;         /* FAILED: positive errno */
	uint8_t state;
	bool spent;
	bool untouched;    /* its memory counts, but is not resident yet */
};

/* A list has its oldest block first. */
struct rsh_block_list {
	TAILQ_HEAD(rsh_block_queue, rsh_cache_block) blocks;
	uint32_t n;
};

/* Initializes all lists of a cache. */
void rsh_lists_init(struct rsh_cache *c);

/* ---- files (files.c) ---- */

struct rsh_file_table {
	struct rsh_cache_file_id *files;
	uint64_t (*shared)[2]; /* names of the files on all nodes; zeros: not
				* shared; NULL: there are no servers */
	uint32_t n, cap;
	uint32_t *slots; /* number of the file plus 1; 0: empty */
	uint32_t n_slots;
};

void rsh_file_table_clear(struct rsh_file_table *t);

/* ---- threads of the cache (worker.c) ---- */

/* A thread that does one kind of work when it is woken.  The cache's lock
 * guards it. */
struct rsh_worker {
	struct rsh_cache *cache;
	/* Does one piece of the work and returns true, or returns false if
	 * there is none.  The lock is held, and released meanwhile. */
	bool (*step)(struct rsh_cache *c);
	pthread_cond_t wake, idle;
	pthread_t thread;
	bool started, failed; /* failed: no thread could be started */
	bool pending;         /* there may be work */
	bool stop;
};

/* Prepares a worker without starting its thread.  Returns 0 or -errno. */
int rsh_worker_init(struct rsh_worker *w, struct rsh_cache *c,
		    bool (*step)(struct rsh_cache *c));
/* Finishes the work and ends the worker.  The lock is not held. */
void rsh_worker_destroy(struct rsh_worker *w);
/* Wakes the worker, and starts its thread at the first call.  Returns false if
 * there is no thread.  The lock is held. */
bool rsh_worker_kick(struct rsh_worker *w);
/* Waits until there is no work.  The lock is held, and released meanwhile. */
void rsh_worker_settle(struct rsh_worker *w);

/* ---- what is compressed (pack.c) ---- */

/* Whether blocks of a tensor are compressible.  Two tensors may have the same
 * entry; the later one replaces the earlier one. */
struct rsh_verdict {
	uint32_t tag; /* identifies the tensor, with rare collisions */
	uint8_t left; /* number of blocks before the next sample */
	bool missed;  /* the last sample was not compressible */
};

/* ---- the cache ---- */

struct rsh_disk;
struct rsh_shared;

/* Threads that wait for loads are distributed over this many conditions, by
 * block. */
#define RSH_WAIT_CONDITIONS 16

struct rsh_cache {
	/* These do not change. */
	uint32_t block_bytes, page_bytes;
	unsigned block_shift;
	uint32_t n_heads; /* a power of two */
	uint32_t max_slabs;
	bool compress;
	rsh_cache_kind_fn kind;
	struct rsh_disk *disk; /* NULL: none */
	struct rsh_shared *shared; /* NULL: there are no servers */

	pthread_mutex_t lock; /* guards all below */
	pthread_cond_t loaded[RSH_WAIT_CONDITIONS];
	uint64_t clock;
	struct rsh_cache_block **heads;
	struct rsh_cache_slab *slabs;
	uint32_t n_slabs;
	struct rsh_block_list spent, plain;
	struct rsh_block_list warm; /* free blocks with all of their memory */
	struct rsh_block_list cold; /* free blocks without memory */
	struct rsh_block_list copies; /* of compressed blocks without users */
	struct rsh_verdict *verdicts; /* as many entries as heads */
	struct rsh_file_table files;

	uint32_t n_in_use;    /* blocks with users */
	uint64_t bound;       /* bytes; rsh_cache_cede() lowers it */
	uint64_t used;        /* bytes, <= bound */
	uint64_t bookkeeping; /* the part of `used` that is not for blocks */
	uint64_t plain_bytes; /* the part of `used` that is for blocks */
	uint64_t held_bytes;  /* content of blocks in the table, uncompressed */
	uint32_t n_packed;
	struct rsh_cache_stats stats; /* only its counters are used */
};

/* Returns whether blocks of the file are stored in the directory.  The lock is
 * held. */
static inline bool rsh_file_is_on_disk(const struct rsh_cache *c,
				       rsh_cache_file file)
{
	return c->disk && !c->files.files[file].memory_only;
}

/* The lock is held in all of these functions except rsh_memory_clear(). */

/* Counts `bytes` of bookkeeping, and evicts blocks if needed; it may release
 * the lock meanwhile.  Returns false if there is not enough memory. */
bool rsh_cache_charge(struct rsh_cache *c, uint64_t bytes);
void rsh_cache_discharge(struct rsh_cache *c, uint64_t bytes);
/* Returns a free block with memory for `len` bytes, in no list and without
 * users, or NULL if there is no memory.  It may evict blocks and release the
 * lock meanwhile. */
struct rsh_cache_block *rsh_block_take(struct rsh_cache *c, uint32_t len);
/* Makes a block free.  It keeps its memory if this is a complete frame.
 * Otherwise the lock is released meanwhile. */
void rsh_block_give(struct rsh_cache *c, struct rsh_cache_block *b);
/* Stores the compressed content of n bytes for a PLAIN block that the caller
 * uses.  It does so if there is memory, the compressed content needs less
 * memory, and compression is on.  It may release the lock. */
void rsh_block_keep_packed(struct rsh_cache *c, struct rsh_cache_block *b,
			   const uint8_t *packed, uint32_t n);
/* Returns how many bytes a PLAIN block has at `mem`. */
static inline uint32_t rsh_block_stored(const struct rsh_cache_block *b)
{
	return b->packed ? b->packed : b->len;
}
/* Returns the uncompressed content of a block, or NULL if there is only the
 * compressed one.  It stays valid while the caller uses the block. */
const uint8_t *rsh_block_content(const struct rsh_cache_block *b);
/* Returns the key of a block, which is the same in memory and in the
 * directory. */
struct rsh_block_key rsh_block_key_of(const struct rsh_cache *c,
				      const struct rsh_cache_block *b);
/* Reduces the memory of a block from rsh_block_take() to what `len` bytes need,
 * and makes it resident.  It may release the lock. */
void rsh_block_fit(struct rsh_cache *c, struct rsh_cache_block *b,
		   uint32_t len);
/* Returns the block at a position of a file, or NULL. */
struct rsh_cache_block *rsh_block_find(struct rsh_cache *c,
				       rsh_cache_file file, uint64_t number);
void rsh_block_insert(struct rsh_cache *c, struct rsh_cache_block *b,
		      rsh_cache_file file, uint64_t number, uint32_t len);
/* Add a user to the block, or remove a user that read `used` bytes.  If the
 * last user of a FAILED block is removed the lock may be released. */
void rsh_block_ref(struct rsh_cache *c, struct rsh_cache_block *b);
void rsh_block_unref(struct rsh_cache *c, struct rsh_cache_block *b,
		     uint64_t used);
/* Removes a user that did not read the block.  The block returns to its
 * position in its list. */
void rsh_block_unhold(struct rsh_cache *c, struct rsh_cache_block *b);
/* Sets the result of a load and wakes the threads that wait for it.  The caller
 * uses the block. */
void rsh_block_settle(struct rsh_cache *c, struct rsh_cache_block *b,
		      enum rsh_block_state state);

/* Frees all memory.  No block has users and no other call is in progress. */
void rsh_memory_clear(struct rsh_cache *c);

/* ---- blocks on servers (servers.c) ----
 *
 * No call fails or hangs: a request waits a bounded time for its server.  A
 * server that failed is not used for a while, and the other servers store its
 * blocks meanwhile.
 *
 * A block is stored on the server with the greatest hash of the names of server
 * and block, among the servers that have not failed; all nodes choose the same
 * server.  A server that hung has claims of nodes that no longer use it, so for
 * a while no node waits for a claim there (rsh_servers_is_doubtful()).
 */

#define RSH_SERVER_NONE UINT32_MAX

enum rsh_item_state {
	RSH_ITEM_WANTED,
	RSH_ITEM_FOUND, /* `content` has it */
	RSH_ITEM_FREE,  /* the server does not have it */
	RSH_ITEM_OURS,  /* like FREE, and this node has claimed it */
	RSH_ITEM_TAKEN, /* another node has claimed it */
	RSH_ITEM_ALONE, /* no server is used for it */
};

/* A block in a lookup. */
struct rsh_item {
	uint8_t digest[RSH_VALUE_DIGEST];
	char name[RSH_VALUE_NAME_MAX];
	uint32_t server;
	enum rsh_item_state state;
	uint8_t *content;
	uint32_t len;
	uint32_t stored; /* bytes after the header of its value */
	uint8_t *packed; /* the compressed bytes, from malloc; NULL: the value
			  * is uncompressed, or memory is exhausted */
	bool refused;    /* the value was damaged or forged */
};

struct rsh_cache_servers {
	/* These do not change while there is a cache. */
	struct rsh_value_key key;
	unsigned timeout_ms;
	uint64_t retry_ns, wait_ns;
	uint32_t largest; /* bytes of a value */
	uint32_t n;
	struct rsh_cache_server *v; /* room for RSH_CACHE_SERVERS_MAX */

	pthread_mutex_t lock;
	pthread_cond_t freed; /* a link is idle, or one more may be made */
	bool ready;           /* these two are */
};

/* Returns the server of a group of blocks; RSH_SERVER_NONE if all have
 * failed. */
uint32_t rsh_servers_pick(struct rsh_cache_servers *s, const uint64_t group[2]);

/* Returns whether the server failed recently: a node that has claimed a block
 * there may no longer use the server and will not store the block. */
bool rsh_servers_is_doubtful(struct rsh_cache_servers *s, uint32_t server);

/* ---- servers.c for shared.c ---- */

/* Makes a request by a link and returns 0 or a positive errno.  It may be
 * called twice. */
typedef int rsh_link_request_fn(struct rsh_link *l, void *ctx);

/* Makes a request, and repeats it if the server has closed an idle link, as
 * after a restart.  Returns 0 or a positive errno; EAGAIN if no request was
 * sent. */
int rsh_servers_request(struct rsh_cache_servers *s, uint32_t server,
			rsh_link_request_fn *fn, void *ctx);

/* Returns whether this result counts as a failure of the server. */
static inline bool rsh_request_failed(int code)
{
	return code && code != EAGAIN && code != EEXIST && code != ENOSPC;
}

/* Notes whether the server returned a correct value. */
void rsh_servers_judge(struct rsh_cache_servers *s, uint32_t server, bool good);

/* ---- the directory of a cache (disk.c) ----
 *
 * Each block is a file (block_file.c) in this one directory.  Files are
 * created by rename and are not changed, except their mtime, which is the time
 * of the last use of the block.  So processes that share the directory need no
 * lock.  A process that is killed leaves at most a file with a temporary name.
 * A scan of the directory removes it when it is ten minutes old.
 *
 * Nothing in the directory is trusted.  A block file has its complete key and
 * hashes over all bytes, links are not followed, and files that do not match
 * are removed.  So there is no index and no fsync.  Written bytes are dropped
 * from the page cache, because data loaders count free memory without it.
 * Blocks that arrive faster than the disk can write are not written.
 */

/* At most this many blocks wait to be written, and at most this part of the
 * memory, because they cannot be evicted meanwhile. */
#define RSH_DISK_QUEUE 32
#define RSH_DISK_QUEUE_PART 8

struct rsh_disk {
	/* These do not change. */
	char *path;
	int fd; /* the directory; disk_reopen() may replace it */
	uint64_t bound;
	uint64_t retry_ns;
	uint64_t (*clock_ns)(void);

	/* The directory is not used until these times of that clock. */
	_Atomic uint64_t reads_off_until, writes_off_until;
	atomic_bool complained; /* since the directory last worked */

	/* Only the writer uses these. */
	bool was_off;
	bool looked;         /* total is known */
	uint64_t total;      /* bytes of all files, as far as known */
	uint64_t since_look; /* bytes written since the last scan */
	uint64_t n_temp;

	/* The cache's lock guards these. */
	struct rsh_worker writer;
	pthread_cond_t taken; /* the writer has taken a block of the queue */
	struct rsh_cache_block *queue[RSH_DISK_QUEUE];
	uint32_t head, n, max;
	bool stuck; /* one has waited in vain since the writer took a block */
};

/* Opens or makes the directory of the options.  Returns 0, or -errno with a
 * sentence. */
int rsh_disk_open(struct rsh_cache *c, const struct rsh_cache_options *opts,
		  struct rsh_error *err);
/* Writes the blocks that wait, ends the writer and closes the directory. */
void rsh_disk_close(struct rsh_cache *c);

enum rsh_disk_found {
	RSH_DISK_MISS,
	RSH_DISK_HIT,
	RSH_DISK_REJECTED, /* there was a file, but it did not match */
	RSH_DISK_ERROR,
};

/* Reads a block into `content`, which is undefined unless it is a hit.  If the
 * file is compressed, *packed has its n compressed bytes; the caller frees
 * it. */
enum rsh_disk_found rsh_disk_read(struct rsh_disk *d,
				  const struct rsh_block_key *key,
				  uint8_t *content, uint8_t **packed,
				  uint32_t *n);
/* Queues the block, which has a user, for the writer.  Drops it if too many
 * blocks wait; `patient`: only if that lasts for a second.  While the directory
 * hangs, one thread waits once.  The lock is held, and given up meanwhile. */
void rsh_disk_enqueue(struct rsh_cache *c, struct rsh_cache_block *b,
		      bool patient);

/* ---- blocks that nodes share by servers (shared.c) ----
 *
 * A block that is neither in memory nor in the directory is looked up on its
 * server.  If the server does not have it, the node claims it there, loads it
 * and stores it.  Other nodes wait for this a bounded time and then load the
 * block themselves.  A node waits for other nodes only when it has loaded all
 * that it has claimed, so nodes cannot wait for each other in a circle.
 */

/* At most this many blocks wait to be stored, and at most this part of the
 * memory; at most this many claims wait to be removed. */
#define RSH_SHARED_QUEUE 64
#define RSH_SHARED_QUEUE_PART 8

struct rsh_shared_job {
	struct rsh_cache_block *block; /* NULL: the claim is removed */
	const uint8_t *bytes;          /* the stored form of the block */
	struct rsh_item item;
};

struct rsh_shared {
	struct rsh_cache_servers *servers;
	bool is_mine; /* the servers are freed with the cache */
	uint8_t *value; /* only the worker uses it */

	/* The cache's lock guards these. */
	struct rsh_worker writer;
	struct rsh_shared_job queue[RSH_SHARED_QUEUE];
	uint32_t head, n, n_blocks, max_blocks;
	uint64_t wait_ns; /* how long to wait for a block */
	uint64_t cut_ns;  /* when this was last reduced */
};

/* Opens the servers of the options, or uses those that are open.  Returns 0, or
 * -errno with a sentence. */
int rsh_shared_open(struct rsh_cache *c, const struct rsh_cache_options *opts,
		    struct rsh_error *err);
/* Stores the blocks that wait, and ends the writer. */
void rsh_shared_close(struct rsh_cache *c);

/* The lookup of the blocks of one fill on servers. */
struct rsh_lookup {
	struct rsh_cache_block *blocks[RSH_CACHE_LOAD_IOV];
	struct rsh_item items[RSH_CACHE_LOAD_IOV];
	uint64_t file[2]; /* name of the file on all nodes */
	unsigned n, n_found;
	unsigned errors, rejected; /* requests that failed and values that were
				    * refused, which are not counted yet */
	uint64_t since, until, pause; /* times of the wait; 0: it has not
				       * begun */
};

/* The lock is held in all functions below, and released meanwhile. */

/* Looks up those of the blocks of one file that are LOADING, and settles those
 * that are found; claims the others if possible. */
void rsh_lookup_begin(struct rsh_cache *c, struct rsh_cache_block **blocks,
		    unsigned n, struct rsh_lookup *h);
/* Returns whether this thread has to load the block now. */
bool rsh_lookup_is_ours(const struct rsh_lookup *h,
		      const struct rsh_cache_block *b);
/* Called when the block has been settled after a load that succeeded (good) or
 * failed. */
void rsh_lookup_loaded(struct rsh_cache *c, struct rsh_lookup *h,
		     struct rsh_cache_block *b, bool good);
/* When all other blocks are loaded, waits for a block that another node has
 * claimed, until it is stored, and then settled, or has to be loaded here.
 * Returns false if there is none left.  With `hasten` it does not wait. */
bool rsh_lookup_wait(struct rsh_cache *c, struct rsh_lookup *h, bool hasten);
