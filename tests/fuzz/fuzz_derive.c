/* SPDX-License-Identifier: Apache-2.0 */
/* Strategies of any origin, checked and derived for a mesh: whatever they say,
 * it ends in a strategy of that mesh or in a sentence.
 *
 * The first bytes of an input are the options, the rest is the strategy. */
#include "fuzz_support.h"

#include <stdio.h>

#include "rsh/strategy/derive.h"
#include "rsh/strategy/mesh.h"

enum { DP, CP, MP, EP, PP, OPT, RULES, N_OPTIONS };

/* Each taken if its bit of RULES is set.  Expressions are the user's, and so
 * none of the fuzzer's. */
static const struct {
	enum rsh_derive_option which;
	const char *text;
} rules[8] = {
	{ RSH_DERIVE_SPLIT, "weight=0:mp" },
	{ RSH_DERIVE_SPLIT, "bias=0:none" },
	{ RSH_DERIVE_AXES, "expert=*,ep" },
	{ RSH_DERIVE_STAGE, "embed=first" },
	{ RSH_DERIVE_STAGE, "head=last" },
	{ RSH_DERIVE_LAYERS, "1,1" },
	{ RSH_DERIVE_OPT_EXCLUDE, "norm" },
	{ RSH_DERIVE_DROP, "^adam" },
};

static void set(struct rsh_derive_options *o, enum rsh_derive_option which,
		const char *text)
{
	require(!rsh_derive_options_set(o, which, text, NULL));
}

static struct rsh_derive_options *options_of(const uint8_t *c)
{
	struct rsh_derive_options *o = rsh_derive_options_new();
	char text[128];

	require(o);
	snprintf(text, sizeof(text), "dp=%d,cp=%d,mp=%d,pp=%d", 1 + c[DP] % 16,
		 1 + c[CP] % 4, 1 + c[MP] % 16, 1 + c[PP] % 8);
	if (c[EP])
		snprintf(text + strlen(text), sizeof(text) - strlen(text),
			 ",ep=%d", 1 + c[EP] % 16);
	set(o, RSH_DERIVE_MESH, text);
	if (c[OPT] & 1) {
		snprintf(text, sizeof(text), "%d", (int8_t)c[OPT] >> 1);
		rsh_derive_options_set(o, RSH_DERIVE_OPT, text, NULL);
	}
	for (size_t i = 0; i < 8; i++)
		if (c[RULES] & 1u << i)
			set(o, rules[i].which, rules[i].text);
	return o;
}

static void report(void *ctx, const char *sentence)
{
	(void)ctx;
	require(sentence[0]);
}

/* An array of one file, NULL if it is none; `all`: what can be used of it. */
static struct rsh_strategy_file **parse(const uint8_t *data, size_t size,
					bool all)
{
	const char *path = size && data[0] == '{' ? "f.json" : "f.ckpt";
	struct rsh_strategy_file **files = malloc(sizeof(*files));

	require(files);
	if (rsh_strategy_parse_all(&(struct rsh_memory){ data, size }, path,
				   all ? report : NULL, NULL, files, NULL) == 0)
		return files;
	free(files);
	return NULL;
}

static void check(const uint8_t *data, size_t size)
{
	struct rsh_strategy_file **files = parse(data, size, true);
	struct rsh_names *names = rsh_names_new();

	if (files)
		require(!rsh_strategy_check(&(struct rsh_strategy_checked){
			files, 1, false, "f", NULL,
		}, names, report, NULL, NULL));
	rsh_names_free(names);
}

static void derive(const struct rsh_strategy *s,
		   const struct rsh_derive_options *o, struct rsh_names *names)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_strategy *again;
	struct rsh_derived *d;

	if (rsh_strategy_derive(s, NULL, o, names, &d, &err)) {
		require(err.code && err.text[0]);
		return;
	}
	require(d->items.n && d->items.n_stages && d->stage_ranks);
	if (rsh_derived_strategy(d, "g", names, &again, &err))
		require(err.code && err.text[0]);
	else
		rsh_strategy_free(again);
	rsh_derived_free(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_strategy_file **files;
	struct rsh_derive_options *o;
	struct rsh_strategy *s;
	struct rsh_names *names;

	if (size < N_OPTIONS)
		return 0;
	check(data + N_OPTIONS, size - N_OPTIONS);
	files = parse(data + N_OPTIONS, size - N_OPTIONS, false);
	if (!files)
		return 0;
	names = rsh_names_new();
	o = options_of(data);
	if (rsh_strategy_merge(&(struct rsh_strategy_set){ files, 1,
				RSH_STRATEGY_FILE, "f" }, names, &s,
			       &err)) {
		require(err.code && err.text[0]);
	} else {
		derive(s, o, names);
		rsh_strategy_free(s);
	}
	rsh_derive_options_free(o);
	rsh_names_free(names);
	return 0;
}
