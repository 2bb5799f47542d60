"""Reads the Parquet files of an index into Arrow with DuckDB.

Standard input: {"directory", "threads", "columns", "rows"}; standard output: its version and, of a read as a table and
of one as a stream of batches, the rows, the bytes of the arrays and the seconds.
"""

import json
import sys
import time

import duckdb

task = json.load(sys.stdin)
database = duckdb.connect()
database.execute(f"SET threads = {int(task['threads'])}")
# It would be drawn into the answer.
database.execute("SET enable_progress_bar = false")
files = "read_parquet('" + task["directory"].replace("'", "''") + "/**/*.parquet', union_by_name = true)"
question = f"SELECT {task['columns']} FROM {files}"

# Segments that were merged lie beside the new ones until they are swept up.
deadline = time.monotonic() + 120
while (count := database.execute(f"SELECT count(*) FROM {files}").fetchall()[0][0]) != task["rows"]:
    if time.monotonic() > deadline:
        sys.exit(f"the files have {count} rows, not {task['rows']}")
    time.sleep(1)


def as_table():
    table = database.sql(question).to_arrow_table()
    return table.num_rows, table.nbytes


def as_stream():
    rows = size = 0
    for batch in database.sql(question).to_arrow_reader(122_880):
        rows += batch.num_rows
        size += batch.nbytes
    return rows, size


found = {"version": duckdb.__version__}
for name, read in [("table", as_table), ("stream", as_stream)]:
    start = time.perf_counter()
    rows, size = read()
    found[name] = {"rows": rows, "bytes": size, "seconds": time.perf_counter() - start}
json.dump(found, sys.stdout)
