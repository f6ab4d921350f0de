# SPDX-License-Identifier: Apache-2.0
# Unit tests of objects, and of what wire reads for it.
UNIT += unit/test_wire_http_answer
unit_test_wire_http_answer_SOURCES = unit/test_wire_http_answer.c
unit_test_wire_http_answer_LDADD = $(L_WIRE)

if S3
UNIT += \
	unit/test_wire_object_listing \
	unit/test_objects \
	unit/test_objects_peer

unit_test_wire_object_listing_SOURCES = unit/test_wire_object_listing.c
unit_test_wire_object_listing_LDADD = $(L_WIRE)
OBJECTS_SUPPORT = \
	unit/objects_support.h \
	unit/objects_support.c \
	unit/support.h \
	unit/support.c

unit_test_objects_SOURCES = unit/test_objects.c $(OBJECTS_SUPPORT)
unit_test_objects_LDADD = $(L_OBJECTS)
unit_test_objects_peer_SOURCES = unit/test_objects_peer.c $(OBJECTS_SUPPORT)
unit_test_objects_peer_LDADD = $(L_OBJECTS)
endif

EXTRA_DIST += \
	lib/near_s3.py \
	lib/object_server.py \
	lib/s3_peer.py \
	lib/tls_server.py \
	unit/data/objects.pem
