"""Conversations about records and their offsets."""

from batches import NOW, batch
from conversations import ask_variants, conversation


@conversation("Produce")
def produce(s, v):
    topic, compact = s.topic("produce", 2), s.topic("compact", 1, cleanup_policy="compact")
    small = s.topic("small", 1, max_message_bytes="200")

    def body(records, name=topic, partition=0, acks=-1, **changes):
        return {"transactionalId": None, "acks": acks, "timeoutMs": 30000, "topicData": [
            {"name": name, "partitionData": [{"index": partition, "records": records}]}], **changes}

    good = batch([b"a", b"b"])
    ask_variants(s, "Produce", v, body(good), fixed=("acks", "transactionalId"))
    for acks in (1, 2, -2, 127):
        s.ask("Produce", v, body(good, acks=acks), f"acks {acks}")
    wrong = {
        "gzip": dict(gzip=True), "crc": dict(crc_flip=1), "magic 0": dict(magic=0), "magic 1": dict(magic=1), "magic 3": dict(magic=3),
        "size too small": dict(size_change=-3), "size too large": dict(size_change=5), "count": dict(count=3), "no count": dict(count=0),
        "last delta": dict(last_delta=5), "negative delta": dict(last_delta=-1), "base offset": dict(base_offset=7),
        "codec 5": dict(attributes=5), "codec 7": dict(attributes=7), "control": dict(attributes=0x20),
        "transactional": dict(attributes=0x10), "log append time": dict(attributes=8), "unused attributes": dict(attributes=0x4000),
        "no record": dict(values=[]), "future": dict(timestamp=NOW + (10 << 40)), "time 0": dict(timestamp=0), "time -1": dict(timestamp=-1),
        "max time -1": dict(max_timestamp=-1), "producer without epoch": dict(producer_id=5), "sequence alone": dict(sequence=3),
        "leader epoch": dict(leader_epoch=77), "bytes behind the records": dict(records=b"\0" * 9),
        "gzip that is none": dict(attributes=1), "zstd that is none": dict(attributes=4), "lz4 that is none": dict(attributes=3),
        "snappy that is none": dict(attributes=2), "no key": dict(key=None),
    }
    for label, changes in wrong.items():
        changes = {"values": [b"a", b"b"], **changes}
        s.ask("Produce", v, body(batch(**changes)), label)
    s.ask("Produce", v, body(batch([b"a"], key=None), compact), "no key, compacted")
    s.ask("Produce", v, body(batch([b"a"]), compact), "key, compacted")
    s.ask("Produce", v, body(batch([b"x" * 500]), small), "too large")
    s.ask("Produce", v, body(good + good), "two batches")
    s.ask("Produce", v, body(good[:-1]), "cut")
    for name, partition in ((topic, 2), (topic, -1), ("unknown-name", 0), ("bad name", 0), ("", 0)):
        s.ask("Produce", v, body(good, name, partition), f"{name[-3:]} {partition}")
    both = body(good)
    both["topicData"].append({"name": "unknown-name", "partitionData": [{"index": 0, "records": good}]})
    s.ask("Produce", v, both, "a good and a bad topic")
    s.ask("Fetch", 11, fetch_body(topic, 0), "what was written")


@conversation("Produce", versions=[3, 8, 11])
def idempotence(s, v):
    topic = s.topic("idempotent", 2)
    pid, epoch = s.producer()

    def send(label, sequence, values=(b"a", b"b"), epoch=epoch, pid=pid, partition=0):
        records = batch(values, producer_id=pid, producer_epoch=epoch, sequence=sequence)
        s.ask("Produce", v, {"acks": -1, "timeoutMs": 30000, "topicData": [
            {"name": topic, "partitionData": [{"index": partition, "records": records}]}]}, label)

    send("first", 0), send("again", 0), send("next", 2), send("next again", 2), send("gap", 7), send("next after gap", 4)
    for n in range(6, 20, 2):
        send(f"sequence {n}", n)
    send("the last again", 18), send("the fifth last again", 10), send("the sixth last again", 8), send("the first again", 0)
    send("overlaps", 19), send("a part of the last", 18, (b"a",))
    send("next epoch, not 0", 5, epoch=epoch + 1), send("next epoch", 0, epoch=epoch + 1), send("old epoch", 20)
    send("another partition, not 0", 4, partition=1), send("another partition", 0, partition=1)
    send("a stranger", 0, pid=999999), send("a stranger, not 0", 3, pid=888888), send("sequence -1", -1)
    s.ask("DescribeProducers", 0, {"topics": [{"name": topic, "partitionIndexes": [0, 1]}]}, "producers")


@conversation("InitProducerId")
def init_producer_id(s, v):
    s.producer()
    base = {"transactionalId": None, "transactionTimeoutMs": 60000, "producerId": -1, "producerEpoch": -1}
    ask_variants(s, "InitProducerId", v, base, fixed=("transactionalId", "enable2Pc", "keepPreparedTxn"))


@conversation("DescribeProducers")
def describe_producers(s, v):
    topic = s.topic("producers", 2)
    s.produce(topic, batch([b"a"], producer_id=4711, producer_epoch=3, sequence=0))
    ask_variants(s, "DescribeProducers", v, {"topics": [{"name": topic, "partitionIndexes": [0, 1]}]})


def fetch_body(topic, offset, *, identity=None, partition=0, **changes):
    named = {"topicId": identity} if identity else {"topic": topic}
    one = {"partition": partition, "currentLeaderEpoch": -1, "fetchOffset": offset, "lastFetchedEpoch": -1, "logStartOffset": -1,
           "partitionMaxBytes": 1 << 20}
    one |= {k: changes.pop(k) for k in list(changes) if k in one}
    return {"replicaId": -1, "maxWaitMs": 50, "minBytes": 1, "maxBytes": 1 << 20, "isolationLevel": 0, "sessionId": 0,
            "sessionEpoch": -1, "topics": [{**named, "partitions": [one]}], "forgottenTopicsData": [], "rackId": "", **changes}


@conversation("Fetch")
def fetch(s, v):
    topic = s.topic("fetch", 2)
    for n in range(5):
        s.produce(topic, batch([b"a%d" % n, b"b%d" % n]))
    identity = s.topic_id(topic) if v >= 13 else None

    def body(offset=0, **changes):
        return fetch_body(topic, offset, identity=identity, **changes)

    ask_variants(s, "Fetch", v, body(), fixed=("maxWaitMs", "replicaId", "replicaState", "sessionId", "sessionEpoch", "clusterId"))
    for offset in (0, 1, 9, 10, 11, -1):
        s.ask("Fetch", v, body(offset), f"offset {offset}")
    for limit in (0, 1, 70, 100, 200):
        s.ask("Fetch", v, body(0, maxBytes=limit), f"maxBytes {limit}")
        s.ask("Fetch", v, body(0, partitionMaxBytes=limit), f"partitionMaxBytes {limit}")
    for epoch in (0, 1, 5):
        s.ask("Fetch", v, body(0, currentLeaderEpoch=epoch), f"leader epoch {epoch}")
    s.ask("Fetch", v, body(0, isolationLevel=1), "read committed")
    s.ask("DeleteRecords", 1, {"topics": [{"name": topic, "partitions": [{"partitionIndex": 0, "offset": 4}]}], "timeoutMs": 9000},
          quiet=True)
    for offset in (0, 3, 4, 5):
        s.ask("Fetch", v, body(offset), f"offset {offset}, start 4")


@conversation("Fetch", versions=[7, 12, 13, 18])
def fetch_sessions(s, v):
    topic = s.topic("sessions", 3)
    identity = s.topic_id(topic) if v >= 13 else None
    named = {"topicId": identity} if identity else {"topic": topic}
    for p in range(3):
        s.produce(topic, batch([b"a"]), p)

    def part(p, offset):
        return {"partition": p, "currentLeaderEpoch": -1, "fetchOffset": offset, "partitionMaxBytes": 1 << 20}

    def ask(label, session, epoch, parts=(), forgotten=()):
        topics = [{**named, "partitions": list(parts)}] if parts else []
        gone = [{**named, "partitions": list(forgotten)}] if forgotten else []
        return s.ask("Fetch", v, {"maxWaitMs": 20, "minBytes": 1, "sessionId": session, "sessionEpoch": epoch, "topics": topics,
                                  "forgottenTopicsData": gone}, label)

    opened = ask("opens", 0, 0, [part(0, 0), part(1, 0)])
    number = opened["sessionId"]
    ask("nothing new", number, 1, [part(0, 1), part(1, 1)])
    ask("adds", number, 2, [part(2, 0)])
    s.produce(topic, batch([b"b"]), 0)
    ask("one has something", number, 3)
    ask("forgets", number, 4, forgotten=[0])
    ask("wrong epoch", number, 9)
    ask("next after wrong epoch", number, 5)
    ask("unknown session", 12345, 1)
    ask("unknown partition", number, 6, [part(7, 0)])
    ask("out of range", number, 7, [part(1, 99)])
    ask("closes", number, -1)
    ask("closed", number, 8)
    ask("none at all", 0, 0)


@conversation("ListOffsets")
def list_offsets(s, v):
    topic, empty = s.topic("offsets", 2), s.topic("empty")
    for n in range(4):
        s.produce(topic, batch([b"a", b"b"], timestamp=NOW + 1000 * n))

    def body(timestamp, name=topic, partition=0, **changes):
        one = {"partitionIndex": partition, "currentLeaderEpoch": -1, "timestamp": timestamp}
        one |= {k: changes.pop(k) for k in list(changes) if k in one}
        return {"replicaId": -1, "isolationLevel": 0, "topics": [{"name": name, "partitions": [one]}], "timeoutMs": 5000, **changes}

    ask_variants(s, "ListOffsets", v, body(-1), fixed=("timeoutMs", "replicaId"))
    for timestamp in (-1, -2, -3, -4, -5, -6, -7, -100, 0, NOW, NOW + 1, NOW + 1000, NOW + 3000, NOW + 3001, 1 << 60):
        s.ask("ListOffsets", v, body(timestamp), f"timestamp {timestamp}")
        s.ask("ListOffsets", v, body(timestamp, empty), f"timestamp {timestamp}, empty")
    for epoch in (0, 1, 9):
        s.ask("ListOffsets", v, body(-1, currentLeaderEpoch=epoch), f"leader epoch {epoch}")
    s.ask("ListOffsets", v, body(-1, isolationLevel=1), "read committed")
    s.ask("ListOffsets", v, body(-1, replicaId=-2), "debugging replica")


@conversation("OffsetForLeaderEpoch")
def offset_for_leader_epoch(s, v):
    topic = s.topic("epochs", 2)
    s.produce(topic, batch([b"a", b"b"]))
    base = {"replicaId": -2, "topics": [{"topic": topic, "partitions": [
        {"partition": 0, "currentLeaderEpoch": -1, "leaderEpoch": 0}]}]}
    ask_variants(s, "OffsetForLeaderEpoch", v, base, fixed=("replicaId",))
    s.ask("OffsetForLeaderEpoch", v, {**base, "replicaId": -1}, "replica -1")


@conversation("DeleteRecords")
def delete_records(s, v):
    topic = s.topic("trim", 2)
    for _ in range(5):
        s.produce(topic, batch([b"a", b"b"]))

    def body(offset, name=topic, partition=0):
        return {"topics": [{"name": name, "partitions": [{"partitionIndex": partition, "offset": offset}]}], "timeoutMs": 9000}

    for offset in (0, 3, 2, 11, -2, -5, 10, -1):
        s.ask("DeleteRecords", v, body(offset), f"offset {offset}")
    ask_variants(s, "DeleteRecords", v, body(0), fixed=("timeoutMs", "offset"))
    s.ask("DeleteRecords", v, body(-1, partition=1), "an empty one")
    compact = s.topic("trimcompact", 1, cleanup_policy="compact")
    s.produce(compact, batch([b"a"]))
    s.ask("DeleteRecords", v, body(1, compact), "a compacted one")
