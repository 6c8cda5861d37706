//! `thalweg doctor listeners`: what clients are told to connect to, and whether that works from here.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use clap::Args;
use futures_util::future::join_all;
use serde_json::json;
use thalweg_client::admin::report::{ArrivalReport, EndpointReport, NodeReport};
use thalweg_client::{Client, ClientConfig};
use thalweg_model::NodeId;

use crate::cli::connect::Connection;
use crate::cli::failure::Failure;
use crate::cli::output::{Output, Table, note, print_line, print_value};

/// Exit code 0 if every address that you are told works from here.
#[derive(Debug, Args)]
pub struct Listeners {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: Output,
}

/// What became of an attempt to reach a broker where clients are told to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Tried {
    Works {
        ms: u128,
    },
    /// Somebody else answers.
    Other(String),
    Fails(String),
}

/// What the tables show.
struct Findings {
    report: NodeReport,
    /// By node and address.
    tried: BTreeMap<(i32, String), Tried>,
    /// Arrivals at any broker, by the broker that was asked.
    arrivals: Vec<(i32, ArrivalReport)>,
    left_out: u64,
}

impl Listeners {
    pub async fn run(self) -> Result<(), Failure> {
        let client = self.connection.open().await?;
        let admin = client.admin();
        // Over the connection that stands: what is told may be what does not work.
        let report = admin.explain_any_broker().await?;
        let cluster_id = client.metadata().cluster_id.clone();
        let tried = try_all(&report, cluster_id.as_deref()).await;
        let mut findings = Findings { arrivals: Vec::new(), left_out: 0, report, tried };
        for node in findings.report.asker.told.iter().map(|told| told.node_id) {
            let asked = if node == findings.report.node_id {
                Some(findings.report.clone())
            } else {
                // One that cannot be reached shows in the table; whoever came in there is not known.
                admin.explain_broker(NodeId(node)).await.ok()
            };
            let Some(asked) = asked else { continue };
            findings.left_out += asked.arrivals_left_out;
            findings.arrivals.extend(asked.arrivals.into_iter().map(|arrival| (node, arrival)));
        }
        if self.output.format.is_data() {
            print_value(self.output.format, &findings.value())?;
        } else {
            findings.print()?;
        }
        match findings.wrong() {
            wrong if wrong.is_empty() => Ok(()),
            wrong => Err(Failure::failed(wrong.join("; "))),
        }
    }
}

/// Every address of every broker, all at once.
async fn try_all(report: &NodeReport, cluster_id: Option<&str>) -> BTreeMap<(i32, String), Tried> {
    let registered = report
        .brokers
        .iter()
        .flat_map(|broker| broker.endpoints.iter().map(|endpoint| (broker.node_id, endpoint.address.clone())));
    let told = report.asker.told.iter().filter_map(|told| Some((told.node_id, told.address.clone()?)));
    let mut asked: Vec<(i32, String)> = registered.chain(told).collect();
    asked.sort();
    asked.dedup();
    let asked = asked.into_iter().map(|(node, address)| async move {
        let tried = try_one(node, &address, cluster_id).await;
        ((node, address), tried)
    });
    join_all(asked).await.into_iter().collect()
}

async fn try_one(node: i32, address: &str, cluster_id: Option<&str>) -> Tried {
    let mut config = ClientConfig::new(address).request_timeout(TRY_TIMEOUT);
    config.connect_timeout = TRY_TIMEOUT;
    let started = Instant::now();
    let client = match Client::connect(config).await {
        Ok(client) => client,
        Err(thalweg_client::ClientError::Unreachable { cause, .. }) => return Tried::Fails(cause.to_string()),
        Err(error) => return Tried::Fails(error.to_string()),
    };
    let ms = started.elapsed().as_millis();
    let metadata = client.metadata();
    if metadata.cluster_id.as_deref() != cluster_id {
        let id = metadata.cluster_id.as_deref().unwrap_or("without an id");
        return Tried::Other(format!("a broker of another cluster answers there ({id})"));
    }
    // Whoever answers names itself the controller, if it is live.
    match metadata.controller {
        Some(NodeId(answered)) if answered != node => Tried::Other(format!("broker {answered} answers there")),
        Some(_) | None => Tried::Works { ms },
    }
}

impl Findings {
    /// What keeps this very client from working.
    fn wrong(&self) -> Vec<String> {
        let listener = &self.report.asker.listener;
        let judge = |told: &thalweg_client::admin::report::ToldReport| match &told.address {
            None => Some(format!(
                "broker {} has no listener {listener}, so its partitions are out of your reach; give it one, or come in \
                 on a listener that every broker has",
                told.node_id
            )),
            Some(address) => match self.tried.get(&(told.node_id, address.clone())) {
                Some(Tried::Works { .. }) | None => None,
                Some(Tried::Other(who)) => Some(format!(
                    "you are told that broker {} is at {address}, and {who}; give each broker an address of its own in \
                     broker.advertised",
                    told.node_id
                )),
                Some(Tried::Fails(why)) => Some(format!(
                    "you are told that broker {} is at {address}, and that does not work from here ({why}); start it if it \
                     is down, else add an address that you can reach for you to its broker.advertised: \
                     \"{listener}@{}://HOST:PORT\"",
                    told.node_id,
                    network_of(&self.report.asker.from),
                )),
            },
        };
        self.report.asker.told.iter().filter_map(judge).collect()
    }

    fn print(&self) -> Result<(), Failure> {
        let asker = &self.report.asker;
        print_line(&format!(
            "you come from {}, and came in on {} of broker {}, listener {}\n",
            asker.from, asker.to, self.report.node_id, asker.listener
        ))?;
        let mut table = Table::new(&["BROKER", "LISTENER", "WHO", "IS TOLD", "FROM HERE"]);
        for (node, endpoint) in self.endpoints() {
            let outcome = self.tried.get(&(node, endpoint.address.clone())).map(said).unwrap_or_default();
            let listener = endpoint.listener.clone();
            table.row(vec![node.to_string(), listener, self.who(node, endpoint), endpoint.address.clone(), outcome]);
        }
        table.print()?;
        print_line("")?;
        let mut table = Table::new(&["CLIENT", "CAME IN ON", "LISTENER", "CONNECTIONS", "IS TOLD"]);
        for (node, arrival) in &self.arrivals {
            let told = arrival
                .told
                .iter()
                .map(|told| format!("{}={}", told.node_id, told.address.as_deref().unwrap_or("nothing")));
            table.row(vec![
                arrival.from.clone(),
                format!("{} (broker {node})", arrival.to),
                arrival.listener.clone(),
                arrival.connection_count.to_string(),
                told.collect::<Vec<_>>().join(" "),
            ]);
        }
        table.print()?;
        if self.left_out > 0 {
            note(&format!("{} further kinds of connections are not shown", self.left_out));
        }
        Ok(())
    }

    fn endpoints(&self) -> impl Iterator<Item = (i32, &EndpointReport)> {
        let brokers = self.report.brokers.iter();
        brokers.flat_map(|broker| broker.endpoints.iter().map(|endpoint| (broker.node_id, endpoint)))
    }

    /// Whom an address is for, given what else the listener has.
    fn who(&self, node: i32, endpoint: &EndpointReport) -> String {
        let has_rules = self.endpoints().any(|(other_node, other)| {
            other_node == node && other.listener == endpoint.listener && other.clients.is_some()
        });
        let others = if has_rules { "others" } else { "clients" };
        match (&endpoint.clients, &endpoint.network) {
            (Some(network), _) => format!("clients from {network}"),
            (None, Some(network)) => format!("{others} that came in through {network}"),
            (None, None) if has_rules => "all others".to_owned(),
            (None, None) => "everybody".to_owned(),
        }
    }

    fn value(&self) -> serde_json::Value {
        let endpoints = self.endpoints().map(|(node, endpoint)| {
            let outcome = self.tried.get(&(node, endpoint.address.clone()));
            json!({
                "broker": node,
                "listener": endpoint.listener,
                "address": endpoint.address,
                "clients": endpoint.clients,
                "network": endpoint.network,
                "works": matches!(outcome, Some(Tried::Works { .. })),
                "outcome": outcome.map(said),
            })
        });
        let arrivals = self.arrivals.iter().map(|(node, arrival)| json!({"broker": node, "arrival": arrival}));
        json!({
            "you": self.report.asker,
            "endpoints": endpoints.collect::<Vec<_>>(),
            "arrivals": arrivals.collect::<Vec<_>>(),
            "wrong": self.wrong(),
        })
    }
}

fn said(tried: &Tried) -> String {
    match tried {
        Tried::Works { ms } => format!("works, {ms} ms"),
        Tried::Other(who) => format!("WRONG: {who}"),
        Tried::Fails(why) => format!("does not work: {why}"),
    }
}

/// The narrowest network that names one address.
fn network_of(address: &str) -> String {
    if address.contains(':') { format!("{address}/128") } else { format!("{address}/32") }
}

const TRY_TIMEOUT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use thalweg_client::admin::report::{BrokerReport, ToldReport};

    use super::*;

    fn findings(address: Option<&str>, tried: Tried) -> Findings {
        let told = ToldReport { node_id: 2, address: address.map(str::to_owned) };
        let asker = ArrivalReport {
            listener: "host".into(),
            from: "203.0.113.9".into(),
            told: vec![told],
            ..ArrivalReport::default()
        };
        let endpoint = |clients: Option<&str>, network: Option<&str>| EndpointReport {
            listener: "host".into(),
            address: "h:1".into(),
            clients: clients.map(str::to_owned),
            network: network.map(str::to_owned),
        };
        let endpoints =
            vec![endpoint(None, None), endpoint(Some("10.0.0.0/8"), None), endpoint(None, Some("172.16.0.0/12"))];
        let brokers = vec![BrokerReport { node_id: 2, is_fenced: false, endpoints }];
        Findings {
            report: NodeReport { asker, brokers, ..NodeReport::default() },
            tried: [((2, "h:1".to_owned()), tried)].into(),
            arrivals: Vec::new(),
            left_out: 0,
        }
    }

    #[test]
    fn what_keeps_this_client_from_working_is_told_with_the_way_out() {
        assert!(findings(Some("h:1"), Tried::Works { ms: 1 }).wrong().is_empty());
        let fails = findings(Some("h:1"), Tried::Fails("refused".into())).wrong();
        assert!(fails[0].contains("\"host@203.0.113.9/32://HOST:PORT\""), "{fails:?}");
        let other = findings(Some("h:1"), Tried::Other("broker 1 answers there".into())).wrong();
        assert!(other[0].contains("broker 1 answers there"), "{other:?}");
        let none = findings(None, Tried::Works { ms: 1 }).wrong();
        assert!(none[0].contains("no listener host"), "{none:?}");
    }

    #[test]
    fn whom_an_address_is_for_is_said() {
        let findings = findings(None, Tried::Works { ms: 1 });
        let who: Vec<String> = findings.endpoints().map(|(node, endpoint)| findings.who(node, endpoint)).collect();
        assert_eq!(who, ["all others", "clients from 10.0.0.0/8", "others that came in through 172.16.0.0/12"]);
    }
}
