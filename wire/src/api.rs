//! The one table of Kafka APIs: keys, names, versions known and versions served.

use std::fmt;
use std::ops::RangeInclusive;

macro_rules! apis {
    ($(
        $(#[$meta:meta])*
        $key:literal $name:ident known $known:expr, flexible $flexible:expr $(, served $served:expr)?;
    )+) => {
        /// A Kafka API that this crate can read and write.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(i16)]
        pub enum ApiKey {
            $($(#[$meta])* $name = $key,)+
        }

        impl ApiKey {
            /// Every key, ascending.
            pub const ALL: &[ApiKey] = &[$(ApiKey::$name),+];

            /// `None` for a key that is not in the table.
            pub fn from_code(code: i16) -> Option<ApiKey> {
                match code {
                    $($key => Some(ApiKey::$name),)+
                    _ => None,
                }
            }

            /// Kafka's name, such as `OffsetForLeaderEpoch`.
            pub fn name(self) -> &'static str {
                match self {
                    $(ApiKey::$name => stringify!($name),)+
                }
            }

            /// The versions that can be read and written: Kafka 4.4's.
            pub fn known_versions(self) -> RangeInclusive<i16> {
                match self {
                    $(ApiKey::$name => $known,)+
                }
            }

            /// The first version with compact lengths and tagged fields; `i16::MAX` for none.
            pub fn flexible_from(self) -> i16 {
                match self {
                    $(ApiKey::$name => $flexible,)+
                }
            }

            /// What the broker lists in ApiVersions; `None` if it does not serve the API.
            ///
            /// Every version in a range is implemented. Maxima rise later, minima never.
            pub fn advertised_versions(self) -> Option<RangeInclusive<i16>> {
                match self {
                    $(ApiKey::$name => none_or!($($served)?),)+
                }
            }
        }
    };
}

macro_rules! none_or {
    () => {
        None
    };
    ($value:expr) => {
        Some($value)
    };
}

apis! {
    /// Listed from 0 because old librdkafka compresses only then (KAFKA-18659); 0-2 are refused all the same.
    /// 12 and 13 come with transactions of the second kind (KIP-890).
    0 Produce known 3..=13, flexible 9, served 0..=11;
    1 Fetch known 4..=18, flexible 12, served 4..=18;
    2 ListOffsets known 1..=11, flexible 6, served 1..=10;
    3 Metadata known 0..=13, flexible 9, served 0..=13;
    /// 10 commits by topic id.
    8 OffsetCommit known 2..=10, flexible 8, served 2..=9;
    9 OffsetFetch known 1..=10, flexible 6, served 1..=9;
    /// Old librdkafka looks here before it uses lz4.
    10 FindCoordinator known 0..=6, flexible 3, served 0..=6;
    11 JoinGroup known 0..=9, flexible 6, served 0..=9;
    12 Heartbeat known 0..=4, flexible 4, served 0..=4;
    13 LeaveGroup known 0..=5, flexible 4, served 0..=5;
    14 SyncGroup known 0..=5, flexible 4, served 0..=5;
    15 DescribeGroups known 0..=6, flexible 5, served 0..=6;
    16 ListGroups known 0..=5, flexible 3, served 0..=5;
    17 SaslHandshake known 0..=1, flexible i16::MAX;
    /// The response's header is version 0 always.
    18 ApiVersions known 0..=5, flexible 3, served 0..=4;
    19 CreateTopics known 2..=7, flexible 5, served 2..=7;
    20 DeleteTopics known 1..=6, flexible 4, served 1..=6;
    21 DeleteRecords known 0..=2, flexible 2, served 0..=2;
    /// Kafka marks 6 as unstable.
    22 InitProducerId known 0..=5, flexible 2, served 0..=4;
    23 OffsetForLeaderEpoch known 2..=4, flexible 4, served 2..=4;
    24 AddPartitionsToTxn known 0..=5, flexible 3;
    25 AddOffsetsToTxn known 0..=4, flexible 3;
    26 EndTxn known 0..=5, flexible 3;
    27 WriteTxnMarkers known 1..=2, flexible 1;
    28 TxnOffsetCommit known 0..=6, flexible 3;
    32 DescribeConfigs known 1..=4, flexible 4, served 1..=4;
    33 AlterConfigs known 0..=2, flexible 2, served 0..=2;
    34 AlterReplicaLogDirs known 1..=2, flexible 2, served 1..=2;
    35 DescribeLogDirs known 1..=5, flexible 2, served 1..=4;
    36 SaslAuthenticate known 0..=2, flexible 2;
    37 CreatePartitions known 0..=3, flexible 2, served 0..=3;
    42 DeleteGroups known 0..=3, flexible 2, served 0..=2;
    43 ElectLeaders known 0..=2, flexible 2, served 0..=2;
    44 IncrementalAlterConfigs known 0..=1, flexible 1, served 0..=1;
    45 AlterPartitionReassignments known 0..=1, flexible 0, served 0..=1;
    46 ListPartitionReassignments known 0..=0, flexible 0, served 0..=0;
    47 OffsetDelete known 0..=0, flexible i16::MAX, served 0..=0;
    55 DescribeQuorum known 0..=2, flexible 0, served 0..=2;
    57 UpdateFeatures known 0..=2, flexible 0, served 0..=2;
    60 DescribeCluster known 0..=2, flexible 0, served 0..=2;
    61 DescribeProducers known 0..=0, flexible 0, served 0..=0;
    64 UnregisterBroker known 0..=0, flexible 0, served 0..=0;
    65 DescribeTransactions known 0..=0, flexible 0;
    66 ListTransactions known 0..=2, flexible 0;
    68 ConsumerGroupHeartbeat known 0..=1, flexible 0;
    69 ConsumerGroupDescribe known 0..=1, flexible 0;
    74 ListConfigResources known 0..=1, flexible 0, served 0..=1;
    75 DescribeTopicPartitions known 0..=0, flexible 0, served 0..=0;
    /// Ours, far above Kafka's keys; listed to our own client only.
    1000 Inspect known 0..=0, flexible 0, served 0..=0;
}

impl ApiKey {
    /// The number on the wire.
    pub fn code(self) -> i16 {
        self as i16
    }

    /// What the broker answers: advertised and readable. `None` if it does not serve the API.
    pub fn accepted_versions(self) -> Option<RangeInclusive<i16>> {
        let advertised = self.advertised_versions()?;
        Some(*advertised.start().max(self.known_versions().start())..=*advertised.end())
    }

    /// Whether the broker answers this version; for any other but ApiVersions it closes the connection.
    pub fn accepts(self, version: i16) -> bool {
        self.accepted_versions().is_some_and(|versions| versions.contains(&version))
    }

    /// Whether Kafka does not know it: then only our own client is told of it.
    pub fn is_private(self) -> bool {
        self == ApiKey::Inspect
    }

    /// Whether `version` has compact lengths and tagged fields.
    pub fn is_flexible(self, version: i16) -> bool {
        version >= self.flexible_from()
    }

    /// 2 for flexible versions, else 1. (0, without client id, was for versions that are gone.)
    pub fn request_header_version(self, version: i16) -> i16 {
        if self.is_flexible(version) { 2 } else { 1 }
    }

    /// 1 for flexible versions, else 0; 0 always for ApiVersions, so that any client can read it (KIP-511).
    pub fn response_header_version(self, version: i16) -> i16 {
        i16::from(self.is_flexible(version) && self != ApiKey::ApiVersions)
    }
}

impl fmt::Display for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages;

    #[test]
    fn the_table_agrees_with_the_messages() {
        for key in ApiKey::ALL {
            let found: Vec<_> = messages::all().into_iter().filter(|info| info.key == *key).collect();
            assert_eq!(found.iter().map(|info| info.is_request).collect::<Vec<_>>(), [true, false], "{key}");
            for info in found {
                assert_eq!(info.version_min..=info.version_max, key.known_versions(), "{}", info.name);
                assert_eq!(info.flexible_from, key.flexible_from(), "{}", info.name);
            }
        }
    }

    /// Kafka clients break on a hole in a range and on a range outside what we can read.
    #[test]
    fn served_versions_are_known_except_for_produce_0_to_2() {
        for key in ApiKey::ALL {
            let Some(advertised) = key.advertised_versions() else { continue };
            let known = key.known_versions();
            assert!(advertised.end() <= known.end(), "{key}");
            let lowest = if *key == ApiKey::Produce { 0 } else { *known.start() };
            assert_eq!(*advertised.start(), lowest, "{key}");
        }
        assert_eq!(ApiKey::Produce.accepted_versions(), Some(3..=11));
        assert!(!ApiKey::Produce.accepts(2) && !ApiKey::Produce.accepts(12) && ApiKey::Produce.accepts(3));
    }

    #[test]
    fn keys_ascend_and_read_back() {
        assert!(ApiKey::ALL.windows(2).all(|pair| pair[0] < pair[1]));
        for key in ApiKey::ALL {
            assert_eq!(ApiKey::from_code(key.code()), Some(*key));
        }
        assert_eq!(ApiKey::from_code(4), None);
        assert_eq!(ApiKey::from_code(-1), None);
    }

    #[test]
    fn api_versions_answers_have_header_0_in_every_version() {
        for version in 0..=5 {
            assert_eq!(ApiKey::ApiVersions.response_header_version(version), 0);
        }
        assert_eq!(ApiKey::ApiVersions.request_header_version(3), 2);
        assert_eq!(ApiKey::Metadata.response_header_version(9), 1);
        assert_eq!(ApiKey::Metadata.response_header_version(8), 0);
        assert_eq!(ApiKey::SaslHandshake.request_header_version(1), 1);
    }
}
