# SPDX-License-Identifier: Apache-2.0
"""The ways in which a mount can read and keep its source.

    words = draw(random.Random(7), cache_dir)      options of the mount
    figures(mounted.log())["read"]                 what it says at its end
"""

import re

IO_MODES = ("auto", "direct", "cached")
CACHES = ("auto", "on", "off")
# Of no block, of one, of a few, and of more than tests have to keep.
SIZES = ("0", "300KiB", "600KiB", "2MiB", "16MiB", "1GiB")


def mode(io_mode, cache, size, cache_dir=None):
    words = ["--io-mode", io_mode, "--cache", cache, "--cache-size", size]
    return words + (["--cache-dir", cache_dir] if cache_dir else [])


def draw(numbers, cache_dir=None):
    """Any of them; with a directory of blocks as often as without, if one is
    given."""
    words = mode(*map(numbers.choice, (IO_MODES, CACHES, SIZES)))
    if numbers.random() < 0.5 and cache_dir:
        words += ["--cache-dir", cache_dir]
    return words


_FIGURES = (
    ("shown", r"(\d+) MiB served in \d+ reads"),
    ("read", r"(\d+) MiB read in \d+ reads"),
    ("reads", r"\d+ MiB read in (\d+) reads"),
    ("failed", r"\d+ MiB read in \d+ reads, (\d+) failed"),
    ("memory", r"cache: (\d+) blocks found in memory"),
    ("disk", r"cache: .* (\d+) on disk,"),
    ("peak", r"cache: .*; (\d+) MiB of memory at most"),
)


def figures(log):
    """{name: number} of the lines that end a log of level info, MiB where bytes
    are meant; what concerns the cache is missing if there was none."""
    found = {}
    for name, pattern in _FIGURES:
        match = re.search(pattern, log)
        if match:
            found[name] = int(match[1])
    return found
