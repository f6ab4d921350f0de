/* SPDX-License-Identifier: Apache-2.0 */
/* formats/dcp/dcp.c - the format of PyTorch's distributed checkpoints. */
#include "config.h"

#include "dcp_i.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "rsh/formats/files.h"
#include "rsh/formats/formats.h"
#include "rsh/util/files.h"

/* SOURCE is the step, so its name is shown. */
static void dcp_step_text(const struct rsh_source *s, uint32_t i, char *text,
			  size_t size)
{
	const char *path = rsh_source_path(s), *slash = strrchr(path, '/');

	(void)i;
	snprintf(text, size, "%s", slash ? slash + 1 : path);
}

static void dcp_hint(const struct rsh_look *l, char *buf, size_t max)
{
	const char *item = NULL;

	for (size_t i = 0; i < l->n; i++) {
		if (strcmp(l->names[i], RSH_DCP_METADATA) == 0) {
			snprintf(buf, max, "; it is a distributed checkpoint");
			return;
		}
		if (rsh_has_suffix(l->names[i], ".distcp") &&
		    (!item || strverscmp(l->names[i], item) < 0))
			item = l->names[i];
	}
	if (item)
		snprintf(buf, max, "; %s is of a distributed checkpoint, and "
			 "no " RSH_DCP_METADATA " is beside it: the save was "
			 "not finished", item);
}

/* Ranks that write their own metadata do not wait for each other. */
static int dcp_whole(const struct rsh_source *s, struct rsh_error *err)
{
	/* Megatron-Core writes the second one last. */
	static const char common[] = "common.pt", last[] = "metadata.json";
	const struct rsh_store *store = rsh_source_store(s);
	struct rsh_stat st;
	int rc = rsh_store_look(store, RSH_DCP_METADATA, &st);

	if (rc == -ENOENT)
		return rsh_error_set(err, ENOENT, "%s: nothing says when "
				     "all ranks have saved, for it has no %s: "
				     "mount this step alone",
				     rsh_source_path(s), RSH_DCP_METADATA);
	rc = rsh_format_check_marker(s, RSH_DCP_METADATA, err);
	if (rc || rsh_store_look(store, common, &st))
		return rc;
	return rsh_format_check_marker(s, last, err);
}

const struct rsh_format rsh_dcp_format = {
	.name = "dcp",
	.says = "distributed checkpoint",
	.layout = RSH_LAYOUT_WHOLE,
	.owner = RSH_OWNER_NOBODY,
	.lone = true,
	.below = "pytorch_model_fsdp_0", /* of the Trainer and accelerate */
	.any_type = true,
	.any_copy = true,
	.shown = RSH_SHOWN_HF,
	.bid = rsh_dcp_bid,
	.is_step = rsh_dcp_is_step,
	.hint = dcp_hint,
	.open = rsh_dcp_open,
	.close = rsh_dcp_close,
	.scan = rsh_dcp_index_scan,
	.fits = rsh_dcp_index_fits,
	.has_crc = rsh_dcp_has_crc,
	.step_text = dcp_step_text,
	.whole = dcp_whole,
	.read = rsh_dcp_read,
	.values = rsh_dcp_values,
	.each = rsh_dcp_each,
	.list = rsh_dcp_list,
	.verify = rsh_dcp_verify,
	.resume = &rsh_dcp_resume,
};
