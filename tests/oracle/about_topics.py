"""Conversations about topics and configurations."""

from uuid import UUID

from conversations import ask_variants, conversation
from mutate import STRANGER


@conversation("CreateTopics")
def create_topics(s, v):
    counter = iter(range(10_000))

    def fresh(**changes):
        topic = {"name": f"{s.prefix}-{next(counter)}", "numPartitions": 1, "replicationFactor": 1, "assignments": [],
                 "configs": [], **changes}
        return {"topics": [topic], "timeoutMs": 30000, "validateOnly": False}

    cases = [{}, *({"numPartitions": n} for n in (0, -1, -2, 3)), *({"replicationFactor": n} for n in (0, -1, -2, 2, 32767)),
             *({"name": n} for n in ("", ".", "..", "bad name", "x" * 249, "x" * 250, "ü", "a/b"))]
    assignments = ([{"partitionIndex": 0, "brokerIds": [1]}],
                   [{"partitionIndex": 0, "brokerIds": [1]}, {"partitionIndex": 1, "brokerIds": [1]}],
                   [{"partitionIndex": 1, "brokerIds": [1]}], [{"partitionIndex": 0, "brokerIds": []}],
                   [{"partitionIndex": 0, "brokerIds": [1, 1]}], [{"partitionIndex": 0, "brokerIds": [2]}],
                   [{"partitionIndex": 0, "brokerIds": [-1]}], [{"partitionIndex": -1, "brokerIds": [1]}],
                   [{"partitionIndex": 0, "brokerIds": [1]}, {"partitionIndex": 0, "brokerIds": [1]}])
    cases += [{"assignments": a, "numPartitions": -1, "replicationFactor": -1} for a in assignments]
    cases += [{"assignments": assignments[0]}, {"assignments": assignments[0], "numPartitions": -1},
              {"assignments": assignments[0], "replicationFactor": -1}]
    cases += [{"configs": [{"name": name, "value": value}]} for name, value in CONFIGS]
    cases.append({"configs": [{"name": "retention.ms", "value": "1000"}, {"name": "retention.ms", "value": "2000"}]})
    for only in (False, True):
        for case in cases:
            s.ask("CreateTopics", v, {**fresh(**case), "validateOnly": only}, f"{case} validateOnly={only}")
    topic = s.topic("there")
    for only in (False, True):
        s.ask("CreateTopics", v, {**fresh(name=topic), "validateOnly": only}, f"exists, validateOnly={only}")
    twice = fresh()
    s.ask("CreateTopics", v, {**twice, "topics": twice["topics"] * 2}, "named twice")
    s.ask("CreateTopics", v, {**twice, "topics": []}, "none")
    s.ask("CreateTopics", v, {**twice, "topics": twice["topics"] + fresh(numPartitions=0)["topics"]}, "a good and a bad one")
    for name in ("a.b", "a_b"):
        s.ask("CreateTopics", v, fresh(name=f"{s.prefix}-{name}"), f"dots and underscores collide: {name}")


# Each key of a topic that both know, with good and bad values.
CONFIGS = [
    *(("cleanup.policy", x) for x in ("compact", "delete", "compact,delete", "", "none", "compact,compact")),
    *(("compression.type", x) for x in ("gzip", "zstd", "producer", "uncompressed", "none", "brotli")),
    *(("retention.ms", x) for x in ("-1", "-2", "0", "1000", "never", "", "9223372036854775807", "9223372036854775808")),
    *(("retention.bytes", x) for x in ("-1", "-2", "0", "x")),
    *(("segment.bytes", x) for x in ("1048575", "1048576", "2147483647", "2147483648", "-1")),
    *(("segment.ms", x) for x in ("0", "1", "-1")),
    *(("max.message.bytes", x) for x in ("0", "-1", "1", "x")),
    *(("min.insync.replicas", x) for x in ("0", "1", "2", "x")),
    *(("min.cleanable.dirty.ratio", x) for x in ("0", "1", "1.1", "-0.1", "half")),
    *(("message.timestamp.type", x) for x in ("CreateTime", "LogAppendTime", "createtime")),
    *(("unclean.leader.election.enable", x) for x in ("true", "TRUE", "yes", "")),
    *(("preallocate", x) for x in ("false", "1")),
    *(("flush.messages", x) for x in ("0", "1", "-1")), *(("flush.ms", x) for x in ("0", "-1")),
    *(("delete.retention.ms", x) for x in ("0", "-1")), *(("file.delete.delay.ms", x) for x in ("0", "-1")),
    *(("min.compaction.lag.ms", x) for x in ("0", "-1")), *(("max.compaction.lag.ms", x) for x in ("0", "1")),
    *(("index.interval.bytes", x) for x in ("0", "-1")), *(("segment.index.bytes", x) for x in ("3", "4", "12")),
    *(("segment.jitter.ms", x) for x in ("0", "-1")),
    *(("message.timestamp.after.max.ms", x) for x in ("0", "-1")),
    ("retention.ms", None), ("no.such.key", "1"), ("", "1"), ("retention.ms ", "1"),
]


@conversation("DeleteTopics")
def delete_topics(s, v):
    def body(*names):
        if v >= 6:
            return {"topics": [{"name": n} for n in names], "timeoutMs": 30000}
        return {"topicNames": list(names), "timeoutMs": 30000}

    one = s.topic("one")
    s.ask("DeleteTopics", v, body(one), "there")
    s.ask("DeleteTopics", v, body(one), "gone")
    for name in ("", "bad name", "unknown-name", "x" * 300):
        s.ask("DeleteTopics", v, body(name), f"name {name[:10]}")
    s.ask("DeleteTopics", v, body(), "none")
    two = s.topic("two")
    s.ask("DeleteTopics", v, body(two, "unknown-name"), "there and not")
    if v >= 6:
        three = s.topic("three")
        identity = s.topic_id(three)
        for topics, label in (([{"name": three, "topicId": identity}], "name and id"), ([{"name": None, "topicId": STRANGER}], "stranger"),
                              ([{"name": None, "topicId": UUID(int=0)}], "neither"), ([{"name": None, "topicId": identity}], "id"),
                              ([{"name": None, "topicId": identity}], "id, gone")):
            s.ask("DeleteTopics", v, {"topics": topics, "timeoutMs": 30000}, label)


@conversation("CreatePartitions")
def create_partitions(s, v):
    topic = s.topic("parts", 2)

    def body(count, assignments=None, only=False, name=topic):
        return {"topics": [{"name": name, "count": count, "assignments": assignments}], "timeoutMs": 30000, "validateOnly": only}

    for count in (0, -1, 1, 2):
        s.ask("CreatePartitions", v, body(count), f"count {count}")
    s.ask("CreatePartitions", v, body(3, only=True), "3, only validated")
    s.ask("CreatePartitions", v, body(3), "3")
    for assignments in ([], [{"brokerIds": [2]}], [{"brokerIds": []}], [{"brokerIds": [1, 1]}], [{"brokerIds": [1]}] * 2,
                        [{"brokerIds": [1]}]):
        s.ask("CreatePartitions", v, body(4, assignments), f"4 with {assignments}")
    for name in ("", "unknown-name", "bad name"):
        s.ask("CreatePartitions", v, body(3, name=name), f"name {name}")
    twice = body(6)
    s.ask("CreatePartitions", v, {**twice, "topics": twice["topics"] * 2}, "named twice")
    s.ask("CreatePartitions", v, {**twice, "topics": []}, "none")


@conversation("DescribeConfigs")
def describe_configs(s, v):
    topic = s.topic("configs", 1, retention_ms="1234567", cleanup_policy="compact")
    keys = [name for name, _ in dict(CONFIGS).items() if name and "no.such" not in name and name == name.strip()]
    base = {"resources": [{"resourceType": 2, "resourceName": topic, "configurationKeys": ["retention.ms", "cleanup.policy"]}],
            "includeSynonyms": False, "includeDocumentation": False}
    ask_variants(s, "DescribeConfigs", v, base, fixed=("includeDocumentation",))
    for key in keys:
        for synonyms in (False, True):
            one = {"resourceType": 2, "resourceName": topic, "configurationKeys": [key]}
            s.ask("DescribeConfigs", v, {**base, "resources": [one], "includeSynonyms": synonyms}, f"{key} synonyms={synonyms}")
    for name in ("1", "", "2", "x", "-1"):
        one = {"resourceType": 4, "resourceName": name, "configurationKeys": ["log.retention.ms", "num.partitions"]}
        s.ask("DescribeConfigs", v, {**base, "resources": [one]}, f"broker {name}")


def alter_cases(topic):
    yield "unknown topic", "unknown-name", 2, [("retention.ms", "1000")]
    yield "empty name", "", 2, [("retention.ms", "1000")]
    yield "no changes", topic, 2, []
    yield "twice", topic, 2, [("retention.ms", "1000"), ("retention.ms", "2000")]
    for kind in (0, 1, 3, 127, -1):
        yield f"type {kind}", topic, kind, [("retention.ms", "1000")]
    for name, value in CONFIGS:
        yield f"{name}={value}", topic, 2, [(name, value)]
    for name in ("99", "x", "-1"):
        yield f"broker {name}", name, 4, [("log.retention.ms", "1000000")]


@conversation("AlterConfigs")
def alter_configs(s, v):
    topic = s.topic("alter", 1, retention_bytes="1000")
    for only in (True, False):
        for label, name, kind, configs in alter_cases(topic):
            resource = {"resourceType": kind, "resourceName": name, "configs": [{"name": k, "value": x} for k, x in configs]}
            s.ask("AlterConfigs", v, {"resources": [resource], "validateOnly": only}, f"{label} validateOnly={only}")
            s.ask("DescribeConfigs", 2, {"resources": [{"resourceType": 2, "resourceName": topic, "configurationKeys": [
                "retention.bytes", "retention.ms"]}]}, f"after {label}")
    s.ask("AlterConfigs", v, {"resources": [], "validateOnly": False}, "none")


@conversation("IncrementalAlterConfigs")
def incremental_alter_configs(s, v):
    topic = s.topic("increment", 1, retention_bytes="1000")

    def ask(label, name, kind, configs, only=False):
        changes = [{"name": k, "configOperation": op, "value": x} for k, op, x in configs]
        resource = {"resourceType": kind, "resourceName": name, "configs": changes}
        s.ask("IncrementalAlterConfigs", v, {"resources": [resource], "validateOnly": only}, f"{label} validateOnly={only}")

    for only in (True, False):
        for label, name, kind, configs in alter_cases(topic):
            ask(label, name, kind, [(k, 0, x) for k, x in configs], only)
    for label, configs in {
        "delete": [("retention.bytes", 1, None)], "delete again": [("retention.bytes", 1, None)],
        "delete with value": [("retention.bytes", 1, "5")], "append": [("cleanup.policy", 2, "compact")],
        "append again": [("cleanup.policy", 2, "compact")], "subtract": [("cleanup.policy", 3, "compact")],
        "subtract what is not there": [("cleanup.policy", 3, "compact")], "append to a number": [("retention.ms", 2, "1")],
        "operation 4": [("retention.ms", 4, "1")], "operation -1": [("retention.ms", -1, "1")],
        "append null": [("cleanup.policy", 2, None)], "subtract all": [("cleanup.policy", 3, "delete")],
        "a good and a bad one": [("retention.ms", 0, "5000"), ("segment.bytes", 0, "x")],
    }.items():
        ask(label, topic, 2, configs)
        s.ask("DescribeConfigs", 2, {"resources": [{"resourceType": 2, "resourceName": topic, "configurationKeys": [
            "retention.bytes", "retention.ms", "cleanup.policy"]}]}, f"after {label}")
    s.ask("IncrementalAlterConfigs", v, {"resources": [], "validateOnly": False}, "none")


@conversation("ListConfigResources")
def list_config_resources(s, v):
    s.topic("listed")
    for types in ([], [2], [4], [0], [16], [32], [99], [2, 4], [2, 2]):
        s.ask("ListConfigResources", v, {"resourceTypes": types}, f"types {types}")


@conversation("DescribeLogDirs")
def describe_log_dirs(s, v):
    topic = s.topic("dirs", 2)
    base = {"topics": [{"topic": topic, "partitions": [0, 1]}]}
    ask_variants(s, "DescribeLogDirs", v, base, fixed=())
