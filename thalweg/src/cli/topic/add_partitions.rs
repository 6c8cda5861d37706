//! `thalweg topic add-partitions`.

use clap::Args;

use crate::cli::connect::Connection;
use crate::cli::failure::Failure;
use crate::cli::output::note;

/// Records of one key may go to another partition from then on: their order with earlier ones is not kept. Partitions
/// are never taken away again.
#[derive(Debug, Args)]
#[group(id = "count", required = true, args = ["by", "to"])]
pub struct AddPartitions {
    topic: String,
    /// So many more
    #[arg(short = 'n', long, visible_alias = "num", value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    by: Option<i32>,
    /// So many in all
    #[arg(long, visible_alias = "partitions", value_name = "N", value_parser = clap::value_parser!(i32).range(1..), conflicts_with = "by")]
    to: Option<i32>,
    #[command(flatten)]
    connection: Connection,
}

impl AddPartitions {
    pub async fn run(self) -> Result<(), Failure> {
        let admin = self.connection.open().await?.admin();
        let topic = &self.topic;
        let before = admin.topic(topic).await?.partition_count();
        let count = match (self.by, self.to) {
            (Some(by), _) => before.saturating_add(by),
            (None, to) => to.unwrap_or(before),
        };
        if count <= before {
            return Err(Failure::failed(format!(
                "topic {topic} has {before} partition(s) already; they can only grow"
            )));
        }
        admin.add_partitions(topic, count).await?;
        note(&format!(
            "topic {topic} has {count} partitions now, before {before}; keyed records may map to other ones"
        ));
        Ok(())
    }
}
