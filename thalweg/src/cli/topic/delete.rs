//! `thalweg topic delete`.

use clap::Args;
use thalweg_client::ClientError;

use crate::cli::connect::Connection;
use crate::cli::failure::Failure;
use crate::cli::output::note;

#[derive(Debug, Args)]
pub struct Delete {
    #[arg(required = true, value_name = "TOPIC")]
    topics: Vec<String>,
    /// It is fine if the topic does not exist
    #[arg(long)]
    if_exists: bool,
    #[command(flatten)]
    connection: Connection,
}

impl Delete {
    pub async fn run(self) -> Result<(), Failure> {
        let admin = self.connection.open().await?.admin();
        for name in &self.topics {
            match admin.delete_topic(name).await {
                Err(ClientError::UnknownTopic { .. }) if self.if_exists => {
                    note(&format!("topic {name} does not exist"));
                }
                result => {
                    result?;
                    note(&format!("deleted topic {name}"));
                }
            }
        }
        Ok(())
    }
}
