#!/bin/bash
# Puts what `make test-package` boots into $SEXTON_TOOLS: a kernel (tests/kernels/setup.sh), and a fresh Debian 12 with
# systemd and a Java runtime, as a directory. Asks no server when both are there.
set -euo pipefail

tools=${SEXTON_TOOLS:-$HOME/.cache/sexton-tools}
root=$tools/debian12/root
here=$(cd "$(dirname "$0")" && pwd)
# systemd and what it is asked with; the libraries that the package depends on, since the machine has no network; the JVM.
packages=systemd,systemd-sysv,dbus,procps,curl,libelf1,zlib1g,libstdc++6,openjdk-17-jre-headless

"$here/../kernels/setup.sh" "$1"
[ ! -e "$root.ready" ] || exit 0
if ! command -v mmdebstrap >/dev/null; then
    echo "setup: installing mmdebstrap: makes a fresh Debian"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends mmdebstrap
fi
echo "setup: making a fresh Debian 12 in $root (some minutes)"
rm -rf "$root"
mkdir -p "$(dirname "$root")"
# Man pages are what is looked for, so they are not left out.
mmdebstrap --quiet --variant=minbase --include="$packages" --aptopt='Acquire::Languages "none"' \
    bookworm "$root" http://deb.debian.org/debian
touch "$root.ready"
