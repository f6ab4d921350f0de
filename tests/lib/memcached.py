# SPDX-License-Identifier: Apache-2.0
"""memcached servers of a test's own, on ports that were free.

    with Memcached() as server:            words of its command line may follow
        server.address                     "127.0.0.1:PORT"
        server.stop(), server.go_on()      it hangs, and answers again
        server.kill(), server.start()      it is gone, and back, empty
        server.figure("cmd_get")

A Liar speaks the same protocol and stores what it is given; what it answers then
is as its `mode` says, or to a command in `told`, {b"add": b"OK\r\n"}, what stands
there.
"""

import os
import shutil
import signal
import socket
import socketserver
import subprocess
import threading
import time

PATH = os.environ.get("PATH", "") + ":/usr/bin:/usr/sbin"
PROGRAM = shutil.which("memcached", path=PATH)


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


class Conversation(socketserver.StreamRequestHandler):
    def handle(self):
        try:
            while self.answer(self.rfile.readline().split()):
                self.wfile.flush()
        except OSError:
            pass  # whoever asked has had enough

    def answer(self, words):
        values = self.server.values
        if not words:
            return False
        if words[0] in (b"set", b"add"):
            value = self.rfile.read(int(words[4]) + 2)[:-2]
        if words[0] in self.server.told:
            self.wfile.write(self.server.told[words[0]])
        elif words[0] in (b"set", b"add"):
            if words[0] == b"add" and words[1] in values:
                self.wfile.write(b"NOT_STORED\r\n")
            else:
                values[words[1]] = value
                self.wfile.write(b"STORED\r\n")
        elif words[0] == b"delete":
            values.pop(words[1], None)
            self.wfile.write(b"DELETED\r\n")
        elif words[0] == b"get":
            for name in words[1:]:
                if name in values:
                    getattr(self, self.server.mode)(name, values[name])
            self.wfile.write(b"END\r\n")
        else:
            return False
        return True

    def give(self, name, value, length=None):
        length = len(value) if length is None else length
        self.wfile.write(b"VALUE %s 0 %d\r\n%s\r\n" % (name, length, value))

    honest = give

    def wrong_bytes(self, name, value):
        at = len(value) // 2
        self.give(name, value[:at] + bytes([value[at] ^ 1]) + value[at + 1:])

    def another_value(self, name, value):
        others = sorted(v for n, v in self.server.values.items()
                        if n != name and len(v) == len(value))
        self.give(name, others[0] if others else b"")

    def another_name(self, name, value):
        self.give(b"x" + name[1:], value)

    def shorter(self, name, value):
        self.give(name, value[:-1])

    def nothing(self, name, _):
        self.give(name, b"")

    def cut_off(self, name, value):
        self.give(name, value[:len(value) // 2], len(value))
        self.wfile.flush()
        raise ConnectionResetError

    def huge(self, name, value):
        self.give(name, value, 1 << 40)

    def no_protocol(self, *_):
        self.wfile.write(b"220 mail.example ESMTP\r\n" * 20)

    def endless(self, name, value):
        while True:
            self.give(name, value)

    def late(self, name, value):
        time.sleep(2)
        self.give(name, value)

    def by_drops(self, name, value):
        self.wfile.write(b"VALUE %s 0 %d\r\n" % (name, len(value)))
        for i in range(len(value)):
            self.wfile.write(value[i:i + 1])
            self.wfile.flush()
            time.sleep(0.05)


LIES = ("wrong_bytes", "another_value", "another_name", "shorter", "nothing", "cut_off",
        "huge", "no_protocol", "endless", "late", "by_drops")


class Liar(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Conversation)
        self.mode = "honest"
        self.told = {}
        self.values = {}
        self.address = f"127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __exit__(self, *how):
        self.shutdown()
        return super().__exit__(*how)
