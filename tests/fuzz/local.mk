# SPDX-License-Identifier: Apache-2.0
# libFuzzer on everything that reads bytes of others, one program a format.  It
# wants clang:
#   ./configure CC=clang CFLAGS='-g -O1' --disable-tests \
#       --enable-sanitizer=fuzzer-no-link,address,undefined
#   make -C tests check-fuzz RSH_FUZZ_SECONDS=600
# fuzz/run.sh runs one and says how to repeat what it found; fuzz/pack.sh takes
# new inputs into the corpus.
if !S3
NO_FUZZ = fuzz/object_listing.fuzz
endif
FUZZ = $(filter-out $(NO_FUZZ),$(patsubst $(srcdir)/fuzz/fuzz_%.c,fuzz/%.fuzz,\
	$(wildcard $(srcdir)/fuzz/fuzz_*.c)))
# The same with the inputs that are known, by any compiler.
REPLAY = $(FUZZ:fuzz/%.fuzz=fuzz/replay_%.replay)

# Parsers stand on no more than these: clang takes a second for each file of the others.
PARSERS = ../src/.libs/libformats.a $(L_source) $(ZSTD_LIBS)
REPLAY_LIBS = $(L_formats)
fuzz/%.o: fuzz/%.c fuzz/fuzz_support.h
	@$(MKDIR_P) fuzz
	$(AM_V_CC)$(COMPILE) -c -o $@ $<
fuzz/%.fuzz: fuzz/fuzz_%.o $(filter %.a,$(PARSERS))
	$(AM_V_CCLD)$(LINK) -fsanitize=fuzzer $< $(PARSERS) $(LIBS)
fuzz/replay_%.replay: fuzz/replay.o fuzz/fuzz_%.o $(filter %.a,$(REPLAY_LIBS))
	$(AM_V_CCLD)$(LINK) fuzz/replay.o fuzz/fuzz_$*.o $(REPLAY_LIBS) $(LIBS)
.PRECIOUS: fuzz/%.o
CLEANFILES += fuzz/*.o $(FUZZ) $(REPLAY)

LAYERS_OF_PARSERS = \
	libutil.la \
	libwire.la \
	libtensor.la \
	libstrategy.la \
	libplan.la \
	libconverter.la \
	libweights.la \
	libcache.la \
	libobjects.la \
	libstore.la \
	libsource.la \
	libread.la \
	libformats.la

# The shared library and the program cannot be linked with coverage.
fuzz-programs:
	$(MAKE) $(AM_MAKEFLAGS) -C ../proto
	$(MAKE) $(AM_MAKEFLAGS) -C ../src $(LAYERS_OF_PARSERS)
	$(MAKE) $(AM_MAKEFLAGS) $(FUZZ)
check-fuzz: fuzz-programs
	$(MAKE) $(AM_MAKEFLAGS) check-TESTS TESTS='$(FUZZ)' check_PROGRAMS=
.PHONY: fuzz-programs check-fuzz
