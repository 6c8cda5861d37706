"""Conversations about groups."""

from conversations import ask_variants, conversation


@conversation("FindCoordinator")
def find_coordinator(s, v):
    s.find_coordinator("first")
    if v >= 4:
        for keys in ([], ["a"], ["a", "b"], [""], ["a", "a"], ["x" * 300]):
            s.ask("FindCoordinator", v, {"keyType": 0, "coordinatorKeys": keys}, f"keys {[k[:5] for k in keys]}")
    else:
        for key in ("a", "", "x" * 300):
            s.ask("FindCoordinator", v, {"keyType": 0, "key": key}, f"key {key[:5]}")
    if v >= 1:
        for kind in (-1, 3, 127):
            s.ask("FindCoordinator", v, {"keyType": kind, "key": "a", "coordinatorKeys": ["a"]}, f"type {kind}")


def join_body(group, member="", instance=None, **changes):
    return {"groupId": group, "sessionTimeoutMs": 10000, "rebalanceTimeoutMs": 10000, "memberId": member, "groupInstanceId": instance,
            "protocolType": "consumer", "protocols": [{"name": "range", "metadata": b"meta"}], "reason": None, **changes}


def join(s, v, group, quiet=True, label="", **changes):
    """Joins as versions from 4 on want it, in two steps."""
    answer = s.ask("JoinGroup", v, join_body(group, **changes), f"{label} joins", quiet=quiet)
    if answer and answer["errorCode"] == 79:
        answer = s.ask("JoinGroup", v, join_body(group, member=answer["memberId"], **changes), f"{label} joins with its id", quiet=quiet)
    return answer


def sync_body(group, joined, **changes):
    return {"groupId": group, "generationId": joined["generationId"], "memberId": joined["memberId"], "groupInstanceId": None,
            "protocolType": "consumer", "protocolName": "range",
            "assignments": [{"memberId": joined["memberId"], "assignment": b"mine"}], **changes}


def stable(s, group, **changes):
    """A group with one member that has its assignment."""
    s.find_coordinator(group)
    joined = join(s, 5, group, **changes)
    s.ask("SyncGroup", 3, sync_body(group, joined, groupInstanceId=changes.get("instance")), quiet=True)
    return joined


@conversation("JoinGroup")
def join_group(s, v):
    s.find_coordinator("any")
    groups = iter(f"{s.prefix}-{n}" for n in range(1000))
    for label, changes in {
        "good": {}, "no protocols": dict(protocols=[]), "no protocol type": dict(protocolType=""), "other type": dict(protocolType="connect"),
        "session 0": dict(sessionTimeoutMs=0), "session -1": dict(sessionTimeoutMs=-1), "session 5999": dict(sessionTimeoutMs=5999),
        "session 6000": dict(sessionTimeoutMs=6000), "session 1800000": dict(sessionTimeoutMs=1800000),
        "session 1800001": dict(sessionTimeoutMs=1800001), "unknown member": dict(member="nobody"),
        "empty protocol name": dict(protocols=[{"name": "", "metadata": b""}]),
        "two protocols": dict(protocols=[{"name": "a", "metadata": b"1"}, {"name": "b", "metadata": b"2"}]),
        "protocol twice": dict(protocols=[{"name": "a", "metadata": b"1"}, {"name": "a", "metadata": b"2"}]),
        "long reason": dict(reason="r" * 400), "empty metadata": dict(protocols=[{"name": "range", "metadata": b""}]),
    }.items():
        s.ask("JoinGroup", v, join_body(next(groups), **changes), label)
    for group in ("", "bad name", "x" * 300):
        s.ask("JoinGroup", v, join_body(group), f"group {group[:8]}")
    group = next(groups)
    joined = join(s, v, group, quiet=False, label="first")
    s.ask("SyncGroup", 0, sync_body(group, joined), "first syncs")
    for label, changes in {"other type": dict(protocolType="connect"), "other protocol": dict(protocols=[{"name": "x", "metadata": b""}]),
                           "no protocols": dict(protocols=[])}.items():
        s.ask("JoinGroup", v, join_body(group, **changes), f"{label}, in a group")
    s.ask("JoinGroup", v, join_body(group, member=joined["memberId"]), "the leader again")
    if v >= 5:
        static(s, v, next(groups))


def static(s, v, group):
    first = s.ask("JoinGroup", v, join_body(group, instance="i"), "static")
    s.ask("SyncGroup", 3, sync_body(group, first, groupInstanceId="i"), "static syncs")
    second = s.ask("JoinGroup", v, join_body(group, instance="i"), "static, restarted")
    s.ask("Heartbeat", 3, {"groupId": group, "generationId": first["generationId"], "memberId": first["memberId"],
                           "groupInstanceId": "i"}, "the replaced one's heartbeat")
    if second:
        s.ask("Heartbeat", 3, {"groupId": group, "generationId": second["generationId"], "memberId": second["memberId"],
                               "groupInstanceId": "i"}, "the new one's heartbeat")
    s.ask("JoinGroup", v, join_body(group, member="nobody", instance="i"), "static with another's id")
    s.ask("DescribeGroups", 5, {"groups": [group]}, "described")


@conversation("SyncGroup")
def sync_group(s, v):
    group = f"{s.prefix}-sync"
    s.find_coordinator(group)
    joined = join(s, 5, group)
    for label, changes in {
        "unknown member": dict(memberId="nobody"), "no member": dict(memberId=""), "old generation": dict(generationId=0),
        "generation -1": dict(generationId=-1), "future generation": dict(generationId=99), "no group": dict(groupId=""),
        "unknown group": dict(groupId="nowhere"), "other type": dict(protocolType="connect"), "other protocol": dict(protocolName="sticky"),
        "null type": dict(protocolType=None), "null protocol": dict(protocolName=None), "unknown instance": dict(groupInstanceId="who"),
    }.items():
        if v >= 5 or not {"protocolType", "protocolName"} & changes.keys():
            if v >= 3 or "groupInstanceId" not in changes:
                s.ask("SyncGroup", v, sync_body(group, joined, **changes), f"{label}, completing")
    s.ask("SyncGroup", v, sync_body(group, joined, assignments=[{"memberId": "nobody", "assignment": b"x"}]), "an assignment for nobody")
    s.ask("SyncGroup", v, sync_body(group, joined, assignments=[]), "again, stable")
    s.ask("SyncGroup", v, sync_body(group, joined), "again, with assignments")
    s.ask("SyncGroup", v, sync_body(group, joined, generationId=0), "old generation, stable")


@conversation("Heartbeat")
def heartbeat(s, v):
    group = f"{s.prefix}-beat"
    joined = stable(s, group)
    base = {"groupId": group, "generationId": joined["generationId"], "memberId": joined["memberId"], "groupInstanceId": None}
    ask_variants(s, "Heartbeat", v, base)


@conversation("LeaveGroup")
def leave_group(s, v):
    group = f"{s.prefix}-leave"

    def body(member, instance=None, name=group):
        if v >= 3:
            return {"groupId": name, "members": [{"memberId": member, "groupInstanceId": instance}]}
        return {"groupId": name, "memberId": member}

    joined = stable(s, group)
    for label, one in {"nobody": body("nobody"), "no member": body(""), "unknown group": body("x", name="nowhere"), "no group": body("x", name="")}.items():
        s.ask("LeaveGroup", v, one, label)
    s.ask("LeaveGroup", v, body(joined["memberId"]), "the member")
    s.ask("LeaveGroup", v, body(joined["memberId"]), "again")
    if v >= 3:
        static_group = f"{s.prefix}-static"
        member = stable(s, static_group, instance="i")
        for label, one in {"another's id": body("nobody", "i", static_group), "unknown instance": body("", "j", static_group),
                           "by instance": body("", "i", static_group), "by instance, again": body("", "i", static_group)}.items():
            s.ask("LeaveGroup", v, one, label)
        s.ask("LeaveGroup", v, {"groupId": static_group, "members": []}, "none")
        assert member


@conversation("DescribeGroups")
def describe_groups(s, v):
    group = f"{s.prefix}-described"
    stable(s, group)
    for names in ([group], ["nowhere"], [""], [], [group, "nowhere"], [group, group]):
        for operations in (False, True) if v >= 3 else (False,):
            s.ask("DescribeGroups", v, {"groups": names, "includeAuthorizedOperations": operations},
                  f"{[n[-5:] for n in names]} {operations}")


@conversation("ListGroups")
def list_groups(s, v):
    stable(s, f"{s.prefix}-listed")
    s.ask("ListGroups", v, {}, "all")
    if v >= 4:
        for states in ([], ["Stable"], ["stable"], ["Empty"], ["nonsense"], ["Stable", "Empty"]):
            s.ask("ListGroups", v, {"statesFilter": states}, f"states {states}")
    if v >= 5:
        for types in (["classic"], ["Classic"], ["consumer"], ["share"], ["nonsense"]):
            s.ask("ListGroups", v, {"typesFilter": types}, f"types {types}")


def commit_body(group, topic, offset=5, *, partition=0, generation=-1, member="", instance=None, metadata="m"):
    return {"groupId": group, "generationIdOrMemberEpoch": generation, "memberId": member, "groupInstanceId": instance,
            "retentionTimeMs": -1, "topics": [{"name": topic, "partitions": [
                {"partitionIndex": partition, "committedOffset": offset, "committedLeaderEpoch": -1, "committedMetadata": metadata}]}]}


@conversation("OffsetCommit")
def offset_commit(s, v):
    topic, group = s.topic("commit", 2), f"{s.prefix}-commit"
    s.find_coordinator(group)
    ask_variants(s, "OffsetCommit", v, commit_body(group, topic))
    for label, body in {
        "offset -1": commit_body(group, topic, -1), "offset -2": commit_body(group, topic, -2), "no metadata": commit_body(group, topic, metadata=None),
        "metadata of 4096": commit_body(group, topic, metadata="m" * 4096), "metadata of 4097": commit_body(group, topic, metadata="m" * 4097),
        "partition 9": commit_body(group, topic, partition=9), "member without generation": commit_body(group, topic, member="x"),
        "generation without member": commit_body(group, topic, generation=3), "unknown topic": commit_body(group, "unknown-name"),
    }.items():
        s.ask("OffsetCommit", v, body, label)
    used = f"{s.prefix}-used"
    member = stable(s, used)
    for label, changes in {
        "the member": dict(generation=member["generationId"], member=member["memberId"]), "an old generation": dict(generation=0, member=member["memberId"]),
        "a future one": dict(generation=9, member=member["memberId"]), "nobody": dict(generation=member["generationId"], member="nobody"),
        "from outside": {}, "an unknown instance": dict(generation=member["generationId"], member=member["memberId"], instance="who"),
    }.items():
        if v >= 7 or "instance" not in changes:
            s.ask("OffsetCommit", v, commit_body(used, topic, **changes), f"{label}, in use")
    s.ask("OffsetFetch", 5, {"groupId": group, "topics": None}, "what was committed")
    s.ask("OffsetFetch", 5, {"groupId": used, "topics": None}, "what was committed, in use")


@conversation("OffsetFetch")
def offset_fetch(s, v):
    topic, group = s.topic("fetched", 3), f"{s.prefix}-fetched"
    s.find_coordinator(group)
    s.ask("OffsetCommit", 7, commit_body(group, topic), quiet=True)

    def body(name, topics, stable=False):
        if v >= 8:
            return {"groups": [{"groupId": name, "memberId": None, "memberEpoch": -1, "topics": topics}], "requireStable": stable}
        return {"groupId": name, "topics": topics, "requireStable": stable}

    one = [{"name": topic, "partitionIndexes": [0, 1]}]
    ask_variants(s, "OffsetFetch", v, body(group, one))
    for label, case in {
        "all": body(group, None) if v >= 2 else body(group, one), "none": body(group, []), "unknown topic": body(group, [{"name": "unknown-name", "partitionIndexes": [0]}]),
        "unknown partition": body(group, [{"name": topic, "partitionIndexes": [9]}]), "unknown group": body("nowhere", one),
        "unknown group, all": body("nowhere", None) if v >= 2 else body("nowhere", one), "no group": body("", one), "stable": body(group, one, True),
    }.items():
        s.ask("OffsetFetch", v, case, label)
    if v >= 9:
        for member, epoch in (("x", 0), ("x", 5), (None, 5), ("", -1)):
            case = body(group, one)
            case["groups"][0] |= {"memberId": member, "memberEpoch": epoch}
            s.ask("OffsetFetch", v, case, f"member {member} epoch {epoch}")
    if v >= 8:
        s.ask("OffsetFetch", v, {"groups": []}, "no groups")
        two = body(group, one)
        s.ask("OffsetFetch", v, {**two, "groups": two["groups"] + body("nowhere", None)["groups"]}, "two groups")


@conversation("OffsetDelete")
def offset_delete(s, v):
    topic, other, group = s.topic("forgot", 2), s.topic("forgot2", 1), f"{s.prefix}-forget"
    s.find_coordinator(group)
    for name in (topic, other):
        s.ask("OffsetCommit", 7, commit_body(group, name), quiet=True)
    ask_variants(s, "OffsetDelete", v, {"groupId": group, "topics": [{"name": topic, "partitions": [{"partitionIndex": 0}]}]})
    s.ask("OffsetFetch", 5, {"groupId": group, "topics": None}, "what is left")
    s.ask("OffsetDelete", v, {"groupId": group, "topics": [{"name": other, "partitions": [{"partitionIndex": 0}]}]}, "the last")
    used = f"{s.prefix}-used"
    stable(s, used)
    s.ask("OffsetDelete", v, {"groupId": used, "topics": [{"name": topic, "partitions": [{"partitionIndex": 0}]}]}, "in use")


@conversation("DeleteGroups")
def delete_groups(s, v):
    topic, group = s.topic("gone"), f"{s.prefix}-gone"
    s.find_coordinator(group)
    s.ask("OffsetCommit", 7, commit_body(group, topic), quiet=True)
    used = f"{s.prefix}-used"
    stable(s, used)
    for names in (["nowhere"], [""], [], [used], [group], [group], [used, "nowhere"]):
        s.ask("DeleteGroups", v, {"groupsNames": names}, f"{[n[-5:] for n in names]}")
    s.ask("OffsetFetch", 5, {"groupId": group, "topics": None}, "its offsets")
