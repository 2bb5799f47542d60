"""DuckDB over ADBC: it reads answers of Flight SQL as they come, joins them with its own tables, and writes back."""

import sys

import adbc_driver_flightsql.dbapi as flightsql
import duckdb
import pyarrow
import sql_index
from sql_index import INDEX
from target import COUNT, FLIGHT, PASSWORD, REFUSED, USER, call, expect

if not FLIGHT:
    sys.exit(77)
WRITTEN = "client-sql-duckdb"
sql_index.make()
call("DELETE", f"/{WRITTEN}")
local = duckdb.connect()
cursors = []
local.execute("SET TimeZone = 'UTC'")
with flightsql.connect(f"grpc://{FLIGHT}", db_kwargs={"username": USER, "password": PASSWORD}, autocommit=True) as connection:

    def read(statement, *parameters):
        cursor = connection.cursor()
        # A stream ends with its cursor.
        cursors.append(cursor)
        cursor.execute(statement, parameters or None)
        return cursor.fetch_record_batch()

    def ask(statement):
        return local.execute(statement).fetchall()

    # 1. All rows, as a stream.
    logs = read(f"SELECT * FROM {INDEX}")
    expect(ask("SELECT COUNT(*) FROM logs"), [(COUNT,)], "all rows")
    # 2. A table of DuckDB.
    logs = read(f"SELECT * FROM {INDEX}")
    local.execute("CREATE TABLE own AS SELECT * FROM logs")
    expect(ask("SELECT COUNT(*), SUM(bytes) FROM own"), [(COUNT, 1_000_003 * COUNT * (COUNT - 1) // 2)], "own table")
    # 3. Types.
    types = dict(ask("SELECT column_name, column_type FROM (DESCRIBE own)"))
    expected = {"@timestamp": "TIMESTAMP WITH TIME ZONE", "bytes": "BIGINT", "status": "INTEGER", "ok": "BOOLEAN", "seconds": "DOUBLE"}
    expect({name: types[name] for name in expected}, expected, "types")
    # 4. Times are instants.
    expect(ask("""SELECT epoch_ms("@timestamp") FROM own WHERE bytes = 2000006"""), [(1_714_737_720_002,)], "a time")
    # 5. Groups here and there.
    there = read(f"SELECT host, COUNT(*) AS many FROM {INDEX} GROUP BY host")
    expect(ask("SELECT * FROM there EXCEPT SELECT host, COUNT(*) FROM own GROUP BY host"), [], "groups")
    # 6. Full text there, a window here.
    hits = read(f"SELECT host, bytes FROM {INDEX} WHERE MATCH(message, 'refused')")
    best = ask("SELECT host, bytes FROM hits QUALIFY row_number() OVER (PARTITION BY host ORDER BY bytes DESC) = 1 ORDER BY host")
    expect([row[0] for row in best], ["web-0", "web-1", "web-2"], "a window")
    # 7. A join with a table of DuckDB.
    local.execute("CREATE TABLE racks AS SELECT * FROM (VALUES ('web-0', 'a'), ('web-1', 'b')) AS t(host, rack)")
    hits = read(f"SELECT host FROM {INDEX} WHERE MATCH(message, 'refused')")
    joined = ask("SELECT rack, COUNT(*) FROM hits JOIN racks USING (host) GROUP BY rack ORDER BY rack")
    expect([row[0] for row in joined], ["a", "b"], "a join")
    # 8. Parameters.
    chosen = read(f"SELECT bytes FROM {INDEX} WHERE host = ? AND seconds < ?", "web-1", 2.0)
    expect(ask("SELECT COUNT(*) FROM chosen"), [(len([n for n in range(COUNT) if n % 3 == 1 and n / 8 < 2.0]),)], "parameters")
    # 9. No rows have columns.
    none = read(f"SELECT host, bytes FROM {INDEX} WHERE bytes < 0")
    expect(ask("SELECT COUNT(host), MAX(bytes) FROM none"), [(0, None)], "no rows")
    # 10. Computed columns.
    computed = read(f"SELECT UPPER(host) AS host, bytes + 1 AS more FROM {INDEX} WHERE bytes = 0")
    expect(ask("SELECT * FROM computed"), [("WEB-0", 1)], "computed columns")
    # 11. Two streams at a time.
    one, two = read(f"SELECT bytes FROM {INDEX} WHERE ok = true"), read(f"SELECT bytes FROM {INDEX} WHERE ok = false")
    expect(ask("SELECT (SELECT COUNT(*) FROM one), (SELECT COUNT(*) FROM two)"), [(COUNT - REFUSED, REFUSED)], "two streams")
    # 12. A stream that DuckDB leaves early.
    many = read(f"SELECT a.bytes FROM {INDEX} a JOIN {INDEX} b ON a.status = b.status")
    expect(len(ask("SELECT * FROM many LIMIT 5")), 5, "a cut")
    # 13. Rows of DuckDB become documents.
    table = local.sql("SELECT host, COUNT(*)::BIGINT AS many FROM own GROUP BY host").to_arrow_table()
    assert isinstance(table, pyarrow.Table)
    with connection.cursor() as cursor:
        expect(cursor.adbc_ingest(WRITTEN, table, "create"), 3, "written")
    # 14. They are read again.
    back = read(f"SELECT host, many FROM {WRITTEN}")
    expect(ask("SELECT SUM(many) FROM back"), [(COUNT,)], "written and read")
    # 15. An error is told before DuckDB reads.
    try:
        read(f"SELECT nothing FROM {INDEX}")
        raise AssertionError("an unknown column is taken")
    except connection.Error as error:
        assert "nothing" in str(error), error
call("DELETE", f"/{WRITTEN}")
sql_index.remove()
