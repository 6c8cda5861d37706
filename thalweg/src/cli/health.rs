//! `thalweg health`: whether the node on this machine serves, for whoever starts and watches it.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use clap::Args;

use super::failure::Failure;
use super::output::print_line;

/// Exit code 0 while the node serves; else 1 and the reason.
#[derive(Debug, Args)]
pub struct Health {
    /// Where the node's HTTP listens; a wildcard stands for this machine
    #[arg(long, env = "THALWEG_HTTP", default_value = "127.0.0.1:9644")]
    http: SocketAddr,
    /// Only whether its process answers, also while it recovers or waits for others
    #[arg(long)]
    live: bool,
}

impl Health {
    pub fn run(self) -> Result<(), Failure> {
        let page = if self.live { "/health/live" } else { "/health/ready" };
        let address = reachable(self.http);
        let answer = ask(address, page).map_err(|error| {
            Failure::no_cluster(format!("no node answers at http://{address}: {error}; see --http, and the node's log"))
        })?;
        match split(&answer) {
            Some((200, body)) => print_line(body.trim()),
            Some((_, body)) => Err(Failure::failed(body.trim().to_owned())),
            None => Err(Failure::failed(format!("what answers at http://{address} is no thalweg node"))),
        }
    }
}

fn reachable(listen: SocketAddr) -> SocketAddr {
    match listen {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => SocketAddr::from((Ipv4Addr::LOCALHOST, v4.port())),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => SocketAddr::from((Ipv6Addr::LOCALHOST, v6.port())),
        other => other,
    }
}

fn ask(address: SocketAddr, page: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    write!(stream, "GET {page} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Status and body.
fn split(answer: &str) -> Option<(u16, &str)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    Some((status, body))
}

const TIMEOUT: Duration = Duration::from_secs(2);
const ANSWER_BYTES_MAX: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_is_asked_on_this_machine() {
        for (listen, asked) in [("0.0.0.0:1", "127.0.0.1:1"), ("[::]:1", "[::1]:1"), ("10.0.0.1:1", "10.0.0.1:1")] {
            assert_eq!(reachable(listen.parse().unwrap()).to_string(), asked);
        }
    }

    #[test]
    fn only_an_http_answer_has_a_status() {
        assert_eq!(split("HTTP/1.1 503 Service Unavailable\r\na: b\r\n\r\nstarting\n"), Some((503, "starting\n")));
        for other in ["", "SSH-2.0\r\n\r\n", "HTTP/1.1 \r\n\r\n", "HTTP/1.1 200 OK\r\n"] {
            assert_eq!(split(other), None, "{other:?}");
        }
    }
}
