"""A real collector of OpenTelemetry tails a file and exports its lines by OTLP over HTTP and over gRPC, while the server is killed:
each record is there, and at most those of requests without an answer are there twice."""

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


def config(directory, name, server, ports):
    """The configuration of a collector whose queue and positions are on disk."""
    address = f"127.0.0.1:{ports[name]}"
    target = {"otlp_http": f"endpoint: http://{address}", "otlp_grpc": f"endpoint: {address}\n    tls: {{ insecure: true }}"}[name]
    return f"""
receivers:
  file_log:
    include: ["{directory}/lines.log"]
    start_at: beginning
    storage: file_storage
    resource: {{ data_stream.dataset: collector_{name} }}
extensions:
  file_storage: {{ directory: "{directory}/{name}", create_directory: true }}
exporters:
  {name}:
    {target}
    headers: {{ Authorization: "{server.token}" }}
    compression: gzip
    retry_on_failure: {{ initial_interval: 50ms, max_interval: 500ms, max_elapsed_time: 0s }}
    sending_queue:
      storage: file_storage
      block_on_overflow: true
      num_consumers: {CONSUMERS}
      batch: {{ min_size: {BATCH}, max_size: {BATCH}, flush_timeout: 200ms, sizer: items }}
service:
  extensions: [file_storage]
  telemetry: {{ metrics: {{ level: none }} }}
  pipelines:
    logs: {{ receivers: [file_log], exporters: [{name}] }}
"""


def export(server, name, ports):
    directory = shipping.write_lines("collector-files")
    with open(f"{directory}/config.yaml", "w", encoding="utf-8") as file:
        file.write(config(directory, name, server, ports))
    index = f"logs-collector_{name}.otel-default"
    command = [COLLECTOR, "--config", f"file:{directory}/config.yaml"]
    texts = lambda: [source["body"]["text"] for source in server.sources(index, "body")]
    # A request that is sent again comes within moments.
    total = shipping.ship(server, f"collector-{name}", command, index, texts, KILLS, ports.values(), settle=2)
    assert total <= LINES + KILLS * CONSUMERS * BATCH, f"{name}: {total} documents of {LINES} records"
    shutil.rmtree(directory)


def main():
    ports = {"otlp_http": free_port(), "otlp_grpc": free_port()}
    listen = {"OTLP__LISTEN": f"127.0.0.1:{ports['otlp_http']}", "OTLP__GRPC_LISTEN": f"127.0.0.1:{ports['otlp_grpc']}"}
    server = Instance("collector-server", **listen)
    try:
        server.start(*ports.values())
        for name in ports:
            export(server, name, ports)
    finally:
        server.remove()


main()
