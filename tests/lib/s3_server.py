#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Show directories as the buckets of an S3 server, as far as readers go:

    s3_server.py [--tls FILE] [--delay MS] [--rate BYTES] [--total BYTES] DIRECTORY

It prints the port of 127.0.0.1 that it listens on.  GET /BUCKET?list-type=2&prefix=P
lists in pages of 7 keys, GET /BUCKET/KEY gives ranges; file systems on top also ask
with HEAD, for folders, and as version 1 has it.  The ETag says inode, size and mtime,
and If-Match is looked at.  Every answer begins after MS, and a connection gives
BYTES a second at most, of --rate, and all together those of --total.

Every request is a line "METHOD TARGET RANGE" in DIRECTORY/.requests; where there is a
file DIRECTORY/.deny, its number is the status of all answers.  DIRECTORY/.faults is
JSON, a list of {"only", "every", "actions"}: of the requests for ranges of keys like
`only`, each of number `every` meets the next of `actions`:

  NNN     the status NNN; 416 says another size
  reset   the connection breaks in the middle of the body; reset0: before it
  trunc   it ends there; stall: nothing more comes
  lie     Content-Range is one byte off, and so are the bytes
  long    more comes than Content-Range says
  etag    the ETag is another one
  delay   the answer takes half a second
"""
import argparse
import email.utils
import fnmatch
import http.server
import json
import os
import re
import socket
import ssl
import struct
import threading
import time
import urllib.parse
from xml.sax.saxutils import escape

from tls_server import TlsServer

PAGE = 7
CHUNK = 256 << 10


def etag_of(st):
    return f'"{st.st_ino:x}-{st.st_size:x}-{st.st_mtime_ns:x}"'


def keys_of(bucket):
    for top, _, files in os.walk(bucket, followlinks=True):
        for name in files:
            yield os.path.relpath(os.path.join(top, name), bucket)


class Faults:
    """What is to go wrong next."""

    def __init__(self, directory):
        self.path = os.path.join(directory, ".faults")
        self.lock = threading.Lock()
        self.stamp = None
        self.met = []

    def next(self, key):
        try:
            stamp = os.stat(self.path)
            with open(self.path, encoding="utf-8") as f:
                told = json.load(f)
        except FileNotFoundError:
            return ""
        which = [i for i, t in enumerate(told) if fnmatch.fnmatch(key, t["only"])]
        if not which:
            return ""
        i, actions = which[0], told[which[0]]["actions"]
        with self.lock:
            if self.stamp != (stamp.st_ino, stamp.st_mtime_ns):
                self.stamp, self.met = (stamp.st_ino, stamp.st_mtime_ns), [0] * len(told)
            self.met[i] += 1
            number, left = divmod(self.met[i], told[i]["every"])
        return "" if left else actions[(number - 1) % len(actions)]


class Total:
    """A rate over all connections, in the order of asking."""

    BURST = 0.05  # seconds that may be saved up

    def __init__(self, rate):
        self.rate = rate
        self.chunk = int(min(CHUNK, max(4096, rate / 100)))
        self.lock = threading.Lock()
        self.due = time.monotonic()

    def take(self, n):
        """Comes back when n bytes are due."""
        with self.lock:
            now = time.monotonic()
            self.due = max(self.due, now - self.BURST) + n / self.rate
            wait = self.due - now
        if wait > 0:
            time.sleep(wait)


def folded(key, prefix, delimiter):
    """The key, or the folder below the prefix that it is in."""
    head, found, _ = key[len(prefix):].partition(delimiter or "\0")
    return prefix + head + found


class Answering(http.server.BaseHTTPRequestHandler):
    """Logs nothing, and answers in one call."""

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class Handler(Answering):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        bucket, _, key = urllib.parse.unquote(url.path).strip("/").partition("/")
        self.server.note(f"{self.command} {self.path} {self.headers.get('Range', '-')}")
        time.sleep(self.server.delay)
        try:
            with open(os.path.join(self.server.root, ".deny"), encoding="ascii") as f:
                return self.answer(int(f.read()))
        except FileNotFoundError:
            pass
        path = os.path.join(self.server.root, bucket)
        try:
            return self.get(path, key) if key else self.list(path, query)
        except ConnectionError:
            self.close_connection = True

    # ---- listings ----

    def list(self, bucket, query):
        prefix = query.get("prefix", "")
        after = query.get("continuation-token", query.get("marker", ""))
        keys = sorted({folded(key, prefix, query.get("delimiter"))
                       for key in keys_of(bucket) if key.startswith(prefix)})
        keys = [key for key in keys if key > after]
        page, more = keys[:PAGE], len(keys) > PAGE
        xml = ["<ListBucketResult>"
               f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>"]
        if more:
            for word in ("NextContinuationToken", "NextMarker"):
                xml.append(f"<{word}>{escape(page[-1])}</{word}>")
        for key in page:
            if key.endswith("/"):
                xml.append("<CommonPrefixes><Prefix>"
                           f"{escape(key)}</Prefix></CommonPrefixes>")
                continue
            st = os.stat(os.path.join(bucket, key))
            when = time.strftime("%Y-%m-%dT%H:%M:%S.000Z",
                                 time.gmtime(st.st_mtime))
            xml.append(f"<Contents><Key>{escape(key)}</Key><LastModified>{when}"
                       f"</LastModified><ETag>{escape(etag_of(st))}</ETag>"
                       f"<Size>{st.st_size}</Size></Contents>")
        xml.append("</ListBucketResult>")
        self.answer(200, "".join(xml).encode(), Content_Type="application/xml")

    # ---- ranges ----

    def get(self, bucket, key):
        try:
            f = open(os.path.join(bucket, key), "rb")
        except OSError:
            return self.answer(404)
        with f:
            return self.give(f, os.fstat(f.fileno()), self.server.faults.next(key))

    def give(self, f, st, fault):
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        first, last = map(int, asked.groups()) if asked else (0, st.st_size - 1)
        last = min(last, st.st_size - 1)
        if self.headers.get("If-Match") not in (None, etag_of(st)):
            return self.answer(412)
        if fault == "416" or (asked and first >= st.st_size):
            return self.answer(416, Content_Range=f"bytes */{st.st_size + len(fault)}")
        if fault.isdigit():
            return self.answer(int(fault))
        if fault == "reset0":
            return self.reset()
        if fault == "delay":
            time.sleep(0.5)
        if fault == "lie":
            first, last = first + 1, last + 1
        self.head(asked, first, last, st, fault)
        if self.command == "GET":
            self.body(f, first, last - first + 1, fault)

    def head(self, asked, first, last, st, fault):
        self.send_response(206 if asked else 200)
        self.send_header("ETag", '"another"' if fault == "etag" else etag_of(st))
        self.send_header("Last-Modified", email.utils.formatdate(st.st_mtime, usegmt=True))
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{last}/{st.st_size}")
        self.send_header("Content-Length",
                         str(last - first + 1 + 9 * (fault == "long")))
        self.end_headers()
        self.wfile.flush()

    def body(self, f, first, length, fault):
        if fault not in ("reset", "trunc", "stall"):
            self.copy(f, first, length)
            if fault == "long":
                self.wfile.write(b"and more.")
            return
        self.copy(f, first, length // 2)
        if fault == "reset":
            self.reset()
        if fault == "stall":
            self.rfile.read(1)
        self.close_connection = True

    def copy(self, f, at, length):
        start, sent = time.monotonic(), 0
        while sent < length:
            n = min(self.server.total.chunk, length - sent)
            self.server.total.take(n)
            if isinstance(self.connection, ssl.SSLSocket):
                self.connection.sendall(os.pread(f.fileno(), n, at + sent))
            else:
                n = os.sendfile(self.connection.fileno(), f.fileno(), at + sent, n)
            sent += n
            early = sent / self.server.rate - (time.monotonic() - start)
            if early > 0:
                time.sleep(early)

    def reset(self):
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                   struct.pack("ii", 1, 0))
        self.close_connection = True


class Server(TlsServer, http.server.ThreadingHTTPServer):
    request_queue_size = 128

    def __init__(self, options):
        super().__init__(("127.0.0.1", 0), Handler)
        self.root = options.directory
        self.delay = options.delay / 1000
        self.rate = options.rate
        self.total = Total(options.total)
        self.faults = Faults(options.directory)
        self.lock = threading.Lock()
        self.requests = open(os.path.join(self.root, ".requests"), "a", encoding="utf-8")
        if options.tls:
            self.speak_tls(options.tls)

    def note(self, line):
        with self.lock:
            self.requests.write(line + "\n")
            self.requests.flush()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tls")
    parser.add_argument("--delay", type=float, default=0)
    parser.add_argument("--rate", type=float, default=float("inf"))
    parser.add_argument("--total", type=float, default=float("inf"))
    parser.add_argument("directory")
    with Server(parser.parse_args()) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
