/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz/replay.c gives files to a fuzz target, for builds without libFuzzer. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
__attribute__((weak)) int LLVMFuzzerInitialize(int *argc, char ***argv);

static void give(const char *path)
{
	FILE *f = fopen(path, "rb");
	uint8_t *data;
	long size;

	/* Who aborts says of which file. */
	fprintf(stderr, "%s\n", path);
	if (!f || fseek(f, 0, SEEK_END) || (size = ftell(f)) < 0)
		abort();
	rewind(f);
	/* Of that size, so that a sanitizer sees reads behind it. */
	data = malloc((size_t)size);
	if ((size > 0 && !data) || fread(data, 1, (size_t)size, f) !=
	    (size_t)size)
		abort();
	fclose(f);
	LLVMFuzzerTestOneInput(data, (size_t)size);
	free(data);
}

int main(int argc, char **argv)
{
	if (LLVMFuzzerInitialize)
		LLVMFuzzerInitialize(&argc, &argv);
	for (int i = 1; i < argc; i++)
		give(argv[i]);
	return argc > 1 ? 0 : 1;
}
