/* SPDX-License-Identifier: Apache-2.0 */
/* source/other_file.c recognizes files that people name where a checkpoint file
 * or a strategy is wanted, and that are neither. */
#include "config.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "rsh/source/inspect.h"
#include "rsh/util/files.h"
#include "rsh/util/mem.h"

static const struct {
	const char *name;
	const char *what;
} other_names[] = {
	{ "/.metadata", "the metadata of a distributed checkpoint" },
	{ ".distcp", "a part of a distributed checkpoint" },
	{ "config.json", "a configuration of a model" },
	{ ".index.json", "the index of a model's parts" },
	{ "/tokenizer.json", "the tokenizer of a model" },
};

static const struct {
	const char *begin;
	const char *what;
} other_begins[] = {
	{ "PK\3\4", "a zip archive, as torch.save() writes them" },
	{ "\x80\2", "a pickle of Python" },
	{ "GGUF", "a GGUF file" },
	{ "\x89HDF", "an HDF5 file" },
	{ "\x93NUMPY", "an array of numpy" },
	{ "\x1f\x8b", "a file compressed by gzip" },
	{ "{\"manifest\"", "a manifest, which reshardfs verify takes" },
	{ "<", "a web page or XML" },
};

static void other_read(const char *path, char *begin, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t n = fd < 0 ? -1 : read(fd, begin, size - 1);

	begin[n > 0 ? n : 0] = '\0';
	if (fd >= 0)
		close(fd);
}

/* Megatron-Core's says little; that of a Checkpoint 2.0 is a strategy, and what is
 * wrong with it is to be told. */
static bool other_is_megatron(const char *path)
{
	static const char name[] = "metadata.json";
	cleanup_free char *beside = NULL;
	const size_t n = strlen(path);

	if (!rsh_has_suffix(path, name) ||
	    (n >= sizeof(name) && path[n - sizeof(name)] != '/'))
		return false;
	if (asprintf(&beside, "%.*s.metadata",
		     (int)(n + 1 - sizeof(name)), path) < 0)
		beside = NULL;
	return beside && access(beside, F_OK) == 0;
}

const char *rsh_other_file(const char *path, bool *of_directory)
{
	char begin[16];

	*of_directory = true;
	if (other_is_megatron(path))
		return "a part of a distributed checkpoint";
	for (size_t i = 0; i < sizeof(other_names) / sizeof(*other_names); i++)
		if (rsh_has_suffix(path, other_names[i].name) ||
		    strcmp(path, other_names[i].name + 1) == 0)
			return other_names[i].what;
	*of_directory = false;
	other_read(path, begin, sizeof(begin));
	for (size_t i = 0; i < sizeof(other_begins) / sizeof(*other_begins); i++)
		if (strncmp(begin, other_begins[i].begin,
			    strlen(other_begins[i].begin)) == 0)
			return other_begins[i].what;
	return NULL;
}
