/* SPDX-License-Identifier: Apache-2.0 */
/* app/options/commands.c has the table of commands, and suggests commands for
 * mistyped names. */
#include "config.h"

#include "rsh/app/commands.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "rsh/app/check.h"
#include "rsh/util/option.h"
#include "rsh/util/text.h"

/* Returns the word that names a form; NULL if it is no form of the command. */
static const char *form_word(const struct rsh_command *command,
			     const struct rsh_command *form)
{
	return command->forms & RSH_IN(form->id) ? strchr(form->name, ' ') + 1 :
						   NULL;
}

/* Refuses a word that is none of the words of the command's first operand. */
static int refuse_form(const struct rsh_command *command, const char *word,
		       struct rsh_error *err)
{
	char words[128], guess[RSH_SUGGESTION_BYTES];
	struct rsh_suggestion offered;
	size_t n;
	const struct rsh_command *c = rsh_command_table(&n), *end = c + n;

	rsh_words_put(words, sizeof(words), "", command->operands[0]);
	rsh_suggestion_begin(&offered, word, strlen(word));
	for (; c < end; c++)
		if (form_word(command, c))
			rsh_suggestion_offer(&offered, form_word(command, c));
	rsh_suggestion_put(&offered, "", guess);
	return rsh_error_set(err, EINVAL, "%s %s: expected %s%s%s",
			     command->name, word, words, guess,
			     command->id == RSH_COMMAND_CONVERT &&
			     access(word, F_OK) == 0 ? "; `reshardfs export` "
			     "writes a converted checkpoint" : "");
}

/* A command with forms is only called if the form is not known. */
static int check_form(struct rsh_options *o, struct rsh_error *err)
{
	return refuse_form(o->command, o->operands[0], err);
}

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
	if (form && !command->forms)
		return rsh_error_set(err, EINVAL, "too many operands: %s",
				     form);
	return form && !rsh_command_form(command, form) ?
		refuse_form(command, form, err) : 0;
}

static int check_completion(struct rsh_options *o, struct rsh_error *err)
{
	return rsh_is_any(o->operands[0], "bash", "zsh", "fish") ? 0 :
	       refuse_form(o->command, o->operands[0], err);
}

static int check_umount(struct rsh_options *o, struct rsh_error *err)
{
	if (o->mountpoint && o->all_mounts)
		return rsh_error_set(err, EINVAL, "--all and MOUNTPOINT "
				     "cannot be used together");
	if (!o->mountpoint && !o->all_mounts)
		return rsh_error_set(err, EINVAL, "MOUNTPOINT is missing; "
				     "--all unmounts all mounts");
	return 0;
}

static const struct rsh_command table[] = {
	{ "mount", RSH_COMMAND_MOUNT, { "SOURCE", "MOUNTPOINT" },
	  "mount a checkpoint, converted while it is read",
	  "Mounts SOURCE read-only at MOUNTPOINT, converted to another "
	  "sharding strategy, format or form of weights while it is read.",
	  rsh_check_mount },
	{ "umount", RSH_COMMAND_UMOUNT, { "[MOUNTPOINT]" },
	  "unmount a mount",
	  "Unmounts MOUNTPOINT and waits until its daemon has ended.",
	  check_umount },
	{ "ls", RSH_COMMAND_LS, { "FILE|SOURCE|STRATEGY" },
	  "list a checkpoint or a strategy",
	  "Lists the parameters of a file, the checkpoints in SOURCE and what "
	  "a mount would take of them, or how a STRATEGY shards each "
	  "parameter.", rsh_check_ls, .quieter = 2 },
	{ "plan", RSH_COMMAND_PLAN, { "SOURCE", "[RANK...]" },
	  "show what a conversion would read",
	  "Shows for each destination RANK the size of its file, which source "
	  "ranks it reads, how many bytes, and an estimate of the time.  RANK "
	  "is a number or a range such as 4-7 (default: all).",
	  rsh_check_conversion, .quieter = 1 },
	{ "export", RSH_COMMAND_EXPORT, { "SOURCE", "OUTDIR", "[RANK...]" },
	  "write the converted checkpoint as files",
	  "Writes the files that a mount with the same options would show, "
	  "and a manifest.  Files get their final name only when they are "
	  "complete; an interrupted export resumes.  RANK is a number or a "
	  "range such as 4-7 (default: all).", rsh_check_conversion, .quieter = 1 },
	{ "verify", RSH_COMMAND_VERIFY,
	  { "SOURCE|MANIFEST", "[TREE|MANIFEST]", "[RANK...]" },
	  "verify files against a manifest or a conversion",
	  "Verifies SOURCE against its manifest or, without one, its "
	  "structure, CRCs and replicas; TREE against what a mount of SOURCE "
	  "would show; a mount of SOURCE against a MANIFEST; or the files of "
	  "TREE against a MANIFEST.", rsh_check_verify, .quieter = 1 },
	{ "strategy", RSH_COMMAND_STRATEGY,
	  { "show|merge|check|derive|infer", "STRATEGY..." },
	  "show, merge, check, derive or infer strategies",
	  "Shows, merges, checks or derives strategy files, or infers a lost "
	  "one.  Options of each: reshardfs help strategy derive", check_form,
	  .forms = RSH_IN(RSH_COMMAND_SHOW) | RSH_IN(RSH_COMMAND_MERGE) |
		   RSH_IN(RSH_COMMAND_CHECK) |
		   RSH_IN(RSH_COMMAND_DERIVE) | RSH_IN(RSH_COMMAND_INFER) },
	{ "strategy show", RSH_COMMAND_SHOW, { "STRATEGY" },
	  "list how each parameter is sharded",
	  "Lists how each parameter is sharded and which ranks hold the same "
	  "slices." },
	{ "strategy merge", RSH_COMMAND_MERGE, { "STRATEGY..." },
	  "merge the strategy files of all pipeline stages",
	  "Merges the strategy files of all pipeline stages into one file, as "
	  "MindSpore's merge_pipeline_strategys does." },
	{ "strategy check", RSH_COMMAND_CHECK, { "STRATEGY..." },
	  "check strategy files for errors",
	  "Checks strategy files for errors that would make a conversion "
	  "fail.  The exit status is 1 if there are any." },
	{ "strategy derive", RSH_COMMAND_DERIVE, { "STRATEGY|none" },
	  "derive the strategy of another mesh",
	  "Derives the strategy that MindSpore would plan for --mesh from the "
	  "strategy of another mesh, or from \"none\" and rules." },
	{ "strategy infer", RSH_COMMAND_INFER, { "SOURCE" },
	  "infer a lost strategy from file contents",
	  "Finds out which ranks of SOURCE hold the same data and which "
	  "meshes would explain that.  Use it if the strategy files are "
	  "lost." },
	{ "convert", RSH_COMMAND_CONVERT,
	  { "list|show|check", "[TABLE]", "[SOURCE]" },
	  "list, show or check rule tables for --convert",
	  "Lists, shows or checks the rule tables by which --convert converts "
	  "between Hugging Face and MindSpore weights.  TABLE is a name from "
	  "`convert list`, or a file.", check_form,
	  .forms = RSH_IN(RSH_COMMAND_TABLES) |
		   RSH_IN(RSH_COMMAND_TABLE_SHOW) |
		   RSH_IN(RSH_COMMAND_TABLE_CHECK) },
	{ "convert list", RSH_COMMAND_TABLES, { NULL },
	  "list the rule tables that --convert knows by name",
	  "Lists the rule tables that --convert knows by name, with the model "
	  "architectures that they are for.", rsh_check_convert },
	{ "convert show", RSH_COMMAND_TABLE_SHOW, { "TABLE" },
	  "print a rule table",
	  "Prints a rule table.  Save it to a file, edit it and use it as "
	  "--convert FILE.", rsh_check_convert },
	{ "convert check", RSH_COMMAND_TABLE_CHECK, { "TABLE", "[SOURCE]" },
	  "check a rule table, alone or against SOURCE",
	  "Checks a rule table and, with SOURCE, lists which tensors each "
	  "rule converts, which tensors no rule converts, and which names or "
	  "sizes do not match.  The exit status is 1 if a mount would fail.",
	  rsh_check_convert },
	{ "warm", RSH_COMMAND_WARM, { "MOUNTPOINT", "[RANK...]" },
	  "read a mount's metadata or contents in advance",
	  "Looks up all files of a mount, or those of each RANK, so that "
	  "later accesses are fast; --contents reads them too.  RANK is a "
	  "number or a range such as 4-7 (default: all)." },
	{ "stats", RSH_COMMAND_STATS, { "MOUNTPOINT" },
	  "print statistics of a mount",
	  "Prints the statistics of a mount: reads, bytes, errors, cache.  "
	  "More are in the hidden directory MOUNTPOINT/.reshardfs." },
	{ "list", RSH_COMMAND_LIST, { NULL },
	  "list the mounts of this machine",
	  "Lists the mounts of this user: where they are, what they show, "
	  "whether they answer, and how much memory they use." },
	{ "steps", RSH_COMMAND_STEPS, { "MOUNTPOINT" },
	  "list the steps of a mount, or wait for one",
	  "Lists the steps of a mount with --steps all, and says why some of "
	  "them are not shown.  --wait waits until a step is complete." },
	{ "doctor", RSH_COMMAND_DOCTOR, { "[SOURCE]" },
	  "say what this machine and SOURCE have",
	  "Prints what a question about a mount needs: versions, kernel, "
	  "limits, caches, what is missing and, with SOURCE, what `ls` "
	  "prints.  Keys are never printed.  The exit status is 1 if a mount "
	  "would fail." },
	{ "completion", RSH_COMMAND_COMPLETION, { "bash|zsh|fish" }, NULL,
	  "Prints the completion of a shell, for its start file: "
	  "`source <(reshardfs completion bash)`, or zsh; `reshardfs "
	  "completion fish | source`.", check_completion },
	{ "help", RSH_COMMAND_HELP, { "[COMMAND]", "[WORD]" },
	  "print help for a command",
	  "Prints the help of COMMAND, or lists all commands.  WORD is the "
	  "second word of a command such as `strategy derive`.", check_help },
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

const struct rsh_command *rsh_command_form(const struct rsh_command *command,
					   const char *word)
{
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		const char *form = form_word(command, &table[i]);

		if (form && strcmp(form, word) == 0)
			return &table[i];
	}
	return NULL;
}

/* ---- mistyped names ---- */

/* Commands of other programs. */
static const struct {
	const char *theirs, *ours;
} others[] = {
	{ "info", "ls" }, { "show", "ls" }, { "inspect", "ls" },
	{ "describe", "ls" }, { "dump", "ls" }, { "cat", "export" },
	{ "copy", "export" }, { "cp", "export" }, { "save", "export" },
	{ "merge", "export" }, { "consolidate", "export" },
	{ "reshard", "export" }, { "transform", "export" },
	{ "check", "verify" }, { "fsck", "verify" }, { "diff", "verify" },
	{ "unmount", "umount" }, { "mounts", "list" }, { "ps", "list" },
	{ "status", "list" }, { "version", "--version" },
};

void rsh_command_guess(const char *word, char text[RSH_SUGGESTION_BYTES])
{
	struct rsh_suggestion guess;

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (strcmp(others[i].theirs, word) == 0) {
			snprintf(text, RSH_SUGGESTION_BYTES,
				 " (did you mean %s?)", others[i].ours);
			return;
		}
	rsh_suggestion_begin(&guess, word, strlen(word));
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (!strchr(table[i].name, ' '))
			rsh_suggestion_offer(&guess, table[i].name);
	rsh_suggestion_put(&guess, "", text);
}
