//! The documents of the Inspect API. Fields are only ever added, and each has a default: the two ends may be of
//! different versions.

use serde::{Deserialize, Serialize};

/// What a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InspectKind {
    /// A group by id: [`GroupReport`].
    Group,
    /// A topic by name, as far as the broker leads it: [`TopicReport`].
    Topic,
    /// The broker itself: [`NodeReport`].
    Node,
    /// Where replicas lie: [`crate::placement::PlacementReport`].
    Placement,
    /// Carries out the [`crate::placement::Order`] that is the subject; the answer is an empty document.
    Order,
    /// What clients write to and read from partitions that the broker leads: [`TrafficReport`].
    Traffic,
}

impl InspectKind {
    pub const ALL: [InspectKind; 6] = [
        InspectKind::Group,
        InspectKind::Topic,
        InspectKind::Node,
        InspectKind::Placement,
        InspectKind::Order,
        InspectKind::Traffic,
    ];

    /// The number on the wire.
    pub fn code(self) -> i8 {
        match self {
            InspectKind::Group => 1,
            InspectKind::Topic => 2,
            InspectKind::Node => 3,
            InspectKind::Placement => 4,
            InspectKind::Order => 5,
            InspectKind::Traffic => 6,
        }
    }

    /// `None` for one that this version does not know.
    pub fn from_code(code: i8) -> Option<InspectKind> {
        InspectKind::ALL.into_iter().find(|kind| kind.code() == code)
    }
}

/// What a group went through lately.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct GroupReport {
    /// Newest first.
    pub rebalances: Vec<RebalanceReport>,
    pub progress: Vec<ProgressReport>,
    /// Since when the coordinator that leads now has kept this.
    pub journal_age_ms: i64,
}

/// One rebalance. Ages count back from the answer.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct RebalanceReport {
    /// -1 while the barrier is open.
    pub generation_id: i32,
    pub age_ms: i64,
    /// Until all had joined; `None` if it is not over.
    pub barrier_ms: Option<i64>,
    /// From then until all could know their partitions; `None` if it is not over.
    pub assignment_ms: Option<i64>,
    pub restart_count: u32,
    pub protocol: String,
    pub causes: Vec<CauseReport>,
    pub causes_left_out: u32,
    pub members: Vec<MemberReport>,
    /// The first of them.
    pub moved: Vec<MoveReport>,
    pub moved_count: u32,
}

/// Who made a rebalance necessary.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct CauseReport {
    /// joined, joined again, left, session expired, and others.
    pub kind: String,
    pub member: MemberReport,
    /// The client's own words.
    pub reason: String,
    pub age_ms: i64,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct MemberReport {
    pub member_id: String,
    pub instance_id: Option<String>,
    pub client_id: String,
    pub client_host: String,
    pub partition_count: u32,
}

/// A partition that changed hands. An empty member id is nobody.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct MoveReport {
    pub topic: String,
    pub partition: i32,
    pub from: String,
    pub to: String,
}

/// How far a partition's commits came lately.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct ProgressReport {
    pub topic: String,
    pub partition: i32,
    pub records: i64,
    pub over_ms: i64,
    /// Of the last commit.
    pub age_ms: i64,
}

/// What clients do with the partitions that a broker leads, of the last minutes.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct TrafficReport {
    pub partitions: Vec<PartitionTraffic>,
}

/// Bytes of records per second; what replicas copy is not in it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct PartitionTraffic {
    pub topic: String,
    pub partition: i32,
    pub bytes_in: u64,
    pub bytes_out: u64,
}

/// The partitions of a topic that the broker leads.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct TopicReport {
    pub partitions: Vec<PartitionReport>,
    /// Segments that did not fit into the answer.
    pub left_out_count: u64,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct PartitionReport {
    pub partition: i32,
    pub log_start_offset: i64,
    pub high_watermark: i64,
    pub log_end_offset: i64,
    pub segments: Vec<SegmentReport>,
}

/// A segment, and the rule that holds it or lets it go.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct SegmentReport {
    pub base_offset: i64,
    /// Exclusive.
    pub next_offset: i64,
    pub size_bytes: u64,
    /// The largest timestamp in it, as retention sees it.
    pub newest_ms: Option<i64>,
    pub is_active: bool,
    pub is_held: bool,
    /// `retention.ms`, `retention.bytes`, `high watermark`, `delete-records`, `cleanup.policy`, `older segment`, `empty`.
    pub rule: String,
    /// One sentence.
    pub why: String,
    /// When `retention.ms` lets it go, as milliseconds since 1970.
    pub until_ms: Option<i64>,
}

/// What a broker says of itself.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct NodeReport {
    pub node_id: i32,
    pub version: String,
    /// Its clock, milliseconds since 1970.
    pub now_ms: i64,
    pub listeners: Vec<ListenerReport>,
    pub log_dirs: Vec<DirReport>,
    pub open_files: Option<u64>,
    pub open_files_limit: Option<u64>,
    pub clients: Vec<ClientReport>,
    /// Every registered broker and where it says that it can be reached.
    pub brokers: Vec<BrokerReport>,
    /// How whoever asks came here.
    pub asker: ArrivalReport,
    /// How those came that are connected, most connections first.
    pub arrivals: Vec<ArrivalReport>,
    /// Further arrivals that did not fit into the answer.
    pub arrivals_left_out: u64,
}

/// A broker as the cluster knows it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct BrokerReport {
    pub node_id: i32,
    pub is_fenced: bool,
    pub endpoints: Vec<EndpointReport>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct EndpointReport {
    pub listener: String,
    /// host:port.
    pub address: String,
    /// The network whose clients are told this; `None`: all.
    pub clients: Option<String>,
    /// The network of the interface that has this address; `None`: an address that the operator gave.
    pub network: Option<String>,
}

/// Connections that came in the same way, and what their clients are told.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct ArrivalReport {
    pub listener: String,
    /// The client's address, as this broker sees it.
    pub from: String,
    /// This broker's address and port, as the client reached it.
    pub to: String,
    pub connection_count: u64,
    pub told: Vec<ToldReport>,
}

/// Where a client is told that a broker is.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct ToldReport {
    pub node_id: i32,
    /// host:port; `None`: this broker has no such listener, and the client does not hear of it.
    pub address: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct ListenerReport {
    pub name: String,
    /// What it is bound to.
    pub address: String,
    /// What clients are told; `None`: the address that they came in on.
    pub advertised: Option<String>,
    /// What clients of single networks are told instead.
    pub advertised_to: Vec<AdvertisedReport>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct AdvertisedReport {
    /// Such as 10.0.0.0/8.
    pub network: String,
    pub address: String,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct DirReport {
    pub path: String,
    pub is_offline: bool,
    pub free_bytes: Option<u64>,
}

/// One kind of client that has connected since the broker started.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct ClientReport {
    /// As the client calls itself (KIP-511); empty if it does not.
    pub software: String,
    pub version: String,
    pub connection_count: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_of_another_version_is_read() {
        let older: GroupReport = serde_json::from_str("{}").unwrap();
        assert_eq!(older, GroupReport::default());
        let newer: NodeReport = serde_json::from_str(r#"{"node_id":3,"weather":"fine"}"#).unwrap();
        assert_eq!(newer.node_id, 3);
    }

    #[test]
    fn kinds_read_back() {
        for kind in InspectKind::ALL {
            assert_eq!(InspectKind::from_code(kind.code()), Some(kind));
        }
        assert_eq!(InspectKind::from_code(0), None);
    }
}
