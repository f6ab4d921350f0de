#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A source behind HTTP (s3://), by a server of the test's own: what is shown is what
the same files on disk show, within the sandbox."""

import base64
import http.server
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading

LIB = os.path.join(os.environ.get("srcdir", "."), "lib")
TOP = os.environ.get("top_srcdir", os.path.join(os.environ.get("srcdir", "."), ".."))
sys.path[:0] = [LIB, os.path.join(TOP, "python")]

import reshardfs  # noqa: E402
import secrets_seen  # noqa: E402
from demands import check, content, error_of, flip, write  # noqa: E402
from memcached import free_port  # noqa: E402
from ms_formats import Record, checkpoint_bytes  # noqa: E402
from privileges import own_mounts  # noqa: E402
from rsh_cli import GOOD, INPUT, IO, NO  # noqa: E402
from rsh_cli import run as run_program  # noqa: E402
from rsh_mount import Mounted, Skipped, hash_tree, reshardfs_program  # noqa: E402
from s3_server import Answering  # noqa: E402
from s3_trial import SECRET, Server, library_path, run, run_trials, write_model  # noqa: E402
from safetensors_format import safetensors_bytes, values_in  # noqa: E402
from small_job import Job  # noqa: E402


def test_shown(tap, trial):
    with trial.mounted("--index-cache", trial.cache) as mount:
        with tap.test("what is shown is that of the same files on disk"):
            mount.demand_tree(trial.expected)
        tap.ok("sandboxed" in mount.log(), "within the sandbox", mount.log())
        told = content(os.path.join(mount.path, ".reshardfs", "stats")).decode()
        tap.ok(trial.url in told, "its address is told", told)
        around = content(f"/proc/{mount.process.pid}/environ").decode()
        tap.ok(SECRET not in told + mount.log() + around, "and the secret is not")


def test_cached(tap, trial):
    """A scan asks each small file for its end and for its begin."""
    trial.server.requests()
    for known in (False, True):
        with trial.mounted("--check", "structure",
                           "--index-cache", trial.cache if known else "off"):
            asked = trial.server.requests()
        ranges = [line for line in asked if "list-type=2" not in line]
        tap.equal(len(ranges), 0 if known else 2 * trial.job.n_ranks,
                  "the next mount asks for listings alone" if known else
                  "a mount asks for two ranges a file")


def test_layers(tap, trial):
    """The layers of a file are alike, so that most of its headers can be asked for
    before the one in front of them has come."""
    shapes = (("wide", 640, 300), ("deep", 400, 200), ("norm", 1, 7000))
    records = {f"layers.{i}.{name}": Record((high, wide), "Int8", bytes([i]) * (high * wide))
               for i in range(60) for name, high, wide in shapes}
    tree = os.path.join(trial.server.root, "bucket", "layers")
    write(os.path.join(tree, "rank_0", "net-1_1.ckpt"), checkpoint_bytes(records, crc=True))
    trial.server.requests()
    shown = [run("plan", "--json", "--slices", "--src-strategy", "none", "--dst-strategy", "none",
                 "--index-cache", "off", "--check", "structure", source)
             for source in (tree, "s3://bucket/layers")]
    alone = [line for line in trial.server.requests()
             if (found := re.search(r"bytes=(\d+)-(\d+)$", line)) and
             int(found[2]) - int(found[1]) < 512]
    told = [got.out.replace("s3://bucket/layers", tree) for got in shown]
    tap.ok(told[0] == told[1] and f'"records":{len(records)},' in told[0],
           "of a file with layers all records are found", repr(shown)[:4000])
    tap.ok(1 < len(alone) < len(records) // 4, "most of its headers were guessed", str(len(alone)))


def test_replaced(tap, trial):
    """Another object of the same size is none of the mount's."""
    with trial.mounted("--replicas", "off") as mount:
        source = os.path.join(trial.job.source, "rank_0")
        path = os.path.join(source, sorted(n for n in os.listdir(source)
                                           if n.endswith(".ckpt"))[-1])
        bytes_ = content(path)
        os.rename(path, path + ".old")
        write(path, bytes_)
        found = {error_of(lambda at=os.path.join(root, name): content(at))
                 for root, _, names in os.walk(mount.path) for name in names
                 if ".reshardfs" not in root}
        os.rename(path + ".old", path)
    tap.ok("ESTALE" in found, "an object that was replaced is stale", str(found))


def test_denied(tap, trial):
    with trial.server.denying(403):
        got = run("ls", trial.url)
    tap.ok(got.status != GOOD and "keys" not in got.err and SECRET not in got.err,
           "who may not is told so", repr(got))


def test_commands(tap, trial):
    got = run("ls", trial.url)
    tap.ok(got.status == GOOD and "complete" in got.out, "ls", repr(got))
    got = run("verify", trial.url)
    tap.ok(got.status == GOOD, "verify", repr(got))
    target = os.path.join(trial.cache, "exported")
    got = run("export", "-q", "--src-strategy", trial.job.strategy, "--dst-strategy",
              trial.job.strategy, trial.url, target)
    tap.ok(got.status == GOOD, "export", repr(got))
    test_manifest(tap, trial, target)
    for address, words in (("s3://", "s3://: not a valid bucket"),
                           ("s3:/bucket", "addresses begin with s3://"),
                           ("gs://bucket/x", "addresses begin with s3://"),
                           (f"s3://me:{SECRET}@bucket/x", "s3://bucket/x: an S3 address cannot contain keys"),
                           ("https://", "https://: no host")):
        for command in ("ls", "verify"):
            got = run(command, address)
            tap.ok(got.status == INPUT and words in got.err and SECRET not in got.err and
                   got.err.count("\n") == 1, f"{command} says what is wrong: {words}", repr(got))
    got = run("ls", "s3://bucket/nothing")
    tap.equal(got.status, INPUT, "nothing lies there")


def test_manifest(tap, trial, exported):
    """An export that was copied into a bucket is held to the manifest beside it."""
    copied = os.path.join(trial.server.root, "bucket", "exported")
    shutil.copytree(exported, copied)
    names = [name for name in os.listdir(copied) if name.startswith("rank_")]
    compared = f"{len(names)} files against their manifest"
    got = run("verify", "s3://bucket/exported")
    tap.ok(got.status == GOOD and compared in got.out, "verify finds the manifest there", repr(got))
    victim = os.path.join(copied, "rank_0", os.listdir(os.path.join(copied, "rank_0"))[0])
    flip(victim, os.path.getsize(victim) // 2)
    got = run("verify", "s3://bucket/exported")
    tap.ok(got.status == NO and os.path.basename(victim) in got.out, "a flipped bit is found",
           repr(got))
    os.unlink(victim)
    got = run("verify", "s3://bucket/exported")
    tap.ok(got.status == NO and os.path.basename(victim) in got.out, "a lost file is found",
           repr(got))
    shutil.rmtree(copied)


class Odd(Answering):
    """A web server that does what the first name of a path says, and has one file."""

    def do_GET(self):
        what = self.path.split("/")[1]
        if what == "loop":
            self.answer(302, Location=self.path)
        elif what == "page":
            self.answer(200, b"\n<!DOCTYPE html>\n<title>Index</title>\nmodel.safetensors\n")
        elif what.isdigit():
            self.answer(int(what), b"no")
        elif self.path.endswith("/part.safetensors"):
            self.answer(206, b"x", Content_Range="bytes 0-0/9")
        else:
            self.answer(404, b"no")


def test_said(tap, trial):
    """What is wrong with an address or its server, and what to do."""
    odd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Odd)
    threading.Thread(target=odd.serve_forever, daemon=True).start()
    http_ = f"127.0.0.1:{odd.server_port}"
    at, listed = f"http://{http_}", "model.safetensors.index.json"
    closed = f"http://127.0.0.1:{free_port()}"
    file = trial.url + "/rank_0/" + os.listdir(os.path.join(trial.job.source, "rank_0"))[0]
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    hint = "; AWS_ENDPOINT_URL sets the server"
    for given, address, words in (
            (endpoint, file, f"{file}: this is a file; use its directory, {trial.url}/rank_0"),
            (endpoint, "s3://bucket/no/such", 's3://bucket/no/such: not found: the '
             'bucket has no object with the prefix "no/such/"'),
            (closed, "s3://bucket/x", f"s3://bucket/x: the server {closed} cannot be reached "
             f"(Connection refused){hint}"),
            (at + "/page", "s3://bucket/x", f"s3://bucket/x: the server {at} sends a web page, "
             f"such as one for a login (HTTP 200){hint}"),
            (at + "/loop", "s3://bucket/x", f"the server {at} redirects to another address (HTTP "
             "302)"),
            (at + "/500", "s3://bucket/x", "no answer in time (--source-timeout); last error: "
             f"the server {at} reports an error of its own (HTTP 500)"),
            (endpoint, at + "/loop/x", f"{at}/loop/x/{listed}: the server redirects too "
             "often (HTTP 302)"),
            (endpoint, at + "/500/x", f"{listed}: no answer in time (--source-timeout); last error: "
             "the server reports an error of its own (HTTP 500)"),
            (endpoint, at + "/403/x", f"{listed}: the server denies access (HTTP 403)"),
            (endpoint, at + "/418/x", f"{listed}: the server finds the request wrong (HTTP 418)"),
            (endpoint, at + "/page", f"{at}/page/{listed}: a web page, not a list of names; "
             "--source-index names a file with one name on each line"),
            (endpoint, at + "/none/x", f"{at}/none/x: not found: there is neither a list "
             "of files nor model.safetensors; --source-index names a list of files"),
            (endpoint, at + "/a/part.safetensors",
             f"{at}/a/part.safetensors: this is a file; use its directory, {at}/a"),
            (endpoint, f"https://{http_}/x", f"the server https://{http_} does not answer by "
             "TLS: is it an http:// server? (")):
        os.environ["AWS_ENDPOINT_URL"] = given
        got = run("ls", "--source-timeout", "2" if "500" in given + address else "30", address)
        os.environ["AWS_ENDPOINT_URL"] = endpoint
        tap.ok(got.status in (INPUT, IO) and words in got.err and got.err.count("\n") == 1,
               "said: " + re.sub(r":\d+", ":PORT", words)[:60], repr(got))
    odd.shutdown()
    odd.server_close()


os.environ["LIBRESHARD"] = os.path.join(os.path.dirname(reshardfs_program()), ".libs",
                                        "libreshard.so.0")
# Puts the bytes of all tensors of two ranks, read from argv[1], to the output.
TENSORS = """
import sys
sys.path.insert(0, sys.argv[1])
import reshardfs
words = {"src_strategy": sys.argv[3], "dst_strategy": sys.argv[3]}
for rank in 0, 1:
    for name, array in sorted(reshardfs.tensors(sys.argv[2], rank, **words).load().items()):
        sys.stdout.buffer.write(name.encode() + array.tobytes())
"""


def tensors_of(trial, source):
    """Their bytes, as the module reads them."""
    if "sanitize" in os.environ.get("SANITIZER_FLAGS", ""):
        raise Skipped("Python does not load what a sanitizer is built into")
    python = os.environ.get("RSH_ORACLE_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import numpy"], check=False,
                      stderr=subprocess.DEVNULL).returncode:
        raise Skipped("RSH_ORACLE_PYTHON does not name a Python that has numpy")
    return subprocess.run([python, "-c", TENSORS, os.path.join(TOP, "python"), source,
                           trial.job.strategy], check=True, stdout=subprocess.PIPE).stdout


def test_module(tap, trial):
    words = {"src_strategy": trial.job.strategy, "dst_strategy": trial.job.strategy}
    with tap.test("Python's mounts show it"), \
            reshardfs.Mount(trial.url, **words) as mount:
        check(hash_tree(mount.path) == trial.expected, "other bytes")
    with tap.test("Python's tensors are those of the same files on disk"):
        found = tensors_of(trial, trial.url)
        check(found and found == tensors_of(trial, trial.job.source), len(found))


def network_libraries(mount):
    """Which of them the daemon has loaded."""
    with open(f"/proc/{mount.process.pid}/maps", encoding="utf-8") as f:
        return sorted(set(re.findall(r"/(libcurl|libexpat)\b", f.read())))


def test_libraries(tap, trial):
    """They are loaded by those who name an address, and nobody else needs them."""
    with Mounted(trial.job.source, src_strategy=trial.job.strategy,
                 dst_strategy=trial.job.strategy) as mount:
        mount.demand_tree(trial.expected)
        tap.equal(network_libraries(mount), [], "a mount of files loads none")
    with trial.mounted() as mount:
        tap.equal(network_libraries(mount), ["libcurl", "libexpat"],
                  "one of an address loads what it needs")
    for name, package in (("libcurl.so.4", "libcurl4"), ("libexpat.so.1", "libexpat1")):
        hidden = f"mount --bind /dev/null '{library_path(name)}' && exec \"$@\""
        with tap.test(f"a sentence without {name}"):
            got = subprocess.run(
                own_mounts(hidden, reshardfs_program(), "ls", trial.url),
                text=True, check=False, capture_output=True)
            check(got.returncode == INPUT and
                  "object storage needs a library" in got.stderr and name in got.stderr and
                  f"install the package {package} (RPM:" in got.stderr, got)
        with tap.test(f"and files do without {name}"):
            got = subprocess.run(
                own_mounts(hidden, reshardfs_program(), "ls", trial.job.source),
                text=True, check=False, capture_output=True)
            check(got.returncode == GOOD, got)


def test_tls(tap, trial):
    """A model by its index over TLS, with a password and a query in the address."""
    pem = os.path.join(os.path.dirname(LIB), "unit", "data", "objects.pem")
    write_model(os.path.join(trial.directory, "s3", "bucket", "model"),
                Job(os.path.join(trial.directory, "made")).records(0, 1, 10))
    kept = [os.path.join(trial.directory, name) for name in ("indexes", "blocks")]
    os.makedirs(kept[1], mode=0o700)
    with Server(os.path.join(trial.directory, "s3"), "--tls", pem) as server:
        at = f"127.0.0.1:{server.port}/bucket/model"
        got = run("ls", f"https://{at}")
        tap.ok(got.status != GOOD and "certificate" in got.err,
               "a server that nobody vouches for is not believed", repr(got))
        with Mounted(os.path.join(trial.directory, "s3", "bucket", "model")) as local:
            expected = hash_tree(local.path)
        with Mounted(f"https://me:{SECRET}@{at}?token={SECRET}", extra=[
                "--ca-file", pem, "--log-level", "debug", "--index-cache", kept[0],
                "--cache-dir", kept[1], "--cache", "on"]) as mount:
            with tap.test("a model by its index is shown as that on disk"):
                mount.demand_tree(expected)
            asked = content(os.path.join(trial.directory, "s3", ".requests")).decode()
            tap.ok(f"?token={SECRET}" in asked, "the server is told what is secret", asked)
            found = secrets_seen.found(mount, SECRET, *kept)
            tap.ok(not found, "and nobody else is", repr(found))


def test_doctor(tap, trial):
    """`ls` of an address gets what is secret in it."""
    write_model(os.path.join(trial.directory, "s3", "bucket", "ill"),
                Job(os.path.join(trial.directory, "ill")).records(0, 1, 10))
    with Server(os.path.join(trial.directory, "s3")) as server:
        got = run("doctor", f"http://me:{SECRET}@127.0.0.1:{server.port}/bucket/ill"
                  f"?token={SECRET}")
        asked = content(os.path.join(trial.directory, "s3", ".requests")).decode()
    told = [line for line in asked.splitlines() if "bucket/ill/" in line]
    tap.ok(told and all(f"?token={SECRET}" in line for line in told) and "in 2 parts" in got.out and
           SECRET not in got.out + got.err, "doctor of an address with a password",
           repr((got, told)))


def test_neighbours(tap, trial):
    """An address that begins with the letters of another one is not below it."""
    bucket = os.path.join(trial.directory, "s3", "bucket")
    for i, name in enumerate(("near", "near-7")):
        write_model(os.path.join(bucket, name),
                    Job(os.path.join(trial.directory, name)).records(0, i, 10))
        write(os.path.join(bucket, name, "generation_config.json"), name.encode())
    for source, files in ("near", "near-7"), ("near-7", "near"):
        with tap.test(f"{source} with the files of {files}"), \
                Mounted(os.path.join(bucket, source), extra=["--format", "hf"]) as local, \
                Mounted(f"s3://bucket/{source}", extra=[
                    "--format", "hf", "--model-files", f"s3://bucket/{files}"]) as mount:
            name = "generation_config.json"
            expected, found = hash_tree(local.path), hash_tree(mount.path)
            check(content(os.path.join(mount.path, name)) == files.encode(), found)
            expected.pop(name)
            found.pop(name)
            check(expected == found and found, found)


def test_convert_check(tap, trial):
    """It reads the model's config.json where a mount reads it."""
    model = os.path.join(os.path.dirname(LIB), "data", "weights", "models", "llama")
    shutil.copytree(model, os.path.join(trial.directory, "s3", "bucket", "llama"))
    with tap.test("convert check auto takes the config.json of the address"):
        with Server(os.path.join(trial.directory, "s3")) as server:
            local = run("convert", "check", "auto", model)
            got = run("convert", "check", "auto",
                      f"http://127.0.0.1:{server.port}/bucket/llama")
        check(got.status == local.status == GOOD and got.out == local.out, (got, local))


def test_arguments(tap, trial):
    """Who lists processes sees no secret, whichever argument has it."""
    for words in (["ls"], ["strategy", "check", "--src-strategy", "none",
                           trial.job.strategy, "--checkpoint"]):
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = f"http://me:{SECRET}@127.0.0.1:{server.getsockname()[1]}/a?t={SECRET}"
            with subprocess.Popen([reshardfs_program(), *words, address],
                                  stderr=subprocess.PIPE) as program:
                with server.accept()[0] as connection:
                    asked = connection.recv(65536)
                    listed = content(f"/proc/{program.pid}/cmdline")
                    program.terminate()
                    said = program.stderr.read()
        secret = SECRET.encode()
        tap.ok(b"127.0.0.1" in listed and secret not in listed + said,
               f"{words[0]}: no list of processes has a secret", repr((listed, said)))
        tap.ok(b"t=" + secret in asked and base64.b64encode(b"me:" + secret) in asked,
               f"{words[0]}: and the server does", repr(asked))


def test_environment(tap, trial):
    """The same command means another mount if the environment means another server."""
    other = os.path.join(trial.directory, "other")
    place = os.path.join(trial.directory, "mnt")
    config = os.path.join(trial.directory, "config")
    roots = (trial.server.root, other)
    for i, root in enumerate(roots):
        write_model(os.path.join(root, "bucket", "same"),
                    {"w": Record((8,), "Int8", bytes([i]) * 8)})
    os.mkdir(place)

    def mount(given, changed):
        """What is said, and the last byte that the mount then shows."""
        said = run_program("mount", "--dst-strategy", "none", "--format", "safetensors", given,
                           place, env={**os.environ, "no_proxy": "127.0.0.1", **changed}).err
        told = content(os.path.join(place, ".reshardfs", "config"))
        check(SECRET.encode() not in told and json.loads(told)["shown"], told)
        return said, content(os.path.join(place, "rank_0", "checkpoint_0.safetensors"))[-1]

    with Server(other) as server:
        here, there = (f"http://127.0.0.1:{s.port}" for s in (trial.server, server))
        write(config, f"[profile p]\nendpoint_url = {there}\n".encode())
        bucket, web = "s3://bucket/same", here + "/bucket/same"
        for what, first, then, changed, byte in (
                ("AWS_ENDPOINT_URL", bucket, bucket, {"AWS_ENDPOINT_URL": there}, 1),
                ("AWS_ENDPOINT_URL_S3", bucket, bucket, {"AWS_ENDPOINT_URL_S3": there}, 1),
                ("AWS_PROFILE", bucket, bucket, {"AWS_CONFIG_FILE": config, "AWS_PROFILE": "p",
                                                 "AWS_ENDPOINT_URL": ""}, 1),
                ("AWS_ACCESS_KEY_ID", bucket, bucket, {"AWS_ACCESS_KEY_ID": "another"}, 0),
                ("http_proxy", web, web, {"http_proxy": there, "no_proxy": ""}, 1),
                ("a query", web + "?t=1" + SECRET, web + "?t=2" + SECRET, {}, 0),
                ("a user", web.replace("//", f"//a:{SECRET}@"), web.replace("//", "//b@"), {}, 0)):
            got = [mount(*how) for how in ((first, {}), (then, changed), (first, {}))
                   for _ in range(2)]
            tap.ok([b for _, b in got] == [0, 0, byte, byte, 0, 0] and
                   all(("same options" in said) == i % 2 for i, (said, _) in enumerate(got)),
                   f"{what} tells mounts apart", repr(got))
            for _ in range(3):
                check(run_program("umount", place).status == GOOD, what)


class Silent(http.server.BaseHTTPRequestHandler):
    """Ranges of one file, and nothing that tells it from a later one."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        data = self.server.files.get(self.path)
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        self.send_response_only(404 if data is None else 206 if asked else 200)
        whole = data = data or b""
        if asked and whole:
            first, last = int(asked[1]), min(int(asked[2]), len(whole) - 1)
            data = whole[first:last + 1]
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(whole)}")
        for name, value in self.server.more.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def test_unseen(tap, trial):
    """What no ETag and no time distinguishes from a later file is not kept."""
    kept = ["--cache-dir", os.path.join(trial.directory, "blocks"), "--cache=on",
            "--index-cache", os.path.join(trial.directory, "indexes")]
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Silent)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/m"
    server.files, server.more = {"/m/config.json": b"{}"}, {}

    def exported(a, b, swap=False):
        names = ("b", "a") if swap else ("a", "b")
        server.files["/m/model.safetensors"] = safetensors_bytes({
            names[i]: ("I8", [40000], bytes([k]) * 40000) for i, k in enumerate((a, b))})
        out = os.path.join(trial.directory, "out")
        shutil.rmtree(out, ignore_errors=True)
        got = run("export", *kept, url, out)
        found = values_in(out)
        return got, {name: set(found[name][2]) for name in found}

    try:
        for swap in (False, True):
            first, seen = exported(1, 2)
            tap.equal(seen, {"a": {1}, "b": {2}}, "a model of such a server")
            then, seen = exported(4, 3, swap)
            tap.equal(seen, {"a": {3}, "b": {4}} if swap else {"a": {4}, "b": {3}},
                      "names that were exchanged" if swap else "the model that replaced it")
        said = (f"{url}/model.safetensors: the server sends neither ETag nor Last-Modified, so it "
                "is not noticed if the file is replaced by another of the same size\n")
        tap.ok(first.err.count(said) == 1 and then.err.count(said) == 1,
               "each says once what is not noticed", first.err)
        with Mounted(url, extra=[*kept, "--log-level", "info"]) as mount:
            tap.ok("the index cache is not used: the server sends neither" in mount.log() and
                   "cached in memory alone, since the server sends neither" in mount.log(),
                   "and that nothing is kept", mount.log())
        for header in ({"ETag": '"1"'}, {"Last-Modified": "Fri, 02 Jan 2026 03:04:05 GMT"}):
            server.more = header
            first, seen = exported(1, 2)
            tap.ok(seen["a"] == {1} and "neither" not in first.err, f"{header} is enough", first.err)
            shutil.rmtree(kept[1])
    finally:
        server.shutdown()
        server.server_close()


if __name__ == "__main__":
    sys.exit(run_trials(test_shown, test_cached, test_layers, test_replaced, test_denied,
                        test_commands, test_said, test_module, test_libraries, test_tls,
                        test_doctor, test_neighbours, test_convert_check, test_arguments,
                        test_environment, test_unseen))
