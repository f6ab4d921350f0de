# SPDX-License-Identifier: Apache-2.0
# libFuzzer on everything that reads bytes of others, one program a format.  It
# wants clang:
#   ./configure CC=clang CFLAGS='-g -O1' --disable-tests \
#       --enable-sanitizer=fuzzer-no-link,address,undefined
#   make -C tests check-fuzz RSH_FUZZ_SECONDS=600
# fuzz/run.sh runs one and says how to repeat what it found; fuzz/pack.sh takes
# new inputs into the corpus.
FUZZ =
FUZZ_SUPPORT = fuzz/fuzz_support.h
FUZZ_LINK = $(LINK) -fsanitize=fuzzer
# The parsers of a layer stand on no more than these: clang takes a second for each file
# of the others.
PARSERS_SOURCE = ../src/.libs/libsource.a ../src/.libs/libstore.a $(L_WIRE)
PARSERS_FORMATS = ../src/.libs/libformats.a $(L_SOURCE) $(ZSTD_LIBS)
PARSERS_OUTPUTS = ../src/.libs/libformats.a $(L_PLAN)

# The same with the inputs that are known, by any compiler.
REPLAY = $(FUZZ:fuzz/%.fuzz=fuzz/replay_%.replay)
REPLAY_LIBS = $(L_FORMATS)
fuzz/replay.o: fuzz/replay.c
	$(AM_V_CC)$(COMPILE) -c -o $@ $<
fuzz/replay_%.o: fuzz/fuzz_%.c $(FUZZ_SUPPORT)
	$(AM_V_CC)$(COMPILE) -c -o $@ $<
fuzz/replay_%.replay: fuzz/replay.o fuzz/replay_%.o $(filter %.a,$(REPLAY_LIBS))
	$(AM_V_CCLD)$(LINK) fuzz/replay.o fuzz/replay_$*.o $(REPLAY_LIBS) $(LIBS)
.PRECIOUS: fuzz/replay_%.o
EXTRA_DIST += fuzz/replay.c fuzz/replay.sh
CLEANFILES += fuzz/*.o $(REPLAY)

FUZZ += fuzz/ckpt_scan.fuzz
fuzz_ckpt_scan_fuzz_SOURCES = fuzz/fuzz_ckpt_scan.c $(FUZZ_SUPPORT)
fuzz_ckpt_scan_fuzz_LINK = $(FUZZ_LINK)
fuzz_ckpt_scan_fuzz_LDADD = $(L_WIRE)

FUZZ += fuzz/safetensors.fuzz
fuzz_safetensors_fuzz_SOURCES = fuzz/fuzz_safetensors.c $(FUZZ_SUPPORT)
fuzz_safetensors_fuzz_LINK = $(FUZZ_LINK)
fuzz_safetensors_fuzz_LDADD = $(L_WIRE)

FUZZ += fuzz/weight_map.fuzz
fuzz_weight_map_fuzz_SOURCES = fuzz/fuzz_weight_map.c $(FUZZ_SUPPORT)
fuzz_weight_map_fuzz_LINK = $(FUZZ_LINK)
fuzz_weight_map_fuzz_LDADD = $(L_WIRE)

FUZZ += fuzz/formats_check.fuzz
fuzz_formats_check_fuzz_SOURCES = fuzz/fuzz_formats_check.c $(FUZZ_SUPPORT)
fuzz_formats_check_fuzz_LINK = $(FUZZ_LINK)
fuzz_formats_check_fuzz_LDADD = $(PARSERS_FORMATS)

FUZZ += fuzz/dcp_metadata.fuzz
fuzz_dcp_metadata_fuzz_SOURCES = fuzz/fuzz_dcp_metadata.c $(FUZZ_SUPPORT)
fuzz_dcp_metadata_fuzz_LINK = $(FUZZ_LINK)
fuzz_dcp_metadata_fuzz_LDADD = $(PARSERS_FORMATS)

FUZZ += fuzz/dcp_item.fuzz
fuzz_dcp_item_fuzz_SOURCES = fuzz/fuzz_dcp_item.c $(FUZZ_SUPPORT)
fuzz_dcp_item_fuzz_LINK = $(FUZZ_LINK)
fuzz_dcp_item_fuzz_LDADD = $(PARSERS_FORMATS)

FUZZ += fuzz/torch.fuzz
fuzz_torch_fuzz_SOURCES = fuzz/fuzz_torch.c $(FUZZ_SUPPORT)
fuzz_torch_fuzz_LINK = $(FUZZ_LINK)
fuzz_torch_fuzz_LDADD = $(PARSERS_FORMATS)

FUZZ += fuzz/torch_ranks.fuzz
fuzz_torch_ranks_fuzz_SOURCES = fuzz/fuzz_torch_ranks.c $(FUZZ_SUPPORT)
fuzz_torch_ranks_fuzz_LINK = $(FUZZ_LINK)
fuzz_torch_ranks_fuzz_LDADD = $(PARSERS_FORMATS)

FUZZ += fuzz/megatron.fuzz
fuzz_megatron_fuzz_SOURCES = fuzz/fuzz_megatron.c $(FUZZ_SUPPORT)
fuzz_megatron_fuzz_LINK = $(FUZZ_LINK)
fuzz_megatron_fuzz_LDADD = $(PARSERS_FORMATS)

FUZZ += fuzz/deepspeed.fuzz
fuzz_deepspeed_fuzz_SOURCES = fuzz/fuzz_deepspeed.c $(FUZZ_SUPPORT)
fuzz_deepspeed_fuzz_LINK = $(FUZZ_LINK)
fuzz_deepspeed_fuzz_LDADD = $(PARSERS_FORMATS)

FUZZ += fuzz/versions.fuzz
fuzz_versions_fuzz_SOURCES = fuzz/fuzz_versions.c $(FUZZ_SUPPORT)
fuzz_versions_fuzz_LINK = $(FUZZ_LINK)
fuzz_versions_fuzz_LDADD = $(PARSERS_FORMATS)

FUZZ += fuzz/source_map.fuzz
fuzz_source_map_fuzz_SOURCES = fuzz/fuzz_source_map.c $(FUZZ_SUPPORT)
fuzz_source_map_fuzz_LINK = $(FUZZ_LINK)
fuzz_source_map_fuzz_LDADD = $(L_WIRE)

FUZZ += fuzz/group_info.fuzz
fuzz_group_info_fuzz_SOURCES = fuzz/fuzz_group_info.c $(FUZZ_SUPPORT)
fuzz_group_info_fuzz_LINK = $(FUZZ_LINK)
fuzz_group_info_fuzz_LDADD = $(L_WIRE)

FUZZ += fuzz/strategy.fuzz
fuzz_strategy_fuzz_SOURCES = fuzz/fuzz_strategy.c $(FUZZ_SUPPORT)
fuzz_strategy_fuzz_LINK = $(FUZZ_LINK)
fuzz_strategy_fuzz_LDADD = $(L_WIRE)

FUZZ += fuzz/manifest.fuzz
fuzz_manifest_fuzz_SOURCES = fuzz/fuzz_manifest.c $(FUZZ_SUPPORT)
fuzz_manifest_fuzz_LINK = $(FUZZ_LINK)
fuzz_manifest_fuzz_LDADD = $(L_WIRE)

FUZZ += fuzz/index_codec.fuzz
fuzz_index_codec_fuzz_SOURCES = fuzz/fuzz_index_codec.c $(FUZZ_SUPPORT)
fuzz_index_codec_fuzz_CPPFLAGS = $(AM_CPPFLAGS) $(XXHASH_CFLAGS)
fuzz_index_codec_fuzz_LINK = $(FUZZ_LINK)
fuzz_index_codec_fuzz_LDADD = $(L_WIRE)

FUZZ += fuzz/checkpoint2.fuzz
fuzz_checkpoint2_fuzz_SOURCES = fuzz/fuzz_checkpoint2.c $(FUZZ_SUPPORT)
fuzz_checkpoint2_fuzz_LINK = $(FUZZ_LINK)
fuzz_checkpoint2_fuzz_LDADD = $(L_WIRE)

FUZZ += fuzz/derive.fuzz
fuzz_derive_fuzz_SOURCES = fuzz/fuzz_derive.c $(FUZZ_SUPPORT)
fuzz_derive_fuzz_LINK = $(FUZZ_LINK)
fuzz_derive_fuzz_LDADD = $(L_STRATEGY)

FUZZ += fuzz/adapter_config.fuzz
fuzz_adapter_config_fuzz_SOURCES = fuzz/fuzz_adapter_config.c $(FUZZ_SUPPORT)
fuzz_adapter_config_fuzz_LINK = $(FUZZ_LINK)
fuzz_adapter_config_fuzz_LDADD = $(L_WIRE)

FUZZ += fuzz/model_config.fuzz
fuzz_model_config_fuzz_SOURCES = fuzz/fuzz_model_config.c $(FUZZ_SUPPORT)
fuzz_model_config_fuzz_LINK = $(FUZZ_LINK)
fuzz_model_config_fuzz_LDADD = $(PARSERS_OUTPUTS)

FUZZ += fuzz/quantised.fuzz
fuzz_quantised_fuzz_SOURCES = fuzz/fuzz_quantised.c $(FUZZ_SUPPORT)
fuzz_quantised_fuzz_LINK = $(FUZZ_LINK)
fuzz_quantised_fuzz_LDADD = $(L_PLAN)

FUZZ += fuzz/rule_table.fuzz
fuzz_rule_table_fuzz_SOURCES = fuzz/fuzz_rule_table.c $(FUZZ_SUPPORT)
fuzz_rule_table_fuzz_LINK = $(FUZZ_LINK)
fuzz_rule_table_fuzz_LDADD = $(L_PLAN)

FUZZ += fuzz/block_file.fuzz
fuzz_block_file_fuzz_SOURCES = fuzz/fuzz_block_file.c $(FUZZ_SUPPORT)
fuzz_block_file_fuzz_LINK = $(FUZZ_LINK)
fuzz_block_file_fuzz_LDADD = $(L_CACHE)

FUZZ += fuzz/index_cache.fuzz
fuzz_index_cache_fuzz_SOURCES = fuzz/fuzz_index_cache.c $(FUZZ_SUPPORT)
fuzz_index_cache_fuzz_LINK = $(FUZZ_LINK)
fuzz_index_cache_fuzz_LDADD = $(PARSERS_SOURCE)

FUZZ += fuzz/http_answer.fuzz
fuzz_http_answer_fuzz_SOURCES = fuzz/fuzz_http_answer.c $(FUZZ_SUPPORT)
fuzz_http_answer_fuzz_LINK = $(FUZZ_LINK)
fuzz_http_answer_fuzz_LDADD = $(L_WIRE)

if S3
FUZZ += fuzz/object_listing.fuzz
fuzz_object_listing_fuzz_SOURCES = fuzz/fuzz_object_listing.c $(FUZZ_SUPPORT)
fuzz_object_listing_fuzz_LINK = $(FUZZ_LINK)
fuzz_object_listing_fuzz_LDADD = $(L_WIRE)
endif

FUZZ += fuzz/memcached.fuzz
fuzz_memcached_fuzz_SOURCES = fuzz/fuzz_memcached.c $(FUZZ_SUPPORT)
fuzz_memcached_fuzz_LINK = $(FUZZ_LINK)
fuzz_memcached_fuzz_LDADD = $(L_CACHE)

EXTRA_PROGRAMS += $(FUZZ)
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

EXTRA_DIST += \
	fuzz/run.sh \
	fuzz/pack.sh \
	fuzz/dict/adapter_config.dict \
	fuzz/dict/checkpoint2.dict \
	fuzz/dict/dcp_metadata.dict \
	fuzz/dict/http_answer.dict \
	fuzz/dict/object_listing.dict \
	fuzz/dict/manifest.dict \
	fuzz/dict/memcached.dict \
	fuzz/dict/quantised.dict \
	fuzz/dict/rule_table.dict \
	fuzz/dict/safetensors.dict \
	fuzz/dict/strategy.dict
EXTRA_DIST += \
	fuzz/corpus/adapter_config.tar.gz \
	fuzz/corpus/block_file.tar.gz \
	fuzz/corpus/checkpoint2.tar.gz \
	fuzz/corpus/ckpt_scan.tar.gz
EXTRA_DIST += \
	fuzz/corpus/dcp_item.tar.gz \
	fuzz/corpus/dcp_metadata.tar.gz
EXTRA_DIST += \
	fuzz/corpus/derive.tar.gz \
	fuzz/corpus/formats_check.tar.gz \
	fuzz/corpus/group_info.tar.gz
EXTRA_DIST += \
	fuzz/corpus/index_cache.tar.gz \
	fuzz/corpus/index_codec.tar.gz
EXTRA_DIST += \
	fuzz/corpus/manifest.tar.gz \
	fuzz/corpus/memcached.tar.gz
EXTRA_DIST += \
	fuzz/corpus/http_answer.tar.gz \
	fuzz/corpus/object_listing.tar.gz
EXTRA_DIST += \
	fuzz/corpus/model_config.tar.gz \
	fuzz/corpus/quantised.tar.gz \
	fuzz/corpus/rule_table.tar.gz
EXTRA_DIST += \
	fuzz/corpus/safetensors.tar.gz \
	fuzz/corpus/source_map.tar.gz
EXTRA_DIST += \
	fuzz/corpus/strategy.tar.gz \
	fuzz/corpus/torch.tar.gz \
	fuzz/corpus/deepspeed.tar.gz \
	fuzz/corpus/versions.tar.gz \
	fuzz/corpus/torch_ranks.tar.gz \
	fuzz/corpus/megatron.tar.gz \
	fuzz/corpus/weight_map.tar.gz
