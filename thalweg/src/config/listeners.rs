//! Listeners as configuration words them: `internal://0.0.0.0:9092`, `host://localhost:19092`,
//! `internal@10.0.0.0/8://broker-1.example:9092`.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::str::FromStr;

use anyhow::{Result, bail};
use serde::{Deserialize, Deserializer};
use thalweg_broker::config::Network;
use thalweg_broker::{Advertised, ListenerConfig};

/// Where to listen: `[NAME://]ADDRESS:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    pub name: Option<String>,
    pub address: SocketAddr,
}

/// What clients are told: `[NAME[@NETWORK]://]HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advertise {
    /// `None`: the first listener.
    pub name: Option<String>,
    /// Only clients from there.
    pub network: Option<Network>,
    pub address: Advertised,
}

impl From<SocketAddr> for Listen {
    fn from(address: SocketAddr) -> Listen {
        Listen { name: None, address }
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Listen, String> {
        let (name, address) = match text.split_once("://") {
            Some((name, address)) => (Some(listener_name(name)?), address),
            None => (None, text),
        };
        let address = address.parse().map_err(|_| {
            format!("'{text}' is not where to listen: an address of this machine and a port, such as 0.0.0.0:9092 or internal://0.0.0.0:9092")
        })?;
        Ok(Listen { name, address })
    }
}

impl FromStr for Advertise {
    type Err = String;

    fn from_str(text: &str) -> Result<Advertise, String> {
        let (head, address) = match text.split_once("://") {
            Some((head, address)) => (Some(head), address),
            None => (None, text),
        };
        let (name, network) = match head.map(|head| head.split_once('@').map_or((head, None), |(a, b)| (a, Some(b)))) {
            Some((name, network)) => (Some(listener_name(name)?), network.map(str::parse).transpose()?),
            None => (None, None),
        };
        let address: Advertised = address.parse()?;
        if address.host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_unspecified()) {
            return Err(format!(
                "clients cannot connect to {}: it is every address of a machine and none that they could reach; leave it \
                 out, and they are told the address that they came in on",
                address.host
            ));
        }
        Ok(Advertise { name, network, address })
    }
}

/// The listeners of a broker, the one where brokers meet first.
///
/// # Errors
/// What does not fit together; the file, a flag or a variable is at fault.
pub fn listeners(
    listen: &[Listen],
    advertised: &[Advertise],
    inter_broker: Option<&str>,
) -> Result<Vec<ListenerConfig>> {
    let mut listeners: Vec<ListenerConfig> = Vec::new();
    for (i, one) in listen.iter().enumerate() {
        let unnamed = || if i == 0 { "PLAINTEXT".to_owned() } else { format!("PLAINTEXT{i}") };
        let name = one.name.clone().unwrap_or_else(unnamed);
        if listeners.iter().any(|other| other.name == name) {
            bail!("broker.listen names the listener {name} twice; each needs a name of its own");
        }
        if one.address.port() > 0 && listeners.iter().any(|other| other.address == one.address) {
            bail!("two listeners would share {}; give each a port of its own", one.address);
        }
        listeners.push(ListenerConfig { name, address: one.address, advertised: None, advertised_to: Vec::new() });
    }
    let names: Vec<String> = listeners.iter().map(|listener| listener.name.clone()).collect();
    let position = |key: &str, name: &str| match names.iter().position(|known| known == name) {
        Some(position) => Ok(position),
        None => bail!("{key} names the listener {name}; broker.listen has {}", names.join(", ")),
    };
    if names.is_empty() {
        bail!("broker.listen is empty; clients need one listener at least");
    }
    for one in advertised {
        let at = one.name.as_deref().map_or(Ok(0), |name| position("broker.advertised", name))?;
        let listener = &mut listeners[at];
        let (name, address) = (&names[at], one.address.clone());
        match one.network {
            None if listener.advertised.is_some() => {
                bail!(
                    "broker.advertised has two addresses for all clients of listener {name}; one is all it can tell, others \
                     are for networks: {name}@10.0.0.0/8://{address}"
                );
            }
            None => listener.advertised = Some(address),
            Some(network) => {
                let networks: BTreeSet<Network> = listener.advertised_to.iter().map(|(network, _)| *network).collect();
                if networks.contains(&network) {
                    bail!("broker.advertised has two addresses for {network} of listener {name}; keep one");
                }
                listener.advertised_to.push((network, address));
            }
        }
    }
    if let Some(name) = inter_broker {
        let at = position("broker.inter_broker_listener", name)?;
        let meeting = listeners.remove(at);
        listeners.insert(0, meeting);
    }
    Ok(listeners)
}

fn listener_name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if text.is_empty() || !text.chars().all(is_plain) {
        return Err(format!(
            "'{text}' is no name of a listener; take letters, digits, '_', '-' and '.', such as internal"
        ));
    }
    Ok(text.to_owned())
}

/// One word, or a list of words.
pub fn words<'de, D: Deserializer<'de>, T: FromStr<Err = String>>(from: D) -> Result<Vec<T>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Words {
        One(String),
        Many(Vec<String>),
    }
    let words = match Words::deserialize(from)? {
        Words::One(word) => vec![word],
        Words::Many(words) => words,
    };
    words.iter().map(|word| word.parse().map_err(serde::de::Error::custom)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(listen: &[&str], advertised: &[&str], inter_broker: Option<&str>) -> Result<Vec<ListenerConfig>, String> {
        let listen: Vec<Listen> = listen.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
        let advertised: Vec<Advertise> = advertised.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
        listeners(&listen, &advertised, inter_broker).map_err(|error| error.to_string())
    }

    #[test]
    fn each_listener_gets_the_addresses_that_name_it() {
        let made = made(
            &["internal://0.0.0.0:9092", "host://0.0.0.0:19092"],
            &["host://localhost:19092", "internal@10.0.0.0/8://b1.example:9092", "internal@fd00::/8://[fd00::1]:9092"],
            None,
        );
        let [internal, host] = &made.unwrap()[..] else { panic!() };
        assert_eq!(
            (internal.name.as_str(), &internal.advertised, internal.advertised_to.len()),
            ("internal", &None, 2)
        );
        assert_eq!(internal.advertised_to[1].1.to_string(), "[fd00::1]:9092");
        assert_eq!(host.advertised.as_ref().unwrap().to_string(), "localhost:19092");
    }

    #[test]
    fn plain_words_mean_the_first_listener_and_brokers_meet_where_they_are_told() {
        let listen = ["127.0.0.1:9092", "127.0.0.1:9093"];
        let named = |made: &[ListenerConfig]| made.iter().map(|one| one.name.clone()).collect::<Vec<_>>();
        let plain = made(&listen, &["a.example:9092"], None).unwrap();
        assert_eq!(named(&plain), ["PLAINTEXT", "PLAINTEXT1"]);
        assert_eq!((plain[0].advertised.is_some(), plain[1].advertised.is_some()), (true, false));
        assert_eq!(named(&made(&listen, &[], Some("PLAINTEXT1")).unwrap()), ["PLAINTEXT1", "PLAINTEXT"]);
    }

    #[test]
    fn what_does_not_fit_is_refused_with_what_would() {
        let two = ["a://0.0.0.0:1", "b://0.0.0.0:2"];
        type Case<'a> = (&'a [&'a str], &'a [&'a str], Option<&'a str>, &'a str);
        let cases: [Case<'_>; 14] = [
            (&[], &[], None, "one listener at least"),
            (&["localhost:9092"], &[], None, "internal://0.0.0.0:9092"),
            (&["0.0.0.0"], &[], None, "an address of this machine and a port"),
            (&["a b://0.0.0.0:1"], &[], None, "letters, digits"),
            (&["a://0.0.0.0:1", "a://0.0.0.0:2"], &[], None, "a twice"),
            (&["a://0.0.0.0:1", "b://0.0.0.0:1"], &[], None, "share 0.0.0.0:1"),
            (&two, &["c://h:1"], None, "has a, b"),
            (&two, &["a://h:1", "a://i:1"], None, "two addresses for all clients of listener a"),
            (&two, &["a@10.0.0.0/8://h:1", "a@10.0.0.0/8://i:1"], None, "two addresses for 10.0.0.0/8"),
            (&two, &["a@10.0.0.1/8://h:1"], None, "did you mean 10.0.0.0/8?"),
            (&two, &["a@lan://h:1"], None, "not a network"),
            (&two, &["a://h"], None, "host:port"),
            (&two, &["a://0.0.0.0:1"], None, "leave it out"),
            (&two, &[], Some("c"), "broker.inter_broker_listener names the listener c"),
        ];
        for (listen, advertised, inter_broker, part) in cases {
            let error = made(listen, advertised, inter_broker).unwrap_err();
            assert!(error.contains(part), "{listen:?} {advertised:?}: {error}");
        }
    }
}
