# SPDX-License-Identifier: Apache-2.0
"""Tensors of torch that are read when they are used."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
from torch.utils._pytree import tree_map

from ._library import Error
from ._tensors import TensorSlice

_aten = torch.ops.aten
# For each dimension of the stored tensor (start, length), or an integer where the part does
# not have it; None is a dimension of 1 that only the part has.
_Index = List[Any]
_NO_MEMORY = "a tensor that is read by slices has no memory: use clone()"
_UNCHANGED = "a tensor that is read by slices cannot be changed: use clone()"
# With these torch's own functions, such as torch.utils.dlpack.to_dlpack(), refuse to use its
# address, which is 0.  Early releases lack them.
_protect = [getattr(torch._C, name, None) for name in (
    "_storage_throw_on_immutable_data_ptr", "_set_storage_data_ptr_access_error_msg")]


class Part(torch.Tensor):  # type: ignore[misc]
    """A part of a tensor of a source.

    Slices of it, t[a:b], t[i], narrow(), chunk() and unsqueeze(), read nothing; any other use reads their
    bytes alone, each time.  It cannot be changed.
    """

    # Results of operations have no type of their own.
    __torch_function__ = torch._C._disabled_torch_function_impl
    _slice: TensorSlice
    _index: _Index

    def __repr__(self, **_: Any) -> str:
        return f"<part of {self._slice!r}: {list(self.shape)}>"

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise Error(_NO_MEMORY)

    # torch would return 0, or use it as an address.
    data_ptr = const_data_ptr = share_memory_ = _refuse

    def is_shared(self) -> bool:
        return False

    def apply_(self, *_: Any) -> Any:
        raise Error(_UNCHANGED)

    def __dlpack__(self, **named: Any) -> Any:
        """Its bytes in memory of their own."""
        if named.get("copy") is False:
            raise Error(_NO_MEMORY)
        return _read(self).__dlpack__(**named)

    def numpy(self, **named: Any) -> Any:
        return _read(self).numpy(**named)

    def tolist(self) -> Any:
        return _read(self).tolist()

    @classmethod
    def __torch_dispatch__(cls, operation: Any, types: Any, words: Tuple[Any, ...] = (),
                           named: Any = None) -> Any:
        named = named or {}
        for i, argument in enumerate(operation._schema.arguments):
            given = words[i] if i < len(words) else named.get(argument.name)
            written = argument.alias_info is not None and argument.alias_info.is_write
            if written and any(isinstance(one, Part) for one in (
                    given if isinstance(given, (list, tuple)) else [given])):
                raise Error(_UNCHANGED)
        found = _taken(operation, *words, **named)
        if found is not None:
            return found
        return operation(*tree_map(_read, words), **tree_map(_read, named))


def _taken(operation: Any, first: Any = None, *words: Any, **named: Any) -> Any:
    """The part, or the parts, that an operation takes out of a part without reading it."""
    take = _TAKES.get(operation)
    if not take or not isinstance(first, Part) or named:
        return None
    # What torch refuses is refused with its words.
    operation(torch.empty(first.shape, dtype=first.dtype, device="meta"), *words)
    return take(first, *words)


def _same(of: Part) -> Part:
    return _made(of._slice, list(of._index))


def _place(of: Part, axis: int) -> int:
    """Where a dimension of the part is in its index."""
    return [at for at, one in enumerate(of._index) if not isinstance(one, int)][axis]


def _sliced(of: Part, axis: int = 0, start: Optional[int] = None, stop: Optional[int] = None,
            step: int = 1) -> Optional[Part]:
    begin, end, _ = slice(start, stop).indices(of.shape[axis])
    index, at = list(of._index), _place(of, axis)
    if step != 1 or index[at] is None:
        return None
    index[at] = index[at][0] + begin, max(end - begin, 0)
    return _made(of._slice, index)


def _selected(of: Part, axis: int, chosen: int) -> Part:
    index, at = list(of._index), _place(of, axis)
    if index[at] is None:
        del index[at]
    else:
        index[at] = index[at][0] + chosen % of.shape[axis]
    return _made(of._slice, index)


def _unsqueezed(of: Part, axis: int) -> Part:
    axis %= of.dim() + 1
    index = list(of._index)
    index.insert(_place(of, axis) if axis < of.dim() else len(index), None)
    return _made(of._slice, index)


def _split(of: Part, size: Any, axis: int = 0) -> Optional[List[Part]]:
    """`size` is that of each part, or a list of their sizes."""
    n, parts, at = of.shape[axis], [], 0
    for taken in size if isinstance(size, list) else [size] * max(-(-n // max(size, 1)), 1):
        found = _sliced(of, axis, at, min(at + taken, n))
        if found is None:
            return None
        parts.append(found)
        at += taken
    return parts


def _unbound(of: Part, axis: int = 0) -> List[Part]:
    return [_selected(of, axis, i) for i in range(of.shape[axis])]


_TAKES: Dict[Any, Callable[..., Any]] = {
    _aten.detach.default: _same, _aten.alias.default: _same, _aten.slice.Tensor: _sliced,
    _aten.select.int: _selected, _aten.unsqueeze.default: _unsqueezed,
    _aten.split.Tensor: _split, _aten.split_with_sizes.default: _split,
    _aten.unbind.int: _unbound}


def _made(taken: TensorSlice, index: _Index) -> Part:
    made = torch.Tensor._make_wrapper_subclass(
        Part, tuple(1 if one is None else one[1] for one in index if not isinstance(one, int)),
        dtype=getattr(torch, taken._kind.torch))
    storage = made.untyped_storage()._cdata
    for f, words in zip(_protect, ((), (_NO_MEMORY,))):
        if f:
            f(storage, *words)
    made._slice, made._index = taken, index
    return made  # type: ignore[no-any-return]


def _read(given: Any) -> Any:
    if not isinstance(given, Part):
        return given
    stored = [slice(one[0], one[0] + one[1]) if isinstance(one, tuple) else one
              for one in given._index if one is not None]
    return given._slice[tuple(stored)].reshape(given.shape)


def part(taken: TensorSlice) -> Part:
    """All of a tensor, as a part of it."""
    return _made(taken, [(0, n) for n in taken.get_shape()])
