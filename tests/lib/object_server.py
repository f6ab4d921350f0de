#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A server of objects on the loopback that misbehaves as their names say, for
unit/test_objects*.  It prints its port and ends when its stdin does.

  object_server.py [--tls CERTIFICATE] [--log FILE] [--tree DIRECTORY]

Below /tree/ it gives the files of DIRECTORY.

A name is WORD[@SIZE][~ACTION]...  Each request for it takes the next action, and
those after the last are answered as they should be; an action that begins with
'*' is taken for ever.  Actions:

  NNN[rS]    the status NNN, with Retry-After: S; NNN-CODE with such an error, which
             says the region if the bucket is in another one (PermanentRedirect)
  reset      breaks the connection in the middle of the body; reset0: before it
  trunc      closes the connection in the middle of the body
  short      sends half of what was asked for, and says so in Content-Length
  half       sends half of what was asked for, and says so in Content-Range too
  over       sends more than it says, chunked; overlen: by Content-Length
  lie        Content-Range is one byte off; total: so is the object's size
  norange    says nothing of the range; broken: says what cannot be
  change     is another object from now on, which If-Match tells; mix: which this
             server does not tell, but by the ETag that it sends
  noetag     sends none
  whole      sends all of the object with status 200
  gzip, parts  says that the body is compressed, or several
  stall      sends half and then nothing; hang: nothing at all; late: all of it, but
             only after 1.5 s
  drip       sends a body in many pieces; slow: in 15, one each 0.3 s; ooze: a byte
             each 0.1 s
  far        sends the client on to the name without actions; round: to this name;
             odd: to an address of another kind

GET /BUCKET?list-type=2&prefix=WORD@COUNT~ACTION.../ lists COUNT objects in pages
of 1000, further actions being again (the token of the page before) and xml, cut
(broken XML).  Contents are those of object_bytes() in unit/objects_support.c.
"""
import argparse
import collections
import os
import socket
import socketserver
import ssl
import struct
import sys
import threading
import time
import urllib.parse

from tls_server import TlsServer

PERIOD = 65521
PATTERN = bytes((k * k * 31 + k * 7 + (k >> 8)) & 255 for k in range(PERIOD))
LISTED = "2026-01-02T03:04:05.678Z"
MODIFIED = "Fri, 02 Jan 2026 03:04:05 GMT"


def content(name, version, first, length):
    word = name.rpartition("/")[2]
    at = (first + sum(word.encode()) + 1000 * version) % PERIOD
    times = (at + length) // PERIOD + 1
    return (PATTERN * times)[at:at + length]


REDIRECTIONS = {"far": "/elsewhere/{plain}", "round": "/elsewhere/{name}", "odd": "gopher://x/"}


class Broken(Exception):
    """The connection is of no use any more."""


class State:
    def __init__(self):
        self.lock = threading.Lock()
        self.taken = collections.Counter()
        self.versions = collections.Counter()
        self.log = self.tree = None

    def action(self, name):
        actions = name.split("~")[1:]
        with self.lock:
            at = self.taken[name]
            self.taken[name] += 1
        for action in actions[:at + 1]:
            if action.startswith("*"):
                return action[1:]
        return actions[at] if at < len(actions) else ""


STATE = State()


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        try:
            while self.one_request():
                pass
        except (Broken, ConnectionError, ssl.SSLError, ValueError):
            pass

    # ---- what is asked ----

    def one_request(self):
        line = self.rfile.readline(65536).decode("latin-1").split()
        if len(line) != 3:
            return False
        self.method, target, _ = line
        self.headers = {}
        while True:
            header = self.rfile.readline(65536).decode("latin-1").strip()
            if not header:
                break
            key, _, value = header.partition(":")
            self.headers[key.strip().lower()] = value.strip()
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.note(target)
        path, _, query = target.partition("?")
        if path.startswith("/credentials"):
            return self.credentials(path)
        if "list-type=2" in query:
            return self.listing(dict(urllib.parse.parse_qsl(query)))
        bucket, _, name = path.lstrip("/").partition("/")
        name = urllib.parse.unquote(name)
        return self.file(name) if bucket == "tree" else self.object(name)

    def note(self, target):
        if STATE.log:
            with STATE.lock:
                STATE.log.write(f"{self.method} {target} {self.headers}\n")
                STATE.log.flush()

    # ---- what is answered ----

    def send(self, data):
        self.wfile.write(data)

    def head(self, status, headers):
        lines = [f"HTTP/1.1 {status} Status"]
        lines += [f"{k}: {v}" for k, v in headers.items()]
        self.send(("\r\n".join(lines) + "\r\n\r\n").encode())

    def answer(self, status, body=b"", **headers):
        self.head(status, {"Content-Length": len(body),
                           **{k.replace("_", "-"): v
                              for k, v in headers.items()}})
        self.send(body)
        return True

    def refuse(self, action):
        status, _, code = action.partition("-")
        status, _, wait = status.partition("r")
        body = f"<Error><Code>{code}</Code><Message>no</Message></Error>" \
            if code else ""
        headers = {"Retry_After": wait} if wait else {}
        if code == "PermanentRedirect":
            headers["x_amz_bucket_region"] = "south-1"
        return self.answer(int(status), body.encode(), **headers)

    def reset(self):
        raw = self.request
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                       struct.pack("ii", 1, 0))
        raise Broken

    def wait_for_client(self):
        """Until it has gone."""
        self.rfile.read(1)
        raise Broken

    def file(self, name):
        try:
            with open(os.path.join(STATE.tree, name), "rb") as f:
                data = f.read()
        except OSError:
            return self.answer(404)
        asked = self.range_of(len(data))
        if not asked:
            return self.answer(200, data, ETag='"file"')
        if asked[0] >= len(data):
            return self.answer(416, Content_Range=f"bytes */{len(data)}",
                               ETag='"file"')
        first, last = asked
        return self.answer(
            206, data[first:last + 1], ETag='"file"',
            Content_Range=f"bytes {first}-{last}/{len(data)}")

    # ---- objects ----

    def range_of(self, size):
        """The range that is asked for, or None."""
        text = self.headers.get("range", "")
        if not text.startswith("bytes="):
            return None
        first, _, last = text[6:].partition("-")
        return int(first), min(int(last), size - 1)

    def object(self, name):
        plain = name.split("~")[0]
        word, _, size = plain.partition("@")
        size = int(size) if size else 100000
        if word == "missing" or word.endswith("/missing"):
            return self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        action = STATE.action(name)
        if action[:3].isdigit():
            return self.refuse(action)
        if action in ("change", "mix"):
            with STATE.lock:
                STATE.versions[name] += 1
        version = STATE.versions[name]
        etag = f'"v{version}"'
        wanted = self.headers.get("if-match")
        if wanted and wanted != etag and action != "mix":
            return self.answer(412)
        if (self.headers.get("if-unmodified-since") or MODIFIED) != MODIFIED and action != "mix":
            return self.answer(412)
        if action in REDIRECTIONS:
            return self.answer(302, Location=REDIRECTIONS[action].format(plain=plain, name=name))
        asked = self.range_of(size)
        if asked and asked[0] >= size:
            return self.answer(416, Content_Range=f"bytes */{size}",
                               ETag=etag)
        return self.body(plain, version, size, asked, action, etag)

    def wait_before_answer(self, action):
        if action == "hang":
            self.wait_for_client()
        if action == "late":
            time.sleep(0.6)

    def body(self, name, version, size, asked, action, etag):
        if asked is None or action == "whole":
            first, last, status = 0, size - 1, 200
        else:
            first, last, status = *asked, 206
        if action == "half":
            last = first + (last - first) // 2
        data = content(name, version, first, last - first + 1)
        headers = {"Content-Length": len(data), "ETag": etag,
                   "Last-Modified": MODIFIED, "Accept-Ranges": "bytes"}
        if status == 206:
            headers["Content-Range"] = f"bytes {first}-{last}/{size}"
        self.alter(action, headers, first, last, size)
        self.wait_before_answer(action)
        if action == "reset0":
            self.reset()
        return self.send_body(action, status, headers, data)

    def alter(self, action, headers, first, last, size):
        if action == "lie":
            headers["Content-Range"] = f"bytes {first + 1}-{last + 1}/{size}"
        elif action == "total":
            headers["Content-Range"] = f"bytes {first}-{last}/{size + 1}"
        elif action == "broken":
            headers["Content-Range"] = f"bytes {last + 1}-{first}/{size}"
        elif action == "norange":
            headers.pop("Content-Range", None)
        elif action == "noetag":
            del headers["ETag"]
        elif action == "gzip":
            headers["Content-Encoding"] = "gzip"
        elif action == "parts":
            headers["Content-Type"] = "multipart/byteranges; boundary=x"
        elif action == "short":
            headers["Content-Length"] //= 2
        elif action == "overlen":
            headers["Content-Length"] += 7
        elif action == "over":
            del headers["Content-Length"]
            headers["Transfer-Encoding"] = "chunked"

    def send_body(self, action, status, headers, data):
        self.head(status, headers)
        if action == "short":
            self.send(data[:len(data) // 2])
        elif action == "over":
            data += b"surplus"
            self.send(b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data))
        elif action == "overlen":
            self.send(data + b"surplus")
        elif action == "drip":
            step = len(data) // 50 + 1
            for i in range(0, len(data), step):
                self.send(data[i:i + step])
        elif action in ("slow", "ooze"):
            step = len(data) // 15 + 1 if action == "slow" else 1
            for i in range(0, len(data), step):
                self.send(data[i:i + step])
                time.sleep(0.3 if action == "slow" else 0.1)
        elif action in ("reset", "trunc", "stall"):
            self.send(data[:len(data) // 2])
            if action == "reset":
                self.reset()
            if action == "stall":
                self.wait_for_client()
            return False
        else:
            self.send(data)
        return True

    # ---- listings ----

    def listing(self, query):
        prefix = query.get("prefix", "")
        spec = prefix.split("/")[0]
        action = STATE.action(spec)
        if action[:3].isdigit():
            return self.refuse(action)
        count = int(spec.split("~")[0].partition("@")[2] or 0)
        at = int(query.get("continuation-token", "0"))
        if action == "again":
            return self.send_listing(prefix, spec, at, at, True)
        body = self.list_page(prefix, spec, at, min(count, at + 1000),
                              count)
        if action == "xml":
            body = body.replace(b"<Size>", b"<Size>x")
        if action == "cut":
            body = body[:len(body) // 2]
        if action in ("reset", "trunc", "stall"):
            return self.send_body(action, 200, {"Content-Length": len(body)},
                                  body)
        self.wait_before_answer(action)
        return self.answer(200, body)

    def list_page(self, prefix, spec, first, end, count):
        items = "".join(
            f"<Contents><Key>{urllib.parse.quote_plus(f'{spec}/d{i % 7}/file {i:05}')}"
            f"</Key><LastModified>{LISTED}</LastModified>"
            f"<ETag>&quot;v{i}&quot;</ETag><Size>{i * 10}</Size>"
            f"<StorageClass>STANDARD</StorageClass></Contents>"
            for i in range(first, end))
        more = end < count
        token = f"<NextContinuationToken>{end}</NextContinuationToken>" \
            if more else ""
        return (f'<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult '
                f'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b'
                f"</Name><Prefix>{prefix}</Prefix><EncodingType>url"
                f"</EncodingType><IsTruncated>{str(more).lower()}"
                f"</IsTruncated>{items}{token}</ListBucketResult>").encode()

    def send_listing(self, prefix, spec, first, end, more):
        body = self.list_page(prefix, spec, first, end, end + more)
        return self.answer(200, body)

    # ---- keys ----

    def credentials(self, path):
        if self.headers.get("authorization") != "let me in":
            return self.answer(401)
        if path.endswith("/none"):
            return self.answer(200, b'{"Code": "Failed"}')
        soon = time.strftime("%Y-%m-%dT%H:%M:%SZ",
                             time.gmtime(time.time() + 3600))
        return self.answer(200, (
            '{"Code": "Success", "AccessKeyId": "SERVICE",'
            ' "SecretAccessKey": "service\\/secret", "Token": "session",'
            f' "Expiration": "{soon}"}}').encode())


class Server(TlsServer, socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    request_queue_size = 256


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tls")
    parser.add_argument("--log")
    parser.add_argument("--tree")
    options = parser.parse_args()
    STATE.tree = options.tree
    if options.log:
        STATE.log = open(options.log, "a")
    server = Server(("127.0.0.1", 0), Handler)
    if options.tls:
        server.speak_tls(options.tls)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
