# libFuzzer on the parsers, seeded with the fixtures.  It wants clang, and the
# libraries built with coverage:
#   ./configure CC=clang \
#       CFLAGS='-g -O1 -fsanitize=fuzzer-no-link,address,undefined'
#   make && make -C tests fuzz FUZZ_SECONDS=600
# What it finds is left as crash-* in the build directory.
FUZZ_SECONDS = 60
FUZZ = fuzz/fuzz_ckpt_scan fuzz/fuzz_strategy fuzz/fuzz_safetensors \
	fuzz/fuzz_weight_map fuzz/fuzz_intact fuzz/fuzz_rank_files \
	fuzz/fuzz_block_file fuzz/fuzz_index_codec fuzz/fuzz_manifest
EXTRA_PROGRAMS += $(FUZZ)

fuzz_fuzz_ckpt_scan_SOURCES = fuzz/fuzz_ckpt_scan.c
fuzz_fuzz_ckpt_scan_LDFLAGS = $(AM_LDFLAGS) -fsanitize=fuzzer
fuzz_fuzz_ckpt_scan_LDADD = $(L_WIRE)
fuzz_fuzz_strategy_SOURCES = fuzz/fuzz_strategy.c
fuzz_fuzz_strategy_LDFLAGS = $(AM_LDFLAGS) -fsanitize=fuzzer
fuzz_fuzz_strategy_LDADD = $(L_WIRE)
fuzz_fuzz_safetensors_SOURCES = fuzz/fuzz_safetensors.c
fuzz_fuzz_safetensors_LDFLAGS = $(AM_LDFLAGS) -fsanitize=fuzzer
fuzz_fuzz_safetensors_LDADD = $(L_WIRE)
fuzz_fuzz_weight_map_SOURCES = fuzz/fuzz_weight_map.c
fuzz_fuzz_weight_map_LDFLAGS = $(AM_LDFLAGS) -fsanitize=fuzzer
fuzz_fuzz_weight_map_LDADD = $(L_WIRE)
fuzz_fuzz_intact_SOURCES = fuzz/fuzz_intact.c
fuzz_fuzz_intact_LDFLAGS = $(AM_LDFLAGS) -fsanitize=fuzzer
fuzz_fuzz_intact_LDADD = $(L_WIRE)

fuzz_fuzz_rank_files_SOURCES = fuzz/fuzz_rank_files.c
fuzz_fuzz_rank_files_LDFLAGS = $(AM_LDFLAGS) -fsanitize=fuzzer
fuzz_fuzz_rank_files_LDADD = $(L_WIRE)
fuzz_fuzz_block_file_SOURCES = fuzz/fuzz_block_file.c
fuzz_fuzz_block_file_LDFLAGS = $(AM_LDFLAGS) -fsanitize=fuzzer
fuzz_fuzz_block_file_LDADD = $(L_CACHE)
fuzz_fuzz_manifest_SOURCES = fuzz/fuzz_manifest.c
fuzz_fuzz_manifest_LDFLAGS = $(AM_LDFLAGS) -fsanitize=fuzzer
fuzz_fuzz_manifest_LDADD = $(L_WIRE)

fuzz_fuzz_index_codec_SOURCES = fuzz/fuzz_index_codec.c
fuzz_fuzz_index_codec_CPPFLAGS = $(AM_CPPFLAGS) $(XXHASH_CFLAGS)
fuzz_fuzz_index_codec_LDFLAGS = $(AM_LDFLAGS) -fsanitize=fuzzer
fuzz_fuzz_index_codec_LDADD = $(L_WIRE)

fuzz: $(FUZZ)
	$(MKDIR_P) fuzz/corpus_ckpt fuzz/corpus_strategy \
		fuzz/corpus_safetensors fuzz/corpus_weight_map \
		fuzz/corpus_intact fuzz/corpus_rank_files \
		fuzz/corpus_block_file \
		fuzz/corpus_index_codec \
		fuzz/corpus_manifest \
		fuzz/seeds fuzz/group_infos
	for f in $(srcdir)/data/strategies/*/strategy_stage_*; do \
		cp $$f fuzz/seeds/`echo $$f | tr / _`; \
	done
	for f in $(srcdir)/data/strategies/*/rank_*/group_info.pb; do \
		cp $$f fuzz/group_infos/`echo $$f | tr / _`; \
	done
	fuzz/fuzz_ckpt_scan -max_total_time=$(FUZZ_SECONDS) \
		fuzz/corpus_ckpt $(srcdir)/unit/data
	fuzz/fuzz_strategy -max_total_time=$(FUZZ_SECONDS) \
		fuzz/corpus_strategy fuzz/seeds
	fuzz/fuzz_safetensors -max_total_time=$(FUZZ_SECONDS) \
		fuzz/corpus_safetensors $(srcdir)/unit/data
	fuzz/fuzz_weight_map -max_total_time=$(FUZZ_SECONDS) \
		fuzz/corpus_weight_map $(srcdir)/unit/data
	fuzz/fuzz_intact -max_total_time=$(FUZZ_SECONDS) \
		fuzz/corpus_intact $(srcdir)/unit/data
	fuzz/fuzz_rank_files -max_total_time=$(FUZZ_SECONDS) \
		fuzz/corpus_rank_files fuzz/group_infos
	fuzz/fuzz_block_file -max_total_time=$(FUZZ_SECONDS) \
		fuzz/corpus_block_file $(srcdir)/fuzz/seeds_block_file
	fuzz/fuzz_index_codec -max_total_time=$(FUZZ_SECONDS) \
		fuzz/corpus_index_codec $(srcdir)/unit/data
	fuzz/fuzz_manifest -max_total_time=$(FUZZ_SECONDS) \
		fuzz/corpus_manifest $(srcdir)/fuzz/seeds_manifest
.PHONY: fuzz

EXTRA_DIST += \
	fuzz/seeds_block_file/first_block fuzz/seeds_block_file/last_block \
	fuzz/seeds_block_file/beyond_the_end \
	fuzz/seeds_block_file/wrapped_offset \
	fuzz/seeds_manifest/head fuzz/seeds_manifest/source \
	fuzz/seeds_manifest/file fuzz/seeds_manifest/end
