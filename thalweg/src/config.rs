//! The configuration file: what a node is, where it keeps its data, what it listens on.

mod listeners;
mod overrides;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use serde::Deserialize;
use thalweg_broker::ListenerConfig;
use thalweg_coordinator::CoordinatorPeer;

use crate::joining::{JoinArguments, Membership};

pub use listeners::{Advertise, Listen};
pub use overrides::Overrides;

/// A node's configuration; each field's meaning and default stand in [`commented_defaults`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    #[serde(default = "default_roles")]
    pub roles: Vec<Role>,
    /// Empty until somebody has said where.
    #[serde(default)]
    pub data_dir: PathBuf,
    #[serde(default)]
    pub broker: BrokerSection,
    #[serde(default)]
    pub coordinator: CoordinatorSection,
    #[serde(default)]
    pub http: HttpSection,
    #[serde(default)]
    pub log: LogSection,
    #[serde(default)]
    pub properties: BTreeMap<String, toml::Value>,
    /// The cluster that it joined and that gave it its numbers; not a key.
    #[serde(skip)]
    pub joined: Option<String>,
    /// It is to join a cluster before it starts; not a key.
    #[serde(skip)]
    pub join: JoinArguments,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Broker,
    Coordinator,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BrokerSection {
    pub id: Option<i32>,
    #[serde(deserialize_with = "listeners::words")]
    pub listen: Vec<Listen>,
    #[serde(deserialize_with = "listeners::words")]
    pub advertised: Vec<Advertise>,
    pub inter_broker_listener: Option<String>,
    pub log_dirs: Vec<PathBuf>,
    pub rack: Option<String>,
    pub coordinators: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CoordinatorSection {
    pub id: Option<u64>,
    pub listen: SocketAddr,
    pub advertised: Option<String>,
    pub peers: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpSection {
    pub listen: SocketAddr,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogSection {
    pub level: String,
    pub format: LogFormat,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    Text,
    Json,
}

impl NodeConfig {
    /// The file's words, if there is one, under those of flags and variables.
    ///
    /// # Errors
    /// A file that cannot be read, is no TOML, or names something unknown: names the file, the line and what is known. What
    /// does not fit together: names the keys.
    pub fn read(path: Option<&Path>, overrides: Overrides) -> Result<NodeConfig> {
        let text = match path {
            Some(path) => std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?,
            None => String::new(),
        };
        let named = || path.map(|path| path.display().to_string()).unwrap_or_default();
        let mut config = NodeConfig::parse(&text).with_context(named)?;
        overrides.apply(&mut config)?;
        if let Some(membership) = Membership::load(&config.data_dir)? {
            membership.apply(&mut config)?;
        }
        if path.is_none() { config.checked() } else { config.checked().with_context(named) }
    }

    fn parse(text: &str) -> Result<NodeConfig> {
        Ok(toml::from_str(text)?)
    }

    fn checked(self) -> Result<NodeConfig> {
        let config = self;
        if config.data_dir.as_os_str().is_empty() {
            bail!(
                "nothing says where the data is to be kept: give --data-dir DIR, or data_dir in a file with --config FILE"
            );
        }
        if config.roles.is_empty() {
            bail!("roles is empty; name broker, coordinator or both");
        }
        let is_told = !config.broker.coordinators.is_empty() || config.join.join.is_some();
        if !config.has_role(Role::Coordinator) && !is_told {
            bail!(
                "a broker without the role coordinator needs broker.coordinators = [\"host:9093\", ...], or --join HOST of a \
                 cluster to be part of"
            );
        }
        if config.broker.id.is_some_and(|id| id < 0) {
            bail!("broker.id is 0 or more; leave it out to be given one");
        }
        config.coordinator.check()?;
        config.listeners()?;
        Ok(config)
    }

    /// The broker's listeners, the one where brokers meet first.
    ///
    /// # Errors
    /// Names or addresses that do not fit together; whoever wrote them is at fault.
    pub fn listeners(&self) -> Result<Vec<ListenerConfig>> {
        let broker = &self.broker;
        listeners::listeners(&broker.listen, &broker.advertised, broker.inter_broker_listener.as_deref())
    }

    pub fn has_role(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }

    /// Puts `key=value` words, as `--set` takes them, over the properties.
    ///
    /// # Errors
    /// A word without `=`; whoever typed it is at fault. Unknown keys are found when the node starts.
    pub fn set_properties(&mut self, words: &[String]) -> Result<()> {
        for word in words {
            let Some((key, value)) = word.split_once('=') else {
                bail!("--set takes key=value, such as --set num.partitions=4, not '{word}'");
            };
            self.properties.insert(key.trim().to_owned(), toml::Value::String(value.trim().to_owned()));
        }
        Ok(())
    }

    /// The properties as text, which is what their table reads.
    ///
    /// # Errors
    /// A value that is a table or a list of other than words; the file's fault.
    pub fn property_texts(&self) -> Result<BTreeMap<String, String>> {
        let mut texts = BTreeMap::new();
        flatten("", &self.properties, &mut texts)?;
        Ok(texts)
    }
}

impl CoordinatorSection {
    /// Its number among coordinators: the first, unless somebody said otherwise.
    pub fn number(&self) -> u64 {
        self.id.unwrap_or(1)
    }

    /// The coordinators that this node forms a cluster with or joins.
    ///
    /// # Errors
    /// One that is not `id@host:port`; the file's fault.
    pub fn parsed_peers(&self) -> Result<Vec<CoordinatorPeer>> {
        let parse = |text: &String| text.parse().map_err(|cause| anyhow!("coordinator.peers: {cause}"));
        self.peers.iter().map(parse).collect()
    }

    fn check(&self) -> Result<()> {
        if self.id == Some(0) {
            bail!("coordinator.id is 1 or more");
        }
        if let Some(advertised) = &self.advertised
            && format!("1@{advertised}").parse::<CoordinatorPeer>().is_err()
        {
            bail!("coordinator.advertised is host:port, such as a.example:9093, not '{advertised}'");
        }
        let peers = self.parsed_peers()?;
        let ids: BTreeSet<u64> = peers.iter().map(|peer| peer.id).collect();
        if ids.len() < peers.len() {
            bail!("coordinator.peers names an id twice; each coordinator has its own");
        }
        let addresses: BTreeSet<&str> = peers.iter().map(|peer| peer.address.as_str()).collect();
        if addresses.len() < peers.len() {
            bail!("coordinator.peers names an address twice");
        }
        Ok(())
    }
}

/// TOML reads `num.partitions = 4` as a table `num` with a key `partitions`; Kafka's names are the dotted whole.
fn flatten<'a>(
    prefix: &str,
    table: impl IntoIterator<Item = (&'a String, &'a toml::Value)>,
    texts: &mut BTreeMap<String, String>,
) -> Result<()> {
    for (key, value) in table {
        let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        let text = match value {
            toml::Value::Table(inner) => {
                flatten(&name, inner, texts)?;
                continue;
            }
            toml::Value::String(text) => text.clone(),
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Float(number) => number.to_string(),
            toml::Value::Boolean(truth) => truth.to_string(),
            toml::Value::Array(items) => {
                let words: Option<Vec<&str>> = items.iter().map(toml::Value::as_str).collect();
                words.with_context(|| format!("properties.{name}: a list holds words only"))?.join(",")
            }
            toml::Value::Datetime(_) => bail!("properties.{name}: a date is no property's value"),
        };
        texts.insert(name, text);
    }
    Ok(())
}

fn default_roles() -> Vec<Role> {
    vec![Role::Broker, Role::Coordinator]
}

impl Default for BrokerSection {
    fn default() -> BrokerSection {
        BrokerSection {
            id: None,
            listen: vec![loopback(9092).into()],
            advertised: Vec::new(),
            inter_broker_listener: None,
            log_dirs: Vec::new(),
            rack: None,
            coordinators: Vec::new(),
        }
    }
}

impl Default for CoordinatorSection {
    fn default() -> CoordinatorSection {
        CoordinatorSection { id: None, listen: loopback(9093), advertised: None, peers: Vec::new() }
    }
}

impl Default for HttpSection {
    fn default() -> HttpSection {
        HttpSection { listen: loopback(9644) }
    }
}

impl Default for LogSection {
    fn default() -> LogSection {
        LogSection { level: "info,openraft=error".to_owned(), format: LogFormat::Text }
    }
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// A configuration file with every key, its default and its meaning.
pub fn commented_defaults() -> String {
    DEFAULTS.trim_end().to_owned()
}

const DEFAULTS: &str = r#"# Where everything is kept: logs under logs/, the coordinator's registries under coordinator/.
data_dir = "/var/lib/thalweg"

# What this node is: a broker, a coordinator, or both.
roles = ["broker", "coordinator"]

[broker]
# Its number in the cluster. Unset: the coordinators give it one, and its directories keep it.
# id = 1
# What Kafka clients connect to; several with a name each: ["internal://0.0.0.0:9092", "host://0.0.0.0:19092"].
listen = ["127.0.0.1:9092"]
# What clients of a listener are told to connect to, all of them or those of a network: ["host://localhost:19092",
# "internal@10.0.0.0/8://broker-1.example:9092"]. Unset: the address that the client came in on, and of the other brokers
# theirs in the same network.
advertised = []
# The listener where brokers meet. Unset: the first.
# inter_broker_listener = "internal"
# Folders for partition logs, one per disk. Empty: data_dir/logs.
log_dirs = []
# The failure domain, such as a zone.
# rack = "a"
# The coordinators' gRPC addresses. Empty with the role coordinator: this node's own and its peers'.
coordinators = []

[coordinator]
# Its number among coordinators, from 1. Belongs to the data directory for ever: a node that lost its data gets another one.
# Unset: 1, or what the node was given when it joined.
# id = 1
# gRPC, for brokers and other coordinators.
listen = "127.0.0.1:9093"
# How others reach that. Unset: as coordinator.peers names this node, or the address that it listens on; listening on all
# addresses, the one that leads to the other coordinators, or this machine's first.
# advertised = "a.example:9093"
# Those who found the cluster, this node among them, the same list everywhere: it is founded once all of them run. A node
# that is to join a running cluster names some who are part of it. Empty: a cluster of one.
# Such as ["1@a.example:9093", "2@b.example:9093", "3@c.example:9093"].
peers = []

[http]
# /metrics, /health/live, /health/ready.
listen = "127.0.0.1:9644"

[log]
# error, warn, info, debug, trace, or a filter such as "info,thalweg_broker=debug".
level = "info,openraft=error"
# text for people, json for machines.
format = "text"

# Broker properties under Kafka's names, such as:
[properties]
# num.partitions = 1
# auto.create.topics.enable = true
"#;

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> Result<NodeConfig> {
        NodeConfig::parse(text)?.checked()
    }

    #[test]
    fn the_printed_defaults_are_a_valid_file_with_the_built_in_values() {
        let printed = checked(&commented_defaults()).unwrap();
        let bare = checked("data_dir = '/var/lib/thalweg'").unwrap();
        assert_eq!(format!("{printed:?}"), format!("{bare:?}"));
    }

    #[test]
    fn an_unknown_key_is_named_with_the_known_ones() {
        let error = NodeConfig::parse("data_dir = '/d'\n[broker]\nlistne = []\n").unwrap_err().to_string();
        assert!(error.contains("listne") && error.contains("listen"), "{error}");
    }

    #[test]
    fn a_broker_alone_must_know_its_coordinators() {
        let error = checked("data_dir = '/d'\nroles = ['broker']").unwrap_err().to_string();
        assert!(error.contains("broker.coordinators"), "{error}");
    }

    #[test]
    fn coordinators_are_told_apart_by_id_and_address() {
        let with = |peers: &str| checked(&format!("data_dir = '/d'\n[coordinator]\nid = 2\npeers = {peers}\n"));
        let config = with("['1@a:1', '2@b:1']").unwrap();
        assert_eq!(config.coordinator.parsed_peers().unwrap()[1], CoordinatorPeer { id: 2, address: "b:1".into() });
        for (peers, part) in
            [("['a:1']", "id@host:port"), ("['1@a:1', '1@b:1']", "id twice"), ("['1@a:1', '2@a:1']", "address twice")]
        {
            let error = with(peers).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn properties_keep_kafkas_dotted_names_quoted_or_not() {
        let mut config = NodeConfig::parse(
            "data_dir = '/d'\n[properties]\nnum.partitions = 4\n'auto.create.topics.enable' = false\nlog.cleanup.policy = ['compact', 'delete']\n",
        )
        .unwrap();
        config.set_properties(&["num.partitions=6".to_owned(), "log.retention.ms = -1".to_owned()]).unwrap();
        let texts = config.property_texts();
        // `--set` and the file meet under one name.
        let texts = texts.unwrap();
        assert_eq!(texts["num.partitions"], "6");
        assert_eq!(texts["auto.create.topics.enable"], "false");
        assert_eq!(texts["log.cleanup.policy"], "compact,delete");
        assert_eq!(texts["log.retention.ms"], "-1");
    }

    #[test]
    fn without_a_file_flags_must_say_where_the_data_is() {
        let error = NodeConfig::read(None, Overrides::default()).unwrap_err().to_string();
        assert!(error.contains("--data-dir"), "{error}");
        let given = Overrides { data_dir: Some("/d".into()), ..Overrides::default() };
        assert_eq!(NodeConfig::read(None, given).unwrap().data_dir, Path::new("/d"));
    }

    #[test]
    fn one_address_and_a_list_of_them_are_both_read() {
        for text in ["'host://localhost:1'", "['host://localhost:1']"] {
            let config = checked(&format!(
                "data_dir = '/d'\n[broker]\nlisten = ['internal://127.0.0.1:2', 'host://127.0.0.1:1']\nadvertised = {text}\n\
                 inter_broker_listener = 'host'\n"
            ));
            let listeners = config.unwrap().listeners().unwrap();
            assert_eq!((listeners[0].name.as_str(), listeners[0].advertised.is_some()), ("host", true));
        }
        let error = checked("data_dir = '/d'\n[broker]\nadvertised = 'elsewhere://h:1'\n").unwrap_err().to_string();
        assert!(error.contains("elsewhere") && error.contains("PLAINTEXT"), "{error}");
    }
}
