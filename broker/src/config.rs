//! How a broker is told what to be.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

pub use network::Network;
pub use properties::{Properties, Property, PropertyError, Scope};
use thalweg_model::NodeId;

use crate::machine::addresses::narrowest;

pub mod network;
pub mod properties;

/// One address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerConfig {
    /// Such as `PLAINTEXT`. Unique within a broker.
    pub name: String,
    /// Port 0: any free one.
    pub address: SocketAddr,
    /// What clients are told. `None`: the local address that their connection arrived on.
    pub advertised: Option<Advertised>,
    /// What clients of these networks are told instead; of several networks that a client is in the narrowest counts.
    pub advertised_to: Vec<(Network, Advertised)>,
}

/// An address as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advertised {
    pub host: String,
    pub port: u16,
}

impl fmt::Display for Advertised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Advertised { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl FromStr for Advertised {
    type Err = String;

    /// # Errors
    /// A text that is not host:port.
    fn from_str(text: &str) -> Result<Advertised, String> {
        let parsed = text.rsplit_once(':').and_then(|(host, port)| {
            let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
            let is_clear = !bare.contains(':') || bare.len() < host.len();
            (is_clear && !bare.is_empty()).then_some(())?;
            let port = port.parse().ok().filter(|port| *port > 0)?;
            Some(Advertised { host: bare.to_owned(), port })
        });
        parsed.ok_or_else(|| format!("'{text}' is not host:port, such as broker-1.example:9092 or [fd00::1]:9092"))
    }
}

impl ListenerConfig {
    /// What a client from `peer` is told that came in on `local`.
    pub fn told(&self, peer: IpAddr, local: SocketAddr) -> Advertised {
        let rules = self.advertised_to.iter().map(|(network, advertised)| (Some(*network), advertised));
        let given = narrowest(rules, &[peer]).or(self.advertised.as_ref());
        given.cloned().unwrap_or_else(|| Advertised { host: local.ip().to_canonical().to_string(), port: local.port() })
    }
}

/// Everything that [`crate::Broker::start`] needs to know.
#[derive(Clone, Debug)]
pub struct BrokerConfig {
    /// `None`: what the log directories say, else one that the coordinator gives out.
    pub broker_id: Option<NodeId>,
    pub rack: Option<String>,
    /// gRPC addresses, `host:port`; any of them, the leader is found by asking.
    pub coordinators: Vec<String>,
    /// Made if missing. At least one.
    pub log_dirs: Vec<PathBuf>,
    /// At least one. Brokers reach each other at the first.
    pub listeners: Vec<ListenerConfig>,
    pub properties: Properties,
}

impl BrokerConfig {
    /// Threads that append to logs.
    pub fn worker_count(&self) -> usize {
        match self.properties.size("num.io.threads") {
            0 => std::thread::available_parallelism().map_or(1, usize::from).min(WORKERS_MAX),
            count => count,
        }
    }
}

const WORKERS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_is_written() {
        let six = Advertised { host: "fd00::1".into(), port: 9092 };
        assert_eq!("[fd00::1]:9092".parse(), Ok(six.clone()));
        assert_eq!(six.to_string(), "[fd00::1]:9092");
        assert_eq!("a.example:1".parse(), Ok(Advertised { host: "a.example".into(), port: 1 }));
        for wrong in ["a.example", ":9092", "a.example:", "a.example:0", "a.example:99999", "fd00::1:9092", "[]:1", ""]
        {
            assert!(wrong.parse::<Advertised>().unwrap_err().contains("host:port"), "{wrong}");
        }
    }

    #[test]
    fn a_client_is_told_the_rule_for_its_network_else_the_given_address_else_where_it_came_in() {
        let local = "10.0.0.2:9092".parse().unwrap();
        let bare = ListenerConfig {
            name: "a".into(),
            address: "0.0.0.0:9092".parse().unwrap(),
            advertised: None,
            advertised_to: Vec::new(),
        };
        let ruled = ListenerConfig {
            advertised: Some("public.example:1".parse().unwrap()),
            advertised_to: vec![("10.0.0.0/8".parse().unwrap(), "near.example:2".parse().unwrap())],
            ..bare.clone()
        };
        let told = |listener: &ListenerConfig, peer: &str| listener.told(peer.parse().unwrap(), local).to_string();
        assert_eq!(told(&bare, "10.9.9.9"), "10.0.0.2:9092");
        assert_eq!(told(&ruled, "10.9.9.9"), "near.example:2");
        assert_eq!(told(&ruled, "203.0.113.1"), "public.example:1");
    }
}
