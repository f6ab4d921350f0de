# SPDX-License-Identifier: Apache-2.0
"""Jobs of every framework that save, are killed, prune, overwrite and rename, and what a
program shows of them meanwhile, for lib/behaviour.py.

A seed makes a history: the same events, bytes and mtimes.  Mounts of all steps and of the
newest one stay while events happen; after each operation of an event the former is made to
look at the directory, so that no result depends on when it does so by itself.
"""

import errno
import hashlib
import itertools
import json
import os
import random
import shutil

import savers
from behaviour_cases import LONG_AGO
from demands import content, write
from framework_formats import (safetensors_bytes, tensor_bundle, torch_legacy, torch_tar,
                               torch_zip)
from ms_formats import Record, checkpoint_bytes


# ---- more jobs than those of savers.py ----

class Files(savers.Saver):
    """Files that are written one after the other, some under temporary names first."""

    n_ranks = 2
    temporary = False
    tracker = None

    def name(self, step):
        return f"iter_{step:07d}"

    def made(self, step):
        """Yields (name, bytes)."""
        raise NotImplementedError

    def data(self, step, name, size=200):
        return random.Random(f"{savers.SEED} {step} {name}").randbytes(size)

    def save(self, step):
        for name, data in self.made(step):
            way = self.rename(name, data, name + ".tmp") if self.temporary else \
                self.put(name, data, 2)
            for _ in way:
                yield False
        if self.tracker:
            write(self.path(self.tracker), str(step).encode())
        yield True

    def remove(self, step):
        for name, _ in self.made(step):
            if os.path.exists(self.path(name)):
                os.unlink(self.path(name))
                yield


class MegatronRanks(Files):
    """Megatron-LM's own files of ranks, and the tracker."""

    tracker = "latest_checkpointed_iteration.txt"

    def made(self, step):
        for rank in range(self.n_ranks):
            for name in ("model_optim_rng.pt", "distrib_optim.pt"):
                path = f"{self.name(step)}/mp_rank_{rank:02}/{name}"
                yield path, torch_zip([self.data(step, path), b"x" * 64], zip64=True)


class DeepSpeed(Files):
    tracker = "latest"

    def name(self, step):
        return f"global_step{step}"

    def made(self, step):
        for rank in range(self.n_ranks):
            path = f"{self.name(step)}/mp_rank_{rank:02}_model_states.pt"
            yield path, torch_zip([self.data(step, path)])


class TorchRanks(Files):
    """torch.save() of each rank, also as older versions of torch write."""

    def name(self, step):
        return f"checkpoint_{step}"

    def made(self, step):
        for rank in range(self.n_ranks):
            path = f"rank_{rank}/checkpoint_{step}.pt"
            make = (torch_zip, torch_zip, torch_legacy, torch_tar)[step // 10 % 4]
            yield path, make([self.data(step, path)])


class TorchSeries(Files):
    """Two series in one directory, of which the second has not all steps, and a best."""

    def name(self, step):
        return f"encoder_{step}.pt"

    def made(self, step):
        for series in ("encoder", "decoder")[:1 + (step % 30 == 0)]:
            yield f"{series}_{step}.pt", torch_zip([self.data(step, series)])
        yield "model_best.pt", torch_zip([self.data(step, "best")])


class MindSporeSeries(Files):
    """Files of ranks of two series, a second run and breakpoints; without a strategy."""

    suffix, temporary = ".ckpt", True
    alike = False  # ranks hold the same

    def name(self, step):
        return f"1_{step}"

    def encoded(self, data):
        return checkpoint_bytes({"w": Record((10, 5), "Float32", data)})

    def made(self, step):
        for rank in range(self.n_ranks):
            for form in ("net-1_{}", "net_1-1_{}", "best-1_{}", "net-1_{}_breakpoint")[
                    :(1, 2, 3, 4)[step // 10 % 4]]:
                path = f"rank_{rank}/{form.format(step)}{self.suffix}"
                yield path, self.encoded(self.data(step, form if self.alike else path))

    def options(self):
        return {"src_strategy": None, "dst_strategy": None}


class SafetensorsRanks(MindSporeSeries):
    suffix, alike = ".safetensors", True

    def encoded(self, data):
        return safetensors_bytes({"w": ("F32", (10, 5), data)})


class TensorFlow(Files):
    """The data, the index, and the file that names the newest."""

    def name(self, step):
        return f"ckpt-{step}"

    def made(self, step):
        index, data = tensor_bundle({f"layer-{i}/kernel": self.data(step, i) for i in range(5)}, 2)
        for i, part in enumerate(data):
            yield f"ckpt-{step}.data-{i:05}-of-00002", part
        yield f"ckpt-{step}.index", index
        yield "checkpoint", f'model_checkpoint_path: "ckpt-{step}"\n'.encode()


KINDS = (savers.Ranks, savers.RanksInSteps, savers.Checkpoint2, savers.Dcp, savers.Fsdp,
         savers.Megatron, savers.Trainer, savers.TrainerInParts, savers.TorchFiles, MegatronRanks,
         DeepSpeed, TorchRanks, TorchSeries, MindSporeSeries, SafetensorsRanks, TensorFlow)


# ---- what happens ----

class History:
    """The events of a seed.  said, saver, words (of a mount of all steps), events()."""

    def __init__(self, seed, directory):
        self.kind = KINDS[seed % len(KINDS)]
        self.numbers = random.Random(f"history {seed}")
        self.seed, self.clock, self.n_saves = seed, LONG_AGO, 0
        savers.SEED = f"history {seed}"
        self.saver = self.kind(directory)
        self.steps = []  # that were begun
        self.away = False
        given = self.saver.options()
        self.words = [] if given.get("described") else [
            "--src-strategy", given["src_strategy"] or "none", "--dst-strategy", "none"]
        if self.numbers.random() < 0.4:
            self.words += self.numbers.choice((["--format", "safetensors"], ["--cast", "float16"],
                                               ["--allow-missing"], ["--replicas", "off"]))
        self.settle()

    def settle(self):
        """Gives what was written times that follow from the operations alone."""
        for folder, _, names in os.walk(self.saver.directory):
            for name in sorted(names):
                path = os.path.join(folder, name)
                if os.lstat(path).st_mtime > LONG_AGO + 10 ** 7:
                    self.clock += self.numbers.choice((0, 1, 1, 10))
                    os.utime(path, (self.clock, self.clock))

    def events(self):
        """Yields (what happens, its operations)."""
        yield self._save()
        for _ in range(self.numbers.randrange(3, 6)):
            ways = [self._save] * 4 + [self._killed] * 3 + [self._other]
            if self.steps:
                ways += [self._again, self._prune, self._prune, self._prune_killed]
            if self._files():
                ways += [self._truncated, self._zeros, self._byte, self._touched, self._lost,
                         self._renamed, self._renamed, self._copied, self._away]
            yield self._back() if self.away else self.numbers.choice(ways)()

    def _next(self):
        self.n_saves += 1
        self.steps.append(10 * self.n_saves)
        return self.steps[-1]

    def _save(self):
        step = self._next()
        return f"save {step}", self.saver.save(step)

    def _some(self, operations, said):
        n = self.numbers.choice((1, 2, 3, 5, 8, 13, 21))
        return f"{said}, killed after {n} operations", itertools.islice(operations, n)

    def _killed(self):
        step = self._next()
        return self._some(self.saver.save(step), f"save {step}")

    def _again(self):
        """A step is saved into the same files, with other bytes."""
        step = self.numbers.choice(self.steps)
        savers.SEED = f"history {self.seed} {self.n_saves} {self.clock}"
        for kept in (f"made-{step}", f"inner-{step}"):
            shutil.rmtree(os.path.join(self.saver.directory, kept), ignore_errors=True)

        def operations():
            try:
                yield from self.saver.save(step)
            except FileExistsError:  # those that make the directory themselves
                yield from self._removed(step)
                yield from self.saver.save(step)
        if self.numbers.random() < 0.4:
            return self._some(operations(), f"save {step} again")
        return f"save {step} again", operations()

    def _removed(self, step):
        try:
            yield from self.saver.remove(step)
        except FileNotFoundError:  # it is not whole, or has another name
            path = self.saver.path(self.saver.name(step))
            if os.path.isdir(path):
                shutil.rmtree(path)
            yield

    def _prune(self):
        step = self.steps.pop(0)
        return f"prune {step}", self._removed(step)

    def _prune_killed(self):
        step = self.numbers.choice(self.steps)
        return self._some(self._removed(step), f"prune {step}")

    def _files(self):
        return sorted(os.path.join(folder, name)
                      for folder, _, names in os.walk(self.saver.source) for name in names)

    def _file(self, said):
        path = self.numbers.choice(self._files())
        return f"{said} {os.path.relpath(path, self.saver.source)}", path

    def _truncated(self):
        said, path = self._file("truncate")
        os.truncate(path, self.numbers.choice((0, os.path.getsize(path) // 2,
                                               max(os.path.getsize(path) - 1, 0))))
        return said, [None]

    def _zeros(self):
        """As after a power-off: the size is there, the bytes are not."""
        said, path = self._file("power-off: zeros in")
        with open(path, "r+b") as f:
            size = os.path.getsize(path)
            at = self.numbers.choice((0, size // 2, size * 9 // 10))
            f.seek(at)
            f.write(b"\0" * (size - at))
        return said, [None]

    def _byte(self):
        said, path = self._file("another byte in")
        data = bytearray(content(path))
        if data:
            data[self.numbers.randrange(len(data))] ^= 0x10
        with open(path, "r+b") as f:
            f.write(data)
        return said, [None]

    def _touched(self):
        said, path = self._file("touch")
        os.utime(path)
        return said, [None]

    def _lost(self):
        said, path = self._file("remove")
        os.unlink(path)
        return said, [None]

    def _entry(self):
        """An entry of the directory, or of one in it."""
        path = self.saver.source
        for _ in range(self.numbers.choice((1, 1, 1, 2))):
            if os.path.isdir(path) and os.listdir(path):
                path = os.path.join(path, self.numbers.choice(sorted(os.listdir(path))))
        return path, os.path.relpath(path, self.saver.source)

    def _new_name(self, path):
        folder, name = os.path.split(path)
        numbers = (name.replace("0", "5"), name.replace("10", "990"), name.replace("20", "40"))
        return os.path.join(folder, self.numbers.choice((
            name + "_tmp", name + ".bak", "best", "." + name, *numbers)))

    def _renamed(self):
        path, said = self._entry()
        new = self._new_name(path)
        if os.path.lexists(new):
            return f"{said} is not renamed", [None]
        os.rename(path, new)
        return f"rename {said} to {os.path.basename(new)}", [None]

    def _copied(self):
        path, said = self._entry()
        new, times = self._new_name(path), self.numbers.random() < 0.5
        if os.path.lexists(new):
            return f"{said} is not copied", [None]
        copy = shutil.copy2 if times else shutil.copyfile
        if os.path.isdir(path):
            shutil.copytree(path, new, copy_function=copy)
        else:
            copy(path, new)
        return f"copy {said} to {os.path.basename(new)}{' with times' if times else ''}", [None]

    def _other(self):
        name, data = self.numbers.choice((
            ("logs/events-7", b"x"), ("README-1", b"x"), ("config_9.pt", b"no archive"),
            ("latest_checkpointed_iteration.txt", b"10"), ("tokenizer.json", b"{}"),
            ("latest_checkpointed_iteration.txt", b"release"), ("step-5/notes.txt", b"x"),
            ("latest_checkpointed_iteration.txt", b"999"), ("rank_9/notes", b""),
            ("trainer_state.json", b"{}"), ("checkpoint-70/config.json", b"{}")))
        write(self.saver.path(name), data)
        return f"write {data} to {name}", [None]

    def _away(self):
        if self.numbers.random() < 0.7:
            return self._save()
        self.away = True
        os.rename(self.saver.source, self.saver.source + "-away")
        return "the directory is away", [None]

    def _back(self):
        self.away = False
        os.rename(self.saver.source + "-away", self.saver.source)
        return "the directory is back", [None]

    def resume_words(self):
        """One of the forms of --resume."""
        step = self.numbers.choice(self.steps or [10])
        return self.numbers.choice((
            [], [], [], [], [], [], ["--check", "full"], ["--select", "mtime"],
            ["--fallbacks", "0"], ["--select", f"step={step}"], ["--select", f"1_{step}"],
            ["--select", f"name=*{step}*"], ["--select", "name=*coder*"],
            ["--breakpoint", "include"], ["--breakpoint", "only"]))


# ---- what is shown ----

def number_of(error):
    return errno.errorcode.get(error.errno, str(error.errno))


def hash_of(path):
    try:
        data = content(path)
    except OSError as e:
        return number_of(e)
    return f"{len(data)} {hashlib.sha256(data).hexdigest()}"


def shown(root):
    """{name: size and hash, target of a link, or an error}"""
    found = {}

    def look(folder):
        try:
            names = sorted(os.listdir(folder))
        except OSError as e:
            found[os.path.relpath(folder, root)] = number_of(e)
            return
        for name in names:
            path = os.path.join(folder, name)
            short = os.path.relpath(path, root)
            if os.path.islink(path):
                found[short] = "-> " + os.readlink(path)
            elif os.path.isdir(path):
                look(path)
            else:
                found[short] = hash_of(path)
    look(root)
    return found


class Live:
    """A mount of a program that stays until the next one."""

    def __init__(self, asked, name):
        self.asked = asked
        self.point, self.logged = (os.path.join(asked.own, f"{name}{more}") for more in
                                   ("", ".log"))
        self.open = {}

    def mount(self, *words):
        """What the command says, and what is shown."""
        self.end()
        os.mkdir(self.point)
        said = self.asked.run("mount", "--log-to", f"file:{self.logged}", *words, self.point)
        return {**(self.look() if said["status"] == 0 else self.end()), **said}

    def is_there(self):
        return os.path.ismount(self.point)

    def settle(self):
        """A lookup of a name that is not there looks at the directory."""
        if self.is_there():
            os.path.lexists(os.path.join(self.point, "absent"))

    def look(self):
        if not self.is_there():
            return {"words": self.point}
        found = {"words": self.asked.text(self.point), "shown": shown(self.point),
                 "opened before": {name: self._read(fd) for name, fd in self.open.items()}}
        self._close()
        # One file of each directory of the root.
        for name in sorted(found["shown"]):
            if len(self.open) < 3 and not found["shown"][name].startswith(("-", "E")):
                self.open[name] = os.open(os.path.join(self.point, name), os.O_RDONLY)
        status = os.path.join(self.point, ".reshardfs", "steps")
        if os.path.exists(status):
            found["steps"] = json.loads(self.asked.text(content(status).decode()))
            for step in found["steps"]["steps"]:
                del step["planned"]  # until the kernel has closed its files
        return found

    @staticmethod
    def _read(fd):
        try:
            return hashlib.sha256(os.pread(fd, 1 << 24, 0)).hexdigest()
        except OSError as e:
            return number_of(e)

    def _close(self):
        for fd in self.open.values():
            os.close(fd)
        self.open = {}

    def end(self):
        """What the daemon has logged."""
        self._close()
        if self.is_there():
            self.asked.run("umount", self.point)
        if os.path.isdir(self.point):
            os.rmdir(self.point)
        if not os.path.exists(self.logged):
            return {}
        lines = self.asked.log(content(self.logged))
        os.unlink(self.logged)
        # How often the directory was looked at is a matter of time.
        return {"log": sorted(set(lines))}


class Watched:
    """A program and its two mounts."""

    def __init__(self, asked, history):
        self.asked, self.history = asked, history
        self.steps, self.resume = Live(asked, "steps"), Live(asked, "newest")
        self.result = {}

    def note(self, key, said):
        self.result[key] = said

    def begin(self, when):
        self.note(f"{when} mount --steps all", self.steps.mount(
            "--steps", "all", "--steps-interval", "3600", "--io-mode", "direct",
            *self.history.words, self.history.saver.source))

    def after(self, when, choice):
        """choice: what the history has drawn for this event."""
        if self.steps.is_there():
            self.note(f"{when} steps", self.steps.look())
        if self.resume.is_there():
            self.note(f"{when} newest that was mounted", self.resume.look())
            self.note(f"{when} log of it", {"words": "", **self.resume.end()})
        self.note(f"{when} mount --resume", self.resume.mount(
            "--resume", "--io-mode", "direct", *choice["resume"], self.history.saver.source))
        if choice["again"]:
            self.note(f"{when} log of steps", {"words": "", **self.steps.end()})
            self.begin(when)
        for name, words in choice["commands"]:
            self.note(f"{when} {name}", self.asked.run(*words))

    def end(self):
        for name, live in (("steps", self.steps), ("newest", self.resume)):
            self.note(f"end: log of {name}", {"words": "", **live.end()})


def choice_of(history):
    numbers, source = history.numbers, history.saver.source
    entries = [os.path.join(source, n) for n in sorted(os.listdir(source))] \
        if os.path.isdir(source) else []
    place = numbers.choice(entries) if entries and numbers.random() < 0.6 else source
    commands = numbers.choice((
        [("ls", ["ls", "--json", place])], [("ls as text", ["ls", place])],
        [("plan", ["plan", "--json", "--slices", *history.words, place])],
        [("plan as text", ["plan", *history.words, place])],
        [("verify", ["verify", "--json", "--jobs", "1", *history.words, place])]))
    return {"resume": history.resume_words(), "again": numbers.random() < 0.25,
            "commands": commands}


def replayed(seed, directory):
    """Yields what happens, when it has."""
    history = History(seed, os.path.join(directory, "tree"))
    for what, operations in history.events():
        # Some change the directory after the last of them.
        for _ in itertools.chain(operations, [None]):
            history.settle()
        choice_of(history)
        yield what


def observed(seed, directory, asked):
    """(key, what it is, [what each program came to]) of the history of a seed."""
    history = History(seed, os.path.join(directory, "tree"))
    said = []
    watched = [Watched(one, history) for one in asked]
    try:
        for one in watched:
            one.begin("0")
        for number, (what, operations) in enumerate(history.events(), 1):
            said.append(what)
            # Some change the directory after the last of them.
            for _ in itertools.chain(operations, [None]):
                history.settle()
                for one in watched:
                    one.steps.settle()
            choice = choice_of(history)
            for one in watched:
                one.after(f"{number} {what}:", choice)
    finally:
        for one in watched:
            one.end()
    what = f"{history.kind.__name__} {' '.join(history.words)}: {'; '.join(said)}"
    return (f"histories/{seed}", what.replace(directory + os.sep, ""), [json.loads(json.dumps(one.result)) for one in watched])
