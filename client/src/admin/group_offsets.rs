//! Moving a group's offsets from outside.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use thalweg_model::{ErrorCode, Offset, TopicPartition};
use thalweg_wire::messages::leave_group::MemberIdentity;
use thalweg_wire::messages::{LeaveGroupRequest, LeaveGroupResponse, OffsetCommitRequest, OffsetCommitResponse};

use super::Admin;
use super::groups::GroupMember;
use crate::client::Lane;
use crate::consumer::commit_topics;
use crate::error::{ClientError, Result};

impl Admin {
    /// Stores offsets for a group that has no members; others of the group stay.
    ///
    /// # Errors
    /// [`ErrorCode::UnknownMemberId`] if it has members: [`Admin::commit_group_offsets_live`] does it all the same.
    pub async fn commit_group_offsets(&self, group_id: &str, offsets: &BTreeMap<TopicPartition, Offset>) -> Result<()> {
        self.commit_group_offsets_with(group_id, offsets.iter().map(|(tp, offset)| (tp, *offset, ""))).await
    }

    /// As [`Admin::commit_group_offsets`], with the application's text beside each offset.
    ///
    /// # Errors
    /// As there; [`ErrorCode::OffsetMetadataTooLarge`] for a text that the cluster finds too long.
    pub async fn commit_group_offsets_with<'a>(
        &self,
        group_id: &str,
        offsets: impl IntoIterator<Item = (&'a TopicPartition, Offset, &'a str)>,
    ) -> Result<()> {
        let request = commit_request(group_id, offsets);
        let (_, answer) = self.call_coordinator(group_id, &request, COMMIT_VERSION_WITH_NAMES).await?;
        check_commit(group_id, &answer)
    }

    /// Stores offsets under living members: expels them all and commits in the same breath, before any of them is back.
    /// They find out with their next heartbeat, join again and go on from the new offsets; what they commit under their
    /// old generation is refused. Gives how many were expelled.
    ///
    /// # Errors
    /// The group cannot be emptied within the request timeout, or its coordinator does not answer.
    pub async fn commit_group_offsets_live(
        &self,
        group_id: &str,
        offsets: &BTreeMap<TopicPartition, Offset>,
    ) -> Result<usize> {
        let commit = commit_request(group_id, offsets.iter().map(|(tp, offset)| (tp, *offset, "")));
        let deadline = Instant::now() + self.timeout();
        let mut backoff = self.client.backoff();
        let mut expelled_count = 0;
        loop {
            let members = match self.describe_group(group_id).await {
                // Nobody is left, or nobody ever was.
                Err(ClientError::Broker { code: ErrorCode::GroupIdNotFound, .. }) => Vec::new(),
                group => group?.members,
            };
            let (expelled, committed) = self.expel_and_commit(group_id, &members, &commit).await?;
            expelled_count = expelled_count.max(expelled);
            match committed {
                // One was faster: it joined between the two.
                Err(error) if is_members_fault(&error) && Instant::now() < deadline => {
                    tokio::time::sleep(backoff.next(rand::random())).await;
                }
                result => return result.map(|()| expelled_count),
            }
        }
    }

    /// Both requests leave on one connection without waiting between them: a broker carries out a connection's requests
    /// in order.
    async fn expel_and_commit(
        &self,
        group_id: &str,
        members: &[GroupMember],
        commit: &OffsetCommitRequest,
    ) -> Result<(usize, Result<()>)> {
        let identity = |member: &GroupMember| MemberIdentity {
            member_id: member.member_id.clone(),
            group_instance_id: member.group_instance_id.clone(),
            reason: Some("an administrator moves the group's offsets".to_owned()),
        };
        let leave = LeaveGroupRequest {
            group_id: group_id.to_owned(),
            members: members.iter().map(identity).collect(),
            ..LeaveGroupRequest::default()
        };
        let node = self.client.find_group_coordinator(group_id).await?;
        let connection = self.client.connection(node, Lane::Control).await?;
        let leave_version = connection.version_of::<LeaveGroupRequest>(i16::MAX)?;
        if leave_version < LEAVE_VERSION_WITH_MEMBERS {
            return Err(ClientError::InvalidUse {
                what: format!("the broker's LeaveGroup, version {leave_version}, cannot expel members"),
                remedy: "stop the members and move the offsets then".to_owned(),
            });
        }
        let left = match members {
            [] => None,
            _ => Some(connection.submit(&leave, leave_version, Duration::ZERO).await?),
        };
        let version = connection.version_of::<OffsetCommitRequest>(COMMIT_VERSION_WITH_NAMES)?;
        let committed = connection.submit(commit, version, Duration::ZERO).await?;
        let expelled = match left {
            Some(left) => check_leave(group_id, left.wait().await?)?,
            None => 0,
        };
        Ok((expelled, check_commit(group_id, &committed.wait().await?)))
    }
}

/// Gives how many left just now; one that had left before is no error.
fn check_leave(group_id: &str, answer: LeaveGroupResponse) -> Result<usize> {
    ClientError::check(answer.error_code, || format!("group {group_id}"), None)?;
    let mut count = 0;
    for member in answer.members {
        if member.error_code != ErrorCode::UnknownMemberId as i16 {
            ClientError::check(member.error_code, || format!("member {} of group {group_id}", member.member_id), None)?;
            count += 1;
        }
    }
    Ok(count)
}

fn is_members_fault(error: &ClientError) -> bool {
    let codes = [ErrorCode::UnknownMemberId, ErrorCode::IllegalGeneration, ErrorCode::RebalanceInProgress];
    error.code().is_some_and(|code| codes.contains(&code)) || error.is_retriable()
}

fn commit_request<'a>(
    group_id: &str,
    offsets: impl IntoIterator<Item = (&'a TopicPartition, Offset, &'a str)>,
) -> OffsetCommitRequest {
    OffsetCommitRequest {
        group_id: group_id.to_owned(),
        generation_id_or_member_epoch: -1,
        topics: commit_topics(offsets),
        ..OffsetCommitRequest::default()
    }
}

fn check_commit(group_id: &str, answer: &OffsetCommitResponse) -> Result<()> {
    for topic in &answer.topics {
        for p in &topic.partitions {
            let subject = || format!("offset of {}-{} in group {group_id}", topic.name, p.partition_index);
            ClientError::check(p.error_code, subject, None)?;
        }
    }
    Ok(())
}

/// Later versions name topics by id.
const COMMIT_VERSION_WITH_NAMES: i16 = 9;
const LEAVE_VERSION_WITH_MEMBERS: i16 = 3;
