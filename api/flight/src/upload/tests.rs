use futures::{StreamExt, stream};
use http_body_util::{BodyExt, StreamBody};

use super::*;

/// An empty message.
const PREFIX: usize = 5;
const SECOND: Duration = Duration::from_secs(1);

type ChunkResult = Result<Frame<Bytes>, Status>;

fn part(bytes: usize) -> ChunkResult {
    Ok(Frame::data(Bytes::from(vec![0; bytes])))
}

#[tokio::test(start_paused = true)]
async fn what_arrives_is_reserved_until_it_is_taken() {
    let budget = Budget::new(3_000 * SHARES);
    let received = Shares::new(&budget).begin(None);
    let body = StreamBody::new(stream::iter([part(1_000), part(1_000), part(1_001), part(1)]));
    let mut upload = Upload::new(body, Length::Batches, received.clone());
    for _ in 0..2 {
        upload.frame().await.unwrap().unwrap();
    }
    assert_eq!(budget.used(), 2_000);
    let held = received.take();
    let begun = Instant::now();
    let error = upload.frame().await.unwrap().unwrap_err();
    assert_eq!(error.code(), tonic::Code::ResourceExhausted);
    assert!(begun.elapsed() >= ROOM_PATIENCE);
    drop(held);
    assert_eq!(budget.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn room_is_told_to_all_who_wait_for_it_at_once() {
    let budget = Budget::new(1_000);
    let shares = Shares::new(&budget);
    let begun = Instant::now();
    // Somebody beside them has nearly all of it: there is room of their own, and none of all.
    let others = budget.reserve(900).unwrap();
    let received: Vec<_> = (0..4).map(|_| shares.begin(None)).collect();
    let waiting = futures::future::join_all(received.iter().map(|received| received.reserve(125)));
    let (reserved, ()) = tokio::join!(waiting, async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        drop(others);
    });
    let held: Vec<UploadReservation> = reserved.into_iter().collect::<Result<_, _>>().unwrap();
    assert_eq!((begun.elapsed(), budget.used()), (Duration::from_millis(1), 500));
    // What can never fit is not waited for. Who is told of too little goes on waiting.
    drop(held);
    let others = budget.reserve(1_000).unwrap();
    let (reserved, others) = tokio::join!(received[0].reserve(125), async {
        let mut others = others;
        for left in [950, 900, 875] {
            tokio::time::sleep(Duration::from_millis(1)).await;
            others.shrink_to(left);
        }
        others
    });
    drop((reserved.unwrap(), others));
    assert_eq!(begun.elapsed(), Duration::from_millis(2) + ROOM_PAUSE);
    let begun = Instant::now();
    assert!(received[0].reserve(501).await.is_err());
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn room_is_waited_for() {
    let budget = Budget::new(1_000 * SHARES);
    let received = Shares::new(&budget).begin(None);
    let body = StreamBody::new(stream::iter([part(1_000), part(1_000)]));
    let mut upload = Upload::new(body, Length::Batches, received.clone());
    upload.frame().await.unwrap().unwrap();
    let held = received.take();
    let (next, ()) = tokio::join!(upload.frame(), async {
        tokio::time::sleep(ROOM_PATIENCE / 2).await;
        drop(held);
    });
    assert_eq!(next.unwrap().unwrap().data_ref().unwrap().len(), 1_000);
}

#[test]
fn one_user_leaves_room_for_others() {
    use millrace_catalog::access::Principal;
    use millrace_catalog::access::{ActionSet, Caller, Privileges};
    let user = |name: &str| {
        let nothing = Arc::new(Privileges::new(ActionSet::NONE, Vec::new()));
        Some(User::new(&Principal::new(Caller::User(name.into()), Vec::new(), nothing)))
    };
    let budget = Budget::new(100 * SHARES);
    let shares = Shares::new(&budget);
    let (first, second) = (shares.begin(user("ann")), shares.begin(user("ann")));
    let held = [first.try_reserve(60).unwrap(), second.try_reserve(40).unwrap()];
    assert!(first.try_reserve(1).is_err());
    drop(shares.begin(user("bob")).try_reserve(100).unwrap());
    assert_eq!(budget.used(), 100);
    drop(held);
    drop((first, second));
    drop(shares.begin(user("cid")));
    assert_eq!(shares.users.lock().len(), 1);
    assert_eq!(budget.used(), 0);
}

/// A body of so many parts, each a pause after the other.
fn paced(parts: u32, bytes: usize, pause: Duration) -> impl Body<Data = Bytes, Error = Status> + Unpin {
    StreamBody::new(Box::pin(stream::iter(0..parts).then(move |_| async move {
        tokio::time::sleep(pause).await;
        part(bytes)
    })))
}

#[tokio::test(start_paused = true)]
async fn silence_ends_batches_and_slowness_one_message() {
    let budget = Budget::new(u64::MAX);
    let begin = || Shares::new(&budget).begin(None);
    let slow = |bytes: usize| paced(5, bytes, PATIENCE * 2 / 3);
    let enough = PREFIX * (20 << 10);
    let upload = Upload::new(slow(enough), Length::Batches, begin());
    assert_eq!(upload.collect().await.unwrap().to_bytes().len(), 5 * enough);
    for length in [Length::Message, Length::Batches] {
        // A byte now and then never makes a message.
        let upload = Upload::new(slow(1), length, begin());
        assert_eq!(upload.collect().await.unwrap_err().code(), tonic::Code::DeadlineExceeded);
    }
    let silent = StreamBody::new(Box::pin(stream::iter([part(PREFIX)]).chain(stream::pending())));
    let upload = Upload::new(silent, Length::Batches, begin());
    assert_eq!(upload.collect().await.unwrap_err().code(), tonic::Code::DeadlineExceeded);
    for (length, most) in [(Length::Message, MAX_MESSAGE), (Length::Open, MAX_OPEN)] {
        let most = usize::try_from(most).unwrap();
        let upload = |parts| Upload::new(StreamBody::new(stream::iter(parts)), length, begin());
        assert!(upload(vec![part(most)]).collect().await.is_ok());
        let error = upload(vec![part(most), part(1)]).collect().await.unwrap_err();
        assert_eq!(error.code(), tonic::Code::ResourceExhausted);
    }
    assert_eq!(budget.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn streams_that_keep_their_room_for_nearly_nothing_end() {
    let budget = Budget::new(100 << 20);
    let shares = Shares::new(&budget);
    let sends = |messages: usize| {
        let body = paced(200, messages * PREFIX, SECOND);
        Upload::new(body, Length::Batches, shares.begin(None)).collect()
    };
    let begun = Instant::now();
    assert_eq!(sends(100).await.unwrap_err().code(), tonic::Code::DeadlineExceeded);
    assert!(begun.elapsed() < PATIENCE * 2);
    assert_eq!(sends(400).await.unwrap().to_bytes().len(), 200 * 400 * PREFIX);
    // Where others want the room, more is expected.
    let others = budget.reserve(60 << 20).unwrap();
    let begun = Instant::now();
    assert_eq!(sends(400).await.unwrap_err().code(), tonic::Code::DeadlineExceeded);
    assert!(begun.elapsed() < PATIENCE / 2);
    assert_eq!(sends(20_000).await.unwrap().to_bytes().len(), 200 * 20_000 * PREFIX);
    drop(others);
    assert_eq!(budget.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn time_for_which_nobody_asks_does_not_count() {
    let budget = Budget::new(u64::MAX);
    let mut upload =
        Upload::new(paced(50, PREFIX, SECOND), Length::Batches, Shares::new(&budget).begin(None));
    for _ in 0..50 {
        upload.frame().await.unwrap().unwrap();
        tokio::time::sleep(PATIENCE).await;
    }
    assert!(upload.frame().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_message_that_has_begun_is_not_waited_for_for_ever() {
    let budget = Budget::new(u64::MAX);
    let length = 1_u32 << 20;
    let mut begins = vec![0_u8];
    begins.extend(length.to_be_bytes());
    begins.extend([0_u8; 1 << 10].repeat(1 << 9));
    let begins: ChunkResult = Ok(Frame::data(Bytes::from(begins)));
    let body = StreamBody::new(Box::pin(stream::iter([begins]).chain(stream::pending())));
    let upload = Upload::new(body, Length::Batches, Shares::new(&budget).begin(None));
    let begun = Instant::now();
    assert_eq!(upload.collect().await.unwrap_err().code(), tonic::Code::DeadlineExceeded);
    // Half a minute, and four seconds for its length.
    assert_eq!(begun.elapsed(), SECOND * 34);
}
