"""The network inputs of pipelines against plain clients and daemons, while the server is killed: syslog by `logger`, rsyslog and
syslog-ng, JSON by collectd, lines over TCP, GELF, and the protocol of Beats, of which each acknowledged event is there after the restart."""

import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import time
import zlib

from instance import WORK, Instance, free_port, listens

WINDOWS, WINDOW, KILLS = 60, 100, 3


class Server(Instance):
    """A server with a pipeline, on ports that stay."""

    def __init__(self):
        self.tcp, self.syslog, self.gelf, self.beats, self.http = (free_port() for _ in range(5))
        collect = f"""
            input {{
              tcp {{ host => "127.0.0.1" port => {self.tcp} codec => json type => "tcp" }}
              syslog {{ host => "127.0.0.1" port => {self.syslog} type => "syslog" }}
              gelf {{ host => "127.0.0.1" port => {self.gelf} type => "gelf" }}
              beats {{ host => "127.0.0.1" port => {self.beats} type => "beats" tags => ["shipped"] }}
              http {{ host => "127.0.0.1" port => {self.http} }}
            }}
            output {{ pipeline {{ send_to => "store" }} }}
        """
        store = 'input { pipeline { address => "store" } } output { opensearch { index => "network-%{type}" } }'
        super().__init__("network", {"collect": collect, "store": store})

    def start(self):
        # Inputs listen a moment later than the server.
        super().start(self.beats)

    def hits(self, kind, body):
        return self.search(f"network-{kind}", body)

    def find(self, kind, count):
        """Waits for so many documents of an input and returns them."""
        self.wait(lambda: self.hits(kind, {"size": 0})["hits"]["total"]["value"] >= count, f"{count} documents of {kind}")
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


def run_daemon(name, files, command):
    """Starts a daemon in a directory of its own, with files there; returns it and the directory."""
    directory = os.path.join(WORK, f"network-{name}")
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    for file, text in files.items():
        with open(os.path.join(directory, file), "w", encoding="utf-8") as out:
            out.write(text.replace("DIRECTORY", directory))
    command = [word.replace("DIRECTORY", directory) for word in command]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)


def relay(server, process, port, program):
    """Sends lines to a daemon, and waits for them to come by its three ways."""
    try:
        server.wait(lambda: listens(port), f"{program} listening")
        with socket.create_connection(("127.0.0.1", port), 5) as stream:
            for number in range(20):
                stream.sendall(f"<13>Feb  3 04:05:06 web {program}[7]: line {number}\n".encode())
        relayed = {"query": {"match_phrase": {"program": program}}, "size": 100}
        server.wait(lambda: server.hits("syslog", relayed)["hits"]["total"]["value"] >= 60, f"60 lines of {program}")
        found = [hit["_source"] for hit in server.hits("syslog", relayed)["hits"]["hits"]]
        assert len(found) == 60 and all(event["pid"] == "7" and "tags" not in event for event in found), found[0]
        assert {event["message"].strip() for event in found} == {f"line {number}" for number in range(20)}, found[0]
    finally:
        process.kill()
        process.wait()


def forward_by_rsyslog(server, daemon):
    """Has rsyslog forward lines over TCP, ended and counted, and over UDP."""
    port = free_port()
    ways = ['protocol="tcp"', 'protocol="tcp" TCP_Framing="octet-counted" template="RSYSLOG_SyslogProtocol23Format"', 'protocol="udp"']
    actions = "\n".join(f'action(type="omfwd" target="127.0.0.1" port="{server.syslog}" {way})' for way in ways)
    config = f'global(workDirectory="DIRECTORY")\nmodule(load="imtcp")\ninput(type="imtcp" address="127.0.0.1" port="{port}")\n{actions}\n'
    command = [daemon, "-n", "-f", "DIRECTORY/rsyslog.conf", "-i", "DIRECTORY/pid"]
    relay(server, run_daemon("rsyslog", {"rsyslog.conf": config}, command), port, "relay")


def forward_by_syslog_ng(server, daemon):
    """Has syslog-ng forward lines over TCP, ended and counted, and over UDP."""
    port = free_port()
    ways = {
        "ended": f'network("127.0.0.1" port({server.syslog}) transport("tcp") persist-name("ended"))',
        "counted": f'syslog("127.0.0.1" port({server.syslog}) transport("tcp") persist-name("counted"))',
        "datagrams": f'network("127.0.0.1" port({server.syslog}) transport("udp") persist-name("datagrams"))',
    }
    version = subprocess.run([daemon, "--version"], check=True, capture_output=True, text=True).stdout.split("Config version: ")
    version = version[1].split()[0] if len(version) > 1 else "3.38"
    config = f'@version: {version}\nsource lines {{ network(ip("127.0.0.1") port({port}) transport("tcp")); }};\n'
    config += "".join(f"destination {name} {{ {way}; }};\nlog {{ source(lines); destination({name}); }};\n" for name, way in ways.items())
    command = [daemon, "-F", "-f", "DIRECTORY/syslog-ng.conf", "--persist-file=DIRECTORY/persist", "--pidfile=DIRECTORY/pid"]
    command += ["--control=DIRECTORY/control", "--no-caps"]
    relay(server, run_daemon("syslog-ng", {"syslog-ng.conf": config}, command), port, "relayng")


def post_by_collectd(server, daemon):
    """Has collectd post values as JSON."""
    config = f"""
Hostname "web"
FQDNLookup false
Interval 1
BaseDir "DIRECTORY"
PIDFile "DIRECTORY/pid"
LoadPlugin uptime
LoadPlugin write_http
<Plugin write_http>
  <Node "server">
    URL "http://127.0.0.1:{server.http}/"
    Format "JSON"
    BufferSize 1024
  </Node>
</Plugin>
"""
    process = run_daemon("collectd", {"collectd.conf": config}, [daemon, "-f", "-C", "DIRECTORY/collectd.conf"])
    try:
        # Its values have a type of their own.
        event = server.find("uptime", 1)[0]
        assert event["plugin"] == "uptime" and event["values"][0] > 0, event
    finally:
        process.kill()
        process.wait()


# Programs from Debian that the check has forward or post, where they are installed.
DAEMONS = {"rsyslogd": forward_by_rsyslog, "syslog-ng": forward_by_syslog_ng, "collectd": post_by_collectd}


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
        absent = []
        for name, check in DAEMONS.items():
            daemon = shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin")
            if daemon:
                check(server, daemon)
                print(f"{name}: all there")
            else:
                absent.append(name)
                print(f"{name}: left out, the program is missing")
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
    if absent and os.environ.get("CI") == "true":
        sys.exit(77)


main()
