#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Keys, certificates and names of servers that are renewed while a mount lives.  Tools
that renew them write another file and rename it, or a directory, or lead a link
elsewhere."""

import contextlib
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading

LIB = os.path.join(os.environ.get("srcdir", "."), "lib")
sys.path.insert(0, LIB)

import genuine  # noqa: E402
from demands import check, content, write  # noqa: E402
from near_s3 import Server, environment  # noqa: E402
from privileges import own_mounts  # noqa: E402
from rsh_cli import PLAIN, end_if_built_without  # noqa: E402
from rsh_mount import (TIMEOUT_SCALE, Skipped, Tap, require_mount,  # noqa: E402
                       reshardfs_program)

QWEN3 = os.path.join(genuine.WEIGHTS, "models", "qwen3")
PEM = os.path.join(os.path.dirname(os.path.abspath(LIB)), "unit", "data", "objects.pem")
MODEL = {f"m/{n}": open(os.path.join(QWEN3, n), "rb").read() for n in os.listdir(QWEN3)}
SHOWN = "model-00001-of-00001.safetensors"


def section(key, name="default"):
    return (f"[{name}]\naws_access_key_id = {key}\naws_secret_access_key = s\n"
            "aws_session_token = t\n").encode()


def renamed(path, data):
    write(path + ".new", data)
    os.rename(path + ".new", path)


def mounted(d, env, words, renew, source="s3://b/m"):
    """What is read before and after `renew`."""
    mnt = os.path.join(d, "mnt")
    os.makedirs(mnt, exist_ok=True)
    got = subprocess.run([reshardfs_program(), "mount", "--cache", "off", "--index-cache", "off",
                          "--source-timeout", "5", *words, source, mnt], env=env, cwd=d,
                         capture_output=True, text=True, check=False, timeout=60 * TIMEOUT_SCALE)
    check(got.returncode == 0, got.stderr)
    try:
        fd = os.open(os.path.join(mnt, SHOWN), os.O_RDONLY)
        size = os.fstat(fd).st_size
        before = os.pread(fd, size // 2, 0)
        renew()
        after = os.pread(fd, size - size // 2, size // 2)
        os.close(fd)
        return before + after
    finally:
        subprocess.run([reshardfs_program(), "umount", "--force", mnt], check=False,
                       capture_output=True, timeout=60 * TIMEOUT_SCALE)


class Keys:
    """A server that knows one key at a time."""

    def __init__(self):
        self.valid = "OLD"
        self.token = b"pod-1"

    def __call__(self, h, path, _query):
        if path == "/keys":
            if h.headers.get("Authorization", "").encode() != self.token:
                return h.refuse(401)
            h.answer(200, json.dumps({"AccessKeyId": self.valid, "SecretAccessKey": "s",
                                      "Token": "t", "Expiration": "2099-01-01T00:00:00Z"}).encode())
            return True
        m = re.search(r"Credential=([^/]+)/", h.headers.get("Authorization", ""))
        return h.refuse(400, "ExpiredToken") if not m or m[1] != self.valid else None


def directory_is_renamed(d):
    """The whole directory of the file is replaced, as by a deployment."""
    write(f"{d}/etc/keys", section("OLD"))

    def renew():
        os.rename(f"{d}/etc", f"{d}/etc.old")
        write(f"{d}/etc.new/keys", section("NEW"))
        os.rename(f"{d}/etc.new", f"{d}/etc")
        shutil.rmtree(f"{d}/etc.old")
    return {"AWS_SHARED_CREDENTIALS_FILE": f"{d}/etc/keys"}, renew


def link_leads_elsewhere(d):
    write(f"{d}/v1", section("OLD"))
    os.symlink("v1", f"{d}/keys")

    def renew():
        write(f"{d}/v2", section("NEW"))
        os.symlink("v2", f"{d}/keys.new")
        os.rename(f"{d}/keys.new", f"{d}/keys")
        os.unlink(f"{d}/v1")
    return {"AWS_SHARED_CREDENTIALS_FILE": f"{d}/keys"}, renew


def profile_of_a_relative_config(d):
    write(f"{d}/conf/config", section("OLD", "profile job"))
    return ({"AWS_CONFIG_FILE": "conf/config", "AWS_PROFILE": "job"},
            lambda: renamed(f"{d}/conf/config", section("NEW", "profile job")))


def twice_in_a_row(d):
    path = write(f"{d}/keys", section("OLD"))

    def renew():
        renamed(path, section("ELSE"))
        renamed(path, section("NEW"))
    return {"AWS_SHARED_CREDENTIALS_FILE": path}, renew


def home(d):
    path = write(f"{d}/.aws/credentials", section("OLD"))
    return {}, lambda: renamed(path, section("NEW"))


def relative_token(d):
    write(f"{d}/token", b"pod-1")
    return ({"AWS_CONTAINER_CREDENTIALS_FULL_URI": "URL/keys",
             "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": "token"},
            lambda: renamed(f"{d}/token", b"pod-2"))


def keys(d, case, wanted):
    with Server(MODEL, Keys()) as server:
        more, renew = case(d)
        env = environment(PLAIN, server.url, d, AWS_ACCESS_KEY_ID=None, AWS_SECRET_ACCESS_KEY=None,
                          **{k: v.replace("URL", server.url) for k, v in more.items()})

        def change():
            server.hook.valid, server.hook.token = "NEW", b"pod-2"
            renew()
        check(mounted(d, env, [], change) == wanted, "other bytes")


def closing(h, _path, _query):
    h.close_connection = True


def certificates(d, words, wanted):
    """The server gets a certificate of another authority, and the file both."""
    new = f"{d}/new.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "9",
                    "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout",
                    f"{d}/key", "-out", f"{d}/crt"], check=True, capture_output=True)
    with open(new, "w", encoding="ascii") as f:
        for part in "key", "crt":
            f.write(content(f"{d}/{part}").decode())
    write(f"{d}/ca", content(PEM))
    first = Server(MODEL, closing, PEM)
    port = first.server_port
    servers = [first]

    def renew():
        renamed(f"{d}/ca", content(f"{d}/crt"))
        first.__exit__()
        servers.append(Server(MODEL, closing, new, port=port))
    try:
        env = environment(PLAIN, first.url, d, AWS_CA_BUNDLE="ca" if not words else None)
        check(mounted(d, env, words, renew) == wanted, "other bytes")
    finally:
        servers[-1].__exit__()


# ---- names of servers, in an /etc of its own ----

NAME = "moving.reshardfs.test"
OWN_ETC = "RSH_OWN_ETC"


class Names:
    """A server of names that knows one address of all of them."""

    def __init__(self, host, address):
        self.address = address
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((host, 53))
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        while True:
            asked, peer = self.socket.recvfrom(512)
            if not asked:
                return self.socket.close()
            question = asked[12:asked.index(0, 12) + 5]
            has = question[-4:-2] == b"\0\1"
            answer = (b"\xc0\x0c\0\1\0\1" + struct.pack(">IH", 0, 4) +
                      socket.inet_aton(self.address)) if has else b""
            self.socket.sendto(asked[:2] + b"\x81\x80\0\1" + struct.pack(">H", has) +
                               bytes(4) + question + answer, peer)

    def end(self):
        with contextlib.suppress(OSError):  # It wakes the other thread.
            self.socket.shutdown(socket.SHUT_RDWR)
        self.thread.join()


def hosts(write_file):
    with open("/etc/hosts", encoding="ascii", errors="replace") as f:
        others = "".join(line for line in f if NAME not in line)

    def name(address):
        write_file("/etc/hosts", f"{others}{address} {NAME}\n".encode())
    return name, lambda: write_file("/etc/hosts", others.encode())


def resolver(write_file):
    """Another server of names takes the place of the first one."""
    servers = []

    def name(address):
        host = f"127.0.0.{53 + len(servers)}"
        if servers:
            servers[-1].end()
        servers.append(Names(host, address))
        write_file("/etc/resolv.conf", f"nameserver {host}\n".encode())
    return name, lambda: servers[-1].end()


def one_resolver(_write_file):
    """The server of names gives another address."""
    server = Names("127.0.0.63", "")
    renamed("/etc/resolv.conf", b"nameserver 127.0.0.63\n")

    def name(address):
        server.address = address
    return name, server.end


def away(h, path, _query):
    """All objects are at the server of that name."""
    h.answer(302, b"", Location=f"http://{NAME}:{h.server.other}{path}")
    return True


def moves(d, names, write_file, words, wanted, is_redirect=False):
    """The server of that name gets another address."""
    if OWN_ETC not in os.environ:
        raise Skipped("no mount namespace")
    name, end = names(write_file)
    name("127.0.0.1")
    servers = [Server(MODEL, closing)]
    port = servers[0].server_port

    def renew():
        servers[0].__exit__()
        servers.append(Server(MODEL, closing, port=port, host="127.0.0.2"))
        name("127.0.0.2")
    try:
        url = f"http://{NAME}:{port}"
        with Server(hook=away, other=port) as first:
            env = environment(PLAIN, url, d)
            source = f"{first.url}/b/m" if is_redirect else "s3://b/m"
            check(mounted(d, env, words, renew, source) == wanted, "other bytes")
    finally:
        servers[-1].__exit__()
        end()


def with_own_etc():
    """Runs this program again where /etc is a copy, or returns."""
    if OWN_ETC in os.environ or os.geteuid() != 0:
        return
    with tempfile.TemporaryDirectory(prefix="reshardfs-etc-") as d:
        try:
            again = own_mounts('cp -a /etc "$1" && mount --bind "$1/etc" /etc && shift && '
                               'exec "$@"', d, sys.executable, *sys.argv)
        except Skipped:
            return
        status = subprocess.run(again, env={**os.environ, OWN_ETC: "1"}, check=False).returncode
    sys.exit(status)


def main():
    require_mount()
    with_own_etc()
    end_if_built_without("object storage", "ls", "s3://bucket/none")
    tap = Tap()
    with tempfile.TemporaryDirectory(prefix="reshardfs-renewed-") as d, Server(MODEL) as server:
        wanted = mounted(d, environment(PLAIN, server.url, d), [], lambda: None)
    for case in (directory_is_renamed, link_leads_elsewhere, profile_of_a_relative_config,
                 twice_in_a_row, home, relative_token):
        with tempfile.TemporaryDirectory(prefix="reshardfs-renewed-") as d, \
                tap.test(f"keys: {case.__name__.replace('_', ' ')}"):
            keys(d, case, wanted)
    for words in ([], ["--ca-file", "ca"]):
        with tempfile.TemporaryDirectory(prefix="reshardfs-renewed-") as d, \
                tap.test(f"certificates: {words or 'AWS_CA_BUNDLE'}"):
            certificates(d, words, wanted)
    for names, write_file in (hosts, renamed), (hosts, write), (resolver, renamed), \
            (one_resolver, renamed):
        for words in [], ["--sandbox", "off"]:
            with tempfile.TemporaryDirectory(prefix="reshardfs-renewed-") as d, \
                    tap.test(f"names: {names.__name__}, {write_file.__name__}, {words}"):
                moves(d, names, write_file, words, wanted)
    with tempfile.TemporaryDirectory(prefix="reshardfs-renewed-") as d, \
            tap.test("names: the server to which another one redirects"):
        moves(d, hosts, renamed, [], wanted, is_redirect=True)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
