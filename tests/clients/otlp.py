"""The exporters of OpenTelemetry's SDK for Python, over HTTP and gRPC, while the server is killed: each record that was
acknowledged is there after its restart, and at most those of a request without an answer are there twice."""

import logging
import time
import urllib.error
import urllib.request

from opentelemetry._logs import SeverityNumber
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.resources import Resource
import grpc

from instance import Instance, free_port

RECORDS, BATCH, KILLS = 10_000, 200, 3


def send(server, exporter, dataset, kills):
    """Sends records one after the other, and kills the server meanwhile."""
    resource = Resource({"service.name": "shop", "data_stream.dataset": dataset})
    provider = LoggerProvider(resource=resource)
    # The queue holds all: what the SDK drops by itself is not the server's.
    provider.add_log_record_processor(
        BatchLogRecordProcessor(exporter, max_queue_size=RECORDS, max_export_batch_size=BATCH, schedule_delay_millis=50)
    )
    logger = provider.get_logger("client", "1.0")
    for number in range(RECORDS):
        logger.emit(
            timestamp=time.time_ns(),
            severity_number=SeverityNumber.INFO,
            severity_text="INFO",
            body=f"record {number}",
            attributes={"number": number, "even": number % 2 == 0},
        )
        if kills and number and number % (RECORDS // (kills + 1)) == 0:
            server.kill()
            server.start()
    assert provider.force_flush(120_000), "the exporter did not finish"
    provider.shutdown()


def check(server, dataset, extra):
    index = f"logs-{dataset}.otel-default"
    server.call("POST", f"/{index}/_refresh")
    query = {
        "size": 1,
        "track_total_hits": True,
        "query": {"term": {"attributes.number": RECORDS - 1}},
        "aggs": {"all": {"global": {}, "aggs": {"n": {"cardinality": {"field": "attributes.number"}}}}},
    }
    found = server.call("POST", f"/{index}/_search", query)
    source = found["hits"]["hits"][0]["_source"]
    assert source["body"]["text"] == f"record {RECORDS - 1}", source
    assert source["resource"]["attributes"]["service.name"] == "shop", source
    assert source["scope"]["name"] == "client" and source["severity_number"] == 9, source
    numbers = server.call("POST", f"/{index}/_search", {"size": 0, "query": {"range": {"attributes.number": {"gte": 0}}},
        "track_total_hits": True, "aggs": {"least": {"min": {"field": "attributes.number"}}}})
    total = numbers["hits"]["total"]["value"]
    missing = found["aggregations"]["all"]["n"]["value"]
    assert missing == RECORDS, f"{missing} of {RECORDS} records are there"
    assert RECORDS <= total <= RECORDS + extra, f"{total} documents of {RECORDS} records"
    print(f"{dataset}: {total} documents of {RECORDS} records")


def main():
    logging.disable(logging.CRITICAL)
    otlp, rpc_port = free_port(), free_port()
    listen = {"OTLP__LISTEN": f"127.0.0.1:{otlp}", "OTLP__GRPC_LISTEN": f"127.0.0.1:{rpc_port}"}
    server = Instance("otlp", **listen)
    server.start()
    try:
        authorization = {"Authorization": server.token}
        url = f"http://127.0.0.1:{otlp}/v1/logs"
        http = HttpExporter(endpoint=url, headers=authorization, compression=Compression.Gzip, timeout=60)
        send(server, http, "http", KILLS)
        # A request without an answer is sent again.
        check(server, "http", KILLS * BATCH)
        metadata = (("authorization", server.token),)
        rpc = GrpcExporter(endpoint=f"127.0.0.1:{rpc_port}", insecure=True, headers=metadata,
            compression=grpc.Compression.Gzip, timeout=60)
        send(server, rpc, "grpc", KILLS)
        check(server, "grpc", KILLS * BATCH)
        # Credentials are asked for, and traces are not taken.
        for path, headers, status in [("/v1/logs", {}, 401), ("/v1/traces", authorization, 404)]:
            request = urllib.request.Request(f"http://127.0.0.1:{otlp}{path}", b"{}", {**headers, "Content-Type": "application/json"})
            try:
                urllib.request.urlopen(request, timeout=60)
                raise AssertionError(f"{path} is answered")
            except urllib.error.HTTPError as error:
                assert error.code == status, (path, error.code)
    finally:
        server.kill()


main()
