# SPDX-License-Identifier: Apache-2.0
# What a mount costs, compared with its peers.  `make bench` takes variables:
# BENCH_ROWS, BENCH_SIZE, BENCH_REPEATS, BENCH_ROW_SECONDS, BENCH_RANKS,
# BENCH_PARAMETERS, BENCH_BIG_TREE, BENCH_CPUS, BENCH_MOUNT_OPTIONS, BENCH_DIR
# (where the trees are made), BENCH_OUT (where bench.json and bench.svg go),
# BENCH_KEEP, BENCH_AGAINST; `bench.py --help` says what they are.
check_PROGRAMS += bench/bench_read
bench_bench_read_LDADD =

# A peer, and beside src/fuse and mount/mirror the only program that includes
# FUSE headers.
check_PROGRAMS += bench/bench_null
bench_bench_null_CPPFLAGS = $(AM_CPPFLAGS) $(FUSE_CFLAGS)
bench_bench_null_LDADD = $(FUSE_LIBS)

BENCH_DIR = $(abs_builddir)/bench
BENCH_OUT = $(abs_builddir)/bench

bench: bench/bench_read$(EXEEXT) bench/bench_null$(EXEEXT)
	cd ../proto && $(MAKE) $(AM_MAKEFLAGS) all
	cd ../src && $(MAKE) $(AM_MAKEFLAGS) all
	@RESHARDFS='$(abs_top_builddir)/src/reshardfs' \
	RESHARDFS_TABLES='$(abs_top_srcdir)/tables' \
	BENCH_ROWS='$(BENCH_ROWS)' BENCH_SIZE='$(BENCH_SIZE)' \
	BENCH_REPEATS='$(BENCH_REPEATS)' BENCH_ROW_SECONDS='$(BENCH_ROW_SECONDS)' \
	BENCH_RANKS='$(BENCH_RANKS)' BENCH_PARAMETERS='$(BENCH_PARAMETERS)' \
	BENCH_BIG_TREE='$(BENCH_BIG_TREE)' \
	BENCH_CPUS='$(BENCH_CPUS)' BENCH_MOUNT_OPTIONS='$(BENCH_MOUNT_OPTIONS)' \
	BENCH_DIR='$(BENCH_DIR)' BENCH_OUT='$(BENCH_OUT)' BENCH_KEEP='$(BENCH_KEEP)' \
	BENCH_AGAINST='$(BENCH_AGAINST)' \
	BENCH_READER='$(abs_builddir)/bench/bench_read$(EXEEXT)' \
	python3 -B $(srcdir)/bench/bench.py
.PHONY: bench

CLEANFILES += bench/bench.json bench/bench.svg
