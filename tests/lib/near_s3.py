# SPDX-License-Identifier: Apache-2.0
"""A server of buckets in this process, in memory, whose habits a test chooses one by
one: tags, conditions, pages of listings, and refusals of any kind."""

import email.utils
import hashlib
import http.server
import re
import ssl
import threading
import time
import urllib.parse
from xml.sax.saxutils import escape

from s3_server import Answering

WHEN = 1750000000
KEY = "AKIDEXAMPLE"
SECRET = "SquareCirclesAreSecret"


def same(_key, tag):
    return tag


def error(code, more=""):
    return (f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>no</Message>"
            f"{more}</Error>").encode()


class Handler(Answering):
    protocol_version = "HTTP/1.1"

    def refuse(self, status, code="", more="", **headers):
        """What a hook returns: it has answered."""
        self.answer(status, error(code, more) if code else b"", **headers)
        return True

    def do_GET(self):
        at = urllib.parse.urlsplit(self.path)
        self.query = dict(urllib.parse.parse_qsl(at.query, keep_blank_values=True))
        path = urllib.parse.unquote(at.path)
        self.server.requests.append((self.path, dict(self.headers)))
        if self.server.hook and self.server.hook(self, path, self.query):
            return
        bucket, _, key = path[1:].partition("/")
        if not key:
            self.list(bucket)
        else:
            self.get(key)

    do_POST = do_PUT = do_GET

    def list(self, bucket):
        s, q = self.server, self.query
        second = q.get("list-type") == "2" and not s.first_version
        after = q.get("continuation-token" if second else "marker", "")
        keys = sorted(k for k in s.files if k.startswith(q.get("prefix", "")) and k > after)
        more, keys = len(keys) > s.page, keys[:s.page]
        coded = q.get("encoding-type") == "url" and s.encodes

        def text(key):
            return urllib.parse.quote(key) if coded else escape(key)

        x = [f"<ListBucketResult><Name>{bucket}</Name>"
             f"<IsTruncated>{str(more).lower()}</IsTruncated>"]
        if coded:
            x.append("<EncodingType>url</EncodingType>")
        if more and second:
            x.append(f"<NextContinuationToken>{escape(keys[-1])}</NextContinuationToken>")
        if more and not second and s.next_marker:
            x.append(f"<NextMarker>{text(keys[-1])}</NextMarker>")
        when = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(WHEN))
        for key in keys:
            tag = s.listed_tag(key, s.tag(key))
            x.append(f"<Contents><Key>{text(key)}</Key><LastModified>{when}</LastModified>" +
                     (f"<ETag>{escape(tag)}</ETag>" if tag is not None else "") +
                     f"<Size>{len(s.files[key])}</Size></Contents>")
        self.answer(200, ("".join(x) + "</ListBucketResult>").encode())

    def get(self, key):
        s = self.server
        if key not in s.files:
            return self.refuse(404, "NoSuchKey")
        data, tag = s.files[key], s.sent_tag(key, s.tag(key))
        asked = self.headers.get("If-Match")
        if asked is not None and not s.matches(asked, tag):
            return self.refuse(412, "PreconditionFailed")
        headers = {"Last-Modified": email.utils.formatdate(s.dates.get(key, WHEN), usegmt=True)}
        if tag is not None:
            headers["ETag"] = tag
        headers.update(s.headers)
        r = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not r:
            return self.answer(200, data, **headers)
        first, last = int(r[1]), min(int(r[2]), len(data) - 1)
        if first >= len(data):
            return self.refuse(416, Content_Range=f"bytes */{len(data)}")
        return self.answer(206, data[first:last + 1],
                           Content_Range=f"bytes {first}-{last}/{len(data)}", **headers)


class Server(http.server.ThreadingHTTPServer):
    """Bucket "b", or any other, with `files`: {key: bytes}."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, files=None, hook=None, pem=None, port=0, host="127.0.0.1", **habits):
        self.files = dict(files or {})
        self.hook = hook
        self.requests = []
        self.headers = {}
        self.dates = {}
        self.page = 1000
        self.first_version = False
        self.next_marker = False
        self.encodes = True
        self.listed_tag = self.sent_tag = same
        self.matches = lambda asked, tag: asked == tag
        for name, value in habits.items():
            setattr(self, name, value)
        super().__init__((host, port), Handler)
        if pem:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(pem)
            self.socket = tls.wrap_socket(self.socket, server_side=True,
                                          do_handshake_on_connect=False)
        self.url = f"http{'s' if pem else ''}://{host}:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def tag(self, key):
        return f'"{hashlib.md5(self.files[key]).hexdigest()}"'

    def handle_error(self, *_):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


def environment(plain, url, home, **more):
    """`plain` and what a command needs to reach the server."""
    env = {name: value for name, value in plain.items()
           if not name.startswith("AWS_") and not name.lower().endswith("_proxy")}
    env.update(AWS_ENDPOINT_URL=url, AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET,
               AWS_REGION="here", HOME=home)
    env.update(more)
    return {name: value for name, value in env.items() if value is not None}
