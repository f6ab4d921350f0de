/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/weights_options.c has the options of struct rsh_weights_at, and finds the
 * files of adapters. */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rsh/storage/hub.h"
#include "rsh/util/files.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/vfs/vfs.h"
#include "rsh/weights/weights.h"
#include "rsh/wire/adapter_config.h"

#define AT(member) RSH_OPTION_AT(struct rsh_weights_at, member)

/* The value may be the directory of config.json. */
static int set_config(const struct rsh_setting *s)
{
	struct rsh_setting file = *s;
	struct stat st;

	if (stat(s->value, &st) == 0 && S_ISDIR(st.st_mode))
		file.value = rsh_arena_format(s->memory, "%s/config.json",
					      s->value);
	return file.value ? rsh_set_text(&file) : rsh_error_nomem(s->err);
}

/* Gives the length of the directory in DIR[:SCALE].  A part after ':' belongs
 * to it if it is no number, or if only such a directory is there. */
static int parse_scale(const struct rsh_setting *s, size_t *len, double *scale)
{
	const char *colon = strrchr(s->value, ':');
	cleanup_free char *before = NULL;
	double n;
	char *end;

	*scale = 1;
	*len = strlen(s->value);
	if (!colon || !colon[1] || colon[1] == ' ')
		return 0;
	n = strtod(colon + 1, &end);
	if (*end)
		return 0;
	before = strndup(s->value, (size_t)(colon - s->value));
	if (!before)
		return rsh_error_nomem(s->err);
	if (access(s->value, F_OK) == 0) {
		if (access(before, F_OK) == 0)
			return rsh_error_set(s->err, EINVAL, "%s: \"%s\" and "
					     "\"%s\" are both there: give %s:1 "
					     "or %s/:%s", s->def->name,
					     s->value, before, s->value,
					     before, colon + 1);
		return 0;
	}
	*scale = n;
	*len = (size_t)(colon - s->value);
	return 0;
}

/* The option may be given several times.  Of addresses, only s3:// has a
 * listing of its files. */
static int set_lora(const struct rsh_setting *s)
{
	struct rsh_weights_at *w = s->base;
	cleanup_free char *directory = NULL, *full = NULL;
	struct rsh_lora_at *at = &w->loras[w->n_loras];
	const char *name = s->def->name;
	double scale;
	size_t n;
	int rc;

	if (w->n_loras == RSH_LORAS_MAX)
		return rsh_error_set(s->err, EINVAL, "%s: more than %d "
				     "adapters", name, RSH_LORAS_MAX);
	rc = parse_scale(s, &n, &scale);
	if (rc)
		return rc;
	if (!isfinite(scale))
		return rsh_error_set(s->err, EINVAL, "%s: the scale of \"%s\" "
				     "is not a finite number", name, s->value);
	if (n == 0)
		return rsh_error_set(s->err, EINVAL, "%s: the value is empty",
				     name);
	directory = strndup(s->value, n);
	if (!directory)
		return rsh_error_nomem(s->err);
	if (rsh_store_is_address(directory)) {
		while (n > 0 && directory[n - 1] == '/')
			directory[--n] = '\0';
		if (strncmp(directory, "s3://", 5) != 0 || n <= 5 ||
		    strchr(directory, '@'))
			return rsh_error_set(s->err, EINVAL, "%s: the address "
					     "of an adapter is "
					     "s3://BUCKET/PREFIX", name);
		full = steal_pointer(&directory);
	} else {
		full = realpath(directory, NULL);
	}
	if (!full)
		return rsh_error_set(s->err, EINVAL, "%s: %s: %s", name,
				     directory, strerror(errno));
	at->scale = scale;
	at->directory = rsh_arena_strdup(s->memory, full);
	w->lora_files[w->n_loras] = rsh_arena_format(
		s->memory, "%s/" RSH_ADAPTER_FILE_NAME, full);
	if (!at->directory || !w->lora_files[w->n_loras])
		return rsh_error_nomem(s->err);
	w->n_loras++;
	return 0;
}

const struct rsh_option rsh_weights_rows[] = {
	{ "convert", "TABLE|auto",
	  "convert weights to another form or back by a rule table (auto: by "
	  "config.json)", rsh_set_text, AT(table), .opens = true,
	  .first = true },
	{ "from", "hf|mindspore",
	  "form of the weights in SOURCE (default: detected from their names)",
	  rsh_set_word, .min = 1 + RSH_SIDE_HF, AT(from),
	  .needs = "convert|SOURCE", .checks = true },
	{ "config", "FILE|DIR",
	  "config.json of the model, or its directory (default: SOURCE, else "
	  "--model-files)", set_config, AT(config), .opens = true,
	  .needs = "SOURCE", .checks = true },
	{ "dequantize", "bfloat16|float16|float32",
	  "make quantised weights dense in this type (default: keep them "
	  "quantised)", rsh_set_float, .values = rsh_floats_of_words,
	  AT(dequantise), .decides = RSH_DECIDES_VALUE,
	  .needs = "SOURCE", .checks = true },
	{ "vocab-multiple", "N",
	  "rows of the embedding and the head in MindSpore's form are padded "
	  "to a multiple of N (default: not padded)", rsh_set_number, .min = 1,
	  .max = 1u << 24, AT(vocab_multiple), .decides = RSH_DECIDES_VALUE,
	  .needs = "convert|SOURCE", .checks = true },
	{ "untie", NULL,
	  "make the head from the embedding if SOURCE lacks it (default: "
	  "heads stay tied)", rsh_set_flag, AT(untie),
	  .decides = RSH_DECIDES_VALUE, .needs = "convert|SOURCE",
	  .checks = true },
	{ "unwrap", NULL,
	  "remove the words of DDP, FSDP, torch.compile and checkpointing, and "
	  "the key of a training state, from names (default: only with "
	  "--convert)", rsh_set_flag, AT(unwrap),
	  .decides = RSH_DECIDES_VALUE },
	{ "lora", "DIR[:SCALE]",
	  "merge a PEFT adapter, times SCALE; may be given several times "
	  "(default: none)", set_lora, AT(n_loras) },
	{ "lora-alpha", "N",
	  "merge the LoRA adapter that SOURCE has beside its weights, trained "
	  "with lora_alpha N (default: not merged)", rsh_set_number, .min = 1,
	  .max = 1u << 24, AT(lora_alpha), .decides = RSH_DECIDES_VALUE,
	  .excludes = "lora" },
	{ .name = NULL },
};

/* ---- files of adapters ---- */

/* Checks that a file of an adapter on disk is in its directory, whose path has
 * no link, as files of SOURCE are.  A missing file is not looked at. */
static int check_inside(const struct rsh_vfs_config *cfg, const char *directory,
			const char *path, struct rsh_error *err)
{
	const size_t n = strlen(directory);
	cleanup_free char *place = path ? realpath(path, NULL) : NULL;

	if (!path)
		return rsh_error_nomem(err);
	if (!place || cfg->files.store.follow_outside || n == 1 ||
	    (strncmp(place, directory, n) == 0 && place[n] == '/') ||
	    rsh_hub_is_blob(directory, place))
		return 0;
	return rsh_error_set(err, EXDEV, "%s leads out of --lora, to %s: "
			     "--follow-outside allows it", path, place);
}

int rsh_vfs_find_adapters(struct rsh_vfs_config *cfg, struct rsh_arena *memory,
			  struct rsh_error *err)
{
	struct rsh_weights_at *w = &cfg->weights;
	int rc = 0;

	for (unsigned i = 0; rc == 0 && i < w->n_loras; i++) {
		const char *dir = w->loras[i].directory;
		cleanup_free char *config = NULL;

		/* In object storage the source finds the file. */
		if (rsh_store_is_address(dir))
			continue;
		if (!rsh_is_file(w->lora_files[i])) {
			w->lora_files[i] = rsh_arena_format(
				memory, "%s/" RSH_ADAPTER_TORCH_NAME, dir);
			if (w->lora_files[i] && !rsh_is_file(w->lora_files[i]))
				return rsh_error_set(
					err, ENOENT, "%s: there is no "
					RSH_ADAPTER_FILE_NAME " and no "
					RSH_ADAPTER_TORCH_NAME, dir);
		}
		config = rsh_text_format("%s/" RSH_ADAPTER_CONFIG_NAME, dir);
		rc = check_inside(cfg, dir, config, err) ?:
		     check_inside(cfg, dir, w->lora_files[i], err);
	}
	cfg->files.beside = w->lora_files;
	cfg->files.n_beside = w->n_loras;
	return rc;
}
