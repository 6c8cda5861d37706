//! What clients write and read, as the brokers have measured it.

use std::collections::BTreeMap;

use thalweg_client::ClientError;
use thalweg_client::admin::Admin;
use thalweg_model::{ErrorCode, NodeId};

use super::failure::Failure;
use super::output::{bytes, note};

/// Of partitions that somebody uses, by topic and number.
#[derive(Debug, Default)]
pub struct Traffic(BTreeMap<(String, i32), Flow>);

/// Bytes per second, of the last minutes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    pub bytes_in: u64,
    pub bytes_out: u64,
}

impl Traffic {
    /// Asks each of these brokers for what it leads. One that is too old to know leaves its part unknown, and is named.
    ///
    /// # Errors
    /// A broker that does not answer.
    pub async fn ask(admin: &Admin, brokers: impl Iterator<Item = NodeId>) -> Result<Traffic, Failure> {
        let mut traffic = Traffic::default();
        for broker in brokers {
            let report = match admin.traffic(broker).await {
                Err(
                    ClientError::UnsupportedApi { .. } | ClientError::Broker { code: ErrorCode::InvalidRequest, .. },
                ) => {
                    note(&format!("broker {broker} does not measure its traffic"));
                    continue;
                }
                report => report?,
            };
            for one in report.partitions {
                let flow = Flow { bytes_in: one.bytes_in, bytes_out: one.bytes_out };
                traffic.0.insert((one.topic, one.partition), flow);
            }
        }
        Ok(traffic)
    }

    /// Of all partitions together.
    pub fn sum(&self) -> Flow {
        self.0.values().fold(Flow::default(), |sum, flow| sum.plus(*flow))
    }

    pub fn of(&self, topic: &str, partition: i32) -> Flow {
        self.0.get(&(topic.to_owned(), partition)).copied().unwrap_or_default()
    }
}

impl Flow {
    /// What one of so many replicas has to do with it: each takes all that is written, and each leads as often as the others,
    /// for leaders are balanced by themselves.
    pub fn of_a_replica(self, replica_count: usize) -> u64 {
        self.bytes_in + self.bytes_out / (replica_count as u64).max(1)
    }

    pub fn plus(self, other: Flow) -> Flow {
        Flow { bytes_in: self.bytes_in + other.bytes_in, bytes_out: self.bytes_out + other.bytes_out }
    }

    /// Two cells of a table.
    pub fn cells(self) -> [String; 2] {
        [self.bytes_in, self.bytes_out].map(|count| format!("{}/s", bytes(count)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_falls_on_every_replica_and_what_is_read_on_one_of_them() {
        let flow = Flow { bytes_in: 1_000, bytes_out: 600 };
        assert_eq!([1, 3].map(|count| flow.of_a_replica(count)), [1_600, 1_200]);
        assert_eq!(flow.plus(flow).cells(), ["2.0 KiB/s", "1.2 KiB/s"]);
    }
}
