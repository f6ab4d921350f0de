# SPDX-License-Identifier: Apache-2.0
# Unit tests of layout and plan.
UNIT += \
	unit/test_layout_fold \
	unit/test_layout_grid \
	unit/test_layout_replicas \
	unit/test_layout_redistribution \
	unit/test_layout_strategy \
	unit/test_layout_derive \
	unit/test_layout_mesh \
	unit/test_layout_check \
	unit/test_layout_partition \
	unit/test_plan_conversion \
	unit/test_plan_errors \
	unit/test_plan_framing \
	unit/test_plan_pieces \
	unit/test_plan_whole \
	unit/test_plan_property

LAYOUT_SUPPORT = \
	unit/layout_support.h \
	unit/layout_support.c
PLAN_SUPPORT = \
	unit/plan_support.h \
	unit/plan_support.c \
	$(LAYOUT_SUPPORT)

unit_test_layout_fold_SOURCES = unit/test_layout_fold.c $(LAYOUT_SUPPORT)
unit_test_layout_fold_LDADD = $(L_LAYOUT)
unit_test_layout_grid_SOURCES = unit/test_layout_grid.c $(LAYOUT_SUPPORT)
unit_test_layout_grid_LDADD = $(L_LAYOUT)
unit_test_layout_replicas_SOURCES = unit/test_layout_replicas.c $(LAYOUT_SUPPORT)
unit_test_layout_replicas_LDADD = $(L_LAYOUT)
unit_test_layout_redistribution_SOURCES = unit/test_layout_redistribution.c $(LAYOUT_SUPPORT)
unit_test_layout_redistribution_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
unit_test_layout_redistribution_LDADD = $(L_LAYOUT)
unit_test_layout_strategy_SOURCES = unit/test_layout_strategy.c $(LAYOUT_SUPPORT)
unit_test_layout_strategy_LDADD = $(L_LAYOUT)
unit_test_layout_derive_SOURCES = unit/test_layout_derive.c $(LAYOUT_SUPPORT)
unit_test_layout_derive_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
unit_test_layout_derive_LDADD = $(L_LAYOUT)
unit_test_layout_check_SOURCES = unit/test_layout_check.c $(LAYOUT_SUPPORT)
unit_test_layout_check_LDADD = $(L_LAYOUT)
unit_test_layout_mesh_SOURCES = unit/test_layout_mesh.c $(LAYOUT_SUPPORT)
unit_test_layout_mesh_LDADD = $(L_LAYOUT)
unit_test_layout_partition_SOURCES = \
	unit/test_layout_partition.c \
	unit/support.h \
	unit/support.c
unit_test_layout_partition_LDADD = $(L_LAYOUT)
unit_test_plan_conversion_SOURCES = unit/test_plan_conversion.c $(PLAN_SUPPORT)
unit_test_plan_conversion_LDADD = $(L_PLAN)
unit_test_plan_errors_SOURCES = unit/test_plan_errors.c $(PLAN_SUPPORT)
unit_test_plan_errors_LDADD = $(L_PLAN)
unit_test_plan_framing_SOURCES = unit/test_plan_framing.c $(PLAN_SUPPORT)
unit_test_plan_framing_LDADD = $(L_PLAN)
unit_test_plan_pieces_SOURCES = unit/test_plan_pieces.c $(PLAN_SUPPORT)
unit_test_plan_pieces_LDADD = $(L_PLAN)
unit_test_plan_whole_SOURCES = unit/test_plan_whole.c $(PLAN_SUPPORT)
unit_test_plan_whole_LDADD = $(L_PLAN)
unit_test_plan_property_SOURCES = unit/test_plan_property.c
unit_test_plan_property_LDADD = $(L_PLAN)

EXTRA_DIST += \
	unit/data/make_rank_lists.py \
	unit/data/rank_lists.json

# Which layer may include what; a script, so it runs with the mounted tests.
MOUNT += unit/layers.sh
EXTRA_DIST += unit/layers.sh

# The line of the licence in every file; a script as well.
MOUNT += unit/licence.sh
EXTRA_DIST += unit/licence.sh
