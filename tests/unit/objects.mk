# SPDX-License-Identifier: Apache-2.0
# Unit tests of objects, and of what wire reads for it.
UNIT += unit/test_wire_http_answer
unit_test_wire_http_answer_SOURCES = unit/test_wire_http_answer.c
unit_test_wire_http_answer_LDADD = $(L_WIRE)

if S3
UNIT += \
	unit/test_wire_object_listing \
	unit/test_objects

unit_test_wire_object_listing_SOURCES = unit/test_wire_object_listing.c
unit_test_wire_object_listing_LDADD = $(L_WIRE)
unit_test_objects_SOURCES = \
	unit/test_objects.c \
	unit/objects_support.h \
	unit/objects_support.c \
	unit/support.h \
	unit/support.c
unit_test_objects_LDADD = $(L_OBJECTS)
endif

EXTRA_DIST += \
	lib/object_server.py \
	unit/data/objects.pem
