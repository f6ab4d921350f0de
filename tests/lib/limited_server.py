#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The server of s3_server.py with no more than so many bytes of bodies a second over
all its connections, as storage that many nodes share:

    limited_server.py DIRECTORY RATE    prints the port that it listens on

RATE 0 has no limit.  What it served stands in DIRECTORY/.requests, as ever.
"""
import sys
import threading
import time

import s3_server

PIECE = 128 * 1024
BURST = 0.05  # seconds that may be saved up


class Bucket:
    """Who takes n bytes is told to wait until they are due, in the order of asking."""

    def __init__(self, rate):
        self.rate = rate
        self.lock = threading.Lock()
        self.due = time.monotonic()

    def take(self, n):
        if not self.rate:
            return
        with self.lock:
            now = time.monotonic()
            self.due = max(self.due, now - BURST) + n / self.rate
            wait = self.due - now
        if wait > 0:
            time.sleep(wait)


class Handler(s3_server.Handler):
    wbufsize = 0
    bucket = None

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with memoryview(body) as view:
            for at in range(0, len(body), PIECE):
                piece = view[at:at + PIECE]
                self.bucket.take(len(piece))
                self.wfile.write(piece)


def main():
    s3_server.ROOT = sys.argv[1]
    Handler.bucket = Bucket(float(sys.argv[2]))
    with s3_server.Server(("127.0.0.1", 0), Handler) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
