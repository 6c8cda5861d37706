//! DeleteRecords (key 21, versions 0-2): moves a partition's log start offset up.
//!
//! -1 means the high watermark; beyond it, or below -1, is error 1. The answer names the new start, once it is durable. A topic
//! that is only compacted keeps the last record of each key, so its records are not deleted by offset (44, as Kafka does).

use futures_util::future::join_all;
use thalweg_model::{ErrorCode, LeaderEpoch, Offset};
use thalweg_wire::messages::delete_records::{
    DeleteRecordsPartition, DeleteRecordsPartitionResult, DeleteRecordsTopic, DeleteRecordsTopicResult,
};
use thalweg_wire::messages::{DeleteRecordsRequest, DeleteRecordsResponse};

use super::context::RequestContext;
use super::error_map;
use crate::services::Services;
use crate::shell::owner::Owner;

pub async fn handle(services: &Services, _: &RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse {
    let topics = join_all(request.topics.iter().map(|topic| delete_in(services, topic))).await;
    DeleteRecordsResponse { topics, ..Default::default() }
}

async fn delete_in(services: &Services, topic: &DeleteRecordsTopic) -> DeleteRecordsTopicResult {
    let results = topic.partitions.iter().map(|partition| async {
        let (low_watermark, error) = match delete(services, &topic.name, partition).await {
            Ok(start) => (start, ErrorCode::None),
            Err(error) => (Offset::NONE, error),
        };
        DeleteRecordsPartitionResult {
            partition_index: partition.partition_index,
            low_watermark: low_watermark.0,
            error_code: error.code(),
        }
    });
    DeleteRecordsTopicResult { name: topic.name.clone(), partitions: join_all(results).await }
}

async fn delete(services: &Services, topic: &str, asked: &DeleteRecordsPartition) -> Result<Offset, ErrorCode> {
    let partition = super::leader(services, topic, asked.partition_index, LeaderEpoch::NONE)?;
    if !partition.config().cleanup_policy.delete {
        return Err(ErrorCode::PolicyViolation);
    }
    let wanted = Offset(asked.offset);
    let moved = services.workers().ask(&partition, move |owner: &mut Owner| {
        let high_watermark = owner.replica().high_watermark();
        let until = if wanted == TO_HIGH_WATERMARK { high_watermark } else { wanted };
        if until < Offset::ZERO || until > high_watermark {
            return Err(ErrorCode::OffsetOutOfRange);
        }
        let start = owner.log_mut().advance_log_start(until).map_err(|error| error_map::log(&error))?;
        owner.log_started();
        Ok(start)
    });
    let start = moved.await.map_err(|_| ErrorCode::NotLeaderOrFollower)??;
    services.checkpoint_log_starts(&partition.dir).await?;
    Ok(start)
}

const TO_HIGH_WATERMARK: Offset = Offset(-1);
