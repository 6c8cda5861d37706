//! The documents about where replicas lie: what operators see, and what they order.

use serde::{Deserialize, Serialize};

/// The cluster as the broker that answers knows it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct PlacementReport {
    pub cluster_id: String,
    pub brokers: Vec<PlacedBroker>,
    pub topics: Vec<PlacedTopic>,
    /// The moves under way that belong together.
    pub plan: Option<PlanReport>,
    /// Bytes per second that replicas moved to a broker may copy there.
    pub move_rate: u64,
}

/// A registered broker, alive or not.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct PlacedBroker {
    pub id: i32,
    pub rack: Option<String>,
    pub is_fenced: bool,
    pub is_stopping: bool,
    pub is_cordoned: bool,
    pub is_draining: bool,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct PlacedTopic {
    pub name: String,
    /// As Kafka writes it.
    pub id: String,
    pub min_isr: i32,
    pub partitions: Vec<PlacedPartition>,
}

/// In the order of numbers, from 0 without holes.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct PlacedPartition {
    pub leader: Option<i32>,
    pub replicas: Vec<i32>,
    pub isr: Vec<i32>,
    pub adding: Vec<i32>,
    pub removing: Vec<i32>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct PlanReport {
    pub id: u64,
    pub age_ms: i64,
    pub steps: Vec<PlanStep>,
}

/// One partition's move.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct PlanStep {
    pub topic: String,
    pub topic_id: String,
    pub partition: i32,
    pub from: Vec<i32>,
    pub to: Vec<i32>,
    /// To be copied, of all its newcomers together.
    pub bytes: u64,
    pub reason: String,
    /// How far it has come; only in answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<StepProgress>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepProgress {
    Waiting,
    Moving,
    Done,
    /// Somebody else has moved the partition, or deleted it.
    Overtaken,
}

/// What an operator orders. Answered with an empty document when the broker that answers knows of it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// What is `None` stays.
    Mark {
        broker: i32,
        cordoned: Option<bool>,
        draining: Option<bool>,
    },
    Start {
        steps: Vec<PlanStep>,
    },
    End {
        id: u64,
        cancel: bool,
    },
}

impl PlanStep {
    /// Brokers that copy the partition.
    pub fn newcomers(&self) -> impl Iterator<Item = i32> + '_ {
        self.to.iter().copied().filter(|id| !self.from.contains(id))
    }
}
