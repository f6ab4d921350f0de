# SPDX-License-Identifier: Apache-2.0
"""memcached servers of a test's own, on ports that were free.

    with Memcached() as server:
        server.address                     "127.0.0.1:PORT"
        server.stop(), server.go_on()      it hangs, and answers again
        server.kill(), server.start()      it is gone, and back, empty
        server.figure("cmd_get")
"""

import os
import shutil
import signal
import socket
import subprocess
import time

PROGRAM = shutil.which("memcached", path=os.environ.get("PATH", "") + ":/usr/bin:/usr/sbin")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Memcached:
    def __init__(self, *words):
        self.words = words
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.process = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.kill()

    def start(self):
        self.process = subprocess.Popen(
            [PROGRAM, "-l", "127.0.0.1", "-p", str(self.port), "-U", "0", "-m", "256",
             *(("-u", "root") if os.geteuid() == 0 else ()), *self.words],
            stdin=subprocess.DEVNULL)
        while not self.answers():
            if self.process.poll() is not None:
                raise RuntimeError("memcached does not start")
            time.sleep(0.01)

    def answers(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=60).close()
        except OSError:
            return False
        return True

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def ask(self, line):
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as s:
            f = s.makefile("rwb")
            f.write(line.encode() + b"\r\n")
            f.flush()
            answer = []
            while not answer or answer[-1] not in (b"END\r\n", b"OK\r\n", b""):
                answer.append(f.readline())
            return b"".join(answer).decode()

    def figure(self, name):
        for line in self.ask("stats").splitlines():
            words = line.split()
            if words[:2] == ["STAT", name]:
                return int(words[2])
        raise KeyError(name)
