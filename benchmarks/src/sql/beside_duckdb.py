"""A Millrace server beside DuckDB, which reads the Parquet files that the server wrote: what the scripts that compare both share."""

import argparse
import base64
import contextlib
import http.client
import json
import math
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import time

import adbc_driver_flightsql.dbapi as flight
import duckdb


def arguments(documentation, directory):
    """A parser with the options that all of these scripts have."""
    parser = argparse.ArgumentParser(description=documentation, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", type=pathlib.Path, default=pathlib.Path("target/release/millrace"))
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--directory", type=pathlib.Path, default=pathlib.Path(directory))
    parser.add_argument("--keep", action="store_true", help="take the data of the run before, and leave them")
    return parser


def same_numbers(left, right, near_zero=0.0):
    """Whether two numbers are the same but for the order of additions: to a relative 1e-9, or to an absolute difference near zero."""
    return math.isclose(left, right, rel_tol=1e-9, abs_tol=near_zero) or (math.isnan(left) and math.isnan(right))


@contextlib.contextmanager
def serving(args, load):
    """A client of a server whose data `load(client, address of Flight)` makes, unless a run before has left them."""
    if not args.keep:
        shutil.rmtree(args.directory, ignore_errors=True)
    is_empty = not (args.directory / "data").exists()
    args.directory.mkdir(parents=True, exist_ok=True)
    server, address, arrow = start(args.server, args.directory)
    try:
        client = Client(address)
        if is_empty:
            load(client, arrow)
        yield client
    finally:
        server.terminate()
        server.wait()
        if not args.keep:
            shutil.rmtree(args.directory, ignore_errors=True)


def start(binary, directory):
    """Starts a server on a directory; returns it with its addresses of HTTP and of Flight."""
    environment = os.environ | {
        "MILLRACE_PIPELINES__LISTEN": "127.0.0.1:0",
        "MILLRACE_CONSOLE__LISTEN": "127.0.0.1:0",
        "MILLRACE_FLIGHT__LISTEN": "127.0.0.1:0",
        "MILLRACE_STORAGE__DISK_THRESHOLD_ENABLED": "false",
    }
    log = open(directory / "server.log", "w")
    command = [binary, "serve", "--insecure", "--data", directory / "data", "--listen", "127.0.0.1:0"]
    server = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
    arrow = None
    for line in server.stdout:
        if found := re.search(r"(?:Flight|flight)\D*?((?:\d+\.){3}\d+:\d+)", line):
            arrow = found[1]
        if found := re.search(r"listening on http://(\S+)", line):
            return server, found[1], arrow
    raise SystemExit(f"the server did not start: see {directory / 'server.log'}")


class Client:
    """A connection to the data API."""

    def __init__(self, address):
        self.connection = http.client.HTTPConnection(address, timeout=600)

    def ask(self, method, path, body=None):
        """The answer's JSON; an error where it is none of success."""
        text = None if body is None else json.dumps(body)
        self.connection.request(method, path, text, {"content-type": "application/json"})
        answer = self.connection.getresponse()
        data = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {data[:600].decode(errors='replace')}")
        return json.loads(data) if data else None

    def rows(self, sql):
        # Without it an answer has 200 rows.
        return self.ask("POST", "/_plugins/_sql", {"query": sql, "fetch_size": 0})["datarows"]


def write(client, arrow, name, properties, reader, rows):
    """Makes an index and writes the batches of a reader to it over Flight."""
    body = {"settings": {"refresh_interval": "-1"}, "mappings": {"dynamic": "strict", "properties": properties}}
    client.ask("PUT", f"/{name}", body)
    with flight.connect(f"grpc://{arrow}") as connection, connection.cursor() as cursor:
        cursor.adbc_ingest(name, reader, mode="append")
        connection.commit() if not connection._autocommit else None
    client.ask("POST", f"/{name}/_flush")
    count = client.ask("GET", f"/{name}/_count")["count"]
    assert count == rows, f"{name}: {count} of {rows} rows"


def database():
    """DuckDB with as many threads as there are cores."""
    database = duckdb.connect()
    database.execute(f"SET threads = {os.cpu_count()}")
    database.execute("SET TimeZone = 'UTC'")
    return database


def view(database, client, directory, name):
    """Makes the Parquet files of an index a view of its name."""
    uuid = client.ask("GET", f"/{name}/_settings")[name]["settings"]["index"]["uuid"]
    segments = pathlib.Path(directory) / "data" / "segments" / base64.urlsafe_b64decode(uuid + "==").hex()
    files = [str(path) for path in segments.rglob("*.parquet")]
    database.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet({files!r}, union_by_name = true)")


def timed(ask, iterations):
    """The answer, and the median of its milliseconds after one run that does not count."""
    answer, times = ask(), []
    for _ in range(iterations):
        begin = time.perf_counter()
        answer = ask()
        times.append((time.perf_counter() - begin) * 1000)
    return answer, statistics.median(times)
