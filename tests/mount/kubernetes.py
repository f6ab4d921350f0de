#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The pods in mount-helpers/examples: Kubernetes takes their fields, and their sidecars,
probes and hooks run here as they are written, with directories of the test for volumes."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile

HERE = os.path.abspath(os.environ.get("srcdir", "."))
TOP = os.path.abspath(os.environ.get("top_srcdir", os.path.join(HERE, "..")))
sys.path.insert(0, os.path.join(HERE, "lib"))

from demands import check, content, within, write  # noqa: E402
from daemon_use import mounts_below  # noqa: E402
from pods import command_of, pod_of  # noqa: E402
from rsh_cli import run  # noqa: E402
from rsh_mount import (TIMEOUT_SCALE, MountError, Tap, hash_tree, is_mount_point,  # noqa: E402
                       require_mount, reshardfs_program)

EXAMPLES = os.path.join(TOP, "mount-helpers", "examples")
DEMO = os.path.join(TOP, "tests", "data", "demo")


class Pod:
    """A pod that runs on this machine: the paths of its volumes are below a directory."""

    def __init__(self, directory, name):
        self.directory = directory
        self.pod = pod_of(content(os.path.join(EXAMPLES, name)))
        self.sidecars = []
        for room in ("source", "shared", "handed", "bin", "home"):
            os.makedirs(self.at(room))
        os.symlink(os.path.join(DEMO, "checkpoint"), self.at("source", "checkpoints"))
        for cards in (8, 4):
            write(self.at("source", f"strategies{cards}", "ckpt_strategy.ckpt"),
                  content(os.path.join(DEMO, f"strategy_{cards}_cards.ckpt")))
        os.symlink(reshardfs_program(), self.at("bin", "reshardfs"))
        os.symlink(os.path.join(EXAMPLES, "fuse_fd.py"), self.at("bin", "fuse_fd.py"))
        # The image has no such program.
        write(self.at("bin", "fusermount3"), b'#!/bin/sh\nexit 127\n')
        os.chmod(self.at("bin", "fusermount3"), 0o755)
        write(self.at("bin", "msrun"), b'#!/bin/sh\nfor last; do :; done\n'
              b'cat "$last"/rank_[0-3]/*.ckpt >/dev/null\n')
        os.chmod(self.at("bin", "msrun"), 0o755)
        self.environment = {
            **os.environ, "HOME": self.at("home"), "XDG_CACHE_HOME": self.at("home"),
            "PATH": self.at("bin") + os.pathsep + os.environ["PATH"]}

    def at(self, *names):
        return os.path.join(self.directory, *names)

    def words(self, command):
        return [re.sub(r"(?<![\w/])/(source|shared|handed)(?=/|$)", rf"{self.directory}/\1", word)
                for word in command]

    def run(self, command, **keywords):
        return subprocess.run(self.words(command), env=self.environment, check=False,
                              timeout=60 * TIMEOUT_SCALE, **keywords).returncode

    def start(self, only=None):
        """Sidecars, each when the one before has started; `only` those of these names."""
        for container in self.pod["initContainers"]:
            if only and container["name"] not in only:
                continue
            self.sidecars.append((container, subprocess.Popen(
                self.words(command_of(container)), env=self.environment,
                stdin=subprocess.DEVNULL)))
            for probe in ("startupProbe", "readinessProbe"):
                if probe in container:
                    command = container[probe]["exec"]["command"]
                    within(60, lambda c=command: self.run(c) == 0, f"{probe} fails")

    def end(self):
        """Sidecars end in reverse order, as Kubernetes ends them."""
        for container, process in reversed(self.sidecars):
            hook = container.get("lifecycle", {}).get("preStop")
            if hook:
                check(self.run(hook["exec"]["command"]) == 0, "preStop fails")
            else:
                process.send_signal(signal.SIGTERM)
            process.wait(timeout=self.pod["terminationGracePeriodSeconds"] * TIMEOUT_SCALE)
        check(not is_mount_point(self.at("shared", "ckpt4")), "it is still mounted")

    def kill_sidecars(self, names):
        for container, process in self.sidecars:
            if container["name"] in names:
                process.kill()
                process.wait()
        self.sidecars = [s for s in self.sidecars if s[0]["name"] not in names]

    def kill(self):
        for _, process in self.sidecars:
            process.kill()
            process.wait()
        for line in mounts_below(self.directory):
            run("umount", "--force", line.split()[1])


def serves(directory, name):
    pod = Pod(directory, name)
    try:
        pod.start()
        train, = pod.pod["containers"]
        check(pod.run(command_of(train)) == 0, "the files cannot be read")
        sums = content(os.path.join(DEMO, "SHA256SUMS")).decode().split()
        found = {path: sha for path, (_, sha) in hash_tree(pod.at("shared", "ckpt4")).items()}
        check(found == dict(zip(sums[1::2], sums[0::2])), "other bytes")
        pod.end()
    finally:
        pod.kill()


def lists(path):
    try:
        return os.listdir(path)
    except OSError:
        return []


def socket_of(pod):
    """When the opener made its socket, which it does when it can be ended."""
    try:
        return os.stat(pod.at("handed", "socket")).st_ctime_ns
    except FileNotFoundError:
        return None


def comes_again(directory, name, rounds):
    """Kubernetes starts sidecars again that were killed."""
    pod = Pod(directory, name)
    path = pod.at("shared", "ckpt4", "rank_0")
    try:
        pod.start()
        for killed in rounds:
            pod.kill_sidecars(killed)
            if "reshardfs" in killed:
                within(60, lambda: not lists(path), "the mount lives without its daemon")
            else:
                check(lists(path), "the mount ends without its opener")
            before = socket_of(pod)
            pod.start(killed)
            if "opener" in killed:
                within(60, lambda b=before: socket_of(pod) not in (b, None), "no new socket")
            # What the kernel knows of the dead mount satisfies the probe for a moment.
            within(60, lambda: lists(path), f"it does not come again: {killed}")
            check(len([m for m in mounts_below(directory) if "ckpt4" in m]) == 1, "mounts")
            check(pod.run(command_of(pod.pod["containers"][0])) == 0, "it cannot be read")
        pod.sidecars.sort(key=lambda s: [c["name"] for c in pod.pod["initContainers"]].index(
            s[0]["name"]))
        pod.end()
        check(not mounts_below(directory), "a mount is left")
    finally:
        pod.kill()


def serves_fluid(directory):
    """Fluid writes the mounts of a Dataset, and where they are wanted."""
    text = content(os.path.join(EXAMPLES, "fluid.yaml")).decode()
    for kind in ("ThinRuntimeProfile", "Dataset", "ThinRuntime"):
        check(f"kind: {kind}\n" in text, kind)
    check('command: ["fluid_mount.py"]' in text, text)
    options = dict(re.findall(r"^ +((?:src|dst)-strategy): (\S+)$", text, re.M))
    check(set(options) == {"src-strategy", "dst-strategy"}, options)
    config, target = (os.path.join(directory, name) for name in ("config.json", "fuse"))
    options = {name: os.path.join(DEMO, f"strategy_{8 if 'src' in value else 4}_cards.ckpt")
               for name, value in options.items()}
    write(config, json.dumps({"targetPath": target, "mounts": [{
        "mountPoint": "local://" + os.path.join(DEMO, "checkpoint"),
        "options": {**options, "index-cache": "off"}}]}).encode())
    tool = [sys.executable, os.path.join(EXAMPLES, "fluid_mount.py")]
    path = os.path.dirname(reshardfs_program()) + os.pathsep + os.environ["PATH"]
    process = subprocess.Popen([*tool, config], env={**os.environ, "PATH": path},
                               stdin=subprocess.DEVNULL)
    try:
        within(60, lambda: lists(os.path.join(target, "rank_3")), "it is not mounted")
        wanted = {name: digest for digest, name in (
            line.split() for line in content(os.path.join(DEMO, "SHA256SUMS")).decode()
            .splitlines())}
        found = {name: digest for name, (_, digest) in hash_tree(target).items()}
        check(found == wanted, found)
        process.terminate()
        check(process.wait(60 * TIMEOUT_SCALE) == 0, process.returncode)
        check(not mounts_below(directory), "a mount is left")
    finally:
        process.kill()
    write(config, b"{}")
    got = subprocess.run([*tool, config], stderr=subprocess.PIPE, check=False)
    check(got.returncode and b"config.json: KeyError: 'mounts'" in got.stderr, got)


def wrong(text, *change):
    try:
        pod_of(text.replace(*change))
    except (MountError, KeyError):
        return True
    return False


def main():
    require_mount()
    tap = Tap()
    names = sorted(name for name in os.listdir(EXAMPLES)
                   if name.startswith("kubernetes") and name.endswith(".yaml"))
    for name in names:
        with tap.test(name), tempfile.TemporaryDirectory(prefix="reshardfs-pod-") as directory:
            serves(directory, name)
    both = ["opener", "reshardfs"]
    for name, rounds in (("kubernetes.yaml", [["reshardfs"]]),
                         ("kubernetes-fd.yaml", [["reshardfs"], both, both]),
                         ("kubernetes-fd.yaml", [["opener"], ["reshardfs"], ["opener"]])):
        with tap.test(f"{name}: what is killed comes again"), \
                tempfile.TemporaryDirectory(prefix="reshardfs-pod-") as directory:
            comes_again(directory, name, rounds)
    with tap.test("fluid.yaml: its command mounts what Fluid writes"), \
            tempfile.TemporaryDirectory(prefix="reshardfs-pod-") as directory:
        serves_fluid(directory)
    with tap.test("what Kubernetes would refuse is seen"):
        text = content(os.path.join(EXAMPLES, names[0])).decode()
        changes = [("image:", "picture:"), ("kind: Pod", "kind: Pot"),
                   ("privileged: true", "privileged: 1"), ("emptyDir: {}", "emptyDir: 1"),
                   ("- name: shared\n      emptyDir", "- name: shares\n      emptyDir"),
                   ("restartPolicy: Never", "restartPolicy: never")]
        for change in changes:
            check(change[0] in text and wrong(text, *change), change)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
