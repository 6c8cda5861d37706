//! When the barrier opens, when it closes, and who is on which side.

use super::*;

/// Case 57.
#[test]
fn a_second_consumer_and_the_first_meet_in_one_generation() {
    let mut leader = Leader::new();
    let one = leader.stable_one();
    let two = leader.enter("two");
    assert!(leader.is_waiting(two));
    assert_eq!(leader.heartbeat(&one), 27);
    let again = leader.join(joining(&one.member_id, "one"));
    let (one, two) = (leader.joined(again), leader.joined(two));
    assert_eq!((code(&one.error), code(&two.error)), (0, 0));
    assert_eq!((one.generation_id, two.generation_id), (2, 2));
}

/// Case 59.
#[test]
fn a_join_that_is_repeated_before_the_sync_gets_the_same_generation() {
    let mut leader = Leader::new();
    let ticket = leader.enter("one");
    let one = leader.joined(ticket);
    let again = leader.join(joining(&one.member_id, "one"));
    let repeated = leader.joined(again);
    assert_eq!(repeated, one);
    assert_eq!(leader.describe().state, "CompletingRebalance");
}

/// Case 61.
#[test]
fn a_member_that_never_syncs_is_dropped_and_the_others_go_on() {
    let mut leader = Leader::new();
    let one = leader.stable_one();
    let two = leader.enter("two");
    let again = leader.join(joining(&one.member_id, "one"));
    let (one, two) = (leader.joined(again), leader.joined(two));
    let sync = leader.sync(&one, &[(&one.member_id, "a")]);
    assert_eq!(leader.synced(sync).assignment, "a");
    // Two sends heartbeats, so its session lives; it just does not ask for its assignment.
    for _ in 0..REBALANCE_MS / 5_000 - 1 {
        leader.pass_ms(5_000);
        assert_eq!((leader.heartbeat(&one), leader.heartbeat(&two)), (0, 0));
    }
    leader.pass_ms(5_000);
    assert_eq!(leader.heartbeat(&two), 25);
    assert_eq!(leader.heartbeat(&one), 27);
    let again = leader.join(joining(&one.member_id, "one"));
    let one = leader.joined(again);
    assert_eq!((one.generation_id, one.members.len()), (3, 1));
}

#[test]
fn a_leader_that_never_syncs_is_dropped_and_another_assigns() {
    let mut leader = Leader::new();
    let one = leader.stable_one();
    let two = leader.enter("two");
    let again = leader.join(joining(&one.member_id, "one"));
    let (_, two) = (leader.joined(again), leader.joined(two));
    let waiting = leader.sync(&two, &[]);
    // The leader is gone: its session ends first.
    leader.pass_ms(SESSION_MS as u64);
    assert_eq!(code(&leader.synced(waiting).error), 27);
    let again = leader.join(joining(&two.member_id, "two"));
    let two = leader.joined(again);
    assert_eq!((two.leader.as_str(), two.generation_id), (two.member_id.as_str(), 3));
}

#[test]
fn followers_rejoin_quietly_but_a_leader_or_new_metadata_moves_the_group() {
    let mut leader = Leader::new();
    let (one, two) = leader.stable_two();
    let quiet = leader.join(joining(&two.member_id, "two"));
    assert_eq!(leader.joined(quiet).generation_id, 2);
    assert_eq!(leader.describe().state, "Stable");

    let changed = JoinRequest {
        protocols: vec![JoinProtocol { name: "range".into(), metadata: "other".into() }],
        ..joining(&two.member_id, "two")
    };
    let moving = leader.join(changed);
    assert!(leader.is_waiting(moving));
    let again = leader.join(joining(&one.member_id, "one"));
    assert_eq!((leader.joined(again).generation_id, leader.joined(moving).generation_id), (3, 3));

    let mut leader = Leader::new();
    let (one, two) = leader.stable_two();
    let by_leader = leader.join(joining(&one.member_id, "one"));
    assert!(leader.is_waiting(by_leader));
    assert_eq!(leader.heartbeat(&two), 27);
}

#[test]
fn the_barrier_waits_for_the_longest_rebalance_timeout_and_no_longer() {
    let mut leader = Leader::new();
    let (one, two) = leader.stable_two();
    let three = leader.enter("three");
    let again = leader.join(joining(&one.member_id, "one"));
    // Two's heartbeats keep its session, but it does not join.
    for _ in 0..REBALANCE_MS / 5_000 - 1 {
        leader.pass_ms(5_000);
        assert_eq!(leader.heartbeat(&two), 27);
    }
    assert!(leader.is_waiting(again) && leader.is_waiting(three));
    leader.pass_ms(5_000);
    let (one, three) = (leader.joined(again), leader.joined(three));
    assert_eq!((one.generation_id, three.generation_id, one.members.len()), (3, 3, 2));
    assert_eq!(leader.heartbeat(&two), 25);
}

#[test]
fn a_session_that_ends_closes_the_barrier_for_the_others() {
    let mut leader = Leader::new();
    let (one, _two) = leader.stable_two();
    let again = leader.join(joining(&one.member_id, "one"));
    leader.pass_ms(SESSION_MS as u64 - 1);
    assert!(leader.is_waiting(again));
    leader.pass_ms(1);
    assert_eq!(leader.joined(again).members.len(), 1);
}

#[test]
fn the_first_members_wait_for_each_other_as_long_as_more_come() {
    let delay = 3_000;
    let mut leader =
        Leader::with(CoordinatorSettings { group_initial_rebalance_delay_ms: delay, ..CoordinatorSettings::default() });
    let one = leader.enter("one");
    leader.pass_ms(2_000);
    let two = leader.enter("two");
    leader.pass_ms(1_000);
    assert!(leader.is_waiting(one), "someone came, so the wait is extended once more");
    leader.pass_ms(2_999);
    assert!(leader.is_waiting(one));
    leader.pass_ms(1);
    let (one, two) = (leader.joined(one), leader.joined(two));
    assert_eq!((one.generation_id, two.generation_id, one.members.len()), (1, 1, 2));
}

#[test]
fn the_initial_wait_ends_at_the_rebalance_timeout() {
    let mut leader =
        Leader::with(CoordinatorSettings { group_initial_rebalance_delay_ms: 3_000, ..CoordinatorSettings::default() });
    let quick = |client: &str| JoinRequest { rebalance_timeout_ms: 7_000, api_version: 3, ..joining("", client) };
    let mut tickets = vec![leader.join(quick("0"))];
    for i in 1..7 {
        leader.pass_ms(999);
        tickets.push(leader.join(quick(&i.to_string())));
    }
    leader.pass_ms(7_000 - 6 * 999);
    assert_eq!(leader.joined(tickets[0]).members.len(), 7);
}

#[test]
fn leaving_moves_the_group_and_the_last_one_empties_it() {
    let mut leader = Leader::new();
    let (one, two) = leader.stable_two();
    assert_eq!(leader.leave("nobody", None), 25);
    assert_eq!(leader.describe().state, "Stable");
    assert_eq!(leader.leave(&two.member_id, None), 0);
    assert_eq!(leader.heartbeat(&one), 27);
    let again = leader.join(joining(&one.member_id, "one"));
    assert_eq!(leader.joined(again).generation_id, 3);
    assert_eq!(leader.leave(&one.member_id, None), 0);
    let group = leader.describe();
    assert_eq!((group.state.as_str(), group.generation_id, group.members.len()), ("Empty", 4, 0));
    assert_eq!(leader.session.group_count(), 0);

    let ticket = leader.enter("back");
    assert_eq!(leader.joined(ticket).generation_id, 5, "generations are never used again");
}

#[test]
fn an_id_that_was_given_out_holds_the_barrier_until_it_is_used_or_given_back() {
    let mut leader = Leader::new();
    let one = leader.stable_one();
    let first = leader.join(joining("", "two"));
    let given = leader.joined(first).member_id;
    let again = leader.join(joining(&one.member_id, "one"));
    assert!(leader.is_waiting(again));
    assert_eq!(leader.leave(&given, None), 0);
    assert_eq!(leader.joined(again).members.len(), 1);
}

/// Goal: a client that went away does not hold the others up for the whole rebalance timeout.
/// Method: its call is withdrawn while the barrier is open; its session then ends.
#[test]
fn a_withdrawn_join_counts_as_silence_from_then_on() {
    let mut leader = Leader::new();
    let one = leader.stable_one();
    let two = leader.enter("two");
    leader.event(Event::Withdrawn(two));
    let again = leader.join(joining(&one.member_id, "one"));
    assert!(leader.is_waiting(again));
    leader.pass_ms(SESSION_MS as u64);
    assert_eq!(leader.joined(again).members.len(), 1);
    assert!(leader.is_waiting(two), "nobody waits, so nobody is answered");
}

#[test]
fn a_client_that_joins_again_after_its_connection_broke_takes_its_place() {
    let mut leader = Leader::new();
    let one = leader.stable_one();
    let first = leader.join(joining("", "two"));
    let given = leader.joined(first).member_id;
    let lost = leader.join(joining(&given, "two"));
    leader.event(Event::Withdrawn(lost));
    let second = leader.join(joining(&given, "two"));
    let again = leader.join(joining(&one.member_id, "one"));
    assert_eq!((leader.joined(again).generation_id, leader.joined(second).generation_id), (2, 2));
}

/// Goal: nothing is lost or answered wrongly while a generation is on its way. Method: Raft holds still in between.
#[test]
fn calls_wait_while_a_generation_is_on_its_way() {
    let mut leader = Leader::new();
    leader.hold = true;
    let one = leader.join(JoinRequest { api_version: 3, ..joining("", "one") });
    let two = leader.join(JoinRequest { api_version: 3, ..joining("", "two") });
    assert!(leader.is_waiting(one) && leader.is_waiting(two));
    leader.pass_ms(10 * SESSION_MS as u64);
    leader.release();
    let one = leader.joined(one);
    assert_eq!((one.generation_id, one.members.len()), (1, 1));
    assert_eq!(leader.heartbeat(&one), 27, "two came later, so the group moves on at once");
    let again = leader.join(joining(&one.member_id, "one"));
    assert_eq!((leader.joined(again).generation_id, leader.joined(two).generation_id), (2, 2));
}

#[test]
fn a_sync_that_comes_while_the_assignment_is_on_its_way_gets_it() {
    let mut leader = Leader::new();
    let one = leader.stable_one();
    let two = leader.enter("two");
    let again = leader.join(joining(&one.member_id, "one"));
    let (one, two) = (leader.joined(again), leader.joined(two));
    leader.hold = true;
    let by_leader = leader.sync(&one, &[(&two.member_id, "b")]);
    let by_follower = leader.sync(&two, &[]);
    assert!(leader.is_waiting(by_leader) && leader.is_waiting(by_follower));
    leader.release();
    assert_eq!(leader.synced(by_follower).assignment, "b");
}

/// Case 67: the coordinator moves or restarts.
#[test]
fn a_new_leader_knows_generation_members_and_assignment_and_gives_full_time() {
    let mut leader = Leader::new();
    let (one, two) = leader.stable_two();
    leader.pass_ms(SESSION_MS as u64 - 1);
    leader.fail_over();
    let group = leader.describe();
    assert_eq!((group.state.as_str(), group.members.len(), group.generation_id), ("Stable", 2, 2));
    leader.pass_ms(SESSION_MS as u64 - 1);
    assert_eq!((leader.heartbeat(&one), leader.heartbeat(&two)), (0, 0));
    let sync = leader.sync(&two, &[]);
    assert_eq!(leader.synced(sync).assignment, "b");
    let by_leader = leader.join(joining(&one.member_id, "one"));
    let by_follower = leader.join(joining(&two.member_id, "two"));
    assert_eq!((leader.joined(by_leader).generation_id, leader.joined(by_follower).generation_id), (3, 3));
}

#[test]
fn a_generation_without_assignment_is_completed_under_the_new_leader() {
    let mut leader = Leader::new();
    let ticket = leader.enter("one");
    let one = leader.joined(ticket);
    leader.fail_over();
    assert_eq!(leader.describe().state, "CompletingRebalance");
    assert_eq!(leader.heartbeat(&one), 0);
    let sync = leader.sync(&one, &[(&one.member_id, "a")]);
    assert_eq!(leader.synced(sync).assignment, "a");
}
