/* SPDX-License-Identifier: Apache-2.0 */
/* mount-helpers/mount_reshardfs.c is the helper of mount(8) for -t reshardfs.
 *
 *	mount.reshardfs SOURCE MOUNTPOINT [-sfnv] [-o OPTS] [-t TYPE]
 *
 * mount(8) passes every option of an fstab line, including those for itself and
 * for the boot, and `rw` as a default.  The helper removes these and passes the
 * others to reshardfs(1). */
#include "config.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* mount(8)'s exit codes. */
enum { MOUNT_USAGE = 1, MOUNT_FAIL = 32 };

#define VERBOSE "log_level=info"

static const char *const not_ours[] = {
	"_netdev", "auto", "defaults", "group", "nofail", "nogroup", "noauto",
	"noowner", "nouser", "nousers", "owner", "rw", "user", "users",
};

static bool starts_with(const char *s, size_t n, const char *prefix)
{
	size_t k = strlen(prefix);

	return n >= k && memcmp(s, prefix, k) == 0;
}

static bool is_ours(const char *option, size_t n)
{
	for (size_t i = 0; i < sizeof(not_ours) / sizeof(not_ours[0]); i++)
		if (n == strlen(not_ours[i]) &&
		    memcmp(option, not_ours[i], n) == 0)
			return false;
	return n > 0 && !starts_with(option, n, "x-") &&
	       !starts_with(option, n, "X-") &&
	       !starts_with(option, n, "comment=") &&
	       !starts_with(option, n, "user=");
}

/* Length of the option at `s`: up to a comma that no backslash precedes. */
static size_t option_length(const char *s)
{
	size_t n = 0;

	while (s[n] && s[n] != ',')
		n += s[n] == '\\' && s[n + 1] ? 2 : 1;
	return n;
}

/* Appends the options for reshardfs in the comma list `from` to `to`, which must
 * be large enough. */
static void add_options(char *to, const char *from)
{
	for (;;) {
		size_t n = option_length(from);

		if (is_ours(from, n)) {
			if (*to)
				strcat(to, ",");
			strncat(to, from, n);
		}
		if (!from[n])
			return;
		from += n + 1;
	}
}

struct request {
	const char *source;
	const char *mountpoint;
	char *options; /* for reshardfs, of every -o */
	bool fake;
};

/* Sets path to ../bin/reshardfs beside this helper, as a wheel installs it
 * anywhere.  Returns false if there is none. */
static bool find_beside(char *path, size_t size)
{
	static const char program[] = "/bin/reshardfs";
	ssize_t n = readlink("/proc/self/exe", path, size - sizeof(program));

	for (int names = 0; names < 2; names++)
		while (n > 0 && path[--n] != '/')
			;
	if (n < 0)
		return false;
	strcpy(path + n, program);
	return access(path, X_OK) == 0;
}

static int run(const struct request *r)
{
	char path[PATH_MAX];

	if (!find_beside(path, sizeof(path)))
		strcpy(path, BINDIR "/reshardfs");
	execl(path, "reshardfs", "mount", "-o", r->options, "--", r->source,
	      r->mountpoint, (char *)NULL);
	/* If it is not installed, as in tests, PATH is searched. */
	if (errno == ENOENT)
		execlp("reshardfs", "reshardfs", "mount", "-o", r->options,
		       "--", r->source, r->mountpoint, (char *)NULL);
	fprintf(stderr, "mount.reshardfs: reshardfs: %s\n", strerror(errno));
	return MOUNT_FAIL;
}

static int usage(void)
{
	fputs("usage: mount.reshardfs SOURCE MOUNTPOINT [-sfnv] "
	      "[-o OPT[,OPT...]] [-t TYPE]\n", stderr);
	return MOUNT_USAGE;
}

/* Every -v adds VERBOSE. */
static size_t room_for_options(int argc, char **argv)
{
	size_t n = 1;

	for (int i = 0; i < argc; i++)
		n += strlen(argv[i]) * sizeof(VERBOSE) + 1;
	return n;
}

static int parse(int argc, char **argv, struct request *r)
{
	int c;

	while ((c = getopt(argc, argv, "sfnvo:t:")) != -1) {
		switch (c) {
		case 'f':
			r->fake = true;
			break;
		case 'o':
			add_options(r->options, optarg);
			break;
		case 'v':
			add_options(r->options, VERBOSE);
			break;
		case 's': /* no sloppiness, no mtab, one type */
		case 'n':
		case 't':
			break;
		default:
			return usage();
		}
	}
	if (argc - optind != 2)
		return usage();
	r->source = argv[optind];
	r->mountpoint = argv[optind + 1];
	return 0;
}

int main(int argc, char **argv)
{
	struct request r = {
		.options = calloc(1, room_for_options(argc, argv)),
	};
	int rc;

	if (!r.options)
		return MOUNT_FAIL;
	rc = parse(argc, argv, &r);
	if (rc == 0 && !r.fake)
		rc = run(&r);
	free(r.options);
	return rc;
}
