# SPDX-License-Identifier: Apache-2.0
# Tests that compare with the real MindSpore: with RSH_ORACLE_PYTHON naming a
# Python that has it they run, without it they say that they are skipped.
ORACLE += \
	oracle/random_pairs.py \
	oracle/recovery_pairs.py \
	oracle/genuine_pairs.py \
	oracle/safetensors_pairs.py \
	oracle/model_parts.py \
	oracle/train_continue.py \
	oracle/wishes.py \
	oracle/redundancy.py \
	oracle/found_trees.py \
	oracle/resume_load.py \
	oracle/rank_lists.py \
	oracle/manual_split.py \
	oracle/derived.py \
	oracle/export_pairs.py \
	oracle/mindformers_load.py \
	oracle/mindformers_shown.py \
	oracle/checkpoint2_random.py \
	oracle/python_module.py \
	oracle/loads_into_program.py \
	oracle/killed_savers.py

# With RSH_HF_PYTHON naming a Python that has transformers and torch.
HUGGING_FACE = \
	oracle/hugging_face.py \
	oracle/transformers_opens.py \
	oracle/model_names_load.py \
	oracle/quantised_opens.py \
	oracle/config_says.py \
	oracle/lora_peft.py \
	oracle/lora_mindformers.py \
	oracle/dcp_loads_distributed.py \
	oracle/hyperparallel_loads.py \
	oracle/deepspeed_engine.py \
	oracle/versions_encoders.py \
	oracle/megatron.py \
	oracle/megatron_loads.py \
	oracle/megatron_bridge.py \
	oracle/mindspeed_back.py \
	oracle/torch_ranks.py \
	oracle/vllm_loads.py \
	oracle/other_loaders.py

# The libraries that they stand on, and what needs no oracle.
MOUNT += \
	lib/rsh_mount_test.py \
	lib/checkpoint2_trees_test.py \
	lib/dcp_trees_test.py \
	lib/rank_trees_test.py \
	lib/rule_tables_test.py \
	lib/behaviour_test.py \
	oracle/dcp_random.py \
	oracle/dcp_shown_random.py \
	oracle/dcp_partial_loads.py \
	oracle/weights_random.py
