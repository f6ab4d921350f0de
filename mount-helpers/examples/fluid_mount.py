#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The command of a FUSE pod of Fluid's ThinRuntime (fluid.yaml).

    fluid_mount.py [CONFIG]        (/etc/fluid/config/config.json)

The first mount of the Dataset is the source: an address of s3:// or https://, or local://
and a path that the pod has.  Its options are those of `reshardfs mount`; one without a value
has "".  It is mounted at targetPath, in the foreground.
"""

import json
import os
import sys

CONFIG = "/etc/fluid/config/config.json"


def command_of(config):
    mount = config["mounts"][0]
    source = mount["mountPoint"]
    source = source[len("local://"):] if source.startswith("local://") else source
    options = [f"--{name}" + (f"={value}" if value else "")
               for name, value in sorted(mount.get("options", {}).items())]
    return ["reshardfs", "mount", "--foreground", "-o", "allow_other", *options, source,
            config["targetPath"]]


def main():
    if len(sys.argv) > 2 or sys.argv[1:2] == ["--help"]:
        sys.exit(__doc__)
    path = sys.argv[1] if len(sys.argv) > 1 else CONFIG
    try:
        with open(path, encoding="utf-8") as f:
            command = command_of(json.load(f))
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError) as e:
        sys.exit(f"fluid_mount.py: {path}: {type(e).__name__}: {e}")
    os.makedirs(command[-1], exist_ok=True)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
