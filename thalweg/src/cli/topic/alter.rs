//! `thalweg topic alter`.

use clap::Args;
use thalweg_client::admin::ConfigResource;

use crate::cli::configs::Changes;
use crate::cli::connect::Connection;
use crate::cli::failure::Failure;
use crate::cli::output::note;

#[derive(Debug, Args)]
pub struct Alter {
    #[arg(required = true, value_name = "TOPIC")]
    topics: Vec<String>,
    #[command(flatten)]
    changes: Changes,
    /// Only check whether it could be changed
    #[arg(short = 'd', long)]
    dry_run: bool,
    #[command(flatten)]
    connection: Connection,
}

impl Alter {
    pub async fn run(self) -> Result<(), Failure> {
        let changes = self.changes.list();
        let admin = self.connection.open().await?.admin();
        for name in &self.topics {
            // Says so if there is no such topic.
            admin.topic(name).await?;
            admin.alter_configs(&ConfigResource::Topic(name.clone()), &changes, self.dry_run).await?;
            note(&format!("{} topic {name}", if self.dry_run { "could alter" } else { "altered" }));
        }
        Ok(())
    }
}
