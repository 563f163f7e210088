#!/usr/bin/env bash
# Checks the alerting rules and runs their unit tests. Fetches promtool first if it is missing: from the
# Debian package, unpacked below ~/.cache/sexton-tools; nothing is installed and no daemon started. Safe to
# run again.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tools=${SEXTON_TOOLS:-$HOME/.cache/sexton-tools}

find_promtool() {
  local candidate
  for candidate in "$(command -v promtool || true)" "$tools/prometheus/usr/bin/promtool"; do
    if [ -n "$candidate" ] && [ -x "$candidate" ]; then
      echo "$candidate"
      return 0
    fi
  done
  return 1
}

fetch_promtool() {
  if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
    echo "check.sh: promtool is missing and this is not a Debian system: put promtool into PATH" >&2
    exit 1
  fi
  local work
  mkdir -p "$tools"
  work=$(mktemp -d "$tools/fetch.XXXXXX")
  # shellcheck disable=SC2064 # the directory's name of now is meant
  trap "rm -rf '$work'" EXIT
  echo "promtool is missing: fetching Debian's package prometheus into $tools"
  if ! (cd "$work" && apt-get -o APT::Sandbox::User=root download prometheus >apt.log 2>&1); then
    sed 's/^/  apt-get: /' "$work/apt.log" >&2
    echo "check.sh: cannot fetch the package: run apt-get update, or put promtool into PATH" >&2
    exit 1
  fi
  dpkg-deb -x "$work"/prometheus_*.deb "$work/prometheus"
  rm -rf "$tools/prometheus"
  mv "$work/prometheus" "$tools/prometheus"
}

promtool=$(find_promtool) || {
  fetch_promtool
  promtool=$(find_promtool)
}
echo "promtool: $promtool ($("$promtool" --version 2>&1 | head -n 1))"
"$promtool" check rules "$here/rules.yml"
(cd "$here" && "$promtool" test rules rules_test.yml)
