#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Merged and derived strategy files against MindSpore.

Every set of several stages is merged by `strategy merge` and by
merge_pipeline_strategys.  Sets are derived from others of their family by
`strategy derive`: what the file says of each parameter, what
rank_list_for_transform makes of it must be the same as with the set that MindSpore
planned.  The mounts with the derived file, with the planned one, and with --dst-mesh
where the mesh says all, must show what transform_checkpoints converts with the
derived file.
"""

import glob
import os
import shutil
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "lib")]
import genuine_sets  # noqa: E402
import rsh_mount  # noqa: E402
from demands import check  # noqa: E402
from genuine_pairs import whole_names  # noqa: E402
from rsh_cli import good  # noqa: E402
from run_seed import share  # noqa: E402

PREFIX = "checkpoint_"
VOCABULARY = "tok_embeddings|lm_head=0:"

# (source, destination, mesh, optimizer shard or None, further rules)
PAIRS = [
    ("mp8", "dp2mp4", "dp=2,mp=4", None, []),
    ("dp2mp4", "dp6mp4", "dp=6,mp=4", None, []),
    ("dp2mp4", "dp4mp2_opt", "dp=4,mp=2", "-1", []),
    ("pp2dp2mp2_opt", "dp4mp2_opt2", "dp=4,mp=2", "2", []),
    ("dp4mp2_opt", "pp2dp2mp2_opt", "dp=2,mp=2,pp=2", None, []),
    ("pp2dp2mp2", "pp4mp2", "mp=2,pp=4", None, []),
    ("dp2mp4", "pp3mp8", "mp=8,pp=3", None, ["--layers", "2,1,1"]),
    ("dp4mp2_opt2", "infer_mp2", "mp=2", "0", ["--drop", "^adam_"]),
    ("dp8_opt", "dp4", "dp=4", "0", []),
    ("mf_dp2mp4", "mf_dp4mp2_opt", "dp=4,mp=2", "-1",
     ["--opt-exclude", "norm", "--split", VOCABULARY + "mp"]),
    ("mf_dp4mp2_opt", "mf_pp2dp2mp2_opt", "dp=2,mp=2,pp=2", None,
     ["--split", VOCABULARY + "none", "--stage", "^lm_head=last"]),
    ("mf_moe_mp8", "mf_moe_dp4mp2ep4", "dp=4,mp=2,ep=4", None,
     ["--split", "ffn\\.w[123]=0:ep", "--split", VOCABULARY + "mp"]),
    ("mf_qwen3_dp2mp4", "mf_qwen3_dp4mp2_opt", "dp=4,mp=2", "-1", []),
    ("mf_dsv3_dp2mp4ep8", "mf_dsv3_dp4mp2ep2_opt", "dp=4,mp=2,ep=2", "-1", []),
    (None, "dp2mp4", "dp=2,mp=4", None,
     ["--split", "^(head|blocks.*(qkv|up))=0:mp", "--split",
      "blocks.*(proj|down)\\.weight=1:mp"]),
]


def demand_trees(a, b, what):
    lines = rsh_mount.tree_difference(a, b)
    check(not lines, "\n".join([what] + lines))


class Bench:
    """What the tests share: MindSpore and a directory."""

    def __init__(self, work):
        genuine_sets.oracle_environment()
        import mindspore
        from mindspore.parallel import _parallel_serialization
        from mindspore.train import node_strategy_pb2
        self.ms = mindspore
        self.read = _parallel_serialization._build_searched_strategy
        self.pb = node_strategy_pb2
        self.work = work

    def path(self, *names):
        return os.path.join(self.work, *names)

    # ---- merging ----

    def message(self, path):
        message = self.pb.ParallelStrategyMap()
        with open(path, "rb") as f:
            message.ParseFromString(f.read())
        return message

    def merged(self, name):
        """Both merge the same files; MindSpore takes them in any order."""
        directory = genuine_sets.GenuineSet(name, self.work).directory()
        suffix = os.path.splitext(os.listdir(directory)[0])[1]
        theirs, ours = self.path("theirs" + suffix), self.path("ours" + suffix)
        unsorted = glob.glob
        glob.glob = lambda *a, **k: sorted(unsorted(*a, **k))
        try:
            self.ms.merge_pipeline_strategys(directory, theirs)
        finally:
            glob.glob = unsorted
        good("strategy", "merge", directory, "-o", ours)
        if suffix == ".ckpt":
            check(self.message(ours) == self.message(theirs), "the messages differ")
        check(self.read(ours) == self.read(theirs), "MindSpore reads something else")
        with open(ours, "rb") as a, open(theirs, "rb") as b:
            check(a.read() == b.read(), "the bytes differ")

    # ---- deriving ----

    def derived(self, source, destination, mesh, opt, rules):
        shutil.rmtree(self.path("tree"), ignore_errors=True)
        dst = genuine_sets.GenuineSet(destination, self.work)
        if source:
            src = genuine_sets.GenuineSet(source, self.work)
            src.save_sharded(self.path("tree"), 1)
            old = src.file()
        else:
            dst.save_whole(self.path("tree"), 1)
            old = None
        new = self.path("derived.ckpt")
        shard = ["--opt", opt] if opt else []
        good("strategy", "derive", old or "none", "--checkpoint", self.path("tree"),
             "--mesh", mesh, *shard, *rules, "-o", new)
        self._same_content(new, dst)
        self._same_lists(old, new, dst)
        self._same_trees(old, new, dst, mesh if not opt and not rules else None)

    def derived_json(self):
        """What is written as JSON says the same."""
        src = genuine_sets.GenuineSet("dp2mp4_json", self.work)
        new = self.path("derived.json")
        good("strategy", "derive", src.file(), "--mesh", "dp=4,mp=2", "--opt", "-1", "-o", new)
        self._same_content(new, genuine_sets.GenuineSet("dp4mp2_opt", self.work))

    def _same_content(self, new, dst):
        ours, theirs = self.read(new), self.read(dst.file())
        check(set(ours) == set(theirs),
              f"not the same parameters: {sorted(set(ours) ^ set(theirs))[:5]}")
        for name, layout in theirs.items():
            check(ours[name] == layout, f"{name}: {ours[name]}, not {layout}")

    def _same_lists(self, old, new, dst):
        for rank in range(dst.device_count * len(dst.stages)):
            ours = self.ms.rank_list_for_transform(rank, old, new)
            theirs = self.ms.rank_list_for_transform(rank, old, dst.file())
            check(ours == theirs, f"rank {rank}: {ours}, not {theirs}")

    def _same_trees(self, old, new, dst, mesh):
        target = self.path("converted")
        self.ms.transform_checkpoints(self.path("tree"), target, PREFIX, old, new)
        converted = whole_names(rsh_mount.hash_tree(target))
        shutil.rmtree(target)
        demand_trees(converted, self._mount(old, dst.file(), []),
                     "converted with the derived strategy, mounted with the planned one")
        demand_trees(converted, self._mount(old, new, []), "mounted with the derived strategy")
        # It is for those that need not be told more.
        if mesh:
            demand_trees(converted, self._mount_mesh(old, ["--dst-mesh", mesh]),
                         "mounted with --dst-mesh")

    def _mount(self, old, new, words):
        with rsh_mount.Mounted(self.path("tree"), src_strategy=old, dst_strategy=new,
                               extra=words) as mount:
            return rsh_mount.hash_tree(mount.path)

    def _mount_mesh(self, old, words):
        mounted = rsh_mount.Mounted(self.path("tree"), src_strategy=old, extra=words)
        at = mounted.command.index("--dst-strategy")
        del mounted.command[at:at + 2]
        with mounted as mount:
            return rsh_mount.hash_tree(mount.path)


def main():
    rsh_mount.require_oracle()
    rsh_mount.require_mount()
    sets = [name for names in genuine_sets.families().values() for name in names]
    pipelines = [name for name in sets
                 if genuine_sets.GenuineSet(name, "/nonexistent").is_pipeline]
    pipelines, pairs = share(pipelines), share(PAIRS)
    tap = rsh_mount.Tap(len(pipelines) + 1 + len(pairs))
    with tempfile.TemporaryDirectory(prefix="reshardfs-derived-") as work:
        bench = Bench(work)
        for name in pipelines:
            with tap.test(f"merge {name}"):
                bench.merged(name)
        with tap.test("derive a JSON file"):
            bench.derived_json()
        for pair in pairs:
            with tap.test(f"derive {pair[0] or 'none'} -> {pair[1]}"):
                bench.derived(*pair)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
