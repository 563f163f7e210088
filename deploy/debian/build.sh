#!/bin/bash
# Makes the package of what has been built: into DIRECTORY/debian, DIRECTORY being cargo's target directory. The same sources
# give the same package, to the last bit: times are those of the last commit, and what tools make up is taken out.
#
#   deploy/debian/build.sh DIRECTORY
set -euo pipefail

target=$(realpath "$1")
cd "$(dirname "$0")/../.."
built=$target/release
package=$built/package
export CARGO_TARGET_DIR=$target
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Cargo.lock)}
export SOURCE_DATE_EPOCH

# musl is a target of its own, so nothing that was built for glibc is built anew.
CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_LINKER=musl-gcc \
    CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_RUSTFLAGS="-C target-feature=-crt-static" \
    cargo build --quiet --release --locked --target x86_64-unknown-linux-musl -p sexton-hook

rm -rf "$package"
mkdir -p "$package"/{glibc,musl,man,completions}
cp "$built/libsexton_hook.so" "$package/glibc/"
cp "$target/x86_64-unknown-linux-musl/release/libsexton_hook.so" "$package/musl/"
"$built/sexton" man --directory "$package/man"
gzip --no-name --best "$package"/man/*
"$built/sexton" completions bash >"$package/completions/sexton"
"$built/sexton" completions zsh >"$package/completions/_sexton"
"$built/sexton" completions fish >"$package/completions/sexton.fish"

# The tool lists parts in any order, and gives each list a number and a time.
cargo sbom --cargo-package sexton --output-format cyclone_dx_json_1_6 | jq --sort-keys '
    del(.serialNumber, .metadata.timestamp, .metadata.authors)
    | .components |= sort_by(."bom-ref")
    | .dependencies |= (map(.dependsOn |= sort) | sort_by(.ref))' >"$package/sbom.cdx.json"

# The agent's symbols stay: it measures what probes cost on functions of its own.
cargo deb --quiet --no-build --no-strip --package sexton
ls "$target"/debian/sexton_*.deb
