"""A real collector of OpenTelemetry tails a file and exports its lines by OTLP over HTTP and over gRPC, while the server is killed:
each record is there, and at most those of requests without an answer are there twice."""

import os
import shutil
import subprocess
import sys
import time

from instance import WORK, Instance, free_port

COLLECTOR = os.path.join(WORK, "go-collector")
RECORDS, BATCH, KILLS = int(os.environ.get("CLIENT_RECORDS", "10000")), 500, 3
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
    directory = os.path.join(WORK, "collector-files")
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    with open(f"{directory}/lines.log", "w", encoding="utf-8") as file:
        file.writelines(f"line number {number} of a file that a collector tails\n" for number in range(RECORDS))
    with open(f"{directory}/config.yaml", "w", encoding="utf-8") as file:
        file.write(config(directory, name, server, ports))
    index = f"logs-collector_{name}.otel-default"
    with open(os.path.join(WORK, f"collector-{name}.log"), "w", encoding="utf-8") as log:
        collector = subprocess.Popen([COLLECTOR, "--config", f"file:{directory}/config.yaml"], stdout=log, stderr=log)
        try:
            for kill in range(1, KILLS + 1):
                wanted = RECORDS * kill // (KILLS + 2)
                server.wait(lambda: server.count(index) >= wanted, f"{wanted} records of {name}")
                assert collector.poll() is None, f"the collector ended: {log.name}"
                server.kill()
                server.start(*ports.values())
            texts = lambda: [source["body"]["text"] for source in server.sources(index, "body")]
            server.wait(lambda: server.count(index) >= RECORDS and len(set(texts())) == RECORDS, f"{RECORDS} records of {name}")
            # A request that is sent again comes within moments.
            time.sleep(2)
        finally:
            collector.kill()
            collector.wait()
    total = server.count(index)
    assert total <= RECORDS + KILLS * CONSUMERS * BATCH, f"{name}: {total} documents of {RECORDS} records"
    print(f"{name}: {total} documents of {RECORDS} records over {KILLS} kills")
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
