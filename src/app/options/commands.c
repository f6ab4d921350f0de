/* SPDX-License-Identifier: Apache-2.0 */
/* app/options/commands.c has the table of commands, and suggests commands for
 * mistyped names. */
#include "config.h"

#include "rsh/app/commands.h"

#include <errno.h>
#include <string.h>

#include "rsh/app/check.h"
#include "rsh/util/suggestion.h"

#define FORMS(table) \
	.forms = table, .n_forms = sizeof(table) / sizeof(table[0])

static const struct rsh_command strategy_forms[] = {
	{
		.name = "strategy show",
		.id = RSH_COMMAND_SHOW,
		.operands = { "STRATEGY" },
		.summary = "list how each parameter is sharded",
		.about = "Lists how each parameter is sharded and which ranks "
			 "hold the same slices.",
	},
	{
		.name = "strategy merge",
		.id = RSH_COMMAND_MERGE,
		.operands = { "STRATEGY..." },
		.summary = "merge the strategy files of all pipeline stages",
		.about = "Merges the strategy files of all pipeline stages "
			 "into one file, as MindSpore's "
			 "merge_pipeline_strategys does.",
	},
	{
		.name = "strategy check",
		.id = RSH_COMMAND_CHECK,
		.operands = { "STRATEGY..." },
		.summary = "check strategy files for errors",
		.about = "Checks strategy files for errors that would make a "
			 "conversion fail.  The exit status is 1 if there are "
			 "any.",
	},
	{
		.name = "strategy derive",
		.id = RSH_COMMAND_DERIVE,
		.operands = { "STRATEGY|none" },
		.summary = "derive the strategy of another mesh",
		.about = "Derives the strategy that MindSpore would plan for "
			 "--mesh from the strategy of another mesh, or from "
			 "\"none\" and rules.",
	},
	{
		.name = "strategy infer",
		.id = RSH_COMMAND_INFER,
		.operands = { "SOURCE" },
		.summary = "infer a lost strategy from file contents",
		.about = "Finds out which ranks of SOURCE hold the same data "
			 "and which meshes would explain that.  Use it if the "
			 "strategy files are lost.",
	},
};

static const struct rsh_command convert_forms[] = {
	{
		.name = "convert list",
		.id = RSH_COMMAND_TABLES,
		.summary = "list the rule tables that --convert knows by name",
		.about = "Lists the rule tables that --convert knows by name, "
			 "with the model architectures that they are for.",
	},
	{
		.name = "convert show",
		.id = RSH_COMMAND_TABLE_SHOW,
		.operands = { "TABLE" },
		.summary = "print a rule table",
		.about = "Prints a rule table.  Save it to a file, edit it "
			 "and use it as --convert FILE.",
	},
	{
		.name = "convert check",
		.id = RSH_COMMAND_TABLE_CHECK,
		.operands = { "TABLE", "[SOURCE]" },
		.summary = "check a rule table, alone or against SOURCE",
		.about = "Checks a rule table and, with SOURCE, lists which "
			 "tensors each rule converts, which tensors no rule "
			 "converts, and which names or sizes do not match.  "
			 "The exit status is 1 if a mount would fail.",
	},
};

/* Checks the names that `help` takes, which are those of this table. */
static int check_help(struct rsh_options *o, struct rsh_error *err)
{
	const char *word = o->n_operands ? o->operands[0] : NULL;
	const char *form = o->n_operands > 1 ? o->operands[1] : NULL;
	const struct rsh_command *command =
		word ? rsh_command_find(word) : NULL;
	char guess[RSH_SUGGESTION_BYTES];

	if (word && !command) {
		rsh_command_guess(word, guess);
		return rsh_error_set(err, EINVAL, "\"%s\" is not a command%s",
				     word, guess);
	}
	if (form && !command->n_forms)
		return rsh_error_set(err, EINVAL, "too many operands: %s",
				     form);
	return form ? rsh_check_form(o, command, form, err) : 0;
}

static const struct rsh_command table[] = {
	{
		.name = "mount",
		.id = RSH_COMMAND_MOUNT,
		.operands = { "SOURCE", "MOUNTPOINT" },
		.summary = "mount a checkpoint, converted while it is read",
		.about = "Mounts SOURCE read-only at MOUNTPOINT, converted to "
			 "another sharding strategy, format or form of weights "
			 "while it is read.",
		.check = rsh_check_mount,
	},
	{
		.name = "umount",
		.id = RSH_COMMAND_UMOUNT,
		.operands = { "MOUNTPOINT" },
		.summary = "unmount a mount",
		.about = "Unmounts MOUNTPOINT and waits until its daemon has "
			 "ended.",
		.check = rsh_check_mountpoint,
	},
	{
		.name = "ls",
		.id = RSH_COMMAND_LS,
		.operands = { "FILE|SOURCE|STRATEGY" },
		.summary = "list a checkpoint or a strategy",
		.about = "Lists the parameters of a file, the checkpoints in "
			 "SOURCE and what a mount would take of them, or how "
			 "a STRATEGY shards each parameter.",
		.check = rsh_check_ls,
	},
	{
		.name = "plan",
		.id = RSH_COMMAND_PLAN,
		.operands = { "SOURCE", "[RANK...]" },
		.summary = "show what a conversion would read",
		.about = "Shows for each destination RANK the size of its "
			 "file, which source ranks it reads, how many bytes, "
			 "and an estimate of the time.  RANK is a number or a "
			 "range such as 4-7 (default: all).",
		.check = rsh_check_plan,
	},
	{
		.name = "export",
		.id = RSH_COMMAND_EXPORT,
		.operands = { "SOURCE", "OUTDIR", "[RANK...]" },
		.summary = "write the converted checkpoint as files",
		.about = "Writes the files that a mount with the same options "
			 "would show, and a manifest.  Files get their final "
			 "name only when they are complete; an interrupted "
			 "export resumes.  RANK is a number or a range such "
			 "as 4-7 (default: all).",
		.check = rsh_check_export,
	},
	{
		.name = "verify",
		.id = RSH_COMMAND_VERIFY,
		.operands = { "SOURCE|MANIFEST", "[TREE|MANIFEST]",
			      "[RANK...]" },
		.summary = "verify files against a manifest or a conversion",
		.about = "Verifies SOURCE against its manifest or, without "
			 "one, its structure, CRCs and replicas; TREE against "
			 "what a mount of SOURCE would show; a mount of "
			 "SOURCE against a MANIFEST; or the files of TREE "
			 "against a MANIFEST.",
		.check = rsh_check_verify,
	},
	{
		.name = "strategy",
		.id = RSH_COMMAND_STRATEGY,
		.operands = { "show|merge|check|derive|infer", "STRATEGY..." },
		.summary = "show, merge, check, derive or infer strategies",
		.about = "Shows, merges, checks or derives strategy files, or "
			 "infers a lost one.  Options of each: reshardfs help "
			 "strategy derive",
		.check = rsh_check_strategy,
		FORMS(strategy_forms),
	},
	{
		.name = "convert",
		.id = RSH_COMMAND_CONVERT,
		.operands = { "list|show|check", "[TABLE]", "[SOURCE]" },
		.summary = "list, show or check rule tables for --convert",
		.about = "Lists, shows or checks the rule tables by which "
			 "--convert converts between Hugging Face and "
			 "MindSpore weights.  TABLE is a name from `convert "
			 "list`, or a file.",
		.check = rsh_check_convert,
		FORMS(convert_forms),
	},
	{
		.name = "warm",
		.id = RSH_COMMAND_WARM,
		.operands = { "MOUNTPOINT", "[RANK...]" },
		.summary = "read a mount's metadata or contents in advance",
		.about = "Looks up all files of a mount, or those of each "
			 "RANK, so that later accesses are fast; --contents "
			 "reads them too.  RANK is a number or a range such "
			 "as 4-7 (default: all).",
		.check = rsh_check_warm,
	},
	{
		.name = "stats",
		.id = RSH_COMMAND_STATS,
		.operands = { "MOUNTPOINT" },
		.summary = "print statistics of a mount",
		.about = "Prints the statistics of a mount: reads, bytes, "
			 "errors, cache.  More are in the hidden directory "
			 "MOUNTPOINT/.reshardfs.",
		.check = rsh_check_mountpoint,
	},
	{
		.name = "steps",
		.id = RSH_COMMAND_STEPS,
		.operands = { "MOUNTPOINT" },
		.summary = "list the steps of a mount, or wait for one",
		.about = "Lists the steps of a mount with --steps all, and "
			 "says why some of them are not shown.  --wait waits "
			 "until a step is complete.",
		.check = rsh_check_mountpoint,
	},
	{
		.name = "help",
		.id = RSH_COMMAND_HELP,
		.operands = { "[COMMAND]", "[WORD]" },
		.summary = "print help for a command",
		.about = "Prints the help of COMMAND, or lists all commands.  "
			 "WORD is the second word of a command such as "
			 "`strategy derive`.",
		.check = check_help,
	},
};

const struct rsh_command *rsh_command_table(size_t *n)
{
	*n = sizeof(table) / sizeof(table[0]);
	return table;
}

const struct rsh_command *rsh_command_find(const char *name)
{
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (strcmp(table[i].name, name) == 0)
			return &table[i];
	return NULL;
}

/* ---- mistyped names ---- */

void rsh_command_guess(const char *word, char text[RSH_SUGGESTION_BYTES])
{
	struct rsh_suggestion guess;

	rsh_suggestion_begin(&guess, word, strlen(word));
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		rsh_suggestion_offer(&guess, table[i].name);
	rsh_suggestion_put(&guess, "", text);
}
