//! A coordinator's number and address, as people write them.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// A coordinator as configuration names it: `id@host:port`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CoordinatorPeer {
    /// From 1.
    pub id: u64,
    /// host:port of its gRPC service.
    pub address: String,
}

impl fmt::Display for CoordinatorPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.id, self.address)
    }
}

impl FromStr for CoordinatorPeer {
    type Err = String;

    fn from_str(text: &str) -> Result<CoordinatorPeer, String> {
        let parsed = text.split_once('@').and_then(|(id, address)| {
            let (host, port) = address.rsplit_once(':')?;
            let (id, port) = (id.parse().ok()?, port.parse::<u16>().ok()?);
            (id > 0 && port > 0 && !host.is_empty()).then(|| CoordinatorPeer { id, address: address.to_owned() })
        });
        parsed.ok_or_else(|| format!("'{text}' is not id@host:port, such as 1@coordinator-1.example:9093"))
    }
}

/// As nodes compare theirs.
pub fn peer_list(peers: &[CoordinatorPeer]) -> Vec<String> {
    let peers: BTreeSet<&CoordinatorPeer> = peers.iter().collect();
    peers.into_iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_written_with_its_id() {
        assert_eq!("7@a.example:9093".parse(), Ok(CoordinatorPeer { id: 7, address: "a.example:9093".into() }));
        for wrong in ["", "a:1", "0@a:1", "x@a:1", "1@a", "1@:1", "1@a:0", "1@a:99999"] {
            assert!(wrong.parse::<CoordinatorPeer>().unwrap_err().contains("id@host:port"), "{wrong}");
        }
    }
}
