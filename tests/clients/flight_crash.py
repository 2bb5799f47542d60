"""Ingest over Flight while the server is killed: what was acknowledged is there after its restart, and who sends the
rest again by `_id` doubles none."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import adbc_driver_flightsql.dbapi as flightsql
import adbc_driver_manager
import pyarrow

SERVER = os.environ.get("CLIENT_SERVER")
if not SERVER:
    sys.exit(77)

WORK = os.environ["CLIENT_WORK"]
PASSWORD = "crash-" + os.urandom(8).hex()
INDEX = "client-flight-crash"
WRITERS, ROWS, KILLS = 3, 40, 4
SEED = int(os.environ.get("CRASH_SEED") or random.randrange(1 << 32))


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    """A server on a directory, started as often as needed."""

    def __init__(self):
        self.data = os.path.join(WORK, "flight-crash")
        subprocess.run(["rm", "-rf", self.data], check=True)
        self.process = None

    def start(self):
        self.port, self.flight = free_port(), free_port()
        environment = {
            **os.environ,
            "MILLRACE_ADMIN_PASSWORD": PASSWORD,
            "MILLRACE_FLIGHT__LISTEN": f"127.0.0.1:{self.flight}",
            "MILLRACE_PIPELINES__LISTEN": "127.0.0.1:0",
            "MILLRACE_CONSOLE__LISTEN": "127.0.0.1:0",
            "MILLRACE_STORAGE__DISK_THRESHOLD_ENABLED": "false",
        }
        with open(os.path.join(WORK, "flight-crash.log"), "a") as log:
            command = [SERVER, "serve", "--data", self.data, "--listen", f"127.0.0.1:{self.port}"]
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while True:
            try:
                return self.call("GET", "/")
            except (urllib.error.URLError, ConnectionError):
                assert self.process.poll() is None, "the server ended"
                assert time.monotonic() < deadline, "the server does not answer"
                time.sleep(0.05)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def call(self, method, path, body=None):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method=method)
        passwords = urllib.request.HTTPPasswordMgrWithPriorAuth()
        passwords.add_password(None, request.full_url, "admin", PASSWORD, is_authenticated=True)
        opener = urllib.request.build_opener(urllib.request.HTTPBasicAuthHandler(passwords))
        data = None if body is None else json.dumps(body).encode()
        request.add_header("Content-Type", "application/json")
        with opener.open(request, data, timeout=60) as answer:
            return json.loads(answer.read())

    def connect(self):
        return flightsql.connect(
            f"grpc://127.0.0.1:{self.flight}", db_kwargs={"username": "admin", "password": PASSWORD}, autocommit=True
        )


def table(writer, batch):
    numbers = [(writer * 1_000_000 + batch) * ROWS + row for row in range(ROWS)]
    return pyarrow.table({"_id": [str(n) for n in numbers], "number": numbers, "text": [f"text {n}" for n in numbers]})


class Writer(threading.Thread):
    """Sends one batch after the other, until the server is gone."""

    def __init__(self, server, number, first):
        super().__init__()
        self.server, self.number, self.first, self.next = server, number, first, first

    def run(self):
        try:
            with self.server.connect() as connection, connection.cursor() as cursor:
                while True:
                    count = cursor.adbc_ingest(INDEX, table(self.number, self.next), "append")
                    assert count == ROWS, f"{count} rows acknowledged of {ROWS}"
                    self.next += 1
        except adbc_driver_manager.Error as error:
            self.error = error


def ids(server):
    """The documents' ids, all of them, with the numbers that they hold."""
    server.call("POST", f"/{INDEX}/_refresh")
    found, after = {}, []
    while True:
        body = {"size": 10_000, "sort": ["number"], **({"search_after": after} if after else {})}
        hits = server.call("POST", f"/{INDEX}/_search", body)["hits"]["hits"]
        for hit in hits:
            assert hit["_id"] not in found, f"{hit['_id']} is there twice"
            found[hit["_id"]] = hit["_source"]["number"]
        if not hits:
            return found
        after = hits[-1]["sort"]


print(f"  seed {SEED}")
moments = random.Random(SEED)
server = Server()
server.start()
server.call("PUT", f"/{INDEX}", {"mappings": {"properties": {"number": {"type": "long"}, "text": {"type": "text"}}}})
firsts = [0] * WRITERS
sent = 0
try:
    for kill in range(KILLS):
        writers = [Writer(server, number, firsts[number]) for number in range(WRITERS)]
        for writer in writers:
            writer.start()
        time.sleep(moments.uniform(0.3, 1.5))
        server.kill()
        for writer in writers:
            writer.join(60)
            assert not writer.is_alive(), "a writer does not notice that the server is gone"
            assert hasattr(writer, "error"), "a writer failed otherwise than by the server's end"
        server.start()
        found = ids(server)
        for writer in writers:
            for batch in range(writer.next):
                lost = [id for id in table(writer.number, batch)["_id"].to_pylist() if id not in found]
                assert not lost, f"acknowledged rows are lost: batch {batch} of writer {writer.number}: {lost[:3]}"
        # What was not acknowledged is sent again, and is there once.
        with server.connect() as connection, connection.cursor() as cursor:
            for writer in writers:
                assert cursor.adbc_ingest(INDEX, table(writer.number, writer.next), "append") == ROWS
        firsts = [writer.next + 1 for writer in writers]
        found = ids(server)
        expected = sum(firsts) * ROWS
        assert len(found) == expected, f"{len(found)} documents, not {expected}"
        assert all(id == str(number) for id, number in found.items()), "a document holds another's values"
        sent = expected
    # One stream of many batches, cut in the middle: part of it may be there, and all of it once after it is sent again.
    rows = [table(WRITERS, batch) for batch in range(400)]
    whole = pyarrow.concat_tables(rows)
    with server.connect() as connection, connection.cursor() as cursor:
        threading.Timer(0.4, server.kill).start()

        def batches():
            for batch in whole.to_batches(max_chunksize=ROWS):
                time.sleep(0.005)
                yield batch

        try:
            cursor.adbc_ingest(INDEX, pyarrow.RecordBatchReader.from_batches(whole.schema, batches()), "append")
            raise AssertionError("a stream that was cut was acknowledged")
        except adbc_driver_manager.Error:
            pass
    server.process.wait()
    server.start()
    with server.connect() as connection, connection.cursor() as cursor:
        count = cursor.adbc_ingest(INDEX, whole, "append")
        assert count == whole.num_rows, f"{count} rows acknowledged of {whole.num_rows}"
    found = ids(server)
    assert len(found) == sent + whole.num_rows, f"{len(found)} documents, not {sent + whole.num_rows}"
    print(f"  {KILLS + 1} kills, {len(found)} documents")
finally:
    if server.process and server.process.poll() is None:
        server.kill()
subprocess.run(["rm", "-rf", server.data], check=True)
