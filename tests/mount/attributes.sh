#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Names, modes, times, numbers; and that nothing can be written.
. "${srcdir:-.}/lib/mount.sh"

make_source
chmod 0750 "$SRC"
touch -d '2024-05-06 07:08:09.123456789 UTC' "$SRC"/rank_?/*
touch -d '2025-01-02 03:04:05.987654321 UTC' "$SRC"/rank_5/*
touch -d '2023-03-03 03:03:03 UTC' "$SRC"
# Rank 5 is a source of rank 1, by the parameters with an optimizer shard.
chmod 0440 "$SRC"/rank_?/*
mount_start $(strategies) || finish
file=$MNT/rank_1/checkpoint_1.ckpt

equal "the root lists the ranks" "$(ls "$MNT" | tr '\n' ' ')" \
	"rank_0 rank_1 rank_2 rank_3 "
equal "a rank holds one file" "$(ls -A "$MNT/rank_2")" checkpoint_2.ckpt
equal "find sees all" "$(find "$MNT" | wc -l)" 9
equal "type and mode of the root" "$(stat -c %A "$MNT")" drwxr-x---
equal "type and mode of a directory" "$(stat -c %A "$MNT/rank_0")" drwxr-x---
equal "type and mode of a file" "$(stat -c %A "$file")" -r--r-----
equal "owner of a file" "$(stat -c %u:%g "$file")" "$(id -u):$(id -g)"
equal "owner of a directory" "$(stat -c %u:%g "$MNT/rank_1")" "$(id -u):$(id -g)"
equal "links of the root" "$(stat -c %h "$MNT")" 6
equal "links of a directory" "$(stat -c %h "$MNT/rank_1")" 2
equal "links of a file" "$(stat -c %h "$file")" 1
equal "mtime of a file: the newest of its sources" \
	"$(TZ=UTC stat -c %y "$file")" "2025-01-02 03:04:05.987654321 +0000"
equal "the atime is the mtime" "$(stat -c %X "$file")" "$(stat -c %Y "$file")"
check "the ctime is the time of the mount" \
	test "$(stat -c %Z "$file")" -ge "$(($(date +%s) - 300))"
equal "mtime of a directory: that of SOURCE" \
	"$(TZ=UTC stat -c %y "$MNT")" "2023-03-03 03:03:03.000000000 +0000"

size=$(stat -c %s "$file")
equal "size" "$size" "$(stat -c %s "$T/expected/rank_1/checkpoint_1.ckpt")"
equal "blocks agree with the size" "$(stat -c %b "$file")" \
	"$(((size + 511) / 512))"
equal "du agrees with the size" "$(du -k "$file" | cut -f1)" \
	"$(((size + 1023) / 1024))"
check "the block size is a power of two of at least a page" python3 -c '
import os, sys
n = os.stat(sys.argv[1]).st_blksize
assert n >= 4096 and n & (n - 1) == 0, n' "$file"

# Only root, where sysfs can be written, may change it.
bdi=/sys/class/bdi/$(stat -c '%d' "$MNT" | awk '{ print int($1 / 256) ":" $1 % 256 }')/read_ahead_kb
if [ -w "$bdi" ]; then
	equal "the kernel reads ahead 1 MiB" "$(cat "$bdi")" 1024
fi

# Absent names, and directories and files where the other is expected.
refute "no such rank" stat "$MNT/rank_4"
refute "a rank written another way" stat "$MNT/rank_01"
refute "a rank that is no number" stat "$MNT/rank_"
refute "a huge rank" stat "$MNT/rank_4294967296"
refute "another rank's file" stat "$MNT/rank_1/checkpoint_2.ckpt"
refute "a name with more behind it" stat "$MNT/rank_1/checkpoint_1.ckpt~"
refute "a file as a directory" stat "$file/x"
refute "a directory as a file" cat "$MNT/rank_1"

numbers() {
	find "$MNT" -printf '%i %P\n' | sort -k2
}
numbers >"$T/numbers"
equal "numbers differ from node to node" \
	"$(cut -d' ' -f1 "$T/numbers" | sort -u | wc -l)" 9

# df: total is what the files hold, rounded up; nothing is free.
total=0
for rank in 0 1 2 3; do
	total=$((total + $(stat -c %s "$MNT/rank_$rank/checkpoint_$rank.ckpt")))
done
equal "df: size, used, free" \
	"$(df -B1 --output=size,used,avail "$MNT" | tail -1 | tr -s ' ' | sed 's/^ //')" \
	"$(((total + 4095) / 4096 * 4096)) 0 $(((total + 4095) / 4096 * 4096))"
equal "df: inodes" "$(df --output=itotal,iavail "$MNT" | tail -1 | tr -s ' ' | sed 's/^ //')" \
	"9 9"

# Extended attributes of others are not there, which is no error for who copies.
check "no extended attributes but our own" python3 - "$MNT" "$file" <<'PY'
import errno, os, sys
for path in sys.argv[1:]:
    assert all(n.startswith("user.reshardfs.") for n in os.listxattr(path))
    for name in ("user.x", "security.capability", "user.reshardfs.x"):
        try:
            raise AssertionError(os.getxattr(path, name))
        except OSError as e:
            assert e.errno == errno.ENODATA, e
PY

# ---- nothing can be written ----

cat >"$T/refused.py" <<'PY'
"""Every system call that writes must fail with EROFS."""
import errno, os, stat, sys

root, file = sys.argv[1:]
directory = os.path.dirname(file)
new = os.path.join(directory, "new")
calls = {
    "open for writing": lambda: os.open(file, os.O_WRONLY),
    "open for both": lambda: os.open(file, os.O_RDWR),
    "open to truncate": lambda: os.open(file, os.O_RDONLY | os.O_TRUNC),
    "open to append": lambda: os.open(file, os.O_WRONLY | os.O_APPEND),
    "create": lambda: os.open(new, os.O_WRONLY | os.O_CREAT, 0o600),
    "create in the root": lambda: os.open(root + "/new", os.O_CREAT, 0o600),
    "temporary file": lambda: os.open(directory, os.O_TMPFILE | os.O_RDWR),
    "mknod": lambda: os.mknod(new, stat.S_IFREG | 0o600),
    "mkfifo": lambda: os.mkfifo(new),
    "mkdir": lambda: os.mkdir(new),
    "rmdir": lambda: os.rmdir(directory),
    "unlink": lambda: os.unlink(file),
    "rename": lambda: os.rename(file, new),
    "rename a directory": lambda: os.rename(directory, root + "/new"),
    "link": lambda: os.link(file, new),
    "symlink": lambda: os.symlink("x", new),
    "truncate": lambda: os.truncate(file, 0),
    "chmod": lambda: os.chmod(file, 0o600),
    "chmod a directory": lambda: os.chmod(directory, 0o700),
    "chown": lambda: os.chown(file, 1, 1),
    "utime": lambda: os.utime(file, (1, 1)),
    "setxattr": lambda: os.setxattr(file, "user.x", b"y"),
    "removexattr": lambda: os.removexattr(file, "user.x"),
}
# What a mount without the kernel's own `ro` answers by other rules.
if os.statvfs(root).f_flag & os.ST_RDONLY == 0:
    del calls["temporary file"]  # ENOTSUP: FUSE has no request for us
bad = 0
for name, call in calls.items():
    try:
        call()
        print(f"{name}: done!")
        bad += 1
    except OSError as e:
        if e.errno != errno.EROFS:
            print(f"{name}: {e}")
            bad += 1
print(f"{len(calls)} calls")
sys.exit(bad != 0 or len(calls) < 20)
PY
check "every call that writes gets EROFS" python3 "$T/refused.py" "$MNT" "$file"
check "access(2) says that it cannot be written" python3 -c '
import os, sys
assert os.access(sys.argv[1], os.R_OK) and not os.access(sys.argv[1], os.W_OK)' "$file"
if [ "$(id -u)" = 0 ] && mount -i -o remount,rw "$MNT" 2>"$T/remount"; then
	check "also after root has remounted it rw" python3 "$T/refused.py" \
		"$MNT" "$file"
else
	skip "also after root has remounted it rw" "cannot remount"
fi
mount_stop

mount_start $(strategies) || finish
numbers >"$T/numbers2"
check "numbers are the same in the next mount" cmp "$T/numbers" "$T/numbers2"
mount_stop

# A server of NFS has handles of nodes that the kernel has forgotten.  Here the kernel has
# only seen rank 0, whose handle tells what those of the others are.
cat >"$T/handles.py" <<'PY'
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
mount, numbers, expected = sys.argv[1:]

class Handle(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint), ("kind", ctypes.c_int), ("bytes", ctypes.c_ubyte * 128)]

def opened(handle, how):
    fd = libc.open_by_handle_at(at, ctypes.byref(handle), how)
    if fd < 0:
        raise OSError(ctypes.get_errno(), "open_by_handle_at")
    return fd

of = {name.strip(): int(n) for n, _, name in (x.partition(" ") for x in open(numbers))}
at = os.open(mount, os.O_RDONLY)
handle, seen = Handle(size=128), ctypes.c_int()
name = "rank_0/checkpoint_0.ckpt"
if libc.name_to_handle_at(at, name.encode(), ctypes.byref(handle), ctypes.byref(seen), 0):
    raise OSError(ctypes.get_errno(), "name_to_handle_at")
# The kernel has the number of the node as two halves, the upper one first.
def halves(n):
    return (n >> 32).to_bytes(4, sys.byteorder) + (n & 0xffffffff).to_bytes(4, sys.byteorder)
assert bytes(handle.bytes[:8]) == halves(of[name]), bytes(handle.bytes[:handle.size])
for name in "rank_1/checkpoint_1.ckpt", "rank_2", "rank_3/checkpoint_3.ckpt":
    handle.bytes[:8] = halves(of[name])
    fd = opened(handle, os.O_RDONLY)
    assert os.fstat(fd).st_ino == of[name], name
    if name.endswith(".ckpt"):
        with open(fd, "rb") as f, open(os.path.join(expected, name), "rb") as g:
            assert f.read() == g.read(), name
    else:
        assert os.listdir(fd) == ["checkpoint_2.ckpt"], os.listdir(fd)
        above = os.open("..", os.O_RDONLY, dir_fd=fd)
        assert os.fstat(above).st_ino == os.fstat(at).st_ino, "the directory above"
handle.bytes[:8] = halves(max(of.values()) + 1000)
try:
    opened(handle, os.O_RDONLY)
    sys.exit("a node that is not there was opened")
except OSError as e:
    assert e.errno == 116, e  # ESTALE
PY
# A capability is needed for that, which containers do not have.
if [ $((0x$(sed -n 's/^CapEff:\t*//p' /proc/self/status) & 4)) = 0 ]; then
	skip "nodes are found by their handles" "no handle can be opened"
else
	mount_start $(strategies) || finish
	check "nodes are found by their handles" \
		python3 "$T/handles.py" "$MNT" "$T/numbers" "$T/expected"
	mount_stop
fi

# One source that not everybody may read takes the bit from what needs it.
chmod 0755 "$SRC"
chmod 0444 "$SRC"/rank_?/*
chmod 0400 "$SRC"/rank_6/*
mount_start --src-strategy "$T/source.ckpt" --dst-strategy none || finish
equal "modes are those common to the sources" \
	"$(stat -c %a "$MNT/rank_0/checkpoint_0.ckpt")" 400
mount_stop
chmod 0644 "$SRC"/rank_?/*
mount_start --src-strategy "$T/source.ckpt" --dst-strategy none || finish
equal "write bits are dropped" "$(stat -c %a "$MNT/rank_0/checkpoint_0.ckpt")" 444
mount_stop
finish
