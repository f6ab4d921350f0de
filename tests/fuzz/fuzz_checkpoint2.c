/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever the bytes are, the reader of metadata.json ends in parameters that
 * keep their contract, or in a sentence. */
#include "fuzz_support.h"

#include "rsh/wire/checkpoint2.h"

/* Reads no more than 997 bytes at a time, so that windows end anywhere. */
static ssize_t pread_input(void *ctx, void *buf, size_t len, uint64_t offset)
{
	const struct fuzz_bytes *in = ctx;

	require(offset <= in->size && len <= in->size - offset);
	len = len < 997 ? len : 997;
	memcpy(buf, in->data + offset, len);
	return (ssize_t)len;
}

static void check_param(const struct rsh_ckpt2 *c,
			const struct rsh_ckpt2_param *p)
{
	uint64_t ranks = 1;

	require(p->name[0] && p->n_slices > 0 && p->n_stored <= p->n_slices);
	for (uint32_t d = 0; d < p->n_dims; d++)
		require(p->dims[d] >= 0);
	for (uint32_t i = 0; i < p->ranks->n; i++)
		require(p->ranks->ranks[i] < c->n_ranks);
	if (!p->layout) {
		require(p->n_slices == 1 && (p->ranks->n > 0) == p->n_stored);
		return;
	}
	for (uint32_t i = 0; i < p->layout->n_mesh; i++)
		ranks *= p->layout->mesh[i];
	require(ranks == p->ranks->n && p->n_slices <= ranks &&
		p->layout->n_map == p->n_dims);
}

static void check_names(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);
	struct rsh_ckpt2_name name;
	uint64_t step;

	require(text != NULL);
	memcpy(text, data, size);
	text[size] = '\0';
	if (rsh_ckpt2_name_parse(text, &name))
		require(name.n_prefix < size);
	rsh_ckpt2_step_parse(text, &step);
	rsh_ckpt2_is_metadata(data, size);
	free(text);
}

static void check_all(const struct rsh_ckpt2 *c)
{
	require(c->n_params > 0);
	for (uint32_t i = 0; i < c->n_params; i++)
		check_param(c, &c->params[i]);
	for (uint32_t i = 0; i < c->n_files; i++)
		require(c->files[i].rank < c->n_ranks &&
			!strchr(c->files[i].name, '/') &&
			(!i || strcmp(c->files[i - 1].name,
				      c->files[i].name) < 0));
}

/* What is kept is read as it was. */
static void check_kept(const struct rsh_ckpt2 *c)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_ckpt2 *kept;
	struct fuzz_bytes in;
	char *text;

	if (rsh_ckpt2_keep(c, &text, &in.size))
		return; /* a name is not UTF-8 */
	in.data = (const uint8_t *)text;
	require(!rsh_ckpt2_parse_kept(&(struct rsh_byte_source){
			pread_input, &in, in.size, "f" }, &kept, &err));
	check_all(kept);
	require(kept->n_params == c->n_params && kept->n_files == c->n_files &&
		kept->n_ranks == c->n_ranks);
	rsh_ckpt2_free(kept);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_bytes in = { data, size };
	const struct rsh_byte_source src = { pread_input, &in, size, "f" };
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_ckpt2 *c;

	check_names(data, size);
	if (!rsh_ckpt2_parse_kept(&src, &c, NULL)) {
		check_all(c);
		rsh_ckpt2_free(c);
	}
	if (rsh_ckpt2_parse(&src, &c, &err)) {
		require(err.code && err.text[0]);
		return 0;
	}
	check_all(c);
	check_kept(c);
	rsh_ckpt2_free(c);
	return 0;
}
