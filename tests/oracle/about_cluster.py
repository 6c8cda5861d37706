"""Conversations about versions, metadata and the cluster."""

from conversations import ask_variants, conversation


@conversation("ApiVersions")
def api_versions(s, v):
    ask_variants(s, "ApiVersions", v, {"clientSoftwareName": "oracle", "clientSoftwareVersion": "1.0"})
    for name in ("a", "-a", "a-", "a.b-c", "a b", "ü"):
        s.ask("ApiVersions", v, {"clientSoftwareName": name, "clientSoftwareVersion": "1"}, f"name {name}")
        s.ask("ApiVersions", v, {"clientSoftwareName": "x", "clientSoftwareVersion": name}, f"version {name}")


@conversation("ApiVersions", versions=[0])
def unknown_versions(s, v):
    for key, message in sorted((m.key, n.removesuffix("Request")) for n, m in s.definitions.items() if n.endswith("Request")):
        if key in SERVED:
            highest = s.definitions[f"{message}Request"].versions[1]
            s.send_bytes_at(message, highest + 1, b"\0" * 64, "a version above the highest")
            s.send_bytes_at(message, -1, b"\0" * 64, "version -1")
    for key in (4, 5, 6, 7, 52, 53, 54, 56, 58, 59, 99, 1000, -1):
        s.send_key(key, 0, b"\0" * 32, f"api key {key}")


@conversation("Metadata")
def metadata(s, v):
    topic = s.topic("one", 3)
    s.topic("two", 1)
    base = {"topics": [{"name": topic, "topicId": s.topic_id(topic)} if v >= 12 else {"name": topic}],
            "allowAutoTopicCreation": False}
    if v < 12:
        ask_variants(s, "Metadata", v, base, fixed=("allowAutoTopicCreation",))
    s.ask("Metadata", v, {"topics": [{"name": topic}], "allowAutoTopicCreation": False}, "by name")
    if v >= 10:
        ask_variants(s, "Metadata", v, {"topics": [{"name": None, "topicId": s.topic_id(topic)}],
                                        "allowAutoTopicCreation": False}, fixed=("allowAutoTopicCreation",))
    for name in ("missing", "bad name", "..", "a" * 250, "__consumer_offsets" if v > 99 else "x/y"):
        if v >= 4:
            s.ask("Metadata", v, {"topics": [{"name": name}], "allowAutoTopicCreation": False}, f"missing {name[:20]}")
    for flags in ({"includeClusterAuthorizedOperations": True}, {"includeTopicAuthorizedOperations": True}):
        if 8 <= v <= 10 or v > 10 and "includeTopicAuthorizedOperations" in flags:
            s.ask("Metadata", v, {"topics": [{"name": topic}], "allowAutoTopicCreation": False, **flags}, str(flags))


@conversation("Metadata", versions=[1, 4, 13])
def auto_creation(s, v):
    for name in ("made", "bad name", ""):
        s.ask("Metadata", v, {"topics": [{"name": f"{s.prefix}-{name}" if name == "made" else name}],
                              "allowAutoTopicCreation": True}, f"creates {name or 'nothing'}")
    s.await_topic(f"{s.prefix}-made", 2)
    s.ask("Metadata", v, {"topics": [{"name": f"{s.prefix}-made"}], "allowAutoTopicCreation": True}, "is there")


@conversation("DescribeCluster")
def describe_cluster(s, v):
    ask_variants(s, "DescribeCluster", v, {"includeClusterAuthorizedOperations": False, "endpointType": 1})


@conversation("DescribeTopicPartitions")
def describe_topic_partitions(s, v):
    one, two = s.topic("one", 3), s.topic("two", 2)
    base = {"topics": [{"name": one}, {"name": two}], "responsePartitionLimit": 2000, "cursor": None}
    ask_variants(s, "DescribeTopicPartitions", v, base, fixed=("responsePartitionLimit",))
    for limit in (1, 2, 3, 4, 5):
        s.ask("DescribeTopicPartitions", v, {**base, "responsePartitionLimit": limit}, f"limit {limit}")
    for name, index in ((one, 0), (one, 1), (one, 3), (two, 1), ("zz", 0), ("", 0), (one, -1)):
        s.ask("DescribeTopicPartitions", v, {**base, "cursor": {"topicName": name, "partitionIndex": index}},
              f"cursor {name[-3:]} {index}")



SERVED = {0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 16, 19, 20, 21, 22, 23, 32, 33, 35, 37, 42, 43, 44, 45, 46, 47, 55, 57, 60, 61, 64,
          74, 75}
