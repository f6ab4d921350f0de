#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the whole checkpoint files of other kinds that test_formats_check reads.

usage: make_intact.py            writes beside itself
"""

import io
import os
import pickle
import pickletools
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "lib"))

from framework_formats import (tensor_bundle, torch_legacy,  # noqa: E402
                               torch_tar, torch_zip)

CONTENTS = [bytes(range(40)), bytes(range(100, 116))]

LEGACY = [bytes(range(16)), bytes(range(8)), bytes(range(20, 28)), b"", bytes(range(32))]
KINDS = ["FloatStorage", "BFloat16Storage", "LongStorage", "BoolStorage",
         "ComplexDoubleStorage"]


def python_2(data):
    """A legacy file as Python 2 pickles: it counts what it keeps from 1."""
    data = bytearray(data)
    stream = io.BytesIO(data)
    for _ in range(5):
        for code, place, at in pickletools.genops(stream):
            if code.name in ("BINPUT", "BINGET"):
                data[at + 1] = place + 1
    return bytes(data)


def without_crcs(data):
    """A zip archive as torch writes it after set_crc32_options(False)."""
    data = bytearray(data)
    for mark, place in ((b"PK\3\4", 14), (b"PK\1\2", 16)):
        at = -1
        while (at := data.find(mark, at + 1)) >= 0:
            data[at + place:at + place + 4] = bytes(4)
    return bytes(data)


def main():
    index, data = tensor_bundle({f"layer-{i}/kernel": bytes(32) for i in range(8)},
                                shards=2)
    # The sizes that the test knows; the index wants the same of the files.
    data = [len(data[0]), len(data[1])]
    assert data == [128, 128], data
    files = {
        "torch.pt": torch_zip(CONTENTS),
        "torch_nocrc.pt": without_crcs(torch_zip(CONTENTS)),
        "torch_zip64.pt": torch_zip(CONTENTS, zip64=True),
        "torch_commented.pt": torch_zip(CONTENTS, comment=b"by a test"),
        "torch_legacy.pt": torch_legacy(LEGACY, kinds=KINDS),
        "torch_legacy_4.pt": torch_legacy(LEGACY, 4, KINDS),
        "torch_legacy_2.pt": python_2(torch_legacy(LEGACY, kinds=KINDS)),
        "torch_legacy_other.pt": torch_legacy([b"abcdef"], kinds=["SomeNewStorage"]),
        "torch_tar.pt": torch_tar([bytes(range(40)), bytes(600)]),
        "pickle.pt": pickle.dumps({"epoch": 3, "loss": 0.5, "names": ["a"] * 3},
                                  protocol=4),
        "bundle.index": index,
    }
    for name, content in files.items():
        with open(os.path.join(HERE, name), "wb") as f:
            f.write(content)


if __name__ == "__main__":
    main()
