# SPDX-License-Identifier: Apache-2.0
# Unit tests of util and wire.
UNIT += \
	unit/test_util_error \
	unit/test_util_library \
	unit/test_util_log \
	unit/test_util_mem \
	unit/test_util_names \
	unit/test_util_pack \
	unit/test_util_pattern \
	unit/test_util_areas \
	unit/test_util_files \
	unit/test_util_parallel \
	unit/test_util_text \
	unit/test_util_blake3 \
	unit/test_wire_ckpt_scan \
	unit/test_wire_ckpt_emit \
	unit/test_wire_strategy \
	unit/test_wire_strategy_emit \
	unit/test_wire_rank_files \
	unit/test_formats_check \
	unit/test_wire_safetensors \
	unit/test_wire_safetensors_emit \
	unit/test_wire_weight_map \
	unit/test_wire_json_edit \
	unit/test_wire_json_load \
	unit/test_wire_rule_table \
	unit/test_wire_adapter_edit \
	unit/test_formats_dcp \
	unit/test_formats_dcp_damage \
	unit/test_formats_torch_ranks \
	unit/test_formats_megatron \
	unit/test_formats_deepspeed \
	unit/test_formats_versions \
	unit/test_formats_checkpoint2_text \
	unit/test_wire_index_codec \
	unit/test_wire_manifest \
	unit/test_wire_checkpoint2

WIRE_SUPPORT = \
	unit/wire_support.h \
	unit/wire_support.c

unit_test_util_pattern_SOURCES = unit/test_util_pattern.c
unit_test_util_pattern_LDADD = $(L_UTIL)
unit_test_util_pack_SOURCES = unit/test_util_pack.c unit/support.h unit/support.c
unit_test_util_pack_LDADD = $(L_UTIL)
unit_test_util_error_SOURCES = unit/test_util_error.c
unit_test_util_error_LDADD = $(L_UTIL)
unit_test_util_library_SOURCES = unit/test_util_library.c
unit_test_util_library_LDADD = $(L_UTIL)
unit_test_util_log_SOURCES = unit/test_util_log.c
unit_test_util_log_LDADD = $(L_UTIL)
unit_test_util_mem_SOURCES = unit/test_util_mem.c
unit_test_util_mem_LDADD = $(L_UTIL)
unit_test_util_names_SOURCES = unit/test_util_names.c
unit_test_util_names_LDADD = $(L_UTIL)
unit_test_util_areas_SOURCES = unit/test_util_areas.c
unit_test_util_areas_LDADD = $(L_UTIL)
unit_test_util_parallel_SOURCES = unit/test_util_parallel.c
unit_test_util_parallel_LDADD = $(L_UTIL)
unit_test_util_files_SOURCES = \
	unit/test_util_files.c \
	unit/support.h \
	unit/support.c
unit_test_util_files_LDADD = $(L_UTIL)
unit_test_util_blake3_SOURCES = unit/test_util_blake3.c
unit_test_util_blake3_LDADD = $(L_UTIL)
unit_test_util_text_SOURCES = unit/test_util_text.c
unit_test_util_text_LDADD = $(L_UTIL)
unit_test_wire_ckpt_scan_SOURCES = unit/test_wire_ckpt_scan.c $(WIRE_SUPPORT)
unit_test_wire_ckpt_scan_LDADD = $(L_WIRE)
unit_test_wire_ckpt_emit_SOURCES = unit/test_wire_ckpt_emit.c $(WIRE_SUPPORT)
unit_test_wire_ckpt_emit_LDADD = $(L_WIRE)
unit_test_wire_strategy_SOURCES = unit/test_wire_strategy.c $(WIRE_SUPPORT)
unit_test_wire_strategy_LDADD = $(L_WIRE)
unit_test_wire_strategy_emit_SOURCES = unit/test_wire_strategy_emit.c $(WIRE_SUPPORT)
unit_test_wire_strategy_emit_LDADD = $(L_WIRE)
unit_test_wire_rank_files_SOURCES = unit/test_wire_rank_files.c
unit_test_wire_rank_files_LDADD = $(L_WIRE)
unit_test_formats_check_SOURCES = unit/test_formats_check.c $(WIRE_SUPPORT)
unit_test_formats_check_LDADD = $(L_FORMATS)
unit_test_wire_safetensors_SOURCES = unit/test_wire_safetensors.c $(WIRE_SUPPORT) \
	unit/support.h unit/support.c
unit_test_wire_safetensors_LDADD = $(L_WIRE)
unit_test_wire_safetensors_emit_SOURCES = unit/test_wire_safetensors_emit.c $(WIRE_SUPPORT)
unit_test_wire_safetensors_emit_LDADD = $(L_WIRE)
unit_test_wire_json_edit_SOURCES = unit/test_wire_json_edit.c $(WIRE_SUPPORT)
unit_test_wire_json_edit_LDADD = $(L_WIRE)
unit_test_wire_json_load_SOURCES = unit/test_wire_json_load.c $(WIRE_SUPPORT)
unit_test_wire_json_load_LDADD = $(L_WIRE)
unit_test_wire_weight_map_SOURCES = unit/test_wire_weight_map.c $(WIRE_SUPPORT)
unit_test_wire_weight_map_LDADD = $(L_WIRE)
unit_test_wire_rule_table_SOURCES = unit/test_wire_rule_table.c
unit_test_wire_rule_table_LDADD = $(L_WIRE)
unit_test_wire_adapter_edit_SOURCES = unit/test_wire_adapter_edit.c
unit_test_wire_adapter_edit_LDADD = $(L_WIRE)
unit_test_formats_dcp_SOURCES = unit/test_formats_dcp.c $(WIRE_SUPPORT)
unit_test_formats_dcp_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS) $(ZLIB_CFLAGS)
unit_test_formats_dcp_LDADD = $(L_FORMATS)
unit_test_formats_torch_ranks_SOURCES = unit/test_formats_torch_ranks.c \
	unit/support.h unit/support.c
unit_test_formats_torch_ranks_LDADD = $(L_FORMATS)
unit_test_formats_megatron_SOURCES = unit/test_formats_megatron.c \
	unit/support.h unit/support.c
unit_test_formats_megatron_LDADD = $(L_FORMATS)
unit_test_formats_deepspeed_SOURCES = unit/test_formats_deepspeed.c \
	unit/support.h unit/support.c
unit_test_formats_deepspeed_LDADD = $(L_FORMATS)
unit_test_formats_versions_SOURCES = unit/test_formats_versions.c \
	unit/support.h unit/support.c
unit_test_formats_versions_LDADD = $(L_FORMATS)
unit_test_formats_dcp_damage_SOURCES = unit/test_formats_dcp_damage.c $(WIRE_SUPPORT) \
	unit/support.h unit/support.c
unit_test_formats_dcp_damage_LDADD = $(L_FORMATS)
unit_test_formats_checkpoint2_text_SOURCES = \
	unit/test_formats_checkpoint2_text.c \
	$(WIRE_SUPPORT)
unit_test_formats_checkpoint2_text_LDADD = $(L_FORMATS)
unit_test_wire_index_codec_SOURCES = unit/test_wire_index_codec.c $(WIRE_SUPPORT)
unit_test_wire_index_codec_CPPFLAGS = $(AM_CPPFLAGS) $(XXHASH_CFLAGS)
unit_test_wire_index_codec_LDADD = $(L_WIRE)
unit_test_wire_manifest_SOURCES = unit/test_wire_manifest.c
unit_test_wire_manifest_LDADD = $(L_WIRE)
unit_test_wire_checkpoint2_SOURCES = unit/test_wire_checkpoint2.c $(WIRE_SUPPORT)
unit_test_wire_checkpoint2_LDADD = $(L_WIRE)

EXTRA_DIST += \
	unit/data/make_ckpt.py \
	unit/data/append_crc.ckpt \
	unit/data/chunks.ckpt \
	unit/data/dtypes.ckpt \
	unit/data/empty.ckpt \
	unit/data/dtypes.index \
	unit/data/make_intact.py \
	unit/data/torch.pt \
	unit/data/torch_nocrc.pt \
	unit/data/torch_zip64.pt \
	unit/data/torch_commented.pt \
	unit/data/torch_legacy.pt \
	unit/data/torch_legacy_2.pt \
	unit/data/torch_legacy_4.pt \
	unit/data/torch_legacy_other.pt \
	unit/data/torch_tar.pt \
	unit/data/pickle.pt \
	unit/data/bundle.index \
	lib/framework_formats.py \
	unit/data/make_safetensors.py \
	unit/data/ms_dtypes.safetensors \
	unit/data/ms_append_crc.safetensors \
	unit/data/ms_redundancy.safetensors \
	unit/data/ms_none.safetensors \
	unit/data/library.safetensors \
	unit/data/library_headers.bin \
	unit/data/model.safetensors.index.json \
	unit/data/param_name_map.json
