//! Listeners over real sockets. Mostly, time stands still but where everybody waits, so that timeouts take none.

mod tls;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::{ClientCertificate, Config, Listener, Peer, Server, Service, Tls};

const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const LARGE: usize = 40 << 20;
const SECOND: Duration = Duration::from_secs(1);

/// `/wait` waits until told, `/large` is answered at length, `/who` with the client's certificate, all others
/// with its address.
#[derive(Default)]
struct TestService {
    waits: Notify,
    go_on: Notify,
}

impl Service for TestService {
    type Body = Full<Bytes>;

    async fn call(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let Peer(peer) = *request.extensions().get().unwrap();
        let body = match request.uri().path() {
            "/wait" => {
                self.waits.notify_one();
                self.go_on.notified().await;
                Bytes::from_static(b"done")
            }
            "/who" => match request.extensions().get::<ClientCertificate>() {
                Some(ClientCertificate { subject, common_name, .. }) => {
                    format!("{subject} {common_name:?}").into()
                }
                None => Bytes::from_static(b"nobody"),
            },
            "/large" => Bytes::from(vec![b'x'; LARGE]),
            _ => Bytes::from(peer.ip().to_string()),
        };
        Response::new(Full::new(body))
    }
}

struct TestServer {
    address: SocketAddr,
    service: Arc<TestService>,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<()>,
}

async fn start(config: Config, tls: Option<Tls>) -> TestServer {
    start_with(config, tls, |server, listener, service| server.add(listener, service)).await
}

async fn start_with(
    config: Config,
    tls: Option<Tls>,
    add: impl FnOnce(&mut Server, Listener, Arc<TestService>),
) -> TestServer {
    let mut server = Server::new(config);
    let service = Arc::new(TestService::default());
    let listener = Listener::bind("test", LOOPBACK, tls).await.unwrap();
    let address = listener.local_addr().unwrap();
    add(&mut server, listener, Arc::clone(&service));
    let (stop, stopped) = oneshot::channel::<()>();
    let ended = tokio::spawn(server.run(async {
        let _ = stopped.await;
    }));
    TestServer { address, service, stop, ended }
}

impl TestServer {
    async fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).await.unwrap();
        // What the system holds back for a moment is an age to a clock that stands still.
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// Connects from another address of this machine.
    async fn connect_from(&self, last: u8) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, last], 0))).unwrap();
        socket.connect(self.address).await.unwrap()
    }

    /// Starts a request that is not answered yet.
    async fn busy(&self, mut stream: TcpStream) -> TcpStream {
        send(&mut stream, "/wait").await;
        self.service.waits.notified().await;
        stream
    }
}

async fn send(stream: &mut (impl AsyncWrite + Unpin), path: &str) {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes()).await.unwrap();
}

/// Reads a short answer.
async fn answer(stream: &mut (impl AsyncRead + Unpin), end: &str) -> String {
    let mut answer = Vec::new();
    while !answer.ends_with(end.as_bytes()) {
        assert_ne!(stream.read_buf(&mut answer).await.unwrap(), 0, "{}", String::from_utf8_lossy(&answer));
    }
    String::from_utf8(answer).unwrap()
}

async fn ask(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    send(stream, "/").await;
    assert!(answer(stream, "127.0.0.1").await.starts_with("HTTP/1.1 200"));
}

/// Reads to the end, or until the connection is cut; returns the number of bytes.
async fn rest(stream: &mut TcpStream) -> usize {
    let mut buffer = vec![0; 64 << 10];
    let mut all = 0;
    while let Ok(bytes @ 1..) = stream.read(&mut buffer).await {
        all += bytes;
    }
    all
}

#[tokio::test(start_paused = true)]
async fn silent_connections_make_room() {
    let config = Config { max_connections: 4, ..Config::default() };
    let running = start(config, None).await;
    let mut silent = Vec::new();
    for _ in 0..4 {
        silent.push(running.connect().await);
        tokio::time::sleep(SECOND).await;
    }
    // Also one that has sent a part of a head, and one that was answered.
    silent[0].write_all(b"GET / HTTP/1.1\r\nx: y").await.unwrap();
    ask(&mut silent[1]).await;
    let started = Instant::now();
    let mut new = [running.connect().await, running.connect().await];
    for new in &mut new {
        ask(new).await;
    }
    assert_eq!((rest(&mut silent[0]).await, rest(&mut silent[2]).await), (0, 0));
    assert!(started.elapsed() < SECOND);
    ask(&mut silent[1]).await;
    ask(&mut silent[3]).await;
}

#[tokio::test(start_paused = true)]
async fn busy_connections_keep_their_places() {
    let config = Config { max_connections: 3, max_connections_per_address: 2, ..Config::default() };
    let running = start(config, None).await;
    let mut first = running.busy(running.connect().await).await;
    let _second = running.busy(running.connect().await).await;
    // One more of that address is closed at once, one of another is served.
    assert_eq!(rest(&mut running.connect().await).await, 0);
    let mut other = running.busy(running.connect_from(2).await).await;
    // Now all are busy, and who comes waits.
    let mut waits = running.connect_from(3).await;
    send(&mut waits, "/").await;
    let early = tokio::time::timeout(SECOND * 9, waits.read_u8()).await;
    assert!(early.is_err());
    running.service.go_on.notify_waiters();
    answer(&mut first, "done").await;
    answer(&mut other, "done").await;
    answer(&mut waits, "127.0.0.3").await;
}

#[tokio::test(start_paused = true)]
async fn a_head_has_its_time_and_so_has_the_wait_for_it() {
    let config = Config::default();
    let (head, idle) = (config.head_timeout, config.idle_timeout);
    let running = start(config, None).await;
    // Longer than a head may take, less than the pause before it.
    let mut stream = running.connect().await;
    for _ in 0..3 {
        tokio::time::sleep(head * 2).await;
        ask(&mut stream).await;
    }
    let started = Instant::now();
    assert_eq!(rest(&mut stream).await, 0);
    assert!((idle..idle + head).contains(&started.elapsed()), "{:?}", started.elapsed());
    // A byte now and then does not help.
    let mut trickles = running.connect().await;
    let started = Instant::now();
    while trickles.write_all(b"x").await.is_ok() {
        tokio::time::sleep(SECOND).await;
    }
    assert!((head..head * 2).contains(&started.elapsed()), "{:?}", started.elapsed());
}

/// In real time: the system needs some to tell the server what its client has read.
#[tokio::test]
async fn slow_answers_arrive() {
    let (write, idle) = (SECOND * 2, SECOND / 10);
    let running = start(Config { write_timeout: write, idle_timeout: idle, ..Config::default() }, None).await;
    let mut slow = running.connect().await;
    let started = Instant::now();
    send(&mut slow, "/large").await;
    let mut left = LARGE;
    let mut buffer = vec![0; 2 << 20];
    while left > 0 {
        // The pause is the slow client, nothing is waited for.
        tokio::time::sleep(SECOND / 8).await;
        let wanted = left.min(buffer.len());
        left -= slow.read_exact(&mut buffer[..wanted]).await.unwrap();
    }
    assert!(started.elapsed() > write.max(idle * 20), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_read_is_cut() {
    let config = Config::default();
    let write = config.write_timeout;
    let running = start(config, None).await;
    let mut unread = running.connect().await;
    send(&mut unread, "/large").await;
    tokio::time::sleep(write * 3).await;
    assert!(rest(&mut unread).await < LARGE);
}

#[tokio::test(start_paused = true)]
async fn an_answer_unread_over_http2_ends_its_connection() {
    let config = Config::default();
    let write = config.write_timeout;
    let running = start(config, None).await;
    let (client, connection) = h2::client::handshake(running.connect().await).await.unwrap();
    let started = Instant::now();
    let ended = tokio::spawn(async move {
        let _ = connection.await;
        started.elapsed()
    });
    let mut client = client.ready().await.unwrap();
    let ask = |path: &str| Request::get(format!("http://localhost{path}")).body(()).unwrap();
    // Its window is never given back: the client reads other streams only.
    let (unread, _) = client.send_request(ask("/large"), true).unwrap();
    let unread = unread.await.unwrap();
    for _ in 0..3 {
        let mut other = client.clone().ready().await.unwrap();
        let (small, _) = other.send_request(ask("/"), true).unwrap();
        assert_eq!(small.await.unwrap().status(), 200);
    }
    let elapsed = ended.await.unwrap();
    assert!((write..write * 3).contains(&elapsed), "{elapsed:?}");
    drop(unread);
}

#[tokio::test(start_paused = true)]
async fn requests_under_way_end_and_idle_connections_do_not_hold_up() {
    let running = start(Config::default(), None).await;
    let mut idle = running.connect().await;
    ask(&mut idle).await;
    let mut silent = running.connect().await;
    let (_, http2) = h2::client::handshake(running.connect().await).await.unwrap();
    let http2 = tokio::spawn(http2);
    let mut busy = running.busy(running.connect().await).await;
    let TestServer { address, service, stop, mut ended } = running;
    stop.send(()).unwrap();
    assert_eq!((rest(&mut idle).await, rest(&mut silent).await), (0, 0));
    http2.await.unwrap().unwrap();
    assert!(TcpStream::connect(address).await.is_err());
    assert!(tokio::time::timeout(SECOND * 60, &mut ended).await.is_err());
    service.go_on.notify_one();
    assert!(answer(&mut busy, "done").await.starts_with("HTTP/1.1 200"));
    ended.await.unwrap();
}

#[tokio::test]
async fn what_is_dropped_is_cut() {
    let running = start(Config::default(), None).await;
    let mut busy = running.busy(running.connect().await).await;
    running.ended.abort();
    assert_eq!(rest(&mut busy).await, 0);
}

#[tokio::test(start_paused = true)]
async fn targets_may_have_characters_that_are_not_escaped() {
    let running = start(Config::default(), None).await;
    let mut stream = running.connect().await;
    for _ in 0..2 {
        send(&mut stream, "/search?q=n:>3").await;
        assert!(answer(&mut stream, "127.0.0.1").await.starts_with("HTTP/1.1 200"));
        let body = b"POST /<a`b\xff HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n<>";
        stream.write_all(body).await.unwrap();
        assert!(answer(&mut stream, "127.0.0.1").await.starts_with("HTTP/1.1 200"));
    }
}

#[tokio::test]
async fn a_listener_with_a_thread_of_its_own_drains_and_is_cut_off_as_others() {
    let start = || {
        start_with(Config::default(), None, |server, listener, service| {
            server.add_on_thread(listener, service, || {}).unwrap();
        })
    };
    let server = start().await;
    let mut busy = server.busy(server.connect().await).await;
    ask(&mut server.connect().await).await;
    server.stop.send(()).unwrap();
    server.service.go_on.notify_one();
    assert!(answer(&mut busy, "done").await.starts_with("HTTP/1.1 200"));
    server.ended.await.unwrap();
    let server = start().await;
    let mut busy = server.busy(server.connect().await).await;
    server.ended.abort();
    assert_eq!(rest(&mut busy).await, 0);
}
