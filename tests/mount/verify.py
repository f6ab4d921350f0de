#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reshardfs verify`: every fault that is made is found, with its place.

Trees come from make_tree.py and small_job.py, manifests from `export` and from
`verify`, and are held against files, mounts and sources.
"""

import json
import os
import random
import shutil
import sys
import zlib

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

from demands import check, content, flip, write  # noqa: E402
from genuine import checkpoint2, dcp  # noqa: E402
from ms_formats import (Layout, Record, StageFile, checkpoint_bytes,  # noqa: E402
                        strategy_bytes)
from random_jobs import write_strategy  # noqa: E402
from rsh_cli import (GOOD, INPUT, NO, USAGE, demo_tree, good, refused, run, run_json,  # noqa: E402
                     run_on_terminal)
from rsh_mount import Mounted, Tests, require_mount  # noqa: E402
from safetensors_format import safetensors_bytes  # noqa: E402
from small_job import Job  # noqa: E402

MANIFEST = "reshardfs-manifest.jsonl"


class Place:
    def __init__(self, directory):
        self.directory = directory

    def path(self, *names):
        return os.path.join(self.directory, *names)

    def demo(self):
        source, src, dst = demo_tree(self.directory)
        return source, self.path("expected"), ["--src-strategy", src, "--dst-strategy", dst]

    def exported(self):
        source, _, words = self.demo()
        out = self.path("out")
        check(run("export", source, out, *words).status == GOOD, "export")
        return source, out, os.path.join(out, MANIFEST), words

    def job(self, **options):
        job = Job(self.path("job"))
        job.save(1, 1, **options)
        return job


def only_problem(said, **wanted):
    check(not said["good"] and len(said["problems"]) == 1, said)
    problem = said["problems"][0]
    for key, value in wanted.items():
        found = problem[key]
        check(value in found if key == "what" else found == value, (key, value, problem))


def records_of(manifest, path):
    with open(manifest, encoding="utf-8") as f:
        for line in map(json.loads, f):
            if line.get("file") == path:
                return line["records"]
    raise AssertionError(f"{path} is not in {manifest}")


# ---- a source ----

def a_healthy_source(p):
    job = p.job(crc=True)
    said = run_json("verify", job.source)
    check(said["good"] and said["files"] == 8 and said["replicas"] == 0, said)
    check(said["step"] == "epoch 1 step 1" and said["problems"] == [], said)
    # Of four slices two copies each, of two parameters; of the third eight.
    said = run_json("verify", job.source, "--src-strategy", job.strategy)
    check(said["good"] and said["replicas"] == 4 + 4 + 7, said)
    check(run_json("verify", job.source, "--src-strategy", job.strategy, "--dst-strategy",
                   job.strategy)["good"], "with both")


def a_bit_under_a_crc(p):
    job = p.job(crc=True)
    path = job.path(3, "net-1_1.ckpt")
    flip(path, os.path.getsize(path) // 2)
    only_problem(run_json("verify", job.source, status=NO), path=path, what="CRC")


def a_cut_file(p):
    job = p.job()
    path = job.path(5, "net-1_1.ckpt")
    os.truncate(path, os.path.getsize(path) - 3)
    only_problem(run_json("verify", job.source, status=NO), path=path)
    got = run("verify", job.source)
    check(got.status == NO and path in got.out and "1 problem" in got.out and not got.err, got)


def a_file_without_crc_among_others(p):
    job = p.job(crc=True)
    path = write(job.path(2, "net-1_1.ckpt"), job.file_bytes(2, 1, 1))
    only_problem(run_json("verify", job.source, status=NO), path=path, what="no CRC")


def last_line(*words, status=GOOD):
    """What the last line says after the figures."""
    got = run("verify", *words)
    check(got.status == status and not got.err, got)
    return got.out.splitlines()[-1].partition(", checked in ")[2].partition(": ")[2]


def what_was_compared(p):
    """The last line says it, and good is nothing that was compared with nothing."""
    source, out, manifest, words = p.exported()
    only = "headers and sizes only, which is all that can be compared: no problem found"
    check(last_line(source) == only, "nothing to compare")
    check(run_json("verify", source)["compared"] == [
        "headers and sizes only, which is all that can be compared"], "as JSON")
    for operands in ([out], [manifest], [manifest, out], [out, manifest], [out + "/"]):
        check(last_line(*operands) == "4 files against their manifest: good", operands)
    check(last_line(source, out, *words) == "4 files against what a mount shows: good", "a tree")
    check(last_line(source, manifest, *words) ==
          "what a mount shows of 4 files against the manifest: good", "the plan")
    check(last_line(out, "--src-strategy", words[3]) == "4 files against their manifest, "
          "17 slices of 4 ranks against each other: good", "both")
    job = p.job(crc=True)
    check(last_line(job.source) == "8 files against their CRC: good", "CRC")
    check(last_line(job.source, "--src-strategy", job.strategy) == "8 files against their CRC, "
          "15 slices of 8 ranks against each other: good", "CRC and ranks")
    said = run_json("verify", job.source, "--src-strategy", job.strategy)
    check(said["by_crc"] == said["ranks"] == 8 and said["replicas"] == 15 and
          said["uncompared"] == 0 and said["compared"] == [
              "8 files against their CRC", "15 slices of 8 ranks against each other"], said)
    job.save(1, 1)
    got = last_line(job.source, "--src-strategy", job.strategy)
    check(got.startswith("15 slices of 8 ranks against each other") and
          got.endswith(": good") == (run_json("verify", job.source, "--src-strategy",
                                              job.strategy)["uncompared"] == 0), got)
    got = run("verify", job.source)
    check("note: replicas were not compared: this needs --src-strategy" in got.out, got)


def a_directory_by_its_manifest(p):
    """A lost file, a flipped byte and a file too many, wherever the tree lies now."""
    source, out, manifest, words = p.exported()
    moved = p.path("moved", "here")
    os.mkdir(p.path("moved"))
    shutil.move(out, moved)
    check(run_json("verify", moved)["by_manifest"] == 4, "moved")
    path = os.path.join(moved, "rank_1/checkpoint_1.ckpt")
    record = records_of(os.path.join(moved, MANIFEST), "rank_1/checkpoint_1.ckpt")[3]
    flip(path, record["offset"] + 50)
    only_problem(run_json("verify", moved, status=NO), path=path, record=record["name"],
                 offset=record["offset"])
    flip(path, record["offset"] + 50)
    for name in ("config.json", "rank_0/.hidden", "rank_3/checkpoint_4.ckpt"):
        more = write(os.path.join(moved, name), b"")
        only_problem(run_json("verify", moved, status=NO), path=more,
                     what="is not in the manifest")
        os.remove(more)
    write(os.path.join(moved, "rank_0!/a"), b"")
    only_problem(run_json("verify", moved, status=NO), path=os.path.join(moved, "rank_0!"),
                 what="directory")
    shutil.rmtree(os.path.join(moved, "rank_0!"))
    os.mkdir(os.path.join(moved, "empty"))
    write(os.path.join(moved, ".reshardfs-0.part"), b"of an export that was killed")
    check(run_json("verify", moved)["good"], "neither is a file of a tree")
    # Options that speak of a source ask more, after the manifest.
    words = ["--src-strategy", words[3]]
    said = run_json("verify", moved, *words)
    check(said["by_manifest"] == 4 and said["replicas"] == 17 and said["step"], said)
    os.remove(path)
    for more in ([], words, ["--select=newest"]):
        only_problem(run_json("verify", moved, *more, status=NO), path=path, what="missing")
    write(os.path.join(moved, MANIFEST), b"not a manifest\n")
    refused(run("verify", moved), INPUT, MANIFEST, "not a reshardfs manifest")
    refused(run("verify", manifest.replace(out, moved), "--select=newest"), USAGE, "--select",
            "manifest")


def a_manifest_of_a_part(p):
    """What it does not have is told and not called good."""
    source, _, words = p.demo()
    out = p.path("out")
    check(run("export", source, out, *words, "1-2").status == GOOD, "export")
    write(os.path.join(out, "rank_0/more"), b"")
    got = run("verify", out)
    check(got.status == GOOD and got.out.splitlines()[0].startswith(
        "note: the manifest has 2 of the 4 files of its tree; 1 other"), got)
    said = run_json("verify", out)
    check(said["files"] == 2 and said["unlisted"] == 1, said)


def whole_copies_that_differ(p):
    """Ranks of a source that is not sharded hold the same."""
    job = p.job()
    for rank in range(1, 8):
        shutil.copyfile(job.path(0, "net-1_1.ckpt"), job.path(rank, "net-1_1.ckpt"))
    n = len(job.records(0, 1, 1))
    for words in ([], ["--dst-strategy=none"]):
        words = ["verify", job.source, "--src-strategy=none", *words]
        said = run_json(*words)
        check(said["good"] and said["ranks"] == 8 and said["replicas"] == 7 * n and
              said["uncompared"] == 0, said)
        check(last_line(*words[1:]) == f"{7 * n} slices of 8 ranks against each other: good",
              "the last line")
        place = content(job.path(6, "net-1_1.ckpt")).index(
            job.records(0, 1, 1)["down.weight"].content) + 9
        flip(job.path(6, "net-1_1.ckpt"), place)
        only_problem(run_json(*words, status=NO), path=job.path(6, "net-1_1.ckpt"),
                     record="down.weight", offset=place, what=job.path(0, "net-1_1.ckpt"))
        flip(job.path(6, "net-1_1.ckpt"), place)
    other = checkpoint_bytes({"down.weight": Record((2,), "Float32", bytes(8))})
    write(job.path(3, "net-1_1.ckpt"), other)
    only_problem(run_json("verify", job.source, "--src-strategy=none", status=NO),
                 path=job.path(3, "net-1_1.ckpt"), record="down.weight",
                 what="another type or shape")


def copies_of_a_chunk(p):
    """Ranks of a distributed checkpoint that wrote the same chunk."""
    root = p.path("dcp")
    shutil.copytree(checkpoint2("dcp_dp2tp2_replicas"), root)
    said = run_json("verify", root)
    check(said["good"] and said["replicas"] > 0 and said["ranks"] == 4, said)
    path = os.path.join(root, "_rank2_.safetensors")
    for record in run_json("ls", path)["records"]:
        place = record["offset"] + record["bytes"] - 1
        flip(path, place)
        if record["name"] == "emb.weight":
            only_problem(run_json("verify", root, status=NO), path=path, record=record["name"],
                         offset=place, what="_rank0_.safetensors")
            return
        flip(path, place)
    raise AssertionError("rank 2 has no copy")


def without_crcs(p):
    """torch was told to compute none, which is no damage."""
    root = p.path("nocrc")
    shutil.copytree(dcp("torch-2.15/nocrc"), root)
    got = run("verify", root)
    check(got.status == GOOD and got.out.count("CRC") == 1 and
          got.out.startswith("note: 3 items have no CRC") and
          got.out.endswith(": headers and sizes only, which is all that can be compared: "
                           "no problem found\n"), got)
    said = run_json("verify", root)
    check(said["without_crc"] == 3 and said["by_crc"] == 0 and said["uncompared"] > 0, said)
    got = run("export", "--check=full", root, p.path("out"))
    check(got.status == GOOD and got.err.count("have no CRC") == 1, got)
    # One with CRCs has them for every item, and one that is 0 is wrong.
    shutil.copytree(dcp("torch-2.15/kinds"), p.path("kinds"))
    path = p.path("kinds", "__0_0.distcp")
    data = content(path)
    central = data.index(b"PK\1\2")
    while b"data/0" not in data[central + 46:central + 80] or not any(data[central + 16:central + 20]):
        central = data.index(b"PK\1\2", central + 1)
    with open(path, "r+b") as f:
        f.seek(central + 16)
        f.write(bytes(4))
    only_problem(run_json("verify", p.path("kinds"), status=NO), path=path, what="CRC")


def a_crc_of_safetensors(p):
    """MindSpore's, which stands in the metadata."""
    values = {"a": ("F32", (4,), bytes(range(16))), "b": ("F32", (2,), bytes(range(8)))}
    crc = 0
    for name in sorted(values):
        crc = zlib.crc32(values[name][2], zlib.crc32(name.encode(), crc))
    content = safetensors_bytes(values, {"format": "ms", "crc_num": str(crc)})
    path = write(p.path("s/rank_0/a-1_1.safetensors"), content)
    check(last_line(p.path("s")) == "1 file against its CRC: good", run("verify", p.path("s")))
    flip(path, len(content) - 1)
    only_problem(run_json("verify", p.path("s"), status=NO), path=path)


def directories_that_are_none(p):
    os.mkdir(p.path("empty"))
    refused(run("verify", p.path("empty")), INPUT, "empty")
    write(p.path("notes/a.txt"), b"")
    refused(run("verify", p.path("notes")), INPUT, "notes")


def replicas_that_differ(p):
    """Only comparing finds it: the file is whole and has no CRC."""
    job = p.job()
    place = content(job.path(4, "net-1_1.ckpt")).index(
        job.records(4, 1, 1)["down.weight"].content) + 17
    flip(job.path(4, "net-1_1.ckpt"), place)
    check(run_json("verify", job.source)["good"], "nothing to compare with")
    for words in (["--src-strategy", job.strategy],
                  ["--src-strategy", job.strategy, "--dst-strategy", "none"]):
        only_problem(run_json("verify", job.source, *words, status=NO),
                     path=job.path(4, "net-1_1.ckpt"), record="down.weight", offset=place,
                     what=job.path(0, "net-1_1.ckpt"))


def a_parameter_of_two_stages(p):
    """The ranks of a stage hold the same; what two stages share differs between them."""
    strategy = write_strategy(p.path("strategy"), {
        stage: {"tied.weight": Layout([1], [-1]), f"layers.{stage}.weight": Layout([1], [-1])}
        for stage in (0, 1)})
    words = ["--src-strategy", strategy, "--dst-strategy", "none"]
    content = [random.Random(i).randbytes(64) for i in range(3)]

    def save(tied):
        for rank in (0, 1):
            os.makedirs(p.path("job", f"rank_{rank}"), exist_ok=True)
            path = write(p.path("job", f"rank_{rank}", "net-1_1.ckpt"), checkpoint_bytes({
                "tied.weight": Record((16,), "Float32", tied[rank]),
                f"layers.{rank}.weight": Record((16,), "Float32", content[2])}))
        return path

    save([content[0], content[0]])
    check(run_json("verify", p.path("job"), "--src-strategy", strategy)["good"], "the same")
    check(run("export", p.path("job"), p.path("same"), *words).status == GOOD, "the same")
    path = save([content[0], content[1]])
    only_problem(run_json("verify", p.path("job"), "--src-strategy", strategy, status=NO),
                 path=path, record="tied.weight", what="differs from the same slice of rank 0")
    refused(run("export", p.path("job"), p.path("other"), *words), INPUT, "tied.weight",
            "ranks 0 and 1 of two stages should hold the same slice, but their bytes differ",
            "--check structure")
    check(run("export", p.path("job"), p.path("other"), *words,
              "--check=structure").status == GOOD, "of the first stage")
    for select, said in (("layers", False), (r"layers\.0", True)):
        got = run("export", p.path("job"), p.path(f"only-{said}"), "--check=structure",
                  "--src-strategy", strategy, "--dst-strategy", strategy, "--only", select)
        check(got.status == GOOD and said == ("1 of 2 files have no parameter, since --only and "
                                              "--drop leave none for them" in got.err), got)


def a_source_with_faults(p):
    """What --fault spoils is found as it would be of such a disk."""
    job = p.job(crc=True)
    words = ["verify", job.source, "--src-strategy", job.strategy]
    path = job.path(3, "net-1_1.ckpt")
    place = content(path).index(job.records(3, 1, 1)["up.weight"].content) + 5
    here = f"rank_3/net:{place}-{place + 1}"
    for both in ([], ["--dst-strategy", "none"]):
        only_problem(run_json(*words, *both, f"--fault=eio@{here}", status=NO), path=path,
                     what="Input/output error")
        only_problem(run_json(*words, *both, f"--fault=flip@{here}", status=NO), path=path,
                     what="CRC")
        check(run_json(*words, *both, "--fault=short;delay=1us")["good"], "short reads")
    # Without a CRC only comparing finds it.
    job.save(1, 2)
    only_problem(run_json(*words, f"--fault=flip@{here}", status=NO),
                 path=job.path(7, "net-1_2.ckpt"), record="up.weight", offset=place,
                 what="rank_3/net-1_2.ckpt")


def a_link_that_leads_out(p):
    """Also of a source alone, which is not mounted for it."""
    job = p.job()
    path = job.path(3, "net-1_1.ckpt")
    os.rename(path, p.path("elsewhere.ckpt"))
    os.symlink(p.path("elsewhere.ckpt"), path)
    for words in ([], ["--src-strategy", job.strategy]):
        refused(run("verify", job.source, *words), INPUT, path,
                f"leads out of SOURCE, to {p.path('elsewhere.ckpt')}", "--follow-outside")
        check(run_json("verify", job.source, *words, "--follow-outside")["good"], "allowed")
    # One that stays inside is no matter.
    os.remove(path)
    os.symlink("../rank_7/net-1_1.ckpt", path)
    check(run_json("verify", job.source)["good"], "inside")


def ranks_without_files(p):
    job = p.job()
    words = ["verify", job.source, "--src-strategy", job.strategy]
    shutil.rmtree(os.path.join(job.source, "rank_1"))
    said = run_json(*words)
    check(said["good"] and said["made_up"] == 1, said)
    shutil.rmtree(os.path.join(job.source, "rank_5"))
    said = run_json(*words, status=NO)
    check([q["path"] for q in said["problems"]] == ["rank 1", "rank 5"], said)


def slices_that_valid_files_lack(p):
    job = p.job()
    words = [job.source, "--src-strategy", job.strategy]

    def without(rank, *names):
        records = job.records(rank, 1, 1)
        for name in names:
            del records[name]
        return write(job.path(rank, "net-1_1.ckpt"), checkpoint_bytes(records))

    path = without(1, "up.weight", "norm.gamma")
    check(run_json("verify", *words)["good"], "rank 5 has it")
    check(run_json("ls", *words)["steps"][0]["whole"], "rank 5 has it")
    without(5, "up.weight")
    only_problem(run_json("verify", *words, status=NO), path=path, record="up.weight",
                 what="lacks its slice, which no other file has")
    listed = run_json("ls", *words, status=NO)
    check(not listed["steps"][0]["whole"] and len(listed["tensors"]["list"]) == 5, listed)
    check(f"{path}: it lacks its slice of parameter up.weight, which no other file has" in
          listed["steps"][0]["reason"], listed)
    # Of two ranks the one that has a file.
    os.unlink(path)
    for extra in (["down.weight"], []):
        path = without(5, "up.weight", *extra)
        what = "lacks 2 slices that no other file has" if extra else "lacks its slice"
        only_problem(run_json("verify", *words, status=NO), path=path, what=what)
    # In no file: the job has not saved it.
    for rank in range(8):
        without(rank, "up.weight")
    check(run_json("verify", *words)["good"], "no file has it")
    check(run_json("ls", *words)["steps"][0]["whole"], "no file has it")


def a_map_that_names_what_no_part_has(p):
    parts = [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    weights = {"a": parts[0], "b": parts[1]}
    for name, part in weights.items():
        write(p.path("model", part), safetensors_bytes({name: ("F32", (2,), bytes(8))}))
    at = p.path("model", "model.safetensors.index.json")
    write(at, json.dumps({"weight_map": weights}).encode())
    check(run_json("verify", p.path("model"))["good"], "all is there")
    said = "the map of its parts names 2 parameters that none of them has (y and others)"
    write(at, json.dumps({"weight_map": weights | {"y": parts[0], "z": parts[1]}}).encode())
    only_problem(run_json("verify", p.path("model"), status=NO), path=p.path("model"), what=said)
    got = run("ls", p.path("model"))
    check(got.status == GOOD and f"note: {said}\n" in got.out, got)
    # A damaged part is the only problem.
    os.truncate(p.path("model", parts[1]), 20)
    only_problem(run_json("verify", p.path("model"), status=NO), path=p.path("model", parts[1]))


def the_step_that_a_mount_takes(p):
    job = p.job()
    job.save(2, 7)
    words = ["--src-strategy", job.strategy, "--dst-strategy", job.strategy]
    check(run_json("verify", job.source)["step"] == "epoch 2 step 7", "the newest")
    check(run_json("verify", job.source, "--select=1_1")["step"] == "epoch 1 step 1", "--select")
    for rank in (0, 4):
        os.truncate(job.path(rank, "net-2_7.ckpt"), 10)
    check(run_json("verify", job.source, status=NO)["step"] == "epoch 2 step 7", "by itself")
    said = run_json("verify", job.source, *words)
    check(said["good"] and said["step"] == "epoch 1 step 1", said)


def other_sources(p):
    source, _, words = p.demo()
    good("export", source, p.path("model"), *words[:2], "--dst-strategy=none", "--format=hf",
         "--part-size=5MB")
    said = run_json("verify", p.path("model"))
    check(said["good"] and said["files"] > 1, said)
    part = p.path("model", sorted(n for n in os.listdir(p.path("model")) if n[:2] == "mo")[0])
    os.chmod(part, 0o600)
    os.truncate(part, os.path.getsize(part) - 1)
    only_problem(run_json("verify", p.path("model"), status=NO), path=part)


# ---- a tree by the plan ----

def a_converted_tree(p):
    source, tree, words = p.demo()
    said = run_json("verify", source, tree, *words)
    check(said["good"] and said["files"] == 4, said)
    with Mounted(source, src_strategy=words[1], dst_strategy=words[3]) as m:
        check(run_json("verify", source, m.path, *words)["good"], "a mount")


def a_flipped_byte_in_a_tree(p):
    source, out, manifest, words = p.exported()
    path = os.path.join(out, "rank_2/checkpoint_2.ckpt")
    for record in records_of(manifest, "rank_2/checkpoint_2.ckpt"):
        for place in (record["offset"], record["offset"] + record["bytes"] - 1):
            flip(path, place)
            only_problem(run_json("verify", source, out, *words, status=NO), path=path,
                         record=record["name"], offset=place, what="differs from the plan")
            flip(path, place)
    check(run_json("verify", source, out, *words)["good"], "flipped back")


def all_that_is_wrong_with_a_tree(p):
    source, tree, words = p.demo()
    os.remove(os.path.join(tree, "rank_0/checkpoint_0.ckpt"))
    path = os.path.join(tree, "rank_1/checkpoint_1.ckpt")
    size = os.path.getsize(path)
    os.chmod(path, 0o600)
    os.truncate(path, size - 5)
    with open(os.path.join(tree, "rank_2/checkpoint_2.ckpt"), "ab") as f:
        f.write(b"more")
    os.remove(os.path.join(tree, "rank_3/checkpoint_3.ckpt"))
    os.mkfifo(os.path.join(tree, "rank_3/checkpoint_3.ckpt"))
    said = run_json("verify", source, tree, *words, status=NO)
    whats = [q["what"] for q in said["problems"]]
    check(len(whats) == 4 and "missing" in whats[0] and f"has {size - 5} bytes" in whats[1] and
          f"has {size + 4} bytes" in whats[2] and "Invalid" in whats[3], whats)
    check(said["problems"][1]["offset"] == size - 5, said)
    check(run_json("verify", source, tree, *words, "1-2", status=NO)["files"] == 2, "two ranks")


# ---- manifests ----

def files_by_a_manifest(p):
    _, out, manifest, _ = p.exported()
    path = os.path.join(out, "rank_1/checkpoint_1.ckpt")
    shutil.copytree(out, p.path("copy"))
    for words in ([manifest], [manifest, out], [out, manifest], [manifest, p.path("copy")]):
        said = run_json("verify", *words)
        check(said["good"] and said["files"] == 4 and said["step"] is None, (words, said))
    record = records_of(manifest, "rank_1/checkpoint_1.ckpt")[2]
    flip(path, record["offset"] + record["bytes"] // 2)
    only_problem(run_json("verify", manifest, status=NO), path=path, record=record["name"],
                 offset=record["offset"], what="1 of")
    check(run_json("verify", manifest, p.path("copy"))["good"], "the copy")
    os.remove(path)
    only_problem(run_json("verify", manifest, status=NO), path=path, what="missing")


def a_tree_that_is_not_there(p):
    source, _, manifest, words = p.exported()
    for operands in ([manifest, p.path("nowhere")], [source, p.path("nowhere"), *words]):
        refused(run("verify", *operands), INPUT, "nowhere: No such file or directory")


def a_mount_by_a_manifest(p):
    source, _, manifest, words = p.exported()
    with Mounted(source, src_strategy=words[1], dst_strategy=words[3]) as m:
        check(run_json("verify", manifest, m.path)["good"], "a mount")


def the_sources_by_a_manifest(p):
    source, _, manifest, words = p.exported()
    said = run_json("verify", source, manifest, *words)
    check(said["good"] and said["files"] == 4 and not said["another_conversion"], said)
    folder = os.path.join(source, "rank_3")
    path = os.path.join(folder, os.listdir(folder)[0])
    flip(path, os.path.getsize(path) // 2)
    said = run_json("verify", source, manifest, *words, status=NO)
    check(said["another_conversion"] and all("manifest" in q["what"] for q in said["problems"]),
          said)
    said = run_json("verify", source, manifest, *words, "--prefix=other", status=NO)
    check(all("no such file" in q["what"] for q in said["problems"]), said)


def manifests_that_verify_writes(p):
    source, out, manifest, words = p.exported()

    def files(path):
        with open(path, encoding="utf-8") as f:
            lines = [json.loads(line) for line in f]
        return [{k: v for k, v in line.items() if k != "written"} for line in lines
                if "file" in line]

    for number, operands in enumerate(([source], [source, out])):
        made = p.path(f"made{number}")
        check(run("verify", *operands, *words, "--write-manifest", made).status == GOOD, operands)
        check(files(made) == files(manifest), operands)
        check(run_json("verify", made, out)["good"], "what it wrote")
    mine = write(p.path("mine"), b"not a manifest\n")
    refused(run("verify", source, out, *words, "--write-manifest", mine), INPUT, "mine")
    check(content(mine) == b"not a manifest\n", "it was overwritten")
    refused(run("verify", source, out, *words, "--write-manifest", os.path.join(source, "m")),
            INPUT, "is SOURCE or in it")


def manifests_that_are_none(p):
    _, out, manifest, _ = p.exported()
    with open(manifest, encoding="utf-8") as f:
        lines = f.readlines()
    for name, text, word in (
            ("empty", "", "empty, and not a reshardfs manifest"),
            ("cut", "".join(lines[:-1]), "too early: the export was not finished"),
            ("torn", "".join(lines)[:-40], "not JSON"), ("headless", "".join(lines[1:]), "head"),
            ("twice", "".join(lines[:-1] + [lines[-2]]) + '{"end":"reshardfs","files":5}\n',
             "twice"),
            ("more", "".join(lines + lines[-1:]), "after its end"),
            ("outside", "".join(lines).replace('"rank_1/', '"../'), "below the tree"),
            ("later", lines[0].replace('"version":1', '"version":2'), "version 2"),
            ("noise", "\x00\x01\n", "not a reshardfs manifest")):
        path = write(p.path(name), text.encode())
        refused(run("verify", path, out), INPUT, name, word)
    refused(run("verify", os.path.join(out, "rank_0/checkpoint_0.ckpt")), INPUT,
            "not a reshardfs manifest")


def other_forms(p):
    source, _, words = p.demo()
    for number, more in enumerate((["--format=safetensors"], ["--cast=bfloat16"])):
        out = p.path(f"out{number}")
        check(run("export", source, out, *words, *more).status == GOOD, more)
        check(run_json("verify", source, out, *words, *more)["good"], more)
        check(run_json("verify", os.path.join(out, MANIFEST))["good"], more)
    out = p.path("hf")
    words = [*words[:2], "--dst-strategy=none", "--format=hf", "--part-size=5MB"]
    check(run("export", source, out, *words).status == GOOD, "hf")
    check(run_json("verify", source, out, *words)["good"], "hf")
    check(run_json("verify", source, os.path.join(out, MANIFEST), *words)["good"], "hf")
    path = os.path.join(out, "model.safetensors.index.json")
    flip(path, 30)
    only_problem(run_json("verify", source, out, *words, status=NO), path=path, offset=30)


def names_of_any_bytes(p):
    name = "w\udcff\x1b[31m"
    try:
        content = checkpoint_bytes({"w\x1b[31m": Record((2,), "Float32", bytes(8))})
    except UnicodeError:
        content = None
    check(content, name)
    for rank in range(2):
        write(p.path(f"s/rank_{rank}/a-1_1.ckpt"), content)
    strategy = write(p.path("s.ckpt"), strategy_bytes(StageFile(0, {
        "w\x1b[31m": Layout([2], [-1])})))
    flip(p.path("s/rank_1/a-1_1.ckpt"), len(content) - 1)
    got = run_on_terminal("verify", p.path("s"), "--src-strategy", strategy, "--color=never")
    check(got.status == NO and "\x1b" not in got.out and "\\x1b" in got.out, got)


def wrong_usage(p):
    source, tree, words = p.demo()
    refused(run("verify"), USAGE, "SOURCE or MANIFEST is missing")
    refused(run("verify", source, tree), USAGE, "--src-strategy is missing")
    refused(run("verify", source, tree, *words[:2]), USAGE, "--dst-strategy is missing")
    refused(run("verify", source, "--write-manifest", p.path("m")), USAGE, "--src-strategy")
    refused(run("verify", source, tree, "x", *words), USAGE, "x")
    refused(run("verify", source, tree, "9", *words), INPUT, "rank 9 does not exist")
    refused(run("verify", words[1], tree, *words), USAGE, "--src-strategy needs a SOURCE; ",
            "is compared with a manifest")
    refused(run("verify", words[1], tree, "1"), USAGE, "RANK")
    refused(run("verify", p.path("nowhere")), INPUT, "nowhere")
    got = run("verify", "-q", source)
    check(got.status == GOOD and not got.out and not got.err, got)


CASES = [what_was_compared, a_directory_by_its_manifest, a_manifest_of_a_part,
         whole_copies_that_differ, copies_of_a_chunk, without_crcs, a_crc_of_safetensors,
         directories_that_are_none, a_healthy_source, a_bit_under_a_crc, a_cut_file, a_file_without_crc_among_others,
         replicas_that_differ, a_parameter_of_two_stages, a_source_with_faults, a_link_that_leads_out, ranks_without_files,
         slices_that_valid_files_lack, a_map_that_names_what_no_part_has,
         the_step_that_a_mount_takes, other_sources,
         a_converted_tree, a_flipped_byte_in_a_tree,
         all_that_is_wrong_with_a_tree, files_by_a_manifest, a_tree_that_is_not_there,
         a_mount_by_a_manifest, the_sources_by_a_manifest, manifests_that_verify_writes,
         manifests_that_are_none, other_forms, names_of_any_bytes, wrong_usage]


if __name__ == "__main__":
    require_mount()
    sys.exit(Tests("verify", CASES).run(Place))
