#!/usr/bin/env python3
"""Makes the whole checkpoint files of other kinds that test_wire_intact reads.

usage: make_intact.py            writes beside itself
"""

import os
import pickle
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "lib"))

from framework_formats import (tensor_bundle, torch_legacy,  # noqa: E402
                               torch_zip)

CONTENTS = [bytes(range(40)), bytes(range(100, 116))]


def main():
    index, data = tensor_bundle({f"layer-{i}/kernel": bytes(32) for i in range(8)},
                                shards=2)
    # The sizes that the test knows; the index wants the same of the files.
    data = [len(data[0]), len(data[1])]
    assert data == [128, 128], data
    files = {
        "torch.pt": torch_zip(CONTENTS),
        "torch_zip64.pt": torch_zip(CONTENTS, zip64=True),
        "torch_commented.pt": torch_zip(CONTENTS, comment=b"by a test"),
        "torch_legacy.pt": torch_legacy([bytes(range(16)), bytes(range(8))]),
        "pickle.pt": pickle.dumps({"epoch": 3, "loss": 0.5, "names": ["a"] * 3},
                                  protocol=4),
        "bundle.index": index,
    }
    for name, content in files.items():
        with open(os.path.join(HERE, name), "wb") as f:
            f.write(content)


if __name__ == "__main__":
    main()
