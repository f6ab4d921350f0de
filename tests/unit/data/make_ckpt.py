#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the *.ckpt files of this directory with MindSpore 2.10.0.

usage: make_ckpt.py [DIRECTORY]

The unit tests know what stands in them; after a change here, change
test_wire_ckpt_scan.c as well.  Content of a tensor is always a counting
pattern, so that a test can tell every byte.
"""
import os
import sys
import threading

import numpy as np
import mindspore as ms
from mindspore import Tensor, save_checkpoint
from mindspore.train import serialization


def param(name, shape, dtype):
    """A tensor of 0, 1, 2, ... (modulo 2 for Bool, 8 for Int4)."""
    count = int(np.prod(shape))
    modulo = {ms.bool_: 2, ms.qint4x2: 8}.get(dtype, 128)
    values = (np.arange(count) % modulo).reshape(shape)
    if dtype == ms.qint4x2:
        return {"name": name, "data": Tensor(values.astype(np.int8), dtype)}
    return {"name": name, "data": Tensor(values.astype(np.float64)).astype(dtype)}


DTYPES = [ms.bool_, ms.int8, ms.int16, ms.int32, ms.int64, ms.uint8, ms.uint16,
          ms.uint32, ms.uint64, ms.float16, ms.float32, ms.float64,
          ms.bfloat16, ms.qint4x2, ms.complex64, ms.complex128]


def dtypes(path):
    """Every type once as 3x5, then a scalar, a vector of one, a long name."""
    params = [param(f"net.{str(t).lower()}", (3, 5), t) for t in DTYPES]
    params += [param("scalar", (), ms.float32), param("one", (1,), ms.int32),
               param("wide-name." + "n" * 200, (2, 3, 200), ms.float16)]
    save_checkpoint(params, path)


def append_crc(path):
    """append_dict of each kind, and the CRC trailer."""
    append = {"epoch_num": 3, "step_num": 700, "learning_rate": 0.5,
              "finished": True, "note": "h\u00e9llo \u4e16", "empty": ""}
    save_checkpoint([param("w", (2, 2), ms.float32)], path, append_dict=append,
                    crc_check=True)


def chunks(path):
    """Chunks as of a tensor over 512 MiB, with a limit of 1 KiB."""
    limit = serialization.SLICE_SIZE
    serialization.SLICE_SIZE = 1
    save_checkpoint([param("before", (3,), ms.int16),
                     param("large", (40, 16), ms.float32),
                     param("exact", (256,), ms.float32),
                     param("after", (2,), ms.int8)], path)
    serialization.SLICE_SIZE = limit


def empty(path):
    """Tensors without elements, which only the asynchronous writer keeps."""
    save_checkpoint([param("rows", (3, 0), ms.float32),
                     param("none", (0,), ms.int32),
                     param("some", (2,), ms.int32)], path, async_save="thread")


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(__file__) or "."
    for make in (dtypes, append_crc, chunks, empty):
        path = os.path.join(out, f"{make.__name__}.ckpt")
        make(path)
        for thread in threading.enumerate():  # the asynchronous writer
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()
        os.chmod(path, 0o644)


if __name__ == "__main__":
    main()
