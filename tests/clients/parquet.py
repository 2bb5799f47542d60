"""Other engines read the Parquet files that the server wrote, and find what the server finds."""

import base64
import contextlib
import glob
import json
import os

import duckdb
import pyarrow.compute as compute
import pyarrow.parquet as parquet

from target import COUNT, MAPPINGS, REFUSED, SETTINGS, call, document, expect

INDEX = "client-parquet"
NESTED = "client-parquet-nested"
SORTED = "client-parquet-sorted"


def file_of(index):
    """Flushes an index into one segment and returns its file of rows."""
    for action in ["_refresh", "_flush", "_forcemerge?max_num_segments=1"]:
        status, answer = call("POST", f"/{index}/{action}")
        expect(status, 200, f"{action}: {answer}")
    _, settings = call("GET", f"/{index}/_settings")
    uuid = settings[index]["settings"]["index"]["uuid"]
    directory = base64.urlsafe_b64decode(uuid + "==").hex()
    data = os.environ["CLIENT_DATA"]
    # Compaction leaves files behind for a while, and then removes them: the newest holds everything, as it was one segment.
    written = {}
    for path in glob.glob(f"{data}/**/data.parquet", recursive=True):
        if f"/{directory}/" in path:
            with contextlib.suppress(FileNotFoundError):
                written[path] = os.stat(path).st_mtime_ns
    assert written, f"no data.parquet of {uuid} ({directory}) below {data}"
    return max(written, key=written.get)


call("DELETE", f"/{INDEX}")
status, _ = call("PUT", f"/{INDEX}", {"settings": SETTINGS, "mappings": MAPPINGS})
expect(status, 200, "create")
for number in range(COUNT):
    status, answer = call("PUT", f"/{INDEX}/_doc/{number}", document(number))
    expect(status, 201, f"index: {answer}")

file = file_of(INDEX)
table = parquet.read_table(file)
expect(table.num_rows, COUNT, "rows")


def text(value):
    return value.decode() if isinstance(value, bytes) else value


sources = {text(id): text(source) for id, source in zip(table["_id"].to_pylist(), table["_source"].to_pylist())}
expect({id: json.loads(source) for id, source in sources.items()}, {str(n): document(n) for n in range(COUNT)}, "_source")
expect(sources["17"], json.dumps(document(17)), "_source, byte for byte")
expect(compute.sum(table["bytes"]).as_py(), sum(document(n)["bytes"] for n in range(COUNT)), "sum of bytes, pyarrow")
expect(set(table["_version"].to_pylist()), {1}, "_version")
expect(sorted(table["_seq_no"].to_pylist()), list(range(COUNT)), "_seq_no")

database = duckdb.connect()
rows = database.execute(
    """
    SELECT host, count(*), sum(bytes), sum(seconds), count(*) FILTER (WHERE ok),
           min("@timestamp" AT TIME ZONE 'UTC')::VARCHAR
    FROM read_parquet(?) WHERE status = 200 GROUP BY host ORDER BY host
    """,
    [file],
).fetchall()
expected = []
for host in ["web-0", "web-1", "web-2"]:
    chosen = [d for d in map(document, range(COUNT)) if d["host"] == host and d["status"] == 200]
    earliest = min(d["@timestamp"] for d in chosen).replace("T", " ").rstrip("Z")
    expected.append((host, len(chosen), sum(d["bytes"] for d in chosen), sum(d["seconds"] for d in chosen), len(chosen), earliest))
    _, found = call("POST", f"/{INDEX}/_count", {"query": {"bool": {"filter": [{"term": {"host": host}}, {"term": {"status": 200}}]}}})
    expect(found["count"], len(chosen), f"what the server counts of {host}")
expect([(*row[:5], row[5][:23].rstrip("0").rstrip(".")) for row in rows], [(*row[:5], row[5].rstrip("0").rstrip(".")) for row in expected], "groups, DuckDB")
refused = database.execute("SELECT count(*) FROM read_parquet(?) WHERE message LIKE '%refused%'", [file]).fetchone()
expect(refused, (REFUSED,), "refused, DuckDB")
call("DELETE", f"/{INDEX}")

# Elements of nested paths are lists of structs, those of paths nested in them too.
call("DELETE", f"/{NESTED}")
inner = {"type": "nested", "properties": {"at": {"type": "long"}}}
people = {"type": "nested", "properties": {"name": {"type": "keyword"}, "marks": {"type": "long"}, "visits": inner}}
status, answer = call("PUT", f"/{NESTED}", {"mappings": {"properties": {"people": people}}})
expect(status, 200, f"create: {answer}")
documents = [
    {"people": [{"name": "ada", "marks": [1, 2]}, {"name": "bob", "visits": [{"at": 5}, {"at": 6}]}]},
    {"people": {"name": "cyd", "marks": 3, "visits": {"at": 7}}},
    {"people": []},
]
for number, source in enumerate(documents):
    status, answer = call("PUT", f"/{NESTED}/_doc/{number}", source)
    expect(status, 201, f"index: {answer}")
file = file_of(NESTED)
expected = [
    [
        {"name": "ada", "marks": [1, 2], "visits": None},
        {"name": "bob", "marks": None, "visits": [{"at": 5}, {"at": 6}]},
    ],
    [{"name": "cyd", "marks": [3], "visits": [{"at": 7}]}],
    None,
]


def sorted_members(value):
    return json.loads(json.dumps(value, sort_keys=True))


table = parquet.read_table(file)
expect(sorted_members(table["people"].to_pylist()), sorted_members(expected), "elements, pyarrow")
rows = database.execute(
    "SELECT person.name, len(person.visits) FROM (SELECT unnest(people) AS person FROM read_parquet(?)) ORDER BY 1", [file]
).fetchall()
expect(rows, [("ada", None), ("bob", 2), ("cyd", 1)], "elements, DuckDB")
call("DELETE", f"/{NESTED}")

# Files of a sorted index say so, and are.
call("DELETE", f"/{SORTED}")
settings = {"index.sort.field": ["status", "host"], "index.sort.order": ["desc", "asc"]}
properties = {"status": {"type": "long"}, "host": {"type": "keyword"}}
status, answer = call("PUT", f"/{SORTED}", {"settings": settings, "mappings": {"properties": properties}})
expect(status, 200, f"create: {answer}")
for number in range(60):
    source = {"status": number * 7 % 5, "host": f"web-{number * 11 % 4}", "number": number}
    status, answer = call("POST", f"/{SORTED}/_doc", source)
    expect(status, 201, f"index: {answer}")
    if number % 20 == 19:
        call("POST", f"/{SORTED}/_flush")
file = file_of(SORTED)
table = parquet.read_table(file)
rows = list(zip(table["status"].to_pylist(), table["host"].to_pylist()))
expect(rows, sorted(rows, key=lambda row: (-row[0], row[1])), "order of rows")
expect(sorted(table["number"].to_pylist()), list(range(60)), "rows of the sorted index")
metadata = parquet.ParquetFile(file).metadata
columns = [metadata.row_group(0).column(at).path_in_schema for at in range(metadata.num_columns)]
order = [(columns[key.column_index], key.descending, key.nulls_first) for key in metadata.row_group(0).sorting_columns]
expect(order, [("status", True, False), ("host", False, False)], "sorting columns, pyarrow")
call("DELETE", f"/{SORTED}")
