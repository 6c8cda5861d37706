//! Where this broker can be reached, as it tells the coordinator: every broker answers for all of them.

use std::net::IpAddr;

use thalweg_proto::v1;
use tracing::warn;

use super::listener::BoundListener;
use crate::config::{Advertised, Network};
use crate::machine::addresses::Arrival;
use crate::machine::image::{BrokerImage, Endpoint};
use crate::services::Services;

/// An address of this machine and the network that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    pub address: IpAddr,
    pub network: Network,
}

/// Every address of this machine that others could use, in the kernel's order, those for itself only at the end.
///
/// Left out are IPv6 addresses of one link: they mean nothing without the name of an interface.
pub fn interfaces() -> Vec<Interface> {
    let found = if_addrs::get_if_addrs().unwrap_or_else(|error| {
        warn!(%error, "the machine's addresses cannot be listed");
        Vec::new()
    });
    let mut interfaces: Vec<Interface> = found
        .into_iter()
        .filter(|interface| !interface.is_link_local())
        .filter_map(|interface| {
            let prefix = match &interface.addr {
                if_addrs::IfAddr::V4(v4) => v4.prefixlen,
                if_addrs::IfAddr::V6(v6) => v6.prefixlen,
            };
            Some(Interface { address: interface.ip(), network: Network::of(interface.ip(), prefix)? })
        })
        .collect();
    // Stable: the order of interfaces stays.
    interfaces.sort_by_key(|interface| interface.address.is_loopback());
    interfaces
}

/// What is registered, the first listener's first: the rules, then the address that the operator gave or else what the
/// listener is bound to. One bound to every address stands for all addresses of its family in `interfaces`; loopback is
/// among them only if there is nothing else, since it is another machine for everybody else.
pub fn all(listeners: &[BoundListener], interfaces: &[Interface]) -> Vec<v1::Endpoint> {
    listeners.iter().flat_map(|listener| of_listener(listener, interfaces)).collect()
}

fn of_listener(listener: &BoundListener, interfaces: &[Interface]) -> Vec<v1::Endpoint> {
    let given = |advertised: &Advertised, clients: String| v1::Endpoint {
        listener: listener.config.name.clone(),
        host: advertised.host.clone(),
        port: u32::from(advertised.port),
        security_protocol: "PLAINTEXT".to_owned(),
        clients,
        network: String::new(),
    };
    let rules = listener.config.advertised_to.iter();
    let rules = rules.map(|(network, advertised)| given(advertised, network.to_string()));
    let mut endpoints: Vec<v1::Endpoint> = Vec::new();
    let local = listener.local;
    let at = |address: IpAddr| Advertised { host: address.to_canonical().to_string(), port: local.port() };
    if let Some(advertised) = &listener.config.advertised {
        endpoints.push(given(advertised, String::new()));
    } else if local.ip().is_unspecified() {
        let of_family = |interface: &&Interface| interface.address.is_ipv4() || local.is_ipv6();
        let reachable: Vec<&Interface> = interfaces.iter().filter(of_family).collect();
        let has_others = reachable.iter().any(|interface| !interface.address.is_loopback());
        let told = reachable.iter().filter(|interface| !(has_others && interface.address.is_loopback()));
        endpoints.extend(told.map(|interface| v1::Endpoint {
            network: interface.network.to_string(),
            ..given(&at(interface.address), String::new())
        }));
    } else {
        endpoints.push(given(&at(local.ip()), String::new()));
    }
    // Behind what is for all: whoever knows no rules takes the first.
    endpoints.extend(rules);
    endpoints
}

/// Where this broker reaches another one: at the other's first listener, in a network that both are in if there is one.
pub fn between(services: &Services, broker: &BrokerImage) -> Option<Endpoint> {
    let first = broker.endpoints.first()?;
    let own = &services.own_addresses;
    let arrival = Arrival { listener: &first.listener, from: own, to: own };
    Some(arrival.choose(broker).unwrap_or(first).clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ListenerConfig;

    fn interface(address: &str, network: &str) -> Interface {
        Interface { address: address.parse().unwrap(), network: network.parse().unwrap() }
    }

    fn registered(address: &str, advertised: Option<&str>, rule: Option<(&str, &str)>) -> Vec<String> {
        let rule = rule.map(|(network, to)| (network.parse().unwrap(), to.parse().unwrap()));
        let config = ListenerConfig {
            name: "a".into(),
            address: address.parse().unwrap(),
            advertised: advertised.map(|text| text.parse().unwrap()),
            advertised_to: rule.into_iter().collect(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _entered = runtime.enter();
        let bound = BoundListener::bind(config).unwrap();
        let port = bound.local.port();
        let interfaces = [
            interface("192.0.2.7", "192.0.2.0/24"),
            interface("10.0.0.7", "10.0.0.0/8"),
            interface("fd00::7", "fd00::/64"),
            interface("127.0.0.1", "127.0.0.0/8"),
        ];
        let said = |endpoint: v1::Endpoint| {
            let port = if endpoint.port == u32::from(port) { "port".to_owned() } else { endpoint.port.to_string() };
            format!("{} {port} {}{}", endpoint.host, endpoint.network, endpoint.clients)
        };
        all(&[bound], &interfaces).into_iter().map(said).collect()
    }

    #[test]
    fn a_wildcard_stands_for_every_address_of_its_family_but_loopback() {
        assert_eq!(registered("0.0.0.0:0", None, None), ["192.0.2.7 port 192.0.2.0/24", "10.0.0.7 port 10.0.0.0/8"]);
        assert_eq!(registered("[::]:0", None, None).len(), 3);
        assert_eq!(registered("127.0.0.1:0", None, None), ["127.0.0.1 port "]);
    }

    #[test]
    fn a_given_address_is_the_only_one_and_rules_follow_it() {
        let rule = Some(("10.0.0.0/8", "near.example:2"));
        let all = registered("0.0.0.0:0", Some("public.example:1"), rule);
        assert_eq!(all, ["public.example 1 ", "near.example 2 10.0.0.0/8"]);
    }
}
