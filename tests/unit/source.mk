# SPDX-License-Identifier: Apache-2.0
# Unit tests of source, vfs, options, daemon and cli.
UNIT += \
	unit/test_source_template \
	unit/test_source_step \
	unit/test_source_index \
	unit/test_source_gather \
	unit/test_source_access \
	unit/test_source_contents \
	unit/test_source_infer \
	unit/test_vfs \
	unit/test_vfs_nodes \
	unit/test_vfs_stream \
	unit/test_vfs_depth \
	unit/test_vfs_backing \
	unit/test_vfs_digest \
	unit/test_options \
	unit/test_daemon \
	unit/test_copy \
	unit/test_cli_text \
	unit/test_cli_progress

SOURCE_SUPPORT = \
	unit/source_support.h \
	unit/source_support.c \
	unit/support.h \
	unit/support.c

unit_test_source_template_SOURCES = unit/test_source_template.c
unit_test_source_template_LDADD = $(L_SOURCE)
unit_test_source_step_SOURCES = unit/test_source_step.c $(SOURCE_SUPPORT)
unit_test_source_step_LDADD = $(L_SOURCE)
unit_test_source_index_SOURCES = unit/test_source_index.c $(SOURCE_SUPPORT)
unit_test_source_index_LDADD = $(L_SOURCE)
unit_test_source_gather_SOURCES = unit/test_source_gather.c $(SOURCE_SUPPORT)
unit_test_source_gather_LDADD = $(L_SOURCE)
unit_test_source_contents_SOURCES = \
	unit/test_source_contents.c \
	unit/strategy_support.h \
	unit/strategy_support.c \
	$(SOURCE_SUPPORT)
unit_test_source_contents_LDADD = $(L_SOURCE)
unit_test_source_access_SOURCES = unit/test_source_access.c $(SOURCE_SUPPORT)
unit_test_source_access_LDADD = $(L_SOURCE)
unit_test_source_infer_SOURCES = unit/test_source_infer.c $(SOURCE_SUPPORT)
unit_test_source_infer_LDADD = $(L_SOURCE)
unit_test_vfs_SOURCES = unit/test_vfs.c $(SOURCE_SUPPORT)
unit_test_vfs_LDADD = $(L_VFS)
unit_test_vfs_backing_SOURCES = unit/test_vfs_backing.c $(SOURCE_SUPPORT)
unit_test_vfs_backing_LDADD = $(L_VFS)
unit_test_vfs_nodes_SOURCES = unit/test_vfs_nodes.c $(SOURCE_SUPPORT)
unit_test_vfs_nodes_LDADD = $(L_VFS)
unit_test_vfs_stream_SOURCES = unit/test_vfs_stream.c
unit_test_vfs_stream_LDADD = $(L_VFS)
unit_test_vfs_depth_SOURCES = \
	unit/test_vfs_depth.c \
	unit/support.h \
	unit/support.c
unit_test_vfs_depth_LDADD = $(L_VFS)
unit_test_vfs_digest_SOURCES = unit/test_vfs_digest.c
unit_test_vfs_digest_CPPFLAGS = $(AM_CPPFLAGS) $(XXHASH_CFLAGS)
unit_test_vfs_digest_LDADD = $(L_VFS)
unit_test_options_SOURCES = unit/test_options.c
unit_test_options_LDADD = $(L_OPTIONS)
unit_test_daemon_SOURCES = unit/test_daemon.c $(SOURCE_SUPPORT)
unit_test_daemon_LDADD = $(L_DAEMON)
unit_test_cli_text_SOURCES = unit/test_cli_text.c
unit_test_cli_text_LDADD = $(L_CLI)
unit_test_cli_progress_SOURCES = unit/test_cli_progress.c
unit_test_cli_progress_LDADD = $(L_CLI)
unit_test_copy_SOURCES = unit/test_copy.c
unit_test_copy_CPPFLAGS = $(AM_CPPFLAGS) $(XXHASH_CFLAGS)
unit_test_copy_LDADD = $(L_COPY)
