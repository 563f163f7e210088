#!/bin/bash
# Installs the package in a fresh Debian under a real systemd, has it act on a JVM, hangs it, purges it, and says of
# each step how it went: `guest: ok STEP WHAT` or `guest: failed STEP WHY`, at the end `guest: result JSON`.
# Runs as root in the virtual machine that tests/package/run.sh boots.
set -uo pipefail
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C DEBIAN_FRONTEND=noninteractive SYSTEMD_BUS_TIMEOUT=600
here=/package-test
scratch=/tmp/package-test
mkdir -p "$scratch"
declare -A figures=()
failures=0

ok() { echo "guest: ok $1 ${*:2}"; }
failed() {
    echo "guest: failed $1 ${*:2}"
    failures=$((failures + 1))
}
# Waits at most $1 seconds for the command in $2... to succeed.
wait_for() {
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 1
    done
}
# check STEP WHAT COMMAND...: one step that is a command.
check() {
    local output
    if output=$("${@:3}" 2>&1); then ok "$1" "$2"; else failed "$1" "$2: $(tail -n 5 <<<"$output" | tr '\n' '|')"; fi
}

# Everything that a package could leave behind: files, users and groups, units, mounts.
traces() {
    find / -xdev \( -path /package-test -o -path /tmp -o -path /srv -o -path /proc -o -path /sys -o -path /dev -o -path /run \
        -o -path /var/log/journal \) -prune -o -print |
        grep -vxF -f "$here/changing.txt" | LC_ALL=C sort
    find /run -path '/run/systemd/*' -prune -o -path /run/log -prune -o -name '*sexton*' -print | LC_ALL=C sort
    cut -d: -f1 /etc/passwd /etc/group | sort | sed 's/^/name: /'
    systemctl list-unit-files --no-legend --no-pager | awk '{ print "unit: " $1 " " $2 }' | sort
    systemctl list-units --all --no-legend --no-pager --plain '*sexton*' | awk '{ print "loaded: " $1 }'
}

main_pid() { systemctl show -P MainPID sexton.service; }
api() { curl -sf --max-time 20 "http://127.0.0.1:9776$1"; }
is_active() { systemctl -q is-active sexton.service && api /healthz >/dev/null; }

# The median of the last 20 lists of the prefix with the tombstones, in microseconds.
median_us() {
    grep '^list /vol/b/ ' "$1" | tail -n 20 | awk '{ print int($3 / 1000) }' | sort -n |
        awk '{ value[NR] = $1 } END { print NR ? value[int((NR + 1) / 2)] : 0 }'
}
lists() { grep -c '^list /vol/b/ ' /srv/app/out; }

install_package() {
    check install "dpkg -i" dpkg -i "$here/sexton.deb"
    if wait_for 120 is_active; then ok start "active and answering"; else
        failed start "$(systemctl status --no-pager -n 5 sexton.service 2>&1 | tail -n 8 | tr '\n' '|')"
    fi
    check enabled "starts at boot" systemctl -q is-enabled sexton.service sexton.socket
    check files "as they were packed" dpkg -V sexton
    check doctor "finds what it needs" sexton doctor
    check api "build and targets" api /api/v1/targets
    check metrics "sexton_ metrics" bash -c "curl -sf http://127.0.0.1:9776/metrics | grep -q ^sexton_"
    check policy "the installed policy is valid" sexton policy check /etc/sexton/policy.yaml
    local page
    for page in sexton sexton-run sexton-policy-check; do
        check manual "page $page" bash -c "dpkg-deb --fsys-tarfile $here/sexton.deb | tar -xO ./usr/share/man/man1/$page.1.gz | zgrep -q 'EXIT STATUS'"
    done
    local exposure
    exposure=$(systemd-analyze security --no-pager sexton.service 2>/dev/null | awk '/Overall exposure/ { print $(NF - 2) }')
    figures[exposure]=${exposure:-null}
    if awk -v exposure="${exposure:-9}" 'BEGIN { exit !(exposure <= 2.0) }'; then ok security "$exposure"; else
        failed security "exposure ${exposure:-unknown}, at most 2.0"
    fi
}

# A user's program: it knows nothing of Sexton.
start_jvm() {
    install -d -o app /srv/app /srv/app/db
    systemd-run --quiet --unit=app --uid=app -p StandardOutput=file:/srv/app/out -p StandardError=file:/srv/app/err \
        -p WorkingDirectory=/srv/app /bin/sh -c "sleep 3000 | exec java -Xmx256m -XX:+UseSerialGC \
        -Djava.io.tmpdir=/srv/app -cp $here/rocksdbjni.jar:$here/classes ListAndDelete /srv/app/db 3000"
    if wait_for 600 bash -c '[ "$(grep -c "^list /vol/b/ " /srv/app/out)" -ge 20 ]'; then
        figures[list_before_us]=$(median_us /srv/app/out)
        ok jvm "lists in ${figures[list_before_us]:-0} us"
    else
        failed jvm "it does not list: $(tail -n 3 /srv/app/err /srv/app/out 2>&1 | tr '\n' '|')"
    fi
}

act() {
    cp "$here/act.yaml" /etc/sexton/policy.yaml
    mkdir -p /etc/systemd/system/sexton.service.d
    ln -s /usr/share/sexton/sexton.service.d/act.conf /etc/systemd/system/sexton.service.d/act.conf
    systemctl daemon-reload
    check restart "with act.conf" systemctl restart sexton.service
    local began=$SECONDS
    wait_for 120 is_active || failed act "the service is not active with act.conf"
    is_faster() { [ "$(median_us /srv/app/out)" -lt $((${figures[list_before_us]:-0} / 5)) ]; }
    if wait_for 500 is_faster; then
        figures[relieved_after_s]=$((SECONDS - began))
        # Lists that were all made after it.
        local enough=$(($(lists) + 25))
        wait_for 120 bash -c "[ \"\$(grep -c '^list /vol/b/ ' /srv/app/out)\" -ge $enough ]"
        figures[list_after_us]=$(median_us /srv/app/out)
        ok act "lists in ${figures[list_after_us]} us"
    else
        failed act "lists still take $(median_us /srv/app/out) us: $(api '/api/v1/plan' | head -c 1500 | tr '\n' ' ')"
        journalctl --no-pager -u sexton.service -n 40
    fi
    local exposure
    exposure=$(systemd-analyze security --no-pager sexton.service 2>/dev/null | awk '/Overall exposure/ { print $(NF - 2) }')
    figures[exposure_acting]=${exposure:-null}
    if awk -v exposure="${exposure:-9}" 'BEGIN { exit !(exposure <= 2.0) }'; then ok security "acting: $exposure"; else
        failed security "exposure ${exposure:-unknown} with act.conf, at most 2.0"
    fi
    check jvm "it still runs" systemctl -q is-active app.service
}

hang() {
    local before began=$SECONDS
    # Only for this test: as shipped the watchdog waits for two minutes.
    printf '[Service]\nWatchdogSec=30\n' >/etc/systemd/system/sexton.service.d/watchdog.conf
    systemctl daemon-reload
    systemctl restart sexton.service
    wait_for 120 is_active || failed watchdog "the service does not start with a short watchdog"
    # It stays up while it is fed.
    before=$(main_pid)
    sleep 45
    [ "$(main_pid)" = "$before" ] || failed watchdog "a healthy agent was restarted"
    kill -STOP "$before"
    has_restarted() { [ "$(main_pid)" != "$before" ] && is_active; }
    if wait_for 240 has_restarted && journalctl --no-pager -u sexton.service | grep -q 'Watchdog timeout'; then
        figures[watchdog_s]=$((SECONDS - began))
        ok watchdog "killed by systemd, started again"
    else
        failed watchdog "$(systemctl status --no-pager -n 5 sexton.service 2>&1 | tail -n 8 | tr '\n' '|')"
    fi
    check jvm "it still runs" systemctl -q is-active app.service
    rm -f /etc/systemd/system/sexton.service.d/watchdog.conf
    systemctl daemon-reload
}

purge() {
    systemctl stop app.service
    check remove "dpkg -r" dpkg -r sexton
    ! systemctl -q is-active sexton.service sexton.socket || failed remove "a unit is still active"
    check purge "dpkg -P" dpkg -P sexton
    systemctl daemon-reload
    systemctl reset-failed
    traces >"$scratch/after"
    if diff "$scratch/before" "$scratch/after" >"$scratch/left"; then ok traces "none"; else
        failed traces "$(grep '^[<>]' "$scratch/left" | head -n 20 | tr '\n' '|')"
    fi
    figures[traces]=$(grep -c '^[<>]' "$scratch/left")
}

result() {
    local name json="{\"failures\":$failures"
    for name in "${!figures[@]}"; do json+=",\"$name\":${figures[$name]}"; done
    echo "guest: result $json,\"kernel\":\"$(uname -r)\",\"systemd\":\"$(systemctl --version | awk 'NR == 1 { print $2 }')\",\"seconds\":$SECONDS}"
}

echo "guest: began"
useradd --system --no-create-home app
# What booting itself writes has been written.
wait_for 120 bash -c '[ "$(systemctl list-jobs --no-legend | grep -vc package-test)" -le 1 ]'
traces >"$scratch/before"
install_package
start_jvm
act
hang
purge
result
sync
exit "$((failures > 0))"
