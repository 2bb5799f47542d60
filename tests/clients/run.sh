#!/usr/bin/env bash
# Starts a built server and lets real clients work with it.
#
#   tests/clients/run.sh [--server BINARY] [--work DIR] [CHECK…]
#   tests/clients/run.sh --url URL [--user USER:PASSWORD] [--flight HOST:PORT] [CHECK…]    a server that runs already
#
# A check is one of the Python scripts beside this file, or of the programs in Java or Go below it, without its ending;
# all of them by default. The Java clients come from Maven Central, those of Go by its modules. `filebeat` and `collector` take three
# minutes of a core each to build, while other checks run; they are skipped where one of their many modules is out of reach.
# It exits with 77 if it misses something else: a failure where CI=true, else skipped. With --url, the
# checks that read the server's files or kill it are left out, and those of Flight without --flight.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
server=$here/../../target/debug/millrace work="" url="" user="" flight=""
checks=()
while (($#)); do
  case $1 in
    --server | --work | --url | --user | --flight) printf -v "${1#--}" '%s' "$2" && shift 2 ;;
    -*) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
    *) checks+=("$1") && shift ;;
  esac
done
[[ $work ]] || work=$here/../../target/clients
mkdir -p "$work"
work=$(readlink -f "$work")

over_http=(opensearch_client elasticsearch_7 elasticsearch_8 elasticsearch_9 security OpenSearchJava ElasticsearchJava rsyslog)
over_http+=(sqlalchemy_elasticsearch sqlalchemy_opensearch opensearchsql_cli OpenSearchJdbc)
over_flight=(flight_adbc flight_pyarrow flight_duckdb FlightJdbc flight_go)
if [[ $url ]]; then
  [[ $flight ]] || over_flight=()
  ((${#checks[@]})) || checks=("${over_http[@]}" "${over_flight[@]}")
else
  ((${#checks[@]})) || checks=("${over_http[@]}" parquet otlp network lumber inputs rabbitmq elastalert2 notifications forecast schedule "${over_flight[@]}" flight_crash filebeat collector)
  server=$(readlink -f "$server")
  flight=127.0.0.1:$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  data=$work/data
  rm -rf "$data" "$work/server.out"
  user=admin:check-$RANDOM$RANDOM
  # Others may fill the disk.
  MILLRACE_ADMIN_PASSWORD=${user#*:} MILLRACE_STORAGE__DISK_THRESHOLD_ENABLED=false MILLRACE_FLIGHT__LISTEN=$flight "$server" serve --data "$data" --listen 127.0.0.1:0 \
    >"$work/server.out" 2>"$work/server.log" &
  pid=$!
  trap 'kill -KILL "$pid" 2>/dev/null || true' EXIT
  for ((tries = 0; tries < 300; tries++)); do
    url=$(sed -n 's/^listening on //p' "$work/server.out" 2>/dev/null || true)
    if [[ $url ]] || ! kill -0 "$pid" 2>/dev/null; then break; fi
    sleep 0.1
  done
  [[ $url ]] || { echo "the server did not start:" >&2 && tail -n 20 "$work/server.log" >&2 && exit 1; }
  export CLIENT_DATA=$data CLIENT_SERVER=$server
fi
export CLIENT_URL=$url CLIENT_USER=${user%%:*} CLIENT_PASSWORD=${user#*:} CLIENT_WORK=$work CLIENT_FLIGHT=$flight

# Runs a script, with packages of its own, or of the first word of its name, where there is a list of them.
run_python() {
  local packages=$here/requirements.txt venv=$work/venv name code=0
  if [[ ${builds[$1]:-} ]]; then wait "${builds[$1]}" || { code=$? && cat "$work/go-$1.log" && return "$code"; }; fi
  for name in "${1%%_*}" "$1"; do
    if [[ -f $here/requirements-$name.txt ]]; then packages=$here/requirements-$name.txt venv=$work/venv-$name; fi
  done
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
  # Arrow's memory is outside of the heap.
  timeout 300 java --add-opens=java.base/java.nio=ALL-UNNAMED -cp "$work/java/jars/*" "$here/java/$1.java"
}

readonly out_of_reach=78 # exit code of a check whose modules cannot be fetched

# Builds a program in Go while other checks run: with the modules of go/go.mod, or of a directory of its own, whose modules may be
# out of reach.
build_go() {
  if [[ -f $here/$1/go.mod ]]; then
    timeout 300 go list -C "$here/$1" -deps . >/dev/null || { echo "missing: modules of Go" && return "$out_of_reach"; }
    timeout 900 nice go build -C "$here/$1" -o "$work/go-$1" .
  else
    timeout 900 nice go build -C "$here/go" -o "$work/go-$1" "$1.go"
  fi
} >"$work/go-$1.log" 2>&1

# Waits until a program in Go is built, and runs it.
run_go() {
  [[ ${builds[$1]:-} ]] || { echo "missing: go" && return 77; }
  wait "${builds[$1]}" || { cat "$work/go-$1.log" && return 1; }
  timeout 300 "$work/go-$1"
}

declare -A builds
for check in "${checks[@]}"; do
  [[ -f $here/go/$check.go || -f $here/$check/go.mod ]] && command -v go >/dev/null || continue
  build_go "$check" &
  builds[$check]=$!
done

failed=0
for check in "${checks[@]}"; do
  code=0 started=$SECONDS
  if [[ -f $here/java/$check.java ]]; then
    run_java "$check" || code=$?
  elif [[ -f $here/go/$check.go ]]; then
    run_go "$check" || code=$?
  else
    run_python "$check" || code=$?
  fi
  if ((code == 0)); then
    echo "$check: ok ($((SECONDS - started)) s)"
  elif ((code == out_of_reach)) || { ((code == 77)) && [[ ${CI:-} != true ]]; }; then
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
