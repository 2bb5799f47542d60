#!/usr/bin/env python3
"""Times snapshots and restores on running servers, side by side, and a snapshot of many small indices.

    millrace-benchmarks ingest --url http://127.0.0.1:9200 --shape http-logs --docs 2000000 --clients 4
    python3 benchmarks/src/snapshots.py cycle --index bench-http-logs \\
        --server millrace 127.0.0.1:9200 PID '{"type": "fs", "settings": {"location": "bench"}}' \\
        --server opensearch 127.0.0.1:9201 PID '{"type": "fs", "settings": {"location": "bench"}}'
    python3 benchmarks/src/snapshots.py ingest --server millrace 127.0.0.1:9200 PID '{…}' --repository-path DIRECTORY
    python3 benchmarks/src/snapshots.py indices --server millrace 127.0.0.1:9200 PID '{…}' --indices 10000

cycle: first snapshot of an index, its restore under another name, and a second snapshot after 1 % of new documents. Servers take turns in
each run; each run has a repository of its own. Goals: half of OpenSearch's time, 1.5 % of the first snapshot's bytes.
ingest: documents a second of bulk clients, alone and beside a snapshot, by turns; bytes a second of the snapshot beside those of a plain
copy to the directory of the repository. Goals: 90 % of the documents, 80 % of the bandwidth. The index of the snapshot is not that of the clients.
indices: a snapshot of as many indices of one document, and two of the unchanged store. Goals: 1 MB and 2 s.

PID is the process of the server; its processor time is read from /proc. Needs nothing but Python.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import threading
import time

from ai import Client

BULK = 5000
PATHS = [f"GET /{part}/{page}.html HTTP/1.0" for part in ("english", "french", "history", "images") for page in range(500)]


class Server:
    def __init__(self, name, address, pid, repository):
        self.name, self.address, self.pid, self.repository = name, address, pid, json.loads(repository)
        self.client = Client(address)

    def ask(self, method, path, body=None, kind="application/json"):
        return self.client.ask(method, path, body, kind)

    def processor_seconds(self):
        fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def timed(self, work):
        """Result, seconds and processor seconds of the server."""
        processor, began = self.processor_seconds(), time.monotonic()
        result = work()
        return result, time.monotonic() - began, self.processor_seconds() - processor

    def register(self, name):
        place = "base_path" if self.repository["type"] == "s3" else "location"
        settings = self.repository["settings"] | {place: f"{self.repository['settings'].get(place, '')}{name}"}
        self.ask("PUT", f"/_snapshot/{name}", self.repository | {"settings": settings})

    def snapshot(self, repository, name, index):
        body = {"indices": index, "include_global_state": False}
        work = lambda: self.ask("PUT", f"/_snapshot/{repository}/{name}?wait_for_completion=true", body)
        answer, seconds, processor = self.timed(work)
        assert answer["snapshot"]["state"] == "SUCCESS", answer
        stats = self.ask("GET", f"/_snapshot/{repository}/{name}/_status")["snapshots"][0]["stats"]
        return seconds, processor, stats["incremental"]["size_in_bytes"], stats["total"]["size_in_bytes"]

    def restore(self, repository, name, index, target):
        body = {"indices": index, "rename_pattern": "(.+)", "rename_replacement": target, "include_global_state": False}
        body["index_settings"] = {"index.number_of_replicas": 0}
        path = f"/_snapshot/{repository}/{name}/_restore?wait_for_completion=true"
        answer, seconds, processor = self.timed(lambda: self.ask("POST", path, body))
        assert answer["snapshot"]["shards"]["failed"] == 0, answer
        return seconds, processor

    def count(self, index):
        return self.ask("GET", f"/{index}/_count")["count"]


def bulk(index, docs, begin):
    draw = random.random
    line = '{"create":{"_index":"%s"}}\n{"@timestamp":%d,"clientip":"%d.%d.%d.0","request":"%s","status":%d,"size":%d}\n'
    text = [
        line % (index, begin + number // 10, draw() * 256, draw() * 256, draw() * 256, PATHS[int(draw() ** 3 * len(PATHS))], 200 if draw() < 0.9 else 404, draw() * 60000)
        for number in range(docs)
    ]
    return "".join(text).encode()


def write(client, body):
    answer = client.ask("POST", "/_bulk?filter_path=errors", body, "application/x-ndjson")
    assert not answer["errors"]


def cycle(servers, args):
    rows = {}
    for run in range(args.runs):
        for server in servers:
            repository, taken = f"cycle-{args.label}-{run}", rows.setdefault(server.name, [])
            server.register(repository)
            server.ask("POST", f"/{args.index}/_flush")
            docs = server.count(args.index)
            first = server.snapshot(repository, "first", args.index)
            restore = server.restore(repository, "first", args.index, "restored")
            server.ask("POST", "/restored/_refresh")
            assert server.count("restored") == docs
            server.ask("DELETE", "/restored")
            for begin in range(0, docs // 100, BULK):
                write(server.client, bulk(args.index, min(BULK, docs // 100 - begin), 894_800_000 + run * 10_000 + begin))
            server.ask("POST", f"/{args.index}/_flush")
            taken.append((docs, first, restore, server.snapshot(repository, "second", args.index)))
    print("| server | documents | first snapshot, s | processor, s | bytes | restore, s | processor, s | second, s | bytes | of the first's |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, taken in rows.items():
        middle = lambda pick: statistics.median(pick(row) for row in taken)
        cells = [middle(lambda row: row[1][0]), middle(lambda row: row[1][1]), middle(lambda row: row[2][0]), middle(lambda row: row[2][1])]
        first, second = middle(lambda row: row[1][2]), middle(lambda row: row[3][2])
        print(
            f"| {name} | {taken[0][0]:,} | {cells[0]:.2f} | {cells[1]:.2f} | {first:,.0f} | {cells[2]:.2f} | {cells[3]:.2f} "
            f"| {middle(lambda row: row[3][0]):.2f} | {second:,.0f} | {second / first:.2%} |"
        )


def bandwidth(directory, size):
    """Bytes a second of a copy in blocks of 8 MiB that is synced at its end."""
    block, path = os.urandom(8 << 20), directory / "copy"
    began, left = time.monotonic(), size
    with open(path, "wb") as file:
        while left > 0:
            left -= file.write(block[: min(left, len(block))])
        file.flush()
        os.fsync(file.fileno())
    took = time.monotonic() - began
    path.unlink()
    return size / took


def beside(server, args, seconds, snapshot):
    """Documents a second of bulk clients: for a time, or until a snapshot is there, with its figures."""
    bodies = [bulk("ingest", args.bulk, 894_000_000 + number) for number in range(8)]
    done, counts = threading.Event(), [0] * args.clients

    def feed(number):
        client, at = Client(server.address), number
        while not done.is_set():
            write(client, bodies[at % len(bodies)])
            counts[number] += args.bulk
            at += 1

    threads = [threading.Thread(target=feed, args=(number,)) for number in range(args.clients)]
    [thread.start() for thread in threads]
    try:
        # Connections are open and the first bulks are through.
        time.sleep(1)
        before, began = sum(counts), time.monotonic()
        taken = snapshot() if snapshot else time.sleep(seconds)
        return (sum(counts) - before) / (time.monotonic() - began), taken
    finally:
        done.set()
        [thread.join() for thread in threads]


def ingest(servers, args):
    print("| server | documents a second alone | beside a snapshot | share | snapshot, s | bytes a second | of a plain copy |")
    print("|---|---|---|---|---|---|---|")
    for server in servers:
        body = {"settings": {"number_of_shards": 1, "number_of_replicas": 0}}
        server.ask("PUT", "/ingest", body)
        alone, with_snapshot, speeds, took = [], [], [], []
        for run in range(args.runs):
            alone.append(beside(server, args, args.seconds, None)[0])
            repository = f"ingest-{args.label}-{run}"
            server.register(repository)
            rate, taken = beside(server, args, 0, lambda: server.snapshot(repository, "beside", args.index))
            with_snapshot.append(rate)
            speeds.append(taken[2] / taken[0])
            took.append(taken[0])
        copy = bandwidth(args.repository_path, 512 << 20) if args.repository_path else float("nan")
        share = statistics.median(with_snapshot) / statistics.median(alone)
        speed = statistics.median(speeds)
        print(
            f"| {server.name} | {statistics.median(alone):,.0f} | {statistics.median(with_snapshot):,.0f} | {share:.2f} "
            f"| {statistics.median(took):.2f} | {speed:,.0f} | {speed / copy:.2f} |"
        )
        server.ask("DELETE", "/ingest")


def stored(directory):
    """Bytes of the files below a directory."""
    files = directory.rglob("*") if directory else []
    return sum(file.stat().st_size for file in files if file.is_file())


def indices(servers, args):
    print("| server | indices | snapshot | s | processor, s | bytes of files | bytes in the repository |")
    print("|---|---|---|---|---|---|---|")
    for server in servers:
        server.ask("PUT", "/_cluster/settings", {"persistent": {"cluster.max_shards_per_node": str(2 * args.indices + 1000)}})
        settings = {"number_of_replicas": 0, "number_of_shards": 1}
        server.ask("PUT", "/_index_template/small", {"index_patterns": ["small-*"], "template": {"settings": settings}})
        for begin in range(0, args.indices, 1000):
            numbers = range(begin, min(begin + 1000, args.indices))
            lines = ['{"create":{"_index":"small-%05d"}}\n{"message":"hello %d","n":%d}\n' % (at, at, at) for at in numbers]
            write(server.client, "".join(lines).encode())
        repository = f"indices-{args.label}"
        server.register(repository)
        for name in ("first", "second", "third"):
            before = stored(args.repository_path)
            seconds, processor, size, _ = server.snapshot(repository, name, "small-*")
            growth = stored(args.repository_path) - before
            print(f"| {server.name} | {args.indices:,} | {name} | {seconds:.2f} | {processor:.2f} | {size:,} | {growth:,} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measure", choices=["cycle", "ingest", "indices"])
    parser.add_argument("--server", nargs=4, action="append", required=True, metavar=("NAME", "ADDRESS", "PID", "REPOSITORY"))
    parser.add_argument("--index", default="bench-http-logs")
    parser.add_argument("--indices", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--bulk", type=int, default=BULK)
    parser.add_argument("--repository-path", type=pathlib.Path)
    parser.add_argument("--label", default=str(int(time.time())), help="part of the names of repositories")
    args = parser.parse_args()
    servers = [Server(*server) for server in args.server]
    {"cycle": cycle, "ingest": ingest, "indices": indices}[args.measure](servers, args)


if __name__ == "__main__":
    main()
