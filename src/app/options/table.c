/* SPDX-License-Identifier: Apache-2.0 */
/* app/options/table.c holds the table of options, below the headings that --help
 * prints. */
#include "config.h"

#include "rsh/app/table.h"

#include <limits.h>

#include "set_i.h"

#define ALL RSH_IN_ALL
#define MOUNT RSH_IN(RSH_COMMAND_MOUNT)
/* These commands take what a conversion is made of, and which files of SOURCE
 * it takes. */
#define CONVERSIONS                                                  \
	(MOUNT | RSH_IN(RSH_COMMAND_LS) | RSH_IN(RSH_COMMAND_PLAN) | \
	 RSH_IN(RSH_COMMAND_EXPORT) | RSH_IN(RSH_COMMAND_VERIFY) |   \
	 RSH_IN(RSH_COMMAND_LIBRARY))
#define EXPORT RSH_IN(RSH_COMMAND_EXPORT)
/* These go through all bytes of a tree. */
#define WORKS (EXPORT | RSH_IN(RSH_COMMAND_VERIFY))
/* These read content. */
#define READS                                                         \
	(MOUNT | RSH_IN(RSH_COMMAND_EXPORT) | RSH_IN(RSH_COMMAND_VERIFY) | \
	 RSH_IN(RSH_COMMAND_LIBRARY))
/* A form of `strategy` takes the option, and so does `strategy` itself. */
#define FORM(id) (RSH_IN(RSH_COMMAND_STRATEGY) | RSH_IN(id))
#define SHOW FORM(RSH_COMMAND_SHOW)
#define MERGE FORM(RSH_COMMAND_MERGE)
#define CHECK FORM(RSH_COMMAND_CHECK)
#define DERIVE FORM(RSH_COMMAND_DERIVE)
#define INFER FORM(RSH_COMMAND_INFER)
/* The same of `convert`. */
#define TABLE_FORM(id) (RSH_IN(RSH_COMMAND_CONVERT) | RSH_IN(id))
#define TABLES TABLE_FORM(RSH_COMMAND_TABLES)
#define TABLE_CHECK TABLE_FORM(RSH_COMMAND_TABLE_CHECK)
/* These have more to tell than whether they succeeded. */
#define PRINTS                                                     \
	(RSH_IN(RSH_COMMAND_LS) | RSH_IN(RSH_COMMAND_PLAN) |       \
	 RSH_IN(RSH_COMMAND_EXPORT) | RSH_IN(RSH_COMMAND_VERIFY) | \
	 RSH_IN(RSH_COMMAND_WARM) | RSH_IN(RSH_COMMAND_STATS) |    \
	 SHOW | CHECK | INFER | TABLES | TABLE_CHECK)
/* These take files of a SOURCE. */
#define TREES (CONVERSIONS | CHECK | DERIVE | INFER | TABLE_CHECK)

/* In --help the options that follow belong to the heading. */
#define HEADING(text) { .help = text }
/* libfuse and the kernel understand it, and mount(8) tells what it does. */
#define MOUNT8(name, arg) \
	{ name, 0, arg, MOUNT, "", rsh_set_mount_opt, .bare = true }
#define AT(member)                                  \
	.at = offsetof(struct rsh_options, member), \
	.size = sizeof(((struct rsh_options *)0)->member)

static const unsigned yes_no[] = { true, false };
static const unsigned casts[] = {
	RSH_DTYPE_BFLOAT16, RSH_DTYPE_FLOAT16, RSH_DTYPE_FLOAT32,
};

static const struct rsh_option table[] = {
	HEADING("What it is made of"),
	{ "src-strategy", 0, "PATH|none", CONVERSIONS | CHECK | TABLE_CHECK,
	  "the strategy SOURCE was trained under, unless it says that itself",
	  rsh_set_strategy,
	  .converts = true, .opens_links = true, AT(vfs.src.path),
	  .first = true },
	{ "dst-strategy", 0, "PATH|none", CONVERSIONS,
	  "the strategy it is wanted in", rsh_set_strategy, .converts = true,
	  .opens_links = true, AT(vfs.dst.path), .first = true },
	{ "dst-mesh", 0, "MESH", CONVERSIONS,
	  "instead: derive it from the source's, for dp=2,mp=4[,pp=2]",
	  rsh_set_derive, .min = RSH_DERIVE_MESH, .converts = true,
	  .first = true },
	{ "convert", 0, "TABLE|auto", CONVERSIONS,
	  "between Hugging Face's and MindSpore's form of a model, as the "
	  "table says", rsh_set_string, .converts = true, .opens = true,
	  AT(vfs.weights.table), .first = true },
	{ "from", 0, "hf|mindspore", CONVERSIONS | TABLE_CHECK,
	  "the form that SOURCE has (its names tell)", rsh_set_word,
	  .min = 1 + RSH_SIDE_HF, .converts = true, AT(vfs.weights.from) },
	{ "config", 0, "FILE|DIR", CONVERSIONS | TABLE_CHECK,
	  "config.json of the model, or where it lies (SOURCE)",
	  rsh_set_config,
	  .converts = true, .opens = true, AT(vfs.weights.config) },
	{ "resume", 0, NULL, MOUNT,
	  "convert nothing, show each rank's newest whole checkpoint",
	  rsh_set_flag, AT(resume), .first = true },
	{ "dst-ranks", 0, "N", CONVERSIONS,
	  "ranks shown of a job without any strategy (1)", rsh_set_number,
	  AT(vfs.plan.n_shown_ranks), .min = 1, .max = 1000000,
	  .converts = true, .decides = rsh_digest_value },
	{ "group-info", 0, "PATH", CONVERSIONS,
	  "group_info.pb to hold against the strategy", rsh_set_string,
	  AT(vfs.group_info), .converts = true, .opens = true },

	HEADING("What strategy is told"),
	{ "output", 'o', "FILE", MERGE | DERIVE, "what merge and derive write",
	  rsh_set_path, AT(output), .first = true },
	{ "mesh", 0, "MESH", DERIVE, "derive for dp=2,mp=4[,pp=2][,ep=4]",
	  rsh_set_derive, .min = RSH_DERIVE_MESH, .first = true },
	{ "opt", 0, "-1|K", DERIVE,
	  "shard optimizers over all or K ranks (as the source)",
	  rsh_set_derive, .min = RSH_DERIVE_OPT, .first = true },
	{ "checkpoint", 0, "SOURCE", CHECK | DERIVE,
	  "a tree saved under the strategy, for shapes and order",
	  rsh_set_path, AT(checkpoint), .first = true, .is_source = true },
	{ "src-mesh", 0, "MESH", DERIVE,
	  "derive: the source's own mesh (found out)", rsh_set_derive,
	  .min = RSH_DERIVE_SRC_MESH },
	{ "split", 0, "REGEX=DIM:AXIS", DERIVE,
	  "derive: what is split over an axis, or none", rsh_set_derive,
	  .min = RSH_DERIVE_SPLIT },
	{ "axes", 0, "REGEX=AXIS,...", DERIVE,
	  "derive: what the axes of meshes are for", rsh_set_derive,
	  .min = RSH_DERIVE_AXES },
	{ "stage", 0, "REGEX=N|first|last", DERIVE,
	  "derive: what lies on which pipeline stage", rsh_set_derive,
	  .min = RSH_DERIVE_STAGE },
	{ "layers", 0, "N,N,...", DERIVE,
	  "derive: layers of each stage (the same number)", rsh_set_derive,
	  .min = RSH_DERIVE_LAYERS },
	{ "opt-include", 0, "REGEX", DERIVE,
	  "derive: optimizers shard these if they divide", rsh_set_derive,
	  .min = RSH_DERIVE_OPT_INCLUDE },
	{ "opt-exclude", 0, "REGEX", DERIVE,
	  "derive: optimizers never shard these", rsh_set_derive,
	  .min = RSH_DERIVE_OPT_EXCLUDE },

	HEADING("Which files of SOURCE"),
	{ "select", 0, "WHICH", TREES,
	  "of several checkpoints: newest (default), a step E_S, "
	  "step=N, mtime, name=GLOB, mindspore", rsh_set_select,
	  AT(vfs.files.select), .first = true },
	{ "breakpoint", 0, "include|only", TREES,
	  "*_breakpoint.ckpt count (where there is nothing else)",
	  rsh_set_word, .min = RSH_BREAKPOINTS_INCLUDE,
	  AT(vfs.files.breakpoints) },
	{ "fallbacks", 0, "N", CONVERSIONS,
	  "older steps to try if one is not whole (5)", rsh_set_number,
	  AT(vfs.fallbacks), .min = 0, .max = 1000000 },
	{ "rank-dir", 0, "TEMPLATE", TREES,
	  "where a rank's files lie below SOURCE; {rank} is its number",
	  rsh_set_string, AT(vfs.files.rank_dir), .converts = true },
	{ "file", 0, "TEMPLATE", TREES, "what their names are (*.ckpt)",
	  rsh_set_file, AT(vfs.files.file), .converts = true },
	{ "source-map", 0, "FILE.json", TREES,
	  "the file of each rank: {\"0\": \"path\", ...}", rsh_set_string,
	  AT(vfs.files.source_map), .converts = true, .opens = true },
	{ "follow-outside", 0, NULL, TREES,
	  "let links in SOURCE lead out of it", rsh_set_flag,
	  AT(vfs.files.store.follow_outside) },

	HEADING("What is doubtful or lost"),
	{ "check", 0, "sample|structure|full", CONVERSIONS,
	  "hold some contents (default), none or all and their CRCs against "
	  "the strategy", rsh_set_word, AT(vfs.files.check), .first = true },
	{ "replicas", 0, "auto|off", CONVERSIONS,
	  "make up for lost files from ranks that hold the same (auto)",
	  rsh_set_word, .values = yes_no, .converts = true,
	  AT(vfs.plan.replicas) },
	{ "allow-missing", 0, NULL, CONVERSIONS,
	  "take what can be had; files that need more give EIO", rsh_set_flag,
	  AT(vfs.plan.allow_missing),
	  .converts = true, .decides = rsh_digest_value, .first = true },

	HEADING("What is shown"),
	{ "format", 0, RSH_OUTPUT_WORDS, CONVERSIONS,
	  "form of what is shown (ckpt)", rsh_set_output, .converts = true,
	  .decides = rsh_digest_output, AT(vfs.output), .first = true },
	{ "part-size", 0, "SIZE", CONVERSIONS,
	  "with hf: bytes of a part at most (5GB)", rsh_set_size,
	  AT(vfs.plan.part_bytes), .min = 1,
	  .converts = true, .decides = rsh_digest_value },
	{ "model-files", 0, "DIR|none", CONVERSIONS,
	  "with hf: show the files of DIR, such as config.json, beside the "
	  "weights", rsh_set_model_files, .converts = true, .opens = true,
	  AT(vfs.model_files) },
	{ "optimizer", 0, "auto|keep", CONVERSIONS,
	  "with hf: leave out what is an optimizer's (auto), or keep it",
	  rsh_set_word, .converts = true, AT(vfs.keep_states) },
	{ "prefix", 0, "STR", CONVERSIONS,
	  "virtual files are rank_N/STRN.ckpt (checkpoint_)", rsh_set_prefix,
	  .converts = true, .decides = rsh_digest_text,
	  AT(vfs.tree.prefix) },
	{ "only", 0, "REGEX", CONVERSIONS | INFER,
	  "just parameters with such names", rsh_set_regex, AT(vfs.only),
	  .converts = true, .decides = rsh_digest_text },
	{ "drop", 0, "REGEX", CONVERSIONS | DERIVE | INFER,
	  "no parameters with such names", rsh_set_regex, AT(vfs.drop),
	  .converts = true, .decides = rsh_digest_text },
	{ "rename", 0, "FILE", CONVERSIONS,
	  "JSON of old and new parameter names", rsh_set_text,
	  AT(vfs.rename),
	  .converts = true, .decides = rsh_digest_file, .opens = true },
	{ "cast", 0, "bfloat16|float16|float32", CONVERSIONS,
	  "weights as such", rsh_set_word, .values = casts, .converts = true,
	  .decides = rsh_digest_value, AT(vfs.plan.cast) },
	{ "unlisted", 0, "copy|drop|error", CONVERSIONS | TABLE_CHECK,
	  "records that the destination does not list (copy)", rsh_set_word,
	  .converts = true, .decides = rsh_digest_value,
	  AT(vfs.plan.unlisted) },
	{ "remove-redundancy", 0, NULL, CONVERSIONS,
	  "each parameter with one rank of those that hold the same",
	  rsh_set_flag, AT(vfs.plan.remove_redundancy),
	  .converts = true, .decides = rsh_digest_value },
	{ "compat", 0, "mindspore", CONVERSIONS,
	  "the converter's bytes, also where they are wrong", rsh_set_word,
	  .converts = true, .decides = rsh_digest_value, .min = true,
	  AT(vfs.plan.compat) },

	HEADING("How it is done"),
	{ "foreground", 'f', NULL, MOUNT, "stay in the foreground",
	  rsh_set_flag, AT(foreground), .aside = true, .first = true },
	{ "stack", 0, NULL, MOUNT,
	  "mount once more where the same is mounted already", rsh_set_flag,
	  AT(stack), .aside = true },
	{ "sandbox", 0, "auto|off", MOUNT,
	  "give up what serving does not take (auto: as far as possible)",
	  rsh_set_word, AT(no_sandbox) },
	{ "debug", 'd', NULL, MOUNT, "log every request; implies -f",
	  rsh_set_debug, .aside = true },
	{ NULL, 'o', "OPT[,OPT...]", CONVERSIONS,
	  "any long option of these, with '_' for '-', as mount(8) has them",
	  rsh_set_list, .first = true },
	{ "jobs", 'j', "N", WORKS, "files at a time (as many as processors)",
	  rsh_set_number, AT(jobs), .min = 1, .max = 1000, .first = true },
	{ "verify", 0, NULL, EXPORT,
	  "read what was written, and compare its hash", rsh_set_flag,
	  AT(verify), .first = true },
	{ "overwrite", 0, NULL, WORKS,
	  "replace what is not of this conversion", rsh_set_flag,
	  AT(overwrite), .first = true },
	{ "share", 0, "I/N", EXPORT | RSH_IN(RSH_COMMAND_WARM),
	  "only what is share I, from 0 on, when N runs divide it",
	  rsh_set_share, .first = true },
	{ "manifest", 0, "PATH", EXPORT,
	  "where the manifest goes (OUTDIR/reshardfs-manifest.jsonl)",
	  rsh_set_path, AT(manifest), .first = true },
	{ "write-manifest", 0, "PATH", RSH_IN(RSH_COMMAND_VERIFY),
	  "write a manifest of what a mount would show", rsh_set_path,
	  AT(write_manifest), .first = true },
	{ "lazy", 'z', NULL, RSH_IN(RSH_COMMAND_UMOUNT),
	  "also if it is in use: gone from the tree now, ended later",
	  rsh_set_flag, AT(lazy) },
	{ "force", 0, NULL, RSH_IN(RSH_COMMAND_UMOUNT),
	  "also if SOURCE hangs: readers get errors, the daemon ends",
	  rsh_set_flag, AT(force) },
	{ "rank-list", 0, NULL, RSH_IN(RSH_COMMAND_PLAN),
	  "print the lists of rank_list_for_transform; SOURCE is not read",
	  rsh_set_flag, AT(rank_list), .first = true },
	{ "slices", 0, NULL, RSH_IN(RSH_COMMAND_PLAN),
	  "with --json: where all bytes lie, and how tensors are cut",
	  rsh_set_flag, AT(slices) },
	{ "contents", 'c', NULL, RSH_IN(RSH_COMMAND_WARM),
	  "read the files whole, so that caches are filled", rsh_set_flag,
	  AT(contents) },
	{ "jobs", 'j', "N", RSH_IN(RSH_COMMAND_WARM),
	  "files that are read at a time (4)", rsh_set_number, AT(jobs),
	  .min = 1, .max = 64 },

	HEADING("How SOURCE is read"),
	{ "io-mode", 0, "auto|passthrough|direct|cached", MOUNT,
	  "how the kernel reads: from SOURCE where it can, past the page "
	  "cache of the mount, or through it (auto)", rsh_set_word,
	  AT(io_mode) },
	{ "index-cache", 0, "DIR|off", CONVERSIONS,
	  "where the next one finds the headers of SOURCE's files",
	  rsh_set_index_cache },
	{ "cache", 0, "auto|on|off", READS,
	  "keep blocks of SOURCE (auto: if the kernel does not)",
	  rsh_set_word, AT(io.caching) },
	{ "cache-size", 0, "SIZE|N%", READS,
	  "memory for blocks (1GiB, at most a tenth of the memory)",
	  rsh_set_memory, AT(io.cache.memory_bytes) },
	{ "cache-compress", 0, "auto|off", READS,
	  "compress blocks of tensors that shrink by a quarter (auto)",
	  rsh_set_word, AT(io.cache.compress) },
	{ "cache-dir", 0, "DIR", READS,
	  "keep blocks of a slow SOURCE on this local disk as well",
	  rsh_set_path, AT(io.cache.dir) },
	{ "cache-disk-size", 0, "SIZE", READS,
	  "what they may take there (16GiB)", rsh_set_size,
	  AT(io.cache.disk_bytes) },
	{ "cache-servers", 0, "HOST[:PORT],...", READS,
	  "share blocks with other nodes through these servers (memcached)",
	  rsh_set_servers, AT(io.cache.servers.list) },
	{ "cache-key-file", 0, "FILE", READS,
	  "with this key nobody else can put wrong blocks there",
	  rsh_set_path, AT(io.cache.servers.key_file) },
	{ "keep-free", 0, "SIZE|N%", READS,
	  "memory below which pages of SOURCE are given back early",
	  rsh_set_memory, AT(keep_free) },
	{ "readahead", 0, "N", MOUNT | WORKS,
	  "MiB of SOURCE read at a time at most (16; fewer if that is faster)",
	  rsh_set_number, AT(readahead), .min = 1, .max = 16 },
	{ "source-requests", 0, "N", TREES,
	  "of s3:// and https://: requests under way at a time (64)",
	  rsh_set_number, AT(objects.requests), .min = 1, .max = 4096 },
	{ "source-timeout", 0, "SECONDS", TREES,
	  "of s3:// and https://: how long a read tries with "
	  "nothing coming (60)",
	  rsh_set_seconds, AT(objects.timeout_ms), .min = 1, .max = 86400 },
	{ "source-keys", 0, "auto|none|instance", TREES,
	  "of s3://: sign with keys of the environment or a profile (auto), "
	  "not at all, or with those that the machine is given",
	  rsh_set_word, AT(objects.keys) },
	{ "source-style", 0, "auto|path|host", TREES,
	  "of s3://: how the bucket stands in addresses (as the server wants)",
	  rsh_set_word, AT(objects.style) },
	{ "source-index", 0, "NAME", TREES,
	  "of https://: what lists the files there "
	  "(model.safetensors.index.json)", rsh_set_path, AT(objects.index) },
	{ "ca-file", 0, "FILE", TREES,
	  "certificates that servers of https are held against (the system's)",
	  rsh_set_path, AT(objects.ca_file) },
	{ "fault", 0, "FAULT[;FAULT...]", READS,
	  "for drills: let reads of SOURCE fail, wait, lie or come short",
	  rsh_set_faults, AT(io.faults) },

	HEADING("What is said"),
	{ "json", 0, NULL, PRINTS, "print JSON, for programs", rsh_set_flag,
	  AT(json), .first = true },
	{ "color", 0, "auto|always|never", PRINTS,
	  "colours (auto: on a terminal)", rsh_set_word, AT(color) },
	{ "log-to", 0, "stderr|syslog|journal|file:PATH", ALL,
	  "where the log goes (stderr; syslog for a daemon)", rsh_set_log_to,
	  .aside = true },
	{ "log-level", 0, "error|warning|notice|info|debug", ALL,
	  "how much is logged (notice)", rsh_set_word, .aside = true,
	  AT(log_level) },
	{ "quiet", 'q', NULL, ALL, "say nothing but what went wrong",
	  rsh_set_flag, AT(quiet), .aside = true },
	{ "version", 'V', NULL, ALL, "print the version", rsh_set_flag,
	  AT(version) },
	{ "help", 'h', NULL, ALL, "print the usual options", rsh_set_flag,
	  AT(help), .first = true },
	{ "help-all", 0, NULL, ALL, "print all options", rsh_set_flag,
	  AT(help_all), .first = true },

	HEADING("Mount options, for -o alone"),
	{ "allow_other", 0, NULL, MOUNT, "other users may look in",
	  rsh_set_mount_opt, .bare = true },
	{ "allow_root", 0, NULL, MOUNT, "root may look in", rsh_set_mount_opt,
	  .bare = true },
	{ "auto_unmount", 0, NULL, MOUNT, "unmount when the daemon dies",
	  rsh_set_mount_opt, .bare = true },
	{ "holder", 0, "FD", MOUNT,
	  "unmount when all other ends of the pipe FD are closed",
	  rsh_set_number, .bare = true, AT(holder), .min = 3, .max = INT_MAX },
	{ "default_permissions", 0, NULL, MOUNT, "always so", rsh_set_nothing,
	  .bare = true, .aside = true },
	{ "ro", 0, NULL, MOUNT, "always so", rsh_set_nothing, .bare = true,
	  .aside = true },
	{ "rw", 0, NULL, MOUNT, "refused", rsh_refuse_rw, .bare = true },
	{ "fsname", 0, "NAME", MOUNT, "device shown by df (SOURCE)",
	  rsh_set_text, .bare = true, AT(fsname) },
	{ "subtype", 0, "NAME", MOUNT, "type shown is fuse.NAME (reshardfs)",
	  rsh_set_text, .bare = true, AT(subtype) },
	{ "max_read", 0, "BYTES", MOUNT, "longest read request", rsh_set_number,
	  .bare = true, AT(max_read), .min = 4096, .max = UINT_MAX },
	{ "max_threads", 0, "N", MOUNT, "reads at a time, if they are stuck",
	  rsh_set_number, .bare = true, AT(max_threads), .min = 1,
	  .max = 100000 },
	{ "max_idle_threads", 0, "N", MOUNT, "threads that serve requests",
	  rsh_set_number, .bare = true, AT(max_idle_threads), .min = 1,
	  .max = 100000 },
	{ "clone_fd", 0, NULL, MOUNT, "has no effect", rsh_set_nothing,
	  .bare = true, .aside = true },

	HEADING("Mount options of mount(8), for -o alone"),
	MOUNT8("suid", NULL), MOUNT8("nosuid", NULL), MOUNT8("dev", NULL),
	MOUNT8("nodev", NULL), MOUNT8("exec", NULL), MOUNT8("noexec", NULL),
	MOUNT8("atime", NULL), MOUNT8("noatime", NULL), MOUNT8("sync", NULL),
	MOUNT8("async", NULL), MOUNT8("dirsync", NULL),
	MOUNT8("context", "CONTEXT"), MOUNT8("fscontext", "CONTEXT"),
	MOUNT8("defcontext", "CONTEXT"), MOUNT8("rootcontext", "CONTEXT"),
};

const struct rsh_option *rsh_option_table(size_t *n)
{
	*n = sizeof(table) / sizeof(table[0]);
	return table;
}
