# SPDX-License-Identifier: Apache-2.0
"""A loader of vLLM: `vllm serve MODEL --load-format reshardfs`.

    vllm serve MODEL --load-format reshardfs --model-loader-extra-config \\
        '{"source": "ckpt8", "src_strategy": "strategy8", "convert": "qwen3"}'

MODEL has config.json and the tokenizer.  "source" is what `reshardfs mount` takes, by
default MODEL itself; the other keys are options of weights().  Ranks of a tensor-parallel
group read their parts alone.  A draft model with a path of its own is read from there.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any, Iterator, Tuple

from ._library import Error
from ._weights import weights


def register() -> None:
    """Adds the format to vLLM.  A wheel of reshardfs has it as a plug-in, which vLLM calls
    in each of its processes."""
    # pylint: disable=import-outside-toplevel
    from vllm.config import get_current_vllm_config
    from vllm.distributed import get_tensor_model_parallel_world_size
    from vllm.model_executor.model_loader import DefaultModelLoader, register_model_loader
    from vllm.model_executor.model_loader.ep_weight_filter import should_skip_weight

    @register_model_loader("reshardfs")
    class Loader(DefaultModelLoader):  # type: ignore[misc]
        """vLLM's own loader, whose weights come from a source of reshardfs."""

        def __init__(self, load_config: Any) -> None:
            options = dict(load_config.model_loader_extra_config or {})
            self._source = options.pop("source", None)
            self._options, self._model = options, None
            super().__init__(dataclasses.replace(load_config, model_loader_extra_config={}))

        def download_model(self, model_config: Any) -> None:
            """There is nothing to download."""

        def load_weights(self, model: Any, model_config: Any) -> None:
            """As vLLM's own."""
            # A draft model is loaded with the options of the model that it drafts for.
            drafts = get_current_vllm_config().speculative_config
            self._model = (drafts.target_model_config if drafts else model_config).model
            self.counter_before_loading_weights = time.perf_counter()
            super().load_weights(model, model_config)

        def _get_weights_iterator(self, source: Any) -> Iterator[Tuple[str, Any]]:
            if source.allow_patterns_overrides or source.subfolder:
                raise Error("--load-format reshardfs does not support models that choose files "
                            f"of {source.model_or_path} by themselves")
            place, options = source.model_or_path, {}
            if place == self._model:
                place, options = self._source or place, self._options
            found = weights(place, slices=get_tensor_model_parallel_world_size() > 1,
                            choice_func=self._wants, **options)
            return ((source.prefix + name, tensor) for name, tensor in found)

        def _wants(self, name: str) -> bool:
            return not should_skip_weight(name, self.local_expert_ids)
