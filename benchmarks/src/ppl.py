#!/usr/bin/env python3
"""Times pipelines of PPL beside the same question in SQL and in the search DSL, on a running server.

    target/release/millrace-benchmarks ingest --url http://127.0.0.1:9200 --shape big5 --docs 2000000
    python3 benchmarks/src/ppl.py --url http://127.0.0.1:9200

The index has the shape big5. Operations have the names of OpenSearch's workload. Prints medians in milliseconds, warm, the three asked in changing order,
and the ratios of PPL to the others: the goals are 1.05 to SQL and 1.5 to the DSL. --wide makes an index of 5,000 mapped fields and times what
planning takes: pipelines of ten commands, a scan of one field, and all of 1,000 fields. Needs nothing but Python.
"""

import argparse
import http.client
import json
import statistics
import time
import urllib.parse

DAY = ("2023-01-03 00:00:00", "2023-01-04 00:00:00")
RANGE = {"range": {"@timestamp": {"gte": "2023-01-03T00:00:00", "lt": "2023-01-04T00:00:00"}}}
IN_DAY = f"where `@timestamp` >= '{DAY[0]}' and `@timestamp` < '{DAY[1]}'"
SQL_DAY = f"`@timestamp` >= '{DAY[0]}' AND `@timestamp` < '{DAY[1]}'"


def terms(field, size=10, **aggregations):
    return {"terms": {"field": field, "size": size}} | ({"aggs": aggregations} if aggregations else {})


def by_time(interval, **aggregations):
    kind = "fixed_interval" if interval[0].isdigit() else "calendar_interval"
    return {"date_histogram": {"field": "@timestamp", kind: interval}} | ({"aggs": aggregations} if aggregations else {})


def groups(aggregation, query=None):
    return {"size": 0, "aggs": {"g": aggregation}} | ({"query": query} if query else {})


def operations(index):
    """Name, pipeline, statement and search of each operation; None where a language cannot say it."""
    source, table = f"source={index}", f"FROM `{index}`"
    return [
        ("default", f"{source} | head 10", f"SELECT * {table} LIMIT 10", {"size": 10}),
        (
            "desc_sort_timestamp",
            f"{source} | sort - `@timestamp` | head 10",
            f"SELECT * {table} ORDER BY `@timestamp` DESC LIMIT 10",
            {"size": 10, "sort": [{"@timestamp": "desc"}]},
        ),
        (
            "asc_sort_timestamp",
            f"{source} | sort `@timestamp` | head 10",
            f"SELECT * {table} ORDER BY `@timestamp` LIMIT 10",
            {"size": 10, "sort": [{"@timestamp": "asc"}]},
        ),
        (
            "term",
            f"{source} | where `log.file.path` = '/var/log/messages/birdknight' | head 10",
            f"SELECT * {table} WHERE `log.file.path` = '/var/log/messages/birdknight' LIMIT 10",
            {"size": 10, "query": {"term": {"log.file.path": "/var/log/messages/birdknight"}}},
        ),
        (
            "range",
            f"{source} | {IN_DAY} | head 10",
            f"SELECT * {table} WHERE {SQL_DAY} LIMIT 10",
            {"size": 10, "query": RANGE},
        ),
        (
            "range_numeric",
            f"{source} | where metrics.size >= 20 and metrics.size <= 200 | head 10",
            f"SELECT * {table} WHERE metrics.size >= 20 AND metrics.size <= 200 LIMIT 10",
            {"size": 10, "query": {"range": {"metrics.size": {"gte": 20, "lte": 200}}}},
        ),
        (
            "keyword_in_range",
            f"{source} | {IN_DAY} | where process.name = 'kernel' | head 10",
            f"SELECT * {table} WHERE {SQL_DAY} AND process.name = 'kernel' LIMIT 10",
            {"size": 10, "query": {"bool": {"must": [RANGE, {"term": {"process.name": "kernel"}}]}}},
        ),
        (
            "range_with_desc_sort",
            f"{source} | {IN_DAY} | sort - `@timestamp` | head 10",
            f"SELECT * {table} WHERE {SQL_DAY} ORDER BY `@timestamp` DESC LIMIT 10",
            {"size": 10, "query": RANGE, "sort": [{"@timestamp": "desc"}]},
        ),
        (
            "sort_numeric_desc_with_match",
            f"{source} | where `log.file.path` = '/var/log/messages/solarshark' | sort - metrics.size | head 10",
            f"SELECT * {table} WHERE `log.file.path` = '/var/log/messages/solarshark' ORDER BY metrics.size DESC LIMIT 10",
            {"size": 10, "query": {"term": {"log.file.path": "/var/log/messages/solarshark"}}, "sort": [{"metrics.size": "desc"}]},
        ),
        (
            "sort_numeric_asc",
            f"{source} | sort metrics.size | head 10",
            f"SELECT * {table} ORDER BY metrics.size LIMIT 10",
            {"size": 10, "sort": [{"metrics.size": "asc"}]},
        ),
        (
            "query_string_on_message",
            f"{source} shield carp shark | head 10",
            f"SELECT * {table} WHERE query_string(['message'], 'shield AND carp AND shark') LIMIT 10",
            {"size": 10, "query": {"query_string": {"query": "message: shield AND carp AND shark"}}},
        ),
        (
            "query_string_on_message_filtered",
            f"{source} | where query_string(['message'], 'shield AND carp') | {IN_DAY} | sort - metrics.size | head 10",
            f"SELECT * {table} WHERE query_string(['message'], 'shield AND carp') AND {SQL_DAY} ORDER BY metrics.size DESC LIMIT 10",
            {
                "size": 10,
                "query": {"bool": {"must": [RANGE, {"query_string": {"query": "message: shield AND carp"}}]}},
                "sort": [{"metrics.size": "desc"}],
            },
        ),
        (
            "date_histogram_hourly_agg",
            f"{source} | stats count() by span(`@timestamp`, 1h)",
            f"SELECT date_trunc('hour', `@timestamp`) AS h, count(*) {table} GROUP BY date_trunc('hour', `@timestamp`)",
            groups(by_time("hour")),
        ),
        (
            "date_histogram_minute_agg",
            f"{source} | {IN_DAY} | stats count() by span(`@timestamp`, 1m)",
            f"SELECT date_trunc('minute', `@timestamp`) AS m, count(*) {table} WHERE {SQL_DAY} GROUP BY date_trunc('minute', `@timestamp`)",
            groups(by_time("minute"), RANGE),
        ),
        (
            "keyword_terms",
            f"{source} | stats count() as c by aws.cloudwatch.log_stream | sort - c | head 500",
            f"SELECT aws.cloudwatch.log_stream, count(*) AS c {table} GROUP BY aws.cloudwatch.log_stream ORDER BY c DESC LIMIT 500",
            groups(terms("aws.cloudwatch.log_stream", 500)),
        ),
        (
            "keyword_terms_low_cardinality",
            f"{source} | stats count() as c by cloud.region | sort - c | head 50",
            f"SELECT cloud.region, count(*) AS c {table} GROUP BY cloud.region ORDER BY c DESC LIMIT 50",
            groups(terms("cloud.region", 50)),
        ),
        (
            "multi_terms_keyword",
            f"{source} | {IN_DAY} | stats count() as c by process.name, cloud.region | sort - c | head 10",
            f"SELECT process.name, cloud.region, count(*) AS c {table} WHERE {SQL_DAY} GROUP BY process.name, cloud.region ORDER BY c DESC LIMIT 10",
            groups({"multi_terms": {"terms": [{"field": "process.name"}, {"field": "cloud.region"}]}}, RANGE),
        ),
        (
            "cardinality_agg_high",
            f"{source} | stats distinct_count(event.id)",
            f"SELECT count(DISTINCT event.id) {table}",
            groups({"cardinality": {"field": "event.id"}}),
        ),
        (
            "cardinality_agg_low",
            f"{source} | stats distinct_count(cloud.region)",
            f"SELECT count(DISTINCT cloud.region) {table}",
            groups({"cardinality": {"field": "cloud.region"}}),
        ),
        (
            "range_agg_with_metrics",
            f"{source} | eval b = case(metrics.size < 10, 'a', metrics.size < 100, 'b', metrics.size < 1000, 'c' else 'd')"
            " | stats avg(metrics.size), min(metrics.tmin) by b",
            "SELECT CASE WHEN metrics.size < 10 THEN 'a' WHEN metrics.size < 100 THEN 'b' WHEN metrics.size < 1000 THEN 'c' ELSE 'd' END AS b, "
            f"avg(metrics.size), min(metrics.tmin) {table} GROUP BY b",
            groups(
                {
                    "range": {"field": "metrics.size", "ranges": [{"to": 10}, {"from": 10, "to": 100}, {"from": 100, "to": 1000}, {"from": 1000}]},
                    "aggs": {"a": {"avg": {"field": "metrics.size"}}, "m": {"min": {"field": "metrics.tmin"}}},
                }
            ),
        ),
        (
            "timechart",
            f"{source} | timechart span=1h limit=0 count() by cloud.region",
            f"SELECT date_trunc('hour', `@timestamp`) AS h, cloud.region, count(*) {table} "
            "GROUP BY date_trunc('hour', `@timestamp`), cloud.region ORDER BY h, cloud.region",
            groups(by_time("hour", r=terms("cloud.region", 50))),
        ),
    ]


class Client:
    def __init__(self, url):
        self.connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=600)

    def ask(self, method, path, body=None):
        text = None if body is None else json.dumps(body)
        begin = time.perf_counter()
        self.connection.request(method, path, text, {"content-type": "application/json"})
        answer = self.connection.getresponse()
        data = answer.read()
        took = (time.perf_counter() - begin) * 1000
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {data[:400].decode(errors='replace')}")
        return json.loads(data) if data else None, took


def medians(client, requests, iterations):
    """Median of each request; an error in its place where there is one. Each turn begins with another one: a request that follows its like
    finds caches warm."""
    times = [[] for _ in requests]
    errors = [None] * len(requests)
    for turn in range(iterations + 2):
        first = turn % len(requests)
        order = [*range(first, len(requests)), *range(first)]
        for position in order if turn % 2 else reversed(order):
            path, body = requests[position]
            if errors[position]:
                continue
            try:
                took = client.ask("POST", path, body)[1]
            except RuntimeError as error:
                errors[position] = str(error)
                continue
            if turn >= 2:
                times[position].append(took)
    return [errors[position] or statistics.median(taken) for position, taken in enumerate(times)]


def compare(client, index, iterations, only):
    print(f"{'operation':<34} {'ppl':>9} {'sql':>9} {'dsl':>9} {'/sql':>6} {'/dsl':>6}")
    ratios = []
    for name, ppl, sql, dsl in operations(index):
        if only and name not in only:
            continue
        requests = [("/_plugins/_ppl", {"query": ppl}), ("/_plugins/_sql", {"query": sql}), (f"/{index}/_search?request_cache=false", dsl)]
        taken = medians(client, requests, iterations)
        if broken := [one for one in taken if isinstance(one, str)]:
            print(f"{name:<34} {broken[0]}")
            continue
        ratios.append((taken[0] / taken[1], taken[0] / taken[2]))
        print(f"{name:<34} {taken[0]:9.2f} {taken[1]:9.2f} {taken[2]:9.2f} {ratios[-1][0]:6.2f} {ratios[-1][1]:6.2f}", flush=True)
    for position, beside in enumerate(["SQL", "DSL"]):
        print(f"median ratio to {beside}: {statistics.median(ratio[position] for ratio in ratios):.2f}")


def wide(client, iterations):
    """Times what planning takes, less the time of the smallest answer of the server."""
    fields = {f"f{number:04}": {"type": ["keyword", "long", "date", "double"][number % 4]} for number in range(5_000)}
    for name, mapped in (("wide", fields), ("thousand", dict(list(fields.items())[:1_000]))):
        try:
            client.ask("DELETE", f"/{name}")
        except RuntimeError:
            pass
        client.ask("PUT", f"/{name}", {"settings": {"index.mapping.total_fields.limit": 6_000}, "mappings": {"properties": mapped}})
        client.ask("POST", f"/{name}/_doc?refresh=true", {"f0001": 1, "f0000": "a"})
    ten = (
        "source=wide | where f0001 > 0 | eval a = f0001 + 1, b = upper(f0000) | where a > 1 | eval c = a * 2 | fields f0000, f0001, a, b, c"
        " | rename c as d | stats count() as n, sum(d) as s by b | eval t = s / n | sort - t | head 10"
    )
    requests = [
        ("the server's smallest answer", "GET", "/", None),
        ("scan of one field of 5,000", "POST", "/_plugins/_sql", {"query": "SELECT f0001 FROM wide WHERE f0001 > 0 LIMIT 1"}),
        ("SELECT * of 1,000 fields", "POST", "/_plugins/_sql", {"query": "SELECT * FROM thousand LIMIT 1"}),
        ("ten commands over 5,000 fields", "POST", "/_plugins/_ppl", {"query": ten}),
    ]
    for name, method, path, body in requests:
        client.ask(method, path, body)
        taken = statistics.median(client.ask(method, path, body)[1] for _ in range(iterations * 10))
        print(f"{name:<34} {taken:9.2f} ms")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:9200")
    parser.add_argument("--index", default="bench-big5")
    parser.add_argument("--iterations", type=int, default=15)
    parser.add_argument("--only", nargs="*", help="names of operations")
    parser.add_argument("--wide", action="store_true", help="time planning over many fields instead")
    args = parser.parse_args()
    client = Client(args.url)
    if args.wide:
        wide(client, args.iterations)
    else:
        compare(client, args.index, args.iterations, args.only)


if __name__ == "__main__":
    main()
