/* SPDX-License-Identifier: Apache-2.0 */
/* app/daemon/stack.c checks whether a mount point already has a mount, and
 * whether that mount has the same source and options.  To compare two mounts,
 * it lists the options in a fixed order and with absolute paths, and what the
 * environment decides.
 * The options of a mount are read from its control directory. */
#include "config.h"

#include "daemon_i.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "rsh/app/control_client.h"
#include "rsh/app/printer.h"
#include "rsh/app/mounted.h"
#include "rsh/app/table.h"
#include "rsh/source/tables.h"
#include "rsh/storage/objects.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/wire/json_load.h"

/* Returns the absolute path of a value DIR or DIR:SCALE (from malloc), or NULL
 * if nothing has that path. */
static char *real_place(const char *value)
{
	const char *colon = strrchr(value, ':');
	char *full = realpath(value, NULL);
	cleanup_free char *directory = NULL, *above = NULL;

	if (full || !colon)
		return full;
	directory = strndup(value, (size_t)(colon - value));
	above = directory ? realpath(directory, NULL) : NULL;
	return above ? rsh_text_format("%s%s", above, colon) : NULL;
}

/* Returns the absolute path of a value that is a path (from malloc), by the
 * name of the value in --help.  Returns NULL for other values, which are kept,
 * such as a word that may be given instead of a path. */
static char *full_path(const char *arg, const char *value)
{
	static const char *const places[] = { "PATH", "FILE", "SOURCE", "DIR",
					      "MOUNTPOINT", "TREE", "OUT",
					      "MANIFEST", "STRATEGY", "TABLE" };

	if (!value || strcmp(value, "none") == 0 || strcmp(value, "off") == 0)
		return NULL;
	for (size_t i = 0; arg && i < sizeof(places) / sizeof(places[0]); i++)
		if (strstr(arg, places[i]))
			return real_place(value);
	return NULL;
}

/* Returns 0, or -1 if memory is out. */
static int add_line(json_t *all, const char *name, const char *value)
{
	cleanup_free char *text = NULL;

	text = rsh_text_format("%s%s%s", name, value ? "=" : "",
			       value ? value : "");
	if (!text)
		return -1;
	return json_array_append_new(all, rsh_json_text(text));
}

static int add_given(json_t *all, const struct rsh_command *command,
		     const struct rsh_given *given)
{
	cleanup_free char *full = NULL;
	struct rsh_option_at at;

	if (!rsh_option_find(command, given->name, strlen(given->name), &at) ||
	    at.row->aside)
		return 0;
	full = full_path(at.row->arg, given->value);
	return add_line(all, given->name, full ? full : given->value);
}

/* Compares options by name.  Options with the same name keep their order,
 * because it may matter. */
RSH_ORDER(given_by_name, struct rsh_given,
	  strcmp(x->name, y->name) ?: rsh_compare_u64(x->at, y->at))

/* Adds what an address means here; NULL or a path adds nothing. */
static int add_address(json_t *all, const struct rsh_options *o,
		       const char *place)
{
	cleanup_free char *means = NULL;

	if (!place || !rsh_objects_is_url(place))
		return 0;
	/* The mount says what is wrong with an address. */
	means = rsh_objects_identity(place, &o->objects);
	return add_line(all, place, means);
}

/* Adds what else decides about the content than SOURCE and options. */
static int add_environment(json_t *all, const struct rsh_options *o)
{
	const char *named = rsh_tables_named();
	cleanup_free char *tables = named ? realpath(named, NULL) : NULL;
	const char *base = o->vfs.files.base;
	int rc = add_address(all, o, o->vfs.source) ?:
		 add_address(all, o, o->vfs.model_files) ?:
		 add_address(all, o, base);

	/* This may be given by its name in a cache. */
	if (rc == 0 && base)
		rc = add_line(all, "base", base);
	for (unsigned i = 0; rc == 0 && i < o->vfs.weights.n_loras; i++)
		rc = add_address(all, o, o->vfs.weights.loras[i].directory);
	return rc ?: !named ? 0 :
	       add_line(all, "RESHARDFS_TABLES", tables ? tables : named);
}

json_t *rsh_identity(const struct rsh_options *o)
{
	cleanup_free struct rsh_given *given =
		rsh_alloc_array(o->n_given, sizeof(*given));
	cleanup_free char *source = realpath(o->vfs.source, NULL);
	cleanup_json json_t *all = json_array();
	int rc;

	if (!given || !all)
		return NULL;
	for (size_t i = 0; i < o->n_given; i++)
		given[i] = o->given[i];
	qsort(given, o->n_given, sizeof(*given), given_by_name);
	rc = add_line(all, "SOURCE", source ? source : o->vfs.source);
	for (size_t i = 0; rc == 0 && i < o->n_given; i++)
		rc = add_given(all, o->command, &given[i]);
	rc = rc ?: add_environment(all, o);
	return rc == 0 ? steal_pointer(&all) : NULL;
}

/* ---- the mount that is there ---- */

#define ANSWER_MS 10000
#define PAUSE_MS 20
#define LOCK_SECONDS 120

void rsh_stack_tell_same(const char *mountpoint, const char *source,
			 const char *step)
{
	rsh_log_notice("%s: %s is already mounted there with the same options"
		       "%s%s; nothing is done (--stack mounts it again)",
		       mountpoint, source, step && *step ? ", step " : "",
		       step ? step : "");
}

/* Compares the mount with the wanted one.  This program does not unmount a
 * mount of another type or subtype, so the error names another command for
 * it. */
static int judge_mounted(const struct rsh_mounted *m, const json_t *identity,
			 bool *same, char **shown, struct rsh_error *err)
{
	const bool ours = strcmp(m->type, RSH_MOUNTED_TYPE) == 0;
	static const char *const names[] = { "config" };
	json_t *answer;
	const int rc = rsh_control_ask(m, false, names, 1, ANSWER_MS, &answer);
	const json_t *config = json_array_get(answer, 1);
	const char *step = json_string_value(json_object_get(config, "step"));
	const char *known = json_string_value(json_object_get(config, "shown"));
	const bool hangs = rc == -ETIMEDOUT;
	const bool equal = rc == 0 &&
		json_equal(json_object_get(config, "made_of"), identity);

	free(*shown);
	*shown = equal && known ? strdup(known) : NULL;
	*same = equal && !*shown;
	if (*same)
		rsh_stack_tell_same(m->path, m->source, step);
	json_decref(answer);
	if (rc == -ENOTCONN || hangs)
		return rsh_error_set(err, -rc, "mount point %s: %s (%s) is "
				     "mounted there, and %s; unmount it with "
				     "`%s %s`", m->path, m->source, m->type,
				     hangs ? "does not answer" :
					     "its daemon has ended",
				     !ours ? "umount -l" :
				     hangs ? "reshardfs umount --force" :
					     "reshardfs umount", m->path);
	return 0;
}

/* ---- one process at a time ---- */

static int look_at_mountpoint(const struct rsh_options *o,
			      const json_t *identity, bool *same, char **shown,
			      int *lock, struct rsh_error *err)
{
	const struct timespec pause = { .tv_nsec = PAUSE_MS * 1000 * 1000 };
	struct rsh_mounted m, now;
	unsigned turns = 0;
	bool covers;
	int rc;

	for (;;) {
		cleanup_fd int fd = -1;

		/* The process that mounts reports what is wrong with the
		 * path. */
		if (rsh_mounted_find(o->mountpoint, &m))
			return 0;
		/* An automounter mounts autofs, which other mounts cover.  A
		 * look into it would request the mount that is being made. */
		covers = m.n && strcmp(m.type, "autofs") != 0;
		rc = covers ? judge_mounted(&m, identity, same, shown, err) :
			      0;
		if (rc || *same)
			return rc;
		/* The exclusive lock is on the directory that will be mounted
		 * on.  Daemons hold a shared lock there (mounted.h), also some
		 * daemons whose mount was detached: there is no wait for shared
		 * locks.  If the file system has no locks, there is no wait. */
		fd = open(m.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0 &&
		    errno == EWOULDBLOCK && flock(fd, LOCK_SH | LOCK_NB) != 0) {
			if (++turns > LOCK_SECONDS * 1000 / PAUSE_MS)
				return rsh_error_set(
					err, ETIMEDOUT, "mount point %s: "
					"another process has been mounting "
					"there for %d seconds", m.path,
					LOCK_SECONDS);
			nanosleep(&pause, NULL);
		} else if (rsh_mounted_find(m.path, &now) ||
			   (now.n == m.n &&
			    strcmp(now.source, m.source) == 0)) {
			/* Nothing has changed since, or the mount cannot be
			 * found, so that a second look cannot help. */
			if (covers && !*shown)
				rsh_log_notice("%s: %s (%s) is already mounted "
					       "there; the new mount covers it "
					       "when it is ready",
					       m.path, m.source, m.type);
			*lock = steal_fd(&fd);
			return 0;
		}
	}
}

int rsh_stack_look(const struct rsh_options *o, const json_t *identity,
		   bool *same, char **shown, int *lock, struct rsh_error *err)
{
	*same = false;
	*shown = NULL;
	*lock = -1;
	return look_at_mountpoint(o, identity, same, shown, lock, err);
}

void rsh_stack_unlock(int lock)
{
	if (lock < 0)
		return;
	flock(lock, LOCK_UN);
	close(lock);
}
