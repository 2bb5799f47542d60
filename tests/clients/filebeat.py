"""A real Filebeat follows a file and ships its lines to the input `beats`, with certificates of both sides, and to the data API, while
the server is killed: each line is there, and at most those without an acknowledgement are there twice."""

import os
import shutil
import subprocess
import sys

from instance import WORK, Instance, free_port

FILEBEAT = os.path.join(WORK, "go-filebeat")
LINES, BATCH, KILLS = int(os.environ.get("CLIENT_RECORDS", "10000")), 500, 2
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
    directory = os.path.join(WORK, f"filebeat-{name}")
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    with open(f"{directory}/lines.log", "w", encoding="utf-8") as file:
        file.writelines(f"line number {number} of a file that Filebeat follows\n" for number in range(LINES))
    with open(f"{directory}/filebeat.yml", "w", encoding="utf-8") as file:
        file.write(f"""
path.home: "{directory}"
filebeat.inputs: [{{ type: filestream, id: lines, paths: ["{directory}/lines.log"] }}]
queue.mem: {{ events: {BATCH * 4}, flush.min_events: {BATCH}, flush.timeout: 200ms }}
logging.to_stderr: true
{output}""")
    with open(os.path.join(WORK, f"filebeat-{name}.log"), "w", encoding="utf-8") as log:
        command = [FILEBEAT, "run", "-c", f"{directory}/filebeat.yml", "--strict.perms=false"]
        shipper = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            for kill in range(1, KILLS + 1):
                wanted = LINES * kill // (KILLS + 2)
                server.wait(lambda: server.count(index) >= wanted, f"{wanted} lines of {name}")
                assert shipper.poll() is None, f"Filebeat ended: {log.name}"
                server.kill()
                server.start(*ports)
            messages = lambda: [source["message"] for source in server.sources(index, "message")]
            server.wait(lambda: server.count(index) >= LINES and len(set(messages())) == LINES, f"{LINES} lines of {name}")
            assert shipper.poll() is None, f"Filebeat ended: {log.name}"
        finally:
            shipper.terminate()
            shipper.wait()
    total = server.count(index)
    assert total <= LINES + KILLS * (IN_FLIGHT + 1) * BATCH, f"{name}: {total} documents of {LINES} lines"
    source = next(server.sources(index, "*"))
    assert source["agent"]["type"] == "filebeat" and source["log"]["file"]["path"] == f"{directory}/lines.log", source
    print(f"{name}: {total} documents of {LINES} lines over {KILLS} kills")
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
