//! `thalweg group offset-delete`.

use clap::Args;
use thalweg_client::ClientError;
use thalweg_model::{ErrorCode, TopicPartition};

use crate::cli::connect::Connection;
use crate::cli::failure::Failure;
use crate::cli::output::note;
use crate::cli::select::{Selection, among};

/// The group begins anew there: at its reset policy's place.
#[derive(Debug, Args)]
pub struct OffsetDelete {
    group: String,
    /// A topic, or topic:partition,partition; may be repeated
    #[arg(long = "topic", short = 't', required = true, value_name = "TOPIC")]
    topics: Vec<Selection>,
    #[command(flatten)]
    connection: Connection,
}

impl OffsetDelete {
    pub async fn run(self) -> Result<(), Failure> {
        let admin = self.connection.open().await?.admin();
        let group = &self.group;
        // Says so if there is no such group.
        admin.describe_group(group).await?;
        let committed = admin.group_offsets(group).await?;
        let chosen = among(&committed, &self.topics)
            .map_err(|topic| Failure::not_found(format!("group {group} has no stored offset there: {topic}")))?;
        let chosen: Vec<TopicPartition> = chosen.into_iter().collect();
        match admin.delete_group_offsets(group, &chosen).await {
            Err(ClientError::Broker { code: ErrorCode::GroupSubscribedToTopic, .. }) => Err(Failure::failed(format!(
                "members of group {group} are subscribed to the topic; stop them, or move it with `thalweg group seek --live`"
            ))),
            result => {
                result?;
                note(&format!("deleted {} offset(s) of group {group}", chosen.len()));
                Ok(())
            }
        }
    }
}
