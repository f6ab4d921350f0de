#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python module under the real MindSpore: load_checkpoint of what is mounted, and
the module's own, find what MindSpore finds in the files of transform_checkpoints; nets
are loaded with little memory, and stay whole where a load ends in the midst.
"""

import contextlib
import functools
import gc
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from concurrent.futures import CancelledError
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "lib"), os.path.join(HERE, "..", "..", "python")]
import rsh_mount  # noqa: E402
from all_sources import all_sources  # noqa: E402
from array_watch import interrupted, watched  # noqa: E402
from daemon_use import field  # noqa: E402
from demands import check, content, write  # noqa: E402
from ms_formats import Record, checkpoint_bytes  # noqa: E402
from rsh_cli import PLAIN, demo_tree  # noqa: E402
from rsh_mount import Tap  # noqa: E402
from run_seed import run_seed  # noqa: E402
from small_job import Job  # noqa: E402

os.environ["XDG_CACHE_HOME"] = PLAIN["XDG_CACHE_HOME"]
os.environ["LIBRESHARD"] = os.path.join(os.path.dirname(rsh_mount.reshardfs_program()),
                                        ".libs", "libreshard.so.0")
import reshardfs  # noqa: E402


def demand(equal, what):
    check(equal, what)


def demand_same(found, expected):
    demand(list(found) == list(expected), f"{list(found)} and not {list(expected)}")
    for name, parameter in expected.items():
        f = found[name]
        demand((f.dtype, f.shape) == (parameter.dtype, parameter.shape), name)
        # Bits, not numbers: there are NaNs.
        demand(f.asnumpy().tobytes() == parameter.asnumpy().tobytes(), f"{name} differs")


def refused(word, function, *arguments, **options):
    try:
        function(*arguments, **options)
    except reshardfs.Error as error:
        demand(word in str(error), error)
    else:
        raise AssertionError(f"no Error with {word}")


def check_demo(tap, ms, work):
    source, src, dst = demo_tree(work)
    converted = os.path.join(work, "converted")
    ms.transform_checkpoints(source, converted, "checkpoint_", src, dst)
    options = {"src_strategy": src, "dst_strategy": dst, "compat": "mindspore"}
    files = [os.path.join(converted, f"rank_{r}", f"checkpoint_{r}.ckpt") for r in range(4)]
    with tap.test("load_checkpoint through a mount"):
        with reshardfs.mounted(source, **options) as m:
            for rank, path in enumerate(files):
                demand_same(ms.load_checkpoint(m.rank(rank)), ms.load_checkpoint(path))
    with tap.test("safetensors, whose parameters are mapped, as well"):
        with reshardfs.mounted(source, format="safetensors", **options) as m:
            found = ms.load_checkpoint(m.rank(1), format="safetensors")
            demand("block.up.weight" in found, list(found))
            del found
            gc.collect()
    with tap.test("read without a mount is the converter's file"):
        for rank, path in enumerate(files):
            demand(reshardfs.read(source, rank, **options) == content(path), path)
    with tap.test("the module's load_checkpoint is MindSpore's of the converter's file"):
        for rank, path in enumerate(files):
            demand_same(reshardfs.load_checkpoint(source, rank, **options),
                        ms.load_checkpoint(path))
    with tap.test("of a model in parts: all of them, or one"):
        whole = {"src_strategy": src, "dst_strategy": "none"}
        parts = {**whole, "format": "hf", "part_size": "50KB"}
        every = reshardfs.load_checkpoint(source, None, **parts)
        expected = reshardfs.load_checkpoint(source, 0, **whole)
        demand_same({name: every[name] for name in expected if name in every},
                    {name: expected[name] for name in expected if name in every})
        one = reshardfs.load_checkpoint(source, 1, **parts)
        demand(0 < len(one) < len(every) and one.keys() <= every.keys(), one)
        refused("choose a rank", reshardfs.load_checkpoint, source, None, **options)
    with tap.test("what MindSpore's takes and the module's does not is refused by name"):
        for name, given in (("crc_check", True), ("filter_prefix", "block"),
                            ("specify_prefix", ["block"]), ("dec_key", b"key")):
            refused(name, reshardfs.load_checkpoint, source, 0, **options, **{name: given})
        refused("load_param_into_net", reshardfs.load_checkpoint, source, 0, new_net(ms),
                remove_redundancy=True, **options)
        odd = os.path.join(work, "odd", "rank_0", "net-1_10.ckpt")
        write(odd, checkpoint_bytes({"w": Record((4,), "HiFloat8", bytes(4))}))
        refused("w: MindSpore does not support", reshardfs.load_checkpoint,
                os.path.join(work, "odd"), 0, src_strategy="none", dst_strategy="none")
        refused("no parameter", reshardfs.load_checkpoint, source, 0,
                choice_func=lambda name: False, **options)
        refused("no file 4", reshardfs.load_checkpoint, source, 4, **options)
        refused("no file 4", reshardfs.load_checkpoint_async(source, 4, **options).result)


def check_kinds(tap, ms, work):
    """Of each kind of source parameters are MindSpore's of the mount's file."""
    for kind in all_sources(os.path.join(work, "kinds"), run_seed()):
        with tap.test(f"{kind.name}: load_checkpoint"):
            loaded = 0
            files = reshardfs.files(kind.source, **kind.options)
            with reshardfs.mounted(kind.source, **kind.options) as m:
                for number, file in enumerate(files):
                    try:
                        found = reshardfs.load_checkpoint(kind.source, number, **kind.options)
                    except reshardfs.Error as error:
                        # Types that MindSpore has not; files that are no checkpoints.
                        demand("MindSpore does not support" in str(error) or
                               "no parameter" in str(error), error)
                        continue
                    demand_same(found, mindspore_loads(ms, os.path.join(m.path, file.name)))
                    loaded += 1
            tap.diag(f"{loaded} of {len(files)} files")


def mindspore_loads(ms, path):
    """Of a copy: MindSpore maps safetensors."""
    with tempfile.TemporaryDirectory() as directory:
        copy = shutil.copy(path, directory)
        form = "safetensors" if path.endswith(".safetensors") else "ckpt"
        return {name: p.clone() for name, p in ms.load_checkpoint(copy, format=form).items()}


def check_faults(tap, ms, work):
    """Each read fails in turn, with all behind it."""
    job = Job(os.path.join(work, "job"))
    job.save(1, 10)
    options = {"src_strategy": job.strategy, "dst_strategy": "none", "log_to": "file:" + os.devnull}
    right = reshardfs.load_checkpoint(job.source, 0, **options)
    contents = {name: p.asnumpy().tobytes() for name, p in right.items()}
    with tap.test("each read fails in turn: right parameters or an Error, also in a net"):
        after, failed = 0, True
        while failed:
            options["fault"] = f"truncate@rank_,after={after}"
            failed = False
            for net in (None, net_of(ms, right)):
                before = {p.name: p.asnumpy().tobytes() for p in net.get_parameters()} \
                    if net else {}
                try:
                    found = reshardfs.load_checkpoint(job.source, 0, net, **options)
                    demand({n: p.asnumpy().tobytes() for n, p in found.items()} == contents,
                           "other values")
                except reshardfs.Error as error:
                    demand(error.errno, repr(error))
                    failed = True
                for p in net.get_parameters() if net else ():
                    demand(p.asnumpy().tobytes() in (before[p.name], contents[p.name]), p.name)
            after += 1
        demand(after > 3, f"{after} reads")


def net_of(ms, parameters):
    """One with the same parameters, all zero."""
    class Net(ms.nn.Cell):
        def __init__(self):
            super().__init__()
            for n, p in enumerate(parameters.values()):
                setattr(self, f"p{n}", ms.Parameter(
                    ms.Tensor(p.asnumpy() * 0, p.dtype), p.name))
    return Net()


# ---- into a net ----

TENSORS = 8
BYTES = 24 << 20
NEW, OLD = 7, 3  # what the elements of the checkpoint and of a net are


def large_tree(work):
    """One rank's file of tensors that are alike; (source, its options)."""
    ones = Record((BYTES,), "Int8", bytes([NEW]) * BYTES)
    write(os.path.join(work, "large", "rank_0", "net-1_10.ckpt"),
          checkpoint_bytes({f"w{n}": ones for n in range(TENSORS)}))
    return os.path.join(work, "large"), {"src_strategy": "none", "dst_strategy": "none"}


def new_net(ms):
    import numpy as np

    class Net(ms.nn.Cell):
        def __init__(self):
            super().__init__()
            for n in range(TENSORS):
                tensor = ms.Tensor(np.full(BYTES, OLD, "int8"))
                setattr(self, f"p{n}", ms.Parameter(tensor, f"w{n}"))
    return Net()


def states(net):
    """What each parameter holds, all of which must be the same."""
    result = []
    for p in net.get_parameters():
        array = p.asnumpy()
        demand((array == array[0]).all(), f"{p.name} is half filled")
        result.append(int(array[0]))
    return result


def demand_midst(net):
    found = states(net)
    demand({NEW, OLD} == set(found), found)
    return found


@contextlib.contextmanager
def demand_little(size):
    """The block takes no more memory than that and 64 MiB, at no time."""
    gc.collect()
    write("/proc/self/clear_refs", b"5")
    before = field("self", "VmRSS")
    yield
    peak = (field("self", "VmHWM") - before) << 10
    demand(peak <= size + (64 << 20), f"{peak >> 20} MiB")


def join_loads():
    for thread in threading.enumerate():
        if thread.name == "reshardfs-load":
            thread.join()


def check_nets(tap, ms, work):
    source, options = large_tree(work)
    with tap.test("parameters are where their contents were read to"):
        with demand_little(TENSORS * BYTES):
            found = reshardfs.load_checkpoint(source, 0, **options)
        del found
    with tap.test("into a net: not much more memory at a time than a tensor's"):
        net = new_net(ms)
        with demand_little(BYTES):
            found = reshardfs.load_checkpoint(source, 0, net, **options)
        demand(set(states(net)) == {NEW}, states(net))
        demand(all(found[p.name] is p for p in net.get_parameters()), found)
    # One tensor after the other.
    reshardfs._mindspore._AT_ONCE = 1
    with tap.test("one bar for all of a net"):
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            reshardfs.load_checkpoint(source, 0, net, progress=True, **options)
        said = said.getvalue()
        demand(said.count("\n") == 1 and f"{TENSORS * BYTES >> 20} of" in said, said)
    with tap.test("an exception of the callback stops a load and is passed on"):
        net = new_net(ms)

        def interrupt(done, whole):
            if done > whole // 2:
                raise KeyboardInterrupt
        try:
            reshardfs.load_checkpoint(source, 0, net, progress=interrupt, **options)
        except KeyboardInterrupt:
            demand_midst(net)
        else:
            raise AssertionError("no KeyboardInterrupt")
    with tap.test("a future that is cancelled in the midst changes a net no more"):
        net, seen = new_net(ms), []
        future = None
        known = threading.Event()

        def cancel(done, whole):
            known.wait()
            if done > whole // 2 and not seen:
                demand(future.cancel() and future.cancelled(), future)
                seen.append(demand_midst(net))
        future = reshardfs.load_checkpoint_async(source, 0, net, progress=cancel, **options)
        known.set()
        try:
            future.result()
        except CancelledError:
            join_loads()
            demand(seen == [states(net)], f"{seen} and then {states(net)}")
        else:
            raise AssertionError("it has a result")
    with tap.test("what is stopped leaves no array, nor does a future that has failed"):
        check_leaves_nothing(source, options)
    with tap.test("a read that fails: an Error, and no tensor in part"):
        record = reshardfs.records(source, 0, **options)[TENSORS // 2]
        place = record.offset + record.stored - 4096
        fault = f"eio@net-1_10.ckpt:{place}-{place + 4096}"
        net = new_net(ms)
        refused("parameter w4", reshardfs.load_checkpoint, source, 0, net, fault=fault, **options)
        demand_midst(net)
        refused("parameter w4", reshardfs.load_checkpoint, source, 0, fault=fault, **options)
    with tap.test("killed in the midst: the next load finds all as it was"):
        options["cache_dir"] = os.path.join(work, "blocks")
        options["cache"] = "on"
        os.mkdir(options["cache_dir"])
        done = subprocess.run([sys.executable, __file__, "--die", source, json.dumps(options)],
                              check=False)
        demand(done.returncode == -signal.SIGKILL, done)
        found = reshardfs.load_checkpoint(source, 0, **options)
        demand(len(found) == TENSORS and all((p.asnumpy() == NEW).all() for p in found.values()),
               "other values")


def check_leaves_nothing(source, options):
    """A load that comes to its end has parameters, and MindSpore's wait for the garbage
    collector: a signal may come before anybody can cancel, or too late."""
    seed = run_seed()
    stopped, parameters = 0, []
    numbers = random.Random(seed)
    slow = {"cache": "off", "fault": "delay=20ms@net-1_10.ckpt:9000000-99000000"}
    broken = {"fault": "eio@net-1_10.ckpt:99000000-", "log_to": "file:" + os.devnull}

    def raises(done, whole):
        if numbers.random() < 0.5 or done == whole:
            raise ValueError("mine")

    def now(**words):
        reshardfs.load_checkpoint(source, 0, **options, **words)

    def later(**words):
        """Of a future that has failed, whose exception has the frame that holds it."""
        future = reshardfs.load_checkpoint_async(source, 0, **options, **words)
        try:
            raise future.exception()
        finally:
            future.cancel()

    made = reshardfs._mindspore._Load.parameter

    def noted(load, w, content):
        parameters.append(w.record.name)
        return made(load, w, content)

    with watched(reshardfs) as arrays, mock.patch.object(
            reshardfs._mindspore._Load, "parameter", noted):
        for load in (now, later) * 3:
            parameters.clear()
            interrupted(numbers, functools.partial(load, **slow))
            left = arrays.left()
            if parameters:
                gc.collect()
                left = arrays.left()
            stopped += not parameters
            demand(left[0] == 0, f"seed {seed}, {load}: {left} are left")
            for words in ({"progress": raises}, broken):
                with contextlib.suppress(ValueError, reshardfs.Error):
                    load(**words)
                demand(arrays.left()[0] == 0, f"{load}, {words}: {arrays.left()} are left")
        future = reshardfs.load_checkpoint_async(source, 0, **options, **broken)
        demand(isinstance(future.exception(), reshardfs.Error), future)
        demand(arrays.left()[0] == 0, f"a future has {arrays.left()}")
        gone = weakref.ref(future)
        del future
        demand(gone() is None, "the future is left")
    demand(stopped > 0, f"seed {seed}: no load was stopped")


def die(ms, source, options):
    """A load into a net in whose midst this program is killed."""
    def kill(done, whole):
        if done > whole // 2:
            os.kill(os.getpid(), signal.SIGKILL)
    reshardfs._mindspore._AT_ONCE = 1
    reshardfs.load_checkpoint(source, 0, new_net(ms), progress=kill, **options)


def main():
    rsh_mount.require_oracle()
    rsh_mount.require_mount()
    from genuine_sets import oracle_environment
    oracle_environment()
    import mindspore as ms
    if "--die" in sys.argv:
        return die(ms, sys.argv[2], json.loads(sys.argv[3]))
    tap = Tap()
    with tempfile.TemporaryDirectory(prefix="reshardfs-python-") as work:
        check_demo(tap, ms, work)
        check_kinds(tap, ms, work)
        check_nets(tap, ms, work)
        check_faults(tap, ms, work)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
