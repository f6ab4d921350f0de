/* SPDX-License-Identifier: Apache-2.0 */
/* storage/store/options.c has the options of caches and faults. */
#include "config.h"

#include "rsh/storage/io.h"

#define AT(member) RSH_OPTION_AT(struct rsh_store_io_options, member)

const struct rsh_option rsh_store_io_rows[] = {
	{ "cache", "auto|on|off",
	  "cache blocks of SOURCE (default: auto, if the kernel does not "
	  "cache them)", rsh_set_word, AT(caching) },
	{ "cache-size", "SIZE|N%",
	  "memory for cached blocks (default: 1GiB, at most 10% of the memory)",
	  rsh_set_size, AT(cache.memory_bytes) },
	{ "cache-compress", "auto|off",
	  "compress cached blocks that shrink by a quarter (default: auto)",
	  rsh_set_word, AT(cache.compress) },
	{ "cache-dir", "DIR",
	  "cache blocks of a slow SOURCE in this directory on a local disk as "
	  "well", rsh_set_text, AT(cache.dir) },
	{ "cache-disk-size", "SIZE",
	  "disk space for --cache-dir (default: 16GiB)", rsh_set_size,
	  AT(cache.disk_bytes) },
	{ "cache-servers", "HOST[:PORT],...",
	  "memcached servers that share cached blocks between nodes (default "
	  "port: 11211)", rsh_set_text, AT(cache.servers.list),
	  .check = rsh_cache_servers_check },
	{ "cache-key-file", "FILE",
	  "file with a key that authenticates blocks on --cache-servers",
	  rsh_set_text, AT(cache.servers.key_file) },
	{ "fault", "FAULT[;FAULT...]",
	  "inject read errors, delays or wrong data, for tests", rsh_set_text,
	  AT(faults), .check = rsh_faults_check },
	{ .name = NULL },
};
