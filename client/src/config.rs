//! Settings that producer, consumer and admin share.

use std::time::Duration;

/// How to reach a cluster.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// `host:port`, any of them is enough; a missing port is 9092.
    pub bootstrap: Vec<String>,
    /// What the brokers' logs and metrics call us.
    pub client_id: String,
    /// From sending a request to its answer; the broker's own waiting comes on top.
    pub request_timeout: Duration,
    pub connect_timeout: Duration,
    /// Metadata older than this is asked for again.
    pub metadata_max_age: Duration,
    /// Waits between tries to connect, and between tries of a request: first, and at most.
    pub backoff: Duration,
    pub backoff_max: Duration,
    /// Requests on one connection without an answer.
    pub in_flight_max: usize,
    /// A larger answer closes the connection.
    pub response_bytes_max: usize,
}

impl ClientConfig {
    /// Defaults for the comma-separated `addresses`.
    pub fn new(addresses: &str) -> ClientConfig {
        let bootstrap = addresses.split(',').map(str::trim).filter(|a| !a.is_empty()).map(with_port).collect();
        ClientConfig {
            bootstrap,
            client_id: "thalweg".to_owned(),
            request_timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(10),
            metadata_max_age: Duration::from_secs(300),
            backoff: Duration::from_millis(50),
            backoff_max: Duration::from_secs(1),
            in_flight_max: 5,
            response_bytes_max: 128 << 20,
        }
    }

    #[must_use]
    pub fn client_id(mut self, client_id: impl Into<String>) -> ClientConfig {
        self.client_id = client_id.into();
        self
    }

    #[must_use]
    pub fn request_timeout(mut self, timeout: Duration) -> ClientConfig {
        self.request_timeout = timeout;
        self
    }
}

/// The batch codec.
pub use thalweg_wire::compression::Compression;

fn with_port(address: &str) -> String {
    // `[::1]` and `::1` have colons but no port.
    let bare_v6 = address.parse::<std::net::Ipv6Addr>().is_ok();
    if bare_v6 {
        return format!("[{address}]:{PORT}");
    }
    match address.rsplit_once(':') {
        Some((_, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !port.is_empty() => address.to_owned(),
        _ => format!("{}:{PORT}", address.trim_end_matches(':')),
    }
}

const PORT: u16 = 9092;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_split_and_get_a_port() {
        let config = ClientConfig::new(" a:1, b ,,::1,[::1],[::1]:7");
        assert_eq!(config.bootstrap, ["a:1", "b:9092", "[::1]:9092", "[::1]:9092", "[::1]:7"]);
    }
}
