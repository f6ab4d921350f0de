# SPDX-License-Identifier: Apache-2.0
# Unit tests: unit/test_LAYER_X is unit/test_LAYER_X.c on $(L_LAYER).
UNIT += \
	unit/test_cache_compress \
	unit/test_cache_disk \
	unit/test_cache_memory \
	unit/test_cache_replies \
	unit/test_cache_servers \
	unit/test_cache_stress \
	unit/test_cli_progress \
	unit/test_cli_text \
	unit/test_contents \
	unit/test_contents_infer \
	unit/test_converter_redistribution \
	unit/test_copy \
	unit/test_daemon \
	unit/test_derive \
	unit/test_derive_check \
	unit/test_derive_mesh \
	unit/test_formats_check \
	unit/test_formats_checkpoint2_text \
	unit/test_formats_dcp \
	unit/test_formats_dcp_damage \
	unit/test_formats_deepspeed \
	unit/test_formats_hf_config \
	unit/test_formats_megatron \
	unit/test_formats_names \
	unit/test_formats_output \
	unit/test_formats_ranks \
	unit/test_formats_shown_dcp \
	unit/test_formats_shown_deepspeed \
	unit/test_formats_shown_hyperparallel \
	unit/test_formats_shown_megatron \
	unit/test_formats_shown_models \
	unit/test_formats_shown_ranks \
	unit/test_formats_shown_versions \
	unit/test_formats_torch \
	unit/test_formats_torch_item \
	unit/test_formats_torch_ranks \
	unit/test_formats_tree \
	unit/test_formats_versions \
	unit/test_formats_written \
	unit/test_options \
	unit/test_plan_conversion \
	unit/test_plan_dialect \
	unit/test_plan_errors \
	unit/test_plan_factored \
	unit/test_plan_framing \
	unit/test_plan_kinds \
	unit/test_plan_pieces \
	unit/test_plan_property \
	unit/test_plan_recipe \
	unit/test_plan_unfold \
	unit/test_plan_whole \
	unit/test_read_depth \
	unit/test_read_gather \
	unit/test_read_helpers \
	unit/test_read_scales \
	unit/test_read_stream \
	unit/test_source_access \
	unit/test_source_index \
	unit/test_source_metadata \
	unit/test_source_resume \
	unit/test_source_scan_prefetch \
	unit/test_source_step \
	unit/test_source_template \
	unit/test_store_fault \
	unit/test_store_made \
	unit/test_store_opened \
	unit/test_store_outage \
	unit/test_strategy_checkpoint2 \
	unit/test_strategy_fold \
	unit/test_strategy_grid \
	unit/test_strategy_partition \
	unit/test_strategy_replicas \
	unit/test_strategy_strategy \
	unit/test_tensor_cut \
	unit/test_tensor_low_rank \
	unit/test_tensor_scaled \
	unit/test_tensor_transpose \
	unit/test_util_areas \
	unit/test_util_blake3 \
	unit/test_util_error \
	unit/test_util_files \
	unit/test_util_library \
	unit/test_util_log \
	unit/test_util_mem \
	unit/test_util_names \
	unit/test_util_pack \
	unit/test_util_parallel \
	unit/test_util_pattern \
	unit/test_util_text \
	unit/test_vfs \
	unit/test_vfs_backing \
	unit/test_vfs_medium \
	unit/test_vfs_weights \
	unit/test_weights \
	unit/test_weights_peft \
	unit/test_weights_property \
	unit/test_weights_quantised \
	unit/test_wire_adapter_config \
	unit/test_wire_adapter_edit \
	unit/test_wire_checkpoint2 \
	unit/test_wire_ckpt_emit \
	unit/test_wire_ckpt_scan \
	unit/test_wire_http_answer \
	unit/test_wire_index_codec \
	unit/test_wire_json_edit \
	unit/test_wire_json_load \
	unit/test_wire_manifest \
	unit/test_wire_rank_files \
	unit/test_wire_rule_table \
	unit/test_wire_safetensors \
	unit/test_wire_safetensors_emit \
	unit/test_wire_strategy \
	unit/test_wire_strategy_emit \
	unit/test_wire_weight_map \
	unit/test_wire_zip_emit \
	unit/test_writer
if S3
UNIT += \
	unit/test_objects \
	unit/test_objects_peer \
	unit/test_wire_object_listing
endif

# What tests of any layer share: a program takes what it calls.
EXTRA_LIBRARIES = unit/libsupport.a
CLEANFILES += unit/libsupport.a
unit_libsupport_a_SOURCES = \
	unit/cache_support.c \
	unit/cache_support.h \
	unit/main.c \
	unit/memory_medium.c \
	unit/memory_medium.h \
	unit/objects_support.c \
	unit/objects_support.h \
	unit/plan_support.c \
	unit/plan_support.h \
	unit/recipe_support.c \
	unit/recipe_support.h \
	unit/shown_support.c \
	unit/shown_support.h \
	unit/source_support.c \
	unit/source_support.h \
	unit/strategy_support.c \
	unit/strategy_support.h \
	unit/support.c \
	unit/support.h \
	unit/tests.c \
	unit/tests.h \
	unit/torch_support.c \
	unit/torch_support.h \
	unit/weights_support.c \
	unit/weights_support.h \
	unit/wire_support.c \
	unit/wire_support.h

LDADD = unit/libsupport.a $(L_$(word 2,$(subst _, ,$@)))
L_derive = $(L_strategy)
L_converter = $(L_plan)
L_writer = $(L_plan)
L_weights = $(L_plan)
unit_test_formats_output_LDADD = unit/libsupport.a $(L_vfs)
unit_test_formats_shown_dcp_LDADD = unit/libsupport.a $(L_vfs)
unit_test_formats_shown_deepspeed_LDADD = unit/libsupport.a $(L_vfs)
unit_test_formats_shown_hyperparallel_LDADD = unit/libsupport.a $(L_vfs)
unit_test_formats_shown_megatron_LDADD = unit/libsupport.a $(L_vfs)
unit_test_formats_shown_models_LDADD = unit/libsupport.a $(L_vfs)
unit_test_formats_shown_ranks_LDADD = unit/libsupport.a $(L_vfs)
unit_test_formats_shown_versions_LDADD = unit/libsupport.a $(L_vfs)
unit_test_formats_written_LDADD = unit/libsupport.a $(L_vfs)
unit_test_plan_property_LDADD = unit/libsupport.a $(L_formats)
unit_test_tensor_cut_LDADD = unit/libsupport.a $(L_strategy)
# Automake does not know which libraries a name means.
.SECONDEXPANSION:
$(UNIT): $$(filter %.a,$$(LDADD))

EXTRA_PROGRAMS += unit/bench_cache

# Rules on the text of all files; scripts, so they run with the mounted tests.
MOUNT += \
	unit/circles.sh \
	unit/configure.sh \
	unit/formats.sh \
	unit/hacking.py \
	unit/layers.sh \
	unit/licence.sh \
	unit/messages.py \
	unit/release.py \
	unit/types.sh \
	unit/words.py
