# SPDX-License-Identifier: Apache-2.0
# Unit tests of strategy, derive, catalogue, plan, converter, writer and
# weights, and of the reader of rank files.
UNIT += \
	unit/test_strategy_fold \
	unit/test_strategy_grid \
	unit/test_strategy_replicas \
	unit/test_converter_redistribution \
	unit/test_strategy_strategy \
	unit/test_strategy_checkpoint2 \
	unit/test_derive \
	unit/test_derive_mesh \
	unit/test_derive_check \
	unit/test_strategy_partition \
	unit/test_plan_conversion \
	unit/test_plan_errors \
	unit/test_plan_framing \
	unit/test_plan_unfold \
	unit/test_plan_kinds \
	unit/test_plan_pieces \
	unit/test_plan_whole \
	unit/test_plan_recipe \
	unit/test_plan_factored \
	unit/test_plan_dialect \
	unit/test_writer \
	unit/test_weights \
	unit/test_weights_property \
	unit/test_weights_quantised \
	unit/test_weights_peft \
	unit/test_tensor_cut \
	unit/test_tensor_low_rank \
	unit/test_tensor_scaled \
	unit/test_tensor_transpose \
	unit/test_plan_property \
	unit/test_formats_ranks

STRATEGY_SUPPORT = \
	unit/strategy_support.h \
	unit/strategy_support.c
PLAN_SUPPORT = \
	unit/plan_support.h \
	unit/plan_support.c \
	$(STRATEGY_SUPPORT)
WEIGHTS_SUPPORT = \
	unit/weights_support.h \
	unit/weights_support.c
RECIPE_SUPPORT = \
	unit/recipe_support.h \
	unit/recipe_support.c \
	unit/support.h \
	unit/support.c \
	$(PLAN_SUPPORT)

unit_test_strategy_fold_SOURCES = unit/test_strategy_fold.c $(STRATEGY_SUPPORT)
unit_test_strategy_fold_LDADD = $(L_STRATEGY)
unit_test_strategy_grid_SOURCES = unit/test_strategy_grid.c $(STRATEGY_SUPPORT)
unit_test_strategy_grid_LDADD = $(L_STRATEGY)
unit_test_strategy_replicas_SOURCES = unit/test_strategy_replicas.c $(STRATEGY_SUPPORT)
unit_test_strategy_replicas_LDADD = $(L_STRATEGY)
unit_test_converter_redistribution_SOURCES = unit/test_converter_redistribution.c $(STRATEGY_SUPPORT)
unit_test_converter_redistribution_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
unit_test_converter_redistribution_LDADD = $(L_PLAN)
unit_test_strategy_checkpoint2_SOURCES = unit/test_strategy_checkpoint2.c $(STRATEGY_SUPPORT)
unit_test_strategy_checkpoint2_LDADD = $(L_STRATEGY)
unit_test_strategy_strategy_SOURCES = unit/test_strategy_strategy.c $(STRATEGY_SUPPORT)
unit_test_strategy_strategy_LDADD = $(L_STRATEGY)
unit_test_derive_SOURCES = unit/test_derive.c $(STRATEGY_SUPPORT)
unit_test_derive_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
unit_test_derive_LDADD = $(L_STRATEGY)
unit_test_derive_check_SOURCES = unit/test_derive_check.c $(STRATEGY_SUPPORT)
unit_test_derive_check_LDADD = $(L_STRATEGY)
unit_test_derive_mesh_SOURCES = unit/test_derive_mesh.c $(STRATEGY_SUPPORT)
unit_test_derive_mesh_LDADD = $(L_STRATEGY)
unit_test_strategy_partition_SOURCES = \
	unit/test_strategy_partition.c \
	unit/support.h \
	unit/support.c
unit_test_strategy_partition_LDADD = $(L_STRATEGY)
unit_test_plan_conversion_SOURCES = unit/test_plan_conversion.c $(PLAN_SUPPORT)
unit_test_plan_conversion_LDADD = $(L_PLAN)
unit_test_plan_errors_SOURCES = unit/test_plan_errors.c $(PLAN_SUPPORT)
unit_test_plan_errors_LDADD = $(L_PLAN)
unit_test_plan_framing_SOURCES = unit/test_plan_framing.c $(PLAN_SUPPORT)
unit_test_plan_framing_LDADD = $(L_PLAN)
unit_test_plan_unfold_SOURCES = unit/test_plan_unfold.c unit/support.h \
	unit/support.c $(PLAN_SUPPORT)
unit_test_plan_unfold_LDADD = $(L_PLAN)
unit_test_plan_kinds_SOURCES = unit/test_plan_kinds.c unit/support.c unit/support.h
unit_test_plan_kinds_LDADD = $(L_PLAN)
unit_test_plan_pieces_SOURCES = unit/test_plan_pieces.c $(PLAN_SUPPORT)
unit_test_plan_pieces_LDADD = $(L_PLAN)
unit_test_plan_whole_SOURCES = unit/test_plan_whole.c $(PLAN_SUPPORT)
unit_test_plan_whole_LDADD = $(L_PLAN)
unit_test_plan_dialect_SOURCES = unit/test_plan_dialect.c $(PLAN_SUPPORT)
unit_test_plan_dialect_LDADD = $(L_PLAN)
unit_test_writer_SOURCES = unit/test_writer.c $(RECIPE_SUPPORT)
unit_test_writer_LDADD = $(L_PLAN)
unit_test_weights_SOURCES = unit/test_weights.c $(WEIGHTS_SUPPORT)
unit_test_weights_LDADD = $(L_PLAN)
unit_test_weights_quantised_SOURCES = unit/test_weights_quantised.c $(WEIGHTS_SUPPORT)
unit_test_weights_quantised_LDADD = $(L_PLAN)
unit_test_weights_peft_SOURCES = unit/test_weights_peft.c $(WEIGHTS_SUPPORT)
unit_test_weights_peft_LDADD = $(L_PLAN)
unit_test_weights_property_SOURCES = \
	unit/test_weights_property.c \
	$(WEIGHTS_SUPPORT)
unit_test_weights_property_LDADD = $(L_PLAN)
unit_test_tensor_cut_SOURCES = \
	unit/test_tensor_cut.c \
	unit/support.h \
	unit/support.c \
	$(STRATEGY_SUPPORT)
unit_test_tensor_cut_LDADD = $(L_STRATEGY)
unit_test_tensor_low_rank_SOURCES = \
	unit/test_tensor_low_rank.c \
	unit/support.h \
	unit/support.c
unit_test_tensor_low_rank_LDADD = $(L_TENSOR) -lm
unit_test_tensor_scaled_SOURCES = \
	unit/test_tensor_scaled.c \
	unit/support.h \
	unit/support.c
unit_test_tensor_scaled_LDADD = $(L_TENSOR) -lm
unit_test_tensor_transpose_SOURCES = \
	unit/test_tensor_transpose.c \
	unit/support.h \
	unit/support.c
unit_test_tensor_transpose_LDADD = $(L_TENSOR)
unit_test_plan_recipe_SOURCES = unit/test_plan_recipe.c $(RECIPE_SUPPORT)
unit_test_plan_recipe_LDADD = $(L_PLAN)
unit_test_plan_factored_SOURCES = unit/test_plan_factored.c $(RECIPE_SUPPORT)
unit_test_plan_factored_LDADD = $(L_PLAN)
unit_test_plan_property_SOURCES = unit/test_plan_property.c unit/support.c unit/support.h
unit_test_plan_property_LDADD = $(L_FORMATS)
unit_test_formats_ranks_SOURCES = unit/test_formats_ranks.c $(PLAN_SUPPORT)
unit_test_formats_ranks_LDADD = $(L_FORMATS)

EXTRA_DIST += \
	unit/data/make_optimizer_states.py \
	unit/data/make_rank_lists.py \
	unit/data/optimizer_states \
	unit/data/rank_lists.json

# Which layer may include what; a script, so it runs with the mounted tests.
MOUNT += unit/layers.sh unit/circles.sh unit/formats.sh unit/configure.sh
EXTRA_DIST += unit/layers.sh unit/circles.sh unit/formats.sh unit/configure.sh

# The line of the licence in every file; a script as well.
MOUNT += unit/licence.sh
EXTRA_DIST += unit/licence.sh

# Words that users do not meet.
MOUNT += unit/words.py unit/messages.py unit/hacking.py unit/release.py
EXTRA_DIST += unit/words.py unit/messages.py unit/hacking.py unit/release.py \
	unit/data/messages \
	mutate.py reached.sh lib/reached.c lib/reached.py

# And are the types of the Python module right?
MOUNT += unit/types.sh
EXTRA_DIST += unit/types.sh
