/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which code ran, for tests/reached.sh: gcc's -fsanitize-coverage=trace-pc calls
 * __sanitizer_cov_trace_pc() at the begin of each basic block.  A byte for each byte of
 * code says which of these calls returned.  The bytes are a file in REACHED_DIRECTORY,
 * or in RSH_REACHED of the environment, named by the build ID, which all processes map:
 * they survive SIGKILL, and need no file to be opened later, when a sandbox would refuse it.
 *
 * Each program and library has its own copy of this file.
 */
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define HIDDEN __attribute__((visibility("hidden")))

/* The linker defines these for each program and library. */
extern const ElfW(Ehdr) __ehdr_start HIDDEN;
extern const char etext[] HIDDEN;

void __sanitizer_cov_trace_pc(void);

static unsigned char *reached_marks;

static uintptr_t reached_begin(void)
{
	return (uintptr_t)&__ehdr_start;
}

/* The build ID of this program or library in hexadecimal digits, or -1. */
static int reached_build_id(char *text, size_t size)
{
	const ElfW(Phdr) *p = (const void *)(reached_begin() + __ehdr_start.e_phoff);

	for (int i = 0; i < __ehdr_start.e_phnum; i++) {
		const char *at = (const char *)reached_begin() + p[i].p_vaddr;
		const char *end = at + p[i].p_memsz;

		while (p[i].p_type == PT_NOTE && at + sizeof(ElfW(Nhdr)) < end) {
			const ElfW(Nhdr) *note = (const void *)at;
			const char *name = at + sizeof(*note);
			const unsigned char *id = (const void *)(name + ((note->n_namesz + 3) & ~3U));

			if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 &&
			    memcmp(name, "GNU", 4) == 0 && 2 * note->n_descsz < size) {
				for (unsigned k = 0; k < note->n_descsz; k++)
					sprintf(text + 2 * k, "%02x", id[k]);
				return 0;
			}
			at = (const char *)id + ((note->n_descsz + 3) & ~3U);
		}
	}
	return -1;
}

__attribute__((constructor(101))) static void reached_map(void)
{
	size_t size = (uintptr_t)etext - reached_begin();
	const char *directory = getenv("RSH_REACHED") ?: REACHED_DIRECTORY;
	char path[4096];
	size_t n = (size_t)snprintf(path, sizeof(path), "%s/", directory);
	void *map;
	int fd;

	if (n >= sizeof(path) || reached_build_id(path + n, sizeof(path) - n) < 0)
		return;
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	if (fd < 0)
		return;
	(void)fchmod(fd, 0666); /* other users run it too, with a umask of the first one */
	if (ftruncate(fd, (off_t)size) == 0) {
		map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (map != MAP_FAILED)
			reached_marks = map;
	}
	close(fd);
}

void __sanitizer_cov_trace_pc(void)
{
	unsigned char *marks = reached_marks;
	uintptr_t at = (uintptr_t)__builtin_return_address(0) - reached_begin();

	if (marks && !marks[at])
		marks[at] = 1;
}
