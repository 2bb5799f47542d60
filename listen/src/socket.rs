//! Sockets that outlive the listener that bound them by a moment.
//!
//! Where a listener is replaced, the next one takes over its socket, and connections that arrive in between wait
//! in the system's queue.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::TcpListener;

/// Time for which a socket waits for the next listener: longer than other inputs of a pipeline have to stop at a reload.
const PARKED: Duration = Duration::from_secs(20);

/// Sockets that wait, by the host and port asked for; its clones are the same. There are at most as many as
/// listeners have ended within twenty seconds.
#[derive(Debug)]
pub struct ReservedSockets<S = TcpListener>(Arc<Mutex<State<S>>>);

#[derive(Debug)]
struct State<S> {
    next: u64,
    sockets: HashMap<(String, u16), (u64, S)>,
}

impl<S> Clone for ReservedSockets<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S> Default for ReservedSockets<S> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(State { next: 0, sockets: HashMap::new() })))
    }
}

impl ReservedSockets {
    /// Takes the socket that waits for this address, or binds it.
    ///
    /// # Errors
    /// An address in use or not this machine's. The text names it.
    pub async fn bind(&self, host: &str, port: u16) -> io::Result<TcpListener> {
        let bound = self.take_or_bind(host, port, || TcpListener::bind((host, port))).await;
        bound.map_err(|error| {
            io::Error::new(error.kind(), format!("cannot listen on [{host}:{port}]: {error}"))
        })
    }
}

impl<S: Send + 'static> ReservedSockets<S> {
    /// Takes the socket that waits for this address, or binds one. Those that wait for the port under another host give way.
    ///
    /// # Errors
    /// As of the function that binds.
    pub async fn take_or_bind<F: Future<Output = io::Result<S>>>(
        &self,
        host: &str,
        port: u16,
        bind: impl Fn() -> F,
    ) -> io::Result<S> {
        let parked = self.0.lock().sockets.remove(&(host.to_owned(), port));
        if let Some((_, socket)) = parked {
            return Ok(socket);
        }
        match bind().await {
            // The listener before had another host.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && self.close_port(port) => bind().await,
            bound => bound,
        }
    }

    /// Closes the sockets that wait for this port, whatever their host; returns whether there were any.
    pub fn close_port(&self, port: u16) -> bool {
        let mut state = self.0.lock();
        let before = state.sockets.len();
        state.sockets.retain(|(_, parked), _| *parked != port);
        state.sockets.len() < before
    }

    /// Lets a socket wait for the next listener, for twenty seconds. One whose port the system chose is closed: the next listener
    /// asks for a port of its own.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn park(&self, host: &str, port: u16, socket: S) {
        if port == 0 {
            return;
        }
        let key = (host.to_owned(), port);
        let id = {
            let mut state = self.0.lock();
            state.next += 1;
            let id = state.next;
            state.sockets.insert(key.clone(), (id, socket));
            id
        };
        let this = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(PARKED).await;
            let mut state = this.0.lock();
            // Perhaps it was taken, and another one waits by now.
            if state.sockets.get(&key).is_some_and(|(parked, _)| *parked == id) {
                state.sockets.remove(&key);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_waits_its_own_time() {
        let parked = ReservedSockets::default();
        let socket = parked.bind("127.0.0.1", 0).await.unwrap();
        let port = socket.local_addr().unwrap().port();
        tokio::time::pause();
        parked.park("127.0.0.1", port, socket);
        tokio::time::sleep(PARKED / 2).await;
        let socket = parked.bind("127.0.0.1", port).await.unwrap();
        parked.park("127.0.0.1", port, socket);
        tokio::time::sleep(PARKED / 2 + Duration::from_secs(1)).await;
        // The first time is over, that of the second is not.
        assert_eq!(parked.0.lock().sockets.len(), 1);
        let error = TcpListener::bind(("127.0.0.1", port)).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        tokio::time::sleep(PARKED / 2).await;
        assert!(parked.0.lock().sockets.is_empty());
        let _free = parked.bind("127.0.0.1", port).await.unwrap();
        let error = parked.bind("127.0.0.1", port).await.unwrap_err();
        assert!(error.to_string().contains(&format!("[127.0.0.1:{port}]")), "{error}");
    }

    #[tokio::test]
    async fn a_socket_gives_way_to_the_same_port_of_another_host() {
        let parked = ReservedSockets::default();
        let socket = parked.bind("0.0.0.0", 0).await.unwrap();
        let port = socket.local_addr().unwrap().port();
        parked.park("0.0.0.0", port, socket);
        let socket = parked.bind("127.0.0.1", port).await.unwrap();
        assert_eq!(socket.local_addr().unwrap().port(), port);
    }
}
