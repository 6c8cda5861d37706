//! Joining, syncing, heartbeats: each rule of the protocol once.

use super::*;

#[test]
fn a_new_member_is_told_its_id_first_and_may_take_its_session_timeout_to_use_it() {
    let mut leader = Leader::new();
    let first = leader.join(joining("", "app"));
    let given = leader.joined(first);
    assert_eq!((code(&given.error), given.member_id.as_str(), given.generation_id), (79, "app-id1", -1));
    assert_eq!(leader.describe().members, []);

    leader.pass_ms(SESSION_MS as u64 - 1);
    let second = leader.join(joining("app-id1", "app"));
    let joined = leader.joined(second);
    assert_eq!((code(&joined.error), joined.generation_id, joined.leader.as_str()), (0, 1, "app-id1"));

    let first = leader.join(joining("", "late"));
    let late = leader.joined(first).member_id;
    leader.pass_ms(SESSION_MS as u64);
    let second = leader.join(joining(&late, "late"));
    assert_eq!(code(&leader.joined(second).error), 25);
}

#[test]
fn old_clients_join_in_one_round() {
    let mut leader = Leader::new();
    let ticket = leader.join(JoinRequest { api_version: 3, ..joining("", "old") });
    let joined = leader.joined(ticket);
    assert_eq!((code(&joined.error), joined.generation_id), (0, 1));
    assert_eq!(joined.members.len(), 1);
    assert_eq!(joined.members[0].metadata, "meta");
}

#[test]
fn a_join_that_cannot_be_is_refused_with_its_own_code() {
    let mut leader = Leader::with(CoordinatorSettings {
        group_initial_rebalance_delay_ms: 0,
        group_max_size: 2,
        ..CoordinatorSettings::default()
    });
    let mut refused = |request: JoinRequest| {
        let ticket = leader.join(request);
        code(&leader.joined(ticket).error)
    };
    assert_eq!(refused(JoinRequest { group_id: String::new(), ..joining("", "c") }), 24);
    assert_eq!(refused(JoinRequest { session_timeout_ms: 5_999, ..joining("", "c") }), 26);
    assert_eq!(refused(JoinRequest { session_timeout_ms: 1_800_001, ..joining("", "c") }), 26);
    assert_eq!(refused(joining("nobody", "c")), 25);
    assert_eq!(refused(JoinRequest { protocols: vec![], ..joining("", "c") }), 23);
    assert_eq!(refused(JoinRequest { protocol_type: String::new(), ..joining("", "c") }), 23);

    leader.stable_two();
    let mut refused = |request: JoinRequest| {
        let ticket = leader.join(request);
        code(&leader.joined(ticket).error)
    };
    assert_eq!(refused(JoinRequest { protocol_type: "connect".into(), ..joining("", "c") }), 23);
    assert_eq!(refused(with_protocols("", &["sticky"])), 23);
    assert_eq!(refused(joining("", "third")), 81);
    assert_eq!(leader.describe().state, "Stable");
}

#[test]
fn a_refused_join_leaves_no_group_behind() {
    let mut leader = Leader::new();
    let ticket = leader.join(JoinRequest { protocols: vec![], ..joining("", "c") });
    assert_eq!(code(&leader.joined(ticket).error), 23);
    assert_eq!(code(&leader.describe().error), 69);
    let ticket = leader.call(Call::List(ListRequest::default()));
    assert!(matches!(leader.reply(ticket), Reply::List(ListResponse { groups, .. }) if groups.is_empty()));
}

#[test]
fn the_protocol_is_what_most_prefer_among_what_all_know() {
    let mut leader =
        Leader::with(CoordinatorSettings { group_initial_rebalance_delay_ms: 1_000, ..CoordinatorSettings::default() });
    let votes: [&[&str]; 3] = [&["range", "sticky"], &["own", "sticky", "range"], &["sticky", "range"]];
    let tickets: Vec<Ticket> =
        votes.iter().map(|names| leader.join(JoinRequest { api_version: 3, ..with_protocols("", names) })).collect();
    leader.pass_ms(5_000);
    for ticket in tickets {
        let joined = leader.joined(ticket);
        // "own" is not known to all, so its member votes for its next choice.
        assert_eq!((joined.protocol_name.as_deref(), joined.generation_id), (Some("sticky"), 1));
    }
}

#[test]
fn only_the_leader_is_told_the_members() {
    let mut leader = Leader::new();
    let (one, two) = leader.stable_two();
    assert_eq!(one.members.len(), 2);
    assert!(two.members.is_empty());
    assert_eq!(two.leader, one.member_id);
    assert_eq!(one.protocol_type.as_deref(), Some("consumer"));
}

#[test]
fn sync_is_judged_by_generation_phase_and_protocol() {
    let mut leader = Leader::new();
    let one = leader.stable_one();
    let mut sync = |request: SyncRequest| {
        let request = SyncRequest { group_id: GROUP.into(), member_id: one.member_id.clone(), ..request };
        let ticket = leader.call(Call::Sync(request));
        let answer = leader.synced(ticket);
        (code(&answer.error), answer.assignment)
    };
    let stable = SyncRequest { generation_id: 1, ..SyncRequest::default() };
    assert_eq!(sync(stable.clone()), (0, "a".into()));
    assert_eq!(sync(SyncRequest { generation_id: 2, ..stable.clone() }).0, 22);
    assert_eq!(sync(SyncRequest { protocol_type: Some("connect".into()), ..stable.clone() }).0, 23);
    assert_eq!(sync(SyncRequest { protocol_name: Some("sticky".into()), ..stable.clone() }).0, 23);
    let right =
        SyncRequest { protocol_type: Some("consumer".into()), protocol_name: Some("range".into()), ..stable.clone() };
    assert_eq!(sync(right).0, 0);
    let stranger = SyncRequest { group_id: GROUP.into(), member_id: "x".into(), ..stable };
    let ticket = leader.call(Call::Sync(stranger.clone()));
    assert_eq!(code(&leader.synced(ticket).error), 25);
    let ticket = leader.call(Call::Sync(SyncRequest { group_id: "none".into(), ..stranger }));
    assert_eq!(code(&leader.synced(ticket).error), 25);

    leader.enter("two");
    let ticket = leader.sync(&one, &[]);
    assert_eq!(code(&leader.synced(ticket).error), 27);
}

#[test]
fn a_member_that_the_leader_left_out_gets_an_empty_assignment() {
    let mut leader = Leader::new();
    let one = leader.stable_one();
    let two = leader.enter("two");
    let again = leader.join(joining(&one.member_id, "one"));
    let (one, two) = (leader.joined(again), leader.joined(two));
    let follower = leader.sync(&two, &[]);
    assert!(leader.is_waiting(follower));
    let ticket = leader.sync(&one, &[(&one.member_id, "all"), ("stranger", "x")]);
    assert_eq!(leader.synced(ticket).assignment, "all");
    let answer = leader.synced(follower);
    assert_eq!((code(&answer.error), answer.assignment), (0, Bytes::new()));
    assert_eq!((answer.protocol_type.as_deref(), answer.protocol_name.as_deref()), (Some("consumer"), Some("range")));
}

#[test]
fn a_heartbeat_tells_the_phase_and_costs_no_raft_entry() {
    let mut leader = Leader::new();
    let ticket = leader.enter("one");
    let one = leader.joined(ticket);
    assert_eq!(leader.heartbeat(&one), 0, "completing");
    leader.sync(&one, &[(&one.member_id, "a")]);
    let proposals = leader.proposals;
    for _ in 0..100 {
        leader.pass_ms(SESSION_MS as u64 / 2);
        assert_eq!(leader.heartbeat(&one), 0, "stable");
    }
    assert_eq!(leader.proposals, proposals);
    assert_eq!(leader.heartbeat_as(&one.member_id, None, 0), 22);
    assert_eq!(leader.heartbeat_as("nobody", None, 1), 25);
    leader.enter("two");
    assert_eq!(leader.heartbeat(&one), 27, "preparing");
}

#[test]
fn a_rebalance_costs_one_entry_for_the_generation_and_one_for_the_assignment() {
    let mut leader = Leader::new();
    leader.stable_two();
    let stored = leader.machine.state().group(GROUP).unwrap();
    assert_eq!((stored.generation_id, stored.assigned, stored.members.len()), (2, true, 2));
    assert_eq!(leader.proposals, 4);
}

#[test]
fn describe_and_list_say_what_kafka_says() {
    let mut leader = Leader::new();
    let (one, _) = leader.stable_two();
    let group = leader.describe();
    assert_eq!(
        (group.state.as_str(), group.protocol_type.as_str(), group.protocol_name.as_str()),
        ("Stable", "consumer", "range")
    );
    assert_eq!(group.members.len(), 2);
    let member = group.members.iter().find(|member| member.member_id == one.member_id).unwrap();
    assert_eq!(
        (member.client_id.as_str(), &member.metadata[..], &member.assignment[..]),
        ("one", &b"meta"[..], &b"a"[..])
    );

    leader.enter("three");
    let group = leader.describe();
    assert_eq!((group.state.as_str(), group.protocol_name.as_str()), ("PreparingRebalance", ""));
    assert!(group.members.iter().all(|member| member.metadata.is_empty() && member.assignment.is_empty()));

    let mut listed = |states: &[&str], types: &[&str]| {
        let own = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let ticket = leader.call(Call::List(ListRequest { states: own(states), types: own(types) }));
        match leader.reply(ticket) {
            Reply::List(answer) => answer.groups.len(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(listed(&[], &[]), 1);
    assert_eq!(listed(&["preparingrebalance"], &["Classic"]), 1);
    assert_eq!(listed(&["Stable"], &[]), 0);
    assert_eq!(listed(&[], &["consumer"]), 0);
}

/// Goal: who asks after the last leave sees an empty group. Method: the generation without members has not committed yet.
#[test]
fn a_group_is_empty_from_the_moment_its_last_member_leaves() {
    let mut leader = Leader::new();
    let one = leader.stable_one();
    leader.hold = true;
    assert_eq!(leader.leave(&one.member_id, None), 0);
    assert_eq!(leader.describe().state, "Empty");
    leader.release();
    assert_eq!(leader.describe().state, "Empty");
}
