"""Measures inputs of pipelines beside `_bulk` with the very documents that they made.

    python3 benchmarks/src/inputs.py [--server BINARY] [--events N] [--rounds N] [--only tcp,beats,syslog,otlp] [--directory DIR]

Each figure is taken on a server of its own with an empty directory, from the first byte sent until the last document is stored. What is
sent is made before. The driver runs on the same cores, in both cases. Rounds begin with the input and with `_bulk` by turns; medians are
printed, and the ratios of the rounds beside that of the medians.
"""

import argparse
import base64
import http.client
import json
import mmap
import os
import random
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
import zlib

INDEX, CONNECTIONS, WINDOW, BULK_BYTES, PASSWORD = "bench", 4, 2_000, 5_000_000, "inputs-of-bench"
TOKEN = "Basic " + base64.b64encode(f"admin:{PASSWORD}".encode()).decode()
BACKED_BYTES = 1 << 30
BODY = {"settings": {"number_of_shards": 1, "number_of_replicas": 0}}


def back_memory():
    """Has the host back the memory that the kernel has free. A virtual machine reports free memory to its host after two seconds; the first
    write to a huge page then takes milliseconds. Without this, who is measured later finds pages that the one before has paid for."""
    area = mmap.mmap(-1, BACKED_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        area.madvise(mmap.MADV_HUGEPAGE)
    for at in range(0, BACKED_BYTES, mmap.PAGESIZE):
        area[at] = 1
    area.close()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def make_events(count):
    """Requests to a web server, the same ones each time."""
    draw = random.Random(7)
    for number in range(count):
        yield {
            "@timestamp": f"2026-01-{1 + number * 28 // count:02}T{draw.randrange(24):02}:{draw.randrange(60):02}:00.000Z",
            "clientip": f"10.{draw.randrange(4)}.{draw.randrange(256)}.{draw.randrange(256)}",
            "verb": draw.choice(["GET", "GET", "GET", "POST"]),
            "request": f"/english/images/page{int(draw.paretovariate(0.8)) % 5000}.html",
            "response": draw.choice([200, 200, 200, 304, 404]),
            "bytes": draw.randrange(40_000),
            "agent": draw.choice(["Mozilla/5.0 (X11; Linux x86_64)", "Mozilla/4.0 (compatible; MSIE 4.01)", "curl/8.5.0"]),
        }


class Server:
    """A server on an empty directory, with one pipeline."""

    def __init__(self, binary, directory, pipeline=None):
        self.directory = os.path.join(directory, "inputs")
        shutil.rmtree(self.directory, ignore_errors=True)
        os.makedirs(os.path.join(self.directory, "pipelines"))
        if pipeline:
            with open(os.path.join(self.directory, "pipelines", "bench.conf"), "w", encoding="utf-8") as file:
                file.write(pipeline)
        self.port, self.management = free_port(), free_port()
        settings = {
            "ADMIN_PASSWORD": PASSWORD,
            "FLIGHT__LISTEN": "off",
            "CONSOLE__LISTEN": "off",
            "PIPELINES__LISTEN": f"127.0.0.1:{self.management}",
            "PIPELINES__DIR": os.path.join(self.directory, "pipelines"),
            "STORAGE__DISK_THRESHOLD_ENABLED": "false",
            "OTLP__INDEX": INDEX,
        }
        command = [binary, "serve", "--data", os.path.join(self.directory, "data"), "--listen", f"127.0.0.1:{self.port}"]
        environment = {**os.environ, **{f"MILLRACE_{name}": value for name, value in settings.items()}}
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.wait(lambda: self.call("GET", "/"))
        self.call("PUT", f"/{INDEX}", BODY)

    def wait(self, condition, pause=0.02, seconds=150):
        deadline = time.monotonic() + seconds
        while True:
            try:
                if condition():
                    return
            except OSError:
                pass
            assert self.process.poll() is None, "the server ended"
            assert time.monotonic() < deadline, "a condition does not come true"
            time.sleep(pause)

    def call(self, method, path, body=None, port=None, content_type="application/json"):
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=120)
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        connection.request(method, path, data, {"Authorization": TOKEN, "Content-Type": content_type})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        assert answer.status in (200, 201), f"{method} {path}: {answer.status} {text[:300]}"
        return json.loads(text) if text else {}

    def stored(self):
        """Counts the events that the pipeline has stored."""
        stats = self.call("GET", "/_node/stats/pipelines", port=self.management)
        return stats["pipelines"]["bench"]["events"]["out"]

    def documents(self):
        """Reads all documents back, as texts."""
        self.call("POST", f"/{INDEX}/_refresh")
        body = {"size": 10_000, "sort": ["_doc"]}
        answer = self.call("POST", f"/{INDEX}/_search?scroll=5m", body)
        texts = []
        while answer["hits"]["hits"]:
            texts += [json.dumps(hit["_source"], separators=(",", ":")).encode() for hit in answer["hits"]["hits"]]
            answer = self.call("POST", "/_search/scroll", {"scroll": "5m", "scroll_id": answer["_scroll_id"]})
        return texts

    def processor_seconds(self):
        """Returns the processor time that the server has taken."""
        with open(f"/proc/{self.process.pid}/stat", encoding="utf-8") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


def in_parallel(work, parts):
    """Does work on parts at the same time; returns the seconds that it took."""
    failures = []

    def guarded(part):
        try:
            work(part)
        except Exception as error:  # Told by the caller.
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(part,)) for part in parts]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]
    return time.monotonic() - began


def shares(texts, count=CONNECTIONS):
    return [texts[at::count] for at in range(count)]


def send_stream(port, streams):
    def send(stream):
        with socket.create_connection(("127.0.0.1", port), 10) as connection:
            connection.settimeout(150)
            for at in range(0, len(stream), 1 << 20):
                connection.sendall(stream[at : at + (1 << 20)])

    in_parallel(send, streams)


def send_windows(port, windows):
    """Sends windows as Filebeat does: two are in flight."""

    def acknowledged(connection, wanted):
        sequence = 0
        while sequence < wanted:
            answer = b""
            while len(answer) < 6:
                more = connection.recv(6 - len(answer))
                assert more, "the connection is closed"
                answer += more
            sequence = struct.unpack(">I", answer[2:])[0]

    def send(own):
        with socket.create_connection(("127.0.0.1", port), 10) as connection:
            connection.settimeout(150)
            in_flight = []
            for count, window in own:
                connection.sendall(window)
                in_flight.append(count)
                if len(in_flight) == 2:
                    acknowledged(connection, in_flight.pop(0))
            for count in in_flight:
                acknowledged(connection, count)

    in_parallel(send, windows)


def window_of(events):
    frames = []
    for at, event in enumerate(events):
        text = json.dumps({**event, "@metadata": {"beat": "filebeat"}}, separators=(",", ":")).encode()
        frames.append(b"2J" + struct.pack(">II", at + 1, len(text)) + text)
    packed = zlib.compress(b"".join(frames), 3)
    return len(events), b"2W" + struct.pack(">I", len(events)) + b"2C" + struct.pack(">I", len(packed)) + packed


def field(tag, content):
    length, size = b"", len(content)
    while size >= 128:
        length += bytes([size % 128 | 128])
        size //= 128
    return bytes([tag << 3 | 2]) + length + bytes([size]) + content


def otlp_request(events):
    records = []
    for event in events:
        attributes = b"".join(
            field(6, field(1, name.encode()) + field(2, field(1, str(value).encode())))
            for name, value in event.items()
            if name != "@timestamp"
        )
        records.append(field(2, b"\x09" + struct.pack("<Q", 1_767_225_600_000_000_000) + field(5, field(1, event["request"].encode())) + attributes))
    return field(1, field(2, b"".join(records)))


def post(server, path, bodies, content_type):
    """Posts bodies over a connection for each share."""

    def send(own):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=150)
        for body in own:
            connection.request("POST", path, body, {"Authorization": TOKEN, "Content-Type": content_type})
            answer = connection.getresponse()
            text = answer.read()
            assert answer.status == 200 and b'"errors":true' not in text[:200], text[:300]

    return in_parallel(send, shares(bodies, 8))


def measure(name, arguments):
    events = list(make_events(arguments.events))
    port = free_port()
    listens = f'host => "127.0.0.1" port => {port}'
    inputs = {"tcp": f"tcp {{ {listens} codec => json_lines }}", "syslog": f"syslog {{ {listens} }}", "beats": f"beats {{ {listens} }}"}
    pipeline = None
    if name in inputs:
        pipeline = f"input {{ {inputs[name]} }} output {{ opensearch {{ index => '{INDEX}' }} }}"
    send = None
    if name == "tcp":
        streams = [b"".join(json.dumps(event).encode() + b"\n" for event in share) for share in shares(events)]
        send = lambda server: send_stream(port, streams)
    elif name == "syslog":
        line = lambda event: f"<13>Feb  3 04:05:06 web nginx[7]: {event['clientip']} {event['verb']} {event['request']} {event['response']} {event['bytes']} {event['agent']}\n"
        streams = ["".join(map(line, share)).encode() for share in shares(events)]
        send = lambda server: send_stream(port, streams)
    elif name == "beats":
        windows = [[window_of(share[at : at + WINDOW]) for at in range(0, len(share), WINDOW)] for share in shares(events)]
        send = lambda server: send_windows(port, windows)
    else:
        requests = [otlp_request(events[at : at + WINDOW]) for at in range(0, len(events), WINDOW)]
        send = lambda server: post(server, "/v1/logs", requests, "application/x-protobuf")

    def through_input(reads_documents):
        server = Server(arguments.server, arguments.directory, pipeline)
        try:
            if pipeline:
                server.wait(lambda: socket.create_connection(("127.0.0.1", port), 1).close() or True)
            back_memory()
            began, busy = time.monotonic(), server.processor_seconds()
            send(server)
            if pipeline:
                server.wait(lambda: server.stored() >= len(events))
            seconds, busy = time.monotonic() - began, server.processor_seconds() - busy
            return (seconds, busy), server.documents() if reads_documents else None
        finally:
            server.stop()

    def through_bulk():
        server = Server(arguments.server, arguments.directory)
        try:
            back_memory()
            busy = server.processor_seconds()
            seconds = post(server, f"/{INDEX}/_bulk", bodies, "application/x-ndjson")
            return seconds, server.processor_seconds() - busy
        finally:
            server.stop()

    first, documents = through_input(reads_documents=True)
    assert len(documents) == len(events), f"{len(documents)} documents of {len(events)} events"
    lines = [b'{"create":{}}\n' + document + b"\n" for document in documents]
    each = max(1, BULK_BYTES * len(lines) // sum(map(len, lines)))
    bodies = [b"".join(lines[at : at + each]) for at in range(0, len(lines), each)]
    through, beside = [first], [through_bulk()]
    for number in range(1, arguments.rounds):
        if number % 2:
            beside.append(through_bulk())
        through.append(through_input(reads_documents=False)[0])
        if number % 2 == 0:
            beside.append(through_bulk())

    def compare(at):
        """Returns the medians in microseconds an event, and their ratio beside those of the rounds."""
        own, bulk = ([figures[at] * 1e6 / len(events) for figures in rounds] for rounds in (through, beside))
        ratios = ", ".join(f"{theirs / ours:.2f}" for ours, theirs in zip(own, bulk))
        own, bulk = statistics.median(own), statistics.median(bulk)
        return own, bulk, f"ratio {bulk / own:.2f} of {ratios}"

    own, bulk, ratio = compare(0)
    print(f"{name}: {1e6 / own:,.0f} events/s, _bulk {1e6 / bulk:,.0f} documents/s, {ratio} (goal 0.8)")
    own, bulk, ratio = compare(1)
    print(f"    processor time of the server {own:.2f} and {bulk:.2f} µs each, {ratio}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", default="target/release/millrace")
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="tcp,beats,syslog,otlp")
    parser.add_argument("--directory", default="target/benchmarks")
    arguments = parser.parse_args()
    if not os.path.exists(arguments.server):
        sys.exit(f"{arguments.server} is not there: build it, or name one with --server")
    for name in arguments.only.split(","):
        measure(name, arguments)


if __name__ == "__main__":
    main()
