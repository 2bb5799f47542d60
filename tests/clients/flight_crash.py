"""Ingest over Flight while the server is killed: what was acknowledged is there after its restart, and who sends the
rest again by `_id` doubles none."""

import os
import random
import threading
import time

import adbc_driver_flightsql.dbapi as flightsql
import adbc_driver_manager
import pyarrow

from instance import Instance, free_port

INDEX = "client-flight-crash"
WRITERS, ROWS, KILLS = 3, 40, 4
SEED = int(os.environ.get("CRASH_SEED") or random.randrange(1 << 32))


class Server(Instance):
    """A server with a listener of Flight."""

    def __init__(self):
        self.flight = free_port()
        super().__init__("flight-crash", FLIGHT__LISTEN=f"127.0.0.1:{self.flight}")

    def connect(self):
        credentials = {"username": "admin", "password": self.password}
        return flightsql.connect(f"grpc://127.0.0.1:{self.flight}", db_kwargs=credentials, autocommit=True)


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
    server.remove()
