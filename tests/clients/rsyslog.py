"""rsyslog delivers lines through its Elasticsearch output, in bulks.

By default it names a type in each action and leaves an empty line behind each document, as servers of the
7.10 line accept; `esVersion.major="8"` drops the type.
"""

import glob
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse

from target import PASSWORD, URL, USER, WORK, call, expect

INDEX = "client-rsyslog"
LINES = 2_000

rsyslogd = shutil.which("rsyslogd", path=os.environ["PATH"] + ":/usr/sbin")
if not rsyslogd or not glob.glob("/usr/lib/*/rsyslog/omelasticsearch.so"):
    print("missing: the Debian packages rsyslog and rsyslog-elasticsearch")
    sys.exit(77)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(what, condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
        time.sleep(0.1)


def count():
    call("POST", f"/{INDEX}/_refresh")
    status, answer = call("GET", f"/{INDEX}/_count")
    return answer["count"] if status == 200 else 0


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def deliver(options):
    call("DELETE", f"/{INDEX}")
    server = urllib.parse.urlsplit(URL)
    port = free_port()
    credentials = f'uid="{USER}" pwd="{PASSWORD}"' if USER else ""
    directory = tempfile.mkdtemp(dir=WORK)
    config = f"""
global(workDirectory="{directory}")
module(load="imtcp")
module(load="omelasticsearch")
input(type="imtcp" address="127.0.0.1" port="{port}")
template(name="line" type="list" option.jsonf="on") {{
  property(outname="@timestamp" name="timereported" dateFormat="rfc3339" format="jsonf")
  property(outname="host" name="hostname" format="jsonf")
  property(outname="tag" name="syslogtag" format="jsonf")
  property(outname="message" name="msg" format="jsonf")
}}
if $programname == "sshd" then action(
  type="omelasticsearch" server="{server.hostname}" serverport="{server.port}" {credentials}
  template="line" searchIndex="{INDEX}" bulkmode="on" {options} maxbytes="1m" errorFile="{directory}/errors"
  action.resumeRetryCount="-1" queue.type="linkedList" queue.dequeueBatchSize="200"
)
"""
    with open(f"{directory}/rsyslog.conf", "w", encoding="utf-8") as file:
        file.write(config)
    daemon = subprocess.Popen(
        [rsyslogd, "-n", "-f", f"{directory}/rsyslog.conf", "-i", f"{directory}/pid"],
        stdout=open(f"{directory}/output", "w", encoding="utf-8"),
        stderr=subprocess.STDOUT,
    )
    try:
        wait_for("listening", lambda: listens(port) or daemon.poll() is not None)
        assert daemon.poll() is None, open(f"{directory}/output", encoding="utf-8").read()
        with socket.create_connection(("127.0.0.1", port)) as stream:
            for number in range(LINES):
                text = f'Failed password for "user{number % 10}" from 10.1.2.{number % 250} port {number} ssh2'
                line = f"<38>1 2024-05-01T12:00:00.{number:06}Z gate-{number % 4} sshd {number} - - {text}\n"
                stream.sendall(line.encode())
        wait_for(f"delivery of {LINES} lines", lambda: count() >= LINES)
        expect(count(), LINES, "documents")
        query = {"query": {"bool": {"must": [{"match": {"message": "user7"}}], "filter": [{"match": {"host": "gate"}}]}}}
        _, found = call("POST", f"/{INDEX}/_search", {**query, "track_total_hits": True})
        expect(found["hits"]["total"]["value"], LINES // 10, "lines of one user")
        source = found["hits"]["hits"][0]["_source"]
        assert 'Failed password for "user7"' in source["message"], source
        errors = f"{directory}/errors"
        assert not os.path.exists(errors) or not os.path.getsize(errors), open(errors, encoding="utf-8").read()
    finally:
        daemon.terminate()
        daemon.wait(30)
    call("DELETE", f"/{INDEX}")
    shutil.rmtree(directory)


_, root = call("GET", "/")
if root["version"]["number"].startswith("7."):
    deliver("")
deliver('esVersion.major="8"')
