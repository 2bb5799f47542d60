//! Table of connections: a bound on all of them and one for each address.
//!
//! Where a bound is reached, the connection that is idle longest goes for the new one. Where none is idle, one
//! more of the same address is refused, and one beyond the bound on all waits.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::activity::Activity;

/// Connections beyond the bound that may still be on their way out.
const LEAVING: usize = 64;
/// Interval at which a waiting connection looks for an idle one.
const LOOK: Duration = Duration::from_millis(100);

/// The connections of some listeners; its clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Connections(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    max: usize,
    max_per_address: usize,
    epoch: Instant,
    table: Mutex<Table>,
    released: Notify,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    open: HashMap<u64, Entry>,
    /// Connections that stay, of each address.
    staying: HashMap<IpAddr, usize>,
    leaving: usize,
}

#[derive(Debug)]
struct Entry {
    address: IpAddr,
    activity: Arc<Activity>,
    leaves: bool,
}

/// A place for a connection, given back on drop.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    connections: Connections,
    id: u64,
    pub(crate) activity: Arc<Activity>,
}

/// Returns the identity of a client: its address, of IPv6 the network of 64 bits, which one client has for itself.
pub fn client(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
        address => address,
    }
}

impl Connections {
    /// Makes a table with bounds of at least 1.
    pub(crate) fn new(max: usize, max_per_address: usize) -> Self {
        Self(Arc::new(Inner {
            max: max.max(1),
            max_per_address: max_per_address.max(1),
            epoch: Instant::now(),
            table: Mutex::default(),
            released: Notify::new(),
        }))
    }

    /// Finds a place for a connection, if need be by closing an idle one, or waits for one. `None` where the
    /// address has as many as it may, all of them busy.
    pub(crate) async fn admit(&self, address: IpAddr) -> Option<ConnectionPermit> {
        let address = client(address);
        loop {
            if let Some(answer) = self.try_admit(address) {
                return answer;
            }
            // That one became idle is not told.
            let _ = tokio::time::timeout(LOOK, self.0.released.notified()).await;
        }
    }

    fn try_admit(&self, address: IpAddr) -> Option<Option<ConnectionPermit>> {
        let mut table = self.0.table.lock();
        if table.open.len() >= self.0.max.saturating_add(LEAVING) {
            return None;
        }
        let of_address = table.staying.get(&address).copied().unwrap_or_default();
        if of_address >= self.0.max_per_address && !table.evict(Some(address)) {
            return Some(None);
        }
        if table.open.len() - table.leaving >= self.0.max && !table.evict(None) {
            return None;
        }
        let (id, activity) = (table.next, Activity::new(self.0.epoch));
        table.next += 1;
        table.open.insert(id, Entry { address, activity: Arc::clone(&activity), leaves: false });
        *table.staying.entry(address).or_default() += 1;
        Some(Some(ConnectionPermit { connections: self.clone(), id, activity }))
    }

    /// Closes the connection that is idle longest: the process has no file left for another.
    pub(crate) fn make_room(&self) {
        self.0.table.lock().evict(None);
    }

    #[cfg(test)]
    fn open(&self) -> usize {
        self.0.table.lock().open.len()
    }
}

impl Table {
    /// Asks the connection to leave that is idle longest, of an address or of all; `false` where none is.
    fn evict(&mut self, address: Option<IpAddr>) -> bool {
        let idle = self.open.values_mut().filter(|entry| !entry.leaves);
        let idle = idle.filter(|entry| address.is_none_or(|address| entry.address == address));
        let longest = idle.filter_map(|entry| Some((entry.activity.idle_since()?, entry)));
        let Some((_, entry)) = longest.min_by_key(|(since, _)| *since) else { return false };
        entry.leaves = true;
        entry.activity.evict();
        let address = entry.address;
        self.leaving += 1;
        self.left(address);
        true
    }

    fn left(&mut self, address: IpAddr) {
        if let Some(count) = self.staying.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                self.staying.remove(&address);
            }
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut table = self.connections.0.table.lock();
        if let Some(entry) = table.open.remove(&self.id) {
            if entry.leaves {
                table.leaving -= 1;
            } else {
                table.left(entry.address);
            }
        }
        drop(table);
        self.connections.0.released.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    async fn is_evicted(place: &ConnectionPermit) -> bool {
        tokio::time::timeout(Duration::from_millis(1), place.activity.evicted()).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn the_connection_idle_longest_makes_room() {
        let connections = Connections::new(3, 3);
        let second = Duration::from_secs(1);
        let silent = connections.admit(address(1)).await.unwrap();
        tokio::time::advance(second).await;
        let other = connections.admit(address(2)).await.unwrap();
        tokio::time::advance(second).await;
        let busy = connections.admit(address(3)).await.unwrap();
        // Whoever had a request lately is not the longest idle.
        drop(silent.activity.begin());
        let request = busy.activity.begin();
        let new = connections.admit(address(4)).await.unwrap();
        assert!(is_evicted(&other).await && !is_evicted(&silent).await && !is_evicted(&busy).await);
        drop(other);
        let _request = new.activity.begin();
        let newer = connections.admit(address(4)).await.unwrap();
        assert!(is_evicted(&silent).await);
        let newer_request = newer.activity.begin();
        // None is idle: who comes waits until one goes or becomes idle.
        let waits = connections.admit(address(5));
        let mut waits = std::pin::pin!(waits);
        assert!(tokio::time::timeout(second * 9, waits.as_mut()).await.is_err());
        drop(request);
        let last = waits.await.unwrap();
        assert!(is_evicted(&busy).await);
        drop((silent, busy, new, newer, last, newer_request));
        assert_eq!(connections.open(), 0);
        let table = connections.0.table.lock();
        assert!(table.staying.is_empty() && table.leaving == 0);
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_has_its_bound() {
        let connections = Connections::new(100, 2);
        let first = connections.admit(address(1)).await.unwrap();
        let request = first.activity.begin();
        let second = connections.admit(address(1)).await.unwrap();
        // The idle one goes, and of those that are busy none does.
        let third = connections.admit(address(1)).await.unwrap();
        assert!(is_evicted(&second).await && !is_evicted(&first).await);
        let _other = third.activity.begin();
        assert!(connections.admit(address(1)).await.is_none());
        assert!(connections.admit(address(2)).await.is_some());
        drop(request);
        drop(first);
        assert!(connections.admit(address(1)).await.is_some());
        // A network of IPv6 is one client, and so is IPv4 in another form.
        let v6 = |last: u16| IpAddr::from([0x2001, 0xdb8, 0, 7, 1, 2, 3, last]);
        assert_eq!(client(v6(1)), client(v6(2)));
        assert_ne!(client(v6(1)), client(IpAddr::from([0x2001, 0xdb8, 0, 8, 1, 2, 3, 1])));
        assert_eq!(client("::ffff:10.0.0.1".parse().unwrap()), address(1));
    }

    #[tokio::test(start_paused = true)]
    async fn room_is_made_where_there_are_no_files() {
        let connections = Connections::new(100, 100);
        let first = connections.admit(address(1)).await.unwrap();
        tokio::time::advance(LOOK).await;
        let second = connections.admit(address(2)).await.unwrap();
        connections.make_room();
        assert!(is_evicted(&first).await && !is_evicted(&second).await);
    }

    #[test]
    fn bounds_fit_the_files_of_the_process() {
        let of = |files: u64| {
            let config = crate::Config::default().within(files);
            (config.max_connections, config.max_connections_per_address)
        };
        assert_eq!(of(1 << 20), (4096, 1024));
        assert_eq!(of(4096), (896, 224));
        assert_eq!(of(1024), (128, 32));
        assert_eq!(of(0), (64, 16));
    }

    #[tokio::test(start_paused = true)]
    async fn those_on_their_way_out_are_bounded() {
        let connections = Connections::new(1, 1);
        let mut leaving = Vec::new();
        for at in 0..=LEAVING {
            leaving.push(connections.admit(address(u8::try_from(at).unwrap())).await.unwrap());
        }
        let waits = connections.admit(address(200));
        let mut waits = std::pin::pin!(waits);
        assert!(tokio::time::timeout(LOOK * 3, waits.as_mut()).await.is_err());
        leaving.remove(0);
        assert!(waits.await.is_some());
    }
}
