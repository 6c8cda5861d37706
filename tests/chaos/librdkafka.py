"""librdkafka under test: writes, reads or is a member of a group, and writes down what it did and was told.

    librdkafka.py write|read|member|last BROKERS TOPIC PARTITIONS HISTORY NAME [values_from=N] [rate=N] [idempotent=0]
                  [group=NAME]

Ends in order at SIGTERM. `last` reads everything once more, from the beginning of each partition to its end, and ends then.
The form of the history is told in src/history.rs.
"""

import signal
import sys
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

PATIENCE_S = 120
running = True


class Notes:
    def __init__(self, path, name, group):
        self.file = open(path, "w", buffering=1 << 16)
        self.line(f"client {name} {group}" if group else f"client {name}")

    def line(self, text):
        self.file.write(text + "\n")


def micros():
    return time.time_ns() // 1000


def write(brokers, topic, partitions, notes, values_from=0, rate=1000, idempotent=1, **_):
    """Ever higher values round the partitions, with acks=all."""
    producer = Producer({
        "bootstrap.servers": brokers, "enable.idempotence": bool(idempotent), "acks": "all", "linger.ms": 2, "message.timeout.ms": 0,
        "reconnect.backoff.max.ms": 200, "queue.buffering.max.messages": 20000, "log_level": 0,
    })

    def delivered(error, message):
        value = message.value().decode()
        if error:
            # Whether it was written it does not say.
            notes.line(f"info {micros()} {value}")
            print(f"{micros()} {error}", file=sys.stderr)
        else:
            notes.line(f"ok {micros()} {value} {message.partition()} {message.offset()}")

    value, owed, before = values_from, 0.0, time.monotonic()
    while running:
        now = time.monotonic()
        owed, before = owed + rate * (now - before), now
        # After a halt there is load, not a flood.
        owed = min(owed, rate)
        while owed >= 1 and running:
            owed -= 1
            notes.line(f"send {micros()} {value} {value % partitions}")
            try:
                producer.produce(topic, str(value), partition=value % partitions, on_delivery=delivered)
            except BufferError:
                # Never handed over: it will be, under another number.
                notes.line(f"fail {micros()} {value}")
                producer.poll(0.1)
                owed = 0
            value += 1
        producer.poll(0.01)
    if left := producer.flush(PATIENCE_S):
        sys.exit(f"{left} records were never answered")


def consumer_of(brokers, group, **more):
    return Consumer({
        "bootstrap.servers": brokers, "group.id": group, "enable.auto.commit": False, "auto.offset.reset": "error",
        "reconnect.backoff.max.ms": 200, "topic.metadata.refresh.interval.ms": 5000, "log_level": 0, **more,
    })


def poll(consumer, notes):
    """One poll and its records; those that were given."""
    messages = consumer.consume(1000, 0.2)
    notes.line(f"poll {micros()}")
    given = []
    for message in messages:
        if error := message.error():
            print(f"{micros()} {error}", file=sys.stderr)
            if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                notes.line(f"reset {micros()} {message.partition()}")
            if error.fatal():
                sys.exit(str(error))
            continue
        value = (message.value() or b"").decode(errors="replace")
        notes.line(f"got {message.partition()} {message.offset()} {value if value.isdecimal() else '?'}")
        given.append(message)
    return given


def read(brokers, topic, partitions, notes, **_):
    """Every partition from its beginning, without a group's help; asks for ends now and then."""
    consumer = consumer_of(brokers, "reads-alone")
    assign_all(consumer, topic, partitions, notes)
    due = time.monotonic() + 1
    while running:
        poll(consumer, notes)
        if time.monotonic() > due:
            for partition in range(partitions):
                ask_end(consumer, topic, partition, notes, 1)
            due = time.monotonic() + 1
    consumer.close()


def last(brokers, topic, partitions, notes, **_):
    consumer = consumer_of(brokers, "reads-last")
    assign_all(consumer, topic, partitions, notes)
    ends = {partition: ask_end(consumer, topic, partition, notes, PATIENCE_S) for partition in range(partitions)}
    if None in ends.values():
        sys.exit(f"no end of a partition is told: {ends}")
    position = dict.fromkeys(ends, 0)
    deadline = time.monotonic() + PATIENCE_S
    while any(position[partition] < end for partition, end in ends.items()):
        for message in poll(consumer, notes):
            position[message.partition()] = message.offset() + 1
            deadline = time.monotonic() + PATIENCE_S
        if time.monotonic() > deadline:
            sys.exit(f"the end is not reached: {position} of {ends}")
    for partition in ends:
        # It may have read past the end that it was told.
        notes.line(f"whole {partition} {position[partition]}")
    consumer.close()


def assign_all(consumer, topic, partitions, notes):
    for partition in range(partitions):
        notes.line(f"from {partition} 0")
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])


def ask_end(consumer, topic, partition, notes, timeout):
    deadline = time.monotonic() + timeout
    while True:
        asked = micros()
        try:
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=timeout)
        except KafkaException as error:
            # A leader that does not know yet says so; a reader that only looks in does not insist.
            if time.monotonic() > deadline or timeout == 1:
                print(f"{micros()} {error}", file=sys.stderr)
                return None
            continue
        notes.line(f"end {asked} {micros()} {partition} {end}")
        return end


def member(brokers, topic, partitions, notes, group, **_):
    """One of a group: commits what it was given, one commit at a time."""
    consumer = consumer_of(brokers, group, **{"session.timeout.ms": 10000, "heartbeat.interval.ms": 1000})
    position = {}

    def assigned(_, parts):
        position.clear()
        for part in parts:
            notes.line(f"from {part.partition} -")

    def revoked(_, parts):
        position.clear()

    consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
    due, rounds = time.monotonic() + 0.5, 0
    while running:
        for message in poll(consumer, notes):
            position[message.partition()] = message.offset() + 1
        if time.monotonic() > due:
            commit(consumer, topic, dict(position), notes)
            rounds += 1
            if rounds % 4 == 0:
                find(consumer, topic, partitions, notes)
            due = time.monotonic() + 0.5
    consumer.close()


def commit(consumer, topic, position, notes):
    if not position:
        return
    for partition, offset in position.items():
        notes.line(f"commit {micros()} {partition} {offset}")
    stored = set()
    try:
        offsets = [TopicPartition(topic, *place) for place in position.items()]
        answered = consumer.commit(offsets=offsets, asynchronous=False)
        stored = {part.partition for part in answered if part.error is None}
    except KafkaException as error:
        print(f"{micros()} {error}", file=sys.stderr)
    for partition, offset in position.items():
        notes.line(f"{'committed' if partition in stored else 'uncommitted'} {micros()} {partition} {offset}")


def find(consumer, topic, partitions, notes):
    asked = micros()
    try:
        found = consumer.committed([TopicPartition(topic, partition) for partition in range(partitions)], 10)
    except KafkaException as error:
        print(f"{micros()} {error}", file=sys.stderr)
        return
    for part in found:
        if part.error is None:
            notes.line(f"found {asked} {micros()} {part.partition} {part.offset if part.offset >= 0 else '-'}")


def stop(*_):
    global running
    running = False


def main():
    what, brokers, topic, partitions, path, name, *more = sys.argv[1:]
    more = dict(word.split("=", 1) for word in more)
    numbers = {key: int(value) for key, value in more.items() if key != "group"}
    group = more.get("group")
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    notes = Notes(path, name, group)
    {"write": write, "read": read, "member": member, "last": last}[what](
        brokers, topic, int(partitions), notes, group=group, **numbers)
    notes.file.close()


main()
