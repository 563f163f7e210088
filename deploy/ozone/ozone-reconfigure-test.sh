#!/usr/bin/env bash
# Tests ozone-reconfigure.sh: what it does to the site file, and what it makes of the service's answers. The
# command ozone is a stand-in here that prints what Ozone 2.2.0 prints.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

cat >"$work/ozone" <<'STAND_IN'
#!/usr/bin/env bash
echo "$*" >>"$OZONE_CALLS"
case $* in
  *start) echo "OM: Started reconfiguration task on node [x]." ;;
  *) printf '%b\n' "$OZONE_STATUS" ;;
esac
STAND_IN
chmod +x "$work/ozone"
export PATH="$work:$PATH" OZONE_CALLS="$work/calls"
key=ozone.key.deleting.limit.per.task
export OZONE_STATUS="OM: Reconfiguring status for node [x]: started at a and finished at b.
SUCCESS: Changed property $key\n\tFrom: \"50000\"\n\tTo: \"5000\""

site_with() {
  printf '<?xml version="1.0"?>\n<configuration>\n%s\n</configuration>\n' "$1" >"$work/site.xml"
  chmod 640 "$work/site.xml"
  : >"$OZONE_CALLS"
}

run() {
  "$here/ozone-reconfigure.sh" "${1:-OM}" "${2:-localhost:9862}" "$work/site.xml" "${3:-$key}" "${4:-5000}" 2>&1
}

# expect NAME STATUS TEXT: the last run ended so and said so.
expect() {
  if [ "$status" -ne "$2" ] || [[ $output != *"$3"* ]]; then
    printf 'FAILED %s: status %s, said: %s\n' "$1" "$status" "$output"
    failures=$((failures + 1))
  else
    echo "ok     $1"
  fi
}
try() {
  status=0
  output=$(run "$@") || status=$?
}
file_has() {
  if grep -q "$2" "$work/site.xml"; then echo "ok     $1"; else
    echo "FAILED $1"
    cat "$work/site.xml"
    failures=$((failures + 1))
  fi
}

other='<property><name>ozoneXkey.deleting.limit.per.task</name><value>1</value></property>'
site_with "$other<property><name>$key</name>
  <value>50000</value></property>"
try
expect "a value is replaced" 0 "$key is 5000 in OM"
file_has "the new value stands in the file" "<value>5000</value>"
file_has "a similar name is left alone" "<value>1</value>"
[ "$(stat -c %a "$work/site.xml")" = 640 ] || { echo "FAILED the mode is kept" && failures=$((failures + 1)); }
[ "$(cut -d' ' -f5 "$OZONE_CALLS" | tr '\n' ' ')" = "start status " ] || {
  echo "FAILED ozone is called: $(cat "$OZONE_CALLS")" && failures=$((failures + 1))
}
: >"$OZONE_CALLS"
try
expect "the same value again does nothing" 0 "already"
[ ! -s "$OZONE_CALLS" ] || { echo "FAILED no call when nothing changes" && failures=$((failures + 1)); }

site_with "$other"
try
expect "a property that is missing is added" 0 "$key is 5000"
file_has "the name was added" "<name>$key</name>"
tail -n 1 "$work/site.xml" | grep -q '^</configuration>$' || { echo "FAILED the end stays" && failures=$((failures + 1)); }

site_with ""
OZONE_STATUS="x finished at b.\nFAILED: Change property $key\n\tError: no." try
expect "a refusal is an error" 1 "OM refused"
grep -q 5000 "$work/site.xml" && { echo "FAILED the file is put back" && failures=$((failures + 1)); }
site_with ""
OZONE_STATUS="x started at a and finished at b." try
expect "a property that is not reconfigurable is an error" 1 "did not change $key"
site_with "<property><name>$key</name><value>1</value></property><property><name>$key</name><value>2</value></property>"
try
expect "a name that stands twice is an error" 1 "twice"
site_with ""
for bad in "OMG" "OM|localhost" "OM|localhost:9862|a.b;rm" "OM|localhost:9862|a.b|<x>" "OM|localhost:9862|a.b|1 2"; do
  IFS='|' read -ra arguments <<<"$bad"
  try "${arguments[@]}"
  expect "refused: $bad" 1 "ozone-reconfigure.sh: "
done
echo "not XML" >"$work/site.xml"
try
expect "a file of another kind is left alone" 1 "not a Hadoop configuration file"
file_has "and unchanged" "^not XML$"
[ "$(find "$work" -name 'site.xml?*' | wc -l)" -eq 0 ] || { echo "FAILED temporary files stay" && failures=$((failures + 1)); }
[ "$failures" -eq 0 ] || exit 1
