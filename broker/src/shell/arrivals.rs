//! The ways that open connections came in, for whoever asks what their clients are told.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::api::ConnectionInfo;
use crate::config::ListenerConfig;

/// Counts open connections by listener, where from and where to. No larger than there are connections.
#[derive(Debug, Default)]
pub struct Arrivals(Mutex<BTreeMap<Way, Open>>);

/// A client's ports say nothing about its network.
type Way = (String, IpAddr, SocketAddr);

#[derive(Debug)]
struct Open {
    listener: Arc<ListenerConfig>,
    count: u64,
}

/// Counts until dropped.
pub struct Arrived {
    arrivals: Arc<Arrivals>,
    way: Way,
}

impl Arrivals {
    pub fn arrive(self: &Arc<Self>, connection: &ConnectionInfo) -> Arrived {
        let way = (connection.listener.name.clone(), connection.peer.ip().to_canonical(), connection.local);
        let mut ways = self.lock();
        let open =
            ways.entry(way.clone()).or_insert_with(|| Open { listener: Arc::clone(&connection.listener), count: 0 });
        open.count += 1;
        Arrived { arrivals: Arc::clone(self), way }
    }

    /// Most connections first.
    pub fn open(&self) -> Vec<(ConnectionInfo, u64)> {
        let ways = self.lock();
        let seen = ways.iter().map(|((_, from, to), open)| {
            let listener = Arc::clone(&open.listener);
            (ConnectionInfo { peer: SocketAddr::new(*from, 0), local: *to, listener }, open.count)
        });
        let mut seen: Vec<_> = seen.collect();
        seen.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        seen
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Way, Open>> {
        self.0.lock().expect("no code panics while it holds this lock")
    }
}

impl Drop for Arrived {
    fn drop(&mut self) {
        let mut ways = self.arrivals.lock();
        if let Some(open) = ways.get_mut(&self.way) {
            open.count -= 1;
            if open.count == 0 {
                ways.remove(&self.way);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_are_counted_while_connections_are_open_and_forgotten_with_the_last() {
        let arrivals = Arc::new(Arrivals::default());
        let listener = Arc::new(ListenerConfig {
            name: "a".into(),
            address: "0.0.0.0:1".parse().unwrap(),
            advertised: None,
            advertised_to: Vec::new(),
        });
        let came = |peer: &str| {
            let listener = Arc::clone(&listener);
            let info = ConnectionInfo { peer: peer.parse().unwrap(), local: "10.0.0.1:1".parse().unwrap(), listener };
            arrivals.arrive(&info)
        };
        let counts =
            || arrivals.open().into_iter().map(|(way, count)| (way.peer.ip().to_string(), count)).collect::<Vec<_>>();
        let one = came("10.0.0.9:5");
        let (two, three) = (came("10.0.0.8:1"), came("[::ffff:10.0.0.8]:2"));
        assert_eq!(counts(), [("10.0.0.8".to_owned(), 2), ("10.0.0.9".to_owned(), 1)]);
        drop((one, two));
        assert_eq!(counts(), [("10.0.0.8".to_owned(), 1)]);
        drop(three);
        assert_eq!(counts(), []);
    }
}
