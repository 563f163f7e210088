#!/bin/bash
# Boots a fresh Debian 12 with a real systemd in a virtual machine, has tests/package/guest.sh test the package in it, and
# prints what that found, the last line as JSON. Needs root, since the machine's root is a directory of root's files.
# Ends by itself and removes what it made.
#
#   tests/package/run.sh PACKAGE.deb [KERNEL]
set -euo pipefail

package=$(realpath "$1")
kernel=${2:-6.12}
tools=${SEXTON_TOOLS:-$HOME/.cache/sexton-tools}
here=$(cd "$(dirname "$0")" && pwd)
# All of it takes some twenty minutes here, emulated, and twice that beside builds; what takes longer hangs.
limit_s=3600
memory=2048M

fail() { echo "error: $1" >&2; echo "help: $2" >&2; exit 1; }
[ "$(id -u)" = 0 ] || fail "this needs root" "run make test-package as root"
"$here/setup.sh" "$kernel"

scratch=$(mktemp -d "$tools/package-test.XXXXXX")
machine= files=
end() {
    local pid
    for pid in $machine $files; do kill "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$scratch"
}
trap end EXIT
trap 'exit 1' INT TERM

# The root, with the test in it.
cp -a --reflink=auto "$tools/debian12/root" "$scratch/root"
inside=$scratch/root/package-test
mkdir "$inside"
cp "$package" "$inside/sexton.deb"
cp "$here"/{guest.sh,act.yaml,changing.txt} "$inside/"
cp "$tools/rocksdbjni-7.7.3.jar" "$inside/rocksdbjni.jar"
mkdir "$inside/classes"
javac --release 17 -cp "$inside/rocksdbjni.jar" -d "$inside/classes" "$here/../java/ListAndDelete.java"
install -m 644 "$here/guest.service" "$scratch/root/etc/systemd/system/package-test.service"
ln -s /etc/systemd/system/package-test.service "$scratch/root/etc/systemd/system/multi-user.target.wants/package-test.service"
echo package-test >"$scratch/root/etc/hostname"

# The initial RAM disk: this test's first program, and the kernel's modules.
initial=$scratch/initial
mkdir -p "$initial"/{bin,modules,proc,sys,dev,root}
cp /bin/busybox "$initial/bin/"
cp "$tools/kernels/$kernel/modules/"*.ko "$initial/modules/" 2>/dev/null || true
install -m 755 "$here/init" "$initial/init"
(cd "$initial" && find . | cpio -o -H newc --quiet) >"$scratch/initramfs"

server=/usr/lib/qemu/virtiofsd
[ -x "$server" ] || server=/usr/libexec/virtiofsd
"$server" --socket-path="$scratch/files.sock" -o source="$scratch/root" -o cache=always -o sandbox=chroot -o xattr \
    --rlimit-nofile=0 --thread-pool-size=2 >"$scratch/files.log" 2>&1 &
files=$!
for _ in $(seq 100); do [ ! -S "$scratch/files.sock" ] || break; sleep 0.1; done

# Not KVM, and not these two of the processor: as in tests/src/bin/test_kernels/guest.rs.
timeout --signal=KILL "$limit_s" qemu-system-x86_64 -machine q35 -accel tcg,thread=multi -cpu max,la57=off,cx16=off -smp 2 \
    -display none -monitor none -nic none -no-reboot -m "$memory" -numa node,memdev=memory \
    -object "memory-backend-memfd,id=memory,size=$memory,share=on" \
    -chardev "socket,id=files,path=$scratch/files.sock" -device vhost-user-fs-pci,chardev=files,tag=root \
    -kernel "$tools/kernels/$kernel/vmlinuz" -initrd "$scratch/initramfs" \
    -serial "file:$scratch/console" -serial "file:$scratch/said" \
    -append "console=ttyS0 quiet panic=-1 oops=panic mitigations=off systemd.show_status=0 systemd.log_level=warning" \
    </dev/null >"$scratch/machine.log" 2>&1 &
machine=$!
touch "$scratch/said"
tail -n +1 -f --pid="$machine" "$scratch/said" | sed -u 's/\r$//; s/^guest: //' || true
wait "$machine" || true
machine=

if ! grep -q '^guest: result ' "$scratch/said"; then
    tail -n 30 "$scratch/console" >&2
    cat "$scratch/machine.log" >&2
    fail "the virtual machine ended without a result" "its console's last lines stand above"
fi
sed -n 's/\r$//; s/^guest: result //p' "$scratch/said"
grep -q '^guest: result {"failures":0,' "$scratch/said"
