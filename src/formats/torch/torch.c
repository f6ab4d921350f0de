/* SPDX-License-Identifier: Apache-2.0 */
/* formats/torch/torch.c - PyTorch's own files as a format.  They are shown with
 * --resume alone. */
#include "config.h"

#include "rsh/formats/formats.h"
#include "torch_i.h"

const struct rsh_format rsh_torch_format = {
	.name = "torch",
	.says = "checkpoint of PyTorch",
	.bid = rsh_no_bid,
	.resume = &rsh_torch_resume,
};
