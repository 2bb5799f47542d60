"""The network inputs of pipelines against plain clients, while the server is killed: syslog by `logger`, lines over TCP, GELF,
and the protocol of Beats, of which each acknowledged event is there after the restart."""

import base64
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zlib

SERVER = os.environ.get("CLIENT_SERVER")
if not SERVER:
    sys.exit(77)

WORK = os.environ["CLIENT_WORK"]
PASSWORD = "network-" + os.urandom(8).hex()
TOKEN = "Basic " + base64.b64encode(f"admin:{PASSWORD}".encode()).decode()
WINDOWS, WINDOW, KILLS = 60, 100, 3


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    """A server with a pipeline, on ports that stay."""

    def __init__(self):
        self.data, self.pipelines = os.path.join(WORK, "network"), os.path.join(WORK, "network-pipelines")
        for directory in (self.data, self.pipelines):
            shutil.rmtree(directory, ignore_errors=True)
        os.makedirs(self.pipelines)
        self.port, self.tcp, self.syslog, self.gelf, self.beats = (free_port() for _ in range(5))
        definition = f"""
            input {{
              tcp {{ host => "127.0.0.1" port => {self.tcp} codec => json type => "tcp" }}
              syslog {{ host => "127.0.0.1" port => {self.syslog} type => "syslog" }}
              gelf {{ host => "127.0.0.1" port => {self.gelf} type => "gelf" }}
              beats {{ host => "127.0.0.1" port => {self.beats} type => "beats" tags => ["shipped"] }}
            }}
            output {{ pipeline {{ send_to => "store" }} }}
        """
        store = 'input { pipeline { address => "store" } } output { opensearch { index => "network-%{type}" } }'
        for name, text in (("collect", definition), ("store", store)):
            with open(os.path.join(self.pipelines, name + ".conf"), "w") as file:
                file.write(text)
        self.process = None

    def start(self):
        environment = {
            **os.environ,
            "MILLRACE_ADMIN_PASSWORD": PASSWORD,
            "MILLRACE_FLIGHT__LISTEN": "off",
            "MILLRACE_CONSOLE__LISTEN": "off",
            "MILLRACE_PIPELINES__LISTEN": "127.0.0.1:0",
            "MILLRACE_PIPELINES__DIR": self.pipelines,
            "MILLRACE_STORAGE__DISK_THRESHOLD_ENABLED": "false",
        }
        with open(os.path.join(WORK, "network.log"), "a") as log:
            command = [SERVER, "serve", "--data", self.data, "--listen", f"127.0.0.1:{self.port}"]
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        self.wait(lambda: self.call("GET", "/"))
        # Inputs listen a moment later.
        self.wait(lambda: socket.create_connection(("127.0.0.1", self.beats), 1).close() or True)

    def wait(self, condition, seconds=60):
        deadline = time.monotonic() + seconds
        while True:
            try:
                if condition():
                    return
            except (urllib.error.URLError, ConnectionError):
                pass
            assert self.process.poll() is None, "the server ended"
            assert time.monotonic() < deadline, "a condition does not come true"
            time.sleep(0.05)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": TOKEN, "Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())

    def hits(self, kind, body):
        try:
            self.call("POST", f"/network-{kind}/_refresh")
            return self.call("POST", f"/network-{kind}/_search", body)
        except urllib.error.HTTPError as error:
            assert error.code == 404, error.read()
            return {"hits": {"hits": [], "total": {"value": 0}}}

    def find(self, kind, count):
        """Waits for so many documents of an input and returns them."""
        self.wait(lambda: self.hits(kind, {"size": 0})["hits"]["total"]["value"] >= count)
        return [hit["_source"] for hit in self.hits(kind, {"size": 100})["hits"]["hits"]]


def window(first):
    """A window of events, compressed, as Filebeat sends it."""
    frames = b""
    for at in range(WINDOW):
        event = {"@timestamp": "2026-01-02T03:04:05.678Z", "@metadata": {"beat": "filebeat"}, "message": "m", "n": first + at}
        text = json.dumps(event).encode()
        frames += b"2J" + struct.pack(">II", at + 1, len(text)) + text
    compressed = zlib.compress(frames)
    return b"2W" + struct.pack(">I", WINDOW) + b"2C" + struct.pack(">I", len(compressed)) + compressed


def acknowledged(stream):
    """Reads answers until the last event of a window is acknowledged."""
    sequence = 0
    while sequence < WINDOW:
        answer = b""
        while len(answer) < 6:
            part = stream.recv(6 - len(answer))
            if not part:
                raise ConnectionError("closed")
            answer += part
        assert answer[:2] == b"2A", answer
        (sequence,) = struct.unpack(">I", answer[2:])


def ship(server):
    """Sends windows until each is acknowledged, over kills; returns how often one was sent again."""
    again, stream, kills = 0, None, 0
    for number in range(WINDOWS):
        while True:
            try:
                stream = stream or socket.create_connection(("127.0.0.1", server.beats), 5)
                stream.settimeout(60)
                stream.sendall(window(number * WINDOW))
                if number and number % (WINDOWS // (KILLS + 1)) == 0 and kills < number // (WINDOWS // (KILLS + 1)):
                    kills += 1
                    server.kill()
                    server.start()
                acknowledged(stream)
                break
            except (ConnectionError, OSError):
                again, stream = again + 1, None
                time.sleep(0.05)
    return again


def forward(server, daemon):
    """Has rsyslog forward lines over TCP, ended and counted, and over UDP."""
    directory = os.path.join(WORK, "network-rsyslog")
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    port = free_port()
    ways = ['protocol="tcp"', 'protocol="tcp" TCP_Framing="octet-counted" template="RSYSLOG_SyslogProtocol23Format"', 'protocol="udp"']
    actions = "\n".join(f'action(type="omfwd" target="127.0.0.1" port="{server.syslog}" {way})' for way in ways)
    with open(f"{directory}/rsyslog.conf", "w") as file:
        file.write(f'global(workDirectory="{directory}")\nmodule(load="imtcp")\n')
        file.write(f'input(type="imtcp" address="127.0.0.1" port="{port}")\n{actions}\n')
    command = [daemon, "-n", "-f", f"{directory}/rsyslog.conf", "-i", f"{directory}/pid"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    try:
        server.wait(lambda: socket.create_connection(("127.0.0.1", port), 1).close() or True)
        with socket.create_connection(("127.0.0.1", port), 5) as stream:
            for number in range(20):
                stream.sendall(f"<13>Feb  3 04:05:06 web relay[7]: line {number}\n".encode())
        relayed = {"query": {"match_phrase": {"program": "relay"}}, "size": 100}
        server.wait(lambda: server.hits("syslog", relayed)["hits"]["total"]["value"] >= 60)
        found = [hit["_source"] for hit in server.hits("syslog", relayed)["hits"]["hits"]]
        assert len(found) == 60 and all(event["pid"] == "7" and "tags" not in event for event in found), found[0]
        assert {event["message"].strip() for event in found} == {f"line {number}" for number in range(20)}, found[0]
    finally:
        process.kill()
        process.wait()


def main():
    server = Server()
    server.start()
    try:
        with socket.create_connection(("127.0.0.1", server.tcp), 5) as stream:
            stream.sendall(b'{"n":1}\n{"n":2}\n{"n":')
            stream.sendall(b"3}\n")
        assert sorted(event["n"] for event in server.find("tcp", 3)) == [1, 2, 3]
        expected = 1
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
            datagrams.sendto(b"<34>1 2026-01-02T03:04:05.678Z web su 7 ID47 - hello", ("127.0.0.1", server.syslog))
            datagrams.sendto(zlib.compress(b'{"version":"1.1","short_message":"hi","_a":1}'), ("127.0.0.1", server.gelf))
        if shutil.which("logger"):
            for way in (["-d", "--rfc3164"], ["-T", "--rfc3164"], ["-T", "--rfc5424", "--octet-count"]):
                command = ["logger", "-n", "127.0.0.1", "-P", str(server.syslog), *way, "-t", "check", "-p", "local0.err", "by logger"]
                subprocess.run(command, check=True)
                expected += 1
        found = server.find("syslog", expected)
        assert any(event["message"] == "hello" and event["program"] == "su" for event in found), found
        by_logger = [event for event in found if event.get("program") == "check"]
        assert len(by_logger) == expected - 1, found
        for event in by_logger:
            assert event["message"] == "by logger" and event["facility_label"] == "local0", event
            assert event["severity_label"] == "Error" and "tags" not in event, event
        assert server.find("gelf", 1)[0]["message"] == "hi"
        daemon = shutil.which("rsyslogd", path=os.environ["PATH"] + ":/usr/sbin")
        if daemon:
            forward(server, daemon)
        again = ship(server)
        total = WINDOWS * WINDOW
        events = server.find("beats", total)
        assert events[0]["tags"][0] == "shipped" or "shipped" in events[0]["tags"], events[0]
        query = {"size": 0, "track_total_hits": True, "aggs": {"n": {"cardinality": {"field": "n"}}}}
        found = server.hits("beats", query)
        count, different = found["hits"]["total"]["value"], found["aggregations"]["n"]["value"]
        assert different == total, f"{different} of {total} acknowledged events are there"
        assert count <= total + again * WINDOW, f"{count} documents of {total} events, {again} windows sent again"
        print(f"beats: {count} documents of {total} events over {KILLS} kills, {again} windows sent again")
    finally:
        server.kill()


main()
