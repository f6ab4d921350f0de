# Unit tests of layout and plan.
UNIT += unit/test_plan_property
unit_test_plan_property_SOURCES = unit/test_plan_property.c
unit_test_plan_property_LDADD = $(L_PLAN)
