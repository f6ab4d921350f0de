# SPDX-License-Identifier: Apache-2.0
# Tests through a real mount that need no oracle.
MOUNT += \
	mount/options.sh \
	mount/daemon.sh \
	mount/attributes.sh \
	mount/read.sh \
	mount/errors.py \
	mount/read_errors.sh \
	mount/stress.sh \
	mount/large.py \
	mount/metadata.py \
	mount/models.py \
	mount/states.py \
	mount/many_parts.py \
	mount/whole_models.py \
	mount/meant.py \
	mount/first_words.py \
	mount/nearly_s3.py \
	mount/renewed_files.py \
	mount/web_identity.py \
	mount/model_config.py \
	mount/dcp.py \
	mount/dcp_values.py \
	mount/hyperparallel.py \
	mount/dcp_memory.py \
	mount/made_up_format.py \
	mount/torch_files.py \
	mount/torch_ranks.py \
	mount/torch_ranks_hostile.py \
	mount/deepspeed.py \
	mount/deepspeed_hostile.py \
	mount/versions.py \
	mount/versions_hostile.py \
	mount/megatron.py \
	mount/megatron_output.py \
	mount/slices.py \
	mount/manual_split.py \
	mount/convert.py \
	mount/model_names.py \
	mount/megatron_families.py \
	mount/dequantize.py \
	mount/lora.py \
	mount/lora_mindspore.py \
	mount/lora_objects.py \
	mount/checkpoint2_format.py \
	mount/helper.sh \
	mount/selection.py \
	mount/checkpoint2.py \
	mount/defaults.py \
	mount/forms.py \
	mount/table.py \
	mount/damage.py \
	mount/lost_ranks.py \
	mount/resume.py \
	mount/unread_steps.py \
	mount/unread_entries.py \
	mount/fallbacks.py \
	mount/steps.py \
	mount/steps_directory.py \
	mount/steps_options.py \
	mount/ls.py \
	mount/picture.py \
	mount/plan.py \
	mount/umount.sh \
	mount/completion.sh \
	mount/manual.py \
	mount/manual_examples.py \
	mount/documents.py \
	mount/json_keys.py \
	mount/bench.py \
	mount/export.py \
	mount/export_described.py \
	mount/verify.py \
	mount/strategy.py \
	mount/tables.py \
	mount/index_cache.py \
	mount/warm.sh \
	mount/warm_share.py \
	mount/cluster.py \
	mount/scale_examples.py \
	mount/kubernetes.py \
	mount/identity.py \
	mount/identity_sets.py \
	mount/identity_table.py \
	mount/engine.py \
	mount/faults.py \
	mount/memory.py \
	mount/leaks.py \
	mount/mapped.py \
	mount/pages.py \
	mount/hanging.sh \
	mount/killed.py \
	mount/no_answer.py \
	mount/machine.py \
	mount/mount_points.py \
	mount/notify.py \
	mount/job.sh \
	mount/fstab.sh \
	mount/log_targets.py \
	mount/xattr.py \
	mount/control.py \
	mount/hostile_names.py \
	mount/limits.py \
	mount/stack.sh \
	mount/as_user.py \
	mount/handed_device.py \
	mount/install.sh \
	mount/sandbox.py \
	mount/soak.py \
	mount/outages.py \
	mount/distributed.py \
	mount/nfs.py \
	mount/nfs_export.py \
	mount/objects.py \
	mount/object_faults.py \
	mount/web_server.py \
	mount/cache_servers.py \
	mount/cache_compress.py \
	mount/infer.py \
	mount/wrong_strategy.py \
	mount/libreshard.py \
	mount/library_races.py \
	mount/loads.py \
	mount/python_module.py \
	mount/tensors.py \
	mount/wheel.py
# On the shared library alone; the test says where that is.
check_PROGRAMS += mount/libreshard
mount_libreshard_LDADD = ../src/libreshard.la
# The program itself, and no script around it.
mount_libreshard_LDFLAGS = $(AM_LDFLAGS) -no-install

# The program with a list of formats of its own, so that the archive's is not
# taken.
check_PROGRAMS += mount/made_up_format
mount_made_up_format_LDADD = ../src/app/cli/main.$(OBJEXT) $(L_cli)

# A source that can be killed.
check_PROGRAMS += mount/mirror
mount_mirror_CPPFLAGS = $(AM_CPPFLAGS) $(FUSE_CFLAGS)
mount_mirror_LDADD = $(FUSE_LIBS)
