"""A real collector of OpenTelemetry tails a file and exports its lines by OTLP over HTTP and gRPC, and to the data API as Elasticsearch and as
OpenSearch. The server is killed meanwhile, except under the exporter `opensearch`. Each record is there, and at most those of requests
without an answer are there twice."""

import os
import shutil
import sys

import shipping
from instance import WORK, Instance, free_port
from shipping import LINES

COLLECTOR = os.path.join(WORK, "go-collector")
BATCH, KILLS = 500, 3
# Requests that an exporter has on their way at the same time.
CONSUMERS = 4

if not os.path.exists(COLLECTOR):
    print("missing: go, which builds the collector")
    sys.exit(77)


DATA_STREAMS = {"index_patterns": ["logs-collector_*"], "data_stream": {}, "priority": 500}


def target(server, name, ports):
    """The lines of an exporter that say where and how to send."""
    otlp = f"""
    headers: {{ Authorization: "{server.token}" }}
    compression: gzip
    retry_on_failure: {{ initial_interval: 50ms, max_interval: 500ms, max_elapsed_time: 0s }}"""
    data_api = f"http://127.0.0.1:{server.port}"
    return {
        "otlphttp": f"endpoint: http://127.0.0.1:{ports.get(name)}{otlp}",
        "otlp": f"endpoint: 127.0.0.1:{ports.get(name)}\n    tls: {{ insecure: true }}{otlp}",
        # It gives a request up after its last try.
        "elasticsearch": f"""endpoint: {data_api}
    user: admin
    password: {server.password}
    retry: {{ max_retries: 100, initial_interval: 50ms, max_interval: 500ms }}""",
        "opensearch": f"""http:
      endpoint: {data_api}
      headers: {{ Authorization: "{server.token}" }}
    logs_index: logs-collector_opensearch.otel-default
    retry_on_failure: {{ initial_interval: 50ms, max_interval: 500ms, max_elapsed_time: 0s }}""",
    }[name]


def config(directory, name, server, ports):
    """The configuration of a collector whose queue and positions are on disk."""
    return f"""
receivers:
  filelog:
    include: ["{directory}/lines.log"]
    start_at: beginning
    storage: file_storage
    resource: {{ data_stream.dataset: collector_{name} }}
extensions:
  file_storage: {{ directory: "{directory}/{name}", create_directory: true }}
exporters:
  {name}:
    {target(server, name, ports)}
    sending_queue:
      enabled: true
      storage: file_storage
      block_on_overflow: true
      queue_size: 1000
      num_consumers: {CONSUMERS}
      batch: {{ min_size: {BATCH}, max_size: {BATCH}, flush_timeout: 200ms, sizer: items }}
service:
  extensions: [file_storage]
  telemetry: {{ metrics: {{ level: none }} }}
  pipelines:
    logs: {{ receivers: [filelog], exporters: [{name}] }}
"""


def export(server, name, ports):
    directory = shipping.write_lines("collector-files")
    with open(f"{directory}/config.yaml", "w", encoding="utf-8") as file:
        file.write(config(directory, name, server, ports))
    index = f"logs-collector_{name}.otel-default"
    command = [COLLECTOR, "--config", f"file:{directory}/config.yaml"]
    # The schema of OpenSearch has the text itself, that of OpenTelemetry an object with it.
    text = lambda body: body["text"] if isinstance(body, dict) else body
    texts = lambda: [text(source["body"]) for source in server.sources(index, "body")]
    # A request that is sent again comes within moments.
    # The exporter `opensearch` drops what it finds no connection for.
    kills = 0 if name == "opensearch" else KILLS
    total = shipping.ship(server, f"collector-{name}", command, index, texts, kills, ports.values(), settle=2)
    assert total <= LINES + kills * CONSUMERS * BATCH, f"{name}: {total} documents of {LINES} records"
    shutil.rmtree(directory)


def main():
    ports = {"otlphttp": free_port(), "otlp": free_port()}
    listen = {"OTLP__LISTEN": f"127.0.0.1:{ports['otlphttp']}", "OTLP__GRPC_LISTEN": f"127.0.0.1:{ports['otlp']}"}
    server = Instance("collector-server", **listen)
    try:
        server.start(*ports.values())
        # A server of Elasticsearch has such a template already.
        server.call("PUT", "/_index_template/collector", DATA_STREAMS)
        for name in [*ports, "elasticsearch", "opensearch"]:
            export(server, name, ports)
    finally:
        server.remove()


main()
