"""Conversations about where partitions lie, who leads them, who coordinates, and what the cluster can do."""

from conversations import ask_variants, conversation

METADATA = "__cluster_metadata"


@conversation("ElectLeaders")
def elect_leaders(s, v):
    topic = s.topic("led", 2)
    base = {"topicPartitions": [{"topic": topic, "partitions": [0, 1]}], "timeoutMs": 30000}
    kinds = (0, 1, 2) if v >= 1 else (None,)
    for kind in kinds:
        body = base if kind is None else {**base, "electionType": kind}
        if kind in (None, 0):
            ask_variants(s, "ElectLeaders", v, body, fixed=("timeoutMs",))
        else:
            s.ask("ElectLeaders", v, body, f"kind {kind}")
    for name, index in ((topic, 2), (topic, -1), ("missing", 0), ("bad name", 0), ("", 0)):
        body = {**base, "topicPartitions": [{"topic": name, "partitions": [index]}]}
        s.ask("ElectLeaders", v, body if v == 0 else {**body, "electionType": 0}, f"{name[-7:]} {index}")


@conversation("AlterPartitionReassignments")
def alter_partition_reassignments(s, v):
    topic = s.topic("moved", 2)

    def body(name, index, replicas):
        return {"timeoutMs": 60000, "topics": [{"name": name, "partitions": [{"partitionIndex": index, "replicas": replicas}]}]}

    ask_variants(s, "AlterPartitionReassignments", v, body(topic, 0, [1]), fixed=("timeoutMs",))
    for name, index, replicas in (
        (topic, 0, [1]), (topic, 0, None), (topic, 0, []), (topic, 0, [1, 1]), (topic, 0, [99]), (topic, 0, [1, 99]), (topic, 0, [-1]),
        (topic, 2, [1]), (topic, -1, [1]), ("missing", 0, [1]), ("bad name", 0, [1]), ("", 0, [1]), (topic, 2, None), ("missing", 0, None),
    ):
        s.ask("AlterPartitionReassignments", v, body(name, index, replicas), f"{name[-7:]} {index} to {replicas}")


@conversation("AlterReplicaLogDirs")
def alter_replica_log_dirs(s, v):
    topic = s.topic("housed", 2)
    for path in ("/no/such/directory", "relative", ""):
        for name, index in ((topic, 0), (topic, 2), ("missing", 0), ("", 0)):
            body = {"dirs": [{"path": path, "topics": [{"name": name, "partitions": [index]}]}]}
            s.ask("AlterReplicaLogDirs", v, body, f"{name[-7:]} {index} to '{path}'")
    s.ask("AlterReplicaLogDirs", v, {"dirs": []}, "nothing")


@conversation("ListPartitionReassignments")
def list_partition_reassignments(s, v):
    topic = s.topic("still", 2)
    base = {"timeoutMs": 60000, "topics": [{"name": topic, "partitionIndexes": [0, 1]}]}
    ask_variants(s, "ListPartitionReassignments", v, base, fixed=("timeoutMs",))
    s.ask("ListPartitionReassignments", v, {**base, "topics": None}, "all")


@conversation("UnregisterBroker")
def unregister_broker(s, v):
    for broker in (99, -1, -(1 << 31)):
        s.ask("UnregisterBroker", v, {"brokerId": broker}, f"broker {broker}")


@conversation("DescribeQuorum")
def describe_quorum(s, v):
    def body(name, index):
        return {"topics": [{"topicName": name, "partitions": [{"partitionIndex": index}]}]}

    s.ask("DescribeQuorum", v, body(METADATA, 0), "the one there is")
    for name, index in ((METADATA, 1), (METADATA, -1), ("missing", 0), ("", 0), (s.topic("none", 1), 0)):
        s.ask("DescribeQuorum", v, body(name, index), f"{name[-7:]} {index}")
    s.ask("DescribeQuorum", v, {"topics": []}, "nothing")


@conversation("UpdateFeatures")
def update_features(s, v):
    def body(name, level, **more):
        update = {"feature": name, "maxVersionLevel": level}
        return {"timeoutMs": 60000, "featureUpdates": [update | more]}

    for name, level in (("no.such", 1), ("no.such", 0), ("no.such", -1), ("", 1), ("a" * 300, 1)):
        s.ask("UpdateFeatures", v, body(name, level), f"{name[:7]} to {level}")
        if v >= 1:
            for kind in (1, 2, 3, 0, 9):
                s.ask("UpdateFeatures", v, body(name, level, upgradeType=kind) | {"validateOnly": True}, f"{name[:7]} to {level}, kind {kind}")
    s.ask("UpdateFeatures", v, {"timeoutMs": 60000, "featureUpdates": []}, "nothing")
