"""A real Filebeat follows a file and ships its lines to the input `beats`, with certificates of both sides, and to the data API, while
the server is killed: each line is there, and at most those without an acknowledgement are there twice."""

import os
import shutil
import subprocess
import sys

import shipping
from instance import WORK, Instance, free_port
from shipping import LINES

FILEBEAT = os.path.join(WORK, "go-filebeat")
BATCH, KILLS = 500, 2
# Batches that an output has on their way at the same time. That to Logstash sends one more before it waits.
IN_FLIGHT = 2

if not os.path.exists(FILEBEAT):
    print("missing: go, which builds Filebeat")
    sys.exit(77)


def make_certificates(directory):
    """Makes an authority, and certificates that it signs for the server and for Filebeat."""
    openssl = lambda *words: subprocess.run(["openssl", *words], cwd=directory, check=True, capture_output=True)
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *curve, "-days", "7", "-subj", "/CN=authority", "-keyout", "authority.key", "-out", "authority.pem")
    for name in ("server", "shipper"):
        openssl("req", *curve, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        with open(f"{directory}/{name}.ext", "w", encoding="utf-8") as file:
            file.write("subjectAltName = IP:127.0.0.1\n")
        authority = ("-CA", "authority.pem", "-CAkey", "authority.key", "-CAcreateserial")
        openssl("x509", "-req", "-in", f"{name}.csr", *authority, "-days", "7", "-extfile", f"{name}.ext", "-out", f"{name}.pem")


def definition(port, certificates):
    return f"""
        input {{
          beats {{
            host => "127.0.0.1" port => {port} ssl_enabled => true
            ssl_certificate => "{certificates}/server.pem" ssl_key => "{certificates}/server.key"
            ssl_certificate_authorities => ["{certificates}/authority.pem"] ssl_client_authentication => "required"
          }}
        }}
        output {{ opensearch {{ index => "filebeat-beats" }} }}
    """


def outputs(server, port, certificates):
    """Returns the outputs of Filebeat by their names, with the indices that they fill."""
    beats = f"""
output.logstash:
  hosts: ["127.0.0.1:{port}"]
  bulk_max_size: {BATCH}
  pipelining: {IN_FLIGHT}
  backoff: {{ init: 100ms, max: 500ms }}
  ssl:
    certificate_authorities: ["{certificates}/authority.pem"]
    certificate: "{certificates}/shipper.pem"
    key: "{certificates}/shipper.key"
"""
    # Filebeat puts its template first.
    data_api = f"""
output.elasticsearch:
  hosts: ["http://127.0.0.1:{server.port}"]
  username: admin
  password: "{server.password}"
  bulk_max_size: {BATCH}
  worker: {IN_FLIGHT}
  backoff: {{ init: 100ms, max: 500ms }}
"""
    return {"logstash": (beats, "filebeat-beats"), "elasticsearch": (data_api, "filebeat-7*")}


def ship(server, name, output, index, ports):
    """Has Filebeat ship a file while the server is killed."""
    directory = shipping.write_lines(f"filebeat-{name}")
    with open(f"{directory}/filebeat.yml", "w", encoding="utf-8") as file:
        file.write(f"""
path.home: "{directory}"
filebeat.inputs: [{{ type: filestream, id: lines, paths: ["{directory}/lines.log"] }}]
queue.mem: {{ events: {BATCH * 4}, flush.min_events: {BATCH}, flush.timeout: 200ms }}
logging.to_stderr: true
{output}""")
    command = [FILEBEAT, "run", "-c", f"{directory}/filebeat.yml", "--strict.perms=false"]
    messages = lambda: [source["message"] for source in server.sources(index, "message")]
    total = shipping.ship(server, f"filebeat-{name}", command, index, messages, KILLS, ports)
    assert total <= LINES + KILLS * (IN_FLIGHT + 1) * BATCH, f"{name}: {total} documents of {LINES} lines"
    source = next(server.sources(index, "*"))
    assert source["agent"]["type"] == "filebeat" and source["log"]["file"]["path"] == f"{directory}/lines.log", source
    shutil.rmtree(directory)


def main():
    certificates, port = os.path.join(WORK, "filebeat-certificates"), free_port()
    shutil.rmtree(certificates, ignore_errors=True)
    os.makedirs(certificates)
    make_certificates(certificates)
    server = Instance("filebeat-server", {"beats": definition(port, certificates)})
    try:
        server.start(port)
        for name, (output, index) in outputs(server, port, certificates).items():
            ship(server, name, output, index, [port])
    finally:
        server.remove()


main()
