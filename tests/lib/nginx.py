# SPDX-License-Identifier: Apache-2.0
"""nginx with the files of a directory, on a port of the loopback that was free.

    with Nginx(ROOT, DIRECTORY, tls=PEM, http2=True) as server:
        server.port
        server.requests()       since it was asked last: "PROTOCOL STATUS TARGET RANGE"

DIRECTORY is for what it writes.  GET /bucket/ lists ROOT as a server of S3 does a
bucket that has what lay there at first; signatures are not looked at.  Answers begin
after DELAY seconds, for which it needs the module echo, and a connection gives RATE
bytes a second at most.
"""

import contextlib
import os
import shutil
import socket
import subprocess
from xml.sax.saxutils import escape

from demands import check, within, write  # noqa: E402
from s3_server import keys_of

PROGRAM = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")
SLEEPS = "/usr/lib/nginx/modules/ngx_http_echo_module.so"
# Of Linux, which Python has no name for.
SO_MAX_PACING_RATE = 47

CONFIG = """{sleeps}
{user}
daemon off;
worker_processes 2;
pid {directory}/pid;
error_log {directory}/error.log;
events {{ worker_connections 512; }}
http {{
  log_format asked "$server_protocol $status $request_uri $http_range";
  access_log {directory}/requests asked;
  client_body_temp_path {directory}/body;
  proxy_temp_path {directory}/proxy;
  fastcgi_temp_path {directory}/fastcgi;
  uwsgi_temp_path {directory}/uwsgi;
  scgi_temp_path {directory}/scgi;
  sendfile on;
  keepalive_requests 1000000;
  default_type application/octet-stream;
  server {{
    listen 127.0.0.1:{port}{tls};
    location = /bucket/ {{
      rewrite ^ /listing break;
      root {directory};
    }}
    location / {{ {answer} }}
    location @files {{
      rewrite ^/bucket/(.*) /$1 break;
      root {root};
    }}
  }}
}}
"""

LISTING = """<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
<Name>bucket</Name><IsTruncated>false</IsTruncated>{objects}</ListBucketResult>
"""
OBJECT = """<Contents><Key>{key}</Key><ETag>&quot;{mtime:x}-{size:x}&quot;</ETag>
<Size>{size}</Size><LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>
"""


def listing(root):
    """With the ETags that nginx gives."""
    objects = []
    for key in sorted(keys_of(root)):
        st = os.stat(os.path.join(root, key))
        objects.append(OBJECT.format(key=escape(key), mtime=int(st.st_mtime),
                                     size=st.st_size))
    return LISTING.format(objects="".join(objects))


def listening(rate):
    """A socket that gives its connections what pace they have.  nginx takes it as it
    is, and one of its processes would hang if another one was faster to accept."""
    s = socket.socket()
    s.setblocking(False)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if rate:
        s.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, rate)
    s.bind(("127.0.0.1", 0))
    s.listen(511)
    return s


def can_delay():
    return bool(PROGRAM) and os.path.exists(SLEEPS)


class Nginx:
    name = "nginx"

    def __init__(self, root, directory, *, tls=None, http2=False, delay=0.0, rate=0):
        self.directory = directory = os.path.abspath(directory)
        root, tls = os.path.abspath(root), tls and os.path.abspath(tls)
        self.read = 0
        os.makedirs(directory)
        self._write("listing", listing(root))
        self.socket = listening(rate)
        self.port = self.socket.getsockname()[1]
        self._write("conf", CONFIG.format(
            directory=directory, root=root, port=self.port,
            sleeps=f"load_module {SLEEPS};" if delay else "",
            user="user root;" if os.geteuid() == 0 else "",
            tls=f" ssl{' http2' if http2 else ''}; ssl_certificate {tls};"
                f" ssl_certificate_key {tls}" if tls else "",
            answer=f"echo_sleep {delay}; echo_exec @files;" if delay else
            "try_files /no/such/file @files;"))
        self.process = None

    def _write(self, name, text):
        write(os.path.join(self.directory, name), text.encode())

    def start(self):
        """As its own successor, which finds its socket in the environment: it answers
        whoever is connected already."""
        self.process = subprocess.Popen(
            [PROGRAM, "-p", self.directory, "-c", os.path.join(self.directory, "conf"),
             "-e", os.path.join(self.directory, "error.log")],
            env={**os.environ, "NGINX": f"{self.socket.fileno()};"},
            pass_fds=[self.socket.fileno()], stdin=subprocess.DEVNULL)
        # Whoever connects waits for one that has not come up, too.
        within(60, self._is_up, "nginx is up")

    def _is_up(self):
        check(self.process.poll() is None, "nginx has ended")
        return os.path.exists(os.path.join(self.directory, "pid"))

    def kill(self):
        self.process.terminate()
        self.process.wait()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.kill()
        self.socket.close()

    def requests(self):
        lines = []
        with contextlib.suppress(FileNotFoundError), \
                open(os.path.join(self.directory, "requests"), encoding="utf-8") as f:
            lines = f.read().splitlines()
        new, self.read = lines[self.read:], len(lines)
        return new
