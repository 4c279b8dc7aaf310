#!/bin/sh
# Build the guest kernel.
#
#   build.sh SOURCE.tar.xz OUT
#
# SOURCE is Debian's linux-source-6.12 archive, OUT the file to make. Works in a
# folder of its own beside OUT, removes it, and touches nothing else. About six
# CPU-minutes. Needs gcc make flex bison bc patch xz-utils.
set -eu

[ $# -eq 2 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
source=$1
out=$2

mkdir -p "$(dirname "$out")"
work=$(mktemp -d "$(dirname "$out")/build.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

echo "unpack $(basename "$source")"
mkdir "$work/source" "$work/object"
tar -C "$work/source" --strip-components=1 -xf "$source"
for change in "$here"/patches/*.patch; do
    echo "patch $(basename "$change")"
    patch -s -d "$work/source" -p1 <"$change"
done

echo "configure"
make() { command make -C "$work/source" ARCH=um O="$work/object" "$@"; }
KCONFIG_ALLCONFIG="$here/config" make -s allnoconfig
grep '^CONFIG_' "$here/config" | while read -r line; do
    grep -qxF "$line" "$work/object/.config" || {
        echo "build.sh: this source does not offer $line" >&2
        exit 1
    }
done

# The version text is stirred into the guest's random numbers: keep the day and the
# builder out of it, so that every machine's kernel gives the same run.
export KBUILD_BUILD_TIMESTAMP='Thu Jan 1 00:00:00 UTC 2026' KBUILD_BUILD_VERSION=1
export KBUILD_BUILD_USER=geokv KBUILD_BUILD_HOST=geokv

echo "compile"
make -j"$(nproc)" linux
strip -o "$out.new" "$work/object/linux"
mv "$out.new" "$out"
echo "done"
