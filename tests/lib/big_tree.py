# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of one tensor that is too large to hold, written and known by
formula: BigTree has files full of bytes."""

import os
import random

from ms_formats import Layout, StageFile, record_head, strategy_bytes

MIB = 1 << 20
NAME = "embedding"


class BigTree:
    """Ranks that hold columns of a tensor with rows of `row` bytes each; of all
    ranks together it has `mib` MiB, less than 512.

    source, strategy    of the ranks, cut along the inner axis
    rows                a strategy for as many ranks, cut along the outer one
    """

    def __init__(self, directory, mib, row=1024, n_ranks=2):
        self.bytes = mib * MIB
        self.n_ranks = n_ranks
        self.columns = row * n_ranks
        self.dims = [self.bytes // self.columns, self.columns]
        numbers = random.Random(mib)
        self._base = numbers.randbytes(2 * MIB)
        self.source = os.path.join(directory, "source")
        self.strategy = os.path.join(directory, "columns.ckpt")
        self.rows = os.path.join(directory, "rows.ckpt")
        for path, tensor_map in ((self.strategy, [-1, 0]), (self.rows, [0, -1])):
            with open(path, "wb") as f:
                f.write(strategy_bytes(StageFile(0, {
                    NAME: Layout([n_ranks], tensor_map)})))
        for rank in range(n_ranks):
            self._write(rank, mib, row)

    def path(self, rank):
        return os.path.join(self.source, f"rank_{rank}", "x-1_1.ckpt")

    def _write(self, rank, mib, row):
        os.makedirs(os.path.dirname(self.path(rank)))
        with open(self.path(rank), "wb") as f:
            f.write(record_head(NAME, "UInt8", [self.dims[0], row],
                                self.bytes // self.n_ranks))
            for i in range(mib):
                stripe = self.content(i * MIB, MIB)
                f.write(b"".join(stripe[at:at + row] for at in
                                 range(rank * row, MIB, self.columns)))

    def content(self, offset, length):
        """Bytes of the whole tensor."""
        parts = []
        while length > 0:
            stripe, place = divmod(offset, MIB)
            n = min(length, MIB - place)
            start = stripe * 4099 % MIB + place
            parts.append(self._base[start:start + n])
            offset += n
            length -= n
        return b"".join(parts)

    def is_right(self, fd, offset, length, rank=None):
        """Reads of the virtual file's tensor: all of it, or a rank's rows."""
        size = self.bytes if rank is None else self.bytes // self.n_ranks
        header = os.fstat(fd).st_size - size
        data = os.pread(fd, length, header + offset)
        return data == self.content((rank or 0) * size + offset, length)
