# SPDX-License-Identifier: Apache-2.0
# Unit tests of source, read, vfs, options, daemon and cli.
UNIT += \
	unit/test_source_template \
	unit/test_source_step \
	unit/test_source_resume \
	unit/test_formats_names \
	unit/test_formats_torch \
	unit/test_formats_torch_item \
	unit/test_source_index \
	unit/test_source_access \
	unit/test_source_metadata \
	unit/test_source_scan_prefetch \
	unit/test_contents \
	unit/test_contents_infer \
	unit/test_read_gather \
	unit/test_read_stream \
	unit/test_read_depth \
	unit/test_vfs \
	unit/test_formats_output \
	unit/test_formats_tree \
	unit/test_vfs_backing \
	unit/test_vfs_medium \
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
unit_test_source_resume_SOURCES = unit/test_source_resume.c $(SOURCE_SUPPORT)
unit_test_source_resume_LDADD = $(L_SOURCE)
unit_test_formats_torch_SOURCES = unit/test_formats_torch.c $(WIRE_SUPPORT)
unit_test_formats_torch_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS) $(ZLIB_CFLAGS)
unit_test_formats_torch_LDADD = $(L_FORMATS)
unit_test_formats_torch_item_SOURCES = unit/test_formats_torch_item.c
unit_test_formats_torch_item_CPPFLAGS = $(AM_CPPFLAGS) $(ZLIB_CFLAGS)
unit_test_formats_torch_item_LDADD = $(L_FORMATS)
unit_test_formats_names_SOURCES = unit/test_formats_names.c
unit_test_formats_names_LDADD = $(L_FORMATS)
unit_test_source_index_SOURCES = unit/test_source_index.c $(SOURCE_SUPPORT)
unit_test_source_index_LDADD = $(L_SOURCE)
unit_test_contents_SOURCES = \
	unit/test_contents.c \
	unit/strategy_support.h \
	unit/strategy_support.c \
	$(SOURCE_SUPPORT)
unit_test_contents_LDADD = $(L_CONTENTS)
unit_test_source_metadata_SOURCES = unit/test_source_metadata.c $(SOURCE_SUPPORT)
unit_test_source_metadata_LDADD = $(L_SOURCE)
unit_test_source_scan_prefetch_SOURCES = \
	unit/test_source_scan_prefetch.c \
	unit/support.h \
	unit/support.c
unit_test_source_scan_prefetch_LDADD = $(L_SOURCE)
unit_test_source_access_SOURCES = unit/test_source_access.c $(SOURCE_SUPPORT)
unit_test_source_access_LDADD = $(L_SOURCE)
unit_test_contents_infer_SOURCES = unit/test_contents_infer.c $(SOURCE_SUPPORT)
unit_test_contents_infer_LDADD = $(L_CONTENTS)
unit_test_read_gather_SOURCES = unit/test_read_gather.c unit/memory_medium.h \
	unit/memory_medium.c $(SOURCE_SUPPORT)
unit_test_read_gather_LDADD = $(L_READ)
unit_test_read_stream_SOURCES = unit/test_read_stream.c unit/support.h unit/support.c
unit_test_read_stream_LDADD = $(L_READ)
unit_test_read_depth_SOURCES = \
	unit/test_read_depth.c \
	unit/support.h \
	unit/support.c
unit_test_read_depth_LDADD = $(L_READ)
unit_test_vfs_SOURCES = unit/test_vfs.c $(SOURCE_SUPPORT)
unit_test_vfs_LDADD = $(L_VFS)
unit_test_vfs_backing_SOURCES = unit/test_vfs_backing.c $(SOURCE_SUPPORT)
unit_test_vfs_backing_LDADD = $(L_VFS)
unit_test_vfs_medium_SOURCES = unit/test_vfs_medium.c unit/memory_medium.h \
	unit/memory_medium.c $(SOURCE_SUPPORT)
unit_test_vfs_medium_LDADD = $(L_VFS)
unit_test_formats_output_SOURCES = unit/test_formats_output.c $(SOURCE_SUPPORT)
unit_test_formats_output_LDADD = $(L_VFS)
unit_test_formats_tree_SOURCES = unit/test_formats_tree.c $(SOURCE_SUPPORT)
unit_test_formats_tree_LDADD = $(L_FORMATS)
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
