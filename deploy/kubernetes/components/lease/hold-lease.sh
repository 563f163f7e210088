#!/bin/bash
# hold-lease.sh NAME: takes a Lease, says so in a line, renews it, and gives it back when its input ends or it is told to end.
# It ends with an error as soon as it has not been renewed in time.
set -u
name=$1 me=$NODE_NAME-$$
seconds=15 renew_seconds=5
is_over=
trap 'is_over=1' TERM INT

now() { date -u +%Y-%m-%dT%H:%M:%S.000000Z; }

# swap HOLDER TIME NEW_HOLDER NEW_TIME: only where it is still as it was read.
swap() {
    kubectl patch lease "$name" --type=json --request-timeout=5s -p "[
        {\"op\": \"test\", \"path\": \"/spec/holderIdentity\", \"value\": \"$1\"},
        {\"op\": \"test\", \"path\": \"/spec/renewTime\", \"value\": \"$2\"},
        {\"op\": \"replace\", \"path\": \"/spec/holderIdentity\", \"value\": \"$3\"},
        {\"op\": \"replace\", \"path\": \"/spec/renewTime\", \"value\": \"$4\"}]" >/dev/null
}

# Nodes' clocks differ: a holder is gone who has not renewed it for as long as we have watched.
seen= since=$SECONDS
until [ -n "$is_over" ]; do
    state=$(kubectl get lease "$name" --request-timeout=5s -o 'jsonpath={.spec.holderIdentity} {.spec.renewTime}')
    [ "$state" = "$seen" ] || seen=$state since=$SECONDS
    holder=${state% *} renewed=${state##* } time=$(now)
    if [ "$holder" = nobody ] || { [ -n "$state" ] && [ $((SECONDS - since)) -ge $seconds ]; }; then
        if swap "$holder" "$renewed" "$me" "$time"; then break; fi
    fi
    sleep 1
done
[ -z "$is_over" ] || exit 0

echo "$name is held by $me"
renewed=$time since=$SECONDS
until [ -n "$is_over" ]; do
    read -r -t $renew_seconds && continue
    # Less than 129 is the end of the input.
    [ $? -gt 128 ] || break
    time=$(now)
    if swap "$me" "$renewed" "$me" "$time"; then
        renewed=$time since=$SECONDS
    elif [ $((SECONDS - since)) -ge $((seconds - renew_seconds)) ]; then
        echo "$name could not be renewed" >&2
        exit 1
    fi
done
swap "$me" "$renewed" nobody "$(now)"
