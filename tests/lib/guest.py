#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run a program on another kernel, for what the machine's own lacks:

    guest.py DIRECTORY MODULE,... COMMAND [ARGUMENT...]
    guest.py --root ROOT ARCH COMMAND [ARGUMENT...]

DIRECTORY has a kernel as Debian packs them: boot/vmlinuz-* and lib/modules.  The
program finds the machine's own files, with an empty /tmp and /run, the environment and
the directory of who starts it, and is root.  With --root it finds the files of another
system, for a processor that `uname -m` calls ARCH, whose kernel and busybox are used, and
has no environment.  The exit status is the program's, 125 if the guest did not come so
far: then the end of what it and its kernel said is printed.  It takes qemu, which needs
nothing of the processor, its virtiofsd and busybox.
"""

import collections
import glob
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

from demands import content

VIRTIOFSD = "/usr/lib/qemu/virtiofsd"
PROGRAMS = ["qemu-system-x86_64", VIRTIOFSD, "busybox"]
MODULES = ["virtio_pci", "virtiofs", "9pnet_virtio", "9p", "fuse"]
# How a guest mounts its files, by the module that its kernel must have, loaded or built in;
# the first one is taken.  Linux before 5.4 has no virtiofs, and Debian's kernels for clouds have no 9p.
SHARES = {"virtiofs": "-t virtiofs",
          "9p": "-t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=loose"}
# The first and the last line that the guest says.
BEGIN = "guest: begins"
STATUS = "guest: the status is "
MEMORY = "1536M"
# What is printed of a guest that does not come to the program.
LINES = 30
# The machine, its processor, and what the kernel is told.  A guest that gets little time
# loses ticks of its timer, and Linux then says that the timer does not work, and stops.
MACHINES = {"x86_64": ("q35", "max", "console=ttyS0 no_timer_check"),
            # The other processors have no pages of 16 KiB, or take more time to emulate.
            "aarch64": ("virt", "neoverse-n1", "console=ttyAMA0")}

INIT = """#!/bin/busybox sh
export PATH=/bin
busybox mount -t proc proc /proc
busybox mount -t sysfs sys /sys
busybox mount -t devtmpfs dev /dev
for module in {modules}; do busybox insmod $module; done
busybox mount {share} root /root
for folder in proc sys dev; do busybox mount --move /$folder /root/$folder; done
for folder in tmp run; do busybox mount -t tmpfs tmp /root/$folder; done
busybox mkdir -p /root/dev/pts
busybox mount -t devpts pts /root/dev/pts
busybox ip link set lo up
busybox echo "{begin}"
busybox chroot /root /bin/sh -c {command}
busybox echo "{status}$?"
busybox poweroff -f
"""


def modules(directory, names):
    """The files of the modules and of those they stand on, in order of loading."""
    top, = glob.glob(os.path.join(directory, "lib", "modules", "*"))
    needs = {}
    with open(os.path.join(top, "modules.dep"), encoding="ascii") as f:
        for line in f:
            path, _, others = line.partition(":")
            needs[os.path.basename(path)[:-len(".ko")]] = [path, *others.split()]
    order = []
    for name in names:
        for path in reversed(needs.get(name, [])):
            if path not in order:
                order.append(path)
    return [os.path.join(top, path) for path in order]


def share(directory):
    top, = glob.glob(os.path.join(directory, "lib", "modules", "*"))
    with open(os.path.join(top, "modules.builtin"), encoding="ascii") as f:
        built = f.read()
    return next(name for name in SHARES
                if f"/{name}.ko\n" in built or modules(directory, [name]))


def archive(files, folders):
    """An initramfs: {name: (mode, bytes)}, in cpio's newc format."""
    out = bytearray()

    def add(name, mode, data=b""):
        head = [0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0]
        out.extend(b"070701" + b"".join(b"%08x" % number for number in head))
        for part in (name.encode() + b"\0", data):
            out.extend(part)
            out.extend(bytes(-len(out) % 4))
    for folder in folders:
        add(folder, 0o040755)
    for name, (mode, data) in files.items():
        add(name, 0o100000 | mode, data)
    add("TRAILER!!!", 0)
    return bytes(out)


def initramfs(directory, names, command, busybox, words):
    paths = modules(directory, [*MODULES, *names])
    files = {f"modules/{i:02}.ko": (0o644, content(path)) for i, path in enumerate(paths)}
    words = ["cd", words[0], "\n", "exec", "env", "-i", *words[1:], *command]
    script = " ".join(word if word == "\n" else shlex.quote(word) for word in words)
    files["init"] = (0o755, INIT.format(modules=" ".join("/" + name for name in files),
                                        command=shlex.quote(script), begin=BEGIN,
                                        share=SHARES[share(directory)], status=STATUS).encode())
    files["bin/busybox"] = (0o755, content(busybox))
    return archive(files, ["bin", "modules", "proc", "sys", "dev", "root"])


def run(directory, names, command):
    """The guest's exit status; what it says goes to the standard output."""
    environment = [f"{key}={value}" for key, value in os.environ.items()]
    return start(directory, "/", os.uname().machine,
                 initramfs(directory, names, command, shutil.which("busybox"),
                           [os.getcwd(), *environment]))


def run_in(root, arch, command):
    """The same for another system."""
    return start(root, root, arch,
                 initramfs(root, [], command, os.path.join(root, "bin", "busybox"),
                           ["/", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/tmp"]))


def serve(root, socket):
    """Starts virtiofsd, and returns it and the options of qemu."""
    server = subprocess.Popen(
        [VIRTIOFSD, f"--socket-path={socket}", "-o",
         f"source={root},cache=always,sandbox=chroot"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while server.poll() is None and not os.path.exists(socket):
        time.sleep(0.01)
    return server, ["-object", f"memory-backend-memfd,id=memory,size={MEMORY},share=on",
                    "-numa", "node,memdev=memory",
                    "-chardev", f"socket,id=files,path={socket}",
                    "-device", "vhost-user-fs-pci,chardev=files,tag=root"]


def start(directory, root, arch, packed):
    kernel, = glob.glob(os.path.join(directory, "boot", "vmlinuz-*"))
    board, processor, told = MACHINES[arch]
    status = 125
    with tempfile.TemporaryDirectory(prefix="reshardfs-guest-") as private:
        image = os.path.join(private, "initramfs")
        with open(image, "wb") as f:
            f.write(packed)
        sys.stdout.flush()
        server, files = None, ["-virtfs", f"local,path={root},mount_tag=root,"
                               "security_model=passthrough,multidevs=remap"]
        if share(directory) == "virtiofs":
            server, files = serve(root, os.path.join(private, "socket"))
        machine = subprocess.Popen(
            [f"qemu-system-{arch}", "-accel", "tcg,thread=multi", "-machine", board,
             "-cpu", processor, "-smp", "2", "-m", MEMORY,
             "-nodefaults", "-nographic", "-no-reboot", *files,
             "-kernel", kernel, "-initrd", image, "-serial", "stdio",
             # With 0 a kernel that stops would not say why.
             "-append", f"{told} quiet loglevel=1 panic=-1"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace")
        begun, before = False, collections.deque(maxlen=LINES)
        for line in machine.stdout:
            line = line.rstrip("\r\n")
            if line.startswith(STATUS):
                status = int(line[len(STATUS):])
            elif begun:
                print(line, flush=True)
            else:
                before.append("".join(filter(str.isprintable, line)))
            begun = begun or line.endswith(BEGIN)
        machine.wait()
        if not begun:
            print(*before, f"the guest ended before its program, qemu with status "
                  f"{machine.returncode}", sep="\n", flush=True)
        if server:
            server.terminate()
            server.wait()
    return status


if __name__ == "__main__":
    if sys.argv[1] == "--root":
        sys.exit(run_in(sys.argv[2], sys.argv[3], sys.argv[4:]))
    sys.exit(run(sys.argv[1], sys.argv[2].split(","), sys.argv[3:]))
