#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The command line: what it accepts, what it refuses and how it says so.
. "${srcdir:-.}/lib/mount.sh"

make_source

# usage NAME WORD ARGUMENT...: exit status 2, WORD on stderr, nothing mounted.
usage() {
	usage_name=$1
	usage_word=$2
	shift 2
	"$RESHARDFS" "$@" >"$T/stdout" 2>"$T/stderr"
	usage_status=$?
	if [ "$usage_status" = 2 ] && grep -qF -e "$usage_word" "$T/stderr" &&
		[ ! -s "$T/stdout" ] && not_mounted; then
		ok "$usage_name"
	else
		not_ok "$usage_name"
		echo "# exit status $usage_status: $*"
		diag <"$T/stderr"
		is_mounted && fusermount3 -u "$MNT"
	fi
}

# Both strategies, so that a refusal is about the option under test.
both() {
	usage "$1" "$2" mount $(strategies) "$SRC" "$MNT" "$3"
}

usage "nothing given" "command or SOURCE is missing"
usage "no such command" '"mounnt" is not a command' mounnt
usage "no such command, with operands" '"exprot" is not a command' exprot \
	$(strategies) "$SRC" "$T/out"
# The nearest one is named, whatever the slip was and follows it.
for slip in mounnt:mount moutn:mount munt:mount umuont:umount l:"" sl:ls lss:ls \
	plna:plan exprot:export verfiy:verify strat:strategy stragety:strategy \
	wram:warm stat:stats hlep:help zzyzx:""; do
	near=${slip#*:}
	wanted="\"${slip%%:*}\" is not a command"
	[ -z "$near" ] || wanted="$wanted (did you mean $near?)"
	usage "${slip%%:*}: alone" "$wanted" "${slip%%:*}"
	usage "${slip%%:*}: with operands" "$wanted" "${slip%%:*}" a b c
	usage "help ${slip%%:*}" "$wanted" help "${slip%%:*}"
	check "help ${slip%%:*}: where the commands are" \
		grep -qx "Try 'reshardfs --help'." "$T/stderr"
	[ -z "$near" ] || usage "${slip%%:*}: as a mount without a fault" "$wanted" \
		"${slip%%:*}" $(strategies) "$MNT"
done
usage "another program's word" "did you mean ls?" info "$SRC"
usage "a word for reading" "did you mean export?" cat "$SRC"
usage "convert as a command" "\`reshardfs export\` writes a converted checkpoint" \
	convert "$SRC" "$T/out"
usage "no guess where there is nothing near" '"zzyzx" is not a command; to mount it' zzyzx
usage "one topic at a time" "too many operands" help mount ls
(cd "$T" && mkdir mounts && cp -a source/. mounts/)
check "a source that is there is no slip" sh -c "cd '$T' &&
	'$RESHARDFS' $(strategies | xargs) mounts mnt && '$RESHARDFS' umount mnt"

usage "a source that is there is not a command" "not a command; to mount it" "$SRC"
usage "an empty operand" "operand 1 is empty" ls ""
usage "no mount point" MOUNTPOINT mount $(strategies) "$SRC"
both "a third operand" surplus surplus
usage "no source strategy" --src-strategy mount --dst-strategy none "$SRC" "$MNT"
usage "no destination strategy" --dst-strategy mount --src-strategy none "$SRC" "$MNT"
both "unknown long option" --no-such-thing --no-such-thing
both "unknown letter" -x -x
both "unknown -o option" no_such_thing -ono_such_thing
both "unknown -o option among good ones" no_such_thing -oro,no_such_thing,nodev
both "long option without its value" --prefix --prefix
both "long option with a value too many" --foreground --foreground=yes
both "-o option without its value" prefix -oprefix
both "-o option with a value too many" foreground -oforeground=yes
both "rw" rw -orw
both "when to compress" '"on" is not auto or off' --cache-compress=on
both "when to compress, with -o" '"1" is not auto or off' -ocache_compress=1
both "compat with another value" torch --compat=torch
both "unknown log level" loud --log-level=loud
both "prefix with a slash" a/b --prefix=a/b
both "prefix with a leading dot" .hidden --prefix=.hidden
both "prefix with two dots" a..b --prefix=a..b
both "only with no regular expression" 'only: "["' '--only=['
both "drop with no regular expression" 'drop: "("' '--drop=('
both "a fault that is none" '"sometimes" is not KIND' --fault=sometimes
both "max_threads that is no number" many -omax_threads=many
both "max_threads of 0" max_threads -omax_threads=0
both "max_read that is too small" max_read -omax_read=100

"$RESHARDFS" --version >"$T/version" 2>&1
equal "--version succeeds" $? 0
check "--version names the program" grep -qx 'reshardfs [0-9.]*' "$T/version"
check "--version names libfuse" grep -qx 'libfuse [0-9.]*' "$T/version"
# What the build does without is in the manual.
check "--version lists known words" python3 - "$T/version" "$top_srcdir/man/reshardfs.1" <<'END'
import re, sys
said = re.search(r"^without: (.+)$", open(sys.argv[1]).read(), re.M)
manual = open(sys.argv[2]).read().partition(".Sh OLDER SYSTEMS")[2].partition(".Sh ")[0]
words = said[1].split(", ") if said else []
sys.exit([w for w in words if f"\n.It {w}\n" not in manual] != [])
END
check "-V is --version" sh -c "'$RESHARDFS' -V | cmp - '$T/version'"
"$RESHARDFS" --help >"$T/help" 2>&1
equal "--help succeeds" $? 0
check "-h is --help" sh -c "'$RESHARDFS' -h | cmp - '$T/help'"
cp "$T/help" "$T/help.all"
check "--help says how it is called" \
	grep -qx '       reshardfs \[options\] SOURCE MOUNTPOINT' "$T/help"
check "--help lists the commands" grep -q '^  mount  ' "$T/help"
check "and says where messages are explained" \
	grep -qx 'Options: reshardfs COMMAND --help; messages: man reshardfs-troubleshooting' "$T/help"
"$RESHARDFS" mount --help >"$T/help" 2>&1
equal "mount --help succeeds" $? 0
"$RESHARDFS" mount --help-all >"$T/help.mount" 2>&1
equal "mount --help-all succeeds" $? 0
check "and says how it is called" \
	grep -qx 'usage: reshardfs mount \[options\] SOURCE MOUNTPOINT' "$T/help"
check "and where all options are" \
	grep -qx 'All options: reshardfs mount --help-all' "$T/help"
check "--help has the options of all commands" \
	grep -qx 'Options of all commands, also before COMMAND:' "$T/help.all"
usage "a prefix with a slash" "must not contain '/'" mount --prefix=a/b a b
usage "an empty list" "group-info: the value is empty" mount --group-info= a b
usage "neither a rank nor a range" "is not a rank or a range of ranks" plan a 4-
usage "no size" "is not a size such as 5GB" mount --part-size=x a b
usage "more than all memory" '"101%" is more than 100%' mount --cache-size=101% a b
usage "replicas without a strategy" "--remove-redundancy needs a --dst-strategy: without one there are no replicas" \
	mount --remove-redundancy --src-strategy "$T/source.ckpt" --dst-strategy none "$SRC" "$MNT"
usage "ranks beside a strategy" "--dst-ranks needs --src-strategy none and --dst-strategy none; a strategy defines the number of ranks" \
	mount --dst-ranks 2 $(strategies) "$SRC" "$MNT"
usage "no step" "is not newest, mtime, mindspore, EPOCH_STEP, step=N" \
	mount --select=x a b
usage "a control character" "the value contains a control character" \
	mount --prefix="$(printf 'a\tb')" a b
usage "--src-strategy of a check" "--src-strategy needs --checkpoint" \
	strategy check --src-strategy none a
"$RESHARDFS" help | cmp -s - "$T/help.all"
equal "help is --help" $? 0
for command in $(sed -n 's/^  \([a-z]*\)  .*/\1/p' "$T/help.all"); do
	check "help $command is $command --help" sh -c \
		"'$RESHARDFS' help $command >'$T/a' &&
		 '$RESHARDFS' $command --help | cmp - '$T/a'"
done
for option in src-strategy dst-strategy prefix compat foreground debug \
	log-to log-level quiet version help; do
	check "mount --help-all lists --$option" grep -q -e "--$option" "$T/help.mount"
done
for option in src-strategy dst-strategy dst-mesh select format foreground help-all; do
	check "mount --help lists --$option" grep -q -e "--$option" "$T/help"
done
count() {
	grep -cE '^  (-., |    )?-' "$1"
}
check "mount --help tells little" test "$(count "$T/help")" -le 13
check "and --help-all all" test "$(count "$T/help.mount")" -gt 60
check "in sections" sh -c \
	"[ \$(grep -c '^[A-Z].*:\$' '$T/help.mount') -gt 5 ]"
for help in "$T/help" "$T/help.mount"; do
	check "help fits a terminal" sh -c "! grep -E '.{80}| \$' '$help'"
done
for form in show merge check derive infer; do
	"$RESHARDFS" help strategy $form >"$T/a"
	equal "help strategy $form" $? 0
	check "names it" grep -q "^usage: reshardfs strategy $form \[options\] [A-Z]" "$T/a"
	check "strategy $form --help says the same" sh -c \
		"'$RESHARDFS' strategy $form --help | cmp - '$T/a'"
done
refute "strategy show has not what derive has" sh -c \
	"'$RESHARDFS' strategy show --help-all | grep -e --mesh"
check "strategy derive has" sh -c \
	"'$RESHARDFS' strategy derive --help-all | grep -q -e --opt-exclude"
usage "no form of strategy" "expected show, merge" help strategy guess

# ---- what is accepted ----

name_is() {
	equal "$1" "$(cd "$MNT" && echo rank_3/*)" "$2"
}

mount_start $(strategies) || finish
name_is "default prefix" rank_3/checkpoint_3.ckpt
check "device and type in the mount table" grep -q \
	"^$SRC $MNT fuse.reshardfs ro," /proc/self/mounts
check "default_permissions is set" grep -q "$MNT .*default_permissions" \
	/proc/self/mounts
mount_stop

mount_start $(strategies) --prefix net_ || finish
name_is "--prefix" rank_3/net_3.ckpt
mount_stop

mount_start $(strategies) --prefix '' || finish
name_is "--prefix may be empty" rank_3/3.ckpt
mount_stop

# Every long option as an -o option, '_' for '-'; commas escaped.
mkdir "$T/with,comma"
cp "$T/source.ckpt" "$T/with,comma/"
mount_start -o "src_strategy=$T/with\\,comma/source.ckpt,prefix=o_" \
	-o "dst_strategy=$T/wanted.ckpt,log_level=info,foreground" || finish
name_is "-o for everything" rank_3/o_3.ckpt
check "-o log_level" grep -q 'reshardfs: info:' "$LOG"
mount_stop

mount_start $(strategies) -o fsname='a\,b',subtype=other,noatime,nosuid,nodev,noexec,clone_fd,max_threads=3 || finish
check "fsname, subtype and flags of mount(8)" grep -q \
	"^a,b $MNT fuse.other ro,nosuid,nodev,noexec,noatime" /proc/self/mounts
check "such a mount can be read" cmp "$MNT/rank_0/checkpoint_0.ckpt" \
	"$T/expected/rank_0/checkpoint_0.ckpt"
mount_stop

mount_start $(strategies) -o allow_other || finish
check "allow_other" grep -q "$MNT .*allow_other" /proc/self/mounts
mount_stop

mount_start $(strategies) --log-to file:"$T/given.log" --log-level debug || finish
cat "$MNT/rank_0/checkpoint_0.ckpt" >/dev/null
mount_stop
check "--log-to gets the log" grep -q 'debug: read node' "$T/given.log"
equal "and nothing else does" "$(cat "$LOG")" ""
equal "a log file is private" "$(stat -c %a "$T/given.log")" 600

mount_start $(strategies) -d || finish
cat "$MNT/rank_0/checkpoint_0.ckpt" >/dev/null
mount_stop
check "-d logs requests" grep -q 'debug: read node' "$LOG"

# Options may follow operands, and the command's name may be left out.
bare_device=$(device_of "$MNT")
LOG=$T/log.bare
"$RESHARDFS" "$SRC" "$MNT" -f $(strategies) >"$LOG" 2>&1 &
DAEMON=$!
within 60 served_or_dead
name_is "without the word mount" rank_3/checkpoint_3.ckpt
mount_stop
finish
