#!/bin/bash
# Installs what building and testing need and this machine lacks, and says what and why. Says nothing, and
# asks no server, when everything is there.
#
#   tests/setup.sh build    what `make build` and `make demo` need
#   tests/setup.sh test     that, and what `make test` needs on top
#   tests/setup.sh web      that, and what `make test-web` needs
#   tests/setup.sh ozone    what `make test` needs, and what `make test-ozone` needs on top
#   tests/setup.sh deb      what `make build` needs, and what `make deb` needs on top
set -euo pipefail

stage=${1:?usage: tests/setup.sh build|test|web|ozone|deb}
tools=${SEXTON_TOOLS:-$HOME/.cache/sexton-tools}
rocksdbjni=(7.7.3 10.10.1.1 11.8.1)
cargo_deny=0.20.2
cargo_nextest=0.9.151
cargo_deb=3.8.0
cargo_sbom=0.10.0
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
if [ "$stage" = deb ]; then
    want dpkg-dev "finds out which packages the programs depend on" dpkg-shlibdeps
    want musl-tools "links the hook for musl" musl-gcc
    want jq "takes from the list of parts what differs from one making to the next" jq
elif [ "$stage" != build ]; then
    want bpftool "the tests ask the kernel for BPF objects with it" bpftool
    want rocksdb-tools "db_bench, RocksDB's own benchmark, is observed in the tests" db_bench
    want librocksdb-dev "a C program with RocksDB linked in, and stripped, is observed in the tests"
    want default-jdk-headless "a Java program on RocksDB is observed and acted on in the tests" javac
    want maven "fetches RocksDB's Java libraries" mvn
    # Server and client without the package mariadb-server: no service, no user, nothing that runs.
    want mariadb-server-core "a MariaDB server with MyRocks is observed in the tests"
    want mariadb-client-core "asks that server what it counted"
    want libsnappy1v5 "MyRocks needs it"
    want musl-tools "a C program on musl, with RocksDB's Java library in it, is observed in the tests" musl-gcc
    want python3-pip "fetches the C++ library that this library needs on musl, and what tests the HTTP API" pip3
    want e2fsprogs "makes the file systems on loop devices in the tests" mkfs.ext4
    want mount "mounts them" losetup
    want python3 "loads damaged libraries, and two RocksDBs at a time, in the tests" python3
fi
if [ "$stage" = web ]; then
    want nodejs "builds the dashboard, and drives the browser" node
    want npm "fetches Vite, TypeScript and Playwright" npm
    want chromium "shows the dashboard in its test" chromium
fi
if [ "$stage" = ozone ]; then
    want iproute2 "gives the test a network of its own" ip
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
[ "$stage" != build ] || exit 0

# cargo_program NAME VERSION WHY [ARGUMENTS...]: builds a program of cargo's into ~/.cargo.
cargo_program() {
    if has_program "$1"; then return; fi
    say "building $1 into ~/.cargo (some minutes): $3"
    # As quickly as it can be had: optimised for good, the tools take a quarter of an hour on two cores.
    env -u CARGO_TARGET_DIR CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_LTO=off \
        CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG=false \
        cargo install --quiet --locked "${@:4}" "$1@$2"
}

if [ ! -d "$(rustc --print sysroot)/lib/rustlib/x86_64-unknown-linux-musl" ]; then
    say "installing Rust's library for musl: the hook is built for that too"
    rustup target add x86_64-unknown-linux-musl
fi
if [ "$stage" = deb ]; then
    cargo_program cargo-deb "$cargo_deb" "it makes the package"
    cargo_program cargo-sbom "$cargo_sbom" "it lists the crates that are in the programs"
    exit 0
fi

mkdir -p "$tools"
for version in "${rocksdbjni[@]}"; do
    if [ ! -s "$tools/rocksdbjni-$version.jar" ]; then
        say "fetching RocksDB's Java library $version into $tools"
        mvn -q -B dependency:copy -Dartifact="org.rocksdb:rocksdbjni:$version" -DoutputDirectory="$tools" \
            -Dmdep.useBaseVersion=true
    fi
done

if [ "$stage" = ozone ] && ! cmp -s tests/ozone/pom.xml "$tools/ozone/pom.xml"; then
    say "fetching Apache Ozone's libraries into $tools (230 MB): its daemons run in the test"
    rm -rf "$tools/ozone"
    mvn -q -B -f tests/ozone/pom.xml dependency:copy-dependencies -DincludeScope=runtime \
        -DoutputDirectory="$tools/ozone/lib"
    cp tests/ozone/pom.xml "$tools/ozone/pom.xml"
fi

# wheel PACKAGE PLATFORM SHA256 DIRECTORY: unpacks what PyPI has built of a Python package; its code is not run.
wheel() {
    local scratch
    scratch=$(mktemp -d)
    pip3 download -q --no-deps --only-binary=:all: --platform "$2" --python-version 3.11 -d "$scratch" "$1"
    echo "$3 $(echo "$scratch"/*.whl)" | sha256sum --check --quiet
    python3 -m zipfile -e "$scratch"/*.whl "$4"
    rm -rf "$scratch"
}

# Debian has no C++ library for musl; wheels for Alpine Linux bring theirs. This is the newest that asks for nothing that
# Debian's musl lacks (packed relocations).
if [ ! -e "$tools/musl/libstdc++.so.6" ]; then
    say "unpacking the C++ library for musl out of a Python wheel into $tools"
    scratch=$(mktemp -d)
    wheel greenlet==2.0.2 musllinux_1_1_x86_64 \
        5454276c07d27a740c5892f4907c86327b632127dd9abec42ee62e12427ff7e3 "$scratch"
    mkdir -p "$tools/musl"
    cp "$scratch"/greenlet.libs/* "$tools/musl"
    (cd "$tools/musl" && ln -sf libgcc_s-*.so.1 libgcc_s.so.1 && ln -sf libstdc++-*.so.6.* libstdc++.so.6)
    rm -rf "$scratch"
fi

if [ ! -e "$tools/duckdb/duckdb" ]; then
    say "unpacking DuckDB out of a Python wheel into $tools: a test reads the agent's history with it"
    wheel duckdb==2.0.0 manylinux_2_28_x86_64 \
        5a3601121c7cc50d0b70412995634682fafcb58a0156d5d663dfd0b3bbe30a33 "$tools/duckdb"
fi

# Debian has none of them. They are of no use to the agent, and nothing but tests/tests/openapi.rs and tests/tests/deploy.rs
# runs them.
requirements=tests/python/requirements.txt
if ! cmp -s "$requirements" "$tools/python/requirements.txt"; then
    say "fetching schemathesis and validators of OpenAPI and Kubernetes into $tools: they check the HTTP API and the manifests"
    rm -rf "$tools/python"
    pip3 install -q --no-deps --only-binary=:all: --no-compile --no-warn-script-location --disable-pip-version-check \
        --root-user-action=ignore --target "$tools/python" -r "$requirements"
    cp "$requirements" "$tools/python/requirements.txt"
fi

# unpack PACKAGE DIRECTORY: unpacks a package that is not to be installed.
unpack() {
    local scratch
    scratch=$(mktemp -d)
    (cd "$scratch" && { apt-get download -qq "$1" 2>/dev/null ||
        { $sudo apt-get update -qq && apt-get download -qq "$1"; }; }) || { rm -rf "$scratch"; return 1; }
    mkdir -p "$2"
    dpkg -x "$scratch"/*.deb "$2"
    rm -rf "$scratch"
}

# The plugin has to be of the very version of the server.
server=$(dpkg-query -W -f '${Version}' mariadb-server-core)
if [ "$(cat "$tools/mariadb/version" 2>/dev/null)" != "$server" ]; then
    say "unpacking MyRocks, MariaDB's plugin, into $tools (its package would install and start a server)"
    rm -rf "$tools/mariadb"
    unpack "mariadb-plugin-rocksdb=$server" "$tools/mariadb"
    echo "$server" >"$tools/mariadb/version"
fi

if { ! has_program promtool || ! has_program prometheus; } && [ ! -x "$tools/prometheus/usr/bin/prometheus" ]; then
    say "unpacking Prometheus into $tools: it and its server check alerts and dashboard (nothing is installed, no daemon runs)"
    unpack prometheus "$tools/prometheus"
fi

if { ! has_program etcd || ! has_program etcdctl; } && [ ! -x "$tools/etcd/usr/bin/etcdctl" ]; then
    say "unpacking etcd into $tools: agents that act one at a time take their lock there in the tests (nothing is installed, no daemon runs)"
    unpack etcd-server "$tools/etcd"
    unpack etcd-client "$tools/etcd"
fi

cargo_program cargo-deny "$cargo_deny" "it checks licences and sources of all crates"
cargo_program cargo-nextest "$cargo_nextest" "it runs the end-to-end tests, several at a time" \
    --no-default-features --features default-no-update
