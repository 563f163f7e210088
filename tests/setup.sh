#!/bin/bash
# Installs what building and testing need and this machine lacks, and says what and why. Says nothing, and
# asks no server, when everything is there.
#
#   tests/setup.sh build    what `make build` and `make demo` need
#   tests/setup.sh test     that, and what `make test` needs on top
set -euo pipefail

stage=${1:?usage: tests/setup.sh build|test}
tools=${SEXTON_TOOLS:-$HOME/.cache/sexton-tools}
rocksdbjni=7.7.3
cargo_deny=0.20.2
sudo=
[ "$(id -u)" = 0 ] || sudo=sudo
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"

say() { echo "setup: $*"; }
fail() { echo "error: $1" >&2; echo "help: $2" >&2; exit 1; }
is_installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }
# Debian keeps some programs outside of a user's PATH.
has_program() { command -v "$1" >/dev/null || [ -x "/usr/sbin/$1" ]; }

missing=()
# want PACKAGE WHY [PROGRAM]: with PROGRAM, another package that brings it is as good.
want() {
    if [ $# = 3 ] && has_program "$3"; then return; fi
    if is_installed "$1"; then return; fi
    say "needs package $1: $2"
    missing+=("$1")
}

want gcc "links the programs" gcc
want g++ "compiles RocksDB" g++
want make "compiles libbpf" make
want pkg-config "finds libelf" pkg-config
want curl "fetches the Rust toolchain" curl
want ca-certificates "certificates of the servers"
want clang-19 "compiles the BPF programs" clang-19
want libclang1-19 "reads C headers for Rust (bindgen)"
want libelf-dev "libbpf reads ELF files with it"
want zlib1g-dev "libelf needs it"
if [ "$stage" = test ]; then
    want bpftool "the tests ask the kernel for BPF objects with it" bpftool
    want rocksdb-tools "db_bench, RocksDB's own benchmark, is observed in the tests" db_bench
    want default-jdk-headless "a Java program on RocksDB is observed and acted on in the tests" javac
    want maven "fetches RocksDB's Java library" mvn
    want python3 "maps a damaged library in a test" python3
fi
if [ ${#missing[@]} -gt 0 ]; then
    command -v apt-get >/dev/null ||
        fail "these packages are missing and there is no apt-get: ${missing[*]}" "install their like by hand"
    say "installing ${missing[*]}"
    $sudo apt-get update -qq
    DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi

if ! has_program cargo; then
    say "installing rustup into ~/.cargo: the Rust toolchain builds everything"
    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs |
        sh -s -- -y --quiet --profile minimal --default-toolchain none
fi
if has_program rustup && ! rustup toolchain list | grep -q "^$(sed -n 's/^channel = "\(.*\)"/\1-/p' rust-toolchain.toml)"; then
    say "installing the toolchain that rust-toolchain.toml names"
    rustup toolchain install
fi
cargo --version >/dev/null || fail "cargo does not run" "install Rust from https://rustup.rs"
[ "$stage" = test ] || exit 0

jar=$tools/rocksdbjni-$rocksdbjni.jar
if [ ! -s "$jar" ]; then
    say "fetching RocksDB's Java library $rocksdbjni into $tools"
    mkdir -p "$tools"
    mvn -q -B dependency:copy -Dartifact="org.rocksdb:rocksdbjni:$rocksdbjni" -DoutputDirectory="$tools" \
        -Dmdep.useBaseVersion=true
fi

if ! has_program promtool && [ ! -x "$tools/prometheus/usr/bin/promtool" ]; then
    say "unpacking promtool into $tools: it checks the Prometheus rules (the server is not installed)"
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    (cd "$scratch" && { apt-get download -qq prometheus 2>/dev/null ||
        { $sudo apt-get update -qq && apt-get download -qq prometheus; }; })
    mkdir -p "$tools/prometheus"
    dpkg -x "$scratch"/prometheus_*.deb "$tools/prometheus"
fi

if ! has_program cargo-deny; then
    say "building cargo-deny into ~/.cargo (some minutes): it checks licences and sources of all crates"
    env -u CARGO_TARGET_DIR cargo install --quiet --locked "cargo-deny@$cargo_deny"
fi
