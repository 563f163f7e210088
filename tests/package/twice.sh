#!/bin/bash
# The package is the same file when it is made again: program linked, hook for musl built, everything else generated anew.
#
#   tests/package/twice.sh DIRECTORY     cargo's target directory, in which `make deb` has made the package
set -euo pipefail

target=$(realpath "$1")
cd "$(dirname "$0")/../.."
package=$(ls "$target"/debian/sexton_*.deb)
sum() { sha256sum <"$package" | cut -d ' ' -f 1; }
first=$(sum)
touch agent/src/main.rs
rm -rf "$target/x86_64-unknown-linux-musl" "$package"
CARGO_TARGET_DIR=$target cargo build --quiet --release --workspace --lib --bins
deploy/debian/build.sh "$target" >/dev/null
if [ "$first" != "$(sum)" ]; then
    echo "error: $package is another file each time it is made: $first, $(sum)" >&2
    echo "help: make it twice and compare what dpkg-deb -x unpacks of the two" >&2
    exit 1
fi
echo "made twice alike: $first"
