# SPDX-License-Identifier: Apache-2.0
# Unit tests of cache.
UNIT += \
	unit/test_cache_memory \
	unit/test_cache_disk \
	unit/test_cache_compress \
	unit/test_cache_servers \
	unit/test_cache_replies \
	unit/test_cache_stress

CACHE_SUPPORT = \
	unit/cache_support.h \
	unit/cache_support.c \
	unit/support.h \
	unit/support.c

unit_test_cache_memory_SOURCES = unit/test_cache_memory.c $(CACHE_SUPPORT)
unit_test_cache_memory_LDADD = $(L_CACHE)
unit_test_cache_disk_SOURCES = unit/test_cache_disk.c $(CACHE_SUPPORT)
unit_test_cache_disk_LDADD = $(L_CACHE)
unit_test_cache_compress_SOURCES = unit/test_cache_compress.c $(CACHE_SUPPORT)
unit_test_cache_compress_LDADD = $(L_CACHE)
unit_test_cache_servers_SOURCES = unit/test_cache_servers.c $(CACHE_SUPPORT)
unit_test_cache_servers_LDADD = $(L_CACHE)
unit_test_cache_replies_SOURCES = unit/test_cache_replies.c $(CACHE_SUPPORT)
unit_test_cache_replies_LDADD = $(L_CACHE)
unit_test_cache_stress_SOURCES = unit/test_cache_stress.c $(CACHE_SUPPORT)
unit_test_cache_stress_LDADD = $(L_CACHE)

EXTRA_PROGRAMS += unit/bench_cache
unit_bench_cache_SOURCES = unit/bench_cache.c $(CACHE_SUPPORT)
unit_bench_cache_LDADD = $(L_CACHE)
