"""SQLAlchemy with `odelasticsearch`: tables, columns, statements over `_plugins/_sql`."""

import datetime
import logging
import urllib.parse

import sql_index
from es.opendistro.api import connect
from sqlalchemy import MetaData, Table, create_engine, exc, func, inspect, select, text
from sql_index import EMPTY, INDEX
from target import COUNT, PASSWORD, REFUSED, URL, USER, expect

logging.disable(logging.WARNING)
address = urllib.parse.urlsplit(URL)
login = f"{USER}:{urllib.parse.quote(PASSWORD)}@" if USER else ""
sql_index.make()
engine = create_engine(f"odelasticsearch+http://{login}{address.netloc}/")
with engine.connect() as connection:

    def rows(statement, **values):
        return [tuple(row) for row in connection.execute(text(statement), values).fetchall()]

    # 1. The server has a version, and one schema.
    assert engine.dialect.server_version_info > (1,), engine.dialect.server_version_info
    about = inspect(engine)
    expect(about.get_schema_names(), ["default"], "schemas")
    # 2. Tables with rows.
    assert INDEX in about.get_table_names() and EMPTY not in about.get_table_names(), about.get_table_names()
    # 3. Columns with their types.
    types = {column["name"]: str(column["type"]) for column in about.get_columns(INDEX)}
    expected = {"@timestamp": "DATETIME", "message": "VARCHAR", "host": "VARCHAR", "status": "INTEGER", "bytes": "BIGINT"}
    expect({name: types.get(name) for name in expected}, expected, "types")
    # 4. A statement without a table.
    expect(rows("SELECT 1"), [(1,)], "SELECT 1")
    # 5. A table that SQLAlchemy knows from the server alone.
    table = Table(INDEX, MetaData(), autoload_with=engine)
    statement = select(table.c.host, func.count("*").label("many")).group_by(table.c.host).order_by(table.c.host)
    found = [tuple(row) for row in connection.execute(statement).fetchall()]
    expect(found, [("web-0", 84), ("web-1", 83), ("web-2", 83)], "groups")
    # 6. Conditions and an order, by values that are escaped.
    statement = select(table.c.bytes).where(table.c.host == "web-1", table.c.status < 500).order_by(table.c.bytes.desc()).limit(3)
    found = [row[0] for row in connection.execute(statement).fetchall()]
    expect(found, [n * 1_000_003 for n in (247, 244, 241)], "the largest")
    # 7. Names in backticks, and aliases.
    expect(rows(f"SELECT `host` AS the_host FROM `{INDEX}` WHERE `bytes` = 0"), [("web-0",)], "quoted names")
    # 8. Times.
    moment = rows(f"SELECT `@timestamp` FROM `{INDEX}` WHERE bytes = :b", b=2_000_006)[0][0]
    expect(moment, datetime.datetime(2024, 5, 3, 12, 2, 0, 2_000), "a time")
    # 9. Buckets of time, as Superset writes them.
    day = "date_format(`@timestamp`, '%Y-%m-%d 00:00:00.000')"
    found = rows(f"SELECT {day} AS d, COUNT(*) AS many FROM `{INDEX}` WHERE `@timestamp` >= '2024-05-27 00:00:00' GROUP BY {day}")
    expect(sorted((row[0][:10], row[1]) for row in found), [("2024-05-27", 8), ("2024-05-28", 8)], "days")
    # 10. Full text.
    found = rows(f"SELECT bytes FROM `{INDEX}` WHERE MATCH(message, 'refused')")
    expect(len(found), REFUSED, "hits")
    # 11. Floats, booleans and addresses.
    found = rows(f"SELECT seconds, ok, source_ip FROM `{INDEX}` WHERE bytes = 1000003")
    expect(found, [(0.125, True, "10.0.1.1")], "values")
    # 12. An order by an aggregate.
    found = rows(f"SELECT status, COUNT(*) AS many FROM `{INDEX}` GROUP BY status ORDER BY many DESC LIMIT 5")
    expect(found, [(200, COUNT - REFUSED), (500, REFUSED)], "an order by an aggregate")
    # 13. An error is one of the database.
    try:
        rows(f"SELECT nothing FROM `{INDEX}`")
        raise AssertionError("an unknown column is taken")
    except exc.ProgrammingError as error:
        assert "nothing" in str(error), error
    # 14. A table that is not there.
    try:
        rows("SELECT * FROM `client-sql-nowhere`")
        raise AssertionError("a missing index is taken")
    except (exc.ProgrammingError, exc.OperationalError) as error:
        assert "client-sql-nowhere" in str(error), error
# 15. All rows.
port = address.port or 9200
with connect(address.hostname, port, scheme=address.scheme, user=USER or None, password=PASSWORD or None) as cursor:
    found = cursor.execute(f"SELECT bytes FROM `{INDEX}`").fetchall()
    expect(sorted(row[0] for row in found), [n * 1_000_003 for n in range(COUNT)], "all rows")
sql_index.remove()
