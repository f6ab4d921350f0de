# SPDX-License-Identifier: Apache-2.0
# A fresh Debian or Ubuntu, with nothing in it but what every one of them has and ccache,
# to show that what we say is needed is all that is needed: for tests/fresh/*.sh and
# tests/package.sh.
#
# Expects $top, the source directory, and takes the release from $fresh_suite: Debian 12
# unless it is set.  The base system is kept for the next time, and packages that were
# downloaded with it, for 30 days (some 600 MB in $fresh_kept), and with it systems that have
# packages of a list (fresh_ready; some 1 GB each).  What was compiled is kept as well:
# several of these builds compile the same.
# RSH_DEBIAN_MIRROR says where Debian comes from, or apt does; RSH_UBUNTU_MIRROR where
# Ubuntu does.
# shellcheck shell=sh disable=SC2154

FRESH_DAYS=30
# The keys of Ubuntu's archive, which Debian 12 does not have.
UBUNTU_KEYRING=pool/main/u/ubuntu-keyring/ubuntu-keyring_2021.03.26_all.deb
UBUNTU_KEYRING_SHA256=0d0e7ed6b112f5d03eabf3c7eb01ebdacf9c57714b279e90495cfc58c8c4520f
fresh_caches=${XDG_CACHE_HOME:-${HOME:-$top/build}/.cache}/reshardfs
fresh_root=
# What the next one is a copy of, if it is there, instead of the base system.
fresh_ready=
# The process that moto_begin has started, and what the tests call in its place.
moto_served=
fresh_peer=

# fresh_choose SUITE: the release of the next one.
fresh_choose()
{
	fresh_suite=$1
	case $1 in
	xenial | focal | jammy | noble) fresh_system=Ubuntu ;;
	*) fresh_system=Debian ;;
	esac
	fresh_kept=$fresh_caches/$(echo "$fresh_system" | tr '[:upper:]' '[:lower:]')-$1
}

fresh_mirror()
{
	[ "$fresh_system" = Debian ] || {
		mirror=${RSH_UBUNTU_MIRROR:-http://archive.ubuntu.com/ubuntu}
		echo "${mirror%/}"
		return
	}
	# shellcheck disable=SC2016 # apt expands it
	mirror=${RSH_DEBIAN_MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' \
		'Created-By: Packages' 'Release: bookworm' 2>/dev/null | head -n 1)}
	mirror=${mirror:-http://deb.debian.org/debian}
	echo "${mirror%/}"
}

# What is missing for a fresh Debian on this machine, as a reason to skip a test.
fresh_lacks()
{
	if [ "$(id -u)" -ne 0 ]; then
		echo "needs root"
	elif ! command -v debootstrap >/dev/null; then
		echo "there is no debootstrap"
	elif ! fresh_may_mount; then
		echo "mount(8) may not mount"
	elif ! fresh_answers; then
		echo "there is no $fresh_system mirror: $(fresh_mirror) does not answer"
	fi
}

# fresh_get FILE TARGET: of the mirror.
fresh_get()
{
	wget -q -T 30 -t 2 -O "$2" "$(fresh_mirror)/$1"
}

fresh_answers()
{
	fresh_get "dists/$fresh_suite/Release" /dev/null &&
		{ [ "$fresh_system" = Debian ] || fresh_get "$UBUNTU_KEYRING" /dev/null; }
}

fresh_may_mount()
{
	try=$(mktemp -d) || return
	mount -t proc proc "$try" 2>/dev/null && umount "$try"
	may=$?
	rmdir "$try"
	return $may
}

# ubuntu_keyring DIRECTORY: unpacks it there.
ubuntu_keyring()
{
	fresh_get "$UBUNTU_KEYRING" "$1.deb" &&
		echo "$UBUNTU_KEYRING_SHA256  $1.deb" | sha256sum --quiet --check &&
		dpkg-deb -x "$1.deb" "$1"
}

# fresh_debootstrap DIRECTORY OPTION...
fresh_debootstrap()
{
	directory=$1
	shift
	set -- --variant=minbase --force-check-gpg "$@"
	if [ "$fresh_system" = Ubuntu ]; then
		ubuntu_keyring "$fresh_kept/keyring" || return
		set -- --components=main,universe --keyring \
			"$fresh_kept/keyring/usr/share/keyrings/ubuntu-archive-keyring.gpg" "$@"
	fi
	# debootstrap of Debian 12 does not know each Ubuntu by name; they have one script.
	debootstrap "$@" "$fresh_suite" "$directory" "$(fresh_mirror)" \
		"$([ "$fresh_system" = Debian ] || echo gutsy)"
}

# For whoever holds the lock.
fresh_base()
{
	[ -z "$(find "$fresh_kept/base.log" -mtime "-$FRESH_DAYS" 2>/dev/null)" ] ||
		return 0
	rm -rf "$fresh_kept/base" "$fresh_kept/archives" "$fresh_kept/base.log" \
		"$fresh_kept"/ready-*
	mkdir "$fresh_kept/archives"
	fresh_debootstrap "$fresh_kept/base" --include=ca-certificates,ccache \
		--cache-dir="$fresh_kept/archives" >"$fresh_kept/base.new" 2>&1 || {
		tail -n 5 "$fresh_kept/base.new" >&2
		return 1
	}
	# What its users have: releases of compilers and libraries change there.
	[ "$fresh_system" = Debian ] ||
		echo "deb $(fresh_mirror) $fresh_suite-updates main universe" \
			>>"$fresh_kept/base/etc/apt/sources.list"
	chroot "$fresh_kept/base" apt-get clean
	mv "$fresh_kept/base.new" "$fresh_kept/base.log"
}

# fresh_with NAME FILE...: the next one has the packages that these files of the sources
# name, if fresh_keep has been called since they were changed.
fresh_with()
{
	fresh_ready=$1
	shift
	fresh_ready=$fresh_kept/ready-$fresh_ready-$(cd "$top" && cat "$@" | cksum | cut -d ' ' -f 1)
}

# fresh_keep: keeps what has been installed by now, without the sources, if fresh_with has
# been called.
fresh_keep()
{
	if [ -z "$fresh_ready" ] || [ -d "$fresh_ready" ]; then
		return 0
	fi
	(
		flock 9
		rm -rf "${fresh_ready%-*}"-*
		mkdir "$fresh_ready.new" &&
			tar -C "$fresh_root" --xattrs --xattrs-include='*' --numeric-owner \
				--one-file-system --exclude=./root/reshardfs --exclude='./ccache/*' \
				--exclude='./var/cache/apt/archives/*.deb' -cf - . |
			tar -C "$fresh_ready.new" --xattrs --xattrs-include='*' \
				--numeric-owner -xpf - &&
			touch "$fresh_ready.new" && mv "$fresh_ready.new" "$fresh_ready"
	) 9>"$fresh_kept/lock"
}

# fresh_begin: makes one in $fresh_root, which the caller's trap gives to fresh_end.
fresh_begin()
{
	mkdir -p "$fresh_kept"
	fresh_root=$(mktemp -d "$fresh_kept/root-XXXXXX")
	(
		flock 9
		# Of runs that were killed.
		find "$fresh_kept" -maxdepth 1 -name 'root-*' -mtime +0 |
			while read -r old; do
				fresh_remove "$old"
			done
		fresh_base || exit
		from=$fresh_kept/base
		# Unstable changes by the day.
		[ "$fresh_suite" != sid ] || find "$fresh_kept" -maxdepth 1 -name 'ready-*' \
			-mtime +0 -exec rm -rf {} +
		[ ! -d "$fresh_ready" ] || from=$fresh_ready
		cp -a "$from/." "$fresh_root/" &&
			cp -al "$fresh_kept/archives/." \
				"$fresh_root/var/cache/apt/archives/" &&
			touch "$fresh_root"
	) 9>"$fresh_kept/lock" || return
	# The way to the network is the machine's; nothing else is.
	cp /etc/resolv.conf /etc/hosts "$fresh_root/etc/"
	# fusermount3 of some releases needs it.
	ln -sf ../proc/self/mounts "$fresh_root/etc/mtab"
	cp /etc/ssl/certs/ca-certificates.crt "$fresh_root/etc/ssl/certs/" 2>/dev/null
	[ ! -f /etc/pip.conf ] || cp /etc/pip.conf "$fresh_root/etc/"
	{
		apt-config dump Acquire
		echo 'APT::Get::Assume-Yes "true";'
		echo 'APT::Install-Recommends "false";'
		echo 'APT::Keep-Downloaded-Packages "true";'
	} >"$fresh_root/etc/apt/apt.conf.d/90fresh"
	# A machine that stops loses no more than this root.
	echo force-unsafe-io >"$fresh_root/etc/dpkg/dpkg.cfg.d/90fresh"
	mkdir -p "$fresh_root/ccache" "$fresh_caches/ccache"
	mount -t proc proc "$fresh_root/proc" &&
		mount --bind "$fresh_caches/ccache" "$fresh_root/ccache" &&
		mount --rbind /dev "$fresh_root/dev" &&
		mount --make-rslave "$fresh_root/dev" &&
		in_fresh apt-get -qq update
}

# in_fresh [NAME=VALUE]... COMMAND...: in its /root, with next to nothing in the environment.
in_fresh()
{
	# What it leaves running must not keep the pipe of moto_begin open.
	# env(1) of Ubuntu 16.04 has no --chdir.
	# shellcheck disable=SC2016 # expanded there
	set -- sh -c 'cd /root && exec env "$@"' sh "$@"
	for given in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY \
		CFLAGS DEB_BUILD_OPTIONS JOBS RSH_TEST_SEED; do
		eval "[ -z \"\${$given:-}\" ] || set -- env \"$given=\$$given\" \"\$@\""
	done
	[ -z "$fresh_peer" ] || set -- env "RSH_MOTO_PYTHON=$fresh_peer" "$@"
	chroot "$fresh_root" /usr/bin/env -i HOME=/root LC_ALL=C.UTF-8 \
		CCACHE_DIR=/ccache CCACHE_BASEDIR=/root CCACHE_NOHASHDIR=1 \
		PATH=/usr/lib/ccache:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
		DEBIAN_FRONTEND=noninteractive "$@" </dev/null 8>&-
}

# fresh_clone: the sources in its /root/reshardfs, as a clone has them: what git does not
# know stays here.
fresh_clone()
{
	mkdir "$fresh_root/root/reshardfs" &&
		git -C "$top" ls-files -z |
		tar -C "$top" --null --files-from=- -cf - |
			tar -C "$fresh_root/root/reshardfs" --no-same-owner -xf -
}

# moto_begin PIPES [DIRECTORY]: a moto that runs here, with its pipes in that directory,
# until moto_end; sets $address to what tests/lib/s3_peer.py prints.
moto_begin()
{
	pipes=$1
	shift
	mkfifo "$pipes/peer.in" "$pipes/peer.out" || return
	"$RSH_MOTO_PYTHON" -B "$top/tests/lib/s3_peer.py" "$@" \
		<"$pipes/peer.in" >"$pipes/peer.out" &
	moto_served=$!
	# It ends when this is closed.
	exec 8>"$pipes/peer.in"
	read -r address <"$pipes/peer.out"
}

moto_end()
{
	[ -n "$moto_served" ] || return 0
	exec 8>&-
	# A daemon that a test has left may have the pipe open.
	for _ in 1 2 3 4 5; do
		kill -0 "$moto_served" 2>/dev/null || break
		sleep 1
	done
	kill "$moto_served" 2>/dev/null || :
	wait "$moto_served" || :
	moto_served=
}

# fresh_moto [DIRECTORY]: has tests in it ask a moto that runs here, where it can be
# installed.  They start a program that prints what s3_peer.py has printed.
fresh_moto()
{
	[ -n "${RSH_MOTO_PYTHON:-}" ] || return 0
	moto_begin "$fresh_root/tmp" "$@" || return
	fresh_peer=/usr/local/bin/peer
	printf '#!/bin/sh\necho "%s"\nexec cat >/dev/null\n' "$address" >"$fresh_root$fresh_peer"
	chmod +x "$fresh_root$fresh_peer"
}

# fresh_remove ROOT: with all that is mounted in it.
fresh_remove()
{
	awk -v root="$1/" 'index($2, root) == 1 { print $2 }' /proc/self/mounts |
		sort -r | while read -r where; do
			umount -l "$(printf '%b' "$where")" 2>/dev/null || :
		done
	# Nothing is removed through a mount that is still there.
	grep -qF " $1/" /proc/self/mounts || rm -rf --one-file-system "$1"
}

fresh_end()
{
	moto_end
	fresh_peer=
	[ -n "$fresh_root" ] || return 0
	cp -ln "$fresh_root"/var/cache/apt/archives/*.deb "$fresh_kept/archives/" \
		2>/dev/null || :
	fresh_remove "$fresh_root"
	fresh_root=
}

fresh_choose "${fresh_suite:-bookworm}"

# ---- for tests/fresh ----

# fresh_tests NUMBER: the plan, or a skip.
fresh_tests()
{
	lacks=$(fresh_lacks)
	git -C "$top" ls-files --error-unmatch README.md >/dev/null 2>&1 ||
		lacks="this is no clone of git"
	[ -z "$lacks" ] || {
		echo "1..0 # SKIP $lacks"
		exit 0
	}
	number=0
	fresh_log=$(mktemp)
	trap 'fresh_end; rm -f "$fresh_log" "$fresh_log.times"' EXIT
	trap 'exit 1' HUP INT TERM
	fresh_count=$1
	echo "1..$1"
}

# fresh_rest NUMBER: the tests after it are not run, which is no failure.
fresh_rest()
{
	for rest in $(seq $(($1 + 1)) "$fresh_count"); do
		echo "not ok $rest # TODO $fresh_todo"
	done
}

# fresh_spent: sets $spent to the seconds of processor time so far, of all that was
# waited for.
fresh_spent()
{
	times >"$fresh_log.times" # in a shell of its own it would be of that
	spent=$(awk -F '[ ms]+' 'NR == 2 { printf "%.0f", 60 * ($1 + $3) + $2 + $4 }' \
		"$fresh_log.times")
}

# fresh_test NAME COMMAND...: what it prints is shown if it fails, and that is the end.
# Otherwise its processor time is shown, the numbers of tests that make has counted, and
# what a build does without.
fresh_test()
{
	number=$((number + 1))
	what=$1
	shift
	fresh_spent
	before=$spent
	if "$@" >"$fresh_log" 2>&1; then
		echo "ok $number - $what"
		fresh_spent
		echo "# $((spent - before)) s of processor time"
		sed -n 's/^# \(TOTAL\|PASS\|SKIP\|XFAIL\): */# \1 /p
			s/^\(libfuse\|without:\) /# &/p' "$fresh_log"
	else
		echo "not ok $number - $what${fresh_todo:+ # TODO $fresh_todo}"
		[ -z "${fresh_todo:-}" ] || fresh_rest "$number"
		tail -n 60 "$fresh_log" | sed 's/^/# /'
		[ -n "${fresh_todo:-}" ] # else set -e ends it with 1
		exit
	fi
}

# readme_commands HEADING NUMBER [PAGE]: the commands of that block below a heading of
# README.md, or of another page.
readme_commands()
{
	awk -v heading="## $1" -v wanted="$2" '
		/^## / { below = $0 == heading }
		/^```/ { inside = below && !inside && $0 == "```sh"; block += inside; next }
		inside && block == wanted' "$top/${3:-README.md}"
}

# in_clone COMMAND...: in the sources.
in_clone()
{
	in_fresh env --chdir=/root/reshardfs "$@"
}

# show_failures LOG: each failed test with what it says of itself, or the end of
# the log if the program came to no verdict.
show_failures()
{
	echo "---- ${1#"$top"/}"
	awk '/^(not ok|Bail out!)/ { show = found = 1; print; next }
	     /^(ok|1\.\.)/ { show = 0 }
	     show && /^#/ { print }
	     END { exit !found }' "$1" || tail -n 30 "$1"
}

# make_tests BUILD GOAL...: of tests/Makefile in that directory of the clone; what fails
# says why.
make_tests()
{
	built=$1/tests
	shift
	in_clone make -k -C "$built" -j"$((${JOBS:-$(nproc)} + 1))" "$@" && return
	cd "$fresh_root/root/reshardfs/$built" || return
	find . -name '*.trs' -exec grep -lE '^:test-result: (FAIL|XPASS|ERROR)' {} + |
		while read -r result; do
			show_failures "${result%.trs}.log" | head -n 40
		done
	return 1
}
