/* SPDX-License-Identifier: Apache-2.0 */
/* storage/objects/options.c has the options of sources behind HTTP. */
#include "config.h"

#include "rsh/storage/objects.h"

#define AT(member) RSH_OPTION_AT(struct rsh_objects_options, member)

const struct rsh_option rsh_objects_rows[] = {
	{ "source-requests", "N",
	  "s3:// and https://: maximum number of parallel requests (default: "
	  "64)", rsh_set_number, AT(requests), .min = 1, .max = 4096 },
	{ "source-timeout", "SECONDS",
	  "s3:// and https://: how long to retry a read that gets no data "
	  "(default: 60)", rsh_set_number, AT(timeout_ms), .min = 1,
	  .max = 86400, .unit = 1000 },
	{ "source-keys", "auto|none|instance",
	  "s3://: sign requests with credentials of the environment or "
	  "profile, not at all, or with those of the instance (default: auto)",
	  rsh_set_word, AT(keys) },
	{ "source-style", "auto|path|host",
	  "s3://: bucket in the path or in the host name of URLs (default: "
	  "auto, as the server requires)", rsh_set_word, AT(style) },
	{ "requester-pays", NULL,
	  "s3://: pay for requests and transfer yourself, if the bucket wants "
	  "that", rsh_set_flag, AT(requester_pays) },
	{ "source-index", "NAME",
	  "https://: file that lists the other files (default: "
	  "model.safetensors.index.json)", rsh_set_text, AT(index) },
	{ "ca-file", "FILE",
	  "CA certificates for https:// (default: those of the system)",
	  rsh_set_text, AT(ca_file) },
	{ .name = NULL },
};
