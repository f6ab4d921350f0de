# SPDX-License-Identifier: Apache-2.0
# Unit tests of what wire reads of servers of objects.
UNIT += unit/test_wire_http_answer
unit_test_wire_http_answer_SOURCES = unit/test_wire_http_answer.c
unit_test_wire_http_answer_LDADD = $(L_WIRE)

if S3
UNIT += unit/test_wire_object_listing
unit_test_wire_object_listing_SOURCES = unit/test_wire_object_listing.c
unit_test_wire_object_listing_LDADD = $(L_WIRE)
endif
