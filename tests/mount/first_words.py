#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a first command says that cannot succeed: what is wrong and where, and no
cause that is not the true one.  SOURCE is looked at once."""

import contextlib
import os
import subprocess
import sys
import tempfile
import time

LIB = os.path.join(os.environ.get("srcdir", "."), "lib")
TOP = os.path.abspath(os.environ.get("top_srcdir", os.path.join(
    os.environ.get("srcdir", "."), "..")))
sys.path.insert(0, LIB)

import genuine  # noqa: E402
from demands import check, content, write  # noqa: E402
from memcached import free_port  # noqa: E402
from near_s3 import Server, environment  # noqa: E402
from rsh_cli import INPUT, IO, NO, PLAIN, USAGE, demo_tree, end_if_built_without  # noqa: E402
from safetensors_format import safetensors_bytes  # noqa: E402
from rsh_mount import TIMEOUT_SCALE, Tap, require_mount, reshardfs_program  # noqa: E402

QWEN3 = os.path.join(genuine.WEIGHTS, "models", "qwen3")
PEM = os.path.join(os.path.dirname(os.path.abspath(LIB)), "unit", "data", "objects.pem")
PATIENCE = 2  # seconds of --source-timeout
NEEDS = "--src-strategy is missing"


def run(words, env, cwd):
    began = time.monotonic()
    got = subprocess.run(words, env=env, cwd=cwd, capture_output=True, text=True, check=False,
                         stdin=subprocess.DEVNULL, timeout=120 * TIMEOUT_SCALE)
    return got, time.monotonic() - began


# ---- refusals of object storage ----

def always(status, code, more="", **headers):
    return lambda h, path, query: h.refuse(status, code, more, **headers)


def of_objects(status, code):
    """The bucket is listed, but nothing in it can be read."""
    return lambda h, path, query: h.refuse(status, code) if path.strip("/") != "b" else None


PAGE = b"<!DOCTYPE html><html><body>please log in</body></html>"


def page(h, _path, _query):
    h.answer(200, PAGE, Content_Type="text/html; charset=utf-8")
    return True


def page_without_a_type(h, _path, _query):
    h.answer(200, b"\n<HTML><body>please log in</body></HTML>")
    return True


def text(h, _path, _query):
    h.answer(200, b"it works")
    return True


def page_of_objects(h, path, query):
    return page(h, path, query) if path.strip("/") != "b" else None


def connect(h):
    """What a proxy answers that is to connect to a server."""
    h.server.hook(h, h.path, {})


# name: (hook, environment, exit status, words)
REFUSALS = {
    "403": (always(403, "AccessDenied"), {}, IO, ["denies access (HTTP 403 AccessDenied)"]),
    "403 of objects": (of_objects(403, "AccessDenied"), {}, IO,
                       ["/m/", "denies access (HTTP 403 AccessDenied)"]),
    "404": (always(404, "NoSuchBucket"), {}, INPUT, ["no such bucket (HTTP 404"]),
    "412": (of_objects(412, "PreconditionFailed"), {}, IO, [
        "refuses a request without a condition (HTTP 412 PreconditionFailed)"]),
    "501": (always(501, "NotImplemented"), {}, IO, ["HTTP 501 NotImplemented"]),
    "503": (always(503, "SlowDown"), {}, IO, ["no answer in time", "HTTP 503"]),
    "redirect": (always(307, "", Location="https://s3.example.test/x"), {}, IO,
                 ["redirects to https://s3.example.test (HTTP 307)"]),
    "redirect by its text": (
        always(301, "PermanentRedirect", "<Endpoint>b.s3.example.test</Endpoint>"), {}, IO,
        ["redirects to b.s3.example.test (HTTP 301 PermanentRedirect)"]),
    "no listing": (text, {}, IO, [
        "s3://b/m: the listing of the server http://127.0.0.1:",
        " cannot be parsed: is it an S3 server?  AWS_ENDPOINT_URL sets the server"]),
    "page": (page, {}, IO, ["s3://b/m: the server http://127.0.0.1:",
                            " sends a web page, such as one for a login (HTTP 200)",
                            "; AWS_ENDPOINT_URL sets the server"]),
    "page of objects": (page_of_objects, {}, IO, [
        "s3://b/m/model.safetensors.index.json: the server http://127.0.0.1:",
        " sends a web page, such as one for a login (HTTP 200)"]),
    "501 of objects": (of_objects(501, "NotImplemented"), {}, IO, [
        "/model.safetensors.index.json: ", "does not know such requests (HTTP 501 NotImpl"]),
    "region": (always(400, "AuthorizationHeaderMalformed", "<Region>there</Region>"), {}, INPUT,
               ['the bucket is in region "there"; set AWS_REGION']),
    "expired": (always(400, "ExpiredToken"), {}, IO, ["credentials have expired"]),
    "clock": (always(403, "RequestTimeTooSkewed"), {}, IO, ["check this machine's clock"]),
    "archived": (of_objects(403, "InvalidObjectState"), {}, IO, ["has archived this object"]),
    "proxy": (None, {"http_proxy": "http://user:hunter2@127.0.0.1:CLOSED"}, IO,
              ["the proxy http://127.0.0.1:CLOSED cannot be reached"]),
    "proxy's password": (None, {"http_proxy": "http://user:hunter2@127.0.0.1:P407"}, IO,
                         ["the proxy http://127.0.0.1:P407 wants a name and a password (HTTP 407)"
                          "; http_proxy or https_proxy sets the proxy"]),
    "proxy's own": (None, {"http_proxy": "http://127.0.0.1:P503"}, IO,
                    ["(HTTP 503), by the proxy http://127.0.0.1:P503"]),
    "proxy's page": (None, {"http_proxy": "http://127.0.0.1:PPAGE"}, IO,
                     [" sends a web page, such as one for a login (HTTP 200), by the proxy "
                      "http://127.0.0.1:PPAGE; AWS_ENDPOINT_URL sets the server"]),
    "proxy wants a password to connect": (
        "tls", {"https_proxy": "http://u:hunter2@127.0.0.1:P407"}, IO,
        ["the proxy http://127.0.0.1:P407 wants a name and a password (HTTP 407)"]),
    "proxy does not connect": (
        "tls", {"https_proxy": "http://127.0.0.1:P403"}, IO,
        ["s3://b/m: the proxy http://127.0.0.1:P403 does not connect to https://127.0.0.1:",
         " (HTTP 403); http_proxy or https_proxy sets the proxy"]),
    "proxy cannot connect": (
        "tls", {"https_proxy": "http://127.0.0.1:P503"}, IO,
        ["no answer in time", "the proxy http://127.0.0.1:P503 does not connect to https://",
         " (HTTP 503)"]),
    "certificate": ("tls", {}, IO, ["has a certificate that is not trusted: see "]),
    "name": (None, {"AWS_ENDPOINT_URL": "http://no.such.name.invalid"}, IO,
             ["http://no.such.name.invalid cannot be found"]),
    "down": (None, {"AWS_ENDPOINT_URL": "http://127.0.0.1:CLOSED"}, IO,
             ["cannot be reached (Connection refused)"]),
    "no keys": (None, {"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None}, INPUT,
                ["no credentials"]),
}


def commands(directory):
    program, python = [reshardfs_program()], sys.executable
    wait = ["--source-timeout", str(PATIENCE)]
    load = ("import sys, reshardfs\n"
            "try:\n    reshardfs.tensors('s3://b/m', source_timeout='%d')\n"
            "except reshardfs.Error as e:\n    sys.exit('error: %%s' %% e)\n" % PATIENCE)
    mnt, out = os.path.join(directory, "mnt"), os.path.join(directory, "out")
    return {"mount": program + ["mount", *wait, "s3://b/m", mnt],
            "ls": program + ["ls", *wait, "s3://b/m"],
            "plan": program + ["plan", *wait, "s3://b/m"],
            "export": program + ["export", *wait, "s3://b/m", out],
            "Python": [python, "-c", load]}


def refusal(directory, name, table):
    hook, more, status, words = REFUSALS[name]
    files = {f"m/{n}": open(os.path.join(QWEN3, n), "rb").read() for n in os.listdir(QWEN3)}
    tls = hook == "tls"
    with Server(files, None if tls else hook, PEM if tls else None) as server, \
            contextlib.ExitStack() as stack:
        ports = {"CLOSED": free_port()}
        for word, answer in (("P407", always(407, "")), ("P403", always(403, "")),
                             ("P503", always(503, "")), ("PPAGE", page_without_a_type)):
            proxy = stack.enter_context(Server(hook=answer))
            proxy.RequestHandlerClass.do_CONNECT = connect
            ports[word] = proxy.server_port

        def filled(text):
            for word, port in ports.items():
                text = text.replace(word, str(port))
            return text

        more = {k: v and filled(v) for k, v in more.items()}
        env = environment(PLAIN, server.url, directory, PYTHONPATH=os.path.join(TOP, "python"),
                          LIBRESHARD=os.path.join(os.path.dirname(reshardfs_program()), ".libs",
                                                  "libreshard.so.0"))
        env.update({k: v for k, v in more.items() if v is not None})
        for k in [k for k, v in more.items() if v is None]:
            del env[k]
        for command, line in commands(directory).items():
            if command == "Python" and sanitized():
                continue
            got, took = run(line, env, directory)
            said = got.stderr
            table.append(f"{name} | {command} | {got.returncode} | "
                         f"{said.strip().splitlines()[-1] if said.strip() else ''}")
            for word in words:
                check(filled(word) in said, f"{name}: {command}: no {word!r}: {said}")
            check(NEEDS not in said and "damaged" not in said and "hunter2" not in said and
                  "No such file" not in said, f"{name}: {command}: {said}")
            check(got.returncode == (status if command != "Python" else 1),
                  f"{name}: {command}: {got.returncode}: {said}")
            # Once for the look, and once for what the look allows.
            check(took < 2 * PATIENCE + 6 * TIMEOUT_SCALE, f"{name}: {command}: {took:.1f} s")


def rank_files(directory, status, code):
    """What ls says if the bucket is listed, but no object can be read."""
    source, src, dst = demo_tree(directory)
    files = {os.path.relpath(os.path.join(at, n), directory): content(os.path.join(at, n))
             for at, _, names in os.walk(source) for n in names}
    below = os.path.relpath(source, directory)
    with Server(files, of_objects(status, code)) as server:
        env = environment(PLAIN, server.url, directory)
        for words in [], ["--src-strategy", src, "--dst-strategy", dst]:
            got, _ = run([reshardfs_program(), "ls", "--source-timeout", str(PATIENCE), *words,
                          f"s3://b/{below}"], env, directory)
            check(got.returncode == IO and f"(HTTP {status}" in got.stderr and
                  "damaged" not in got.stderr, f"{words}: {got}")


def sanitized():
    return bool(os.environ.get("SANITIZER_FLAGS"))


# ---- commands that people type first ----

def first_commands(d, tree, src):
    """{words: (exit status, sentences)}"""
    def empty(*names):
        path = os.path.join(d, *names)
        os.makedirs(path, exist_ok=True)
        return path

    def file(name, data):
        return os.path.relpath(write(os.path.join(d, name), data), d)

    empty("mnt"), empty("empty"), empty("job", "rank0"), empty("job", "rank1")
    empty("dev", "device_0"), empty("above", "nothing")
    empty("snap", "refs"), empty("snap", "snapshots")
    file("notes/README", b"notes")
    file("empty.pt", b"")
    file("model.gguf", b"GGUF" + bytes(60))
    file("pointer.pt", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n")
    file("text.pth", b"hello")
    os.symlink(os.path.abspath(QWEN3), os.path.join(d, "above", "qwen3"))
    zip_ = b"PK\3\4" + bytes(64)
    for name in ("megatron/mp_rank_00/model_optim_rng.pt", "verl/model_world_size_2_rank_0.pt",
                 "deepspeed/zero_pp_rank_0_mp_rank_00_optim_states.pt",
                 "run/iter_0000100/mp_rank_00/model_optim_rng.pt",
                 "run2/global_step_10/actor/model_world_size_4_rank_0.pt",
                 "run3/global_step100/mp_rank_00_model_states.pt",
                 "run4/pipe/layer_01-model_00-model_states.pt"):
        file(name, zip_)
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"
    page = b"<!DOCTYPE html><html>please log in</html>"
    for name, data in (
            ("lora/adapter_config.json", b"{}"), ("lora/adapter_model.safetensors", b"x"),
            ("lora2/inner/adapter_config.json", b"{}"), ("lora2/inner/adapter_model.bin", zip_),
            ("lfs/model.safetensors", pointer), ("lfs2/pytorch_model.bin", pointer),
            ("lfs3/model.pt", pointer), ("lfs4/one/net.ckpt", pointer),
            ("lfs5/rank_0/net-1_1.ckpt", pointer), ("lfs5/rank_1/net-1_1.ckpt", pointer),
            ("web/model.safetensors", page), ("web2/pytorch_model.bin", page),
            ("web3/net.ckpt", page), ("gguf/model-Q4.gguf", b"GGUF" + bytes(60)),
            ("keras/tf_model.h5", b"\x89HDF\r\n\x1a\n"),
            ("deep/one/two/model.safetensors", b"x"),
            ("part/pytorch_model-00001-of-00002.bin", zip_)):
        file(name, data)
    for number, name in enumerate(("models--me--one", "hub/models--me--one",
                                   "hub2/models--me--two", "hub2/models--me--two")):
        snapshot = empty(name, "snapshots", f"{number}abc")
        for part in os.listdir(QWEN3):
            file(os.path.join(snapshot, part), open(os.path.join(QWEN3, part), "rb").read())
        file(os.path.join(name, "refs", "main"), b"2abc" if number > 1 else b"none")
    deltas = {f"w{k}": ("U8", [2], b"ab") for k in range(2)}
    file("delta/weight_v000012/model.safetensors",
         safetensors_bytes(deltas, dict.fromkeys(deltas, "0f" * 16)))
    rank = "source/rank_0"
    return {
        "mount Qwen/Qwen3-8B mnt": (INPUT, "No such file or directory; it is not a model of the "
                                           "Hugging Face Hub that was downloaded either"),
        "ls Qwen/Qwen3-8B": (INPUT, "models--Qwen--Qwen3-8B): hf download Qwen/Qwen3-8B gets it"),
        "plan meta-llama/Llama-3": (INPUT, "hf download meta-llama/Llama-3 gets it"),
        "mount empty mnt": (INPUT, "the directory is empty"),
        "ls empty": (INPUT, "the directory is empty"),
        "export empty out": (INPUT, "the directory is empty"),
        "mount empty.pt mnt": (INPUT, "empty.pt: the file is empty"),
        "plan empty.pt": (INPUT, "empty.pt: the file is empty"),
        "mount job mnt": (INPUT, "--rank-dir 'rank{rank}'"),
        "ls job": (INPUT, "--rank-dir 'rank{rank}'"),
        "mount dev mnt": (INPUT, "--rank-dir 'device_{rank}'"),
        "mount nowhere mnt": (INPUT, "nowhere: No such file or directory"),
        "mount /no/where mnt": (INPUT, "/no/where: No such file or directory"),
        "ls nowhere": (INPUT, "nowhere: No such file or directory"),
        "mount model.gguf mnt": (INPUT, "this is a GGUF file"),
        "mount pointer.pt mnt": (INPUT, "a pointer of git-lfs"),
        "mount text.pth mnt": (INPUT, "this is a text: SOURCE is the directory"),
        "mount s3a://b/c mnt": (INPUT, "addresses begin with s3://"),
        "mount hf://Qwen/Qwen3 mnt": (INPUT, "addresses begin with s3://"),
        # Only here nothing else is wrong.
        "mount source mnt": (USAGE, NEEDS),
        "plan source": (USAGE, NEEDS),
        "export source out": (USAGE, NEEDS),
        f"mount --src-strategy {src} source mnt": (USAGE, "--dst-strategy is missing"),
        f"mount {rank} mnt": (INPUT, "source: did you mean that?"),
        # The sandbox of a mount does not see what is above.
        f"mount --src-strategy {src} --dst-strategy none {rank} mnt":
            (INPUT, "/source: did you mean that?"),
        "mount notes mnt": (INPUT, "notes: no rank_N directory in it, nor another kind of "
                                   "checkpoint (man reshardfs-sources)"),
        f"ls {rank}/": (INPUT, "it is one rank of source: did you mean that?"),
        "mount above mnt": (INPUT, "qwen3 in it is a checkpoint: did you mean that?"),
        # What is above another directory is another checkpoint; and a mount needs a place.
        "mount above/nothing mnt": (INPUT, "the directory is empty"),
        "mount above/qwen3/onnx mnt": (INPUT, "onnx: No such file or directory"),
        # A slice is no model.
        "mount megatron mnt": (INPUT, "mp_rank_00/model_optim_rng.pt: damaged"),
        "ls megatron/mp_rank_00": (INPUT, "model_optim_rng.pt is one rank's slice of a model, as "
                                           "Megatron writes them: SOURCE is the directory"),
        "plan verl": (INPUT, "verl/model_world_size_2_rank_0.pt: damaged"),
        "plan deepspeed": (INPUT, "zero_pp_rank_0_mp_rank_00_optim_states.pt is one rank's"),
        "mount run mnt": (INPUT, "iter_0000100/mp_rank_00/model_optim_rng.pt: damaged"),
        "ls run2": (NO, "global_step_10/actor/model_world_size_4_rank_0.pt can be read"),
        "plan run3": (INPUT, "global_step100/mp_rank_00_model_states.pt: damaged"),
        "export run4 out": (INPUT, "pipe/layer_01-model_00-model_states.pt: it is of a pipeline "
                                   "parallel model: convert it with ds_to_universal.py"),
        # What it is, and where.
        "mount lora mnt": (USAGE, "it is an adapter: --lora DIR merges it"),
        "plan lora/adapter_model.safetensors": (INPUT, "it is an adapter: --lora DIR merges it"),
        "ls lora2": (INPUT, "in inner: it is an adapter: --lora DIR merges it"),
        "mount lfs mnt": (INPUT, "lfs/model.safetensors: this is a pointer of git-lfs"),
        "plan lfs2": (INPUT, "lfs2/pytorch_model.bin: this is a pointer of git-lfs"),
        "mount lfs3 mnt": (INPUT, "model.pt is a pointer of git-lfs"),
        "mount lfs5 mnt": (INPUT, "lfs5/rank_0/net-1_1.ckpt: this is a pointer of git-lfs"),
        "plan lfs4": (INPUT, "lfs4/one/net.ckpt: this is a pointer of git-lfs"),
        "export web out": (INPUT, "web/model.safetensors: this is a web page or XML"),
        "ls web2": (INPUT, "web2/pytorch_model.bin: this is a web page or XML"),
        "plan web3": (INPUT, "web3/net.ckpt: this is a web page or XML"),
        "mount gguf mnt": (INPUT, "model-Q4.gguf is a GGUF file"),
        "ls keras": (INPUT, "tf_model.h5 is an HDF5 file"),
        "ls deep": (INPUT, "in one: in two: it is a checkpoint"),
        "plan part": (INPUT, "pytorch_model-00001-of-00002.bin may be a part of a model"),
        "mount delta mnt": (INPUT, "weight_v000012/model.safetensors: the weights are a delta"),
        # The cache of Hugging Face: the snapshot of its branch, or the only one.
        "mount models--me--one mnt": (INPUT, "snapshots/0abc in it is a checkpoint: did you mean"),
        "ls models--me--one/snapshots": (INPUT, "0abc in it is a checkpoint: did you mean that"),
        "plan hub": (INPUT, "models--me--one/snapshots/1abc in it is a checkpoint"),
        "ls hub2": (INPUT, "models--me--two/snapshots/2abc in it is a checkpoint"),
        "ls hub2/models--me--two/snapshots": (INPUT, "2abc in it is a checkpoint: did you mean that"),
        "mount above elsewhere": (INPUT, "qwen3 in it is a checkpoint: did you mean that?"),
        "ls above/qwen3/config.json": (INPUT, "it is in above/qwen3, which is a checkpoint: did you mean"),
    }


def first_command(d, line, status, words):
    got, _ = run([reshardfs_program(), *line.split()], {**PLAIN, "HOME": d}, d)
    check(got.returncode == status and words in got.stderr, f"{line}: {got}")
    check((NEEDS in got.stderr) == (words == NEEDS), f"{line}: {got}")
    check(NEEDS not in got.stderr or "--rank-dir" not in got.stderr, f"{line}: {got}")
    return f"{line} | {got.returncode} | {got.stderr.strip()}"


def main():
    require_mount()
    end_if_built_without("object storage", "ls", "s3://bucket/none")
    tap = Tap()
    show = "--show" in sys.argv
    table = []
    with tempfile.TemporaryDirectory(prefix="reshardfs-first-") as d:
        d = os.path.realpath(d)
        _, src, _ = demo_tree(d)
        for line, (status, words) in first_commands(d, "source", src).items():
            with tap.test(line):
                table.append(first_command(d, line, status, words))
    for name in REFUSALS:
        with tempfile.TemporaryDirectory(prefix="reshardfs-first-") as d:
            os.mkdir(os.path.join(d, "mnt"))
            with tap.test(f"refusal: {name}"):
                refusal(d, name, table)
    for status, code in ((403, "AccessDenied"), (412, "PreconditionFailed"),
                         (501, "NotImplemented"), (503, "SlowDown")):
        with tempfile.TemporaryDirectory(prefix="reshardfs-first-") as d:
            with tap.test(f"rank files that cannot be read: {status}"):
                rank_files(os.path.realpath(d), status, code)
    if show:
        print("\n".join("# " + line.replace("\n", " / ") for line in table))
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
