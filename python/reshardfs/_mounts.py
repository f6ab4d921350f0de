# SPDX-License-Identifier: Apache-2.0
"""Mounts for the time of a `with` block."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import tempfile
from types import TracebackType
from typing import TYPE_CHECKING, Optional, Type

from ._library import Error, Rank, described, number_of, placed
from ._options import Options, Path, spoken, words

if TYPE_CHECKING:
    from typing_extensions import Unpack

_log = logging.getLogger(__package__)
_LINE = re.compile(r"reshardfs: (?:(error|warning|notice|info|debug): )?(.*)")
_LEVELS = {"error": logging.ERROR, "warning": logging.WARNING,
           "notice": logging.INFO, "info": logging.INFO,
           "debug": logging.DEBUG}


# The path in a wheel; see backend.py.
_BUNDLED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "reshardfs")


def _program() -> str:
    bundled = _BUNDLED if os.path.exists(_BUNDLED) else "reshardfs"
    return os.environ.get("RESHARDFS") or bundled


def _run(*words: str, holder: Optional[int] = None) -> None:
    """Run the program.  Its messages go to the log, or into the Error."""
    program = _program()
    try:
        done = subprocess.run([program, *words], stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, check=False,
                              pass_fds=() if holder is None else (holder,))
    except OSError as error:
        raise Error(f"cannot run {program}: {error.strerror}") from None
    sentences = []
    for line in os.fsdecode(done.stderr).splitlines():
        found = _LINE.fullmatch(line)
        level = found[1] if found else None
        if found and level in (None, "error"):
            sentences.append(spoken(found[2]))
        elif found:
            _log.log(_LEVELS[level or "error"], "%s", spoken(found[2]))
    if done.returncode:
        raise Error("; ".join(sentences) or f"{program} {words[0]} failed with "
                    f"status {done.returncode}")


def _escaped(word: str) -> str:
    return re.sub(r"([,\\])", r"\\\1", word)


class Mount:
    """A mount at a temporary mount point, for the time of a `with` block.

    path    the mount point; None outside the block
    """

    def __init__(self, source: Path, **options: Unpack[Options]) -> None:
        self._source = placed(source)
        self._opened = self._source, options
        self._options = list(words(options))
        self._directory: Optional[str] = None
        self._held: Optional[int] = None
        self.path: Optional[str] = None

    def __repr__(self) -> str:
        return described("Mount", self._opened, self.path and f"mounted at {self.path}")

    def rank(self, rank: Rank) -> str:
        """Path of the file of a rank; with resume=True, of its newest file."""
        directory = os.path.join(self._mounted(), f"rank_{number_of(rank)}")
        try:
            names = os.listdir(directory)
        except OSError as error:
            raise Error(f"{directory}: {error.strerror}",
                        error.errno) from None
        if len(names) > 1:
            names = [n for n in names if n.startswith("latest.")]
        if len(names) != 1:
            raise Error(f"{directory} does not have exactly one file: {names}")
        return os.path.join(directory, names[0])

    def _mounted(self) -> str:
        if self.path is None:
            raise ValueError("nothing is mounted outside the with block")
        return self.path

    def __enter__(self) -> "Mount":
        self._directory = tempfile.mkdtemp(prefix="reshardfs-")
        words = [w for o in self._options for w in ("-o", _escaped(o))]
        try:
            self._mount(words)
        except BaseException:
            self._clean_up()
            raise
        self.path = self._directory
        return self

    def _mount(self, words: "list[str]") -> None:
        # The daemon unmounts when this process and its forks have closed their end
        # of the pipe, also if they are killed.
        end, self._held = os.pipe()
        try:
            # This returns when the mount is ready.
            _run("mount", *words, "-o", f"holder={end}", "--", self._source,
                 str(self._directory), holder=end)
        finally:
            os.close(end)

    def __exit__(self, kind: Optional[Type[BaseException]],
                 error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.path = None
        self._clean_up()

    def _clean_up(self) -> None:
        directory, self._directory = self._directory, None
        if directory is None:
            return
        if os.path.ismount(directory):
            try:
                _run("umount", directory)
            except Error as error:
                # A file is still open or mapped, for instance by a loader that the
                # garbage collector has not freed yet.
                _log.warning("%s; it ends when its last file is closed", error)
                _run("umount", "--lazy", directory)
                self._held = None  # open until this process ends
        if self._held is not None:
            os.close(self._held)
            self._held = None
        os.rmdir(directory)


def mounted(source: Path, **options: Unpack[Options]) -> Mount:
    """A mount of `source` for a `with` statement.

    The mount exists inside the block, and is removed at its end, also after an
    exception."""
    return Mount(source, **options)
