//! One task owns a state: changes of it, completions of work and due work are handled one at a time.
//!
//! - [`EventHandler`]: the state, with its messages
//! - [`EventSender`]: hands messages over, from any task
//! - [`EventLoop`]: the running task; [`EventLoop::drain`] ends it
//!
//! Long work does not run in the loop: the handler spawns it, and the work sends a message when it has ended. So no lock guards the
//! state, and no work waits for other work. The mailbox is bounded: a sender waits at the bound, as a handler that falls behind shall
//! slow its senders down. A handler never waits for room in its own mailbox, as nobody would make room.
//!
//! Time is the engine's monotonic clock, so a test with paused time decides when due work runs.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{sleep_until, timeout_at};

use crate::clock::Instant;

/// A state that one task owns.
pub trait EventHandler: Sized + Send + 'static {
    /// Messages to the state.
    type Message: Send + 'static;

    /// Handles one message. No other message is handled, and no due work runs, until it returns.
    fn handle(&mut self, message: Self::Message) -> impl Future<Output = ()> + Send;

    /// Does the work that is due; returns when it is to be called again, if nothing else happens. It is called at the start, at that
    /// instant, and after messages and wake-ups.
    fn run_due(&mut self) -> impl Future<Output = Option<Instant>> + Send;

    /// Notes that somebody called [`EventSender::wake`] since the last time.
    fn wake(&mut self) {}

    /// Checks whether the loop is to end without [`EventLoop::drain`], as when the engine stops.
    fn is_stopping(&self) -> bool {
        false
    }

    /// Ends: receives the messages of work that is in flight, and stores what has to be stored.
    fn drain(self, mailbox: &mut Mailbox<Self::Message>) -> impl Future<Output = ()> + Send;
}

/// Hands messages to an [`EventLoop`]. Cheap to clone.
pub struct EventSender<M> {
    messages: mpsc::Sender<M>,
    wake: Arc<Notify>,
}

impl<M> Clone for EventSender<M> {
    fn clone(&self) -> Self {
        Self { messages: self.messages.clone(), wake: Arc::clone(&self.wake) }
    }
}

impl<M> fmt::Debug for EventSender<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventSender").field("room", &self.messages.capacity()).finish_non_exhaustive()
    }
}

impl<M> EventSender<M> {
    /// Sends a message. Waits while the mailbox is full.
    ///
    /// # Errors
    /// The message, where the loop has ended.
    pub async fn send(&self, message: M) -> Result<(), M> {
        self.messages.send(message).await.map_err(|refused| refused.0)
    }

    /// Has the loop run what is due soon. It never waits, and several wake-ups that the loop did not see yet count as one.
    pub fn wake(&self) {
        self.wake.notify_one();
    }
}

/// The messages that an [`EventHandler`] did not handle yet.
#[derive(Debug)]
pub struct Mailbox<M> {
    messages: mpsc::Receiver<M>,
    wake: Arc<Notify>,
}

impl<M> Mailbox<M> {
    /// Makes a mailbox with room for so many messages, and its sender.
    pub fn with_capacity(capacity: usize) -> (EventSender<M>, Self) {
        let (sender, receiver) = mpsc::channel(capacity);
        let wake = Arc::new(Notify::new());
        (EventSender { messages: sender, wake: Arc::clone(&wake) }, Self { messages: receiver, wake })
    }

    /// Receives the next message. `None`: there is no sender any more.
    pub async fn receive(&mut self) -> Option<M> {
        self.messages.recv().await
    }
}

/// The task of an [`EventHandler`]. Dropped, it aborts the task, as a crash would.
#[derive(Debug)]
pub struct EventLoop {
    stopping: watch::Sender<bool>,
    /// `None` once somebody waits for the end.
    task: Option<JoinHandle<()>>,
}

impl EventLoop {
    /// Starts the task of a handler.
    pub fn spawn<H: EventHandler>(handler: H, mailbox: Mailbox<H::Message>) -> Self {
        let (stopping, stopped) = watch::channel(false);
        Self { stopping, task: Some(tokio::spawn(run(handler, mailbox, stopped))) }
    }

    /// Ends the task behind the message that it handles, and waits until the handler has drained its mailbox. The task goes on to its
    /// end if nobody polls this any more.
    ///
    /// # Errors
    /// The handler has panicked.
    pub async fn drain(mut self) -> Result<(), JoinError> {
        self.stopping.send_replace(true);
        match self.task.take() {
            Some(task) => task.await,
            None => Ok(()),
        }
    }

    /// Ends the task as [`EventLoop::drain`] does, and aborts it where it has not ended at the deadline. Returns whether it has.
    ///
    /// # Errors
    /// The handler has panicked.
    pub async fn drain_until(mut self, deadline: Instant) -> Result<bool, JoinError> {
        self.stopping.send_replace(true);
        let Some(mut task) = self.task.take() else { return Ok(true) };
        match timeout_at(deadline, &mut task).await {
            Ok(ended) => ended.map(|()| true),
            Err(_) => {
                task.abort();
                match task.await {
                    Err(error) if error.is_cancelled() => Ok(false),
                    ended => ended.map(|()| true),
                }
            }
        }
    }
}

impl Drop for EventLoop {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

async fn run<H: EventHandler>(
    mut handler: H,
    mut mailbox: Mailbox<H::Message>,
    mut stopped: watch::Receiver<bool>,
) {
    let wake = Arc::clone(&mailbox.wake);
    while !*stopped.borrow_and_update() && !handler.is_stopping() {
        let next = handler.run_due().await;
        tokio::select! {
            changed = stopped.changed() => {
                if changed.is_err() {
                    break;
                }
            }
            Some(message) = mailbox.messages.recv() => handler.handle(message).await,
            () = wake.notified() => handler.wake(),
            () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
        }
        // Those that are there already are handled before due work is looked for again; later ones do not hold it up.
        for _ in 0..mailbox.messages.len() {
            if *stopped.borrow() {
                break;
            }
            let Ok(message) = mailbox.messages.try_recv() else { break };
            handler.handle(message).await;
        }
    }
    handler.drain(&mut mailbox).await;
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use parking_lot::Mutex;

    use super::*;

    const EVERY: Duration = Duration::from_secs(60);

    /// Notes what happens.
    struct Recorder {
        log: Arc<Mutex<Vec<String>>>,
        next: Instant,
        in_flight: usize,
        sender: EventSender<Message>,
    }

    enum Message {
        /// Starts work that ends after a time.
        Start(Duration),
        Ended(Duration),
        /// Keeps the loop busy.
        Slow(Duration),
    }

    impl EventHandler for Recorder {
        type Message = Message;

        async fn handle(&mut self, message: Message) {
            match message {
                Message::Start(time) => {
                    self.in_flight += 1;
                    let sender = self.sender.clone();
                    tokio::spawn(async move {
                        tokio::time::sleep(time).await;
                        let _ = sender.send(Message::Ended(time)).await;
                    });
                }
                Message::Ended(time) => {
                    self.in_flight -= 1;
                    self.log.lock().push(format!("ended {}", time.as_secs()));
                }
                Message::Slow(time) => {
                    tokio::time::sleep(time).await;
                    self.log.lock().push(format!("slow {}", time.as_secs()));
                }
            }
        }

        async fn run_due(&mut self) -> Option<Instant> {
            if Instant::now() >= self.next {
                self.log.lock().push("due".to_owned());
                self.next += EVERY;
            }
            Some(self.next)
        }

        fn wake(&mut self) {
            self.log.lock().push("woken".to_owned());
        }

        async fn drain(mut self, mailbox: &mut Mailbox<Message>) {
            while self.in_flight > 0 {
                match mailbox.receive().await {
                    Some(message) => self.handle(message).await,
                    None => break,
                }
            }
            self.log.lock().push("drained".to_owned());
        }
    }

    fn start(capacity: usize) -> (EventLoop, EventSender<Message>, Arc<Mutex<Vec<String>>>) {
        let (sender, mailbox) = Mailbox::with_capacity(capacity);
        let log = Arc::<Mutex<Vec<String>>>::default();
        let recorder = Recorder {
            log: Arc::clone(&log),
            next: Instant::now() + EVERY,
            in_flight: 0,
            sender: sender.clone(),
        };
        (EventLoop::spawn(recorder, mailbox), sender, log)
    }

    async fn send(sender: &EventSender<Message>, message: Message) -> bool {
        sender.send(message).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn messages_completions_and_due_work_are_handled_one_at_a_time() {
        let (running, sender, log) = start(8);
        assert!(send(&sender, Message::Start(Duration::from_secs(70))).await);
        assert!(send(&sender, Message::Slow(Duration::from_secs(65))).await);
        tokio::time::sleep(Duration::from_secs(71)).await;
        // What was due at 60 s waited for the slow message; what ended at 70 s did not.
        assert_eq!(*log.lock(), ["slow 65", "due", "ended 70"]);
        running.drain().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_waits_for_work_in_flight_and_a_drop_does_not() {
        let (running, sender, log) = start(8);
        assert!(send(&sender, Message::Start(Duration::from_secs(10))).await);
        tokio::time::sleep(Duration::from_secs(1)).await;
        running.drain().await.unwrap();
        assert_eq!(*log.lock(), ["ended 10", "drained"]);
        assert!(!send(&sender, Message::Slow(Duration::ZERO)).await, "nobody is there any more");

        let (running, sender, log) = start(8);
        assert!(send(&sender, Message::Start(Duration::from_secs(10))).await);
        drop(running);
        tokio::time::sleep(EVERY * 2).await;
        assert!(log.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_waits_for_one_message_and_not_for_the_mailbox() {
        let (running, sender, log) = start(8);
        for _ in 0..3 {
            assert!(send(&sender, Message::Slow(Duration::from_secs(5))).await);
        }
        // The second one is handled, and the third one is in the mailbox.
        tokio::time::sleep(Duration::from_secs(6)).await;
        running.drain().await.unwrap();
        assert_eq!(*log.lock(), ["slow 5", "slow 5", "drained"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_that_takes_too_long_is_aborted() {
        for (seconds, ends) in [(5, true), (50, false)] {
            let (running, sender, log) = start(8);
            assert!(send(&sender, Message::Slow(Duration::from_secs(seconds))).await);
            tokio::time::sleep(Duration::from_secs(1)).await;
            let deadline = Instant::now() + Duration::from_secs(10);
            assert_eq!(running.drain_until(deadline).await.unwrap(), ends);
            assert!(Instant::now() <= deadline);
            tokio::time::sleep(EVERY).await;
            assert_eq!(log.lock().contains(&"drained".to_owned()), ends);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn senders_wait_at_the_bound_and_wake_ups_never_do() {
        let (running, sender, log) = start(1);
        let began = Instant::now();
        for _ in 0..3 {
            assert!(send(&sender, Message::Slow(Duration::from_secs(5))).await);
        }
        // One is handled, one is in the mailbox: the third waited for the first.
        assert_eq!(began.elapsed().as_secs(), 5);
        for _ in 0..1_000 {
            sender.wake();
        }
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(log.lock().iter().filter(|what| *what == "woken").count(), 1);
        running.drain().await.unwrap();
    }
}
