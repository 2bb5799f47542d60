use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use futures::{StreamExt, stream};
use http_body::Frame;
use http_body_util::{Full, StreamBody};

use super::*;
use crate::Budget;

const SILENCE: Duration = Duration::from_secs(60);

/// Bodies, and the budget that they are charged to.
#[derive(Clone)]
struct ChargedBodies {
    bodies: BodyReader,
    budget: Budget,
}

fn bodies(budget: u64, max_bytes: u64) -> ChargedBodies {
    ChargedBodies { bodies: BodyReader::new(max_bytes, SILENCE), budget: Budget::new(budget) }
}

impl ChargedBodies {
    async fn read<B>(&self, headers: &HeaderMap, body: &mut B) -> Result<ReservedBody, BodyError>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        self.bodies.read(headers, body, self.budget.empty()).await
    }
}

fn gzip(bytes: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap().into()
}

fn headers(name: http::HeaderName, value: &str) -> HeaderMap {
    HeaderMap::from_iter([(name, value.parse().unwrap())])
}

fn data(bytes: Vec<u8>) -> Result<Frame<Bytes>, std::io::Error> {
    Ok(Frame::data(Bytes::from(bytes)))
}

/// A body of so many parts, each a pause after the other.
fn paced(
    parts: usize,
    bytes: usize,
    pause: Duration,
) -> impl Body<Data = Bytes, Error = std::io::Error> + Unpin {
    StreamBody::new(Box::pin(stream::iter(0..parts).then(move |_| async move {
        tokio::time::sleep(pause).await;
        data(vec![b'x'; bytes])
    })))
}

#[tokio::test]
async fn bodies_come_whole_and_are_held_until_dropped() {
    let bodies = bodies(100 << 20, 50 << 20);
    let text = b"{\"a\":1}\n".repeat(100_000);
    let gzipped = headers(CONTENT_ENCODING, "gzip");
    let held = bodies.read(&gzipped, &mut Full::new(gzip(&text))).await.unwrap();
    assert_eq!(held.bytes, text);
    assert_eq!(bodies.budget.used(), text.len() as u64);
    drop(held);
    // In parts, with a length declared or not, past what a declaration is trusted for.
    for declared in [HeaderMap::new(), headers(CONTENT_LENGTH, &(40 << 20).to_string())] {
        let parts = (0..40).map(|at| data(vec![at; 1 << 20]));
        let held = bodies.read(&declared, &mut StreamBody::new(stream::iter(parts))).await.unwrap();
        assert_eq!((held.bytes.len(), bodies.budget.used()), (40 << 20, 40 << 20));
        assert!(held.bytes.chunks(1 << 20).zip(0..).all(|(part, at)| part.iter().all(|byte| *byte == at)));
    }
    assert_eq!(bodies.budget.used(), 0);
}

#[tokio::test]
async fn what_is_refused_holds_nothing() {
    let bodies = bodies(10 << 20, 1 << 20);
    let gzipped = headers(CONTENT_ENCODING, "gzip");
    let bomb = gzip(&vec![b' '; 20 << 20]);
    let refused = bodies.read(&gzipped, &mut Full::new(bomb)).await.unwrap_err();
    assert!(matches!(refused, BodyError::TooLong { inflated: true, .. }), "{refused}");
    let long = || Full::new(Bytes::from(vec![0; (1 << 20) + 1]));
    let refused = bodies.read(&HeaderMap::new(), &mut long()).await.unwrap_err();
    assert!(matches!(refused, BodyError::TooLong { inflated: false, .. }), "{refused}");
    let refused = bodies.read(&gzipped, &mut Full::new(Bytes::from_static(b"no gzip"))).await.unwrap_err();
    assert!(matches!(&refused, BodyError::Invalid { coding, .. } if coding == "gzip"), "{refused}");
    let brotli = headers(CONTENT_ENCODING, "BR");
    let refused = bodies.read(&brotli, &mut Full::new(Bytes::from_static(b"x"))).await.unwrap_err();
    assert!(matches!(&refused, BodyError::Coding(name) if name == "br"), "{refused}");
    let broken = stream::iter([data(vec![1; 10]), Err(std::io::Error::other("reset"))]);
    let refused = bodies.read(&HeaderMap::new(), &mut StreamBody::new(broken)).await.unwrap_err();
    assert!(matches!(refused, BodyError::Broken(_)), "{refused}");
    assert_eq!(bodies.budget.used(), 0);
}

#[tokio::test]
async fn the_sum_is_bounded_as_sent_and_as_inflated() {
    let bodies = bodies(1000 << 10, 900 << 10);
    let body = || Full::new(Bytes::from(vec![b'x'; 600 << 10]));
    let held = bodies.read(&HeaderMap::new(), &mut body()).await.unwrap();
    let refused = bodies.read(&HeaderMap::new(), &mut body()).await.unwrap_err();
    assert!(matches!(refused, BodyError::Exceeded(_)), "{refused}");
    let gzipped = headers(CONTENT_ENCODING, "gzip");
    let inflates = gzip(&vec![b'x'; 600 << 10]);
    let refused = bodies.read(&gzipped, &mut Full::new(inflates.clone())).await.unwrap_err();
    assert!(matches!(refused, BodyError::Exceeded(_)), "{refused}");
    drop(held);
    bodies.read(&gzipped, &mut Full::new(inflates)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_declared_length_is_charged_as_it_arrives() {
    let bodies = bodies(10 << 20, 10 << 20);
    let declared = headers(CONTENT_LENGTH, &(10 << 20).to_string());
    let slow = |bodies: ChargedBodies| {
        let declared = declared.clone();
        tokio::spawn(
            async move { bodies.read(&declared, &mut paced(10, 1 << 20, Duration::from_secs(50))).await },
        )
    };
    let all: Vec<_> = (0..8).map(|_| slow(bodies.clone())).collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let body = || Full::new(Bytes::from(vec![b'x'; 9 << 20]));
    bodies.read(&HeaderMap::new(), &mut body()).await.unwrap();
    // Once they hold more than half of the budget, they are too slow.
    for slow in all {
        assert!(matches!(slow.await.unwrap(), Err(BodyError::Slow)));
    }
    bodies.read(&HeaderMap::new(), &mut body()).await.unwrap();
    // Alone, one may take its time, but not fall silent.
    let mut alone = paced(4, 1 << 20, SILENCE - Duration::from_secs(1));
    assert_eq!(bodies.read(&HeaderMap::new(), &mut alone).await.unwrap().bytes.len(), 4 << 20);
    let silent = bodies.read(&HeaderMap::new(), &mut paced(2, 10, SILENCE + Duration::from_secs(1))).await;
    assert!(matches!(silent, Err(BodyError::Silent)));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_sent_for_its_own_sake_ends_also_where_there_is_room() {
    let bodies = bodies(100 << 20, 10 << 20);
    let began = Instant::now();
    let trickle = bodies.read(&HeaderMap::new(), &mut paced(10_000, 500, Duration::from_secs(1))).await;
    assert!(matches!(trickle, Err(BodyError::Slow)));
    assert!(began.elapsed() < SILENCE * 2);
    // Twice as much is a slow line.
    let slow = bodies.read(&HeaderMap::new(), &mut paced(600, 2 << 10, Duration::from_secs(1))).await;
    assert_eq!(slow.unwrap().bytes.len(), 600 * (2 << 10));
}

#[tokio::test(start_paused = true)]
async fn a_trickle_is_slow_and_a_steady_stream_is_not() {
    let bodies = bodies(10 << 20, 10 << 20);
    let _others = bodies.budget.reserve(6 << 20).unwrap();
    let second = Duration::from_secs(1);
    let trickle = bodies.read(&HeaderMap::new(), &mut paced(100, 1, second)).await;
    assert!(matches!(trickle, Err(BodyError::Slow)));
    let steady = bodies.read(&HeaderMap::new(), &mut paced(40, 100 << 10, second)).await;
    assert_eq!(steady.unwrap().bytes.len(), 40 * (100 << 10));
}

#[tokio::test(start_paused = true)]
async fn the_rest_of_a_refused_body_is_read_for_a_while() {
    let bodies = bodies(1 << 20, 1 << 20);
    let started = Instant::now();
    bodies.bodies.discard(paced(1000, 10, Duration::from_millis(100))).await;
    assert_eq!(started.elapsed(), DISCARD_TIMEOUT);
    // Twice the bound, and no more.
    let mut left = 100;
    let endless = stream::iter(std::iter::from_fn(|| {
        left -= 1;
        (left > 0).then(|| data(vec![0; 1 << 20]))
    }));
    bodies.bodies.discard(StreamBody::new(endless)).await;
    assert_eq!(left, 97);
}
