/* SPDX-License-Identifier: Apache-2.0 */
/* app/options/digest.c hashes the options that decide about the bytes of a
 * conversion, as marked in the table of options. */
#include "config.h"

#include "rsh/app/table.h"

#include <string.h>

#include "rsh/formats/model_files.h"
#include "rsh/source/source.h"
#include "rsh/source/tables.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/util/xxh3.h"
#include "rsh/wire/adapter_config.h"

/* The number of bytes is hashed before the bytes. */
static void digest_bytes(void *hash, const void *data, size_t len)
{
	XXH3_64bits_update(hash, &len, sizeof(len));
	XXH3_64bits_update(hash, data, len);
}

/* The final NUL is hashed as well, so that a NULL text and an empty text
 * differ. */
static void digest_text(void *hash, const char *text)
{
	digest_bytes(hash, text ? text : "", text ? strlen(text) + 1 : 0);
}

static int digest_model_files(void *hash, const struct rsh_vfs_config *cfg,
			      struct rsh_error *err)
{
	const struct rsh_model_files_at at = {
		cfg->model_files, cfg->shown_config, cfg->source,
		&cfg->files.store, NULL, cfg->is_beside,
		cfg->files.steps_dir,
	};
	struct rsh_model_files files;
	int rc = rsh_model_files_load(&at, &files, err);

	for (size_t i = 0; rc == 0 && i < files.n; i++) {
		const struct rsh_model_file *f = &files.v[i];

		digest_bytes(hash, f->name, strlen(f->name));
		digest_bytes(hash, f->text, (size_t)f->bytes);
	}
	rsh_model_files_clear(&files);
	return rc;
}

static int digest_file(void *hash, const char *path, struct rsh_error *err)
{
	uint64_t content = 0;
	int rc = path ? rsh_strategy_digest(path, &content, err) : 0;

	XXH3_64bits_update(hash, &content, sizeof(content));
	return rc;
}

/* The choice of a table depends on all tables, so all are hashed. */
static int digest_tables(void *hash, struct rsh_error *err)
{
	cleanup_table_list struct rsh_table_list l;
	int rc = rsh_tables_list(&l) ? rsh_error_nomem(err) : 0;

	for (size_t i = 0; rc == 0 && i < l.n; i++) {
		digest_bytes(hash, l.v[i].name, strlen(l.v[i].name));
		rc = digest_file(hash, l.v[i].path, err);
	}
	return rc;
}

/* Hashes a small file of the store, if it is there. */
static int digest_stored(void *hash, const struct rsh_store *store,
			 const char *name, const struct rsh_small_file *kind,
			 struct rsh_error *err)
{
	cleanup_free uint8_t *data = NULL;
	size_t len;
	int rc = rsh_store_has(store, name, err);

	if (rc <= 0)
		return rc;
	rc = rsh_store_load(store, name, kind, &data, &len, err);
	if (rc == 0)
		digest_bytes(hash, data, len);
	return rc;
}

static int digest_config(void *hash, const struct rsh_vfs_config *cfg,
			 const struct rsh_store *store, struct rsh_error *err)
{
	cleanup_free char *beside = NULL;
	int rc;

	if (cfg->weights.config)
		return digest_file(hash, cfg->weights.config, err);
	/* The store reads the file if it is behind an address. */
	if (rsh_store_is_address(cfg->source))
		return digest_stored(hash, store, RSH_MODEL_CONFIG_NAME,
				     &rsh_model_config_file, err);
	rc = rsh_model_config_in(cfg->source, &beside, err);
	return rc || !beside ? rc : digest_file(hash, beside, err);
}

/* The file of an adapter is identified as the files of SOURCE are. */
static int digest_lora(void *hash, const struct rsh_lora_at *at,
		       const char *file, const struct rsh_store *store,
		       struct rsh_error *err)
{
	cleanup_handle struct rsh_handle *h = NULL;
	cleanup_free char *config = NULL;
	cleanup_free uint8_t *data = NULL;
	struct rsh_store_identity id;
	uint64_t content;
	uint64_t is[6];
	size_t len;
	int rc = rsh_handle_open(store, file, &h) ?:
		 rsh_handle_identity(h, &id);

	if (rc)
		return rsh_store_open_error(store, file, rc, err);
	config = rsh_text_format("%s/" RSH_ADAPTER_CONFIG_NAME, at->directory);
	if (!config)
		return rsh_error_nomem(err);
	is[0] = id.size;
	is[1] = id.which[1];
	is[2] = (uint64_t)id.mtime.tv_sec;
	is[3] = (uint64_t)id.mtime.tv_nsec;
	is[4] = (uint64_t)id.ctime.tv_sec;
	is[5] = (uint64_t)id.ctime.tv_nsec;
	digest_bytes(hash, is, sizeof(is));
	digest_bytes(hash, &at->scale, sizeof(at->scale));
	rc = rsh_store_load(store, config, &rsh_adapter_config_file, &data,
			    &len, err);
	if (rc)
		return rc;
	content = XXH3_64bits(data, len);
	XXH3_64bits_update(hash, &content, sizeof(content));
	return 0;
}

/* The member of an option that is not given is zero.  It adds nothing, so that
 * a new option does not change the digests without it. */
static int digest_member(void *hash, const struct rsh_option *def,
			 const void *member, struct rsh_error *err)
{
	static const uint64_t zero;
	const struct rsh_output *output;

	if (!def->decides || memcmp(member, &zero, def->size) == 0)
		return 0;
	digest_bytes(hash, def->name, strlen(def->name));
	switch (def->decides) {
	case RSH_DECIDES_NOTHING:
		break;
	case RSH_DECIDES_VALUE:
		digest_bytes(hash, member, def->size);
		break;
	case RSH_DECIDES_TEXT:
		digest_text(hash, *(const char *const *)member);
		break;
	case RSH_DECIDES_FILE:
		return digest_file(hash, *(const char *const *)member, err);
	case RSH_DECIDES_OUTPUT:
		output = *(const struct rsh_output *const *)member;
		XXH3_64bits_update(hash, &(uint32_t){ output->framing->type },
				   sizeof(uint32_t));
		break;
	}
	return 0;
}

/* The contents of the table and of config.json are hashed, not their paths. */
static int digest_rows(XXH3_state_t *hash, const struct rsh_vfs_config *cfg,
		       const struct rsh_store *store, struct rsh_error *err)
{
	const size_t base = offsetof(struct rsh_options, vfs);
	const struct rsh_weights_at *w = &cfg->weights;
	const uint32_t how[] = { w->from, (uint32_t)w->unlisted };
	struct rsh_option_at at = { .list = NULL };
	int rc = 0;

	while (rc == 0 && rsh_option_next(&at))
		rc = digest_member(hash, at.row, (const char *)cfg +
				   at.list->base + at.row->at - base, err);
	if (cfg->output->digest)
		XXH3_64bits_update(hash, &cfg->output->digest,
				   sizeof(cfg->output->digest));
	if (cfg->leave_states)
		XXH3_64bits_update(hash, &cfg->leave_states,
				   sizeof(cfg->leave_states));
	if (rc == 0 && w->table) {
		digest_bytes(hash, how, sizeof(how));
		if (w->of_models)
			digest_bytes(hash, w->table, strlen(w->table));
		rc = rsh_table_is_word(w->table) ?
			digest_tables(hash, err) :
			digest_file(hash, w->table, err);
		rc = rc ?: digest_config(hash, cfg, store, err);
	}
	if (rc == 0 && cfg->output->takes & RSH_TAKES_MESH) {
		digest_text(hash, cfg->mesh);
		rc = w->table ? 0 : digest_config(hash, cfg, store, err);
	}
	if (rc == 0 && w->dequantise && !w->table)
		rc = digest_config(hash, cfg, store, err);
	for (unsigned i = 0; rc == 0 && i < cfg->weights.n_loras; i++)
		rc = digest_lora(hash, &cfg->weights.loras[i],
				 cfg->weights.lora_files[i], store, err);
	/* The adapter_config.json that is shown follows from SOURCE's. */
	if (rc == 0 && cfg->output->takes & RSH_TAKES_ADAPTER)
		rc = digest_stored(hash, store, RSH_ADAPTER_CONFIG_NAME,
				   &rsh_adapter_config_file, err);
	if (rc == 0 && (cfg->model_files || cfg->shown_config))
		rc = digest_model_files(hash, cfg, err);
	return rc;
}

int rsh_options_digest(const struct rsh_vfs_config *cfg,
		       const struct rsh_store *store, uint64_t *digest,
		       struct rsh_error *err)
{
	XXH3_state_t *hash = XXH3_createState();
	int rc;

	if (!hash)
		return rsh_error_nomem(err);
	XXH3_64bits_reset(hash);
	rc = digest_rows(hash, cfg, store, err);
	*digest = XXH3_64bits_digest(hash);
	XXH3_freeState(hash);
	return rc;
}
