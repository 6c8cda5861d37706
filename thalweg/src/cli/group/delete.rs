//! `thalweg group delete`.

use clap::Args;
use thalweg_client::ClientError;
use thalweg_model::ErrorCode;

use crate::cli::connect::Connection;
use crate::cli::failure::Failure;
use crate::cli::output::note;

#[derive(Debug, Args)]
pub struct Delete {
    #[arg(required = true, value_name = "GROUP")]
    groups: Vec<String>,
    /// It is fine if the group does not exist
    #[arg(long)]
    if_exists: bool,
    #[command(flatten)]
    connection: Connection,
}

impl Delete {
    pub async fn run(self) -> Result<(), Failure> {
        let admin = self.connection.open().await?.admin();
        for group in &self.groups {
            match admin.delete_group(group).await {
                Err(ClientError::Broker { code: ErrorCode::GroupIdNotFound, .. }) if self.if_exists => {
                    note(&format!("group {group} does not exist"));
                }
                Err(ClientError::Broker { code: ErrorCode::NonEmptyGroup, .. }) => {
                    return Err(Failure::failed(format!(
                        "group {group} has members; stop them first, `thalweg group describe {group}` shows them"
                    )));
                }
                result => {
                    result?;
                    note(&format!("deleted group {group}"));
                }
            }
        }
        Ok(())
    }
}
