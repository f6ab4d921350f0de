#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Servers that are almost Amazon's: tags, conditions, pages and labels of their own.
A mount of each shows the same bytes, and a changed object is still an error."""

import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

import genuine  # noqa: E402
from demands import check, content  # noqa: E402
from near_s3 import WHEN, Server, environment  # noqa: E402
from rsh_cli import PLAIN, end_if_built_without  # noqa: E402
from rsh_mount import TIMEOUT_SCALE, Tap, require_mount, reshardfs_program  # noqa: E402

QWEN3 = os.path.join(genuine.WEIGHTS, "models", "qwen3")
MODEL = {f"m/{n}": open(os.path.join(QWEN3, n), "rb").read() for n in os.listdir(QWEN3)}
# Others of the bucket, so that a listing has several pages.
MANY = {**MODEL, **{f"m/logs/{i:03d} ä": b"x" for i in range(30)}}
PART = "m/model-00002-of-00005.safetensors"


class Mount:
    def __init__(self, server, url="s3://b/m", *words):
        self.directory = tempfile.mkdtemp(prefix="reshardfs-nearly-")
        self.path = os.path.join(self.directory, "mnt")
        os.mkdir(self.path)
        env = environment(PLAIN, server.url, self.directory)
        self.got = subprocess.run(
            [reshardfs_program(), "mount", "--source-timeout", "3", "--cache", "off",
             "--index-cache", "off", *words, url, self.path], env=env, capture_output=True, text=True,
            check=False, timeout=60 * TIMEOUT_SCALE)

    def __enter__(self):
        check(self.got.returncode == 0, self.got.stderr)
        return self

    def __exit__(self, *_):
        if os.path.ismount(self.path):
            subprocess.run([reshardfs_program(), "umount", "--force", self.path], check=False,
                           capture_output=True, timeout=60 * TIMEOUT_SCALE)
        os.rmdir(self.path)
        os.rmdir(self.directory)

    def read(self):
        """Of weights, or the errno."""
        try:
            return content(os.path.join(self.path, "model-00001-of-00001.safetensors"))
        except OSError as error:
            return error.errno


def bare(_key, tag):
    return tag.strip('"')


def other(_key, tag):
    return '"' + tag[::-1].strip('"') + '-1"'


def none(_key, _tag):
    return None


def refusing(name, status, code):
    """Requests with that header or parameter are refused."""
    def hook(h, _path, query):
        return h.refuse(status, code) if name in query or h.headers.get(name) else None
    return hook


SERVERS = {
    "tags in single quotes of another case": dict(listed_tag=lambda k, t: t.upper()),
    "weak tags in listings": dict(listed_tag=lambda k, t: "W/" + t),
    "bare tags in listings alone": dict(listed_tag=bare),
    "bare tags in answers alone": dict(sent_tag=bare),
    "other tags in answers": dict(sent_tag=other),
    "other tags in listings, of no date": dict(listed_tag=other),
    "no tags in answers": dict(sent_tag=none),
    "conditions are refused: 412": dict(matches=lambda a, t: False),
    "conditions are refused: 501": dict(hook=refusing("If-Match", 501, "NotImplemented")),
    "dates as conditions are refused": dict(
        listed_tag=none, hook=refusing("If-Unmodified-Since", 501, "NotImplemented")),
    "version 1": dict(first_version=True, page=7),
    "version 1, with NextMarker": dict(first_version=True, page=7, next_marker=True),
    "version 1, keys as they are": dict(first_version=True, page=10, encodes=False),
    "version 2 is refused: 501": dict(hook=refusing("list-type", 501, "NotImplemented"), page=9,
                                      first_version=True),
    "version 2 is refused: 400": dict(hook=refusing("list-type", 400, "InvalidArgument"),
                                      page=9, first_version=True),
    "encoding is refused": dict(hook=refusing("encoding-type", 400, "InvalidArgument"), page=9,
                                first_version=True),
    "aws-chunked": dict(headers={"Content-Encoding": "aws-chunked"}),
    "utf-8": dict(headers={"Content-Encoding": "utf-8"}),
    "a label of gzip": dict(headers={"Content-Encoding": "gzip"}),
    "directories as empty objects": dict(
        files={**MODEL, "m": b"", "m/": b"", "m/x": b"", "m/x-1": b"1", "m/x/y": b"2"}),
    "keys that are no paths": dict(files={**MODEL, "m//x": b"1", "m/a/../b": b"2"}),
}


def whole(h, path, _query):
    """No ranges."""
    key = path.split("/", 2)[2]
    if key in h.server.files:
        h.answer(200, h.server.files[key], ETag=h.server.tag(key))
        return True
    return None


def pages(h, path, query):
    """A page for whatever is not there."""
    if path.split("/", 2)[2] in h.server.files:
        return whole(h, path, query)
    h.answer(200, b"<!DOCTYPE html>\n<html>home</html>", Content_Type="text/html")
    return True


def same_page(h, path, query):
    """Always the same keys, and always another token."""
    if path.strip("/") == "b":
        h.server.n = getattr(h.server, "n", 0) + 1
        h.answer(200, (f"<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>"
                       f"{h.server.n}</NextContinuationToken><Contents><Key>m/a</Key><Size>1"
                       f"</Size></Contents></ListBucketResult>").encode())
        return True
    return None


def paid(h, _path, _query):
    """Requests have to name who pays, and to sign that."""
    signed = h.headers.get("Authorization", "").partition("SignedHeaders=")[2].partition(",")[0]
    if h.headers.get("x-amz-request-payer") == "requester" and \
            "x-amz-request-payer" in signed.split(";"):
        return None
    return h.refuse(403, "AccessDenied")


def right(**habits):
    """The bytes, and the number of requests."""
    with Server(**{"files": MANY, **habits}) as server, Mount(server) as mount:
        return mount.read(), len(server.requests)


def shows(wanted, habits):
    """A page may be refused twice, and the first request of each file once."""
    got, n = right(**habits)
    check(got == wanted, f"other bytes: {str(got)[:100]}")
    usual = right(page=habits.get("page", 1000))[1]
    check(n <= usual + 2 * 3 + len(MODEL), f"{n} requests, usually {usual}")


def is_noticed(habits, date):
    """An object that changes while it is mounted, or before its first read."""
    with Server(MODEL, **habits) as server, Mount(server) as mount:
        server.files[PART] = bytes(b ^ 1 for b in server.files[PART])
        server.dates[PART] = date
        got = mount.read()
        check(isinstance(got, int), f"{len(got) if isinstance(got, bytes) else got} bytes were read")


def is_doubted():
    """A header of the index cache, and an object that replaced it in the same second."""
    with Server(MODEL) as server, tempfile.TemporaryDirectory() as top:
        log = os.path.join(top, "log")
        words = ("--index-cache", os.path.join(top, "index"), "--log-to", f"file:{log}")
        for change in False, True:
            with Mount(server, "s3://b/m", *words) as mount:
                if change:
                    server.files[PART] = bytes(b ^ 1 for b in server.files[PART])
                mount.read()
            with open(log, encoding="utf-8") as f:
                said = f"{PART}: its ETag is not the listed one, as those of other files are"
                check((said in f.read()) == change, f"changed: {change}")


def main():
    require_mount()
    end_if_built_without("object storage", "ls", "s3://bucket/none")
    tap = Tap()
    wanted, _ = right()
    for name, habits in SERVERS.items():
        with tap.test(name):
            shows(wanted, habits)
    for name, habits, date in (
            ("usual", {}, WHEN), ("usual, later", {}, WHEN + 9),
            ("conditions are ignored", {"matches": lambda a, t: True}, WHEN),
            ("conditions are refused", SERVERS["conditions are refused: 412"], WHEN),
            ("other tags", SERVERS["other tags in answers"], WHEN),
            ("no tags, later", SERVERS["no tags in answers"], WHEN + 9)):
        with tap.test(f"a changed object is an error: {name}"):
            is_noticed(habits, date)
    with tap.test("a changed object of an indexed header is a warning"):
        is_doubted()
    with tap.test("a web server without ranges gives small files"), \
            Server(MODEL, hook=whole) as server, Mount(server, f"{server.url}/b/m") as mount:
        check(mount.read() == wanted, "other bytes")
    with tap.test("a web server with pages for files that it does not have"), \
            Server(MODEL, hook=pages) as server, Mount(server, f"{server.url}/b/m") as mount:
        check(mount.read() == wanted, "other bytes")
        shown = {n for n in os.listdir(mount.path) if not n.startswith(".")}
        check("chat_template.jinja" not in shown and "config.json" in shown, shown)
    with tap.test("a web page as a file that the index names"), \
            Server({k: v for k, v in MODEL.items() if k != PART}, hook=pages) as server:
        mount = Mount(server, f"{server.url}/b/m")
        mount.__exit__()
        check(f"{PART}: the server sends a web page" in mount.got.stderr and
              mount.got.returncode, mount.got)
    with tap.test("the requester pays"), Server(MODEL, hook=paid) as server, \
            Mount(server, "s3://b/m", "--requester-pays") as mount:
        check(mount.read() == wanted, "other bytes")
    for words, said in (([], "s3:ListBucket, or the bucket needs --requester-pays"),
                        (["--requester-pays", "--source-keys", "none"],
                         "s3://b/m: --requester-pays needs credentials")):
        with tap.test(f"the requester does not pay: {words}"), \
                Server(MODEL, hook=paid) as server:
            mount = Mount(server, "s3://b/m", *words)
            mount.__exit__()
            check(said in mount.got.stderr, mount.got)
    with tap.test("a listing without an end"), Server(MODEL, hook=same_page) as server:
        mount = Mount(server)
        mount.__exit__()
        check("returns the same page of the listing again" in mount.got.stderr, mount.got)
    with tap.test("keys that are no paths are counted"), \
            Server(SERVERS["keys that are no paths"]["files"]) as server, Mount(server) as mount:
        check('2 keys are left out, such as "m//x"' in mount.got.stderr, mount.got.stderr)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
