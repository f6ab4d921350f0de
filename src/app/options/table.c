/* SPDX-License-Identifier: Apache-2.0 */
/* app/options/table.c has the table of options, below the headings that
 * --help-all prints. */
#include "config.h"

#include "rsh/app/table.h"

#include <limits.h>

#include "rsh/copy/copy.h"
#include "set_i.h"

#define ALL RSH_IN_ALL
#define MOUNT RSH_IN(RSH_COMMAND_MOUNT)
/* These commands take the options of a conversion, and those that choose files
 * of SOURCE. */
#define CONVERSIONS                                                  \
	(MOUNT | RSH_IN(RSH_COMMAND_LS) | RSH_IN(RSH_COMMAND_PLAN) | \
	 RSH_IN(RSH_COMMAND_EXPORT) | RSH_IN(RSH_COMMAND_VERIFY) |   \
	 RSH_IN(RSH_COMMAND_LIBRARY))
#define EXPORT RSH_IN(RSH_COMMAND_EXPORT)
/* These commands process all bytes of a tree. */
#define WORKS (EXPORT | RSH_IN(RSH_COMMAND_VERIFY))
/* These commands read content. */
#define READS                                                         \
	(MOUNT | RSH_IN(RSH_COMMAND_EXPORT) | RSH_IN(RSH_COMMAND_VERIFY) | \
	 RSH_IN(RSH_COMMAND_LIBRARY))
/* The option is for a form of `strategy`, and so for `strategy` itself. */
#define FORM(id) (RSH_IN(RSH_COMMAND_STRATEGY) | RSH_IN(id))
#define SHOW FORM(RSH_COMMAND_SHOW)
#define MERGE FORM(RSH_COMMAND_MERGE)
#define CHECK FORM(RSH_COMMAND_CHECK)
#define DERIVE FORM(RSH_COMMAND_DERIVE)
#define INFER FORM(RSH_COMMAND_INFER)
/* The option is for a form of `convert`, and so for `convert` itself. */
#define TABLE_FORM(id) (RSH_IN(RSH_COMMAND_CONVERT) | RSH_IN(id))
#define TABLES TABLE_FORM(RSH_COMMAND_TABLES)
#define TABLE_CHECK TABLE_FORM(RSH_COMMAND_TABLE_CHECK)
/* These commands print more than success or failure. */
#define PRINTS                                                     \
	(RSH_IN(RSH_COMMAND_LS) | RSH_IN(RSH_COMMAND_PLAN) |       \
	 RSH_IN(RSH_COMMAND_EXPORT) | RSH_IN(RSH_COMMAND_VERIFY) | \
	 RSH_IN(RSH_COMMAND_WARM) | RSH_IN(RSH_COMMAND_STATS) |    \
	 RSH_IN(RSH_COMMAND_STEPS) |                               \
	 SHOW | CHECK | INFER | TABLES | TABLE_CHECK)
/* These commands read files of a SOURCE. */
#define TREES (CONVERSIONS | CHECK | DERIVE | INFER | TABLE_CHECK)

/* In --help the options after a heading belong to it. */
#define HEADING(text) { .help = text }
/* libfuse and the kernel interpret the option, and mount(8) documents it. */
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
	HEADING("Source and destination"),
	{ "src-strategy", 0, "PATH|none", CONVERSIONS | CHECK | TABLE_CHECK,
	  "strategy of SOURCE: file, directory, or none if not sharded "
	  "(required for rank files)", rsh_set_strategy, .converts = true,
	  .opens_links = true, AT(vfs.src.path), .first = true },
	{ "dst-strategy", 0, "PATH|none", CONVERSIONS,
	  "destination strategy: file, directory, or none for whole tensors "
	  "(required for rank files)", rsh_set_strategy, .converts = true,
	  .opens_links = true, AT(vfs.dst.path), .first = true },
	{ "dst-mesh", 0, "MESH", CONVERSIONS,
	  "destination strategy by mesh: dp=2,mp=4[,pp=2]", rsh_set_derive,
	  .min = RSH_DERIVE_MESH, .converts = true, .first = true },
	{ "convert", 0, "TABLE|auto", CONVERSIONS,
	  "convert Hugging Face weights to MindSpore or back by a rule table "
	  "(auto: by config.json)", rsh_set_string, .converts = true,
	  .opens = true, AT(vfs.weights.table), .first = true },
	{ "from", 0, "hf|mindspore", CONVERSIONS | TABLE_CHECK,
	  "form of the weights in SOURCE (default: detected from their names)",
	  rsh_set_word, .min = 1 + RSH_SIDE_HF, .converts = true,
	  AT(vfs.weights.from) },
	{ "config", 0, "FILE|DIR", CONVERSIONS | TABLE_CHECK,
	  "config.json of the model, or its directory (default: SOURCE)",
	  rsh_set_config, .converts = true, .opens = true,
	  AT(vfs.weights.config) },
	{ "dequantize", 0, "bfloat16|float16|float32",
	  CONVERSIONS | TABLE_CHECK,
	  "make quantised weights dense in this type (default: keep them "
	  "quantised)", rsh_set_word,
	  .values = casts, .converts = true, AT(vfs.weights.dequantise) },
	{ "vocab-multiple", 0, "N", CONVERSIONS | TABLE_CHECK,
	  "rows of the embedding and the head in MindSpore's form are padded "
	  "to a multiple of N (default: not padded)", rsh_set_number,
	  .min = 1, .max = 1u << 24, .converts = true,
	  AT(vfs.weights.vocab_multiple) },
	{ "untie", 0, NULL, CONVERSIONS | TABLE_CHECK,
	  "make the head from the embedding if SOURCE lacks it (default: heads "
	  "stay tied)", rsh_set_flag, .converts = true,
	  AT(vfs.weights.untie) },
	{ "lora", 0, "DIR[:SCALE]", CONVERSIONS,
	  "merge a PEFT adapter, times SCALE; may be given several times "
	  "(default: none)", rsh_set_lora, .converts = true },
	{ "lora-alpha", 0, "N", CONVERSIONS,
	  "merge the LoRA adapter that SOURCE has beside its weights, trained "
	  "with lora_alpha N (default: not merged)", rsh_set_number,
	  .min = 1, .max = 1u << 24, .converts = true,
	  AT(vfs.weights.lora_alpha) },
	{ "resume", 0, NULL, MOUNT,
	  "convert nothing; show the newest checkpoint that is complete on all "
	  "ranks", rsh_set_flag, AT(resume), .first = true },
	{ "steps", 0, "one|all", MOUNT,
	  "all: show every step of SOURCE in a directory, while a job saves "
	  "(default: one)", rsh_set_word, AT(steps), .first = true },
	{ "dst-ranks", 0, "N", CONVERSIONS,
	  "number of ranks to show if neither side has a strategy (default: 1)",
	  rsh_set_number, AT(vfs.plan.n_shown_ranks), .min = 1, .max = 1000000,
	  .converts = true, .decides = RSH_DECIDES_VALUE },
	{ "group-info", 0, "PATH", CONVERSIONS,
	  "group_info.pb to compare with --src-strategy (default: those in "
	  "SOURCE)", rsh_set_string, AT(vfs.group_info), .converts = true,
	  .opens = true },

	HEADING("Strategy files"),
	{ "output", 'o', "FILE", MERGE | DERIVE, "file to write", rsh_set_path,
	  AT(output), .first = true },
	{ "mesh", 0, "MESH", DERIVE, "mesh to derive: dp=2,mp=4[,pp=2][,ep=4]",
	  rsh_set_derive, .min = RSH_DERIVE_MESH, .first = true },
	{ "opt", 0, "-1|K", DERIVE,
	  "optimizer shard size: K ranks, -1 for all replicas, 0 for none "
	  "(default: as in STRATEGY)", rsh_set_derive, .min = RSH_DERIVE_OPT,
	  .first = true },
	{ "checkpoint", 0, "SOURCE", CHECK | DERIVE,
	  "checkpoint saved with STRATEGY: shapes and order of its parameters "
	  "are used", rsh_set_path, AT(checkpoint), .first = true,
	  .is_source = true },
	{ "src-mesh", 0, "MESH", DERIVE, "mesh of STRATEGY (default: detected)",
	  rsh_set_derive, .min = RSH_DERIVE_SRC_MESH },
	{ "split", 0, "REGEX=DIM:AXIS", DERIVE,
	  "split dimension DIM of these parameters over mesh axis AXIS, or "
	  "over none", rsh_set_derive, .min = RSH_DERIVE_SPLIT },
	{ "axes", 0, "REGEX=AXIS,...", DERIVE,
	  "mesh axes of these parameters, slowest first", rsh_set_derive,
	  .min = RSH_DERIVE_AXES },
	{ "stage", 0, "REGEX=N|first|last", DERIVE,
	  "pipeline stage of these parameters", rsh_set_derive,
	  .min = RSH_DERIVE_STAGE },
	{ "layers", 0, "N,N,...", DERIVE,
	  "number of layers in each stage (default: equal)", rsh_set_derive,
	  .min = RSH_DERIVE_LAYERS },
	{ "opt-include", 0, "REGEX", DERIVE,
	  "apply optimizer sharding to these parameters if it divides them",
	  rsh_set_derive, .min = RSH_DERIVE_OPT_INCLUDE },
	{ "opt-exclude", 0, "REGEX", DERIVE,
	  "do not apply optimizer sharding to these parameters", rsh_set_derive,
	  .min = RSH_DERIVE_OPT_EXCLUDE },

	HEADING("Files of SOURCE"),
	{ "select", 0, "WHICH", TREES,
	  "checkpoint: newest (default), mtime, mindspore, EPOCH_STEP, step=N "
	  "or name=GLOB", rsh_set_select, AT(vfs.files.select), .first = true },
	{ "breakpoint", 0, "include|only", TREES,
	  "use *_breakpoint.ckpt files as well, or only these (default: only "
	  "if there are no others)", rsh_set_word,
	  .min = RSH_BREAKPOINTS_INCLUDE, AT(vfs.files.breakpoints) },
	{ "fallbacks", 0, "N", CONVERSIONS,
	  "number of older checkpoints to try if the newest is incomplete "
	  "(default: 5)", rsh_set_number, AT(vfs.fallbacks), .min = 0,
	  .max = 1000000 },
	{ "rank-dir", 0, "TEMPLATE", TREES,
	  "directory of a rank below SOURCE, such as rank_{rank} (default: "
	  "detected)", rsh_set_string, AT(vfs.files.rank_dir),
	  .converts = true },
	{ "file", 0, "TEMPLATE", TREES,
	  "file names, such as net_{rank}-*.ckpt (default: *.ckpt or "
	  "*.safetensors)", rsh_set_file, AT(vfs.files.file),
	  .converts = true },
	{ "source-map", 0, "FILE.json", TREES,
	  "JSON file that names the file of each rank: {\"0\": \"path\", ...}",
	  rsh_set_string, AT(vfs.files.source_map), .converts = true,
	  .opens = true },
	{ "follow-outside", 0, NULL, TREES,
	  "follow symbolic links that lead out of SOURCE", rsh_set_flag,
	  AT(vfs.files.store.follow_outside) },

	HEADING("Checks and lost files"),
	{ "check", 0, "sample|structure|full", CONVERSIONS,
	  "compare SOURCE with the strategy: some contents, only headers, or "
	  "all contents and CRCs (default: sample)", rsh_set_word,
	  AT(vfs.files.check) },
	{ "replicas", 0, "auto|off", CONVERSIONS,
	  "if a file is lost or damaged: read the data from ranks that hold "
	  "the same, or fail (default: auto)", rsh_set_word, .values = yes_no,
	  .converts = true, AT(vfs.plan.replicas) },
	{ "allow-missing", 0, NULL, CONVERSIONS,
	  "if data is lost, fail only reads that need it", rsh_set_flag,
	  AT(vfs.plan.allow_missing), .converts = true,
	  .decides = RSH_DECIDES_VALUE, .first = true },

	HEADING("Output"),
	{ "format", 0, RSH_OUTPUT_WORDS, CONVERSIONS,
	  "output format (default: ckpt; hf for models)", rsh_set_output,
	  .converts = true, .decides = RSH_DECIDES_OUTPUT, AT(vfs.output),
	  .first = true },
	{ "part-size", 0, "SIZE", CONVERSIONS,
	  "with hf, dcp or hyperparallel: maximum size of a file (default: 5GB; "
	  "hyperparallel: 64MiB)", rsh_set_size,
	  AT(vfs.plan.part_bytes), .min = 1, .converts = true,
	  .decides = RSH_DECIDES_VALUE },
	{ "model-files", 0, "DIR|none", CONVERSIONS,
	  "with hf: also show files of DIR such as config.json (default: none; "
	  "SOURCE for a Hugging Face model)", rsh_set_model_files,
	  .converts = true, .opens = true, AT(vfs.model_files) },
	{ "optimizer", 0, "auto|keep", CONVERSIONS,
	  "with hf: leave out optimizer states, or keep them (default: auto)",
	  rsh_set_word, .converts = true, AT(vfs.keep_states) },
	{ "prefix", 0, "STR", CONVERSIONS,
	  "show files as rank_N/STRN.ckpt (default: checkpoint_)",
	  rsh_set_prefix, .converts = true, .decides = RSH_DECIDES_TEXT,
	  AT(vfs.tree.prefix) },
	{ "only", 0, "REGEX", CONVERSIONS | INFER,
	  "use only parameters whose name matches", rsh_set_regex, AT(vfs.only),
	  .converts = true, .decides = RSH_DECIDES_TEXT },
	{ "drop", 0, "REGEX", CONVERSIONS | DERIVE | INFER,
	  "leave out parameters whose name matches", rsh_set_regex,
	  AT(vfs.drop), .converts = true, .decides = RSH_DECIDES_TEXT },
	{ "rename", 0, "FILE", CONVERSIONS,
	  "JSON file that maps old parameter names to new ones", rsh_set_text,
	  AT(vfs.rename), .converts = true, .decides = RSH_DECIDES_FILE,
	  .opens = true },
	{ "cast", 0, "bfloat16|float16|float32", CONVERSIONS,
	  "convert weights to this type (default: keep the type)", rsh_set_word,
	  .values = casts, .converts = true, .decides = RSH_DECIDES_VALUE,
	  AT(vfs.plan.cast) },
	{ "unlisted", 0, "copy|drop|error", CONVERSIONS | TABLE_CHECK,
	  "parameters that the destination does not list: copy them, drop "
	  "them, or fail (default: copy)", rsh_set_word, .converts = true,
	  .decides = RSH_DECIDES_VALUE, AT(vfs.plan.unlisted) },
	{ "remove-redundancy", 0, NULL, CONVERSIONS,
	  "store each slice in the file of only one of the ranks that hold it",
	  rsh_set_flag, AT(vfs.plan.remove_redundancy), .converts = true,
	  .decides = RSH_DECIDES_VALUE },
	{ "compat", 0, "mindspore", CONVERSIONS,
	  "produce the bytes of MindSpore's converter, even if they are wrong",
	  rsh_set_word, .converts = true, .decides = RSH_DECIDES_VALUE,
	  .min = true, AT(vfs.plan.compat) },

	HEADING("Operation"),
	{ "foreground", 'f', NULL, MOUNT, "run in the foreground", rsh_set_flag,
	  AT(foreground), .aside = true, .first = true },
	{ "stack", 0, NULL, MOUNT,
	  "mount again even if SOURCE is mounted there with the same options",
	  rsh_set_flag, AT(stack), .aside = true },
	{ "allow-non-empty", 0, NULL, MOUNT,
	  "hide the files of a MOUNTPOINT that is not empty", rsh_set_flag,
	  AT(allow_non_empty), .aside = true },
	{ "sandbox", 0, "auto|off", MOUNT,
	  "sandbox the daemon with landlock and seccomp, as far as the kernel "
	  "has them (default: auto)", rsh_set_word, AT(no_sandbox) },
	{ "steps-interval", 0, "SECONDS", MOUNT,
	  "with --steps all: time between looks at SOURCE (default: 2; 30 on "
	  "networks)", rsh_set_seconds, AT(steps_interval), .min = 1,
	  .max = 86400 },
	{ "wait", 0, "STEP", RSH_IN(RSH_COMMAND_STEPS),
	  "wait until this step is complete: its name or number (default: list "
	  "all)",
	  rsh_set_string, AT(wait), .first = true },
	{ "debug", 'd', NULL, MOUNT, "log every request; implies -f",
	  rsh_set_debug, .aside = true },
	{ NULL, 'o', "OPT[,OPT...]", CONVERSIONS,
	  "comma-separated options, as in fstab", .first = true },
	{ "jobs", 'j', "N", WORKS,
	  "files to process in parallel (default: CPUs)", rsh_set_number,
	  AT(jobs), .min = 1, .max = RSH_COPY_JOBS_MAX, .first = true },
	{ "verify", 0, NULL, EXPORT, "read back each file and compare its hash",
	  rsh_set_flag, AT(verify), .first = true },
	{ "overwrite", 0, NULL, WORKS,
	  "replace existing files of another conversion", rsh_set_flag,
	  AT(overwrite), .first = true },
	{ "share", 0, "I/N", EXPORT | RSH_IN(RSH_COMMAND_WARM),
	  "process only share I, 0 to N-1, of N shares (default: everything)",
	  rsh_set_share },
	{ "manifest", 0, "PATH", EXPORT,
	  "manifest to write (default: OUTDIR/reshardfs-manifest.jsonl)",
	  rsh_set_path, AT(manifest) },
	{ "write-manifest", 0, "PATH", RSH_IN(RSH_COMMAND_VERIFY),
	  "write a manifest of what a mount would show", rsh_set_path,
	  AT(write_manifest), .first = true },
	{ "lazy", 'z', NULL, RSH_IN(RSH_COMMAND_UMOUNT),
	  "unmount even if in use: the daemon ends when the last user is done",
	  rsh_set_flag, AT(lazy) },
	{ "force", 0, NULL, RSH_IN(RSH_COMMAND_UMOUNT),
	  "unmount even if SOURCE hangs: reads fail, the daemon is ended",
	  rsh_set_flag, AT(force) },
	{ "rank-list", 0, NULL, RSH_IN(RSH_COMMAND_PLAN),
	  "print what rank_list_for_transform returns; SOURCE is not read",
	  rsh_set_flag, AT(rank_list), .first = true },
	{ "slices", 0, NULL, RSH_IN(RSH_COMMAND_PLAN),
	  "with --json: print the slices of each tensor and where their bytes "
	  "are", rsh_set_flag, AT(slices) },
	{ "contents", 'c', NULL, RSH_IN(RSH_COMMAND_WARM),
	  "read the files completely, to fill the caches", rsh_set_flag,
	  AT(contents) },
	{ "jobs", 'j', "N", RSH_IN(RSH_COMMAND_WARM),
	  "files to read in parallel (default: 4)", rsh_set_number, AT(jobs),
	  .min = 1, .max = 64 },

	HEADING("Reading and caches"),
	{ "io-mode", 0, "auto|passthrough|direct|cached", MOUNT,
	  "how the kernel reads: from SOURCE itself, without the page cache, "
	  "or with it (default: auto, the first that works)", rsh_set_word,
	  AT(io_mode) },
	{ "index-cache", 0, "DIR|off", CONVERSIONS,
	  "directory to cache headers of source files in (default: "
	  "~/.cache/reshardfs/index)", rsh_set_index_cache },
	{ "cache", 0, "auto|on|off", READS,
	  "cache blocks of SOURCE (default: auto, if the kernel does not cache "
	  "them)", rsh_set_word, AT(io.caching) },
	{ "cache-size", 0, "SIZE|N%", READS,
	  "memory for cached blocks (default: 1GiB, at most 10% of the memory)",
	  rsh_set_memory, AT(io.cache.memory_bytes) },
	{ "cache-compress", 0, "auto|off", READS,
	  "compress cached blocks that shrink by a quarter (default: auto)",
	  rsh_set_word, AT(io.cache.compress) },
	{ "cache-dir", 0, "DIR", READS,
	  "cache blocks of a slow SOURCE in this directory on a local disk as "
	  "well", rsh_set_path, AT(io.cache.dir) },
	{ "cache-disk-size", 0, "SIZE", READS,
	  "disk space for --cache-dir (default: 16GiB)", rsh_set_size,
	  AT(io.cache.disk_bytes) },
	{ "cache-servers", 0, "HOST[:PORT],...", READS,
	  "memcached servers that share cached blocks between nodes (default "
	  "port: 11211)", rsh_set_servers, AT(io.cache.servers.list) },
	{ "cache-key-file", 0, "FILE", READS,
	  "file with a key that authenticates blocks on --cache-servers",
	  rsh_set_path, AT(io.cache.servers.key_file) },
	{ "keep-free", 0, "SIZE|N%", READS,
	  "drop cached pages of SOURCE if less memory is free (default: 1.25 "
	  "times the largest file and 256MiB)", rsh_set_memory, AT(keep_free) },
	{ "readahead", 0, "N", MOUNT | WORKS,
	  "MiB of SOURCE to read in parallel, 1 to 16 (default: 16, or fewer "
	  "if that is faster)", rsh_set_number, AT(readahead), .min = 1,
	  .max = 16 },
	{ "source-requests", 0, "N", TREES,
	  "s3:// and https://: maximum number of parallel requests (default: "
	  "64)", rsh_set_number, AT(objects.requests), .min = 1, .max = 4096 },
	{ "source-timeout", 0, "SECONDS", TREES,
	  "s3:// and https://: how long to retry a read that gets no data "
	  "(default: 60)", rsh_set_seconds, AT(objects.timeout_ms), .min = 1,
	  .max = 86400 },
	{ "source-keys", 0, "auto|none|instance", TREES,
	  "s3://: sign requests with credentials of the environment or "
	  "profile, not at all, or with those of the instance (default: auto)",
	  rsh_set_word, AT(objects.keys) },
	{ "source-style", 0, "auto|path|host", TREES,
	  "s3://: bucket in the path or in the host name of URLs (default: "
	  "auto, as the server requires)", rsh_set_word, AT(objects.style) },
	{ "requester-pays", 0, NULL, TREES,
	  "s3://: pay for requests and transfer yourself, if the bucket wants "
	  "that", rsh_set_flag, AT(objects.requester_pays) },
	{ "source-index", 0, "NAME", TREES,
	  "https://: file that lists the other files (default: "
	  "model.safetensors.index.json)", rsh_set_path, AT(objects.index) },
	{ "ca-file", 0, "FILE", TREES,
	  "CA certificates for https:// (default: those of the system)",
	  rsh_set_path, AT(objects.ca_file) },
	{ "fault", 0, "FAULT[;FAULT...]", READS,
	  "inject read errors, delays or wrong data, for tests", rsh_set_faults,
	  AT(io.faults) },

	HEADING("Messages"),
	{ "json", 0, NULL, PRINTS, "print JSON", rsh_set_flag, AT(json),
	  .first = true },
	{ "color", 0, "auto|always|never", PRINTS,
	  "use colors (default: auto, on a terminal)", rsh_set_word,
	  AT(color) },
	{ "log-to", 0, "stderr|syslog|journal|file:PATH", ALL,
	  "where to write the log (default: stderr; syslog for a daemon)",
	  rsh_set_log_to, .aside = true },
	{ "log-level", 0, "error|warning|notice|info|debug", ALL,
	  "lowest level to log (default: notice; warning for plan, export and "
	  "verify, error for ls)", rsh_set_word, .aside = true,
	  AT(log_level) },
	{ "quiet", 'q', NULL, ALL, "log only errors", rsh_set_flag, AT(quiet),
	  .aside = true },
	{ "version", 'V', NULL, ALL, "print the version", rsh_set_flag,
	  AT(version) },
	{ "help", 'h', NULL, ALL, "print the most important options",
	  rsh_set_flag, AT(help) },
	{ "help-all", 0, NULL, ALL, "print all options", rsh_set_flag,
	  AT(help_all) },

	HEADING("Mount options, only with -o"),
	{ "allow_other", 0, NULL, MOUNT, "allow access by other users",
	  rsh_set_mount_opt, .bare = true },
	{ "allow_root", 0, NULL, MOUNT, "allow access by root",
	  rsh_set_mount_opt, .bare = true },
	{ "auto_unmount", 0, NULL, MOUNT, "unmount if the daemon dies",
	  rsh_set_mount_opt, .bare = true },
	{ "holder", 0, "FD", MOUNT,
	  "unmount when all other ends of the pipe FD are closed",
	  rsh_set_number, .bare = true, AT(holder), .min = 3, .max = INT_MAX },
	{ "default_permissions", 0, NULL, MOUNT, "always set", rsh_set_nothing,
	  .bare = true, .aside = true },
	{ "ro", 0, NULL, MOUNT, "always set", rsh_set_nothing, .bare = true,
	  .aside = true },
	{ "rw", 0, NULL, MOUNT, "refused: a mount is read-only", rsh_refuse_rw,
	  .bare = true },
	{ "fsname", 0, "NAME", MOUNT, "device name in df (default: SOURCE)",
	  rsh_set_text, .bare = true, AT(fsname) },
	{ "subtype", 0, "NAME", MOUNT,
	  "type shown is fuse.NAME (default: reshardfs)", rsh_set_text,
	  .bare = true, AT(subtype) },
	{ "max_read", 0, "BYTES", MOUNT,
	  "maximum size of a read request (default: set by the kernel)",
	  rsh_set_number, .bare = true, AT(max_read), .min = 4096,
	  .max = UINT_MAX },
	{ "max_threads", 0, "N", MOUNT,
	  "maximum number of threads if SOURCE does not answer (default: 64)",
	  rsh_set_number, .bare = true, AT(max_threads), .min = 1,
	  .max = 100000 },
	{ "max_idle_threads", 0, "N", MOUNT,
	  "number of threads that serve requests (default: number of CPUs, 2 "
	  "to 8)", rsh_set_number, .bare = true, AT(max_idle_threads), .min = 1,
	  .max = 100000 },
	{ "clone_fd", 0, NULL, MOUNT, "ignored", rsh_set_nothing, .bare = true,
	  .aside = true },

	HEADING("Mount options that mount(8) explains, only with -o"),
	MOUNT8("suid", NULL), MOUNT8("nosuid", NULL), MOUNT8("dev", NULL),
	MOUNT8("nodev", NULL), MOUNT8("exec", NULL), MOUNT8("noexec", NULL),
	MOUNT8("atime", NULL), MOUNT8("noatime", NULL), MOUNT8("sync", NULL),
	MOUNT8("async", NULL), MOUNT8("dirsync", NULL),
	MOUNT8("context", "CONTEXT"), MOUNT8("fscontext", "CONTEXT"),
	MOUNT8("defcontext", "CONTEXT"), MOUNT8("rootcontext", "CONTEXT"),
};

const struct rsh_option *rsh_option_next(const struct rsh_option *def)
{
	def = def ? def + 1 : table;
	return def < table + sizeof(table) / sizeof(table[0]) ? def : NULL;
}

const struct rsh_option *rsh_option_find(const struct rsh_command *command,
					 const char *name, size_t n)
{
	const struct rsh_option *def = NULL;

	while ((def = rsh_option_next_of(command, def)) &&
	       !(def->name && rsh_suggestion_same(def->name, name, n)))
		;
	return def;
}
