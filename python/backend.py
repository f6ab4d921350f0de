# SPDX-License-Identifier: Apache-2.0
"""Builds the wheel and the sdist of reshardfs (PEP 517).

The wheel has the module and in it, as below a prefix, bin/reshardfs,
lib/libreshard.so and share/reshardfs/tables.  What is installed in the prefix of
the environment: a script that runs the program, the helper of mount(8), manuals,
completions and examples.  Libraries that not every Linux has are copied into lib/
under names of their own, each with its licence; one whose licence is not found is
not copied, and the wheel is then for machines that have it.

    pip wheel --config-settings build-dir=DIRECTORY .

links it in a build that is configured already, instead of in one of its own.
With licences=DIRECTORY the files there are the licences of libraries that are
linked into that build; see tests/wheels.sh.
"""

from __future__ import annotations

import base64
import contextlib
import glob
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from typing import Any, Dict, Iterator, Optional, Tuple

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# A program and Debian's package that has it.
TOOLS = {"cc": "gcc", "make": "make", "pkg-config": "pkg-config", "readelf": "binutils"}
AUTOTOOLS = {"autoreconf": "autoconf", "automake": "automake", "libtoolize": "libtool"}
# What manylinux takes for granted.
EVERYWHERE = re.compile(r"ld-linux|linux-vdso|lib(c|m|z|dl|rt|pthread|gcc_s)\.so\.")

Settings = Optional[Dict[str, Any]]


def fail(sentence: str) -> None:
    """Without the calls that led here, which nobody would read."""
    raise SystemExit(f"reshardfs cannot be built: {sentence}")


def run(*command: str, where: str = TOP) -> str:
    done = subprocess.run(command, cwd=where, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          encoding="utf-8", errors="replace", check=False)
    if done.returncode:
        print(done.stdout)
        error = re.search(r"^configure: error: (.*(?:\n    .*)*)", done.stdout, re.M)
        fail(re.sub(r"\n *", " ", error[1]) if error else
             f"{os.path.basename(command[0])} ended with status {done.returncode}")
    return done.stdout


def content(*path: str) -> bytes:
    with open(os.path.join(*path), "rb") as f:
        return f.read()


# ---- what is built ----

def project() -> Dict[str, Any]:
    found: Dict[str, Any] = tomllib.loads(content(TOP, "pyproject.toml").decode())
    version = re.search(rb"^AC_INIT\(\[\w+\], \[([^]]+)\]", content(TOP, "configure.ac"),
                        re.M)
    assert version
    return {**found["project"], "version": version[1].decode()}


def stem() -> str:
    return "{name}-{version}".format_map(project())


def metadata() -> bytes:
    table = project()
    lines = ["Metadata-Version: 2.1", "Name: {name}", "Version: {version}",
             "Summary: {description}", "License: {license}",
             "Requires-Python: {requires-python}",
             *(f"Author: {author['name']}" for author in table["authors"]),
             f"Keywords: {','.join(table['keywords'])}",
             *(f"Classifier: {classifier}" for classifier in table["classifiers"])]
    # Who releases it knows where it is; see packaging/release.sh.
    home = os.environ.get("RESHARDFS_HOMEPAGE")
    if home:
        lines += [f"Home-page: {home}", f"Project-URL: Source, {home}"]
    for extra, needs in table["optional-dependencies"].items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f"Requires-Dist: {need}; extra == '{extra}'" for need in needs]
    head = "\n".join([*lines, "Description-Content-Type: text/markdown", "", ""])
    return head.format_map(table).encode() + content(TOP, table["readme"])


def entry_points() -> bytes:
    lines = []
    for group, points in project()["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {place}" for name, place in points.items()), ""]
    return "\n".join(lines).encode()


@contextlib.contextmanager
def configured(settings: Settings) -> Iterator[str]:
    """A build directory: the one that was named, or one for the time being."""
    given = (settings or {}).get("build-dir")
    if given:
        yield os.path.abspath(given)
        return
    fresh = not os.path.exists(os.path.join(TOP, "configure"))
    tools = {**TOOLS, **(AUTOTOOLS if fresh else {})}
    missing = [package for tool, package in tools.items() if not shutil.which(tool)]
    if missing:
        fail(f"these Debian packages are missing: {' '.join(missing)}")
    if fresh:
        run("autoreconf", "-fi")
    with tempfile.TemporaryDirectory(prefix="reshardfs-build-") as build:
        run(os.path.join(TOP, "configure"), "--quiet", "--disable-tests", where=build)
        yield build


# Where it is in the package, and where it is built.
LINKED = {"bin/reshardfs": ("src", "wheel", "reshardfs"),
          "lib/libreshard.so": ("src", "wheel", ".libs", "libreshard.so")}


def link(build: str) -> Dict[str, str]:
    """Paths of what is linked, by the names that it has in the package."""
    jobs = f"-j{os.cpu_count()}"
    run("make", "-s", jobs, where=os.path.join(build, "proto"))
    run("make", "-s", jobs, "wheel/libreshard.la", "wheel/reshardfs",
        where=os.path.join(build, "src"))
    run("make", "-s", "mount.reshardfs", "AM_LDFLAGS=-s",
        where=os.path.join(build, "mount-helpers"))
    return {name: os.path.join(build, *path) for name, path in LINKED.items()}


# ---- the libraries that go along ----

def needed(path: str) -> Dict[str, str]:
    """What is loaded with a file: names, and where they are."""
    names = re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", path))
    # ldd(1) would run a program for another machine.
    if all(EVERYWHERE.match(name) for name in names):
        return {}
    found = re.findall(r"^\s*(\S+) => (/.*) \(", run("ldd", path), re.M)
    return {name: where for name, where in found if not EVERYWHERE.match(name)}


def licence_of(name: str) -> Optional[str]:
    """Debian calls the package of libjansson.so.4 libjansson4."""
    first, _, version = name.partition(".so.")
    package = first + ("-" if first[-1].isdigit() else "") + version
    found = glob.glob(f"/usr/share/doc/{glob.escape(package)}/copyright")
    return found[0] if found else None


def own_name(name: str) -> str:
    """As long as the other, for it is written over that.  Of two libraries of one
    name a process loads the first, and that may be somebody else's."""
    return re.sub("^lib", "rsh", name)


def libraries(linked: Dict[str, str]) -> Tuple[Dict[str, bytes], str]:
    """Files of the wheel, and the platform that they are for."""
    others = {name: where for path in linked.values()
              for name, where in needed(path).items()}
    along = {name: licence_of(name) for name in others if licence_of(name)}
    files = {f"{stem()}.dist-info/licenses/{name.partition('.')[0]}": content(licence)
             for name, licence in along.items() if licence}
    named = {**linked, **{f"lib/{own_name(name)}": others[name] for name in along}}
    oldest = 17
    for name, where in named.items():
        binary = content(where)
        for other in along:
            binary = binary.replace(b"\0%b\0" % other.encode(),
                                    b"\0%b\0" % own_name(other).encode())
        files[f"reshardfs/{name}"] = binary
        oldest = max([oldest, *map(int, re.findall(rb"\0GLIBC_2\.(\d+)(?=\0)", binary))])
    names = [f"manylinux_2_{oldest}"] if len(along) == len(others) else ["linux"]
    # pip before 20.3 knows no other names.
    names += {"manylinux_2_17": ["manylinux2014"]}.get(names[0], [])
    processor = machine(content(linked["bin/reshardfs"]))
    return files, ".".join(f"{name}_{processor}" for name in names)


def machine(program: bytes) -> str:
    """That it was compiled for, which need not be this one."""
    known = {62: "x86_64", 183: "aarch64"}.get(int.from_bytes(program[18:20], "little"))
    return known or re.sub(r"\W", "_", sysconfig.get_platform().partition("-")[2])


# ---- what is installed in the prefix of the environment ----

# pip replaces the first line.
SCRIPT = b"""#!python
import os
import sys
from importlib.util import find_spec

program = os.path.join(os.path.dirname(find_spec("reshardfs").origin), "bin", "reshardfs")
os.execv(program, ["reshardfs", *sys.argv[1:]])
"""


def prefix_files(build: str) -> Dict[str, bytes]:
    places = {"share/bash-completion/completions": ["src/completions/reshardfs"],
              "share/zsh/site-functions": ["src/completions/_reshardfs"],
              "share/fish/vendor_completions.d": ["src/completions/reshardfs.fish"],
              "share/doc/reshardfs": glob.glob(
                  os.path.join(TOP, "mount-helpers", "examples", "*"))}
    for page in glob.glob(os.path.join(TOP, "man", "*.[1-8]")):
        places.setdefault(f"share/man/man{page[-1]}", []).append(page)
    data = f"{stem()}.data"
    files = {f"{data}/data/{place}/{os.path.basename(path)}": content(TOP, path)
             for place, paths in places.items() for path in paths}
    files[f"{data}/data/sbin/mount.reshardfs"] = content(
        build, "mount-helpers", "mount.reshardfs")
    files[f"{data}/scripts/reshardfs"] = SCRIPT
    return files


# ---- what is called from outside ----

def build_wheel(wheel_directory: str, config_settings: Settings = None,
                metadata_directory: Optional[str] = None) -> str:
    with configured(config_settings) as build:
        files, platform = libraries(link(build))
        files.update(prefix_files(build))
    module = os.path.join(TOP, "python", "reshardfs")
    for path in [*glob.glob(f"{module}/*.py"), f"{module}/py.typed"]:
        files[f"reshardfs/{os.path.basename(path)}"] = content(path)
    for path in glob.glob(os.path.join(TOP, "tables", "*.rules")):
        files[f"reshardfs/share/reshardfs/tables/{os.path.basename(path)}"] = content(path)
    info = f"{stem()}.dist-info"
    linked = (config_settings or {}).get("licences")
    for path in glob.glob(os.path.join(linked, "*")) if linked else []:
        files[f"{info}/licenses/{os.path.basename(path)}"] = content(path)
    files[f"{info}/licenses/LICENSE"] = content(TOP, "LICENSE")
    files[f"{info}/METADATA"] = metadata()
    files[f"{info}/entry_points.txt"] = entry_points()
    files[f"{info}/WHEEL"] = ("Wheel-Version: 1.0\nGenerator: reshardfs\n"
                              "Root-Is-Purelib: false\n"
                              + "".join(f"Tag: py3-none-{name}\n"
                                        for name in platform.split("."))).encode()
    record = ""
    name = f"{stem()}-py3-none-{platform}.whl"
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "w",
                         zipfile.ZIP_DEFLATED) as wheel:
        for path, data in sorted(files.items()):
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode()
            record += f"{path},sha256={digest.rstrip('=')},{len(data)}\n"
            member = zipfile.ZipInfo(path)
            # A program is one also where it is unpacked.
            program = data[:2] == b"#!" or re.search(r"/s?bin/|\.so", path)
            member.external_attr = (0o100755 if program else 0o100644) << 16
            wheel.writestr(member, data, zipfile.ZIP_DEFLATED)
        wheel.writestr(zipfile.ZipInfo(f"{info}/RECORD"), f"{record}{info}/RECORD,,\n")
    return name


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    """What `make dist` packs, with the metadata."""
    name = f"{stem()}.tar.gz"
    with configured(config_settings) as build:
        run("make", "-s", "distdir", where=build)
        info = tarfile.TarInfo(f"{stem()}/PKG-INFO")
        info.size = len(metadata())
        with tarfile.open(os.path.join(sdist_directory, name), "w:gz") as sdist:
            sdist.addfile(info, io.BytesIO(metadata()))
            sdist.add(os.path.join(build, stem()), stem())
        shutil.rmtree(os.path.join(build, stem()))
    return name
