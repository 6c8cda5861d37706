//! Which of a broker's addresses a client is told.

use core::net::IpAddr;

use super::image::{BrokerImage, Endpoint};
use crate::config::Network;

/// How somebody came: all that is known of which networks they are in.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    pub listener: &'a str,
    /// Addresses of theirs.
    pub from: &'a [IpAddr],
    /// Addresses of ours that they reach.
    pub to: &'a [IpAddr],
}

impl Arrival<'_> {
    /// Where they reach another broker; `None` if it has no such listener.
    ///
    /// The narrowest rule for where they come from; else what the broker says everybody is to use; else its address in the
    /// network that they came in on, since that one they reach; else the first.
    pub fn choose<'b>(&self, broker: &'b BrokerImage) -> Option<&'b Endpoint> {
        let of_listener = || broker.endpoints.iter().filter(|endpoint| endpoint.listener == self.listener);
        let ruled = narrowest(of_listener().map(|endpoint| (endpoint.clients, endpoint)), self.from);
        let for_all = || of_listener().find(|endpoint| endpoint.clients.is_none() && endpoint.network.is_none());
        let nearby = || narrowest(of_listener().map(|endpoint| (endpoint.network, endpoint)), self.to);
        let first = || of_listener().find(|endpoint| endpoint.clients.is_none());
        ruled.or_else(for_all).or_else(nearby).or_else(first)
    }
}

/// Of the values whose network contains one of the addresses the one with the narrowest; the first of equals.
pub fn narrowest<T>(values: impl Iterator<Item = (Option<Network>, T)>, addresses: &[IpAddr]) -> Option<T> {
    let mut best: Option<(u8, T)> = None;
    for (network, value) in values {
        let Some(network) = network.filter(|network| addresses.iter().any(|address| network.contains(*address))) else {
            continue;
        };
        if best.as_ref().is_none_or(|(prefix, _)| *prefix < network.prefix()) {
            best = Some((network.prefix(), value));
        }
    }
    best.map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use thalweg_model::BrokerEpoch;

    use super::*;

    fn endpoint(listener: &str, host: &str, clients: Option<&str>, network: Option<&str>) -> Endpoint {
        let parse = |text: &str| text.parse().unwrap();
        Endpoint {
            listener: listener.into(),
            host: host.into(),
            port: 9092,
            clients: clients.map(parse),
            network: network.map(parse),
        }
    }

    fn told(endpoints: &[Endpoint], listener: &str, from: &str, to: &str) -> Option<String> {
        let broker = BrokerImage {
            epoch: BrokerEpoch(1),
            endpoints: endpoints.to_vec(),
            rack: None,
            fenced: false,
            shutting_down: false,
            cordoned: false,
            draining: false,
        };
        let arrival = Arrival { listener, from: &[from.parse().unwrap()], to: &[to.parse().unwrap()] };
        arrival.choose(&broker).map(|endpoint| endpoint.host.clone())
    }

    #[test]
    fn a_client_is_told_the_address_in_the_network_that_it_came_in_on() {
        let broker = [
            endpoint("internal", "10.0.0.2", None, Some("10.0.0.0/24")),
            endpoint("internal", "172.18.0.2", None, Some("172.18.0.0/16")),
            endpoint("internal", "172.18.9.2", None, Some("172.18.9.0/24")),
            endpoint("host", "localhost", None, None),
        ];
        let told = |listener, to| told(&broker, listener, "203.0.113.9", to);
        assert_eq!(told("internal", "172.18.0.3").as_deref(), Some("172.18.0.2"));
        assert_eq!(told("internal", "172.18.9.3").as_deref(), Some("172.18.9.2"), "the narrower network");
        assert_eq!(
            told("internal", "::ffff:10.0.0.3").as_deref(),
            Some("10.0.0.2"),
            "through a socket of both families"
        );
        assert_eq!(told("internal", "192.0.2.1").as_deref(), Some("10.0.0.2"), "in none of its networks: the first");
        assert_eq!(told("host", "172.18.0.3").as_deref(), Some("localhost"));
        assert_eq!(told("other", "172.18.0.3"), None);
    }

    #[test]
    fn a_rule_for_where_clients_come_from_goes_before_everything() {
        let broker = [
            endpoint("a", "public.example", None, None),
            endpoint("a", "near.example", Some("10.0.0.0/8"), None),
            endpoint("a", "nearest.example", Some("10.1.0.0/16"), None),
        ];
        let told = |from| told(&broker, "a", from, "10.0.0.1").unwrap();
        assert_eq!(told("10.1.2.3"), "nearest.example");
        assert_eq!(told("10.2.2.3"), "near.example");
        assert_eq!(told("203.0.113.9"), "public.example");
    }

    #[test]
    fn a_rule_for_others_is_never_what_everybody_is_told() {
        let only_ruled = [endpoint("a", "near.example", Some("10.0.0.0/8"), None)];
        assert_eq!(told(&only_ruled, "a", "203.0.113.9", "10.0.0.1"), None);
    }
}
