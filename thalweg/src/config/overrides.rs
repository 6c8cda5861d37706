//! Flags and variables of `thalweg start` that stand over the file: a flag over its variable, a variable over the file.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Result;
use thalweg_coordinator::CoordinatorPeer;

use crate::joining::JoinArguments;

use super::listeners::{Advertise, Listen};
use super::{LogFormat, NodeConfig, Role};

/// Each is a key of the file; what is not given leaves the file's value.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Overrides {
    /// Where everything is kept; created if missing
    #[arg(long, env = "THALWEG_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
    /// broker, coordinator, or both with a comma between
    #[arg(long, env = "THALWEG_ROLES", value_delimiter = ',')]
    pub roles: Vec<Role>,
    /// Its number among brokers
    #[arg(long, env = "THALWEG_BROKER_ID", value_parser = clap::value_parser!(i32).range(0..))]
    pub broker_id: Option<i32>,
    /// What Kafka clients connect to, [NAME://]ADDRESS:PORT with commas between
    #[arg(long, env = "THALWEG_LISTEN", value_delimiter = ',')]
    pub listen: Vec<Listen>,
    /// What they are told to connect to, [NAME[@NETWORK]://]HOST:PORT with commas between
    #[arg(long, env = "THALWEG_ADVERTISED", value_delimiter = ',')]
    pub advertised: Vec<Advertise>,
    /// The listener where brokers meet
    #[arg(long, env = "THALWEG_INTER_BROKER_LISTENER")]
    pub inter_broker_listener: Option<String>,
    /// The failure domain, such as a zone
    #[arg(long, env = "THALWEG_RACK")]
    pub rack: Option<String>,
    /// The coordinators' gRPC addresses, for a broker that is none itself
    #[arg(long, env = "THALWEG_COORDINATORS", value_delimiter = ',')]
    pub coordinators: Vec<String>,
    /// Its number among coordinators, from 1
    #[arg(long, env = "THALWEG_COORDINATOR_ID", value_parser = clap::value_parser!(u64).range(1..))]
    pub coordinator_id: Option<u64>,
    /// gRPC, for brokers and other coordinators
    #[arg(long, env = "THALWEG_COORDINATOR_LISTEN")]
    pub coordinator_listen: Option<SocketAddr>,
    /// How others reach that, host:port
    #[arg(long, env = "THALWEG_COORDINATOR_ADVERTISED")]
    pub coordinator_advertised: Option<String>,
    /// The coordinators that found the cluster, id@host:port with commas between
    #[arg(long, env = "THALWEG_COORDINATOR_PEERS", value_delimiter = ',')]
    pub coordinator_peers: Vec<CoordinatorPeer>,
    /// Metrics and health
    #[arg(long, env = "THALWEG_HTTP")]
    pub http: Option<SocketAddr>,
    /// error, warn, info, debug, trace, or a filter
    #[arg(long, env = "THALWEG_LOG")]
    pub log_level: Option<String>,
    /// text or json
    #[arg(long, env = "THALWEG_LOG_FORMAT")]
    pub log_format: Option<LogFormat>,
    /// Set one property, under Kafka's name; the variable holds several with spaces between
    #[arg(long = "set", env = "THALWEG_PROPERTIES", value_name = "KEY=VALUE", value_delimiter = ' ')]
    pub set: Vec<String>,
    #[command(flatten)]
    pub join: JoinArguments,
}

impl Overrides {
    /// # Errors
    /// A property without `=`; whoever typed it is at fault.
    pub fn apply(self, config: &mut NodeConfig) -> Result<()> {
        put(&mut config.data_dir, self.data_dir);
        put_list(&mut config.roles, self.roles);
        let broker = &mut config.broker;
        put_list(&mut broker.listen, self.listen);
        put_list(&mut broker.advertised, self.advertised);
        put_list(&mut broker.coordinators, self.coordinators);
        broker.id = self.broker_id.or(broker.id);
        broker.inter_broker_listener = self.inter_broker_listener.or(broker.inter_broker_listener.take());
        // An orchestrator that knows of no zone sets the variable to nothing.
        broker.rack = self.rack.filter(|rack| !rack.is_empty()).or(broker.rack.take());
        config.coordinator.id = self.coordinator_id.or(config.coordinator.id);
        config.coordinator.advertised = self.coordinator_advertised.or(config.coordinator.advertised.take());
        put(&mut config.coordinator.listen, self.coordinator_listen);
        put_list(&mut config.coordinator.peers, self.coordinator_peers.iter().map(ToString::to_string).collect());
        put(&mut config.http.listen, self.http);
        put(&mut config.log.level, self.log_level);
        put(&mut config.log.format, self.log_format);
        config.join = self.join;
        let words: Vec<String> = self.set.into_iter().filter(|word| !word.is_empty()).collect();
        config.set_properties(&words)
    }
}

fn put<T>(place: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *place = given;
    }
}

fn put_list<T>(place: &mut Vec<T>, given: Vec<T>) {
    if !given.is_empty() {
        *place = given;
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        overrides: Overrides,
    }

    #[test]
    fn flags_stand_over_the_file_and_leave_what_they_do_not_name() {
        let mut config = NodeConfig::parse(
            "data_dir = '/d'\n[broker]\nrack = 'a'\nid = 4\n[properties]\nnum.partitions = 2\nlog.roll.ms = 5\n",
        )
        .unwrap();
        let line = "x --listen internal://0.0.0.0:9092,host://0.0.0.0:19092 --advertised host://localhost:19092 --rack b \
                    --roles broker --coordinators a:1,b:1 --log-format json --set num.partitions=7";
        Line::parse_from(line.split_ascii_whitespace()).overrides.apply(&mut config).unwrap();
        let config = config.checked().unwrap();
        assert_eq!((config.broker.id, config.broker.rack.as_deref()), (Some(4), Some("b")));
        assert_eq!((config.broker.listen.len(), config.broker.advertised.len()), (2, 1));
        assert_eq!(config.broker.coordinators, ["a:1", "b:1"]);
        assert_eq!((config.roles, config.log.format), (vec![Role::Broker], LogFormat::Json));
        assert_eq!(config.properties["num.partitions"].as_str(), Some("7"));
    }

    #[test]
    fn wrong_words_are_refused_where_they_are_typed() {
        for line in
            ["x --listen localhost:1", "x --advertised a", "x --roles king", "x --coordinator-id 0", "x --broker-id=-1"]
        {
            assert!(Line::try_parse_from(line.split_ascii_whitespace()).is_err(), "{line}");
        }
    }
}
