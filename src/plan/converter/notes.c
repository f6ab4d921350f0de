/* SPDX-License-Identifier: Apache-2.0 */
/* plan/converter/notes.c counts differences from the result of MindSpore's
 * converter, and writes notes about them. */
#include <errno.h>
#include <string.h>

#include "rsh/util/text.h"

#include "converter_i.h"

static const struct {
	const char *sentence;
	/* The note is about the source, and this is the difference that follows
	 * from it. */
	const char *of_source;
	bool undone;   /* --compat=mindspore avoids the difference */
	bool of_whole; /* it applies even if every file equals a source file */
} notes[RSH_NOTE_COUNT] = {
	[RSH_NOTE_SIMPLE_SHARD] = {
		"an optimizer shard that MindSpore's converter puts on the "
		"wrong ranks is on the right ones", .undone = true },
	[RSH_NOTE_BY_STAGE] = {
		"MindSpore's converter would convert by stage and name the files "
		"..._part<stage>.ckpt; here they have their usual names",
		.undone = true },
	[RSH_NOTE_REFUSED] = {
		"MindSpore's converter refuses these layouts; the values are those "
		"of cutting the whole tensors" },
	[RSH_NOTE_SHARED] = {
		"a parameter of several stages has the layout of the rank's own "
		"stage; MindSpore's converter takes another stage's",
		.undone = true },
	[RSH_NOTE_MANUAL] = {
		"rows that are split manually (manual_split) are on the ranks that "
		"the strategies say; MindSpore's converter misplaces them" },
	[RSH_NOTE_BF16] = {
		"BFloat16 NaNs are kept as they are; MindSpore's converter makes "
		"each of them 0x7fc0", .undone = true },
	[RSH_NOTE_INT4] = {
		"Int4 stays Int4; MindSpore's converter turns it into Int8",
		.undone = true },
	[RSH_NOTE_EMPTY] = {
		"tensors without elements are kept; MindSpore's converter drops "
		"them", .undone = true },
	[RSH_NOTE_STR] = {
		"string records are kept; MindSpore's converter crashes on them" },
	[RSH_NOTE_MISSING_COPY] = {
		"a record that its rank lacks is read from another rank",
		"MindSpore's converter refuses a source of which a rank lacks a "
		"record that it copies" },
	[RSH_NOTE_DASH] = {
		"parameter names with '-' are kept; MindSpore's converter cannot "
		"read them" },
	[RSH_NOTE_NONE] = {
		"neither side has a strategy: files are shown unchanged; "
		"MindSpore's converter refuses this", .of_whole = true },
	[RSH_NOTE_WHOLE] = {
		"both sides cut everything in the same way: files are shown "
		"unchanged; MindSpore's converter writes new files, with their "
		"records in another order", .undone = true, .of_whole = true },
	[RSH_NOTE_REPLICA] = {
		"slices of ranks without a valid file are read from replicas",
		"MindSpore's converter refuses a source of which ranks have no "
		"valid file", .of_whole = true },
	[RSH_NOTE_LACKING] = {
		"records that valid files lack are read from replicas",
		"MindSpore's converter refuses a source whose files lack "
		"records", .of_whole = true },
};

void rsh_note_add(struct rsh_converter *c, enum rsh_note note, uint32_t name)
{
	struct rsh_note_state *s = &c->notes[note];

	if (c->foreign || (c->o.compat && notes[note].undone))
		return;
	if (s->n == 0)
		s->example = name;
	/* The same parameter for another stage or rank is not counted again. */
	else if (s->example == name)
		return;
	s->n++;
}

void rsh_note_add_lacking(struct rsh_converter *c, uint32_t rank, uint32_t name)
{
	struct rsh_note_state *s = &c->notes[RSH_NOTE_LACKING];

	if (s->n == 0)
		s->path = c->cat->path[rank];
	rsh_note_add(c, RSH_NOTE_LACKING, name);
}

int rsh_notes_write(struct rsh_converter *c)
{
	const bool all_whole = c->n_whole == rsh_plan_n_files(c->plan);

	for (int i = 0; i < RSH_NOTE_COUNT; i++) {
		const struct rsh_note_state *s = &c->notes[i];
		const char *undo = notes[i].undone && c->o.may_compat ?
			" (--compat=mindspore does the same)" : "";
		char *text;

		if (s->n == 0 || (all_whole && !notes[i].of_whole))
			continue;
		if (s->example == RSH_NAME_NONE)
			text = rsh_text_format("%s%s", notes[i].sentence, undo);
		else
			text = rsh_text_format("%s (%s%s%s%s)%s", notes[i].sentence,
				s->path ? s->path : "",
				s->path ? " lacks " : "",
				rsh_names_text(c->cat->names, s->example),
				s->n > 1 ? " and others" : "", undo);
		if (rsh_blueprint_add_note(c->plan, text,
					   !notes[i].of_source) ||
		    (notes[i].of_source &&
		     rsh_blueprint_add_note(c->plan, strdup(notes[i].of_source),
					    true)))
			return -ENOMEM;
	}
	return 0;
}
