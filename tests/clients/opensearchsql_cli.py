"""`opensearchsql`, the command line of OpenSearch's SQL: tables and CSV, metadata, plans, errors."""

import os
import sys

from target import PASSWORD, REFUSED, URL, USER, WORK, expect

if not USER:
    sys.exit(77)
# It keeps its configuration and history there.
os.environ["HOME"] = os.path.join(WORK, "opensearchsql")
os.makedirs(os.environ["HOME"], exist_ok=True)

import sql_index
from click.testing import CliRunner
from opensearch_sql_cli.main import cli
from sql_index import INDEX


def run(statement, *options):
    done = CliRunner().invoke(cli, [URL, "-u", USER, "-w", PASSWORD, *options, "-q", statement])
    return f"{done.output}{done.exception or ''}"


def cells(statement):
    """Reads the rows of the table that is printed."""
    lines = [line for line in run(statement).splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


sql_index.make()
# 1. A statement without a table.
expect(cells("SELECT 1"), [["1"]], "SELECT 1")
# 2. Groups.
groups = cells(f"SELECT host, COUNT(*) FROM `{INDEX}` GROUP BY host ORDER BY host")
expect(groups, [["web-0", "84"], ["web-1", "83"], ["web-2", "83"]], "groups")
# 3. A condition, an order and a cut.
largest = cells(f"SELECT bytes FROM {INDEX} WHERE host = 'web-1' AND status < 500 ORDER BY bytes DESC LIMIT 2")
expect(largest, [["247000741"], ["244000732"]], "the largest")
# 4. Full text.
expect(cells(f"SELECT COUNT(*) FROM {INDEX} WHERE MATCH(message, 'refused')"), [[str(REFUSED)]], "hits")
# 5. The totals above the table.
assert "fetched rows / total rows = 3/" in run(f"SELECT host FROM {INDEX} LIMIT 3"), "totals"
# 6. Times.
expect(cells(f"SELECT `@timestamp` FROM {INDEX} WHERE bytes = 2000006"), [["2024-05-03 12:02:00.002"]], "a time")
# 7. Booleans, floats and addresses.
expect(cells(f"SELECT ok, seconds, source_ip FROM {INDEX} WHERE bytes = 1000003"), [["True", "0.125", "10.0.1.1"]], "values")
# 8. Tables.
expect([row[2:4] for row in cells(f"SHOW TABLES LIKE {INDEX}")], [[INDEX, "BASE TABLE"]], "tables")
# 9. Columns.
columns = {row[3]: row[5] for row in cells(f"DESCRIBE TABLES LIKE {INDEX}")}
expect((columns["bytes"], columns["host"], columns["@timestamp"]), ("long", "keyword", "timestamp"), "columns")
# 10. One column.
expect(len(cells(f"DESCRIBE TABLES LIKE {INDEX} COLUMNS LIKE 'by%'")), 1, "one column")
# 11. CSV.
expect(run(f"SELECT bytes, host FROM {INDEX} ORDER BY bytes LIMIT 2", "-f", "csv").split(), ["bytes,host", "0,web-0", "1000003,web-1"], "CSV")
# 12. A plan.
plan = run(f"SELECT bytes FROM {INDEX} WHERE bytes > 3", "-e")
assert "'range'" in plan and "'from': 3" in plan, "a plan"
# 13. An unknown column.
assert "nothing" in run(f"SELECT nothing FROM {INDEX}"), "an unknown column"
# 14. A missing index.
assert "IndexNotFoundException" in run("SELECT * FROM client-sql-nowhere"), "a missing index"
# 15. No SQL.
assert "SyntaxCheckException" in run("SELEC 1"), "no SQL"
sql_index.remove()
