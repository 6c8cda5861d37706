//! AlterReplicaLogDirs (key 34, versions 1-2): in which of its directories this broker should keep replicas.
//!
//! Replicas do not move between directories here, so what is asked for is granted where it is so already, which with one
//! directory is always, and refused (42) where it would be a move. A directory that is not one of the broker's is 57, one
//! that is offline 56, a partition that does not exist 3, one without a replica here 9: as in Kafka, whose tool asks again
//! after 9 until a replica that is on its way has come.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf, absolute};

use thalweg_model::{ErrorCode, PartitionIndex};
use thalweg_wire::messages::alter_replica_log_dirs::{
    AlterReplicaLogDirPartitionResult, AlterReplicaLogDirTopicResult,
};
use thalweg_wire::messages::{AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse};

use super::context::RequestContext;
use crate::services::Services;

pub async fn handle(
    services: &Services,
    _: &RequestContext,
    request: AlterReplicaLogDirsRequest,
) -> AlterReplicaLogDirsResponse {
    // A partition that is named for two directories is meant for the last, and answered once.
    let mut wanted: BTreeMap<String, BTreeMap<i32, String>> = BTreeMap::new();
    for dir in request.dirs {
        for topic in dir.topics {
            let of_topic = wanted.entry(topic.name).or_default();
            of_topic.extend(topic.partitions.into_iter().map(|index| (index, dir.path.clone())));
        }
    }
    let results = wanted.into_iter().map(|(topic_name, partitions)| {
        let result = |(index, path): (i32, String)| {
            let code = verdict(services, &topic_name, PartitionIndex(index), &path);
            AlterReplicaLogDirPartitionResult { partition_index: index, error_code: code.code() }
        };
        let partitions = partitions.into_iter().map(result).collect();
        AlterReplicaLogDirTopicResult { topic_name, partitions }
    });
    AlterReplicaLogDirsResponse { results: results.collect(), ..Default::default() }
}

fn verdict(services: &Services, topic: &str, index: PartitionIndex, path: &str) -> ErrorCode {
    let is_meant = |dir: &&PathBuf| absolute(dir).is_ok_and(|dir| dir == Path::new(path));
    let Some(dir) = services.config.log_dirs.iter().find(is_meant) else {
        return ErrorCode::LogDirNotFound;
    };
    let works = services.dirs().and_then(|dirs| dirs.at(dir)).is_some_and(|dir| !dir.is_offline());
    if !works {
        return ErrorCode::KafkaStorageError;
    }
    match services.partitions.partition(topic, index) {
        Some(partition) if partition.dir == *dir => ErrorCode::None,
        Some(_) => ErrorCode::InvalidRequest,
        None => match services.absent(topic, index) {
            ErrorCode::NotLeaderOrFollower => ErrorCode::ReplicaNotAvailable,
            other => other,
        },
    }
}
