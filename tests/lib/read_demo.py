# SPDX-License-Identifier: Apache-2.0
"""Prints what the module reads of tests/data/demo, the directory where it starts, as
SHA256SUMS has it."""
import hashlib

import reshardfs

with reshardfs.Source("checkpoint", src_strategy="strategy_8_cards.ckpt",
                      dst_strategy="strategy_4_cards.ckpt") as s:
    for f in s.files():
        print(hashlib.sha256(s.read(f.rank)).hexdigest() + "  " + f.name)
