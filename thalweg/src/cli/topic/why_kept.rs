//! `thalweg topic why-kept`.

use clap::Args;
use serde_json::json;
use thalweg_client::admin::report::{PartitionReport, SegmentReport, TopicReport};
use thalweg_model::Timestamp;

use crate::cli::connect::Connection;
use crate::cli::failure::Failure;
use crate::cli::output::{Output, Table, bytes, note, print_value};
use crate::cli::time;

/// Retention deletes whole segments, from the oldest on. This tells of each why it is still there, and when that ends as
/// far as it depends on time.
#[derive(Debug, Args)]
pub struct WhyKept {
    topic: String,
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: Output,
}

impl WhyKept {
    pub async fn run(self) -> Result<(), Failure> {
        let report = self.connection.open().await?.admin().explain_topic(&self.topic).await?;
        if self.output.format.is_data() {
            print_value(self.output.format, &json!(report.partitions))?;
        } else {
            print(&report, self.output.format.is_wide())?;
        }
        if report.left_out_count > 0 {
            note(&format!("{} more segment(s) are not shown", report.left_out_count));
        }
        Ok(())
    }
}

fn print(report: &TopicReport, is_wide: bool) -> Result<(), Failure> {
    let mut headings = vec!["PARTITION", "SEGMENT", "TO", "SIZE", "NEWEST", "HELD-BY", "UNTIL", "WHY"];
    if is_wide {
        headings.extend(["LOG-START", "HIGH-WATERMARK", "LOG-END"]);
    }
    let mut table = Table::new(&headings);
    for partition in &report.partitions {
        for segment in &partition.segments {
            table.row(row(partition, segment, is_wide));
        }
    }
    table.print()
}

fn row(partition: &PartitionReport, segment: &SegmentReport, is_wide: bool) -> Vec<String> {
    let when = |ms: Option<i64>| ms.map_or("-".to_owned(), |ms| time::format(Timestamp(ms)));
    let held_by = if segment.is_held { segment.rule.clone() } else { "nothing".to_owned() };
    let why = if segment.is_active { format!("{} (being written)", segment.why) } else { segment.why.clone() };
    let mut row = vec![
        partition.partition.to_string(),
        segment.base_offset.to_string(),
        segment.next_offset.to_string(),
        bytes(segment.size_bytes),
        when(segment.newest_ms),
        held_by,
        when(segment.until_ms),
        why,
    ];
    if is_wide {
        row.extend(
            [partition.log_start_offset, partition.high_watermark, partition.log_end_offset].map(|n| n.to_string()),
        );
    }
    row
}
