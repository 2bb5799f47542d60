"""Times questions in SQL on Parquet files with DuckDB.

Standard input: {"directory", "threads", "iterations", "questions": [sql, …]}; standard output: its version and, of
each question, the latencies in milliseconds, the number of rows, and the sum of all numbers in them.
"""

import json
import sys
import time

import duckdb

task = json.load(sys.stdin)
database = duckdb.connect()
database.execute(f"SET threads = {int(task['threads'])}")
database.execute("SET TimeZone = 'UTC'")
# It would be drawn into the answer.
database.execute("SET enable_progress_bar = false")
files = task["directory"].replace("'", "''") + "/**/*.parquet"
database.execute(f"CREATE VIEW docs AS SELECT * FROM read_parquet('{files}', union_by_name = true)")
found = []
for question in task["questions"]:
    rows = database.execute(question).fetchall()
    numbers = [cell for row in rows for cell in row if isinstance(cell, (int, float)) and not isinstance(cell, bool)]
    latencies = []
    for _ in range(task["iterations"]):
        start = time.perf_counter()
        database.execute(question).fetchall()
        latencies.append((time.perf_counter() - start) * 1000)
    found.append({"latencies": latencies, "rows": len(rows), "sum": float(sum(numbers))})
json.dump({"version": duckdb.__version__, "answers": found}, sys.stdout)
