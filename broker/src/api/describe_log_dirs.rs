//! DescribeLogDirs (key 35, versions 1-4): sizes of partitions per log directory.
//!
//! Topics null asks for all. A directory whose disk failed is error 56. Version 4 tells how large the volume is and how
//! much it still takes (KIP-827).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use thalweg_model::ErrorCode;
use thalweg_wire::messages::describe_log_dirs::{
    DescribableLogDirTopic, DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use thalweg_wire::messages::{DescribeLogDirsRequest, DescribeLogDirsResponse};

use super::context::RequestContext;
use crate::services::Services;
use crate::shell::partitions::Partition;

pub async fn handle(
    services: &Services,
    _: &RequestContext,
    request: DescribeLogDirsRequest,
) -> DescribeLogDirsResponse {
    let asked = request.topics.map(Asked::from_request);
    let wanted = |partition: &Arc<Partition>| asked.as_ref().is_none_or(|asked| asked.contains(partition));
    let mut partitions: Vec<_> = services.partitions.all().into_iter().filter(wanted).collect();
    partitions.sort_by(|a, b| (&a.topic, a.index).cmp(&(&b.topic, b.index)));
    let mut results = Vec::with_capacity(services.config.log_dirs.len());
    for path in &services.config.log_dirs {
        results.push(directory(services, path, &partitions).await);
    }
    DescribeLogDirsResponse { results, ..Default::default() }
}

async fn directory(services: &Services, path: &Path, partitions: &[Arc<Partition>]) -> DescribeLogDirsResult {
    // Kafka shows absolute paths.
    let log_dir = std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string();
    let works = services.dirs().and_then(|dirs| dirs.at(path)).is_some_and(|dir| !dir.is_offline());
    if !works {
        return DescribeLogDirsResult {
            error_code: ErrorCode::KafkaStorageError.code(),
            log_dir,
            ..Default::default()
        };
    }
    let (total_bytes, usable_bytes) = space(services, path).await;
    let here = partitions.iter().filter(|partition| partition.dir == path);
    DescribeLogDirsResult {
        log_dir,
        topics: topics(here.map(Arc::as_ref)),
        total_bytes,
        usable_bytes,
        ..Default::default()
    }
}

/// `partitions` in the order of topics.
fn topics<'a>(partitions: impl Iterator<Item = &'a Partition>) -> Vec<DescribeLogDirsTopic> {
    let mut topics: Vec<DescribeLogDirsTopic> = Vec::new();
    for partition in partitions {
        let view = partition.view();
        let entry = DescribeLogDirsPartition {
            partition_index: partition.index.0,
            partition_size: i64::try_from(view.size_bytes()).unwrap_or(i64::MAX),
            offset_lag: (partition.high_watermark().0 - view.log_end_offset().0).max(0),
            is_future_key: false,
        };
        match topics.last_mut() {
            Some(last) if last.name == partition.topic.as_str() => last.partitions.push(entry),
            Some(_) | None => {
                topics.push(DescribeLogDirsTopic { name: partition.topic.to_string(), partitions: vec![entry] });
            }
        }
    }
    topics
}

/// Of the volume, all and free. Asked off this thread: a stalled volume takes its time. -1 where it does not say.
async fn space(services: &Services, path: &Path) -> (i64, i64) {
    let Some(dirs) = services.dirs().map(Arc::clone) else { return (-1, -1) };
    let path = path.to_owned();
    let asked = tokio::task::spawn_blocking(move || (dirs.total_bytes(&path), dirs.free_bytes(&path))).await;
    let told = |bytes: Option<u64>| bytes.map_or(-1, |bytes| i64::try_from(bytes).unwrap_or(i64::MAX));
    asked.map_or((-1, -1), |(total, free)| (told(total), told(free)))
}

/// The partitions that a request names.
struct Asked(BTreeMap<String, BTreeSet<i32>>);

impl Asked {
    fn from_request(topics: Vec<DescribableLogDirTopic>) -> Asked {
        let mut asked = Asked(BTreeMap::new());
        for topic in topics {
            asked.0.entry(topic.topic).or_default().extend(topic.partitions);
        }
        asked
    }

    fn contains(&self, partition: &Partition) -> bool {
        self.0.get(partition.topic.as_str()).is_some_and(|indexes| indexes.contains(&partition.index.0))
    }
}
