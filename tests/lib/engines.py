# SPDX-License-Identifier: Apache-2.0
"""File systems that sources lie on, each with the fault that is its own.

    engine = Bindfs(directory)
    engine.begin()              files of engine.store are shown at engine.path
    engine.publish()            also those that were written since
    engine.kill()               what serves it is gone, in the midst of all
    engine.restart()            and is back
    engine.hang(); engine.wake()
    engine.end()

Where `waits`, who reads meanwhile gets no error, and waits instead.  `lacks()` is why
an engine cannot run here.  All that an engine has lies below the directory.
"""

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import uuid

from demands import change, check, content, within
from s3_trial import KEY, SECRET, run, set_environment

HERE = os.path.dirname(os.path.abspath(__file__))


def spawn(command, **how):
    how = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL,
           "stderr": subprocess.DEVNULL, **how}
    return subprocess.Popen(command, **how)


def free_port():
    """One that the kernel gives to nobody, so that a server gets it again later."""
    while True:
        port = random.randrange(10000, 32768)
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("127.0.0.1", port))
            return port


def await_port(port, process):
    def listens():
        check(process.poll() is None, f"{process.args} has ended")
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", port)) == 0
    within(60, listens, f"{process.args} listens")


def await_mount(path, mount):
    """mount() gives the process that serves it, or None if none need be there."""
    here = os.stat(path).st_dev
    process = mount()

    def answers():
        check(process is None or process.poll() is None, f"{path} is mounted")
        with contextlib.suppress(OSError):
            return os.stat(path).st_dev != here
    within(60, answers, f"{path} is mounted")
    return process


def take_away(path):
    subprocess.run(["umount", "-l", path], check=False, stderr=subprocess.DEVNULL)


class Engine:
    """`programs` have to be installed; `processes` serve it."""

    programs = ()
    waits = False
    # Whether files have another ctime than their mtime, by which they are known again after
    # the server has been started anew.
    keeps_ctime = True

    def __init__(self, directory):
        self.directory = directory
        self.processes = []
        self.path = self.folder("shown")
        self.store = self.folder("store")

    def folder(self, name):
        path = os.path.join(self.directory, name)
        os.makedirs(path, exist_ok=True)
        return path

    @classmethod
    def name(cls):
        return cls.__name__.lower()

    @classmethod
    def lacks(cls):
        for program in cls.programs:
            if not shutil.which(program):
                return f"there is no {program}"
        return None if os.geteuid() == 0 else "engines want root"

    @contextlib.contextmanager
    def outside(self):
        """Yields where its files can be changed while it is gone."""
        yield self.store

    def publish(self):
        pass

    def another(self):
        """The directory as another client has it."""
        return self.store

    def remembering(self):
        """The directory as a client has it that does not ask for attributes again."""
        return self.path

    def forget(self, path):
        """What the kernel has of a file would be read though the engine hangs."""
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)

    def renew(self, paths):
        """Nobody remembers anything of these files."""
        for path in paths:
            self.forget(path)

    def _signal(self, number):
        for process in self.processes:
            process.send_signal(number)

    def hang(self):
        self._signal(signal.SIGSTOP)

    def wake(self):
        self._signal(signal.SIGCONT)

    def kill(self):
        self._signal(signal.SIGKILL)
        for process in self.processes:
            process.wait()
        self.processes = []

    def restart(self):
        take_away(self.path)
        self.begin()

    def end(self):
        self.kill()
        take_away(self.path)


class FuseEngine(Engine):
    """One program in the foreground, which ends with its mount."""

    def command(self):
        raise NotImplementedError

    def begin(self):
        command = self.command()
        self.processes = [await_mount(self.path, lambda: spawn(command))]


class Bindfs(FuseEngine):
    programs = ("bindfs",)

    def command(self):
        return ["bindfs", "-f", self.store, self.path]


class Rclone(FuseEngine):
    keeps_ctime = False
    programs = ("rclone",)

    def command(self):
        return ["rclone", "--config", "", "mount", self.store, self.path]


class WholeFiles:
    """rclone that keeps what is read of a file on disk, and fetches the rest of it
    meanwhile."""

    def renew(self, _):
        """What it keeps goes with its mount."""
        subprocess.run(["umount", self.path], check=True)
        for process in self.processes:
            process.wait()
        FuseEngine.begin(self)

    def command(self):
        return [*super().command(), "--vfs-cache-mode", "full", "--cache-dir",
                tempfile.mkdtemp(dir=self.directory)]


class RcloneWhole(WholeFiles, Rclone):
    pass


class Overlay(Bindfs):
    """On another file system, which is killed; an overlay then has to be made anew."""

    def begin(self):
        self.lower, self.upper = self.folder("lower"), self.path
        self.path = self.lower
        super().begin()
        self.path = self.upper
        how = ",".join([f"lowerdir={self.lower}", f"upperdir={self.folder('upper')}",
                        f"workdir={self.folder('work')}"])

        def mount():
            subprocess.run(["mount", "-t", "overlay", "overlay", "-o", how, self.path],
                           check=True)
        await_mount(self.path, mount)

    def restart(self):
        take_away(self.lower)
        super().restart()

    def end(self):
        super().end()
        take_away(self.lower)


# ---- on a server of S3 ----

class S3(FuseEngine):
    """The server goes on when the file system is killed, and hangs in its stead."""

    keeps_ctime = False

    def begin(self):
        self.server = spawn([sys.executable, os.path.join(HERE, "s3_server.py"),
                             self.directory], stdout=subprocess.PIPE, text=True)
        self.port = int(self.server.stdout.readline())
        super().begin()

    def hang(self):
        self.server.send_signal(signal.SIGSTOP)

    def wake(self):
        self.server.send_signal(signal.SIGCONT)

    def restart(self):
        take_away(self.path)
        FuseEngine.begin(self)

    def end(self):
        super().end()
        self.server.kill()
        self.server.wait()
        self.server.stdout.close()


class S3fs(S3):
    programs = ("s3fs",)

    def command(self):
        keys = os.path.join(self.directory, "keys")
        change(keys, b"key:secret\n")
        os.chmod(keys, 0o600)
        return ["s3fs", "-f", "store", self.path, "-o", ",".join([
            f"passwd_file={keys}", f"url=http://127.0.0.1:{self.port}",
            "use_path_request_style", "listobjectsv2", "retries=1"])]


class RcloneS3(S3):
    programs = ("rclone",)

    def command(self):
        remote = (":s3,provider=Other,access_key_id=key,secret_access_key=secret,"
                  f"endpoint='http://127.0.0.1:{self.port}':store")
        # It knows no other certificates with its own transport.
        return ["env", "-u", "AWS_CA_BUNDLE", "rclone", "--config", "", "mount", remote,
                self.path]


class RcloneS3Whole(WholeFiles, RcloneS3):
    pass


# ---- GlusterFS ----

BRICK = """volume posix
  type storage/posix
  option directory {directory}
  option ctime on
end-volume
volume locks
  type features/locks
  subvolumes posix
end-volume
volume index
  type features/index
  option index-base {directory}.index/indices
  subvolumes locks
end-volume
volume brick
  type performance/io-threads
  subvolumes index
end-volume
volume server
  type protocol/server
  option transport-type tcp
  option transport.socket.bind-address 127.0.0.1
  option transport.socket.listen-port {port}
  option auth.addr.brick.allow 127.0.0.1
  subvolumes brick
end-volume
"""

REMOTE = """volume remote{number}
  type protocol/client
  option transport-type tcp
  option remote-host 127.0.0.1
  option remote-port {port}
  option remote-subvolume brick
  option ping-timeout 5
end-volume
"""

REPLICATE = """volume replicate
  type cluster/replicate
  option quorum-type auto
  option data-self-heal on
  option metadata-self-heal on
  option entry-self-heal on
  subvolumes {remotes}
end-volume
volume utime
  type features/utime
  subvolumes replicate
end-volume
"""


class Gluster(Engine):
    """Three bricks that hold the same.  glusterfsd and glusterfs are started by hand
    from descriptions of the volume, as glusterd would; that one is not needed."""

    programs = ("glusterfsd", "glusterfs")
    n_bricks = 3

    def __init__(self, directory):
        super().__init__(directory)
        self.store = self.path
        self.client = None
        self.bricks = [None] * self.n_bricks
        self.ports = [free_port() for _ in self.bricks]
        volume = ""
        for i, port in enumerate(self.ports):
            self.folder(f"brick{i}.index")
            change(self._at(f"brick{i}.vol"), BRICK.format(
                directory=self.folder(f"brick{i}"), port=port).encode())
            volume += REMOTE.format(number=i, port=port)
        volume += REPLICATE.format(remotes=" ".join(f"remote{i}" for i in range(self.n_bricks)))
        change(self._at("volume.vol"), volume.encode())

    def _at(self, name):
        return os.path.join(self.directory, name)

    def start_brick(self, i):
        self.bricks[i] = spawn(["glusterfsd", "-N", "-f", self._at(f"brick{i}.vol"),
                                "-l", self._at(f"brick{i}.log"), "-p", self._at(f"brick{i}.pid")])
        await_port(self.ports[i], self.bricks[i])
        self.processes.append(self.bricks[i])

    def kill_brick(self, i):
        self.processes.remove(self.bricks[i])
        self.bricks[i].kill()
        self.bricks[i].wait()

    def connected(self, i):
        """What the client says."""
        where = os.path.join(self.path, ".meta", "graphs", "active", f"remote{i}", "private")
        return b"connected = 1" in content(where)

    def _mount(self, path):
        return await_mount(path, lambda: spawn(
            ["glusterfs", "-N", "-f", self._at("volume.vol"), "-l", self._at("volume.log"), path]))

    def begin(self):
        for i in range(self.n_bricks):
            self.start_brick(i)
        self.client = self._mount(self.path)
        self._await_bricks()

    def _await_bricks(self):
        for i in range(self.n_bricks):
            within(60, lambda i=i: self.connected(i), f"brick {i} is connected")

    def restart(self):
        """Its mount has stayed."""
        for i in range(self.n_bricks):
            if self.bricks[i].poll() is not None:
                self.start_brick(i)

    @contextlib.contextmanager
    def outside(self):
        """The volume, mounted once more."""
        self.restart()
        path = self.folder("elsewhere")
        client = self._mount(path)
        try:
            yield path
        finally:
            take_away(path)
            client.kill()
            client.wait()

    def end(self):
        self.kill()
        if self.client:
            self.client.kill()
            self.client.wait()
        take_away(self.path)


# ---- NFS ----

GANESHA = """NFS_CORE_PARAM {{
  Protocols = 4; NFS_Port = {port}; Enable_NLM = false; Enable_RQUOTA = false;
}}
NFSv4 {{
  Grace_Period = 5; Lease_Lifetime = 5; Only_Numeric_Owners = true;
  RecoveryBackend = fs; RecoveryRoot = {recovery};
}}
EXPORT {{
  Export_Id = 1; Path = {store}; Pseudo = /store; Access_Type = RW; Squash = None;
  SecType = sys; Protocols = 4; Transports = TCP; FSAL {{ Name = VFS; }}
}}
"""


class Nfs(Engine):
    """nfs-ganesha, and the kernel's client as it is mounted by default: hard."""

    programs = ("ganesha.nfsd",)
    waits = True

    def __init__(self, directory):
        super().__init__(directory)
        self.port = free_port()
        self.config = os.path.join(directory, "ganesha.conf")
        change(self.config, GANESHA.format(port=self.port, store=self.store,
                                           recovery=self.folder("recovery")).encode())

    @classmethod
    def lacks(cls):
        if b"nfs4" not in content("/proc/filesystems"):
            return "this kernel has no NFS"
        return super().lacks()

    def begin(self):
        self.restart()
        self.mount(self.path)

    def mount(self, path, *more):
        how = ["hard", "vers=4.1", "addr=127.0.0.1", "clientaddr=127.0.0.1", "nosharecache",
               f"port={self.port}", *more]

        def mount():
            subprocess.run(["mount", "-i", "-t", "nfs4", "-o", ",".join(how),
                            "127.0.0.1:/store", path], check=True)
        await_mount(path, mount)

    def mounted_at(self, name, *more):
        path = self.folder(name)
        if not os.path.ismount(path):
            self.mount(path, *more)
        return path

    def another(self):
        """The server remembers attributes as well, so what is written must pass it."""
        return self.mounted_at("other")

    def remembering(self):
        return self.mounted_at("remembering", "actimeo=600")

    def restart(self):
        """Its mount has stayed."""
        self.processes = [spawn(["ganesha.nfsd", "-F", "-f", self.config,
                                 "-L", os.path.join(self.directory, "log"),
                                 "-p", os.path.join(self.directory, "pid")])]
        await_port(self.port, self.processes[0])

    def end(self):
        for path in (self.path, self.folder("other"), self.folder("remembering")):
            subprocess.run(["umount", "-f", "-l", path], check=False,
                           stderr=subprocess.DEVNULL)
        self.kill()


# ---- Ceph ----

CEPH = """[global]
fsid = {fsid}
mon host = v2:127.0.0.1:{port}
mon initial members = a
auth cluster required = none
auth service required = none
auth client required = none
ms mon client mode = crc
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
mon allow pool size one = true
mon data avail crit = 0
paxos propose interval = 0.05
paxos min wait = 0.02
osd crush chooseleaf type = 0
osd objectstore = memstore
mds tick interval = 1
mds cap revoke eviction timeout = 2
ms bind ipv6 = false
run dir = {directory}
admin socket = {directory}/$name.asok
pid file = {directory}/$name.pid
log file = {directory}/$name.log
mon cluster log file = {directory}/cluster.log
keyring = {directory}/keyring
mon data = {directory}/mon
osd data = {directory}/osd
mds data = {directory}/mds
rgw data = {directory}/rgw
"""


class Cluster:
    """A monitor and a server of objects, which keeps all in memory."""

    programs = ("ceph-mon", "ceph-osd", "ceph")

    def __init__(self, directory):
        self.directory = directory
        self.servers = []
        self.config = os.path.join(directory, "ceph.conf")

    def run(self, program, *words):
        done = subprocess.run([program, "-c", self.config, *words], check=False, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=120)
        check(done.returncode == 0, f"{program} {words}: {done.stdout}")
        return done.stdout

    def serve(self, program, name):
        self.servers.append(spawn([program, "-f", "-c", self.config, "-i", name]))

    def begin(self):
        fsid, port = str(uuid.uuid4()), free_port()
        for name in ("mon", "osd", "mds"):
            os.mkdir(os.path.join(self.directory, name))
        change(self.config, CEPH.format(fsid=fsid, port=port,
                                        directory=self.directory).encode())
        keyring, monmap = (os.path.join(self.directory, name) for name in ("keyring", "monmap"))
        for name in ("mon.", "client.admin"):
            self.run("ceph-authtool", keyring, *["--create-keyring"] * (name == "mon."),
                     "--gen-key", "-n", name, "--cap", "mon", "allow *",
                     "--cap", "osd", "allow *", "--cap", "mds", "allow *")
        self.run("monmaptool", "--create", "--addv", "a", f"[v2:127.0.0.1:{port}]",
                 "--fsid", fsid, monmap)
        self.run("ceph-mon", "-i", "a", "--mkfs", "--monmap", monmap, "--keyring", keyring)
        self.serve("ceph-mon", "a")
        osd = str(uuid.uuid4())
        self.run("ceph", "osd", "new", osd)
        self.run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd)
        self.serve("ceph-osd", "0")

    def objects(self):
        """The server of them."""
        return self.servers[1]

    def end(self):
        for server in self.servers:
            server.kill()
            server.wait()


class Ceph(FuseEngine):
    """CephFS on a cluster that goes on when ceph-fuse is killed, which keeps nothing that
    it has read, as reshardfs-storage(7) has it.  Clients that are gone are thrown out
    soon, or others would wait for a minute.  The server of objects hangs."""

    programs = ("ceph-fuse", "ceph-mds", *Cluster.programs)

    def __init__(self, directory):
        super().__init__(directory)
        self.store = self.path
        self.cluster = Cluster(directory)

    def begin(self):
        self.cluster.begin()
        self.cluster.serve("ceph-mds", "a")
        for pool in ("names", "contents"):
            self.cluster.run("ceph", "osd", "pool", "create", pool, "8")
        self.cluster.run("ceph", "fs", "new", "fs", "names", "contents")
        within(60, lambda: "up:active" in self.cluster.run("ceph", "mds", "stat"),
               "it is active")
        super().begin()

    def command(self):
        return ["ceph-fuse", "-f", "-c", self.cluster.config, "-n", "client.admin",
                "--client_oc=false", self.path]

    def hang(self):
        self.cluster.objects().send_signal(signal.SIGSTOP)

    def wake(self):
        self.cluster.objects().send_signal(signal.SIGCONT)

    def restart(self):
        take_away(self.path)
        FuseEngine.begin(self)

    @contextlib.contextmanager
    def outside(self):
        """By another client."""
        self.restart()
        yield self.path
        self.kill()

    def end(self):
        super().end()
        self.cluster.end()


class Radosgw(Engine):
    """A real server of S3: Ceph's gateway, which is what goes and hangs.  The path is an
    address; objects of more than 5 MiB are put there in parts."""

    programs = ("radosgw", "radosgw-admin", "rclone", *Cluster.programs)

    def __init__(self, directory):
        super().__init__(directory)
        self.path = "s3://bucket"
        self.cluster = Cluster(directory)
        self.port = free_port()
        self.environment = dict(os.environ)

    @classmethod
    def lacks(cls):
        if "built without" in run("ls", "s3://bucket/x").err:
            return "built without object storage"
        return super().lacks()

    def begin(self):
        self.cluster.begin()
        self.cluster.run("radosgw-admin", "user", "create", "--uid=reader",
                         "--display-name=reader", f"--access-key={KEY}",
                         f"--secret-key={SECRET}")
        self.restart()
        set_environment(self.port, self.directory)

    def restart(self):
        self.processes = [spawn(["radosgw", "-f", "-c", self.cluster.config,
                                 "-n", "client.rgw", "--rgw-frontends",
                                 f"beast endpoint=127.0.0.1:{self.port} tcp_nodelay=1"])]
        await_port(self.port, self.processes[0])

    def publish(self):
        remote = (f":s3,provider=Ceph,access_key_id={KEY},secret_access_key={SECRET},"
                  f"endpoint='http://127.0.0.1:{self.port}':bucket")
        subprocess.run(["rclone", "--config", "", "sync", self.store, remote,
                        "--transfers", "16", "--s3-upload-cutoff", "5Mi",
                        "--s3-chunk-size", "5Mi"], check=True)

    def forget(self, path):
        """The kernel knows of no files."""

    def requests(self):
        """What was asked for, as far as it has been written down."""
        return [line for line in content(os.path.join(
            self.directory, "client.rgw.log")).decode().splitlines() if " beast: " in line]

    @contextlib.contextmanager
    def outside(self):
        self.restart()
        yield self.store
        self.publish()
        self.kill()

    def end(self):
        self.kill()
        self.cluster.end()
        os.environ.clear()
        os.environ.update(self.environment)


ENGINES = {engine.name(): engine
           for engine in (Bindfs, Overlay, Rclone, RcloneWhole, RcloneS3, RcloneS3Whole,
                          S3fs, Gluster, Ceph, Radosgw, Nfs)}
