"""kafka-python behind the runner's commands."""

import json
import os
import signal
import sys

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, NewTopic
from kafka.errors import KafkaError, UnknownTopicOrPartitionError

COMMON = {"bootstrap_servers": os.environ["BROKERS"].split(",")}


def main(command, *args):
    try:
        COMMANDS[command](*args)
    except KafkaError as e:
        sys.exit(f"{type(e).__name__}: {e}")


def produce(topic, codec):
    producer = KafkaProducer(**COMMON, compression_type=None if codec == "none" else codec, linger_ms=20,
                             enable_idempotence=True, max_request_size=10_000_000)
    sent = []
    for line in sys.stdin:
        record = json.loads(line)
        if record["key"] is None and record["value"] is None:
            print("kafka-python refuses a record with neither", file=sys.stderr)
            sys.exit(77)
        headers = [(name, data(value)) for name, value in record["headers"]]
        sent.append(producer.send(topic, partition=record["partition"], key=data(record["key"]),
                                  value=data(record["value"]), headers=headers))
    for future in sent:
        future.get(60)
    producer.close()


def consume(topic, start, count):
    consumer = KafkaConsumer(**COMMON, auto_offset_reset="none", enable_auto_commit=False, allow_auto_create_topics=False)
    if not consumer.partitions_for_topic(topic):
        raise UnknownTopicOrPartitionError(topic)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    kind, _, number = start.partition(":")
    if kind == "beginning":
        consumer.seek_to_beginning(partition)
    elif kind == "end":
        consumer.seek_to_end(partition)
    elif kind == "timestamp":
        consumer.seek(partition, consumer.offsets_for_times({partition: int(number)})[partition].offset)
    else:
        consumer.seek(partition, int(number))
    for _ in range(int(count)):
        show(next(consumer))
    consumer.close()


def group(name, topic):
    running = True

    def stop(*_):
        nonlocal running
        running = False

    signal.signal(signal.SIGTERM, stop)
    consumer = KafkaConsumer(topic, **COMMON, group_id=name, auto_offset_reset="earliest", session_timeout_ms=6000,
                             heartbeat_interval_ms=500)
    # A leader that joins before it knows the topic gives out nothing, and notices never: its metadata waits 100 ms.
    consumer.partitions_for_topic(topic)
    while running:
        for records in consumer.poll(timeout_ms=200).values():
            for record in records:
                show(record)
    consumer.close()


def show(record):
    headers = [[name, text(value)] for name, value in record.headers]
    print(json.dumps({"partition": record.partition, "offset": record.offset, "timestamp": record.timestamp,
                      "key": text(record.key), "value": text(record.value), "headers": headers}), flush=True)


def text(value):
    return None if value is None else value.decode()


def data(value):
    return None if value is None else value.encode()


def create(topic, partitions, *configs):
    config = dict(c.split("=", 1) for c in configs)
    KafkaAdminClient(**COMMON).create_topics([NewTopic(topic, int(partitions), 1, topic_configs=config)])


def alter(topic, *configs):
    resource = ConfigResource("TOPIC", topic, dict(c.split("=", 1) for c in configs))
    answers = KafkaAdminClient(**COMMON).alter_configs([resource])
    if answers["topic"][topic] != "OK":
        sys.exit(f"alter: {answers}")


def delete(topic):
    KafkaAdminClient(**COMMON).delete_topics([topic])


def describe(topic):
    admin = KafkaAdminClient(**COMMON)
    (found,) = admin.describe_topics([topic])
    configs = admin.describe_configs([ConfigResource("TOPIC", topic)], config_filter="all")["topic"][topic]
    print(json.dumps({"partitions": len(found["partitions"]), "configs": {k: v["value"] for k, v in configs.items()}}))


COMMANDS = {f.__name__: f for f in (produce, consume, group, create, alter, delete, describe)}
main(*sys.argv[1:])
