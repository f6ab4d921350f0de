# SPDX-License-Identifier: Apache-2.0
# The compiler and the static libraries of a wheel for every Linux with glibc 2.17:
# for tests/wheels.sh.
#
# zig (PyPI: ziglang) compiles for any architecture and any glibc.  The sources of the
# libraries are Debian's source packages.  All of it is kept in $wheel_kept for the next
# time; the sources and what was built of them for 30 days.
#
# Expects $top, and say() and die() of lib/setup.sh.
# shellcheck shell=sh disable=SC2154

WHEEL_GLIBC=2.17
WHEEL_SUITE=bookworm
WHEEL_DAYS=30
WHEEL_TOOLS="ziglang==0.17.1 meson==1.7.2 ninja==1.11.1.4"
WHEEL_LINKED="fuse3 jansson libseccomp lz4 protobuf-c xxhash zlib libzstd"
# Only the headers of these: they are loaded when they are needed.
WHEEL_LOADED="curl expat"
WHEEL_SOURCES="$WHEEL_LINKED $WHEEL_LOADED"
wheel_kept=${XDG_CACHE_HOME:-${HOME:-$top/build}/.cache}/reshardfs/wheels
wheel_tools=$wheel_kept/tools-$(echo "$WHEEL_TOOLS" | cksum | cut -d ' ' -f 1)
wheel_zig=

# Sets $wheel_zig.
wheel_need_tools()
{
	mkdir -p "$wheel_kept"
	if ! [ -e "$wheel_tools/complete" ]; then
		say "installing $WHEEL_TOOLS in $wheel_tools"
		rm -rf "$wheel_tools"
		# shellcheck disable=SC2086 # a list of requirements
		python3 -m venv "$wheel_tools" && "$wheel_tools/bin/pip" install --quiet \
			--no-input --disable-pip-version-check --no-cache-dir $WHEEL_TOOLS \
			</dev/null && touch "$wheel_tools/complete" ||
			die "these could not be installed from PyPI: $WHEEL_TOOLS"
	fi
	wheel_zig=$("$wheel_tools/bin/python" -c \
		'import os, ziglang; print(os.path.dirname(ziglang.__file__))')/zig
	# Objects that were compiled before are taken from there.
	export ZIG_GLOBAL_CACHE_DIR="$wheel_kept/zig" ZIG_LOCAL_CACHE_DIR="$wheel_kept/zig"
}

wheel_old()
{
	[ -z "$(find "$1" -maxdepth 0 -mtime "-$WHEEL_DAYS" 2>/dev/null)" ]
}

# apt-get with a list of sources of its own: this machine's stay as they are.
wheel_apt()
{
	apt-get -qq -o "Dir::Etc::SourceList=$wheel_kept/apt/sources.list" \
		-o Dir::Etc::SourceParts=/dev/null -o "Dir::State::Lists=$wheel_kept/apt/lists" \
		-o "Dir::Cache=$wheel_kept/apt/cache" -o APT::Sandbox::User= "$@"
}

wheel_download()
{
	mkdir -p "$wheel_kept/apt/lists/partial" "$wheel_kept/apt/cache/archives/partial"
	key=/usr/share/keyrings/debian-archive-keyring.gpg
	echo "deb-src [signed-by=$key] $(fresh_mirror) $WHEEL_SUITE main" \
		>"$wheel_kept/apt/sources.list"
	# shellcheck disable=SC2086 # a list of names
	wheel_apt update && wheel_apt source --download-only $WHEEL_SOURCES
}

# wheel_need_sources: each unpacked in $wheel_kept/sources/NAME, with Debian's patches.
wheel_need_sources()
{
	# An older list may have been another one.
	wheel_old "$wheel_kept/sources/complete" ||
		! [ "$(cat "$wheel_kept/sources/complete")" = "$WHEEL_SOURCES" ] || return 0
	say "downloading the sources of $(echo $WHEEL_SOURCES)"
	rm -rf "$wheel_kept/sources"
	mkdir -p "$wheel_kept/sources"
	(
		cd "$wheel_kept/sources" && wheel_download || exit
		for package in *.dsc; do
			dpkg-source --no-check -x "$package" "${package%%_*}" || exit
		done
	) >"$wheel_kept/sources.log" 2>&1 || {
		tail -n 5 "$wheel_kept/sources.log" >&2
		die "the sources of the libraries could not be had from $(fresh_mirror)"
	}
	echo "$WHEEL_SOURCES" >"$wheel_kept/sources/complete"
}

# wheel_compiler ARCH DIRECTORY: programs wheel-cc, wheel-ar and wheel-ranlib there.
wheel_compiler()
{
	mkdir -p "$2"
	cat >"$2/wheel-cc" <<-END
		#!/bin/sh
		exec "$wheel_zig" cc -target $1-linux-gnu.$WHEEL_GLIBC -fno-sanitize=all "\$@"
	END
	for tool in ar ranlib; do
		printf '#!/bin/sh\nexec "%s" %s "$@"\n' "$wheel_zig" $tool >"$2/wheel-$tool"
	done
	chmod +x "$2"/wheel-*
}

# ---- each library; in a copy of its sources, where `prefix` and `arch` are set ----

wheel_configure()
{
	./configure --quiet --host="$arch-linux-gnu" --prefix="$prefix" --disable-shared \
		--enable-static "$@"
}

# wheel_archive NAME VERSION FILE...: a library that is only some files.
wheel_archive()
{
	library=$1 version=$2
	shift 2
	for file; do
		# shellcheck disable=SC2086 # lists of flags
		wheel-cc $CFLAGS -c -o "$(basename "$file" .c).o" "$file" || return
	done
	wheel-ar rcs "$prefix/lib/$library.a" ./*.o &&
		cat >"$prefix/lib/pkgconfig/$library.pc" <<-END
			Name: $library
			Description: $library
			Version: $version
			Cflags: -I$prefix/include
			Libs: -L$prefix/lib -l${library#lib}
		END
}

wheel_build_jansson()
{
	autoreconf -fi && wheel_configure && make -s -C src install &&
		make -s install-pkgconfigDATA
}

wheel_build_libseccomp()
{
	autoreconf -fi && wheel_configure --disable-python &&
		make -s -C include install && make -s -C src install &&
		make -s install-pkgconfDATA
}

wheel_build_zlib()
{
	CHOST=$arch-linux-gnu ./configure --static --prefix="$prefix" &&
		make -s libz.a && make -s install
}

wheel_build_lz4()
{
	cp lib/lz4.h lib/lz4hc.h lib/lz4frame.h "$prefix/include/" &&
		wheel_archive liblz4 "$(sed -n 's/^v\([0-9.]*\)$/\1/p' NEWS | head -n 1)" \
			lib/lz4.c
}

# What is written in assembler is not needed.
wheel_build_libzstd()
{
	cp lib/zstd.h lib/zstd_errors.h "$prefix/include/" &&
		CFLAGS="$CFLAGS -DZSTD_DISABLE_ASM" wheel_archive libzstd 1.5.4 \
			lib/common/*.c lib/decompress/*.c
}

wheel_build_xxhash()
{
	cp xxhash.h xxh3.h "$prefix/include/"
	files=xxhash.c
	if [ "$arch" = x86_64 ]; then
		cp xxh_x86dispatch.h "$prefix/include/"
		files="$files xxh_x86dispatch.c"
	fi
	# shellcheck disable=SC2086 # a list of files
	wheel_archive libxxhash 0.8.1 $files
}

wheel_build_protobuf_c()
{
	mkdir -p "$prefix/include/protobuf-c" &&
		cp protobuf-c/protobuf-c.h "$prefix/include/protobuf-c/" &&
		wheel_archive libprotobuf-c 1.4.1 protobuf-c/protobuf-c.c
}

# What runs fusermount3 looks in /usr/bin first, then in PATH.
wheel_build_fuse3()
{
	cat >cross <<-END
		[binaries]
		c = 'wheel-cc'
		ar = 'wheel-ar'
		pkgconfig = 'false'
		[host_machine]
		system = 'linux'
		cpu_family = '$arch'
		cpu = '$arch'
		endian = 'little'
	END
	meson setup --cross-file cross --prefix="$prefix" --bindir=/usr/bin --libdir=lib \
		--buildtype=release -Ddefault_library=static -Dexamples=false -Dutils=false \
		-Dtests=false -Ddisable-mtab=true build && ninja -C build install
}

wheel_build_expat()
{
	cp expat/lib/expat.h expat/lib/expat_external.h "$prefix/include/"
}

wheel_build_curl()
{
	mkdir -p "$prefix/include/curl" && cp include/curl/*.h "$prefix/include/curl/"
}

# wheel_need_libraries ARCH: $wheel_prefix has them, and a licence of each.
wheel_need_libraries()
{
	arch=$1
	wheel_key=$(cat "$wheel_kept/sources"/*.dsc "$top/tests/lib/wheel_libraries.sh" | sha256sum)
	wheel_prefix=$wheel_kept/$arch-$(echo "$wheel_key" | cut -c 1-12)
	wheel_compiler "$arch" "$wheel_prefix/bin"
	export PATH="$wheel_prefix/bin:$wheel_tools/bin:$PATH"
	[ ! -e "$wheel_prefix/complete" ] || return 0
	say "building the libraries for $arch"
	libraries=$(mktemp -d "$wheel_kept/build-XXXXXX")
	prefix=$wheel_prefix
	mkdir -p "$prefix/lib/pkgconfig" "$prefix/include" "$prefix/licences"
	for name in $WHEEL_SOURCES; do
		cp -r "$wheel_kept/sources/$name" "$libraries/$name"
		(
			cd "$libraries/$name" &&
				export CC=wheel-cc AR=wheel-ar RANLIB=wheel-ranlib \
					PKG_CONFIG_LIBDIR="$prefix/lib/pkgconfig" \
					CFLAGS="-O2 -fPIC -ffile-prefix-map=$libraries=." &&
				"wheel_build_$(echo "$name" | tr - _)"
		) >"$wheel_kept/$name.log" 2>&1 </dev/null || {
			tail -n 20 "$wheel_kept/$name.log" >&2
			die "$name could not be built for $arch, see $wheel_kept/$name.log"
		}
	done
	for name in $WHEEL_LINKED; do
		cp "$libraries/$name/debian/copyright" "$prefix/licences/$name"
	done
	rm -rf "$libraries"
	touch "$prefix/complete"
}
