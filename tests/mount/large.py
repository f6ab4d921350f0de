#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files and tensors beyond 4 GiB, and tensors in chunks of 512 MiB.

The sources are sparse files with a few marked bytes, so that nothing of their
size is ever written; what a mount must show is computed from the format alone.
"""

import json
import os
import random
import struct
import sys
import tempfile
import zipfile

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

from big_tree import NAME  # noqa: E402
from ms_formats import CHUNK_BYTES, Layout, StageFile, record_head, strategy_bytes  # noqa: E402
from rsh_mount import Alone, MountError, Mounted, Tap, require_mount  # noqa: E402
from safetensors_format import safetensors_head  # noqa: E402

ROWS = 9000
COLUMNS = 1 << 20
MARK = 64  # bytes that are not zero at each marked place


class Chunked:
    """Where the bytes of a tensor lie in a file that holds nothing else."""

    def __init__(self, dims):
        size = dims[0] * dims[1]
        self.headers = {}  # offset in the file -> bytes
        self.contents = []  # offset in the file of each chunk's content
        at = 0
        for start in range(0, size, CHUNK_BYTES):
            length = min(CHUNK_BYTES, size - start)
            self.headers[at] = record_head(NAME, "UInt8", dims, length)
            at += len(self.headers[at])
            self.contents.append(at)
            at += length
        self.file_bytes = at

    def offset(self, element):
        return self.contents[element // CHUNK_BYTES] + element % CHUNK_BYTES


def write_sparse(path, dims, marks):
    """A file whose tensor is zero but for {element: bytes}."""
    layout = Chunked(dims)
    os.makedirs(os.path.dirname(path))
    with open(path, "wb") as f:
        for at, data in layout.headers.items():
            os.pwrite(f.fileno(), data, at)
        for element, data in marks.items():
            # Byte by byte, since a mark may reach into the next chunk.
            for i, byte in enumerate(data):
                os.pwrite(f.fileno(), bytes([byte]), layout.offset(element + i))
        os.truncate(f.fileno(), layout.file_bytes)


def marked_elements():
    """Places in the whole tensor: its ends, the edges of chunks and of 2^32,
    and some others; none crosses the middle of a row or its end."""
    size = ROWS * COLUMNS
    places = [0, size - MARK, 2 ** 32, 2 ** 32 - MARK, 2 ** 33 - COLUMNS // 2]
    for chunk in (1, 7, 8, 9, 16):
        places += [chunk * CHUNK_BYTES, chunk * CHUNK_BYTES - MARK]
    numbers = random.Random(7)
    places += [numbers.randrange(size // MARK) * MARK for _ in range(30)]
    return {p: numbers.randbytes(MARK) for p in places}


def by_rows(element):
    rank, rest = divmod(element, ROWS // 2 * COLUMNS)
    return rank, rest


def by_columns(element):
    row, column = divmod(element, COLUMNS)
    rank, rest = divmod(column, COLUMNS // 2)
    return rank, row * (COLUMNS // 2) + rest


def check(path, marks):
    layout = Chunked([ROWS, COLUMNS])
    found = os.stat(path).st_size
    if found != layout.file_bytes:
        raise MountError(f"st_size {found}, expected {layout.file_bytes}")
    fd = os.open(path, os.O_RDONLY)
    for at, data in layout.headers.items():
        if os.pread(fd, len(data), at) != data:
            raise MountError(f"header at {at} differs")
    for element, data in marks.items():
        at = layout.offset(element)
        if os.pread(fd, MARK, at) != data:
            raise MountError(f"mark at {at} differs")
    # A stretch over a chunk's edge: content, header, content.
    edge = layout.contents[8] + CHUNK_BYTES
    head = layout.headers[edge]
    around = os.pread(fd, 2 * MARK + len(head), edge - MARK)
    if around != marks[9 * CHUNK_BYTES - MARK] + head + marks[9 * CHUNK_BYTES]:
        raise MountError("the edge of a chunk differs")
    if os.pread(fd, 100, layout.file_bytes - 5) != marks[ROWS * COLUMNS - MARK][-5:]:
        raise MountError("the end differs")
    if os.pread(fd, 100, layout.file_bytes) != b"":
        raise MountError("there is something behind the end")
    os.close(fd)


def run(directory, axis, dims, place):
    marks = marked_elements()
    parts = [{}, {}]
    for element, data in marks.items():
        rank, local = place(element)
        parts[rank][local] = data
    source = os.path.join(directory, "source")
    for rank, part in enumerate(parts):
        write_sparse(f"{source}/rank_{rank}/x-1_1.ckpt", dims, part)
    strategy = os.path.join(directory, "strategy.ckpt")
    tensor_map = [0, -1] if axis == 0 else [-1, 0]
    with open(strategy, "wb") as f:
        f.write(strategy_bytes(StageFile(0, {
            NAME: Layout([2], tensor_map)})))
    with Mounted(source, src_strategy=strategy, dst_strategy=None) as m:
        check(m.rank_file(0), marks)


WIDTH = 1024  # of a model
VOCABULARY = 2200000


def write_model(directory):
    """A Llama whose embeddings have more than 4 GiB each; {name: {offset: bytes}}."""
    names = {f"model.layers.0.{name}.weight": shape for name, shape in {
        **{f"self_attn.{k}_proj": (WIDTH, WIDTH) for k in "qkvo"},
        "mlp.gate_proj": (64, WIDTH), "mlp.up_proj": (64, WIDTH), "mlp.down_proj": (WIDTH, 64),
        "input_layernorm": (WIDTH,), "post_attention_layernorm": (WIDTH,)}.items()}
    names.update({"model.norm.weight": (WIDTH,),
                  "model.embed_tokens.weight": (VOCABULARY, WIDTH),
                  "lm_head.weight": (VOCABULARY, WIDTH)})
    values = {n: ("BF16", s, 2 * s[0] * (s[1:] or (1,))[0]) for n, s in sorted(names.items())}
    head = safetensors_head(values)
    numbers, marks, at = random.Random(8), {}, len(head)
    with open(os.path.join(directory, "model.safetensors"), "wb") as f:
        f.write(head)
        for name, (_, _, length) in values.items():
            marks[name] = {place: numbers.randbytes(MARK) for place in
                           (0, length // 2 // MARK * MARK, 2 ** 32, length - MARK)
                           if place < length}
            for place, data in marks[name].items():
                os.pwrite(f.fileno(), data, at + place)
            at += length
        os.truncate(f.fileno(), at)
    with open(os.path.join(directory, "config.json"), "w", encoding="utf-8") as f:
        json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
                   "hidden_size": WIDTH, "intermediate_size": 64, "num_hidden_layers": 1,
                   "num_attention_heads": 8, "num_key_value_heads": 8,
                   "vocab_size": VOCABULARY, "tie_word_embeddings": False,
                   "torch_dtype": "bfloat16", "rms_norm_eps": 1e-6}, f)
    return marks


def check_archive(path, wanted):
    """Python finds the storages in the archive, also those behind 4 GiB."""
    with zipfile.ZipFile(path) as archive, open(path, "rb") as f:
        entries = [e for e in archive.infolist() if "/data/" in e.filename]
        if archive.infolist()[-1].header_offset < 2 ** 32 + MARK or len(entries) < 8:
            raise MountError(f"{path}: {archive.infolist()}")
        found = {}
        for entry in entries:
            # Names and what follows them may differ from those of the directory.
            local = os.pread(f.fileno(), 30, entry.header_offset)
            kind, version, name, extra = struct.unpack("<4sH20xHH", local)
            begin = entry.header_offset + 30 + name + extra
            more = os.pread(f.fileno(), extra, begin - extra)
            wide = entry.file_size >= 2 ** 32
            if kind != b"PK\3\4" or version != (45 if wide else 20) or \
                    (wide and more[:20] != struct.pack("<HHQQ", 1, 16, *[entry.file_size] * 2)):
                raise MountError(f"{entry}: {local} {more[:20]}")
            found[entry.file_size, os.pread(f.fileno(), MARK, begin)] = begin
        for length, marks in wanted.items():
            for mark in marks:
                begin = found[length, mark[0]]
                for place, data in mark.items():
                    if os.pread(f.fileno(), MARK, begin + place) != data:
                        raise MountError(f"{length}: the mark at {place} differs")
        # Python does not look at all of these fields.
        n, start, end = len(archive.infolist()), archive.start_dir, os.stat(path).st_size - 98
        expected = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, n, n, end - start,
                               start) + struct.pack("<4sIQI", b"PK\6\7", 0, end, 1) + \
            struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, n, n, end - start, 2 ** 32 - 1, 0)
        if os.pread(f.fileno(), 99, end) != expected:
            raise MountError("the end of the directory differs")


def run_archive(directory):
    marks = write_model(directory)
    wanted = {2 * VOCABULARY * WIDTH: [marks["model.embed_tokens.weight"],
                                       marks["lm_head.weight"]],
              2 * WIDTH: [marks["model.norm.weight"]]}
    with Alone(directory, ["--format", "megatron", "--convert", "megatron-dense",
                           "--dst-mesh", "tp=1"]) as m:
        check_archive(os.path.join(m.path, "release", "mp_rank_00", "model_optim_rng.pt"),
                      wanted)


def main():
    require_mount()
    tap = Tap(3)
    for name, axis, dims, place in (
            ("rows", 0, [ROWS // 2, COLUMNS], by_rows),
            ("columns", 1, [ROWS, COLUMNS // 2], by_columns)):
        with tempfile.TemporaryDirectory(prefix="reshardfs-large-") as directory:
            with tap.test(f"a tensor of 9 GB from two halves by {name}"):
                run(directory, axis, dims, place)
    with tempfile.TemporaryDirectory(prefix="reshardfs-large-") as directory, \
            tap.test("an archive of PyTorch with tensors of more than 4 GiB"):
        run_archive(directory)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
