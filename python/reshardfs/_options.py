# SPDX-License-Identifier: Apache-2.0
"""Options as keywords: types of their values, and messages that name them."""

from __future__ import annotations

import keyword
import os
import re
from typing import Any, Dict, Iterator, Mapping, Optional, Sequence, Tuple, TypedDict, Union

Path = Union[str, "os.PathLike[str]"]

# The value of each option as in `reshardfs mount --help-all`; "" if it has none.
OPTIONS: Dict[str, str] = {
    "src_strategy": "PATH|none",
    "dst_strategy": "PATH|none",
    "dst_mesh": "MESH",
    "pipeline_layers": "N,N,...",
    "convert": "TABLE|auto",
    "from": "hf|mindspore",
    "config": "FILE|DIR",
    "vocab_multiple": "N",
    "untie": "",
    "unwrap": "",
    "resume": "",
    "steps": "one|all",
    "dst_ranks": "N",
    "group_info": "PATH",
    "select": "WHICH",
    "base": "DIR",
    "breakpoint": "include|only",
    "fallbacks": "N",
    "rank_dir": "TEMPLATE",
    "file": "TEMPLATE",
    "source_map": "FILE.json",
    "follow_outside": "",
    "check": "sample|structure|full",
    "replicas": "auto|off",
    "allow_missing": "",
    "format": "ckpt|safetensors|hf|checkpoint2|dcp|hyperparallel|megatron|peft",
    "part_size": "SIZE",
    "model_files": "DIR|none",
    "optimizer": "auto|keep",
    "prefix": "STR",
    "only": "REGEX",
    "drop": "REGEX",
    "rename": "FILE",
    "dequantize": "bfloat16|float16|float32",
    "lora": "DIR[:SCALE]",
    "lora_alpha": "N",
    "cast": "bfloat16|float16|float32",
    "unlisted": "copy|drop|error",
    "remove_redundancy": "",
    "compat": "mindspore",
    "foreground": "",
    "stack": "",
    "allow_non_empty": "",
    "sandbox": "auto|off",
    "steps_interval": "SECONDS",
    "debug": "",
    "io_mode": "auto|passthrough|direct|cached",
    "index_cache": "DIR|off",
    "cache": "auto|on|off",
    "cache_size": "SIZE|N%",
    "cache_compress": "auto|off",
    "cache_dir": "DIR",
    "cache_disk_size": "SIZE",
    "cache_servers": "HOST[:PORT],...",
    "cache_key_file": "FILE",
    "keep_free": "SIZE|N%",
    "readahead": "N",
    "source_requests": "N",
    "source_timeout": "SECONDS",
    "source_keys": "auto|none|instance",
    "source_style": "auto|path|host",
    "requester_pays": "",
    "source_index": "NAME",
    "ca_file": "FILE",
    "fault": "FAULT[;FAULT...]",
    "log_to": "stderr|syslog|journal|file:PATH",
    "log_format": "text|json",
    "log_level": "error|warning|notice|info|debug",
    "quiet": "",
    "allow_other": "",
    "allow_root": "",
    "auto_unmount": "",
    "holder": "FD",
    "default_permissions": "",
    "ro": "",
    "rw": "",
    "fsname": "NAME",
    "subtype": "NAME",
    "max_read": "BYTES",
    "max_threads": "N",
    "max_idle_threads": "N",
    "clone_fd": "",
    **dict.fromkeys(("suid", "nosuid", "dev", "nodev", "exec", "noexec", "atime",
                     "noatime", "sync", "async", "dirsync"), ""),
    **dict.fromkeys(("context", "fscontext", "defcontext", "rootcontext"), "CONTEXT"),
}

# Types of values, for editors and checkers.  A list gives an option several times.
Flag = Optional[bool]
Number = Union[int, str, None]
Text = Union[str, Sequence[str], None]
Place = Union[Path, Sequence[Path], None]


class Options(TypedDict, total=False):
    """The options as keywords; those that Python reserves have a "_" at their end."""
    src_strategy: Place
    dst_strategy: Place
    dst_mesh: Text
    pipeline_layers: Text
    convert: Place
    from_: Text
    config: Place
    vocab_multiple: Number
    untie: Flag
    unwrap: Flag
    resume: Flag
    steps: Text
    dst_ranks: Number
    group_info: Place
    select: Text
    base: Place
    breakpoint: Text
    fallbacks: Number
    rank_dir: Text
    file: Text
    source_map: Place
    follow_outside: Flag
    check: Text
    replicas: Text
    allow_missing: Flag
    format: Text
    part_size: Number
    model_files: Place
    optimizer: Text
    prefix: Text
    only: Text
    drop: Text
    rename: Place
    dequantize: Text
    lora: Place
    lora_alpha: Number
    cast: Text
    unlisted: Text
    remove_redundancy: Flag
    compat: Text
    foreground: Flag
    stack: Flag
    allow_non_empty: Flag
    sandbox: Text
    steps_interval: Number
    debug: Flag
    io_mode: Text
    index_cache: Place
    cache: Text
    cache_size: Number
    cache_compress: Text
    cache_dir: Place
    cache_disk_size: Number
    cache_servers: Text
    cache_key_file: Place
    keep_free: Number
    readahead: Number
    source_requests: Number
    source_timeout: Number
    source_keys: Text
    source_style: Text
    requester_pays: Flag
    source_index: Text
    ca_file: Place
    fault: Text
    log_to: Place
    log_format: Text
    log_level: Text
    quiet: Flag
    allow_other: Flag
    allow_root: Flag
    auto_unmount: Flag
    holder: Text
    default_permissions: Flag
    ro: Flag
    rw: Flag
    fsname: Text
    subtype: Text
    max_read: Number
    max_threads: Number
    max_idle_threads: Number
    clone_fd: Flag
    suid: Flag
    nosuid: Flag
    dev: Flag
    nodev: Flag
    exec: Flag
    noexec: Flag
    atime: Flag
    noatime: Flag
    sync: Flag
    async_: Flag
    dirsync: Flag
    context: Text
    fscontext: Text
    defcontext: Text
    rootcontext: Text


def _types(name: str) -> Tuple[type, ...]:
    value = OPTIONS[name]
    if not value:
        return (bool,)
    if re.search("PATH|FILE|DIR|TABLE", value):
        return str, os.PathLike
    if re.match("(N|BYTES|SECONDS|SIZE)(\\||$)", value):
        return int, str
    return (str,)


def _check(name: str, given: Any) -> None:
    if name not in OPTIONS:
        return  # The library reports it, with the most similar name.
    types = _types(name)
    if isinstance(given, types) and (bool in types or not isinstance(given, bool)):
        return
    called = " or ".join("os.PathLike" if t is os.PathLike else t.__name__
                         for t in types)
    value = OPTIONS[name]
    raise TypeError(f"{_keyword(name)} takes {called}{value and f' ({value})'}, "
                    f"not {type(given).__name__}: {given!r:.80}")


def _keyword(name: str) -> str:
    """The option as a keyword: Python reserves some."""
    return name + "_" if keyword.iskeyword(name) else name


def words(options: Mapping[str, Any]) -> Iterator[str]:
    """Keywords as "name" and "name=value"."""
    for word, given in options.items():
        name = word.rstrip("_")
        for value in given if isinstance(given, (list, tuple)) else [given]:
            if value is None:
                continue
            _check(name, value)
            if value is True:
                yield name
            elif value is not False:
                text = (os.fsdecode(value) if isinstance(value, os.PathLike)
                        else str(value))
                yield f"{name}={text}"


# An option of the command line, and a possible value.
_OPTION = re.compile(r"(?<![\w-])(?:--([a-z][a-z-]*[a-z])(?:=([^\s,;:)\"]+)| "
                     r"(\"[^\"]*\"|[a-z0-9]+(?![\w=])|[a-z]+=\w+|[A-Z_|]+(?!\w)))?|"
                     r"-o ([a-z_]+))")


def _argument(found: re.Match[str]) -> str:
    name = (found[1] or found[4]).replace("-", "_")
    if found[4]:
        return _keyword(name)
    if name not in OPTIONS:
        return found[0]
    takes = OPTIONS[name]
    value, rest = found[2] or found[3] or "", ""
    # The word after an option may also be the next word of the sentence.
    words = takes.split("|") + ["newest", "mtime", "mindspore"] * (name == "select")
    if not found[2] and value.isalnum() and value.islower() and value not in words:
        value, rest = "", found[3] and " " + found[3] or ""
    if not takes:
        return f"{_keyword(name)}=True" + (" " + value if value else rest)
    if not value:
        return _keyword(name) + rest
    if not value.startswith('"'):
        value = f'"{value}"'
    return f"{_keyword(name)}={value}"


def spoken(sentence: str) -> str:
    """A message of the program, with its options in the form of keywords."""
    first, colon, rest = sentence.partition(":")
    if colon and first.replace("-", "_") in OPTIONS:
        first = _keyword(first.replace("-", "_"))
    return _OPTION.sub(_argument, first + colon + rest)
