//! Commits and what becomes of offsets and empty groups.

use super::*;

impl Leader {
    fn commit_as(&mut self, member_id: &str, generation_id: i32, offsets: &[(i32, i64, &str)]) -> Vec<i32> {
        let offsets = offsets.iter().map(|(partition, offset, metadata)| CommitOffset {
            topic: "t".to_owned(),
            partition: *partition,
            offset: *offset,
            leader_epoch: 3,
            metadata: (*metadata).to_owned(),
        });
        let commit = GroupCommit {
            group_id: GROUP.to_owned(),
            generation_id,
            member_id: member_id.to_owned(),
            instance_id: None,
            offsets: offsets.collect(),
        };
        let ticket = self.call(Call::Commit(CommitRequest { groups: vec![commit] }));
        match self.reply(ticket) {
            Reply::Commit(answer) => answer.groups[0].errors.iter().map(|error| error.code).collect(),
            other => panic!("{other:?}"),
        }
    }

    fn commit(&mut self, member: &JoinResponse) -> i32 {
        self.commit_as(&member.member_id, member.generation_id, &[(0, 5, "")])[0]
    }

    fn offset(&self, partition: i32) -> Option<(i64, &str)> {
        let committed = self.machine.state().offset(GROUP, "t", partition)?;
        Some((committed.offset, committed.metadata.as_str()))
    }

    fn delete_group(&mut self) -> i32 {
        let ticket = self.call(Call::Delete(DeleteRequest { group_ids: vec![GROUP.to_owned()] }));
        match self.reply(ticket) {
            Reply::Delete(answer) => answer.groups[0].error.as_ref().unwrap().code,
            other => panic!("{other:?}"),
        }
    }

    fn delete_offsets(&mut self, partitions: &[i32]) -> (i32, Vec<i32>) {
        let topics =
            vec![TopicPartitions { topic: "t".to_owned(), partitions: partitions.to_vec(), ..Default::default() }];
        let request = DeleteOffsetsRequest { group_id: GROUP.to_owned(), topics };
        let ticket = self.call(Call::DeleteOffsets(request));
        match self.reply(ticket) {
            Reply::DeleteOffsets(answer) => {
                (code(&answer.error), answer.offsets.iter().map(|offset| code(&offset.error)).collect())
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Case 65.
#[test]
fn offsets_and_metadata_are_kept_as_committed() {
    let mut leader = Leader::new();
    leader.with_topic();
    let one = leader.stable_one();
    assert_eq!(leader.commit_as(&one.member_id, 1, &[(0, 7, "one"), (1, 8, ""), (2, 9, "")]), [0, 0, 3]);
    assert_eq!((leader.offset(0), leader.offset(1), leader.offset(2)), (Some((7, "one")), Some((8, "")), None));
    let long = "x".repeat(4_097);
    assert_eq!(leader.commit_as(&one.member_id, 1, &[(0, 10, &long), (1, 11, "")]), [12, 0]);
    assert_eq!((leader.offset(0), leader.offset(1)), (Some((7, "one")), Some((11, ""))));
}

/// Case 63.
#[test]
fn a_commit_by_who_left_or_of_another_generation_is_refused() {
    let mut leader = Leader::new();
    leader.with_topic();
    let one = leader.stable_one();
    assert_eq!(leader.commit_as(&one.member_id, 0, &[(0, 1, "")]), [22]);
    assert_eq!(leader.commit_as("nobody", 1, &[(0, 1, "")]), [25]);
    assert_eq!(leader.commit_as("", -1, &[(0, 1, "")]), [25], "the group has members");
    leader.pass_ms(SESSION_MS as u64);
    assert_eq!(leader.describe().state, "Empty");
    assert_eq!(leader.commit(&one), 25);
    assert_eq!(leader.offset(0), None);
}

#[test]
fn a_commit_counts_until_the_barrier_closes_and_waits_for_the_assignment() {
    let mut leader = Leader::new();
    leader.with_topic();
    let one = leader.stable_one();
    let two = leader.enter("two");
    assert_eq!(leader.commit(&one), 0, "preparing");
    let again = leader.join(joining(&one.member_id, "one"));
    let (joined, _) = (leader.joined(again), leader.joined(two));
    assert_eq!(leader.commit(&joined), 27, "completing");
    assert_eq!(leader.commit(&one), 22, "of the generation before");
}

#[test]
fn a_commit_that_raft_overtakes_by_a_generation_does_not_count() {
    let mut leader = Leader::new();
    leader.with_topic();
    let one = leader.stable_one();
    leader.hold = true;
    let again = leader.join(joining(&one.member_id, "one"));
    let commit = GroupCommit {
        group_id: GROUP.into(),
        generation_id: 1,
        member_id: one.member_id.clone(),
        instance_id: None,
        offsets: vec![CommitOffset { topic: "t".into(), offset: 4, ..CommitOffset::default() }],
    };
    let ticket = leader.call(Call::Commit(CommitRequest { groups: vec![commit] }));
    leader.release();
    assert_eq!(leader.joined(again).generation_id, 2);
    let Reply::Commit(answer) = leader.reply(ticket) else { panic!() };
    assert_eq!(answer.groups[0].errors[0].code, 22);
    assert_eq!(leader.offset(0), None);
}

#[test]
fn a_commit_is_a_sign_of_life() {
    let mut leader = Leader::new();
    leader.with_topic();
    let one = leader.stable_one();
    for _ in 0..5 {
        leader.pass_ms(SESSION_MS as u64 - 1);
        assert_eq!(leader.commit(&one), 0);
    }
}

#[test]
fn who_is_no_member_commits_only_to_a_group_without_members() {
    let mut leader = Leader::new();
    leader.with_topic();
    assert_eq!(leader.commit_as("", 3, &[(0, 1, "")]), [22], "there are no generations");
    assert_eq!(leader.commit_as("", -1, &[(0, 42, "")]), [0]);
    assert_eq!(leader.describe().state, "Empty");
    assert_eq!(leader.describe().protocol_type, "");
    let one = leader.stable_one();
    assert_eq!(leader.commit_as("", -1, &[(0, 1, "")]), [25]);
    assert_eq!(leader.leave(&one.member_id, None), 0);
    assert_eq!(leader.commit_as("", -1, &[(0, 43, "")]), [0]);
    assert_eq!(leader.offset(0), Some((43, "")));
}

#[test]
fn many_groups_commit_in_one_call_and_each_stands_alone() {
    let mut leader = Leader::new();
    leader.with_topic();
    let commit = |group: &str, generation_id: i32, topic: &str| GroupCommit {
        group_id: group.into(),
        generation_id,
        offsets: vec![CommitOffset { topic: topic.into(), offset: 1, ..CommitOffset::default() }],
        ..GroupCommit::default()
    };
    let groups = vec![commit("a", -1, "t"), commit("", -1, "t"), commit("b", 5, "t"), commit("c", -1, "none")];
    let ticket = leader.call(Call::Commit(CommitRequest { groups }));
    let Reply::Commit(answer) = leader.reply(ticket) else { panic!() };
    let codes: Vec<i32> = answer.groups.iter().map(|group| group.errors[0].code).collect();
    assert_eq!(codes, [0, 24, 22, 3]);
    assert!(leader.machine.state().group("c").is_none(), "a commit of nothing makes no group");
}

/// Case 69.
#[test]
fn offsets_go_with_their_topic_and_the_group_lives_on() {
    let mut leader = Leader::new();
    leader.with_topic();
    let one = leader.stable_one();
    assert_eq!(leader.commit(&one), 0);
    let topic = TopicRef { name: "t".into(), ..TopicRef::default() };
    leader.apply(&command(v1::command::Kind::DeleteTopics(DeleteTopics { topics: vec![topic] })));
    assert_eq!(leader.offset(0), None);
    assert_eq!(leader.heartbeat(&one), 0);
    assert_eq!(leader.commit(&one), 3);
    assert_eq!(leader.leave(&one.member_id, None), 0);
}

#[test]
fn a_group_is_deleted_only_when_it_is_empty() {
    let mut leader = Leader::new();
    leader.with_topic();
    assert_eq!(leader.delete_group(), 69);
    let one = leader.stable_one();
    leader.commit(&one);
    assert_eq!(leader.delete_group(), 68);
    leader.leave(&one.member_id, None);
    assert_eq!(leader.delete_group(), 0);
    assert_eq!((code(&leader.describe().error), leader.offset(0)), (69, None));
    let ticket = leader.enter("again");
    assert_eq!(leader.joined(ticket).generation_id, 1);
}

#[test]
fn offsets_that_members_are_subscribed_to_are_not_deleted() {
    let mut leader = Leader::new();
    leader.with_topic();
    assert_eq!(leader.delete_offsets(&[0]).0, 69);
    let subscribed = |metadata: &'static [u8]| JoinRequest {
        protocols: vec![JoinProtocol { name: "range".into(), metadata: Bytes::from_static(metadata) }],
        api_version: 3,
        ..joining("", "c")
    };
    let ticket = leader.join(subscribed(b"\0\0\0\0\0\x01\0\x01t\0\0\0\0"));
    let one = leader.joined(ticket);
    let sync = leader.sync(&one, &[]);
    leader.synced(sync);
    assert_eq!(leader.commit(&one), 0);
    assert_eq!(leader.delete_offsets(&[0]), (0, vec![86]));
    leader.leave(&one.member_id, None);
    assert_eq!(leader.delete_offsets(&[0, 1, 2]), (0, vec![0, 0, 3]));
    assert_eq!(leader.offset(0), None);

    let ticket = leader.join(subscribed(b"\0\0\0\0\0\x01\0\x01u\0\0\0\0"));
    let other = leader.joined(ticket);
    let sync = leader.sync(&other, &[]);
    leader.synced(sync);
    leader.commit(&other);
    assert_eq!(leader.delete_offsets(&[0]), (0, vec![0]), "members are subscribed to another topic");
}

/// FAILURES 40. Goal: offsets expire only in groups without members, seven days after the last one left.
#[test]
fn offsets_expire_seven_days_after_the_group_became_empty() {
    let day = 24 * 3_600_000;
    let mut leader = Leader::new();
    leader.with_topic();
    let one = leader.stable_one();
    assert_eq!(leader.commit(&one), 0);
    for _ in 0..30 * 24 * 600 {
        leader.now = leader.now.plus_ms(6_000);
        assert_eq!(leader.heartbeat(&one), 0);
    }
    assert_eq!(leader.offset(0), Some((5, "")), "thirty days with a member");
    leader.leave(&one.member_id, None);
    leader.pass_ms(7 * day - 3_600_000);
    assert_eq!(leader.offset(0), Some((5, "")));
    leader.pass_ms(2 * 3_600_000);
    assert_eq!((code(&leader.describe().error), leader.offset(0)), (69, None));
}
