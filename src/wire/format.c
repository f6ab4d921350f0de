#include "rsh/wire/format.h"

#include <string.h>

static const char *const suffixes[RSH_FORMAT_COUNT] = {
	[RSH_FORMAT_CKPT] = ".ckpt",
	[RSH_FORMAT_SAFETENSORS] = ".safetensors",
};

enum rsh_format rsh_format_of(const char *name)
{
	size_t n = strlen(name);

	for (unsigned f = 0; f < RSH_FORMAT_COUNT; f++) {
		size_t k = strlen(suffixes[f]);

		if (n > k && strcmp(name + n - k, suffixes[f]) == 0)
			return (enum rsh_format)f;
	}
	return RSH_FORMAT_COUNT;
}

const char *rsh_format_suffix(enum rsh_format f)
{
	return suffixes[f];
}
