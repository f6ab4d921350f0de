# SPDX-License-Identifier: Apache-2.0
"""Checkpoint trees for the benchmarks, large and quickly written.

A tree is a source of 8 ranks, its strategy, the strategy of the 4 ranks that
are wanted, and what these must be: digests, and files if asked for (the
"converted" tree, which the mount is measured against).  All of it is cut from
numbered blocks of random bytes, so nothing of the program under test goes into
what its bytes are compared with.
"""

import hashlib
import os
import random
from dataclasses import dataclass

import checkpoint2_trees
from ms_formats import CHUNK_BYTES, Layout, StageFile, record_head, strategy_bytes
from safetensors_format import safetensors_head

SOURCE_RANKS = 8
WANTED_RANKS = 4
STEP = "7_100"
DTYPE = "Float16"
ELEMENT = 2

# A rank's file in slices of such parts: at 2 GiB they have 64 to 8 MiB.
PARTS = [4, 8, 8, 8, 8, 16, 16, 16, 32, 32]
SMALLEST, LARGEST = 16 << 20, 8 << 30  # of a source

# No stride of a tensor divides it: bytes from a wrong place are wrong bytes.
PERIOD = (16 << 20) + 4099


@dataclass(frozen=True)
class Param:
    """Cut into SOURCE_RANKS slices of `rows` x `columns` elements.

    kind is "rows" (dimension 0 over all ranks), "shard" (dimension 0 over half
    of them, and once more over the others as optimizer shard) or "columns"
    (dimension 1 over all ranks).
    """
    number: int
    name: str
    kind: str
    rows: int
    columns: int

    @property
    def slice_bytes(self):
        return self.rows * self.columns * ELEMENT

    def dims(self, ranks):
        """Dimensions of the slice of one of `ranks` ranks."""
        more = SOURCE_RANKS // ranks
        if self.kind == "columns":
            return [self.rows, self.columns * more]
        return [self.rows * more, self.columns]

    def layout(self, ranks):
        if self.kind == "columns":
            return Layout([ranks], [-1, 0])
        if self.kind == "rows":
            return Layout([ranks], [0, -1])
        return Layout([2, ranks // 2], [0, -1], ranks // 2, 2)

    def parts_of(self, rank, ranks):
        """Which of the SOURCE_RANKS slices make that of `rank` of `ranks`."""
        index = rank
        if self.kind == "shard" and ranks > 1:
            index = rank % (ranks // 2) * 2 + rank // (ranks // 2)
        more = SOURCE_RANKS // ranks
        return range(index * more, (index + 1) * more)


def params_of(kind, size):
    """The parameters of a source of about `size` bytes.

    kind is "contiguous" or "checkpoint2" (rows and shards in turn), "inner" (columns, in rows
    of 1 KiB), "mixed", or "trained": mixed, with the states of an optimizer.
    """
    kinds = {"contiguous": ["rows", "shard"], "checkpoint2": ["rows", "shard"],
             "inner": ["columns"]}.get(kind, ["rows", "columns", "shard"])
    states = ["", "adam_m.", "adam_v."] if kind == "trained" else [""]
    params = []
    for state in states:
        for number, part in enumerate(PARTS):
            one = kinds[number % len(kinds)]
            columns = 512 if one == "columns" else 4096
            rows = size // len(states) // SOURCE_RANKS // part // (columns * ELEMENT)
            params.append(Param(len(params), f"{state}layers.{number}.{one}.weight", one,
                                rows, columns))
    return params


def counter(rank):
    """A record that no strategy lists and each rank has its own of."""
    value = rank.to_bytes(ELEMENT, "little")
    return record_head("global_step", DTYPE, [1], len(value)) + value


class Blocks:
    """The content of slices: random bytes, other ones for each number."""

    def __init__(self):
        self._bytes = memoryview(random.Random(2024).randbytes(PERIOD))

    def pieces(self, number, length):
        at = number * 1000003 % PERIOD
        while length:
            piece = self._bytes[at:at + length]
            yield piece
            length -= len(piece)
            at = 0


class Writer:
    """A file written in pieces, its digest, or both; sparse with zeros."""

    def __init__(self, path, digest, sparse=False):
        self._file = None
        if path:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            self._file = open(path, "wb")
        self._digest = hashlib.sha256() if digest else None
        self._sparse = sparse
        self.length = 0

    def put(self, piece):
        self.length += len(piece)
        if self._file:
            self._file.write(piece)
        if self._digest:
            self._digest.update(piece)

    def content(self, length, pieces):
        if self._sparse:
            self.length += length
            self._file.seek(self.length)
            return
        for piece in pieces:
            self.put(piece)

    def close(self):
        if self._file:
            self._file.truncate(self.length)
            self._file.close()
        return self._digest and self._digest.hexdigest()


class Tree:
    """source, src_strategy, dst_strategy: paths, as mount options take them.

    content   bytes of all tensors, each counted once
    wanted    {name: sha256} of the files of a mount, None of a sparse tree
    converted directory of these files, None if they were not asked for
    described whether the source says itself how it is cut; src_strategy is None then
    own       strategy of the source's ranks, for the destination
    options   for every mount of it
    """
    described = False
    options = ()

    def __init__(self, directory, kind, size, blocks, *, converted=False,
                 sparse=False):
        self.directory = directory
        self.kind = kind
        self.params = params_of(kind, size)
        self.content = SOURCE_RANKS * sum(p.slice_bytes for p in self.params)
        self.source = os.path.join(directory, "source")
        self.src_strategy = self.own = os.path.join(directory, "source.ckpt")
        self.dst_strategy = os.path.join(directory, "wanted.ckpt")
        self.converted = os.path.join(directory, "converted") if converted else None
        self._blocks = blocks
        self._digests = {}
        self._write_source(sparse)
        self.wanted = None
        if not sparse:
            self.wanted = self._write_wanted(WANTED_RANKS, self.converted)
        os.sync()  # or the disk is still busy with it when measuring begins

    def source_files(self):
        return [os.path.join(self.source, f"rank_{r}", f"net-{STEP}.ckpt")
                for r in range(SOURCE_RANKS)]

    def converted_files(self):
        return [os.path.join(self.converted, name) for name in sorted(self.wanted)]

    def digests(self, ranks):
        """What a mount for `ranks` ranks must show."""
        if ranks == WANTED_RANKS:
            return self.wanted
        if ranks not in self._digests:
            self._digests[ranks] = self._write_wanted(ranks, None)
        return self._digests[ranks]

    def tensor_digests(self, rank, ranks):
        """{name: sha256} of the tensors of a rank of so many."""
        result = {}
        for param in self.params:
            digest = hashlib.sha256()
            for piece in self._tensor(param, param.parts_of(rank, ranks)):
                digest.update(piece)
            result[param.name] = digest.hexdigest()
        return result

    def _write_source(self, sparse):
        os.makedirs(self.directory)
        self._write_strategy(self.src_strategy, SOURCE_RANKS)
        self._write_strategy(self.dst_strategy, WANTED_RANKS)
        for rank, path in enumerate(self.source_files()):
            writer = Writer(path, digest=False, sparse=sparse)
            self._put_rank(writer, rank, SOURCE_RANKS)
            writer.close()

    def _write_strategy(self, path, ranks):
        stage = StageFile(0, {p.name: p.layout(ranks) for p in self.params})
        with open(path, "wb") as f:
            f.write(strategy_bytes(stage))

    def _write_wanted(self, ranks, directory):
        digests = {}
        for rank in range(ranks):
            name = f"rank_{rank}/checkpoint_{rank}.ckpt"
            writer = Writer(directory and os.path.join(directory, name), digest=True)
            self._put_rank(writer, rank, ranks)
            digests[name] = writer.close()
        return digests

    def _put_rank(self, writer, rank, ranks):
        counter_at = None
        if self.kind == "trained":
            # Among the others as it was saved; the converter moves it to the end.
            counter_at = len(PARTS) if ranks == SOURCE_RANKS else len(self.params)
        for param in self.params[:counter_at]:
            self._put_param(writer, param, rank, ranks)
        if counter_at is None:
            return
        writer.put(counter(rank))
        for param in self.params[counter_at:]:
            self._put_param(writer, param, rank, ranks)

    def _put_param(self, writer, param, rank, ranks):
        dims = param.dims(ranks)
        parts = param.parts_of(rank, ranks)
        total = param.slice_bytes * len(parts)
        if total <= CHUNK_BYTES:
            writer.put(record_head(param.name, DTYPE, dims, total))
            writer.content(total, self._tensor(param, parts))
            return
        content = memoryview(b"".join(self._tensor(param, parts)))
        for at in range(0, total, CHUNK_BYTES):
            chunk = content[at:at + CHUNK_BYTES]
            writer.put(record_head(param.name, DTYPE, dims, len(chunk)))
            writer.put(chunk)

    def _tensor(self, param, parts):
        slices = [self._blocks.pieces(param.number * SOURCE_RANKS + part,
                                      param.slice_bytes) for part in parts]
        if param.kind != "columns" or len(slices) == 1:
            for pieces in slices:
                yield from pieces
            return
        row = param.columns * ELEMENT
        whole = [b"".join(pieces) for pieces in slices]
        for at in range(0, param.slice_bytes, row << 10):
            yield b"".join(one[start:start + row]
                           for start in range(at, min(at + (row << 10),
                                                      param.slice_bytes), row)
                           for one in whole)


class Checkpoint2Tree(Tree):
    """The same slices saved as Checkpoint 2.0, to be shown with --format ckpt."""
    described = True
    options = "--format", "ckpt"

    def _write_source(self, sparse):
        os.makedirs(self.source)
        self._write_strategy(self.dst_strategy, WANTED_RANKS)
        self.src_strategy = None
        self.step = checkpoint2_trees.Step(
            {p.name: self._parameter(p) for p in self.params}, SOURCE_RANKS, 100)
        self.own = os.path.join(self.source, self.step.directory)
        for name, data in self.step.texts().items():
            writer = Writer(os.path.join(self.own, name), digest=False)
            writer.put(data)
            writer.close()
        for rank, path in enumerate(self.source_files()):
            self._write_model(path, rank)

    @staticmethod
    def _parameter(param):
        return checkpoint2_trees.parameter_of(param.layout(SOURCE_RANKS), param.dims(1),
                                              DTYPE.lower(), 0)

    def source_files(self):
        return [os.path.join(self.own, name) for _, name in
                sorted(self.step.file_names("model").items())]

    def _write_model(self, path, rank):
        writer = Writer(path, digest=False)
        writer.put(safetensors_head({p.name: ("F16", p.dims(SOURCE_RANKS), p.slice_bytes)
                                     for p in self.params}, {"format": "ms"}))
        for param in self.params:
            writer.content(param.slice_bytes,
                           self._tensor(param, param.parts_of(rank, SOURCE_RANKS)))
        writer.close()
