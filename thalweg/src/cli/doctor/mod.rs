//! `thalweg doctor`: looks at everything that goes wrong often, and says what to do.

mod clients;
mod findings;
mod listeners;

use std::time::Instant;

use clap::{Args, Subcommand};
use serde_json::json;
use thalweg_client::admin::Admin;
use thalweg_client::{BrokerInfo, Client, ClientError, Metadata};

use super::cluster::{Check, examine};
use super::connect::Connection;
use super::failure::Failure;
use super::output::{Output, Table, note, print_value};
use super::time;
use findings::{Finding, Level};

/// Asks every broker under the address that clients are told. Exit code 0 if nothing is bad.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Doctor {
    #[command(subcommand)]
    about: Option<About>,
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: Output,
}

/// What to look at alone, and closely.
#[derive(Debug, Subcommand)]
enum About {
    /// Show what each client is told to connect to, and try it from here
    Listeners(listeners::Listeners),
}

impl Doctor {
    pub async fn run(self) -> Result<(), Failure> {
        if let Some(About::Listeners(verb)) = self.about {
            return verb.run().await;
        }
        let client = self.connection.open().await?;
        let admin = client.admin();
        let cluster = admin.cluster().await?;
        let mut found = Vec::new();
        for broker in cluster.brokers.values() {
            found.extend(examine_broker(&admin, broker).await?);
        }
        found.extend(findings::of_topics(&cluster));
        found.extend(examine(&admin).await?.into_iter().map(of_check));
        self.show(&client, &cluster, &found)?;
        let bad_count = found.iter().filter(|finding| finding.level == Level::Bad).count();
        if bad_count > 0 { Err(Failure::failed(format!("{bad_count} thing(s) are bad"))) } else { Ok(()) }
    }

    fn show(&self, client: &Client, cluster: &Metadata, found: &[Finding]) -> Result<(), Failure> {
        if self.output.format.is_data() {
            let entry = |finding: &Finding| {
                json!({
                    "level": finding.level.name(),
                    "about": finding.about,
                    "what": finding.what,
                    "remedy": finding.remedy,
                })
            };
            return print_value(self.output.format, &found.iter().map(entry).collect());
        }
        let mut table = Table::new(&["", "ABOUT", "WHAT"]);
        for finding in found {
            table.row(vec![finding.level.mark().to_owned(), finding.about.clone(), finding.what.clone()]);
            if let Some(remedy) = &finding.remedy {
                table.row(vec![String::new(), String::new(), format!("-> {remedy}")]);
            }
        }
        table.print()?;
        let asked = client.config().bootstrap.join(",");
        note(&format!("asked {asked}: {} broker(s), {} topic(s)", cluster.brokers.len(), cluster.topics.len()));
        Ok(())
    }
}

/// What a broker says of itself, and whether it can be reached where clients are told to.
async fn examine_broker(admin: &Admin, broker: &BrokerInfo) -> Result<Vec<Finding>, Failure> {
    let about = format!("broker {}", broker.node);
    let sent_at = time::now();
    let asked = Instant::now();
    match admin.explain_broker(broker.node).await {
        Ok(report) => {
            let round_trip_ms = i64::try_from(asked.elapsed().as_millis()).unwrap_or(i64::MAX);
            Ok(findings::of_node(&about, &broker.address(), &report, sent_at, round_trip_ms))
        }
        Err(ClientError::UnsupportedApi { .. }) => Ok(vec![Finding::good(
            &about,
            format!(
                "answers at {}; it is not Thalweg, so that disks, limits and clients stay unknown",
                broker.address()
            ),
        )]),
        Err(
            error @ (ClientError::Disconnected { .. } | ClientError::TimedOut { .. } | ClientError::Unreachable { .. }),
        ) => Ok(vec![Finding::bad(
            &about,
            format!("clients are told to connect to {}, and that does not work from here: {error}", broker.address()),
            "start it if it is down; else see `thalweg doctor listeners`",
        )]),
        Err(error) => Err(error.into()),
    }
}

fn of_check(check: Check) -> Finding {
    let what = format!("{}: {}", check.name, check.detail);
    if check.is_good {
        return Finding::good("cluster", what);
    }
    Finding::bad("cluster", what, check.remedy)
}
