#!/usr/bin/env bash
# Sets one property of a running Ozone service, as Ozone's own procedure has it: change the node's ozone-site.xml, then
# have the service read it again (`ozone admin reconfig ... start`). What counts is what the service itself says
# afterwards: the value that is wanted, the one in the file and the one in force can be three.
# Meant as the commands `command` and `get` of a throttle in Sexton's policy; run on the service's own node, as a user who
# may write its ozone-site.xml and is an Ozone administrator.
#
#   ozone-reconfigure.sh set HTTP SERVICE HOST:PORT SITE_FILE PROPERTY VALUE
#   ozone-reconfigure.sh get HTTP PROPERTY
#   ozone-reconfigure.sh set http://localhost:9874 OM localhost:9862 /etc/hadoop/conf/ozone-site.xml \
#     ozone.key.deleting.limit.per.task 5000
#
# HTTP is the address of the service's web pages (ozone.om.http-address, port 9874; SCM 9876; DataNode 9882): its page
# /conf says what is in force. HOST:PORT is that of its RPC (OM 9862, SCM 9860, DataNode 19864).
#
# `set` does nothing where the value is in force and the file does not say otherwise, so it is safe to run again. Needs
# bash, awk, curl, flock and ozone.
#
# What the environment has to have, above all under systemd, which passes on none of a login shell's:
#   PATH              with the directory of `ozone` (/opt/ozone/bin, say) and of curl
#   JAVA_HOME         as `ozone` itself needs it
#   OZONE_CONF_DIR    the directory of the configuration that the service reads; SITE_FILE lies in there
#   KRB5CCNAME        on a cluster with Kerberos: a credential cache with a valid ticket of an Ozone administrator, kept by
#                     somebody else (a timer with `kinit -k -t KEYTAB PRINCIPAL`, k5start)
#   OZONE_CURL        further arguments of curl, split at spaces: `--negotiate -u :` where the web pages want Kerberos too,
#                     `--cacert FILE` for https
# A change starts a JVM (`ozone admin`), and a second one where the service does not take it: four seconds of a processor
# each, a quarter of a minute under CPUQuota=25%. Give the throttle a timeout for that, or the service a larger quota.
set -euo pipefail

# How often the service's page is looked at, five times a second: it applies a change within a second.
conf_attempts_max=10
# How often a service that is still at it is asked again; `ozone admin` takes two seconds to start its JVM each time.
status_attempts_max=10
# The service's own page: it answers at once, or is not there.
http_seconds_max=10

fail() {
  echo "ozone-reconfigure.sh: $*" >&2
  exit 1
}

usage="usage: set HTTP SERVICE HOST:PORT SITE_FILE PROPERTY VALUE, or get HTTP PROPERTY"
case "${1:-} $#" in
  "set 7") service=$3 address=$4 site=$5 property=$6 value=$7 ;;
  "get 3") property=$3 ;;
  *) fail "$usage" ;;
esac
http=${2%/}
[[ $http =~ ^https?://[][A-Za-z0-9._:-]+$ ]] || fail "HTTP is '$http' but must be like http://localhost:9874"
[[ $property =~ ^[a-z0-9]+([._-][a-z0-9]+)*$ ]] || fail "'$property' is not the name of a property"
command -v curl >/dev/null || fail "the command curl is not in PATH"

# Prints the value that the service goes by, its own default where nobody has set one.
effective() {
  local page more
  read -ra more <<<"${OZONE_CURL:-}"
  page=$(curl -sS --fail --max-time "$http_seconds_max" -H "Accept: application/xml" ${more[@]+"${more[@]}"} \
    "$http/conf?name=$property") || fail "$http/conf does not say what $property is"
  awk -v property="$property" '
    { text = text $0 "\n" }
    END {
      gsub(/\./, "[.]", property)
      if (!match(text, "<name>[ \t\n]*" property "[ \t\n]*</name>")) { exit 3 }
      text = substr(text, RSTART + RLENGTH)
      sub(/<\/property>.*/, "", text)
      if (!match(text, /<value>[^<]*<\/value>/)) { exit 3 }
      text = substr(text, RSTART + 7, RLENGTH - 15)
      gsub(/^[ \t\n]+|[ \t\n]+$/, "", text)
      print text
    }' <<<"$page" || fail "$http/conf knows no $property: is it the page of the right service?"
}

if [ "$1" = get ]; then
  effective
  exit 0
fi

case $service in
  OM | SCM | DATANODE) ;;
  *) fail "service is '$service' but must be OM, SCM or DATANODE" ;;
esac
[[ $address =~ ^[A-Za-z0-9._-]+:[0-9]+$ ]] || fail "address is '$address' but must be host:port"
# Numbers, times such as 45s and sizes such as 5MB: nothing that means something to XML.
[[ $value =~ ^[A-Za-z0-9.]+$ ]] || fail "'$value' is not a value: letters, digits and dots only"
[ -f "$site" ] || fail "$site is not a file: give the service's ozone-site.xml"
command -v ozone >/dev/null || fail "the command ozone is not in PATH"

# Prints the file with the property set: its value replaced where it stands, else added at the end.
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

# Whether the file names the property at all.
is_named() {
  awk -v property="$property" '
    { text = text $0 "\n" }
    END { gsub(/\./, "[.]", property); exit !match(text, "<name>[ \t\n]*" property "[ \t\n]*</name>") }' "$site"
}

# One at a time: two throttles may change the same file. The lock is on its directory, since the file itself
# is replaced.
exec 9<"$(dirname "$site")"
flock -w 20 9 || fail "another process has been changing $site for 20 s"

before=$(effective)
if [ "$before" = "$value" ] && ! is_named; then
  echo "$property is $value in $service already, and $site does not say otherwise"
  exit 0
fi

new=$(mktemp "$site.sexton.XXXXXX") || fail "cannot write beside $site: is it on a read-only file system?"
old=$(mktemp "$site.sexton.XXXXXX")
trap 'rm -f "$new" "$old"' EXIT
with_property >"$new" || case $? in
  3) fail "$site names $property twice: leave one" ;;
  4) fail "$site has no <value> right behind the name $property: write <name>, then <value>" ;;
  5) fail "$site does not end with </configuration>: it is not a Hadoop configuration file" ;;
  *) fail "cannot read $site" ;;
esac
is_changed=no
if ! cmp -s "$site" "$new"; then
  is_changed=yes
  # Keep owner and mode, and replace in one step: the service never reads half a file.
  # Sexton's commands have no capability, so that root may only give away what stays its own.
  chown --reference="$site" "$new" 2>/dev/null || [ "$(stat -c %u:%g "$site")" = "$(stat -c %u:%g "$new")" ] ||
    fail "$site is $(stat -c %U:%G "$site")'s, and this may not give the new one to them: make it $(id -un):$(id -gn)'s"
  chmod --reference="$site" "$new"
  cp -p "$site" "$old"
  mv "$new" "$site"
elif [ "$before" = "$value" ]; then
  echo "$property is $value in $service and in $site already"
  exit 0
fi

# The service did not take the change: the file must not say otherwise, nor must the next run.
fail_and_put_back() {
  [ "$is_changed" = no ] || mv "$old" "$site"
  fail "$* ($site is as it was)"
}

reconfig() {
  ozone admin reconfig --service="$service" --address="$address" "$1"
}
reconfig start || fail_and_put_back "$service at $address cannot be asked to read its configuration"
# Its own page says when it has: to ask `ozone admin` for that would start a second JVM.
after=
for ((attempt = 1; attempt <= conf_attempts_max; attempt++)); do
  after=$(effective) || fail_and_put_back "$service does not say what is in force"
  if [ "$after" = "$value" ]; then
    echo "$property is $value in $service at $address"
    exit 0
  fi
  sleep 0.2
done

# Why not is worth the second JVM.
status=
for ((attempt = 1; attempt <= status_attempts_max; attempt++)); do
  status=$(reconfig status) || status="$service at $address does not say how far it is"
  [[ $status == *"still running"* ]] || break
  sleep 1
done
after=$(effective) || fail_and_put_back "$service does not say what is in force"
if [ "$after" = "$value" ]; then
  echo "$property is $value in $service at $address"
  exit 0
fi
case $status in
  *FAILED:*) fail_and_put_back "$service refused: $status" ;;
  *"still running"*) fail "$service at $address was still at it after $status_attempts_max tries" ;;
  *) fail_and_put_back "$property is still $after in $service: it may not be reconfigurable, or $site is not the file that" \
    "$service reads (its OZONE_CONF_DIR): $status" ;;
esac
