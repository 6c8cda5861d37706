//! Classic groups: joining, syncing, beating, leaving, static members, and the calls about groups.

use bytes::Bytes;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::{
    DeleteGroupsRequest, DescribeGroupsRequest, FindCoordinatorRequest, LeaveGroupRequest, ListGroupsRequest,
    SyncGroupRequest,
};
use thalweg_tests::calls::{group_id, text};
use thalweg_tests::group::{Join, Member, joined_by, stable_group};
use thalweg_tests::{Conn, ErrorCode, Node, target, unique};

/// Every version finds this broker for a group; errors carry node -1, an empty host and port -1.
#[test]
fn find_coordinator_names_a_broker_or_nothing() {
    let target = target();
    let mut conn = target.conn();
    let group = unique("g");
    for version in 0..=6 {
        let request = FindCoordinatorRequest::default();
        let (node, host, port, error) = if version < 4 {
            let answer = conn.call(version, &request.with_key(text(&group)));
            (answer.node_id.0, answer.host.to_string(), answer.port, answer.error_code)
        } else {
            let keys = vec![text(&group), text("other")];
            let answer = conn.call(version, &request.with_coordinator_keys(keys));
            assert_eq!(answer.coordinators.len(), 2);
            let found = answer.coordinators.iter().find(|c| c.key == text(&group)).expect("our key");
            (found.node_id.0, found.host.to_string(), found.port, found.error_code)
        };
        assert_eq!((error, format!("{host}:{port}")), (0, conn.peer().to_string()), "v{version}");
        assert!(node >= 0);
    }
    let bad = conn.call(3, &FindCoordinatorRequest::default().with_key(text("x")).with_key_type(9));
    let got = (bad.error_code, bad.node_id.0, bad.host.to_string(), bad.port);
    assert_eq!(got, (ErrorCode::InvalidRequest.code(), -1, String::new(), -1));
    let bad = conn.call(4, &FindCoordinatorRequest::default().with_coordinator_keys(vec![text("x")]).with_key_type(9));
    let got = &bad.coordinators[0];
    assert_eq!((got.error_code, got.node_id.0, &*got.host, got.port), (ErrorCode::InvalidRequest.code(), -1, "", -1));
}

/// v4+ without a member id: error 79 and an id that starts with the client id; before v4 the join goes on at once.
#[test]
fn a_dynamic_member_gets_its_id_in_a_round_of_its_own_from_v4() {
    let target = target();
    for version in 0..=9 {
        let mut conn = target.conn();
        let join = Join { version, ..Join::new(&unique("g")) };
        let first = join.call(&mut conn);
        assert!(first.member_id.starts_with("thalweg-tests-"), "v{version}: {}", &*first.member_id);
        if version < 4 {
            assert_eq!((first.error_code, first.generation_id, first.members.len()), (0, 1, 1), "v{version}");
            continue;
        }
        assert_eq!(first.error_code, ErrorCode::MemberIdRequired.code(), "v{version}");
        assert_eq!((first.generation_id, first.members.len()), (-1, 0));
        let second = Join { member_id: first.member_id.to_string(), ..join }.call(&mut conn);
        assert_eq!((second.error_code, second.generation_id, second.member_id), (0, 1, first.member_id), "v{version}");
        assert_eq!(second.leader, second.members[0].member_id);
        assert_eq!(second.members[0].metadata, Bytes::from_static(b"meta"));
        if version >= 7 {
            assert_eq!(second.protocol_type.as_deref(), Some("consumer"));
        }
        assert_eq!(second.protocol_name.as_deref(), Some("range"));
    }
}

/// What a join may not be.
#[test]
fn a_malformed_join_is_refused() {
    let target = target();
    let mut conn = target.conn();
    let group = unique("g");
    let _member = stable_group(&group);
    let fresh = unique("g");
    let cases = [
        ("an empty group id", Join::new(""), ErrorCode::InvalidGroupId),
        ("a short session", Join { session_timeout: 5, ..Join::new(&fresh) }, ErrorCode::InvalidSessionTimeout),
        ("a long session", Join { session_timeout: i32::MAX, ..Join::new(&fresh) }, ErrorCode::InvalidSessionTimeout),
        ("an unknown member", Join { member_id: "who".into(), ..Join::new(&fresh) }, ErrorCode::UnknownMemberId),
        (
            "an unknown member of a group",
            Join { member_id: "who".into(), ..Join::new(&group) },
            ErrorCode::UnknownMemberId,
        ),
        ("another type", Join { protocol_type: "connect", ..Join::new(&group) }, ErrorCode::InconsistentGroupProtocol),
        ("no protocol", Join { protocols: vec![], ..Join::new(&fresh) }, ErrorCode::InconsistentGroupProtocol),
        ("no type", Join { protocol_type: "", ..Join::new(&fresh) }, ErrorCode::InconsistentGroupProtocol),
        (
            "no common protocol",
            Join { protocols: vec![("sticky", b"")], ..Join::new(&group) },
            ErrorCode::InconsistentGroupProtocol,
        ),
    ];
    for (what, join, expected) in cases {
        for version in [2, 5, 9] {
            let answer = Join { version, ..join.clone() }.call(&mut conn);
            assert_eq!(ErrorCode::from_code(answer.error_code), Some(expected), "{what}, v{version}");
            assert_eq!(answer.generation_id, -1);
        }
    }
}

/// The protocol is voted for: each member's first choice among those all support.
#[test]
fn the_protocol_is_the_most_wanted_common_one() {
    let target = target();
    let group = unique("g");
    let mut first = Member::join(
        target.conn(),
        Join { protocols: vec![("only-mine", b"x"), ("range", b"r1"), ("sticky", b"s1")], ..Join::new(&group) },
    );
    let id = first.id().to_owned();
    first.sync(&[(&id, b"")]);
    let wants_sticky = |conn: &mut Conn| {
        Join { protocols: vec![("sticky", b"s2"), ("range", b"r2")], ..Join::new(&group) }.with_id(conn)
    };
    let (mut a, mut b) = (target.conn(), target.conn());
    let (join_a, join_b) = (wants_sticky(&mut a), wants_sticky(&mut b));
    let (waiting_a, waiting_b) = (join_a.send(&mut a), join_b.send(&mut b));
    first.await_rebalance();
    // Both are in the barrier only when the broker has read both; a third round trip on b's broker proves nothing, so
    // take the generation in which all three are.
    let mut answer = first.join.call(&mut first.conn);
    while answer.members.len() < 3 {
        first.await_rebalance();
        answer = first.join.call(&mut first.conn);
    }
    assert_eq!((answer.error_code, answer.protocol_name.as_deref()), (0, Some("sticky")));
    let mut metadata: Vec<&[u8]> = answer.members.iter().map(|m| m.metadata.as_ref()).collect();
    metadata.sort_unstable();
    assert_eq!(metadata, [b"s1", b"s2", b"s2"]);
    join_a.receive(&mut a, waiting_a);
    join_b.receive(&mut b, waiting_b);
}

/// Case 57: a second member joins a stable group: both end in the same next generation, nobody is unknown.
#[test]
fn a_second_member_brings_both_to_the_next_generation() {
    let group = unique("g");
    let mut first = stable_group(&group);
    assert_eq!(first.generation, 1);
    let mut second = joined_by(&mut first, Join::new(&group));
    assert_eq!((first.generation, second.generation), (2, 2));
    assert_eq!((first.heartbeat(), second.heartbeat()), (0, 0));
}

/// Case 59: a join repeated while the group waits for its assignment gets the same generation again.
#[test]
fn a_join_repeated_before_the_sync_keeps_the_generation() {
    let target = target();
    let group = unique("g");
    let mut first = stable_group(&group);
    let mut conn = target.conn();
    let join = Join::new(&group).with_id(&mut conn);
    let waiting = join.send(&mut conn);
    first.await_rebalance();
    let again = first.rejoin();
    first.rejoined(again);
    let mut second = {
        let answer = join.receive(&mut conn, waiting);
        Member::joined(conn, join, &answer)
    };
    assert_eq!((first.generation, second.generation), (2, 2));
    // Its answer was lost, say; the client asks again.
    for member in [&mut second, &mut first] {
        let id = member.rejoin();
        member.rejoined(id);
        assert_eq!(member.generation, 2);
    }
    assert!(first.leads && first.members == 2 && second.members == 0);
    let ids = [first.id().to_owned(), second.id().to_owned()];
    assert_eq!(first.sync(&[(&ids[0], b"a"), (&ids[1], b"b")]), (0, Bytes::from_static(b"a")));
    assert_eq!(second.sync(&[]), (0, Bytes::from_static(b"b")));
}

/// A follower that joins a stable group again with what it had gets the current generation at once; the leader's join,
/// or changed metadata, rebalances.
#[test]
fn a_follower_rejoins_a_stable_group_without_a_rebalance() {
    let group = unique("g");
    let mut leader = stable_group(&group);
    let mut follower = joined_by(&mut leader, Join::new(&group));
    let id = follower.rejoin();
    follower.rejoined(id);
    assert_eq!((follower.generation, leader.heartbeat()), (2, 0));
    assert_eq!(follower.sync(&[]), (0, Bytes::from_static(b"2")), "the stored assignment");

    let waiting = leader.rejoin();
    follower.await_rebalance();
    let id = follower.rejoin();
    follower.rejoined(id);
    leader.rejoined(waiting);
    assert_eq!((leader.generation, follower.generation), (3, 3));
    let (first, second) = (leader.id().to_owned(), follower.id().to_owned());
    leader.sync(&[(&first, b"1"), (&second, b"2")]);
    follower.sync(&[]);

    follower.join.protocols = vec![("range", b"changed")];
    let waiting = follower.rejoin();
    leader.await_rebalance();
    let answer = leader.join.call(&mut leader.conn);
    assert_eq!(answer.generation_id, 4);
    assert!(answer.members.iter().any(|m| m.metadata == Bytes::from_static(b"changed")));
    follower.rejoined(waiting);
}

/// Case 61: who joins but never syncs is dropped at the rebalance timeout; the others go on.
#[test]
fn a_member_that_never_syncs_is_dropped() {
    let target = target();
    let group = unique("g");
    let short = Join { rebalance_timeout: 1500, ..Join::new(&group) };
    let mut leader = Member::join(target.conn(), short.clone());
    let id = leader.id().to_owned();
    leader.sync(&[(&id, b"all")]);
    let mut conn = target.conn();
    let join = short.with_id(&mut conn);
    let waiting = join.send(&mut conn);
    leader.await_rebalance();
    let again = leader.rejoin();
    leader.rejoined(again);
    let mut mute = {
        let answer = join.receive(&mut conn, waiting);
        Member::joined(conn, join, &answer)
    };
    let (first, second) = (leader.id().to_owned(), mute.id().to_owned());
    assert_eq!(leader.sync(&[(&first, b"1"), (&second, b"2")]).0, 0);
    // The mute member beats, so only its missing sync can be the reason.
    while leader.heartbeat() == 0 {
        mute.heartbeat();
    }
    let again = leader.rejoin();
    leader.rejoined(again);
    assert_eq!((leader.generation, leader.members), (3, 1));
    assert_eq!(mute.heartbeat(), ErrorCode::UnknownMemberId.code());
}

/// A member whose session ends without a beat is dropped, and the others are told to rejoin.
#[test]
fn a_silent_member_expires() {
    let group = unique("g");
    let mut leader = stable_group(&group);
    let silent = joined_by(&mut leader, Join { session_timeout: 1500, rebalance_timeout: 3000, ..Join::new(&group) });
    leader.await_rebalance();
    let again = leader.rejoin();
    leader.rejoined(again);
    assert_eq!(leader.members, 1);
    let mut silent = silent;
    assert_eq!(silent.heartbeat(), ErrorCode::UnknownMemberId.code());
}

/// Case 63's group part, and the rest of the fences: generation, member, group.
#[test]
fn beats_and_syncs_are_fenced_by_generation_and_member() {
    let target = target();
    let group = unique("g");
    let mut member = stable_group(&group);
    assert_eq!(member.heartbeat_at(0), ErrorCode::IllegalGeneration.code());
    assert_eq!(member.heartbeat_at(2), ErrorCode::IllegalGeneration.code());
    assert_eq!(member.heartbeat(), 0);
    let stale = member.sync_request(&[]).with_generation_id(7);
    assert_eq!(member.conn.call(3, &stale).error_code, ErrorCode::IllegalGeneration.code());
    let mut stranger = Member {
        conn: target.conn(),
        join: Join { member_id: "who".into(), ..Join::new(&group) },
        generation: 1,
        leads: false,
        members: 0,
    };
    assert_eq!(stranger.heartbeat(), ErrorCode::UnknownMemberId.code());
    assert_eq!(stranger.sync(&[]).0, ErrorCode::UnknownMemberId.code());
    stranger.join.group = unique("g");
    assert_eq!(stranger.heartbeat(), ErrorCode::UnknownMemberId.code());
    stranger.join.group = String::new();
    assert_eq!(stranger.heartbeat(), ErrorCode::InvalidGroupId.code());
}

/// A beat is answered 27 while the group prepares and 0 while it waits for the assignment; a sync while it prepares
/// is 27.
#[test]
fn beats_and_syncs_tell_preparing_from_completing() {
    let target = target();
    let group = unique("g");
    let mut leader = stable_group(&group);
    let mut conn = target.conn();
    let join = Join::new(&group).with_id(&mut conn);
    let waiting = join.send(&mut conn);
    leader.await_rebalance();
    assert_eq!(leader.sync(&[]).0, ErrorCode::RebalanceInProgress.code());
    let again = leader.rejoin();
    leader.rejoined(again);
    let mut follower = {
        let answer = join.receive(&mut conn, waiting);
        Member::joined(conn, join, &answer)
    };
    assert_eq!((leader.heartbeat(), follower.heartbeat()), (0, 0));
}

/// Assignments are opaque and come back as they went; who is left out gets an empty one; a follower's sync waits for
/// the leader's.
#[test]
fn assignments_are_opaque_and_absent_ones_empty() {
    let target = target();
    let group = unique("g");
    let mut leader = stable_group(&group);
    let mut conn = target.conn();
    let join = Join::new(&group).with_id(&mut conn);
    let waiting = join.send(&mut conn);
    leader.await_rebalance();
    let again = leader.rejoin();
    leader.rejoined(again);
    let mut follower = {
        let answer = join.receive(&mut conn, waiting);
        Member::joined(conn, join, &answer)
    };
    let early = follower.conn.send(3, &follower.sync_request(&[]));
    let id = leader.id().to_owned();
    let odd: &'static [u8] = &[0xff, 0, 1, 2, 0xfe];
    assert_eq!(leader.sync(&[(&id, odd)]), (0, Bytes::from_static(odd)));
    let answer = follower.conn.receive::<SyncGroupRequest>(3, early);
    assert_eq!((answer.error_code, answer.assignment), (0, Bytes::new()));
}

/// SyncGroup v5 names the protocol it believes in; a wrong one is error 23.
#[test]
fn sync_v5_checks_the_protocol() {
    let target = target();
    let mut member = Member::join(target.conn(), Join::new(&unique("g")));
    let id = member.id().to_owned();
    let request = member.sync_request(&[(&id, b"x")]);
    for (kind, name) in [("connect", "range"), ("consumer", "sticky")] {
        let wrong = request.clone().with_protocol_type(Some(text(kind))).with_protocol_name(Some(text(name)));
        assert_eq!(member.conn.call(5, &wrong).error_code, ErrorCode::InconsistentGroupProtocol.code());
    }
    let right = request.with_protocol_type(Some(text("consumer"))).with_protocol_name(Some(text("range")));
    let answer = member.conn.call(5, &right);
    assert_eq!((answer.error_code, answer.assignment), (0, Bytes::from_static(b"x")));
    assert_eq!((answer.protocol_type.as_deref(), answer.protocol_name.as_deref()), (Some("consumer"), Some("range")));
}

fn leave(conn: &mut Conn, version: i16, group: &str, members: &[(&str, Option<&str>)]) -> (i16, Vec<i16>) {
    let request = LeaveGroupRequest::default().with_group_id(group_id(group));
    let request = if version < 3 {
        request.with_member_id(text(members[0].0))
    } else {
        request.with_members(
            members
                .iter()
                .map(|(id, instance)| {
                    MemberIdentity::default().with_member_id(text(id)).with_group_instance_id(instance.map(text))
                })
                .collect(),
        )
    };
    let answer = conn.call(version, &request);
    (answer.error_code, answer.members.iter().map(|m| m.error_code).collect())
}

/// Leaving rebalances those who stay; the last one leaves an empty group; v3+ answers for each member.
#[test]
fn leaving_rebalances_and_is_answered_per_member() {
    let target = target();
    let mut conn = target.conn();
    let group = unique("g");
    let mut leader = stable_group(&group);
    let follower = joined_by(&mut leader, Join::new(&group));
    let unknown = ErrorCode::UnknownMemberId.code();
    assert_eq!(leave(&mut conn, 5, &group, &[("who", None), (follower.id(), None)]), (0, vec![unknown, 0]));
    leader.await_rebalance();
    let again = leader.rejoin();
    leader.rejoined(again);
    assert_eq!(leader.members, 1);
    assert_eq!(leave(&mut conn, 1, &group, &[("who", None)]).0, unknown);
    assert_eq!(leave(&mut conn, 1, &group, &[(leader.id(), None)]).0, 0);
    assert_eq!(describe(&mut conn, &group).0, "Empty");
    assert_eq!(leader.heartbeat(), unknown);
}

/// Static members (KIP-345): no round for an id; the same instance id replaces the old member, whose calls are then
/// fenced; with unchanged metadata nobody rebalances; v3 LeaveGroup goes by instance id.
#[test]
fn a_static_member_comes_back_without_a_rebalance_and_fences_its_ghost() {
    let target = target();
    let group = unique("g");
    let named = |name: &str| Join { version: 9, instance_id: Some(name.to_owned()), ..Join::new(&group) };
    let mut leader = Member::join(target.conn(), named("one"));
    let id = leader.id().to_owned();
    assert!(id.starts_with("one-"), "{id}");
    leader.sync(&[(&id, b"all")]);
    let mut old = joined_by(&mut leader, named("two"));
    assert_eq!(leader.generation, 2);

    let mut conn = target.conn();
    let answer = named("two").call(&mut conn);
    assert_eq!((answer.error_code, answer.generation_id), (0, 2), "at once, in the same generation");
    assert_ne!(answer.member_id.as_str(), old.id());
    let mut new = Member::joined(conn, named("two"), &answer);
    assert_eq!(new.sync(&[]), (0, Bytes::from_static(b"2")), "it finds its assignment");
    assert_eq!((leader.heartbeat(), new.heartbeat()), (0, 0));
    assert_eq!(old.heartbeat(), ErrorCode::FencedInstanceId.code());
    assert_eq!(old.sync(&[]).0, ErrorCode::FencedInstanceId.code());
    let again = old.join.call(&mut old.conn);
    assert_eq!(again.error_code, ErrorCode::FencedInstanceId.code());

    // The leader's comeback: it must not assign again.
    let mut conn = target.conn();
    let answer = named("one").call(&mut conn);
    assert_eq!((answer.error_code, answer.generation_id, answer.skip_assignment), (0, 2, true));
    assert_eq!(answer.leader, answer.member_id);
    let mut conn = target.conn();
    assert_eq!(leave(&mut conn, 3, &group, &[("", Some("two")), ("", Some("three"))]), (0, vec![0, 25]));
    assert_eq!(new.heartbeat(), ErrorCode::UnknownMemberId.code());
}

/// A full group refuses the next member with error 81.
#[test]
fn a_full_group_refuses_the_next_member() {
    let Some(node) = Node::own(&["group.max.size=1"]) else { return };
    let mut first = node.conn();
    let joined = Join::new("g").with_id(&mut first).call(&mut first);
    assert_eq!(joined.error_code, 0);
    for version in [3, 4, 9] {
        let mut second = node.conn();
        let refused = Join { version, ..Join::new("g") }.call(&mut second);
        assert_eq!(refused.error_code, ErrorCode::GroupMaxSizeReached.code(), "v{version}");
    }
}

/// A client that hangs up while it waits in the barrier leaves nothing behind that holds the others up.
#[test]
fn a_joiner_that_hangs_up_does_not_block_the_group() {
    let target = target();
    let group = unique("g");
    let mut leader = stable_group(&group);
    {
        let mut conn = target.conn();
        let join = Join { session_timeout: 1500, rebalance_timeout: 1500, ..Join::new(&group) }.with_id(&mut conn);
        join.send(&mut conn);
        leader.await_rebalance();
    }
    let again = leader.rejoin();
    leader.rejoined(again);
    let id = leader.id().to_owned();
    assert_eq!(leader.sync(&[(&id, b"mine")]).0, 0);
    // The ghost, if it made it into the generation, expires; then the leader is alone and stable.
    loop {
        let code = leader.heartbeat();
        let (_, members) = describe(&mut leader.conn, &group);
        if code == 0 && members == 1 {
            break;
        }
        if code != 0 {
            assert_eq!(code, ErrorCode::RebalanceInProgress.code());
            let again = leader.rejoin();
            leader.rejoined(again);
            leader.sync(&[(&id, b"mine")]);
        }
    }
}

/// `(state, member count)` by DescribeGroups v5.
fn describe(conn: &mut Conn, group: &str) -> (String, usize) {
    let answer = conn.call(5, &DescribeGroupsRequest::default().with_groups(vec![group_id(group)]));
    assert_eq!(answer.groups[0].error_code, 0);
    (answer.groups[0].group_state.to_string(), answer.groups[0].members.len())
}

/// DescribeGroups: an unknown group is Dead without an error up to v5 and error 69 in v6; a live one shows members,
/// metadata and assignments; the authorized operations default to their unset value.
#[test]
fn describe_groups_shows_members_and_tells_unknown_from_empty() {
    let target = target();
    let mut conn = target.conn();
    let group = unique("g");
    let member = stable_group(&group);
    for version in 0..=6 {
        let names = vec![group_id(&group), group_id("nobody-knows")];
        let answer = conn.call(version, &DescribeGroupsRequest::default().with_groups(names));
        let known = answer.groups.iter().find(|g| g.group_id == group_id(&group)).expect("the known group");
        assert_eq!((known.error_code, &*known.group_state, &*known.protocol_type), (0, "Stable", "consumer"));
        assert_eq!(&*known.protocol_data, "range");
        let got = &known.members[0];
        assert_eq!((&*got.member_id, &*got.client_id), (member.id(), "thalweg-tests"));
        assert!(got.client_host.contains("127.0.0.1"), "{}", &*got.client_host);
        assert_eq!((got.member_metadata.as_ref(), got.member_assignment.as_ref()), (&b"meta"[..], &b"all"[..]));
        let unknown = answer.groups.iter().find(|g| g.group_id != group_id(&group)).expect("the unknown group");
        let expected = if version < 6 { 0 } else { ErrorCode::GroupIdNotFound.code() };
        assert_eq!((unknown.error_code, &*unknown.group_state), (expected, "Dead"), "v{version}");
        if version >= 3 {
            assert_eq!(known.authorized_operations, i32::MIN);
        }
    }
}

/// ListGroups: all groups, with v4's filter by state and v5's by type, which ignore case.
#[test]
fn list_groups_filters_by_state_and_type() {
    let target = target();
    let mut conn = target.conn();
    let (stable, empty) = (unique("g"), unique("g"));
    let _member = stable_group(&stable);
    let gone = stable_group(&empty);
    leave(&mut conn, 3, &empty, &[(gone.id(), None)]);
    let mut listed = |version: i16, states: &[&str], types: &[&str]| -> Vec<String> {
        let request = ListGroupsRequest::default();
        let request =
            if version < 4 { request } else { request.with_states_filter(states.iter().map(|s| text(s)).collect()) };
        let request =
            if version < 5 { request } else { request.with_types_filter(types.iter().map(|s| text(s)).collect()) };
        let answer = conn.call(version, &request);
        assert_eq!(answer.error_code, 0);
        for group in &answer.groups {
            if version >= 4 {
                assert!(!group.group_state.is_empty());
            }
            if version >= 5 && *group.group_id.0 == *stable {
                assert_eq!(&*group.group_type, "classic");
            }
        }
        answer.groups.iter().map(|g| g.group_id.to_string()).filter(|g| *g == stable || *g == empty).collect()
    };
    for version in 0..=5 {
        assert_eq!(listed(version, &[], &[]).len(), 2, "v{version}");
    }
    for version in 4..=5 {
        assert_eq!(listed(version, &["Stable"], &[]), std::slice::from_ref(&stable));
        assert_eq!(listed(version, &["empty"], &[]), std::slice::from_ref(&empty));
        assert!(listed(version, &["Dead"], &[]).is_empty());
    }
    assert_eq!(listed(5, &[], &["Classic"]).len(), 2);
    assert!(listed(5, &[], &["consumer"]).is_empty());
}

/// DeleteGroups: 68 while there are members, 69 for an unknown one, else it is gone.
#[test]
fn delete_groups_takes_only_empty_groups() {
    let target = target();
    let mut conn = target.conn();
    let group = unique("g");
    let member = stable_group(&group);
    let mut delete = |name: &str| {
        let answer = conn.call(2, &DeleteGroupsRequest::default().with_groups_names(vec![group_id(name)]));
        answer.results[0].error_code
    };
    assert_eq!(delete(&group), ErrorCode::NonEmptyGroup.code());
    assert_eq!(delete(&unique("g")), ErrorCode::GroupIdNotFound.code());
    leave(&mut target.conn(), 3, &group, &[(member.id(), None)]);
    assert_eq!(delete(&group), 0);
    assert_eq!(delete(&group), ErrorCode::GroupIdNotFound.code());
    assert_eq!(describe(&mut target.conn(), &group).0, "Dead");
}

/// Case 67: over a kill and a clean stop the group stays readable, its generation goes on and never back, and a member
/// may go on without joining again or rejoin under the id it had.
#[test]
fn a_group_survives_a_restart() {
    let Some(mut node) = Node::own(&[]) else { return };
    for clean in [false, true] {
        let group = format!("g-{clean}");
        let mut conn = node.conn();
        let join = Join::new(&group).with_id(&mut conn);
        let answer = join.call(&mut conn);
        let mut member = Member::joined(conn, join, &answer);
        let id = member.id().to_owned();
        assert_eq!(member.sync(&[(&id, b"all")]).0, 0);
        if clean {
            assert_eq!(node.stop(), Some(0));
        } else {
            node.kill();
        }
        node.restart();
        member.conn = node.conn();
        let (state, members) = describe(&mut member.conn, &group);
        assert!(
            (state == "Stable" && members == 1) || (state == "Empty" && members == 0),
            "{state}, {members} members"
        );
        let beat = member.heartbeat();
        if beat != 0 {
            assert!(
                [ErrorCode::UnknownMemberId.code(), ErrorCode::RebalanceInProgress.code()].contains(&beat),
                "{beat}"
            );
        }
        let mut next = node.conn();
        let join = Join::new(&group).with_id(&mut next);
        let waiting = join.send(&mut next);
        if members == 1 {
            member.await_rebalance();
            let again = member.rejoin();
            member.rejoined(again);
        }
        let answer = join.receive(&mut next, waiting);
        assert_eq!(answer.error_code, 0);
        assert!(answer.generation_id > 1, "generation {} after one that was 1", answer.generation_id);
    }
}
