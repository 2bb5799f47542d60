//! Addresses by which pipelines of this process send events to one another.
//!
//! The input `pipeline` claims an address, the output `pipeline` sends to it. A delivery carries an acknowledgement, so the sender
//! moves its own position only once the receiver has stored the events.

use std::collections::HashMap;
use std::sync::LazyLock;

use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::{Ack, Event};

/// Deliveries that wait for the input of an address.
const WAITING: usize = 4;

/// Senders to the inputs that run, by address.
static ADDRESSES: LazyLock<Mutex<HashMap<String, mpsc::Sender<Delivery>>>> = LazyLock::new(Mutex::default);

/// Events on their way to another pipeline.
#[derive(Debug)]
pub(crate) struct Delivery {
    /// The events.
    pub(crate) events: Vec<Event>,
    /// Acknowledgement once the receiver has stored them.
    pub(crate) ack: Ack,
}

/// The claim of an input on an address, given up on drop.
#[derive(Debug)]
pub(crate) struct AddressClaim {
    address: String,
    sender: mpsc::Sender<Delivery>,
    /// Deliveries that come.
    pub(crate) deliveries: mpsc::Receiver<Delivery>,
}

impl AddressClaim {
    /// Claims an address; `None` where another input has it.
    pub(crate) fn new(address: &str) -> Option<Self> {
        let mut addresses = ADDRESSES.lock();
        if addresses.get(address).is_some_and(|sender| !sender.is_closed()) {
            return None;
        }
        let (sender, deliveries) = mpsc::channel(WAITING);
        addresses.insert(address.to_owned(), sender.clone());
        Some(Self { address: address.to_owned(), sender, deliveries })
    }
}

impl Drop for AddressClaim {
    fn drop(&mut self) {
        let mut addresses = ADDRESSES.lock();
        if addresses.get(&self.address).is_some_and(|sender| sender.same_channel(&self.sender)) {
            addresses.remove(&self.address);
        }
    }
}

/// Returns the sender to the input of an address, if one runs.
pub(crate) fn find_sender(address: &str) -> Option<mpsc::Sender<Delivery>> {
    ADDRESSES.lock().get(address).cloned()
}
