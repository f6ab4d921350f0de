/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_options.c - command lines. */
#include "config.h"

#include "rsh/app/commands.h"
#include "rsh/app/options.h"
#include "rsh/app/table.h"
#include "tests.h"

/* Of the command line that was parsed last. */
static struct rsh_options o;

/* Words stand one space apart; \v is a space in a word, and nothing behind a
 * space an empty word. */
static int parse(const char *text, struct rsh_error *err)
{
	/* getopt reorders argv, so every parse gets its own. */
	static char store[1024], *argv[32];
	int argc = 1;

	rsh_options_clear(&o);
	assert_true(strlen(text) < sizeof(store));
	strcpy(store, text);
	argv[0] = (char[]){ "reshardfs" };
	for (char *rest = *store ? store : NULL; rest;)
		argv[argc++] = strsep(&rest, " ");
	argv[argc] = NULL;
	for (char *c = store; c < store + sizeof(store) - 1; c++)
		if (*c == '\v')
			*c = ' ';
	*err = (struct rsh_error)RSH_ERROR_INIT;
	return rsh_options_parse(argc, argv, &o, err);
}

__attribute__((format(printf, 1, 2))) static void accept(const char *fmt, ...)
{
	struct rsh_error err;
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	assert_good(parse(text, &err), err);
}

/* The text is words of a command line, and the message has `word`. */
static void refuse(const char *text, const char *word)
{
	struct rsh_error err;

	if (parse(text, &err) != -EINVAL)
		fail_msg("%s: %s", text, err.text);
	if (!strstr(err.text, word))
		fail_msg("no \"%s\" in: %s", word, err.text);
}

/* SOURCE is looked at before anything is said about its strategy. */
static void refuse_absent(const char *text)
{
	struct rsh_error err;

	assert_int_equal(parse(text, &err), -ENOENT);
	assert_int_equal(o.look, -ENOENT);
	assert_non_null(strstr(err.text, "No such file or directory"));
}

TEST(test_defaults)
{
	accept("mount --src-strategy s --dst-strategy none src mnt");
	assert_int_equal(o.command->id, RSH_COMMAND_MOUNT);
	assert_false(o.unnamed || o.json || o.quiet);
	assert_string_equal(o.vfs.source, "src");
	assert_string_equal(o.mountpoint, "mnt");
	assert_string_equal(rsh_strategy_text(&o.vfs.src), "s");
	assert_string_equal(rsh_strategy_text(&o.vfs.dst), "none");
	assert_string_equal(o.vfs.tree.prefix, "checkpoint_");
	assert_string_equal(o.server.fsname, "src");
	assert_string_equal(o.server.subtype, "reshardfs");
	assert_int_equal(o.log_level, RSH_LOG_NOTICE);
	assert_null(o.server.mount_opts);
	assert_null(o.log_file);
	assert_int_equal(o.log_to, RSH_LOG_TO_AUTO);
	assert_false(o.foreground || o.server.debug || o.vfs.plan.compat);
	assert_int_equal(o.server.max_read + o.server.max_threads + o.server.max_idle_threads, 0);
}

TEST(test_long_forms)
{
	accept("src --src-strategy=a --prefix p_ mnt -f --dst-strategy=b "
	       "--compat=mindspore --log-to=file:l --log-level=error");
	assert_string_equal(o.vfs.source, "src");
	assert_string_equal(o.mountpoint, "mnt");
	assert_string_equal(rsh_strategy_text(&o.vfs.src), "a");
	assert_string_equal(rsh_strategy_text(&o.vfs.dst), "b");
	assert_string_equal(o.vfs.tree.prefix, "p_");
	assert_string_equal(o.log_file, "l");
	assert_int_equal(o.log_level, RSH_LOG_ERROR);
	assert_true(o.foreground && o.vfs.plan.compat);
	assert_ptr_equal(o.vfs.output, &rsh_output_ckpt);
	accept("src mnt --src-strategy=a --dst-strategy=b "
	       "--format safetensors");
	assert_ptr_equal(o.vfs.output, &rsh_output_safetensors);
	refuse("src mnt --src-strategy=a --dst-strategy=b --sandbox=on",
	       "\"on\" is not auto or off");
	refuse("src mnt --src-strategy=a --dst-strategy=b --format=zip",
	       "\"zip\" is not ckpt");
	accept("src mnt --src-strategy=a --dst-strategy=none --format hf");
	assert_true(o.vfs.output == &rsh_output_hf &&
		    o.vfs.plan.part_bytes == UINT64_C(5000000000));
	accept("src mnt -osrc_strategy=a,dst_strategy=none "
	       "-oformat=hf,part_size=3MiB");
	assert_true(o.vfs.plan.part_bytes == 3 << 20);
	refuse("src mnt --src-strategy=a --dst-strategy=b --format=hf",
	       "leave out --dst-strategy");
	refuse("src mnt --src-strategy=a --dst-strategy=none --format=hf "
	       "--compat=mindspore", "--compat");
	accept("src mnt --src-strategy=a --dst-strategy=b "
	       "--format=checkpoint2");
	assert_ptr_equal(o.vfs.output, &rsh_output_checkpoint2);
	assert_int_equal(o.vfs.plan.part_bytes, 0);
	refuse("src mnt --src-strategy=none --dst-ranks=4 --dst-strategy=none "
	       "--format=checkpoint2",
	       "--dst-ranks needs --format ckpt or safetensors");
	refuse("src mnt --src-strategy=a --dst-strategy=none --part-size=3GB",
	       "needs --format hf");
	refuse("src mnt --src-strategy=a --dst-strategy=none --format=hf "
	       "--part-size=-1", "is not a size");
	refuse("src mnt --src-strategy=a --dst-strategy=none --format=hf "
	       "--part-size=99999999999TB", "is not a size");
}

/* The side that is known says what need not be said. */
TEST(test_convert)
{
	accept("src mnt --convert=./t.rules --from=hf --dst-strategy=s");
	assert_string_equal(o.vfs.weights.table, "./t.rules");
	assert_string_equal(rsh_strategy_text(&o.vfs.src), "none");
	assert_int_equal(o.vfs.weights.unlisted, RSH_UNLISTED_ERROR);
	assert_ptr_equal(o.vfs.output, &rsh_output_ckpt);
	accept("src mnt --convert=auto --src-strategy=s "
	       "--config=model/config.json --unlisted=copy");
	assert_int_equal(o.vfs.weights.from, 1 + RSH_SIDE_MINDSPORE);
	assert_int_equal(o.vfs.weights.unlisted, RSH_UNLISTED_COPY);
	assert_string_equal(rsh_strategy_text(&o.vfs.dst), "none");
	assert_ptr_equal(o.vfs.output, &rsh_output_hf);
	assert_string_equal(o.vfs.model_files, "model");
	accept("src mnt --convert=auto --src-strategy=s --config=config.json "
	       "--model-files=none");
	assert_null(o.vfs.model_files);
	accept("src mnt --convert=auto --src-strategy=none "
	       "--dst-strategy=none --config=config.json");
	assert_int_equal(o.vfs.weights.from, 0);
	assert_null(o.vfs.model_files);
}

TEST(test_convert_refused)
{
	refuse("a b --convert=auto --from=hf", "--dst-strategy is missing");
	refuse_absent("mount a b --convert=auto --dst-strategy=none");
	refuse("a b --from=hf --dst-strategy=s", "--from needs --convert");
	refuse("a b --config=c --src-strategy=none --dst-strategy=s",
	       "--config needs --convert");
	refuse("a b --convert=auto --from=hf --src-strategy=s "
	       "--dst-strategy=none", "SOURCE has Hugging Face's names");
	refuse("a b --convert=auto --from=mindspore --src-strategy=none "
	       "--dst-strategy=s", "the output has Hugging Face's");
	refuse("a b --convert=auto --src-strategy=s --dst-strategy=s",
	       "the output has Hugging Face's");
	refuse("a b --convert=auto --src-strategy=s --dst-mesh=dp=2",
	       "--dst-mesh and --convert cannot be used");
	refuse("a b --convert=auto --src-strategy=s --format=checkpoint2",
	       "is for MindSpore's names");
	refuse("a b --convert=auto --from=hf --dst-strategy=none "
	       "--compat=mindspore", "and --convert cannot be used together");
	refuse("a b --convert=auto --from=hf --dst-strategy=none --dst-ranks=2",
	       "and --convert cannot be used together");
	refuse("a b --convert=unheard-of --from=hf --dst-strategy=none",
	       "there is no table");
	refuse("a b --convert=qwen33 --from=hf --dst-strategy=none",
	       "no table \"qwen33\" (did you mean qwen3?); `reshardfs convert");
	refuse("a b --resume --convert=auto", "--convert");
}

TEST(test_mount_forms)
{
	accept("src mnt -osrc_strategy=a\\,b\\\\c,dst_strategy=d=e -o "
	       "prefix=,compat=mindspore,,foreground,log_to=file:l");
	assert_string_equal(rsh_strategy_text(&o.vfs.src), "a,b\\c");
	assert_string_equal(rsh_strategy_text(&o.vfs.dst), "d=e");
	assert_string_equal(o.vfs.tree.prefix, "");
	assert_string_equal(o.log_file, "l");
	assert_true(o.vfs.plan.compat && o.foreground);
}

TEST(test_kernel_options)
{
	accept("src mnt -o src_strategy=none,dst_strategy=none -o "
	       "allow_other,ro,noatime,default_permissions -o "
	       "context=a\\,b,fsname=n,subtype=t,max_read=8192 -o "
	       "max_threads=7,max_idle_threads=3,clone_fd");
	assert_string_equal(o.server.mount_opts,
			    "allow_other,noatime,context=a\\,b");
	assert_string_equal(o.server.fsname, "n");
	assert_string_equal(o.server.subtype, "t");
	assert_int_equal(o.server.max_read, 8192);
	assert_int_equal(o.server.max_threads, 7);
	assert_int_equal(o.server.max_idle_threads, 3);
}

TEST(test_debug)
{
	accept("a b -osrc_strategy=none,dst_strategy=none -d");
	assert_true(o.server.debug && o.foreground);
	assert_int_equal(o.log_level, RSH_LOG_DEBUG);
	accept("a b -osrc_strategy=none,dst_strategy=none --log-level=info -d");
	assert_int_equal(o.log_level, RSH_LOG_INFO);
}

TEST(test_selection)
{
	accept("a b -osrc_strategy=none,dst_strategy=none");
	assert_int_equal(o.vfs.files.select, RSH_SELECT_NEWEST);
	assert_int_equal(o.vfs.files.breakpoints, RSH_BREAKPOINTS_OUT);
	assert_int_equal(o.vfs.files.check, RSH_CHECK_SAMPLE);
	assert_false(rsh_option_given(&o, "select"));
	assert_int_equal(o.vfs.fallbacks, 5);
	accept("a b -osrc_strategy=none,dst_strategy=none "
	       "--select=12_34567890123 --check=full --breakpoint=only "
	       "--fallbacks=0");
	assert_int_equal(o.vfs.files.select, RSH_SELECT_STEP);
	assert_int_equal(o.vfs.files.epoch, 12);
	assert_int_equal(o.vfs.files.step, 34567890123);
	assert_int_equal(o.vfs.files.breakpoints, RSH_BREAKPOINTS_ONLY);
	assert_int_equal(o.vfs.files.check, RSH_CHECK_FULL);
	assert_true(rsh_option_given(&o, "select"));
	assert_int_equal(o.vfs.fallbacks, 0);
	accept("a b -osrc_strategy=none,dst_strategy=none "
	       "-oselect=name=x=*,rank_dir=r{rank},file=f,group_info=g "
	       "-obreakpoint=include,check=structure");
	assert_int_equal(o.vfs.files.select, RSH_SELECT_NAME);
	assert_string_equal(o.vfs.files.glob, "x=*");
	assert_string_equal(o.vfs.files.rank_dir, "r{rank}");
	assert_string_equal(o.vfs.files.file, "f");
	assert_string_equal(o.vfs.group_info, "g");
	assert_int_equal(o.vfs.files.breakpoints, RSH_BREAKPOINTS_INCLUDE);
}

TEST(test_other_words)
{
	static const struct {
		const char *word;
		enum rsh_dtype is;
	} casts[] = {
		{ "--cast=bf16", RSH_DTYPE_BFLOAT16 },
		{ "--cast=fp16", RSH_DTYPE_FLOAT16 },
		{ "--cast=half", RSH_DTYPE_FLOAT16 },
		{ "--cast=fp32", RSH_DTYPE_FLOAT32 },
		{ "--cast=float32", RSH_DTYPE_FLOAT32 },
	};
	for (size_t i = 0; i < sizeof(casts) / sizeof(casts[0]); i++) {
		accept("a b --src-strategy=None --dst-strategy=None "
		       "--select=latest %s", casts[i].word);
		assert_int_equal(o.vfs.plan.cast, casts[i].is);
		assert_int_equal(o.vfs.src.from, RSH_FROM_NONE);
		assert_int_equal(o.vfs.dst.from, RSH_FROM_NONE);
		assert_int_equal(o.vfs.files.select, RSH_SELECT_NEWEST);
		}
}

TEST(test_selection_refused)
{
	static const char *const bad[] = {
		"--select=", "--select=1", "--select=1_", "--select=_1",
		"--select=1_2_3", "--select=-1_2", "--select=1_-2",
		"--select=99999999999999999999_1", "--select=name=",
		"--select=oldest", "--breakpoint=", "--breakpoint=no",
		"--check=crc", "--fallbacks=-1", "--fallbacks=x",
		"--rank-dir=", "--rank-dir=a/*", "--file=", "--file=a/",
		"--file=a/b", "--source-map=", "--group-info=",
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		char name[32], words[128];

		snprintf(name, sizeof(name), "%.*s",
			 (int)strcspn(bad[i] + 2, "="), bad[i] + 2);
		snprintf(words, sizeof(words),
			 "a b -osrc_strategy=none,dst_strategy=none %s",
			 bad[i]);
		refuse(words, name);
	}
	refuse("a b -osrc_strategy=none,dst_strategy=none --source-map=m "
	       "--file=f", "--source-map");
	refuse("a b -osrc_strategy=none,dst_strategy=none --rank-dir=. "
	       "--file=net.ckpt", "rank-dir");
}

TEST(test_resume)
{
	accept("mount --resume src mnt");
	assert_true(o.resume);
	assert_null(rsh_strategy_text(&o.vfs.src));
	assert_null(rsh_strategy_text(&o.vfs.dst));
	accept("src mnt -oresume,ro");
	assert_true(o.resume);
	refuse("a b --resume --src-strategy=none", "--src-strategy");
	refuse("a b --drop=x --drop=y", "drop is given twice, as \"x\" and as \"y\"");
	refuse("a b -odrop=x,prefix=p --drop=y", "drop is given twice");
	accept("a b --drop=x --drop=x --prefix=p --prefix=q --log-level=debug "
	       "--log-level=info -osrc_strategy=none,dst_strategy=none");
	refuse("a b --resume --dst-strategy=x", "--dst-strategy");
	refuse("a b --resume --prefix=checkpoint_", "--prefix");
	refuse("a b --resume --format=ckpt", "--format");
	refuse("a b --resume --part-size=1GB", "--part-size");
	refuse("a b --resume=all", "--resume");
	refuse("mount a --resume", "MOUNTPOINT");
}

TEST(test_help_needs_nothing_else)
{
	accept("--help");
	assert_true(o.help && o.unnamed && !o.version);
	accept("mount -h");
	assert_true(o.help && !o.unnamed);
	assert_string_equal(o.command->name, "mount");
	accept("mount -V");
	assert_true(o.version && !o.help);
	/* A source of that name must be written another way. */
	refuse("mount --src-strategy=none --dst-strategy=none mnt",
	       "MOUNTPOINT");
}

TEST(test_quiet)
{
	accept("a b -osrc_strategy=none,dst_strategy=none -q");
	assert_int_equal(o.log_level, RSH_LOG_ERROR);
	accept("a b -osrc_strategy=none,dst_strategy=none -q --log-level=info");
	assert_int_equal(o.log_level, RSH_LOG_INFO);
}

/* Every option belongs to a command that there is, and no command has two
 * options of one name or letter. */
TEST(test_log_targets)
{
	accept("ls x --log-to=syslog");
	assert_int_equal(o.log_to, RSH_LOG_TO_SYSLOG);
	accept("ls x --log-to file:a:b");
	assert_int_equal(o.log_to, RSH_LOG_TO_FILE);
	assert_string_equal(o.log_file, "a:b");
	/* The last one counts. */
	accept("a b --resume --log-to=file:l -olog_to=journal");
	assert_int_equal(o.log_to, RSH_LOG_TO_JOURNAL);
	assert_null(o.log_file);
	accept("a b --resume -f --log-to=stderr");
	assert_int_equal(o.log_to, RSH_LOG_TO_STDERR);
	refuse("a b --resume --log-to=stderr", "needs -f");
	refuse("ls x --log-to=paper", "\"paper\" is not");
	refuse("ls x --log-to=", "log-to");
	refuse("ls x --log-to=file:", "path is empty");
	refuse("ls x --log-file=l", "unknown option --log-file");
}

TEST(test_tables)
{
	size_t n_commands;
	struct rsh_option_at a = { .list = NULL }, b;
	const struct rsh_command *commands = rsh_command_table(&n_commands);
	unsigned all = 0;

	for (size_t i = 0; i < n_commands; i++) {
		assert_ptr_equal(rsh_command_find(commands[i].name),
				 &commands[i]);
		assert_false(all & RSH_IN(commands[i].id));
		all |= RSH_IN(commands[i].id);
	}
	while (rsh_option_next(&a)) {
		assert_true(rsh_option_commands(&a));
		/* -o has no setter of its own. */
		assert_true(!a.row->set == (a.row->letter == 'o' &&
					    !a.row->name));
		assert_non_null(a.row->help);
		b.list = NULL;
		while (rsh_option_next(&b) && b.row != a.row) {
			if (!(rsh_option_commands(&a) &
			      rsh_option_commands(&b)))
				continue;
			assert_false(a.row->letter &&
				     a.row->letter == b.row->letter);
			assert_false(a.row->name && b.row->name &&
				     !strcmp(a.row->name, b.row->name));
		}
	}
}

/* Rules name options that there are, and their words. */
TEST(test_rules)
{
	struct rsh_option_at a = { .list = NULL }, b;

	while (rsh_option_next(&a)) {
		const char *lists[] = { a.row->excludes, a.row->needs };

		for (size_t i = 0; i < 2; i++)
			for (const char *t = lists[i]; t && *t;
			     t += strcspn(t, "|"), t += *t == '|') {
				const size_t n = strcspn(t, "=|");
				bool found = strncmp(t, "SOURCE", n) == 0;

				b.list = NULL;
				while (!found && rsh_option_next(&b))
					found = b.row->name &&
						strlen(b.row->name) == n &&
						!strncmp(b.row->name, t, n) &&
						(t[n] != '=' || b.row->arg);
				assert_true(found);
			}
	}
}

static uint64_t digest_with(const char *option)
{
	struct rsh_error err = RSH_ERROR_INIT;
	uint64_t digest;

	accept("a b -osrc_strategy=none,dst_strategy=s %s",
	       option ? option : "-q");
	assert_int_equal(rsh_options_digest(&o.vfs, NULL, &digest, &err), 0);
	return digest;
}

/* What is to go on with an export has to write the same bytes. */
TEST(test_digest)
{
	static const char *const decide[] = {
		"--only=a", "--drop=a", "--prefix=", "--allow-missing",
		"--cast=float16", "--unlisted=drop", "--compat=mindspore",
		"--remove-redundancy", "--format=safetensors", "--base=.",
		"--base=/", "--unwrap", "--lora-alpha=8",
	};
	static const char *const others[] = {
		"--cache=off", "--replicas=off", "--check=full", "--debug",
		"--unlisted=copy", "--prefix=checkpoint_",
	};
	const uint64_t plain = digest_with(NULL);

	for (size_t i = 0; i < sizeof(decide) / sizeof(*decide); i++)
		for (size_t k = 0; k <= i; k++)
			assert_true((digest_with(decide[i]) ==
				     digest_with(decide[k])) == (i == k));
	for (size_t i = 0; i < sizeof(decide) / sizeof(*decide); i++)
		assert_true(digest_with(decide[i]) != plain);
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
		assert_true(digest_with(others[i]) == plain);
}

TEST(test_exit_status)
{
	assert_int_equal(rsh_exit_of(0), RSH_EXIT_GOOD);
	assert_int_equal(rsh_exit_of(-EINVAL), RSH_EXIT_INPUT);
	assert_int_equal(rsh_exit_of(-EBADMSG), RSH_EXIT_INPUT);
	assert_int_equal(rsh_exit_of(-ENOENT), RSH_EXIT_INPUT);
	assert_int_equal(rsh_exit_of(-EIO), RSH_EXIT_IO);
	assert_int_equal(rsh_exit_of(-EACCES), RSH_EXIT_IO);
	assert_int_equal(rsh_exit_of(-ENOMEM), RSH_EXIT_IO);
	assert_int_equal(rsh_exit_of(-ESTALE), RSH_EXIT_IO);
}

/* Options that all commands have may stand before the command. */
TEST(test_before_command)
{
	accept("-q ls x");
	assert_int_equal(o.command->id, RSH_COMMAND_LS);
	assert_true(o.quiet && !o.unnamed && o.n_operands == 1);
	accept("--log-level debug --log_to=file:l strategy show s");
	assert_int_equal(o.log_level, RSH_LOG_DEBUG);
	assert_string_equal(o.log_file, "l");
	assert_string_equal(o.command->name, "strategy show");
	accept("-q x mnt --src-strategy=a --dst-strategy=b");
	assert_true(o.unnamed && o.quiet);
	/* A source may be called like a command if it follows another option. */
	accept("--src-strategy=a --dst-strategy=b plan mnt");
	assert_string_equal(o.vfs.source, "plan");
	refuse("-q lss x", "\"lss\" is not a command (did you mean ls?)");
	refuse("--json ls x", "to be given after the command");
	refuse("--log-level", "--log-level needs a value (error|");
}

TEST(test_underscores)
{
	accept("a b --src_strategy=x --dst_strategy none --allow_missing "
	       "--cache_dir=_-_ --format=hf "
	       "-opart-size=3MiB,model_files=--none");
	assert_string_equal(rsh_strategy_text(&o.vfs.src), "x");
	assert_string_equal(rsh_strategy_text(&o.vfs.dst), "none");
	assert_true(o.vfs.plan.allow_missing);
	assert_string_equal(o.io.cache.dir, "_-_");
	assert_string_equal(o.vfs.model_files, "--none");
	assert_true(o.vfs.plan.part_bytes == 3 << 20);
	refuse("a b --remove_red=2", "--remove-redundancy takes no value");
}

TEST(test_templates)
{
	refuse("ls a --rank-dir=/ckpt/rank_{rank}",
	       "rank-dir: \"/ckpt/rank_{rank}\" must be a path below SOURCE "
	       "without a leading slash, such as rank_{rank}");
	refuse("ls a --file=/ckpt/{rank}.ckpt",
	       "file: \"/ckpt/{rank}.ckpt\" must be a path below SOURCE");
}

TEST(test_did_you_mean)
{
	refuse("a b --scr-strategy=x",
	       "unknown option --scr-strategy (did you mean --src-strategy?)");
	refuse("a b -src-strategy=x", "(did you mean --src-strategy?)");
	refuse("mount a b --dst=x",
	       "option --dst is ambiguous: --dst-strategy, --dst-mesh or "
	       "--dst-ranks");
	refuse("a b --allow-other",
	       "unknown option --allow-other (did you mean -o allow_other?)");
	refuse("a b -odst_stratgey=x",
	       "unknown option -o dst_stratgey (did you mean -o "
	       "dst_strategy?)");
	refuse("ls a --contents",
	       "ls has no option --contents; it is an option of warm");
	/* words of MindSpore and torch */
	refuse("plan a --src_strategy_file=x",
	       "unknown option --src_strategy_file (did you mean "
	       "--src-strategy?)");
	refuse("a b -odst_strategy_file=x",
	       "-o dst_strategy_file (did you mean -o dst_strategy?)");
	refuse("export a b --output_format safetensors",
	       "(did you mean --format?)");
	refuse("plan --ckpt-prefix=x a", "(did you mean --prefix?)");
	refuse("plan --src_checkpoints_dir a",
	       "(did you mean the operand SOURCE?)");
	refuse("mount a --dst_checkpoints_dir=b",
	       "(did you mean the operand MOUNTPOINT?)");
	refuse("ls a --dst_checkpoints_dir=b",
	       "unknown option --dst_checkpoints_dir");
	refuse("plan src_strategy_file=x a",
	       "operand src_strategy_file=x is not a file (did you mean "
	       "--src-strategy?)");
	refuse("export a dst_checkpoints_dir=b",
	       "is not a file (did you mean the operand OUTDIR?)");
	refuse("plan a dst_mesh=dp=2",
	       "operand dst_mesh=dp=2 is not a file (did you mean "
	       "--dst-mesh?)");
	refuse("plan a --cast=fp8",
	       "cast: \"fp8\" is not bfloat16, float16 or float32");
	refuse("strategy drive a", "(did you mean derive?)");
	refuse("help convert lsit", "(did you mean list?)");
	refuse("a b --src-strategy=a --xylophones-and-zithers-of-brass=1",
	       "unknown option --xylophones-and-zithers-of-brass");
}

TEST(test_refused)
{
	refuse("a", "\"a\" is not a command");
	refuse("exprot a b", "\"exprot\" is not a command");
	refuse("exprot --jobs=2", "\"exprot\" is not a command");
	refuse("ls ", "operand 1 is empty");
	refuse("mount a ", "operand 2 is empty");
	refuse("mount a", "MOUNTPOINT is missing");
	refuse("verify", "SOURCE or MANIFEST is missing");
	refuse("convert", "list, show or check is missing");
	refuse("", "command or ");
	refuse("mount a b --json", "--json");
	refuse("a b", "no such file to mount");
	refuse_absent("mount a b");
	refuse("a b --src-strategy=x", "--dst-strategy");
	refuse("a b c", "no such file to mount; too many operands: c");
	refuse("a b --nonsense", "--nonsense");
	refuse("a b -Z", "-Z");
	refuse("a b -ononsense=1", "nonsense");
	refuse("a b --src-strategy", "--src-strategy");
	refuse("a b --prefix --src-strategy s",
	       "--prefix needs a value (STR), but the option --src-strategy");
	refuse("a b --prefix --src-strategy=s",
	       "but the option --src-strategy=s follows");
	refuse("a b --foreground=1", "--foreground");
	refuse("a b -odebug=1", "debug");
	refuse("a b --src-strategy=", "src-strategy");
	refuse("a b --prefix=/", "prefix");
	refuse("a b --prefix=.x", "prefix");
	refuse("a b --prefix=a..b", "prefix");
	refuse("a b --prefix=a\nb", "prefix");
	refuse("a b --compat=MindSpore", "compat");
	refuse("a b --log-level=7", "log-level");
	refuse("a b --only=[", "only");
	refuse("a b --drop=a(", "drop");
	refuse("a b --fault=eio,p=2", "eio,p=2");
	refuse("a b --fault=", "fault");
	refuse("a b -orw", "rw");
	refuse("a b -omax_threads=-1", "max_threads");
	refuse("a b -omax_threads=\v1", "max_threads");
	refuse("a b -omax_threads=99999999999999999999", "max_threads");
}
