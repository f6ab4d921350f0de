/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/ls_model.c prints what a whole model in parts is, for `ls SOURCE`,
 * and the next command to type. */
#include "config.h"

#include "ls.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/app/commands.h"
#include "rsh/app/line.h"
#include "rsh/source/tables.h"
#include "rsh/util/mem.h"
#include "rsh/wire/model_config.h"
#include "text.h"

/* ---- reading ---- */

int rsh_ls_model_take(struct rsh_ls_model *m, const char *path,
		      const struct rsh_source *source,
		      const struct rsh_source_view *view)
{
	const struct rsh_ckpt_index *ix = view->index[0];
	struct rsh_source_file_info f;
	const struct rsh_store *store = rsh_source_store(source);
	struct rsh_model_config *config = NULL;
	struct rsh_error why = RSH_ERROR_INIT;
	cleanup_free uint8_t *data = NULL;
	const char *name;
	struct rsh_stat st;
	size_t len;
	int rc;

	m->n_parts = rsh_source_n_files(source);
	for (uint32_t i = 0; i < m->n_parts; i++) {
		rsh_source_file_info(source, i, &f);
		m->file_bytes += f.bytes;
	}
	m->n_tensors = ix->n_records;
	for (uint32_t i = 0; i < ix->n_records; i++) {
		const struct rsh_record *r = &ix->records[i];

		m->n_of[r->dtype]++;
		m->bytes_of[r->dtype] += r->content_bytes;
		m->bytes += r->content_bytes;
	}
	/* A config.json that cannot be read is ignored, because the weights are
	 * listed. */
	rc = rsh_store_look(store, RSH_MODEL_CONFIG_NAME, &st);
	if (rc == 0)
		rc = rsh_store_load(store, RSH_MODEL_CONFIG_NAME,
				    &rsh_model_config_file, &data, &len, &why);
	if (rc == 0)
		rc = rsh_model_config_parse(data, len, path, &config, &why);
	if (rc)
		return rc == -ENOMEM ? rc : 0;
	name = rsh_model_config_architecture(config, 0);
	m->architecture = name ? strdup(name) : NULL;
	rc = name && !m->architecture ? -ENOMEM : 0;
	rsh_model_config_free(config);
	return rc;
}

/* ---- the next command ---- */

static char *next_command(const struct rsh_options *o)
{
	const char *operands[] = { o->vfs.source, "mnt", NULL };
	cleanup_free char *line =
		rsh_options_line(o, rsh_command_find("mount"), operands);
	char *text;

	return line && asprintf(&text, "mkdir -p mnt && %s", line) >= 0 ?
	       text : NULL;
}

int rsh_ls_next_print(const struct rsh_printer *out,
		      const struct rsh_options *o)
{
	cleanup_free char *line = next_command(o);

	if (!line)
		return -ENOMEM;
	fprintf(out->f, "next: %s\n", line);
	return 0;
}

json_t *rsh_ls_next_json(const struct rsh_options *o)
{
	cleanup_free char *line = next_command(o);

	return line ? rsh_json_text(line) : NULL;
}

/* ---- printing ---- */

json_t *rsh_ls_model_json(const struct rsh_ls_model *m)
{
	json_t *types = json_array();

	for (unsigned d = 0; d < RSH_DTYPE_COUNT; d++)
		if (m->n_of[d])
			json_array_append_new(
				types, json_pack("{s:s,s:i,s:o}", "dtype",
						 rsh_dtype_name((enum rsh_dtype)
								d),
						 "tensors", (int)m->n_of[d],
						 "bytes",
						 rsh_json_u64(m->bytes_of[d])));
	return json_pack("{s:o,s:i,s:i,s:o,s:o}", "architecture",
			 rsh_json_optional(m->architecture), "parts",
			 (int)m->n_parts, "tensors", (int)m->n_tensors, "bytes",
			 rsh_json_u64(m->bytes), "types", types);
}

void rsh_ls_model_print(const struct rsh_ls_model *m,
			const struct rsh_printer *out)
{
	const char *before = "";
	char size[32];

	if (m->architecture)
		rsh_printer_put(out, m->architecture);
	else
		fputs("a model without an architecture in its config.json",
		      out->f);
	fprintf(out->f, ": %" PRIu32 " tensor%s, %s", m->n_tensors,
		m->n_tensors == 1 ? "" : "s",
		rsh_text_bytes(m->bytes, size, sizeof(size)));
	fprintf(out->f, ", in %" PRIu32 " part%s of %s\n", m->n_parts,
		m->n_parts == 1 ? "" : "s",
		rsh_text_bytes(m->file_bytes, size, sizeof(size)));
	for (unsigned d = 0; d < RSH_DTYPE_COUNT; d++) {
		if (m->n_of[d] == 0)
			continue;
		fprintf(out->f, "%s%s: %" PRIu32 " tensor%s, %s", before,
			rsh_dtype_name((enum rsh_dtype)d), m->n_of[d],
			m->n_of[d] == 1 ? "" : "s",
			rsh_text_bytes(m->bytes_of[d], size, sizeof(size)));
		before = "; ";
	}
	fputc('\n', out->f);
}
