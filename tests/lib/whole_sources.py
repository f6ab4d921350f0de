# SPDX-License-Identifier: Apache-2.0
"""What tests of whole models that other software saved have in common: what a mount shows,
what it is refused for, and the same by libreshard and the Python module."""

import os
import shutil
import tempfile

from dcp_reader import Checkpoint
from demands import check, content, demand
from library_use import compare
from rsh_cli import GOOD, USAGE, good, run, run_json
from rsh_mount import Alone, expect_failure, reshardfs_program
from safetensors_format import SUFFIX, Tensors
from shown_model import hashes, model_hashes, same

# All that a checkpoint has, in the form of a model.
KEEP = ("--optimizer", "keep")


def shown_by(source, *words):
    """What a mount of it shows: hashes, files beside the weights, the log."""
    with Alone(source, extra=[*words, "--log-level", "info"]) as mount:
        found = model_hashes(mount.path)
        beside = sorted(n for n in os.listdir(mount.path)
                        if not n.startswith((".", "model")) and n != "extra_state.json")
        return found, beside, mount.log()


def shown_as_dcp(source):
    """The hashes of what it is as a distributed checkpoint."""
    with Alone(source, extra=["--format", "dcp"]) as mount:
        return hashes(Checkpoint(mount.path).values())


def exported_model(source, *words):
    """The hashes of what an export has, which verify takes."""
    with tempfile.TemporaryDirectory() as own:
        out = os.path.join(own, "out")
        good("export", *words, source, out)
        good("verify", *words, source, os.path.join(out, "reshardfs-manifest.jsonl"))
        return model_hashes(out)


def exported_as_file(source, *words):
    """The hashes of a single safetensors file."""
    with tempfile.TemporaryDirectory() as out:
        good("export", "--dst-strategy", "none", "--format", "safetensors", *words, source, out)
        path = os.path.join(out, "rank_0", "checkpoint_0" + SUFFIX)
        return hashes(Tensors(content(path)).values())


def verified(source):
    for how in "structure", "full":
        check(run_json("verify", "--check", how, source)["good"], how)


def copied(root, directory):
    """A copy that can be damaged."""
    to = tempfile.mkdtemp(dir=directory)
    os.rmdir(to)
    return shutil.copytree(root, to)


def replaced(called, at, argument):
    function, args = called.call
    called.call = function, args[:at] + (argument,) + args[at + 1:]


def sentence(said):
    """The one line that says why, of a SOURCE or of a command line."""
    lines = [line for line in said.splitlines() if line.startswith("reshardfs: ") and not
             line.startswith(tuple(f"reshardfs: {kind}: " for kind in
                                   ("info", "notice", "warning", "debug")))]
    check(len(lines) == 1, said)
    return lines[0]


def no_good(source, *words, command="plan", extra=()):
    """It is refused in one sentence that has the words, by mount too."""
    got = run(command, *extra, source)
    check(got.status != GOOD, f"{source}: {got!r}")
    _, said = expect_failure(source, described=True, extra=extra)
    demand(sentence(said), *words)


def no_good_at_all(source, *words):
    """Nor do ls and verify take it."""
    no_good(source, *words)
    check(run("ls", source).status != GOOD and
          run("verify", source).status not in (GOOD, USAGE), "ls or verify takes it")


def run_random(tap, directory, what, seeds, a_test, one):
    """one(seed, a directory of its own) of all, some in a test."""
    for begin in range(0, len(seeds), a_test):
        some = seeds[begin:begin + a_test]
        with tap.test(f"random {what} {some[0]} to {some[-1]}"):
            for seed in some:
                with tempfile.TemporaryDirectory(dir=directory) as own:
                    one(seed, own)


def compare_libraries(tap, trees, directory, names, wanted):
    """By libreshard the trees are what a mount shows, and those of `wanted`, {name: hashes},
    have these tensors by the Python module."""
    for name in names:
        with tap.test(f"libreshard: {name}"), tempfile.TemporaryDirectory(dir=directory) as own:
            for words in ["format=safetensors"], ["format=dcp"]:
                compare(own, os.path.join(trees, name), None, None, *words)
    os.environ["LIBRESHARD"] = os.path.join(os.path.dirname(reshardfs_program()), ".libs",
                                            "libreshard.so.0")
    if "sanitize" in os.environ.get("SANITIZER_FLAGS", ""):
        return  # Python does not load what has a sanitizer in it
    import reshardfs
    for name, expected in wanted.items():
        with tap.test(f"the Python module: {name}"), \
                reshardfs.Source(os.path.join(trees, name), src_strategy="none",
                                 dst_strategy="none", format="safetensors") as opened:
            same(hashes(Tensors(bytes(opened.read(0))).values()), expected, name)
