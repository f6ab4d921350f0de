# SPDX-License-Identifier: Apache-2.0
"""Checkpoints for the benchmarks that a cache may compress, or not.

A file shows what its rank saved.  Contents are cut from one stretch of what training
leaves (compressible.py), from another place for each tensor.
"""

import hashlib
import os
import random

import compressible
from ms_formats import Layout, Record, StageFile, checkpoint_bytes, strategy_bytes

RANKS = 8
COLUMNS = 1024
STRETCH = 16 << 20  # bytes; what a compressor looks at is a thousandth of it


class Saved:
    """source, src_strategy, own: as a mount takes them; the strategy of both sides.

    kind is "saved_bf16" (a trained model), "saved_fp32" (the same with each number in
    four bytes) or "saved_moments" (AdamW's states of an embedding, of whose vocabulary
    a third was never seen, and of layers, half each).
    wanted  {name: sha256} of the files of a mount
    """
    described = False
    options = ()

    def __init__(self, directory, kind, size, _):
        self.directory, self.kind = directory, kind
        self.source = os.path.join(directory, "source")
        self.src_strategy = self.dst_strategy = self.own = \
            os.path.join(directory, "strategy.ckpt")
        numbers = random.Random(kind)
        self.dtype, self.element = ("BFloat16", 2) if kind == "saved_bf16" else \
            ("Float32", 4)
        n = STRETCH // self.element
        self._plain = {"saved_bf16": compressible.bf16,
                       "saved_fp32": compressible.widened,
                       "saved_moments": compressible.fp32}[kind](numbers, n)
        self._rows = kind == "saved_moments" and \
            compressible.moments(numbers, n // COLUMNS, COLUMNS)
        self.names = self._names()
        row = COLUMNS * self.element
        self.dims = [max(1, size // RANKS // len(self.names) // row), COLUMNS]
        self.content = RANKS * len(self.names) * self.dims[0] * row
        os.makedirs(self.source)
        with open(self.own, "wb") as f:
            f.write(strategy_bytes(StageFile(0, {
                name: Layout([RANKS], [0, -1]) for name in self.names})))
        self.wanted = {f"rank_{r}/checkpoint_{r}.ckpt": self._write(r)
                       for r in range(RANKS)}
        os.sync()

    def _names(self):
        if self.kind != "saved_moments":
            return [f"layers.{i}.weight" for i in range(16)]
        return [f"adam_{m}.{name}.weight" for m in "mv"
                for name in ("embedding.0", "embedding.1", "layers.0", "layers.1")]

    def source_files(self):
        return [os.path.join(self.source, f"rank_{r}", "net-7_100.ckpt")
                for r in range(RANKS)]

    def digests(self, _):
        return self.wanted

    def _tensor(self, rank, number):
        stretch = self._rows if "embedding" in self.names[number] else self._plain
        row = COLUMNS * self.element
        length = self.dims[0] * row
        at = (rank * len(self.names) + number) * 977 * row % len(stretch)
        return (stretch[at:] + stretch * (length // len(stretch) + 1))[:length]

    def _write(self, rank):
        path = self.source_files()[rank]
        data = checkpoint_bytes({
            name: Record(tuple(self.dims), self.dtype, self._tensor(rank, i))
            for i, name in enumerate(self.names)})
        os.makedirs(os.path.dirname(path))
        with open(path, "wb") as f:
            f.write(data)
        return hashlib.sha256(data).hexdigest()
