//! `thalweg cluster restart --rolling`: every node of a development cluster, one at a time, while clients go on.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use thalweg_client::admin::Admin;
use thalweg_model::NodeId;

use crate::cli::connect::Connection;
use crate::cli::failure::Failure;
use crate::cli::output::note;
use crate::cli::safe_to_restart::reasons;
use crate::dev::control;

/// For the nodes of `thalweg dev -n N`. Elsewhere whoever runs the nodes restarts them, after `thalweg broker safe-to-restart`.
#[derive(Debug, Args)]
pub struct Restart {
    /// One node after the other, each only when nobody would miss it
    #[arg(long, required = true)]
    rolling: bool,
    /// Where the cluster has its data
    #[arg(long, env = "THALWEG_DATA_DIR", default_value = "./thalweg-data")]
    data_dir: PathBuf,
    /// How long to wait for a broker to be spared, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    patience: u64,
    #[command(flatten)]
    connection: Connection,
}

impl Restart {
    pub async fn run(self) -> Result<(), Failure> {
        let admin = self.connection.open().await?.admin();
        let nodes = control::nodes(&self.data_dir);
        if nodes.is_empty() {
            let place = self.data_dir.display();
            return Err(Failure::not_found(format!(
                "{place} has no data of several nodes; name theirs with --data-dir"
            )));
        }
        for node in nodes {
            self.until_spared(&admin, NodeId(i32::from(node))).await?;
            let directory = self.data_dir.clone();
            // It waits for another process: not on a thread of the runtime.
            let restarted = tokio::task::spawn_blocking(move || control::restart(&directory, node)).await;
            let took = restarted
                .map_err(|error| Failure::failed(error.to_string()))?
                .map_err(|error| Failure::failed(format!("{error:#}")))?;
            note(&format!("node {node} was restarted, away for {:.1} s", took.as_secs_f64()));
        }
        Ok(())
    }

    /// The one that was restarted before must have caught up.
    async fn until_spared(&self, admin: &Admin, node: NodeId) -> Result<(), Failure> {
        let deadline = Instant::now() + Duration::from_secs(self.patience);
        loop {
            let why = match reasons(admin, node).await {
                Ok(reasons) if reasons.is_empty() => return Ok(()),
                Ok(reasons) => reasons.join("; "),
                // The broker that was asked may be the one that has just stopped.
                Err(failure) => failure.message().to_owned(),
            };
            if Instant::now() >= deadline {
                return Err(Failure::failed(format!(
                    "broker {node} was needed for {} s, so that it was not restarted: {why}",
                    self.patience
                )));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

const PAUSE: Duration = Duration::from_millis(200);
