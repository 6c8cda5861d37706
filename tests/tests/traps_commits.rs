//! Committed offsets: who may commit, what comes back, when it goes away.

use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use kafka_protocol::messages::offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::{
    LeaveGroupRequest, OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest, ProduceRequest,
};
use thalweg_tests::calls::{create_topic, delete_topic, group_id, produce_request, text, topic_name};
use thalweg_tests::group::{Join, Member, joined_by, stable_group};
use thalweg_tests::{Batch, Conn, ErrorCode, Node, target, unique};

/// A commit of partition 0 of one topic.
#[derive(Clone)]
struct Commit<'a> {
    version: i16,
    group: &'a str,
    topic: &'a str,
    partition: i32,
    offset: i64,
    metadata: Option<&'a str>,
    generation: i32,
    member_id: &'a str,
    instance_id: Option<&'a str>,
}

impl<'a> Commit<'a> {
    /// By nobody: no member, no generation.
    fn simple(group: &'a str, topic: &'a str, offset: i64) -> Commit<'a> {
        Commit {
            version: 8,
            group,
            topic,
            partition: 0,
            offset,
            metadata: Some(""),
            generation: -1,
            member_id: "",
            instance_id: None,
        }
    }

    fn by(member: &'a Member, topic: &'a str, offset: i64) -> Commit<'a> {
        let simple = Commit::simple(&member.join.group, topic, offset);
        Commit { generation: member.generation, member_id: member.id(), ..simple }
    }

    fn request(&self) -> OffsetCommitRequest {
        let partition = OffsetCommitRequestPartition::default()
            .with_partition_index(self.partition)
            .with_committed_offset(self.offset)
            .with_committed_metadata(self.metadata.map(text));
        let partition = if self.version >= 6 { partition.with_committed_leader_epoch(4) } else { partition };
        let topic =
            OffsetCommitRequestTopic::default().with_name(topic_name(self.topic)).with_partitions(vec![partition]);
        let mut request = OffsetCommitRequest::default()
            .with_group_id(group_id(self.group))
            .with_generation_id_or_member_epoch(self.generation)
            .with_member_id(text(self.member_id))
            .with_topics(vec![topic]);
        if self.instance_id.is_some() {
            request = request.with_group_instance_id(self.instance_id.map(text));
        }
        request
    }

    /// The error code of the one partition.
    fn call(&self, conn: &mut Conn) -> i16 {
        conn.call(self.version, &self.request()).topics[0].partitions[0].error_code
    }
}

/// `(offset, leader_epoch, metadata, error_code)` of partition 0 of `topic`.
fn committed(conn: &mut Conn, version: i16, group: &str, topic: &str) -> (i64, i32, String, i16) {
    if version >= 8 {
        let topic = OffsetFetchRequestTopics::default().with_name(topic_name(topic)).with_partition_indexes(vec![0]);
        let asked = OffsetFetchRequestGroup::default().with_group_id(group_id(group)).with_topics(Some(vec![topic]));
        let answer = conn.call(version, &OffsetFetchRequest::default().with_groups(vec![asked]));
        assert_eq!(answer.groups[0].error_code, 0);
        let got = &answer.groups[0].topics[0].partitions[0];
        let metadata = got.metadata.as_ref().expect("metadata is never null").to_string();
        return (got.committed_offset, got.committed_leader_epoch, metadata, got.error_code);
    }
    let topic = OffsetFetchRequestTopic::default().with_name(topic_name(topic)).with_partition_indexes(vec![0]);
    let request = OffsetFetchRequest::default().with_group_id(group_id(group)).with_topics(Some(vec![topic]));
    let answer = conn.call(version, &request);
    assert_eq!(answer.error_code, 0);
    let got = &answer.topics[0].partitions[0];
    let metadata = got.metadata.as_ref().expect("metadata is never null").to_string();
    (got.committed_offset, got.committed_leader_epoch, metadata, got.error_code)
}

/// The names of all topics that `group` has offsets for.
fn all_committed(conn: &mut Conn, version: i16, group: &str) -> Vec<String> {
    if version >= 8 {
        let asked = OffsetFetchRequestGroup::default().with_group_id(group_id(group)).with_topics(None);
        let answer = conn.call(version, &OffsetFetchRequest::default().with_groups(vec![asked]));
        return answer.groups[0].topics.iter().map(|t| t.name.to_string()).collect();
    }
    let request = OffsetFetchRequest::default().with_group_id(group_id(group)).with_topics(None);
    conn.call(version, &request).topics.iter().map(|t| t.name.to_string()).collect()
}

/// Goal: commits in flight keep their order, among each other and with records. Method: more than a connection may have under way,
/// records in between; everything is answered in order, and what a read sees behind each hundred commits is the last of them.
#[test]
fn pipelined_commits_keep_their_order() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic(&mut conn);
    let group = unique("g");
    let asked = OffsetFetchRequest::default().with_group_id(group_id(&group)).with_topics(Some(vec![
        OffsetFetchRequestTopic::default().with_name(topic_name(&topic)).with_partition_indexes(vec![0]),
    ]));
    let sent: Vec<(Vec<i32>, i32, i32)> = (0i64..5)
        .map(|round| {
            let commit = |offset| conn.send(8, &Commit::simple(&group, &topic, offset).request());
            let commits = (round * 100..round * 100 + 100).map(commit).collect();
            let records = Some(Batch::values(&["a"]).encode());
            (commits, conn.send(9, &produce_request(-1, &topic, &[(0, records)])), conn.send(5, &asked))
        })
        .collect();
    for (round, (commits, produced, read)) in (0i64..).zip(sent) {
        for id in commits {
            assert_eq!(conn.receive::<OffsetCommitRequest>(8, id).topics[0].partitions[0].error_code, 0);
        }
        let appended = conn.receive::<ProduceRequest>(9, produced);
        assert_eq!(appended.responses[0].partition_responses[0].base_offset, round);
        let got = conn.receive::<OffsetFetchRequest>(5, read);
        assert_eq!(got.topics[0].partitions[0].committed_offset, round * 100 + 99);
    }
}

const NOTHING: (i64, i32, String, i16) = (-1, -1, String::new(), 0);

/// Case 65: the metadata comes back as it went; a commit is readable at once in every version.
#[test]
fn a_commit_and_its_metadata_come_back_in_every_version() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic(&mut conn);
    let group = unique("g");
    for version in 1..=9 {
        assert_eq!(committed(&mut conn, version, &group, &topic), NOTHING, "v{version}: nothing committed is no error");
    }
    let long = "m".repeat(4096);
    for version in 2..=9 {
        for (offset, metadata) in [(7, "one"), (0, ""), (i64::MAX, "ü"), (9, &long)] {
            let commit = Commit { version, metadata: Some(metadata), ..Commit::simple(&group, &topic, offset) };
            assert_eq!(commit.call(&mut conn), 0, "v{version}");
            for read in 1..=9 {
                let epoch = if version >= 6 && read >= 5 { 4 } else { -1 };
                let got = committed(&mut conn, read, &group, &topic);
                assert_eq!(got, (offset, epoch, metadata.to_owned(), 0), "v{version} read by v{read}");
            }
        }
    }
    let null = Commit { metadata: None, ..Commit::simple(&group, &topic, 3) };
    assert_eq!(null.call(&mut conn), 0);
    assert_eq!(committed(&mut conn, 8, &group, &topic).2, "", "null metadata reads as empty");
}

/// Null topics ask for everything, empty ones for nothing; v8+ asks for several groups at once.
#[test]
fn offset_fetch_tells_all_from_none_and_batches_groups() {
    let target = target();
    let mut conn = target.conn();
    let mut topics = [target.topic(&mut conn), target.topic(&mut conn)];
    topics.sort();
    let (group, other) = (unique("g"), unique("g"));
    for topic in &topics {
        assert_eq!(Commit::simple(&group, topic, 1).call(&mut conn), 0);
    }
    assert_eq!(Commit::simple(&other, &topics[0], 5).call(&mut conn), 0);
    for version in 2..=9 {
        let mut all = all_committed(&mut conn, version, &group);
        all.sort();
        assert_eq!(all, topics, "v{version}");
        assert!(all_committed(&mut conn, version, &unique("g")).is_empty(), "v{version}");
    }
    let none = OffsetFetchRequest::default().with_group_id(group_id(&group)).with_topics(Some(vec![]));
    assert!(conn.call(7, &none).topics.is_empty());
    let asked =
        [&group, &other].map(|g| OffsetFetchRequestGroup::default().with_group_id(group_id(g)).with_topics(None));
    let answer = conn.call(8, &OffsetFetchRequest::default().with_groups(asked.to_vec()));
    let counts: Vec<(String, usize)> = answer.groups.iter().map(|g| (g.group_id.to_string(), g.topics.len())).collect();
    assert_eq!(counts, [(group, 2), (other, 1)]);
}

/// Case 63 and the rule: without members anybody may commit with generation -1; with members only they, in their
/// generation.
#[test]
fn only_members_commit_to_a_group_that_has_some() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic(&mut conn);
    let group = unique("g");
    let member = stable_group(&group);
    let own = Commit::by(&member, &topic, 5);
    assert_eq!(own.call(&mut conn), 0);
    let unknown = ErrorCode::UnknownMemberId.code();
    for version in [2, 7, 9] {
        let simple = Commit { version, ..Commit::simple(&group, &topic, 6) };
        assert_eq!(simple.call(&mut conn), unknown, "v{version}");
        let stranger = Commit { version, member_id: "who", ..own.clone() };
        assert_eq!(stranger.call(&mut conn), unknown, "v{version}");
        for generation in [0, 2] {
            let old = Commit { version, generation, ..own.clone() };
            assert_eq!(old.call(&mut conn), ErrorCode::IllegalGeneration.code(), "v{version}");
        }
    }
    assert_eq!(committed(&mut conn, 8, &group, &topic).0, 5);
    let elsewhere = Commit { group: &unique("g"), ..own.clone() };
    assert_eq!(elsewhere.call(&mut conn), ErrorCode::IllegalGeneration.code(), "no such group, but a generation");
    leave(&mut conn, &member);
    assert_eq!(Commit { generation: 1, ..own }.call(&mut conn), unknown, "the member is gone");
    assert_eq!(Commit::simple(&group, &topic, 8).call(&mut conn), 0);
    // Kafka still takes commits without a group from the oldest consumers; nobody could ask for them by a name.
    let nameless = Commit::simple("", &topic, 1).call(&mut conn);
    assert_eq!(nameless, target.ours_or_kafkas(ErrorCode::InvalidGroupId.code(), 0));
}

fn leave(conn: &mut Conn, member: &Member) {
    let request = LeaveGroupRequest::default()
        .with_group_id(group_id(&member.join.group))
        .with_members(vec![MemberIdentity::default().with_member_id(text(member.id()))]);
    assert_eq!(conn.call(3, &request).members[0].error_code, 0);
}

/// While the group prepares a commit of the old generation is taken, so that work done is not done again; while it
/// waits for the assignment it is answered 27.
#[test]
fn a_commit_during_a_rebalance_is_taken_until_the_barrier_closes() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic(&mut conn);
    let group = unique("g");
    let mut leader = stable_group(&group);
    let mut joining = target.conn();
    let join = Join::new(&group).with_id(&mut joining);
    let waiting = join.send(&mut joining);
    leader.await_rebalance();
    assert_eq!(Commit::by(&leader, &topic, 11).call(&mut conn), 0);
    assert_eq!(committed(&mut conn, 8, &group, &topic).0, 11);
    let again = leader.rejoin();
    leader.rejoined(again);
    join.receive(&mut joining, waiting);
    assert_eq!(Commit::by(&leader, &topic, 12).call(&mut conn), ErrorCode::RebalanceInProgress.code());
    assert_eq!(committed(&mut conn, 8, &group, &topic).0, 11);
}

/// A static member's ghost may not commit.
#[test]
fn a_replaced_static_member_may_not_commit() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic(&mut conn);
    let group = unique("g");
    let mut leader = stable_group(&group);
    let named = Join { instance_id: Some("one".into()), ..Join::new(&group) };
    let old = joined_by(&mut leader, named.clone());
    assert_eq!(named.call(&mut target.conn()).error_code, 0);
    let ghost = Commit { instance_id: Some("one"), ..Commit::by(&old, &topic, 1) };
    assert_eq!(ghost.call(&mut conn), ErrorCode::FencedInstanceId.code());
}

/// Metadata above offset.metadata.max.bytes is error 12, an unknown topic or partition 3, each for its partition only.
#[test]
fn a_commit_is_refused_per_partition() {
    let target = target();
    let mut conn = target.conn();
    let topic = target.topic(&mut conn);
    let group = unique("g");
    let long = "m".repeat(4097);
    let too_long = Commit { metadata: Some(&long), ..Commit::simple(&group, &topic, 1) };
    assert_eq!(too_long.call(&mut conn), ErrorCode::OffsetMetadataTooLarge.code());
    assert_eq!(committed(&mut conn, 8, &group, &topic), NOTHING);
    let missing = unique("missing");
    assert_eq!(Commit::simple(&group, &missing, 1).call(&mut conn), 3);
    assert_eq!(Commit { partition: 9, ..Commit::simple(&group, &topic, 1) }.call(&mut conn), 3);
    assert!(all_committed(&mut conn, 8, &group).is_empty());
}

/// Case 69: offsets vanish with their topic, for all groups; the group works on. A topic of the same name starts
/// without them.
#[test]
fn offsets_vanish_with_their_topic() {
    let target = target();
    let mut conn = target.conn();
    let (gone, kept) = (target.topic(&mut conn), target.topic(&mut conn));
    let groups = [unique("g"), unique("g")];
    let mut member = stable_group(&groups[0]);
    for topic in [&gone, &kept] {
        assert_eq!(Commit::by(&member, topic, 5).call(&mut conn), 0);
        assert_eq!(Commit::simple(&groups[1], topic, 6).call(&mut conn), 0);
    }
    assert_eq!(delete_topic(&mut conn, &gone), 0);
    for group in &groups {
        // Kafka clears them behind the answer.
        while target.is_kafka() && all_committed(&mut conn, 8, group).len() > 1 {}
        assert_eq!(all_committed(&mut conn, 8, group), std::slice::from_ref(&kept));
    }
    assert_eq!(member.heartbeat(), 0);
    assert_eq!(Commit::by(&member, &kept, 7).call(&mut conn), 0);
    assert_eq!(Commit::by(&member, &gone, 7).call(&mut conn), 3);
    while create_topic(&mut conn, &gone, 1, &[]).error_code != 0 {
        assert!(target.is_kafka(), "a deleted name is free when the deletion is answered");
    }
    assert_eq!(committed(&mut conn, 8, &groups[0], &gone), NOTHING);
    leave(&mut conn, &member);
}

/// `(group's error code, partition's error code)`.
fn delete_offset(conn: &mut Conn, group: &str, topic: &str) -> (i16, Option<i16>) {
    let partitions = vec![OffsetDeleteRequestPartition::default().with_partition_index(0)];
    let topic = OffsetDeleteRequestTopic::default().with_name(topic_name(topic)).with_partitions(partitions);
    let request = OffsetDeleteRequest::default().with_group_id(group_id(group)).with_topics(vec![topic]);
    let answer = conn.call(0, &request);
    (answer.error_code, answer.topics.first().map(|t| t.partitions[0].error_code))
}

/// A consumer's subscription to `topics`, version 0.
fn subscription(topic: &str) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0, 0, 0, 1];
    bytes.extend((topic.len() as i16).to_be_bytes());
    bytes.extend(topic.as_bytes());
    bytes.extend((-1i32).to_be_bytes());
    bytes
}

/// OffsetDelete: 69 for an unknown group, 86 for a topic that a member subscribes to, else gone.
#[test]
fn offset_delete_spares_subscribed_topics() {
    let target = target();
    let mut conn = target.conn();
    let (subscribed, other) = (target.topic(&mut conn), target.topic(&mut conn));
    let group = unique("g");
    assert_eq!(delete_offset(&mut conn, &group, &other).0, ErrorCode::GroupIdNotFound.code());
    let metadata: &'static [u8] = subscription(&subscribed).leak();
    let mut member = Member::join(target.conn(), Join { protocols: vec![("range", metadata)], ..Join::new(&group) });
    let id = member.id().to_owned();
    member.sync(&[(&id, b"x")]);
    for topic in [&subscribed, &other] {
        assert_eq!(Commit::by(&member, topic, 5).call(&mut conn), 0);
    }
    assert_eq!(delete_offset(&mut conn, &group, &subscribed), (0, Some(ErrorCode::GroupSubscribedToTopic.code())));
    assert_eq!(delete_offset(&mut conn, &group, &other), (0, Some(0)));
    assert_eq!(all_committed(&mut conn, 8, &group), [subscribed]);
}

/// Case 67's offsets: committed is committed, over a kill and over a clean stop.
#[test]
fn committed_offsets_survive_a_restart() {
    let Some(mut node) = Node::own(&[]) else { return };
    assert_eq!(create_topic(&mut node.conn(), "t", 1, &[]).error_code, 0);
    for (offset, clean) in [(5, false), (6, true), (7, false)] {
        let commit = Commit { metadata: Some("meta"), ..Commit::simple("g", "t", offset) };
        assert_eq!(commit.call(&mut node.conn()), 0);
        if clean {
            assert_eq!(node.stop(), Some(0));
        } else {
            node.kill();
        }
        node.restart();
        assert_eq!(committed(&mut node.conn(), 8, "g", "t"), (offset, 4, "meta".to_owned(), 0));
    }
}
