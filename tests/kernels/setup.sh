#!/bin/bash
# Puts what `make test-kernels` boots into $SEXTON_TOOLS/kernels: of each series of Debian's cloud kernels the
# newest, unpacked and never installed, and an initial RAM disk that mounts the host's root. Installs qemu
# where it is missing. Asks no server when everything is there.
#
#   tests/kernels/setup.sh SERIES...    for example 5.10 6.12
set -euo pipefail

[ $# -gt 0 ] || { echo "usage: tests/kernels/setup.sh SERIES..." >&2; exit 2; }
tools=${SEXTON_TOOLS:-$HOME/.cache/sexton-tools}
kernels=$tools/kernels
here=$(cd "$(dirname "$0")" && pwd)
sudo=
[ "$(id -u)" = 0 ] || sudo=sudo

# Where Debian has these series. No package of them is ever installed, so that the machine's own sources stay as
# they are.
suites=(
    "debian bullseye" "debian-security bullseye-security"
    "debian bookworm" "debian-security bookworm-security"
    "debian trixie" "debian-security trixie-security" "debian trixie-backports"
)
# What a guest needs to mount a host's directory; some kernels have some of them built in.
modules=(virtio virtio_ring virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci fuse virtiofs)

say() { echo "setup: $*"; }
fail() { echo "error: $1" >&2; echo "help: $2" >&2; exit 1; }
is_installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

missing=()
# want PACKAGE WHY
want() {
    if is_installed "$1"; then return; fi
    say "needs package $1: $2"
    missing+=("$1")
}

command -v apt-get >/dev/null || fail "there is no apt-get" "run make test-kernels on Debian or a relative of it"
want qemu-system-x86 "runs other kernels"
want busybox-static "is the guest's first program"
want cpio "packs the initial RAM disk"
want xz-utils "newer kernels' modules are compressed"
if [ ! -x /usr/lib/qemu/virtiofsd ] && [ ! -x /usr/libexec/virtiofsd ]; then
    # It is part of qemu up to Debian 12, and a package of its own from then on.
    if [ -n "$(apt-cache search --names-only '^virtiofsd$')" ]; then
        want virtiofsd "shows the host's files to a guest"
    else
        want qemu-system-common "shows the host's files to a guest (virtiofsd)"
    fi
fi
if [ ${#missing[@]} -gt 0 ]; then
    say "installing ${missing[*]}"
    $sudo apt-get update -qq
    DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# apt fetches as a user of its own.
chmod 755 "$scratch"

# apt with a list of sources and a state of its own.
private_apt() {
    local program=$1
    shift
    "$program" -qq -o Dir::Etc::sourcelist="$scratch/sources.list" -o Dir::Etc::sourceparts=- \
        -o Dir::State::lists="$scratch/lists" -o Dir::Cache="$scratch/cache" -o APT::Sandbox::User=root "$@"
}

read_package_lists() {
    [ ! -e "$scratch/sources.list" ] || return 0
    local suite keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    mkdir -p "$scratch/lists/partial" "$scratch/cache/archives/partial"
    for suite in "${suites[@]}"; do
        echo "deb [arch=amd64 signed-by=$keyring] http://deb.debian.org/${suite% *} ${suite#* } main"
    done >"$scratch/sources.list"
    private_apt apt-get update -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false ||
        fail "Debian's package lists cannot be read" "look at the messages above; a suite may have been archived"
}

# The newest package of a series: linux-image-6.1.0-50-cloud-amd64 for 6.1.
newest_package() {
    private_apt apt-cache search --names-only "^linux-image-${1/./\\.}\\.[0-9].*-cloud-amd64\$" |
        cut -d ' ' -f 1 | sort -V | tail -n 1
}

# unpack PACKAGE...: into $unpacked.
unpack() {
    local package
    mkdir "$scratch/packages"
    (cd "$scratch/packages" && private_apt apt-get download "$@")
    for package in "$scratch"/packages/*.deb; do dpkg -x "$package" "$unpacked"; done
    rm -r "$scratch/packages"
}

# fetch SERIES: vmlinuz, modules and the release's name.
fetch() {
    local package release image module file unpacked=$scratch/$1 ready=$scratch/$1.ready
    read_package_lists
    package=$(newest_package "$1")
    [ -n "$package" ] || fail "Debian has no cloud kernel $1" "name another series, or add the suite that has it"
    release=${package#linux-image-}
    say "unpacking Linux $release into $kernels/$1"
    mkdir -p "$unpacked" "$ready/modules"
    unpack "$package"
    # From 7.2 on the image's package is empty and depends on two others.
    image=$(find "$unpacked" -name 'vmlinuz*' -type f)
    if [ -z "$image" ]; then
        unpack "linux-binary-$release" "linux-modules-$release"
        image=$(find "$unpacked" -name 'vmlinuz*' -type f)
    fi
    cp "$image" "$ready/vmlinuz"
    for module in "${modules[@]}"; do
        file=$(find "$unpacked" -name "$module.ko" -o -name "$module.ko.xz" | head -n 1)
        case $file in
            '') ;;
            *.xz) xz -dc "$file" >"$ready/modules/$module.ko" ;;
            *) cp "$file" "$ready/modules/$module.ko" ;;
        esac
    done
    echo "$release" >"$ready/release"
    mkdir -p "$kernels"
    rm -rf "${kernels:?}/$1" "$unpacked"
    mv "$ready" "$kernels/$1"
}

# pack SERIES: the initial RAM disk, made anew each time because it is quick and the init may have changed.
pack() {
    local root=$scratch/$1.root
    mkdir -p "$root"/{bin,modules,proc,sys,dev,host}
    cp /bin/busybox "$root/bin/"
    cp "$kernels/$1/modules/"*.ko "$root/modules/" 2>/dev/null || true
    install -m 755 "$here/init" "$root/init"
    (cd "$root" && find . | cpio -o -H newc --quiet) >"$kernels/$1/initramfs.new"
    mv "$kernels/$1/initramfs.new" "$kernels/$1/initramfs"
}

for series in "$@"; do
    [ -s "$kernels/$series/release" ] || fetch "$series"
    pack "$series"
done
