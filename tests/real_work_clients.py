"""The clients of the kills in `real-work`: librdkafka by confluent-kafka, noting what the broker promised them."""

import signal
import sys
import time

from confluent_kafka import Consumer, Producer, TopicPartition

running = True


def stop(*_):
    global running
    running = False


def produce(brokers, topic, path):
    """Writes ever higher sequence numbers, round the partitions; notes `partition offset sequence` of each answer."""
    notes = open(path, "w", buffering=1)
    producer = Producer({
        "bootstrap.servers": brokers, "enable.idempotence": True, "linger.ms": 2, "message.timeout.ms": 0,
        "reconnect.backoff.max.ms": 200, "queue.buffering.max.messages": 20000,
    })

    def delivered(error, message):
        if error:
            sys.exit(f"not delivered: {error}")
        notes.write(f"{message.partition()} {message.offset()} {message.value().split(b' ', 1)[0].decode()}\n")

    sequence = 0
    while running:
        try:
            producer.produce(topic, f"{sequence} {'.' * 200}", partition=sequence % 6, on_delivery=delivered)
        except BufferError:
            producer.poll(0.1)
            continue
        sequence += 1
        producer.poll(0)
        if sequence % 200 == 0:
            time.sleep(0.01)  # load, not a flood: the log must grow over all kills
    left = producer.flush(100)
    if left:
        sys.exit(f"{left} records were never answered")


def consume(brokers, topic, group, path):
    """Notes `R partition offset` per record and `C partition offset` per answered commit.

    One commit at a time: librdkafka sends a commit again whose answer was lost, also behind a later one that was answered,
    and the group would rightly fall back to it.
    """
    notes = open(path, "w", buffering=1)
    done, under_way = {}, False

    def committed(error, partitions):
        nonlocal under_way
        under_way = False
        for p in partitions:
            if error is None and p.error is None:
                notes.write(f"C {p.partition} {p.offset}\n")
            else:
                done.setdefault(p.partition, p.offset)

    def given_up(_, partitions):
        # Its next owner commits; records that were not committed come again there.
        for p in partitions:
            done.pop(p.partition, None)

    consumer = Consumer({
        "bootstrap.servers": brokers, "group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest",
        "session.timeout.ms": 6000, "heartbeat.interval.ms": 500, "reconnect.backoff.max.ms": 200,
        "on_commit": committed,
    })
    consumer.subscribe([topic], on_revoke=given_up, on_lost=given_up)
    while running:
        for message in consumer.consume(200, 0.2):
            if message.error():
                print(message.error(), file=sys.stderr)
                if message.error().fatal():
                    sys.exit(1)
                continue
            notes.write(f"R {message.partition()} {message.offset()}\n")
            done[message.partition()] = message.offset() + 1
        if done and not under_way:
            offsets = [TopicPartition(topic, p, o) for p, o in done.items()]
            done.clear()
            under_way = True
            consumer.commit(offsets=offsets, asynchronous=True)
    consumer.close()


signal.signal(signal.SIGTERM, stop)
{"produce": produce, "consume": consume}[sys.argv[2]](sys.argv[1], *sys.argv[3:])
