"""aiokafka behind the runner's commands."""

import asyncio
import json
import os
import signal
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError, for_code

COMMON = {"bootstrap_servers": os.environ["BROKERS"]}
TOPIC_CONFIG = 1  # source of a value that was set for the topic


def main(command, *args):
    try:
        asyncio.run(COMMANDS[command](*args))
    except KafkaError as e:
        sys.exit(f"{type(e).__name__}: {e}")


async def produce(topic, codec):
    producer = AIOKafkaProducer(**COMMON, compression_type=None if codec == "none" else codec, linger_ms=20,
                                enable_idempotence=True, max_request_size=10_000_000)
    async with producer:
        sent = []
        for line in sys.stdin:
            record = json.loads(line)
            if record["key"] is None and record["value"] is None:
                print("aiokafka refuses a record with neither", file=sys.stderr)
                sys.exit(77)
            headers = [(name, data(value)) for name, value in record["headers"]]
            sent.append(await producer.send(topic, partition=record["partition"], key=data(record["key"]),
                                            value=data(record["value"]), headers=headers))
        await asyncio.gather(*sent)


async def consume(topic, start, count):
    async with OpenedAdmin() as admin:
        await expect_topic(admin, topic)
    partition = TopicPartition(topic, 0)
    async with AIOKafkaConsumer(**COMMON, auto_offset_reset="none", enable_auto_commit=False) as consumer:
        consumer.assign([partition])
        kind, _, number = start.partition(":")
        if kind == "beginning":
            await consumer.seek_to_beginning(partition)
        elif kind == "end":
            await consumer.seek_to_end(partition)
        elif kind == "timestamp":
            consumer.seek(partition, (await consumer.offsets_for_times({partition: int(number)}))[partition].offset)
        else:
            consumer.seek(partition, int(number))
        for _ in range(int(count)):
            show(await consumer.getone())


async def group(name, topic):
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    consumer = AIOKafkaConsumer(topic, **COMMON, group_id=name, auto_offset_reset="earliest", session_timeout_ms=6000,
                                heartbeat_interval_ms=500)
    async with consumer:
        while not stopped.is_set():
            for records in (await consumer.getmany(timeout_ms=200)).values():
                for record in records:
                    show(record)


def show(record):
    headers = [[name, text(value)] for name, value in record.headers]
    print(json.dumps({"partition": record.partition, "offset": record.offset, "timestamp": record.timestamp,
                      "key": text(record.key), "value": text(record.value), "headers": headers}), flush=True)


def text(value):
    return None if value is None else value.decode()


def data(value):
    return None if value is None else value.encode()


class OpenedAdmin:
    """An admin client that is closed when its block ends."""

    async def __aenter__(self):
        self.admin = AIOKafkaAdminClient(**COMMON)
        await self.admin.start()
        return self.admin

    async def __aexit__(self, *_):
        await self.admin.close()


async def create(topic, partitions, *configs):
    new = NewTopic(topic, int(partitions), 1, topic_configs=dict(c.split("=", 1) for c in configs))
    async with OpenedAdmin() as admin:
        answer = await admin.create_topics([new])
    raise_for(answer.topic_errors[0][1], answer)


async def alter(topic, *configs):
    # The client has only AlterConfigs, which resets what it does not name: what was set must be sent along.
    async with OpenedAdmin() as admin:
        kept = {name: value for name, value, source in await configs_of(admin, topic) if source == TOPIC_CONFIG}
        wanted = {**kept, **dict(c.split("=", 1) for c in configs)}
        (answer,) = await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, wanted)])
    raise_for(answer.resources[0][0], answer)


async def delete(topic):
    async with OpenedAdmin() as admin:
        answer = await admin.delete_topics([topic])
    raise_for(answer.topic_error_codes[0][1], answer)


async def describe(topic):
    async with OpenedAdmin() as admin:
        partitions = len((await expect_topic(admin, topic))["partitions"])
        configs = {name: value for name, value, _ in await configs_of(admin, topic)}
    print(json.dumps({"partitions": partitions, "configs": configs}))


async def expect_topic(admin, topic):
    # Its Metadata creates what is missing, so a missing topic is looked for among all.
    found = [t for t in await admin.describe_topics() if t["topic"] == topic]
    if not found:
        raise UnknownTopicOrPartitionError(topic)
    return found[0]


async def configs_of(admin, topic):
    (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    code, _, _, _, entries = answer.resources[0]
    raise_for(code, answer)
    return [(name, value, source) for name, value, _, source, *_ in entries]


def raise_for(code, answer):
    if code:
        raise for_code(code)(str(answer))


COMMANDS = {f.__name__: f for f in (produce, consume, group, create, alter, delete, describe)}
main(*sys.argv[1:])
