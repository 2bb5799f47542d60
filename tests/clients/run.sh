#!/usr/bin/env bash
# Starts a built server and lets real clients work with it.
#
#   tests/clients/run.sh [--server BINARY] [--work DIR] [CHECK…]
#   tests/clients/run.sh --url URL [--user USER:PASSWORD] [CHECK…]    a server that runs already
#
# A check is one of the Python scripts beside this file, or of the Java programs below it, without its ending; all of
# them by default. The Java clients come from Maven Central.
# It exits with 77 if it misses something: a failure where CI=true, else skipped. With --url, the
# checks that read the server's files are left out.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
server=$here/../../target/debug/millrace work="" url="" user=""
checks=()
while (($#)); do
  case $1 in
    --server | --work | --url | --user) printf -v "${1#--}" '%s' "$2" && shift 2 ;;
    -*) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
    *) checks+=("$1") && shift ;;
  esac
done
[[ $work ]] || work=$here/../../target/clients
mkdir -p "$work"
work=$(readlink -f "$work")

if [[ $url ]]; then
  ((${#checks[@]})) || checks=(opensearch_client elasticsearch_7 elasticsearch_8 elasticsearch_9 security OpenSearchJava ElasticsearchJava rsyslog)
else
  ((${#checks[@]})) || checks=(opensearch_client elasticsearch_7 elasticsearch_8 elasticsearch_9 security OpenSearchJava ElasticsearchJava rsyslog parquet elastalert2)
  data=$work/data
  rm -rf "$data" "$work/server.out"
  user=admin:check-$RANDOM$RANDOM
  # Others may fill the disk.
  MILLRACE_ADMIN_PASSWORD=${user#*:} MILLRACE_STORAGE__DISK_THRESHOLD_ENABLED=false "$server" serve --data "$data" --listen 127.0.0.1:0 \
    >"$work/server.out" 2>"$work/server.log" &
  pid=$!
  trap 'kill -KILL "$pid" 2>/dev/null || true' EXIT
  for ((tries = 0; tries < 300; tries++)); do
    url=$(sed -n 's/^listening on //p' "$work/server.out" 2>/dev/null || true)
    if [[ $url ]] || ! kill -0 "$pid" 2>/dev/null; then break; fi
    sleep 0.1
  done
  [[ $url ]] || { echo "the server did not start:" >&2 && tail -n 20 "$work/server.log" >&2 && exit 1; }
  export CLIENT_DATA=$data
fi
export CLIENT_URL=$url CLIENT_USER=${user%%:*} CLIENT_PASSWORD=${user#*:} CLIENT_WORK=$work

# Runs a script, with packages of its own where there is a list of them.
run_python() {
  local packages=$here/requirements.txt venv=$work/venv
  if [[ -f $here/requirements-$1.txt ]]; then packages=$here/requirements-$1.txt venv=$work/venv-$1; fi
  if ! cmp -s "$packages" "$venv/requirements.txt"; then
    rm -rf "$venv"
    python3 -m venv "$venv" || return 1
    "$venv/bin/python" -m pip install --quiet --requirement "$packages" || return 1
    cp "$packages" "$venv/requirements.txt"
  fi
  timeout 300 "$venv/bin/python" "$here/$1.py"
}

# Fetches the clients of java/pom.xml, unless they are there, and runs a program with them.
run_java() {
  command -v mvn >/dev/null && command -v java >/dev/null || { echo "missing: Maven and a JDK" && return 77; }
  if ! cmp -s "$here/java/pom.xml" "$work/java/pom.xml"; then
    rm -rf "$work/java"
    mkdir -p "$work/java"
    timeout 600 mvn --quiet --batch-mode -f "$here/java/pom.xml" dependency:copy-dependencies \
      -DincludeScope=runtime -DoutputDirectory="$work/java/jars" || return 1
    cp "$here/java/pom.xml" "$work/java/pom.xml"
  fi
  timeout 300 java -cp "$work/java/jars/*" "$here/java/$1.java"
}

failed=0
for check in "${checks[@]}"; do
  code=0
  if [[ -f $here/java/$check.java ]]; then
    run_java "$check" || code=$?
  else
    run_python "$check" || code=$?
  fi
  if ((code == 0)); then
    echo "$check: ok"
  elif ((code == 77)) && [[ ${CI:-} != true ]]; then
    echo "$check: SKIPPED"
  else
    echo "$check: FAILED"
    failed=1
  fi
done
if [[ ${pid:-} ]]; then
  kill -TERM "$pid"
  wait "$pid" || { echo "the server did not stop cleanly" && failed=1; }
  trap - EXIT
fi
if ((failed)) && [[ -f $work/server.log ]]; then tail -n 40 "$work/server.log"; fi
exit "$failed"
