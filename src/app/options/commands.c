/* SPDX-License-Identifier: Apache-2.0 */
/* app/options/commands.c holds the table of commands, and guesses which one was
 * meant by a name with a slip of the pen in it. */
#include "config.h"

#include "rsh/app/commands.h"

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
		.summary = "list how each parameter is cut",
		.about = "Lists how each parameter is cut and which ranks "
			 "hold the same, as ls does.",
	},
	{
		.name = "strategy merge",
		.id = RSH_COMMAND_MERGE,
		.operands = { "STRATEGY..." },
		.summary = "write the stages of a pipeline as one file",
		.about = "Writes the files of a pipeline's stages as one, as "
			 "MindSpore's merge_pipeline_strategys does.",
	},
	{
		.name = "strategy check",
		.id = RSH_COMMAND_CHECK,
		.operands = { "STRATEGY..." },
		.summary = "tell what would fail later",
		.about = "Tells what would fail later, and ends with status 1 "
			 "if anything would.",
	},
	{
		.name = "strategy derive",
		.id = RSH_COMMAND_DERIVE,
		.operands = { "STRATEGY|none" },
		.summary = "write the strategy of another mesh",
		.about = "Writes the strategy that MindSpore would have "
			 "planned for --mesh, worked out from the one of "
			 "another mesh, or from \"none\" and rules.",
	},
	{
		.name = "strategy infer",
		.id = RSH_COMMAND_INFER,
		.operands = { "SOURCE" },
		.summary = "say what contents tell of a lost strategy",
		.about = "Prints which ranks of a tree SOURCE hold the same, "
			 "and the meshes that would explain it, for whom the "
			 "strategy is lost.",
	},
};

static const struct rsh_command convert_forms[] = {
	{
		.name = "convert list",
		.id = RSH_COMMAND_TABLES,
		.summary = "list the tables that --convert knows by name",
		.about = "Lists the tables that --convert knows by name, the "
			 "architectures that they suit, and what they are "
			 "for.",
	},
	{
		.name = "convert show",
		.id = RSH_COMMAND_TABLE_SHOW,
		.operands = { "TABLE" },
		.summary = "print a table, which may be changed and named",
		.about = "Prints a table.  One that was changed is named to "
			 "--convert as a file.",
	},
	{
		.name = "convert check",
		.id = RSH_COMMAND_TABLE_CHECK,
		.operands = { "TABLE", "[SOURCE]" },
		.summary = "tell what is wrong with a table, or does not fit",
		.about = "Tells what is wrong with a table and, of the tensors "
			 "in SOURCE, which of them make which ones of the "
			 "other form, by which line, what nothing is made of, "
			 "and where names or sizes do not fit.  It ends with "
			 "status 1 if a mount would refuse that.",
	},
};

static const struct rsh_command table[] = {
	{
		.name = "mount",
		.id = RSH_COMMAND_MOUNT,
		.operands = { "SOURCE", "MOUNTPOINT" },
		.summary = "show SOURCE as it would be under another strategy",
		.about = "Shows a MindSpore checkpoint tree "
			 "(SOURCE/rank_N/*.ckpt or *.safetensors) as it would "
			 "be under another sharding strategy; or, with "
			 "--resume, of MindSpore, PyTorch, TensorFlow and "
			 "Megatron-LM jobs the newest checkpoint that is whole "
			 "on all ranks.  The name of this command may be left "
			 "out.",
		.check = rsh_check_mount,
	},
	{
		.name = "umount",
		.id = RSH_COMMAND_UMOUNT,
		.operands = { "MOUNTPOINT" },
		.summary = "take a mount down",
		.about = "Unmounts, and waits until the daemon that served the "
			 "mount has ended.",
		.check = rsh_check_umount,
	},
	{
		.name = "ls",
		.id = RSH_COMMAND_LS,
		.operands = { "FILE|SOURCE|STRATEGY" },
		.summary = "list records, checkpoints of a tree, or layouts",
		.about = "Of a .ckpt or .safetensors FILE lists the records; "
			 "of a tree SOURCE the steps that were saved, whether "
			 "they are whole and, with --src-strategy and "
			 "--dst-strategy, what a mount would take; of a "
			 "STRATEGY how each parameter is cut and which ranks "
			 "hold the same.",
		.check = rsh_check_ls,
	},
	{
		.name = "plan",
		.id = RSH_COMMAND_PLAN,
		.operands = { "SOURCE", "[RANK...]" },
		.summary = "say what a conversion reads from where, and costs",
		.about = "Says for each destination RANK, or part, how large "
			 "its file is, which source ranks it reads, how many "
			 "bytes of each, in runs of which lengths, and about "
			 "how long that takes.  A RANK is a number or a range "
			 "such as 4-7; without one all are planned.",
		.check = rsh_check_plan,
	},
	{
		.name = "export",
		.id = RSH_COMMAND_EXPORT,
		.operands = { "SOURCE", "OUTDIR", "[RANK...]" },
		.summary = "write what a mount would show as real files",
		.about = "Writes the files that a mount with the same options "
			 "would show to OUTDIR, of all destination ranks or "
			 "of those given, and a manifest of them.  A file that "
			 "has its name is whole; an export that was stopped or "
			 "killed goes on when it is started again.",
		.check = rsh_check_export,
	},
	{
		.name = "verify",
		.id = RSH_COMMAND_VERIFY,
		.operands = { "SOURCE|MANIFEST", "[TREE|MANIFEST]",
			      "[RANK...]" },
		.summary = "prove that the bytes are right",
		.about =
			"Of SOURCE alone: are its files as the manifest in it "
			"says?  Where there is none: are those of the step "
			"that a mount takes whole, and ranks equal that hold "
			"the same?  SOURCE and TREE: has a converted tree just "
			"the bytes that a mount would show?  SOURCE and "
			"MANIFEST: would a mount show what the manifest says? "
			" MANIFEST, with the TREE or beside it: are the files "
			"as it says?",
		.check = rsh_check_verify,
	},
	{
		.name = "strategy",
		.id = RSH_COMMAND_STRATEGY,
		.operands = { "show|merge|check|derive|infer", "STRATEGY..." },
		.summary = "show, merge, check, derive and infer strategies",
		.about = "Shows, merges, checks and derives files of "
			 "strategies, and infers from contents what a lost one "
			 "may have said.  `reshardfs help strategy derive` and "
			 "its like say more.",
		.check = rsh_check_strategy,
		FORMS(strategy_forms),
	},
	{
		.name = "convert",
		.id = RSH_COMMAND_CONVERT,
		.operands = { "list|show|check", "[TABLE]", "[SOURCE]" },
		.summary = "list, show and check tables of models' weights",
		.about = "Lists, shows and checks the tables by which "
			 "--convert makes Hugging Face's weights MindSpore's, "
			 "and the other way round.  A TABLE is the name of "
			 "one that `convert list` has, or a file.",
		.check = rsh_check_convert,
		FORMS(convert_forms),
	},
	{
		.name = "warm",
		.id = RSH_COMMAND_WARM,
		.operands = { "MOUNTPOINT", "[RANK...]" },
		.summary = "look at the files of a mount before the job does",
		.about = "Looks at all files of a mount, or at those of each "
			 "RANK, a number or a range such as 4-7; with "
			 "--contents it reads them.",
		.check = rsh_check_warm,
	},
	{
		.name = "stats",
		.id = RSH_COMMAND_STATS,
		.operands = { "MOUNTPOINT" },
		.summary = "say what a mount has done so far",
		.about = "Prints what a running mount counts: reads, bytes, "
			 "failures, and its cache.  The same, and more, is in "
			 "MOUNTPOINT/.reshardfs, which is not listed.",
		.check = rsh_check_stats,
	},
	{
		.name = "help",
		.id = RSH_COMMAND_HELP,
		.operands = { "[COMMAND]", "[WORD]" },
		.summary = "say how a command is called",
		.about = "Prints what COMMAND --help prints, or of all "
			 "commands what each is for.  WORD is the second one "
			 "of `strategy derive` and its like.",
		.check = rsh_check_help,
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

const char *rsh_command_form_word(const struct rsh_command *form)
{
	return strchr(form->name, ' ') + 1;
}

const struct rsh_command *rsh_command_form(const struct rsh_command *command,
					   const char *word)
{
	for (size_t i = 0; i < command->n_forms; i++) {
		const struct rsh_command *form = &command->forms[i];

		if (strcmp(rsh_command_form_word(form), word) == 0)
			return form;
	}
	return NULL;
}

/* ---- slips of the pen ---- */

void rsh_command_guess(const char *word, char text[RSH_SUGGESTION_BYTES])
{
	struct rsh_suggestion guess;

	rsh_suggestion_begin(&guess, word, strlen(word));
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		rsh_suggestion_offer(&guess, table[i].name);
	rsh_suggestion_put(&guess, "", text);
}

void rsh_form_guess(const struct rsh_command *command, const char *word,
		    char text[RSH_SUGGESTION_BYTES])
{
	struct rsh_suggestion guess;

	rsh_suggestion_begin(&guess, word, strlen(word));
	for (size_t i = 0; i < command->n_forms; i++)
		rsh_suggestion_offer(&guess,
				     rsh_command_form_word(&command->forms[i]));
	rsh_suggestion_put(&guess, "", text);
}
