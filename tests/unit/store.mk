# SPDX-License-Identifier: Apache-2.0
# Unit tests of store.
UNIT += \
	unit/test_store_fault \
	unit/test_store_made \
	unit/test_store_outage

STORE_SUPPORT = \
	unit/support.h \
	unit/support.c

unit_test_store_fault_SOURCES = unit/test_store_fault.c $(STORE_SUPPORT)
unit_test_store_fault_LDADD = $(L_STORE)
unit_test_store_made_SOURCES = unit/test_store_made.c $(STORE_SUPPORT)
unit_test_store_made_LDADD = $(L_STORE)
unit_test_store_outage_SOURCES = unit/test_store_outage.c $(STORE_SUPPORT)
unit_test_store_outage_LDADD = $(L_STORE)
