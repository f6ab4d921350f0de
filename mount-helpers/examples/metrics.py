#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the metrics of all mounts of this user where Prometheus finds them: into the
directory of node_exporter's textfile collector.

    metrics.py DIRECTORY           each minute, from cron or a systemd timer

A mount that does not answer has only reshardfs_mount_ready, which is 0.
"""

import json
import os
import re
import subprocess
import sys

READY = "reshardfs_mount_ready"


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    mounts = json.loads(subprocess.check_output(["reshardfs", "list", "--json"]))["mounts"]
    heads = {READY: [f"# HELP {READY} Whether the mount answers.", f"# TYPE {READY} gauge"]}
    samples = {READY: []}
    for mount in mounts:
        where = mount["mountpoint"].replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        label = f'mountpoint="{where}"'
        ready = mount["state"] == "ready"
        samples[READY].append(f"{READY}{{{label}}} {int(ready)}")
        if not ready:
            continue
        with open(os.path.join(mount["mountpoint"], ".reshardfs", "metrics"),
                  encoding="utf-8") as f:
            for line in f.read().splitlines():
                head = re.match(r"# (?:HELP|TYPE) (\w+)", line)
                if head:
                    known = heads.setdefault(head[1], [])
                    if line not in known:
                        known.append(line)
                    continue
                name, labels, value = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line).groups()
                both = f"{label},{labels}" if labels else label
                samples.setdefault(name, []).append(f"{name}{{{both}}} {value}")
    path = os.path.join(sys.argv[1], "reshardfs.prom")
    with open(path + ".new", "w", encoding="utf-8") as f:
        for name, lines in samples.items():
            f.write("\n".join([*heads[name], *lines, ""]))
    # The collector never sees half of it.
    os.rename(path + ".new", path)


if __name__ == "__main__":
    main()
