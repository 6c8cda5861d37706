//! Inspect (key 1000, version 0): Thalweg's own. What operators ask and no Kafka API answers, as JSON
//! (docs/decisions/0004): what a group went through, why a topic's segments are kept, what the broker says of itself,
//! where replicas lie, and orders about that.
//!
//! Listed to our own client only, so that no Kafka client meets a key that it does not know.

use serde_json::json;
use thalweg_model::{ErrorCode, Timestamp};
use thalweg_proto::v1;
use thalweg_storage::retention::{DeleteReason, KeepReason, SegmentAge, Verdict};
use thalweg_storage::{LogConfig, LogError};
use thalweg_wire::inspect::{
    CauseReport, GroupReport, InspectKind, MemberReport, MoveReport, PartitionReport, PartitionTraffic, ProgressReport,
    RebalanceReport, SegmentReport, TopicReport, TrafficReport,
};
use thalweg_wire::messages::{InspectRequest, InspectResponse};

use super::context::RequestContext;
use super::group_gateway::code_and_message;
use super::{inspect_node, inspect_placement};
use crate::services::Services;
use crate::shell::owner::Owner;
use crate::shell::partitions::Partition;

pub async fn handle(services: &Services, cx: &RequestContext, request: InspectRequest) -> InspectResponse {
    let answer = match InspectKind::from_code(request.kind) {
        Some(InspectKind::Group) => group(services, request.subject).await.map(|report| json!(report)),
        Some(InspectKind::Topic) => topic(services, &request.subject).await.map(|report| json!(report)),
        Some(InspectKind::Placement) => Ok(json!(inspect_placement::report(services))),
        Some(InspectKind::Order) => inspect_placement::carry_out(services, &request.subject)
            .await
            .map(|()| json!({}))
            .map_err(|(code, message)| (code, Some(message))),
        Some(InspectKind::Traffic) => Ok(json!(traffic(services))),
        Some(InspectKind::Node) => Ok(json!(inspect_node::report(services, cx))),
        None => Err((ErrorCode::InvalidRequest, Some(format!("nothing is known of kind {}", request.kind)))),
    };
    match answer {
        Ok(document) => InspectResponse { document: document.to_string(), ..InspectResponse::default() },
        Err((code, error_message)) => {
            InspectResponse { error_code: code.code(), error_message, ..InspectResponse::default() }
        }
    }
}

fn traffic(services: &Services) -> TrafficReport {
    let leading = services.partitions.all().into_iter().filter(|partition| partition.leader_epoch().is_some());
    let told = leading.filter_map(|partition| {
        let (bytes_in, bytes_out) = partition.bytes_per_second();
        let (topic, partition) = (partition.topic.to_string(), partition.index.0);
        (bytes_in + bytes_out > 0).then_some(PartitionTraffic { topic, partition, bytes_in, bytes_out })
    });
    TrafficReport { partitions: told.collect() }
}

type Refused = (ErrorCode, Option<String>);

async fn group(services: &Services, group_id: String) -> Result<GroupReport, Refused> {
    let answer = services.groups.explain(v1::ExplainRequest { group_id }).await.map_err(|code| (code, None))?;
    let (code, message) = code_and_message(answer.error.as_ref());
    if code.is_error() {
        return Err((code, message));
    }
    let progress = |one: v1::CommitProgress| ProgressReport {
        topic: one.topic,
        partition: one.partition,
        records: one.records,
        over_ms: one.over_ms,
        age_ms: one.age_ms,
    };
    Ok(GroupReport {
        rebalances: answer.rebalances.into_iter().map(rebalance).collect(),
        progress: answer.progress.into_iter().map(progress).collect(),
        journal_age_ms: answer.journal_age_ms,
    })
}

fn rebalance(one: v1::Rebalance) -> RebalanceReport {
    let known = |ms: i64| (ms >= 0).then_some(ms);
    let cause = |cause: v1::RebalanceCause| CauseReport {
        kind: cause.kind,
        member: MemberReport {
            member_id: cause.member_id,
            instance_id: cause.instance_id,
            client_id: cause.client_id,
            client_host: cause.client_host,
            partition_count: 0,
        },
        reason: cause.reason,
        age_ms: cause.age_ms,
    };
    let member = |member: v1::RebalanceMember| MemberReport {
        member_id: member.member_id,
        instance_id: member.instance_id,
        client_id: member.client_id,
        client_host: member.client_host,
        partition_count: member.partition_count,
    };
    let moved = |moved: v1::MovedPartition| MoveReport {
        topic: moved.topic,
        partition: moved.partition,
        from: moved.from,
        to: moved.to,
    };
    RebalanceReport {
        generation_id: one.generation_id,
        age_ms: one.age_ms,
        barrier_ms: known(one.barrier_ms),
        assignment_ms: known(one.assignment_ms),
        restart_count: one.restart_count,
        protocol: one.protocol,
        causes: one.causes.into_iter().map(cause).collect(),
        causes_left_out: one.causes_left_out,
        members: one.members.into_iter().map(member).collect(),
        moved: one.moved.into_iter().map(moved).collect(),
        moved_count: one.moved_count,
    }
}

async fn topic(services: &Services, name: &str) -> Result<TopicReport, Refused> {
    if services.image().topic(name).is_none() {
        return Err((ErrorCode::UnknownTopicOrPartition, None));
    }
    let now = services.clock.wall();
    let mut report = TopicReport::default();
    let mut room = SEGMENTS_MAX;
    let mut led: Vec<_> = services.partitions.all();
    led.retain(|partition| partition.topic.as_str() == name && partition.leader_epoch().is_some());
    led.sort_by_key(|partition| partition.index);
    for partition in led {
        let asked = services.workers().ask(&partition, move |owner: &mut Owner| {
            let high_watermark = owner.replica().high_watermark();
            let segments = owner.log().explain_retention(now, high_watermark)?;
            Ok::<_, LogError>((segments, owner.log().config().clone()))
        });
        let Ok(Ok((segments, config))) = asked.await else {
            return Err((ErrorCode::KafkaStorageError, Some(format!("{} cannot be read", partition.tp()))));
        };
        report.left_out_count += segments.len().saturating_sub(room) as u64;
        report.partitions.push(partition_report(&partition, &segments, &config, &mut room));
    }
    Ok(report)
}

fn partition_report(
    partition: &Partition,
    segments: &[(SegmentAge, Verdict)],
    config: &LogConfig,
    room: &mut usize,
) -> PartitionReport {
    let view = partition.view();
    let active = segments.len().saturating_sub(1);
    let shown = segments.iter().enumerate().take(*room);
    let segments: Vec<SegmentReport> =
        shown.map(|(i, (age, verdict))| segment_report(age, *verdict, i == active, config)).collect();
    *room -= segments.len();
    PartitionReport {
        partition: partition.index.0,
        log_start_offset: view.log_start_offset().0,
        high_watermark: partition.high_watermark().0,
        log_end_offset: view.log_end_offset().0,
        segments,
    }
}

fn segment_report(age: &SegmentAge, verdict: Verdict, is_active: bool, config: &LogConfig) -> SegmentReport {
    let (is_held, rule, why) = match verdict {
        Verdict::Goes(reason) => (false, delete_rule(reason), format!("goes at the next look: {reason}")),
        Verdict::Behind(reason) => (
            true,
            "older segment",
            format!("an older segment is held, and logs shrink from the front; by itself it could go: {reason}"),
        ),
        Verdict::Held(reason @ KeepReason::AboveHighWatermark { .. }) => (true, "high watermark", reason.to_string()),
        Verdict::Held(KeepReason::Empty) => (true, "empty", "there is nothing in it".to_owned()),
        Verdict::Held(KeepReason::NotDeleting) => {
            (true, "cleanup.policy", "cleanup.policy does not contain delete: nothing goes by age or size".to_owned())
        }
        Verdict::Held(KeepReason::WithinLimits { age_ms, log_bytes }) => within(age_ms, log_bytes, age, config),
    };
    let until = |newest: Timestamp| newest.0.saturating_add(config.retention_ms);
    let ends_by_age = rule == "retention.ms" && is_held && config.retention_ms >= 0;
    SegmentReport {
        base_offset: age.base_offset.0,
        next_offset: age.next_offset.0,
        size_bytes: age.size_bytes,
        newest_ms: age.newest.map(|newest| newest.0),
        is_active,
        is_held,
        rule: rule.to_owned(),
        why,
        until_ms: age.newest.filter(|_| ends_by_age).map(until),
    }
}

fn delete_rule(reason: DeleteReason) -> &'static str {
    match reason {
        DeleteReason::RetentionMs { .. } => "retention.ms",
        DeleteReason::RetentionBytes { .. } => "retention.bytes",
        DeleteReason::LogStart { .. } => "delete-records",
    }
}

/// Held by the limit that is reached first, as far as that can be said: by age if there is a limit, else by size.
fn within(age_ms: Option<i64>, log_bytes: u64, age: &SegmentAge, config: &LogConfig) -> (bool, &'static str, String) {
    let by_size = match u64::try_from(config.retention_bytes) {
        Ok(limit) => {
            let missing = limit.saturating_sub(log_bytes - age.size_bytes);
            format!("retention.bytes={limit} lets it go after {missing} more bytes")
        }
        Err(_) => "retention.bytes is not set".to_owned(),
    };
    match age_ms {
        Some(age_ms) if config.retention_ms >= 0 => {
            let why = format!("its newest record is {age_ms} ms old, retention.ms={}; {by_size}", config.retention_ms);
            (true, "retention.ms", why)
        }
        Some(_) if config.retention_bytes < 0 => {
            (true, "retention.ms", format!("retention.ms=-1 keeps it for ever; {by_size}"))
        }
        Some(_) => (true, "retention.bytes", format!("retention.ms=-1; {by_size}")),
        None => (true, "retention.ms", format!("its age is not known; {by_size}")),
    }
}

const SEGMENTS_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use thalweg_model::Offset;

    use super::*;

    fn report(verdict: Verdict, config: &LogConfig) -> SegmentReport {
        let age = SegmentAge {
            base_offset: Offset(0),
            next_offset: Offset(10),
            size_bytes: 100,
            newest: Some(Timestamp(5_000)),
        };
        segment_report(&age, verdict, false, config)
    }

    #[test]
    fn a_held_segment_names_its_rule_and_when_that_ends() {
        let held = Verdict::Held(KeepReason::WithinLimits { age_ms: Some(1_000), log_bytes: 300 });
        let of = |retention_ms, retention_bytes| {
            let config = LogConfig { retention_ms, retention_bytes, ..LogConfig::default() };
            let report = report(held, &config);
            (report.rule, report.until_ms, report.why)
        };
        let (rule, until_ms, why) = of(60_000, 500);
        assert_eq!((rule.as_str(), until_ms), ("retention.ms", Some(65_000)));
        assert!(why.contains("after 300 more bytes"), "{why}");
        let (rule, until_ms, _) = of(-1, 500);
        assert_eq!((rule.as_str(), until_ms), ("retention.bytes", None));
        let (rule, until_ms, why) = of(-1, -1);
        assert_eq!((rule.as_str(), until_ms), ("retention.ms", None));
        assert!(why.contains("for ever"), "{why}");
        let gone = Verdict::Goes(DeleteReason::LogStart { log_start_offset: Offset(10) });
        let report = report(gone, &LogConfig::default());
        assert_eq!((report.is_held, report.rule.as_str(), report.until_ms), (false, "delete-records", None));
    }
}
