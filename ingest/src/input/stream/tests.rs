//! Listening inputs against clients, for all of them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UdpSocket};
use tokio::task::JoinHandle;

use crate::input::testing::{OptionValue, Pipeline, options};
use crate::input::{Input, InputError, build};

/// Time that a test waits for a condition.
pub(in crate::input) const PATIENCE: Duration = Duration::from_secs(30);

/// A running input and its pipeline.
pub(in crate::input) struct RunningInput {
    pub(in crate::input) address: SocketAddr,
    pub(in crate::input) pipeline: Pipeline,
    ended: JoinHandle<Result<(), InputError>>,
}

impl RunningInput {
    /// Starts an input on a free port of this machine.
    pub(in crate::input) async fn start(plugin: &str, given: &[(&str, OptionValue)]) -> Self {
        Self::start_with(plugin, given, Pipeline::new(4)).await
    }

    pub(in crate::input) async fn start_with(
        plugin: &str,
        given: &[(&str, OptionValue)],
        mut pipeline: Pipeline,
    ) -> Self {
        let mut given = given.to_vec();
        for (name, value) in [("host", "127.0.0.1"), ("port", "0")] {
            if !given.iter().any(|(have, _)| *have == name) {
                given.push((name, value.into()));
            }
        }
        let input: Arc<dyn Input> = Arc::from(build(options(plugin, &given)).unwrap());
        let running = Arc::clone(&input);
        let context = pipeline.context();
        let ended = tokio::spawn(async move { running.run(context).await });
        let listens = async {
            while input.local_address().is_none() && !ended.is_finished() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, listens).await.unwrap();
        let address = input.local_address().expect("the input listens");
        Self { address, pipeline, ended }
    }

    pub(in crate::input) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends bytes over a connection of their own.
    pub(in crate::input) async fn send(&self, bytes: &[u8]) {
        let mut stream = self.connect().await;
        stream.write_all(bytes).await.unwrap();
        stream.shutdown().await.unwrap();
    }

    /// Sends a datagram.
    pub(in crate::input) async fn send_datagram(&self, bytes: &[u8]) {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.send_to(bytes, self.address).await.unwrap();
    }

    /// Stores batches until there are so many events.
    pub(in crate::input) async fn store(&mut self, events: usize) {
        let stored = async {
            while self.pipeline.events.len() < events {
                self.pipeline.take().await.unwrap().unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, stored).await.expect("events come");
    }

    /// Ends the input at once, as a kill does: nothing that it has goes on.
    pub(in crate::input) async fn kill(self) {
        self.ended.abort();
        let _ = self.ended.await;
    }

    /// Stops the input and stores the rest.
    pub(in crate::input) async fn stop(mut self) -> Pipeline {
        self.pipeline.stop.send_replace(true);
        let rest = async { while self.pipeline.take().await.is_some() {} };
        tokio::time::timeout(PATIENCE, rest).await.expect("the input hands on what it has");
        tokio::time::timeout(PATIENCE, self.ended).await.unwrap().unwrap().unwrap();
        self.pipeline
    }
}

#[tokio::test]
async fn lines_of_connections_become_events() {
    let mut running = RunningInput::start("tcp", &[]).await;
    let mut stream = running.connect().await;
    let port = stream.local_addr().unwrap().port();
    stream.write_all(b"one\ntw").await.unwrap();
    running.store(1).await;
    stream.write_all(b"o\nthr").await.unwrap();
    running.store(2).await;
    let event = &running.pipeline.events[0];
    assert_eq!(event.fields()["host"], "127.0.0.1");
    assert_eq!(event.fields()["port"], port);
    assert_eq!(event.fields()["@version"], "1");
    assert_eq!(event.metadata()["ip_address"], "127.0.0.1");
    // A connection that the stop of the input ends gives its unfinished line.
    let pipeline = running.stop().await;
    assert_eq!(pipeline.messages(), ["one", "two", "thr"]);
    assert_eq!(pipeline.budget.used(), 0);
}

#[tokio::test]
async fn json_of_connections_is_read_by_lines() {
    let mut running = RunningInput::start("tcp", &[("codec", "json".into())]).await;
    running.send(b"{\"n\":1}\n{\"n\":2}\n").await;
    running.store(2).await;
    let numbers: Vec<_> = running.pipeline.events.iter().map(|event| event.fields()["n"].clone()).collect();
    assert_eq!(numbers, [1, 2]);
}

#[tokio::test]
async fn proxies_tell_their_clients() {
    let mut running = RunningInput::start("tcp", &[("proxy_protocol", "true".into())]).await;
    running.send(b"GET / HTTP/1.1\r\n\r\n").await;
    running.send(b"PROXY TCP4 10.1.2.3 127.0.0.1 4660 80\r\nhello\n").await;
    running.store(1).await;
    let fields = running.pipeline.events[0].fields();
    assert_eq!((&fields["host"], &fields["port"]), (&"10.1.2.3".into(), &4660.into()));
    assert_eq!(fields["proxy_host"], "127.0.0.1");
    assert_eq!(running.stop().await.messages(), ["hello"]);
}

#[tokio::test]
async fn a_pipeline_that_is_behind_slows_clients_down() {
    let mut running = RunningInput::start_with("tcp", &[], Pipeline::new(1)).await;
    let mut stream = running.connect().await;
    let line = [vec![b'x'; 1023], vec![b'\n']].concat();
    let mut lines = 0;
    // Nobody stores anything: writes come to a halt, and no line is lost.
    while tokio::time::timeout(Duration::from_millis(500), stream.write_all(&line)).await.is_ok() {
        lines += 1;
        assert!(lines < 200_000, "everything is read");
    }
    drop(stream);
    running.store(lines).await;
    assert!(running.pipeline.budget.used() < 64 << 20);
}

#[tokio::test]
async fn a_server_that_is_connected_to_sends_events() {
    let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = server.local_addr().unwrap().port().to_string();
    let given = [("mode", "client".into()), ("host", "127.0.0.1".into()), ("port", port.into())];
    let input = build(options("tcp", &given)).unwrap();
    let mut pipeline = Pipeline::new(4);
    let context = pipeline.context();
    let running = tokio::spawn(async move { input.run(context).await });
    // One connection after the other.
    for line in [b"a\n", b"b\n"] {
        let (mut stream, _) = server.accept().await.unwrap();
        stream.write_all(line).await.unwrap();
        drop(stream);
        pipeline.take().await.unwrap().unwrap();
    }
    assert_eq!(pipeline.messages(), ["a", "b"]);
    pipeline.stop.send_replace(true);
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn datagrams_become_events() {
    let mut running = RunningInput::start("udp", &[("source_ip_fieldname", "from".into())]).await;
    running.send_datagram(b"one\ntwo").await;
    running.send_datagram(&[0xff; 60_000]).await;
    running.store(2).await;
    let pipeline = running.stop().await;
    assert_eq!(pipeline.messages()[0], "one\ntwo");
    assert_eq!(pipeline.events[0].fields()["from"], "127.0.0.1");
}

#[test]
fn options_are_checked() {
    let faults = |plugin: &str, given: &[(&str, OptionValue)]| {
        let faults = build(options(plugin, given)).unwrap_err();
        faults.iter().map(|fault| fault.message.clone()).collect::<Vec<_>>().join("\n")
    };
    for plugin in ["tcp", "udp", "beats", "elastic_agent"] {
        assert!(faults(plugin, &[]).contains("needs the option [port]"), "{plugin}");
    }
    let tls = faults("tcp", &[("port", "1".into()), ("ssl_enable", "true".into())]);
    assert!(tls.contains("needs the options [ssl_certificate] and [ssl_key]"), "{tls}");
    let twice = [("port", "1".into()), ("ssl_cert", "a".into()), ("ssl_certificate", "b".into())];
    assert!(faults("tcp", &twice).contains("are names of the same one"));
    let lumberjack = faults("lumberjack", &[("port", "1".into())]);
    assert!(lumberjack.contains("[ssl_certificate]"), "{lumberjack}");
    assert!(build(options("syslog", &[("timezone", "Europe/Berlin".into())])).is_ok());
    assert!(faults("gelf", &[("use_udp", "false".into())]).contains("nothing would be read"));
}
