/* SPDX-License-Identifier: Apache-2.0 */
/* app/options/check.c checks the options and operands of a command together. */
#include "config.h"

#include "rsh/app/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "options_i.h"
#include "rsh/formats/formats.h"
#include "rsh/storage/hub.h"
#include "rsh/util/files.h"
#include "rsh/util/mem.h"
#include "rsh/wire/manifest.h"

int rsh_check_source(struct rsh_options *o, char **source,
		     struct rsh_error *err)
{
	cleanup_free char *snapshot = NULL;
	int rc = rsh_hub_find(*source, &snapshot, err);

	o->look = rc;
	if (rc || !snapshot)
		return rc;
	*source = rsh_arena_strdup(&o->memory, snapshot);
	return *source ? 0 : rsh_error_nomem(err);
}

/* If both strategies are given or known, ls prints what a mount would show. */
int rsh_check_ls(struct rsh_options *o, struct rsh_error *err)
{
	int rc = rsh_settle_look(o, err);

	if (rc)
		return rc;
	/* An adapter is shown only if the options ask for it. */
	if (o->format && o->format->is_adapter &&
	    !rsh_weights_change(&o->vfs.weights))
		return 0;
	if (o->vfs.src.from)
		rsh_settle_dst(&o->vfs);
	return o->format || rsh_options_convert(o) ||
	       rsh_weights_change(&o->vfs.weights) ?
		rsh_settle_conversion(o, err) : 0;
}

/* The operands decide what verify compares. */
int rsh_check_verify(struct rsh_options *o, struct rsh_error *err)
{
	const enum rsh_verify_kind kind = rsh_verify_kind_of(o);
	const bool changes = rsh_weights_change(&o->vfs.weights);
	const char *option = rsh_verify_of_source(o);
	bool converts;
	int rc;

	if (kind == RSH_VERIFY_FILES)
		return !option && o->n_operands <= 2 ? 0 :
		       rsh_error_set(err, EINVAL, "%s%s needs a SOURCE; %s is "
				     "compared with a manifest",
				     option ? "--" : "", option ? option :
				     "RANK", o->operands[0]);
	rc = rsh_settle_look(o, err);
	if (rc)
		return rc;
	converts = kind != RSH_VERIFY_SOURCE || o->write_manifest || changes;
	/* This is the default of a source that describes itself. */
	if (o->format && !converts && o->vfs.dst.from == RSH_FROM_NONE)
		o->vfs.dst.from = 0;
	return converts || o->vfs.dst.from ? rsh_settle_conversion(o, err) : 0;
}

int rsh_check_mount(struct rsh_options *o, struct rsh_error *err)
{
	cleanup_free char *full = NULL;

	/* A daemon leaves its working directory, and other programs read the
	 * table of mounts in other directories, so the path is made
	 * absolute. */
	if (*o->vfs.source != '/')
		full = realpath(o->vfs.source, NULL);
	if (full)
		o->vfs.source = rsh_arena_strdup(&o->memory, full);
	if (!o->vfs.source)
		return rsh_error_nomem(err);
	if (o->log_to == RSH_LOG_TO_STDERR && !o->foreground &&
	    !o->server.debug)
		return rsh_error_set(err, EINVAL, "--log-to stderr needs -f: "
				     "a daemon has no standard error");
	if (o->steps && rsh_store_is_address(o->vfs.source) &&
	    strncmp(o->vfs.source, "s3:", 3) != 0)
		return rsh_error_set(err, EINVAL, "%s: --steps all needs a "
				     "directory or s3://: a web server lists "
				     "no steps", o->vfs.source);
	return o->steps || o->resume ? 0 : rsh_check_conversion(o, err);
}

int rsh_check_convert(struct rsh_options *o, struct rsh_error *err)
{
	struct rsh_weights_at *w = &o->vfs.weights;

	w->unlisted = rsh_option_given(o, "unlisted") ? o->vfs.plan.unlisted :
							RSH_UNLISTED_ERROR;
	if (o->command->id == RSH_COMMAND_TABLE_CHECK && !o->vfs.source &&
	    (strcmp(w->table, RSH_TABLE_AUTO) == 0 ||
	     strcmp(w->table, RSH_TABLE_ANY) == 0))
		return rsh_error_set(err, EINVAL, "%s: %s needs SOURCE",
				     o->command->name, w->table);
	return 0;
}

/* ---- what `verify` compares ---- */

enum rsh_verify_kind rsh_verify_kind_of(const struct rsh_options *o)
{
	const char *other = o->n_operands > 1 ? o->operands[1] : NULL;
	const struct rsh_store_options *how = &o->vfs.files.store;
	struct rsh_error unused = RSH_ERROR_INIT;
	const struct rsh_format *f;
	int bid;

	/* A single file may be a source. */
	if (rsh_is_file(o->operands[0])) {
		rsh_source_format_at(o->operands[0], how, rsh_formats, &bid,
				     &unused);
		if (bid <= RSH_BID_ANY)
			return RSH_VERIFY_FILES;
	}
	if (!other)
		return RSH_VERIFY_SOURCE;
	if (!rsh_is_file(other))
		return RSH_VERIFY_TREE;
	if (o->vfs.src.from || o->vfs.dst.from ||
	    rsh_weights_change(&o->vfs.weights))
		return RSH_VERIFY_MANIFEST;
	/* A whole model may also be the output of an export. */
	f = rsh_source_format_at(o->operands[0], how, rsh_formats, &bid,
				 &unused);
	return f && (f->layout == RSH_LAYOUT_OWN || rsh_format_lists(f)) ?
	       RSH_VERIFY_MANIFEST : RSH_VERIFY_FILES;
}

bool rsh_verify_has_manifest(const struct rsh_options *o)
{
	const struct rsh_store_options opts = {
		.objects = o->vfs.files.store.objects,
		.place = o->vfs.files.store.place, .follow_outside = true,
	};
	struct rsh_error unused = RSH_ERROR_INIT;
	struct rsh_store *s = NULL;
	struct rsh_stat st;
	bool has;

	/* A file that cannot be opened is reported later, where it is
	 * needed. */
	if (rsh_store_open(o->operands[0], &opts, &s, &unused))
		return false;
	has = rsh_store_look(s, RSH_MANIFEST_NAME, &st) == 0 &&
	      st.kind == RSH_IS_FILE;
	rsh_store_free(s);
	return has;
}

const char *rsh_verify_of_source(const struct rsh_options *o)
{
	static const char *const others[] = {
		"select", "breakpoint", "fallbacks", "check", "write-manifest",
	};
	struct rsh_option_at at = { .list = NULL };

	while (rsh_option_next_of(o->command, &at))
		if (rsh_option_converts(&at) &&
		    rsh_option_given(o, at.row->name))
			return at.row->name;
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (rsh_option_given(o, others[i]))
			return others[i];
	return NULL;
}
