//! Accepts connections within limits.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use super::budget::ByteBudget;
use super::connection::Connection;
use super::input::Input;
use crate::api::ConnectionInfo;
use crate::config::ListenerConfig;
use crate::services::Services;

/// An address that is bound but does not accept yet: clients that come early wait in the kernel's queue.
#[derive(Debug)]
pub struct BoundListener {
    pub config: Arc<ListenerConfig>,
    socket: TcpListener,
    pub local: SocketAddr,
}

/// How many connections there may be. Shared by all listeners of a broker.
#[derive(Debug)]
pub struct ConnectionLimits {
    total_max: usize,
    per_address_max: usize,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    total: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// Counts as one connection until dropped.
struct Admission {
    limits: Arc<ConnectionLimits>,
    address: IpAddr,
}

impl BoundListener {
    /// # Errors
    /// The address is in use or not ours.
    pub fn bind(config: ListenerConfig) -> io::Result<BoundListener> {
        let address = config.address;
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        if address.is_ipv6() && address.ip().is_unspecified() {
            // One socket for both families, as clients expect of a wildcard.
            socket.set_only_v6(false)?;
        }
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        let socket = TcpListener::from_std(socket.into())?;
        let local = socket.local_addr()?;
        Ok(BoundListener { config: Arc::new(config), socket, local })
    }

    /// Accepts until `stop`; each connection is a task of `tracker`.
    pub async fn run(
        self,
        services: Arc<Services>,
        limits: Arc<ConnectionLimits>,
        budget: ByteBudget,
        tracker: TaskTracker,
        stop: CancellationToken,
    ) {
        let mut backoff = BACKOFF_FIRST;
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                accepted = self.socket.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => {
                    backoff = BACKOFF_FIRST;
                    self.admit(stream, peer, &services, &limits, &budget, &tracker, &stop);
                }
                // The peer was gone before we came to it.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    // Most likely out of file descriptors: accepting again at once would only spin.
                    warn!(%error, listener = %self.config.name, "cannot accept connections, waiting");
                    tokio::select! {
                        () = stop.cancelled() => return,
                        () = tokio::time::sleep(backoff) => backoff = (backoff * 2).min(BACKOFF_MAX),
                    }
                }
            }
        }
    }

    fn admit(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        services: &Arc<Services>,
        limits: &Arc<ConnectionLimits>,
        budget: &ByteBudget,
        tracker: &TaskTracker,
        stop: &CancellationToken,
    ) {
        let metrics = Arc::clone(&services.metrics);
        let Some(admission) = limits.admit(peer.ip()) else {
            metrics.connections_refused.inc();
            debug!(%peer, "connection refused: too many are open");
            return;
        };
        let local = stream.local_addr().and_then(|local| stream.set_nodelay(true).map(|()| local));
        let local = match local {
            Ok(local) => local,
            // The peer is gone already.
            Err(_) => return,
        };
        metrics.connections_accepted.inc();
        let info = ConnectionInfo { peer, local, listener: Arc::clone(&self.config) };
        let arrived = services.arrivals.arrive(&info);
        let input = Input::new(services.config.properties.size("socket.request.max.bytes"), budget.clone());
        let connection = Connection::new(stream, Arc::clone(services), info, input);
        let stop = stop.clone();
        tracker.spawn(async move {
            metrics.connections.inc();
            connection.run(stop).await;
            metrics.connections.dec();
            drop((arrived, admission));
        });
    }
}

impl ConnectionLimits {
    pub fn new(total_max: usize, per_address_max: usize) -> Arc<ConnectionLimits> {
        Arc::new(ConnectionLimits { total_max, per_address_max, open: Mutex::default() })
    }

    /// `None` if there are too many, in all or from this address.
    fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Admission> {
        let address = address.to_canonical();
        let mut open = self.open.lock().expect("no code panics while it holds this lock");
        if open.total >= self.total_max {
            return None;
        }
        let of_address = open.by_address.entry(address).or_default();
        if *of_address >= self.per_address_max {
            return None;
        }
        *of_address += 1;
        open.total += 1;
        Some(Admission { limits: Arc::clone(self), address })
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let mut open = self.limits.open.lock().expect("no code panics while it holds this lock");
        open.total -= 1;
        if let Some(of_address) = open.by_address.get_mut(&self.address) {
            *of_address -= 1;
            if *of_address == 0 {
                open.by_address.remove(&self.address);
            }
        }
    }
}

/// How many files may be open for connections: logs and their indexes keep the rest. Asks the kernel for as many as it allows.
pub fn files_for_connections() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limits = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limits.maximum, maximum: limits.maximum };
    let files = if setrlimit(Resource::Nofile, raised).is_ok() { limits.maximum } else { limits.current };
    let files = files.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX));
    files - files / 4
}

const BACKLOG: i32 = 1_024;
const BACKOFF_FIRST: Duration = Duration::from_millis(10);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([127, 0, 0, last])
    }

    #[test]
    fn a_connection_counts_until_it_ends() {
        let limits = ConnectionLimits::new(3, 2);
        let first = limits.admit(address(1)).unwrap();
        let _second = limits.admit(address(1)).unwrap();
        assert!(limits.admit(address(1)).is_none(), "two of one address");
        let _other = limits.admit(address(2)).unwrap();
        assert!(limits.admit(address(3)).is_none(), "three in all");
        drop(first);
        assert!(limits.admit(address(1)).is_some());
        assert_eq!(limits.open.lock().unwrap().total, 2);
    }

    #[test]
    fn refusals_leave_nothing_behind() {
        let limits = ConnectionLimits::new(10, 0);
        assert!(limits.admit(address(1)).is_none());
        assert_eq!(limits.open.lock().unwrap().total, 0);
    }
}
