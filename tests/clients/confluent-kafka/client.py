"""confluent-kafka (librdkafka) behind the runner's commands."""

import json
import os
import signal
import sys

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

COMMON = {"bootstrap.servers": os.environ["BROKERS"]}


def main(command, *args):
    try:
        COMMANDS[command](*args)
    except KafkaException as e:
        sys.exit(f"{e.args[0].name()}: {e.args[0].str()}")


def produce(topic, codec):
    failures = []
    producer = Producer({**COMMON, "compression.type": codec, "linger.ms": 20, "enable.idempotence": True,
                         "message.max.bytes": 10_000_000})

    def delivered(error, message):
        if error:
            failures.append(error)

    for line in sys.stdin:
        record = json.loads(line)
        producer.produce(topic, partition=record["partition"], key=record["key"], value=record["value"],
                         headers=[(name, value) for name, value in record["headers"]], on_delivery=delivered)
        producer.poll(0)
    producer.flush()
    if failures:
        raise KafkaException(failures[0])


def consume(topic, start, count):
    consumer = Consumer({**COMMON, "group.id": "unused", "enable.auto.commit": False, "auto.offset.reset": "error",
                         "allow.auto.create.topics": False})
    missing = consumer.list_topics(topic, timeout=30).topics[topic].error
    if missing:
        raise KafkaException(missing)
    kind, _, number = start.partition(":")
    if kind == "timestamp":
        found = consumer.offsets_for_times([TopicPartition(topic, 0, int(number))], timeout=30)[0]
        if found.error:
            raise KafkaException(found.error)
        offset = found.offset
    else:
        offset = {"beginning": -2, "end": -1}.get(kind) or int(number)
    consumer.assign([TopicPartition(topic, 0, offset)])
    for _ in range(int(count)):
        show(next_message(consumer))
    consumer.close()


def group(name, topic):
    running = True

    def stop(*_):
        nonlocal running
        running = False

    signal.signal(signal.SIGTERM, stop)
    consumer = Consumer({**COMMON, "group.id": name, "auto.offset.reset": "earliest", "session.timeout.ms": 6000,
                         "heartbeat.interval.ms": 500})
    consumer.subscribe([topic])
    while running:
        message = consumer.poll(0.2)
        if message is None:
            continue
        if message.error():
            raise KafkaException(message.error())
        show(message)
    consumer.close()


def next_message(consumer):
    while True:
        message = consumer.poll(1)
        if message is not None and message.error():
            raise KafkaException(message.error())
        if message is not None:
            return message


def show(message):
    def text(data):
        return None if data is None else data.decode()

    headers = [[name, text(value)] for name, value in message.headers() or []]
    print(json.dumps({"partition": message.partition(), "offset": message.offset(), "timestamp": message.timestamp()[1],
                      "key": text(message.key()), "value": text(message.value()), "headers": headers}), flush=True)


def admin(call):
    client = AdminClient(COMMON)  # must outlive its futures
    for future in call(client).values():
        future.result(60)


def create(topic, partitions, *configs):
    config = dict(c.split("=", 1) for c in configs)
    new = NewTopic(topic, int(partitions), 1, config=config)
    admin(lambda client: client.create_topics([new]))


def alter(topic, *configs):
    entries = [ConfigEntry(*c.split("=", 1), incremental_operation=AlterConfigOpType.SET) for c in configs]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin(lambda client: client.incremental_alter_configs([resource]))


def delete(topic):
    admin(lambda client: client.delete_topics([topic], operation_timeout=30))


def describe(topic):
    client = AdminClient(COMMON)
    partitions = len(client.list_topics(topic, timeout=30).topics[topic].partitions)
    (future,) = client.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    configs = {name: entry.value for name, entry in future.result(30).items()}
    print(json.dumps({"partitions": partitions, "configs": configs}))


COMMANDS = {f.__name__: f for f in (produce, consume, group, create, alter, delete, describe)}
main(*sys.argv[1:])
