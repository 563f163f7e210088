#!/usr/bin/env bash
# Tests ozone-reconfigure.sh: what it does to the site file, and what it makes of the service's answers. The service is a
# stand-in here: a command ozone that prints what Ozone 2.2.0 prints, and a web server whose page /conf answers as
# Hadoop's does, for a service that reads its site file when it is told to.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$work"' EXIT
failures=0
key=ozone.key.deleting.limit.per.task

# `start` has the service read the file that it reads (OZONE_READS); `effective` is what it goes by then.
cat >"$work/ozone" <<'STAND_IN'
#!/usr/bin/env bash
echo "$*" >>"$OZONE_CALLS"
case $* in
  *start)
    found=$(tr -d ' \n' <"$OZONE_READS" | sed -n "s,.*<name>$OZONE_KEY</name><value>\([^<]*\)</value>.*,\1,p")
    if [ "$OZONE_TAKES" = yes ]; then echo "${found:-50000}" >"$OZONE_EFFECTIVE"; fi
    echo "OM: Started reconfiguration task on node [x]."
    ;;
  *) printf '%b\n' "$OZONE_STATUS" ;;
esac
STAND_IN
chmod +x "$work/ozone"
cat >"$work/server.py" <<'STAND_IN'
import http.server, sys, urllib.parse
effective, key, port_file = sys.argv[1:]
class Conf(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        address = urllib.parse.urlparse(self.path)
        name = urllib.parse.parse_qs(address.query).get("name", [""])[0]
        if address.path != "/conf" or name != key:
            return self.send_error(404, f"Property {name} not found")
        value = open(effective).read().strip()
        body = ('<?xml version="1.0" encoding="UTF-8" standalone="no"?><configuration><property>'
                f"<name>{name}</name><value>{value}</value><final>false</final>"
                "<source>ozone-default.xml</source></property></configuration>").encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/xml; charset=utf-8")
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
server = http.server.HTTPServer(("127.0.0.1", 0), Conf)
print(server.server_port, file=open(port_file + ".new", "w"), flush=True)
import os
os.rename(port_file + ".new", port_file)
server.serve_forever()
STAND_IN
export PATH="$work:$PATH" OZONE_CALLS="$work/calls" OZONE_EFFECTIVE="$work/effective" OZONE_READS="$work/site.xml"
export OZONE_KEY=$key OZONE_TAKES=yes
export OZONE_STATUS="OM: Reconfiguring status for node [x]: started at a and finished at b.
SUCCESS: Changed property $key\n\tFrom: \"50000\"\n\tTo: \"5000\""
python3 "$work/server.py" "$OZONE_EFFECTIVE" "$key" "$work/port" &
server=$!
for ((wait = 0; wait < 600; wait++)); do
  [ ! -s "$work/port" ] || break
  sleep 0.05
done
http="http://127.0.0.1:$(cat "$work/port")"

# service_with PROPERTIES EFFECTIVE: a site file, and a service that goes by that value.
service_with() {
  printf '<?xml version="1.0"?>\n<configuration>\n%s\n</configuration>\n' "$1" >"$work/site.xml"
  chmod 640 "$work/site.xml"
  echo "${2:-50000}" >"$OZONE_EFFECTIVE"
  : >"$OZONE_CALLS"
}

run() {
  "$here/ozone-reconfigure.sh" set "$http" "${1:-OM}" "${2:-localhost:9862}" "$work/site.xml" "${3:-$key}" "${4:-5000}" 2>&1
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
# holds NAME COMMAND...: the command succeeds.
holds() {
  local name=$1
  shift
  if "$@"; then echo "ok     $name"; else
    echo "FAILED $name"
    cat "$work/site.xml"
    failures=$((failures + 1))
  fi
}
file_has() { holds "$1" grep -q "$2" "$work/site.xml"; }
site_lacks() { ! grep -qF "$1" "$work/site.xml"; }
was_not_called() { [ ! -s "$OZONE_CALLS" ]; }

other='<property><name>ozoneXkey.deleting.limit.per.task</name><value>1</value></property>'
property() { printf '<property><name>%s</name>\n  <value>%s</value></property>' "$key" "$1"; }

service_with "$other$(property 50000)"
try
expect "a value is replaced" 0 "$key is 5000 in OM at"
file_has "the new value stands in the file" "<value>5000</value>"
file_has "a similar name is left alone" "<value>1</value>"
holds "the mode is kept" [ "$(stat -c %a "$work/site.xml")" = 640 ]
holds "ozone is told to start, and not asked" [ "$(cut -d' ' -f5 "$OZONE_CALLS" | tr '\n' ' ')" = "start " ]
: >"$OZONE_CALLS"
try
expect "the same value again does nothing" 0 "already"
holds "no call when nothing changes" was_not_called

service_with "$other"
try
expect "a property that is missing is added" 0 "$key is 5000"
file_has "the name was added" "<name>$key</name>"
holds "the end of the file stays" grep -q '^</configuration>$' <(tail -n 1 "$work/site.xml")

# Three values: wanted, in the file, in force.
service_with "$other" 50000
try OM localhost:9862 "$key" 50000
expect "a default that equals the wanted value is in force" 0 "is 50000 in OM already"
holds "and nothing was asked for" was_not_called
holds "nor written" site_lacks "<name>$key"
service_with "$(property 5000)" 50000
try
expect "a file that the service has not read yet is read" 0 "$key is 5000 in OM at"
service_with "$(property 7)" 5000
try
expect "a file that says otherwise is put right" 0 "$key is 5000"
file_has "so that the next start has it too" "<value>5000</value>"
elsewhere="$work/elsewhere.xml"
echo "<configuration></configuration>" >"$elsewhere"
service_with "$(property 5000)" 50000
OZONE_READS=$elsewhere OZONE_STATUS="x started at a and finished at b." try
expect "a file that the service does not read is not in force, whatever it says" 1 "is not the file that OM reads"
service_with "" 50000
OZONE_READS=$elsewhere OZONE_STATUS="x started at a and finished at b." try
expect "nor is one that was written" 1 "$key is still 50000 in OM"
holds "and that is put back" site_lacks 5000

service_with ""
OZONE_TAKES=no OZONE_STATUS="x finished at b.\nFAILED: Change property $key\n\tError: no." try
expect "a refusal is an error" 1 "OM refused"
holds "of which ozone is asked" [ "$(cut -d' ' -f5 "$OZONE_CALLS" | tr '\n' ' ')" = "start status " ]
holds "the file is put back" site_lacks 5000
service_with ""
OZONE_TAKES=no OZONE_STATUS="x started at a and finished at b." try
expect "a property that is not reconfigurable is an error" 1 "may not be reconfigurable"
service_with "$(property 1)$(property 2)"
try
expect "a name that stands twice is an error" 1 "twice"

status=0
echo 4711 >"$OZONE_EFFECTIVE"
output=$("$here/ozone-reconfigure.sh" get "$http/" "$key" 2>&1) || status=$?
holds "get prints the value in force and nothing else" [ "$status $output" = "0 4711" ]
status=0
output=$("$here/ozone-reconfigure.sh" get "$http" ozone.other 2>&1) || status=$?
expect "get fails for a property that the service does not know" 1 "does not say what ozone.other is"
status=0
output=$("$here/ozone-reconfigure.sh" get "http://127.0.0.1:1" "$key" 2>&1) || status=$?
expect "and for a service that does not answer" 1 "does not say what"
status=0
output=$("$here/ozone-reconfigure.sh" get "file:///etc/passwd" "$key" 2>&1) || status=$?
expect "an address of another kind is refused" 1 "must be like http://"

service_with ""
for bad in "OMG" "OM|localhost" "OM|localhost:9862|a.b;rm" "OM|localhost:9862|a.b|<x>" "OM|localhost:9862|a.b|1 2"; do
  IFS='|' read -ra arguments <<<"$bad"
  try "${arguments[@]}"
  expect "refused: $bad" 1 "ozone-reconfigure.sh: "
done
echo "not XML" >"$work/site.xml"
try
expect "a file of another kind is left alone" 1 "not a Hadoop configuration file"
file_has "and unchanged" "^not XML$"
holds "no temporary files stay" [ "$(find "$work" -name 'site.xml?*' | wc -l)" -eq 0 ]
[ "$failures" -eq 0 ] || exit 1
