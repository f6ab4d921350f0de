#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Show directories as the buckets of an S3 server, as far as readers go:

    s3_server.py DIRECTORY      prints the port of 127.0.0.1 that it listens on

GET /BUCKET?list-type=2&prefix=P lists in pages of 7 keys, GET /BUCKET/KEY gives
ranges.  The ETag says inode, size and mtime, and If-Match is looked at.  Every
request is a line "METHOD TARGET RANGE" in DIRECTORY/.requests; where there is a
file DIRECTORY/.deny, its number is the status of all answers.
"""
import email.utils
import http.server
import os
import re
import sys
import threading
import time
import urllib.parse
from xml.sax.saxutils import escape

PAGE = 7
LOCK = threading.Lock()


def etag_of(st):
    return f'"{st.st_ino:x}-{st.st_size:x}-{st.st_mtime_ns:x}"'


def keys_of(bucket):
    for top, _, files in os.walk(bucket, followlinks=True):
        for name in files:
            yield os.path.relpath(os.path.join(top, name), bucket)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        bucket, _, key = urllib.parse.unquote(url.path).strip("/").partition("/")
        with LOCK, open(os.path.join(ROOT, ".requests"), "a",
                        encoding="utf-8") as f:
            f.write(f"GET {self.path} {self.headers.get('Range', '-')}\n")
        try:
            with open(os.path.join(ROOT, ".deny"), encoding="ascii") as f:
                return self.answer(int(f.read()))
        except FileNotFoundError:
            pass
        path = os.path.join(ROOT, bucket)
        return self.get(os.path.join(path, key)) if key else \
            self.list(path, query)

    def list(self, bucket, query):
        prefix = query.get("prefix", "")
        after = query.get("continuation-token", "")
        keys = sorted(key for key in keys_of(bucket)
                      if key.startswith(prefix) and key > after)
        page, more = keys[:PAGE], len(keys) > PAGE
        xml = ["<ListBucketResult>"
               f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>"]
        if more:
            xml.append(f"<NextContinuationToken>{escape(page[-1])}"
                       "</NextContinuationToken>")
        for key in page:
            st = os.stat(os.path.join(bucket, key))
            when = time.strftime("%Y-%m-%dT%H:%M:%S.000Z",
                                 time.gmtime(st.st_mtime))
            xml.append(f"<Contents><Key>{escape(key)}</Key><LastModified>{when}"
                       f"</LastModified><ETag>{escape(etag_of(st))}</ETag>"
                       f"<Size>{st.st_size}</Size></Contents>")
        xml.append("</ListBucketResult>")
        self.answer(200, "".join(xml).encode(), Content_Type="application/xml")

    def get(self, path):
        try:
            with open(path, "rb") as f:
                st = os.fstat(f.fileno())
                asked = re.fullmatch(r"bytes=(\d+)-(\d+)",
                                     self.headers.get("Range", ""))
                first, last = map(int, asked.groups()) if asked else \
                    (0, st.st_size - 1)
                last = min(last, st.st_size - 1)
                if self.headers.get("If-Match") not in (None, etag_of(st)):
                    return self.answer(412)
                f.seek(first)
                body = f.read(last - first + 1)
        except OSError:
            return self.answer(404)
        how = {"Content_Range": f"bytes {first}-{last}/{st.st_size}"} \
            if asked else {}
        return self.answer(206 if asked else 200, body, ETag=etag_of(st),
                           Last_Modified=email.utils.formatdate(
                               st.st_mtime, usegmt=True), **how)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


if __name__ == "__main__":
    ROOT = sys.argv[1]
    with Server(("127.0.0.1", 0), Handler) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()
