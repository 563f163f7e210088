#!/usr/bin/env bash
# Sets one property of a running Ozone service, as Ozone's own procedure has it: change the node's
# ozone-site.xml, then have the service read it again (`ozone admin reconfig ... start`) and wait until it has.
# Meant as the command of a throttle in Sexton's policy; run on the service's own node, as a user who may
# write its ozone-site.xml and is an Ozone administrator.
#
#   ozone-reconfigure.sh SERVICE HOST:PORT SITE_FILE PROPERTY VALUE
#   ozone-reconfigure.sh OM localhost:9862 /etc/hadoop/conf/ozone-site.xml ozone.key.deleting.limit.per.task 5000
#
# Does nothing if the file has the value already, so it is safe to run again. Needs bash, awk, flock and ozone.
set -euo pipefail

# The service applies a change within a second; `ozone admin` itself takes two to start its JVM.
status_attempts_max=10

fail() {
  echo "ozone-reconfigure.sh: $*" >&2
  exit 1
}

[ $# -eq 5 ] || fail "usage: SERVICE HOST:PORT SITE_FILE PROPERTY VALUE"
service=$1 address=$2 site=$3 property=$4 value=$5
case $service in
  OM | SCM | DATANODE) ;;
  *) fail "service is '$service' but must be OM, SCM or DATANODE" ;;
esac
[[ $address =~ ^[A-Za-z0-9._-]+:[0-9]+$ ]] || fail "address is '$address' but must be host:port"
[[ $property =~ ^[a-z0-9]+([._-][a-z0-9]+)*$ ]] || fail "'$property' is not the name of a property"
# Numbers, times such as 45s and sizes such as 5MB: nothing that means something to XML.
[[ $value =~ ^[A-Za-z0-9.]+$ ]] || fail "'$value' is not a value: letters, digits and dots only"
[ -f "$site" ] || fail "$site is not a file: give the service's ozone-site.xml"
command -v ozone >/dev/null || fail "the command ozone is not in PATH"

# Writes the file with the property set: its value replaced where it stands, else added at the end.
with_property() {
  awk -v property="$property" -v value="$value" '
    { text = text $0 "\n" }
    END {
      gsub(/\./, "[.]", property)
      name = "<name>[ \t\n]*" property "[ \t\n]*</name>"
      if (match(text, name)) {
        head = substr(text, 1, RSTART + RLENGTH - 1)
        tail = substr(text, RSTART + RLENGTH)
        if (match(tail, name)) { exit 3 }
        if (!match(tail, /^[ \t\n]*<value>[^<]*<\/value>/)) { exit 4 }
        printf "%s\n    <value>%s</value>%s", head, value, substr(tail, RSTART + RLENGTH)
      } else if (match(text, /<\/configuration>[ \t\n]*$/)) {
        gsub(/\[\.\]/, ".", property)
        printf "%s", substr(text, 1, RSTART - 1)
        printf "  <property>\n    <name>%s</name>\n    <value>%s</value>\n  </property>\n", property, value
        printf "%s", substr(text, RSTART)
      } else { exit 5 }
    }' "$site"
}

# One at a time: two throttles may change the same file. The lock is on its directory, since the file itself
# is replaced.
exec 9<"$(dirname "$site")"
flock -w 20 9 || fail "another process has been changing $site for 20 s"

new=$(mktemp "$site.sexton.XXXXXX") || fail "cannot write beside $site: is it on a read-only file system?"
old=$(mktemp "$site.sexton.XXXXXX")
trap 'rm -f "$new" "$old"' EXIT
with_property >"$new" || case $? in
  3) fail "$site names $property twice: leave one" ;;
  4) fail "$site has no <value> right behind the name $property: write <name>, then <value>" ;;
  5) fail "$site does not end with </configuration>: it is not a Hadoop configuration file" ;;
  *) fail "cannot read $site" ;;
esac
if cmp -s "$site" "$new"; then
  echo "$property is $value already in $site"
  exit 0
fi
# Keep owner and mode, and replace in one step: the service never reads half a file.
chown --reference="$site" "$new" 2>/dev/null || true
chmod --reference="$site" "$new"
cp -p "$site" "$old"
mv "$new" "$site"

# The service did not take the change: the file must not say otherwise, nor must the next run.
fail_and_put_back() {
  mv "$old" "$site"
  fail "$* ($site is as it was)"
}

reconfig() {
  ozone admin reconfig --service="$service" --address="$address" "$1"
}
reconfig start || fail_and_put_back "$service at $address cannot be asked to read its configuration"
for ((attempt = 1; attempt <= status_attempts_max; attempt++)); do
  status=$(reconfig status) || fail "$service at $address does not say whether it has the change"
  case $status in
    *"still running"*) sleep 1 ;;
    *FAILED:*) fail_and_put_back "$service refused: $status" ;;
    *"Changed property $property"*)
      echo "$property is $value in $service at $address"
      exit 0
      ;;
    *) fail_and_put_back "$service did not change $property, it may not be reconfigurable: $status" ;;
  esac
done
fail "$service at $address was still at it after $status_attempts_max tries"
