"""The few requests the runner speaks itself, over a bare socket: it prepares topics and looks at what was stored
without trusting any client."""

import io
import socket
import struct
import time

# Error codes: of a broker that refers to another, or will soon; of a topic that is not there, or is already.
UNKNOWN, EXISTS = 3, 36
ELSEWHERE = {UNKNOWN, 5, 6, 7, 14, 15, 16, 19, 38, 41, 78}
CODECS = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}


class Wire:
    """One connection; every method raises on an error code.

    With several brokers: to the first that answers, and for a partition to the one that leads it; one that ends is left for
    the next."""

    def __init__(self, brokers, replicas=1):
        self.brokers, self.replicas = brokers.split(","), replicas
        self.correlation = 0
        self.socket = None
        self.connect()

    def connect(self):
        """To the next broker."""
        if self.socket is not None:
            self.socket.close()
            self.brokers.append(self.brokers.pop(0))
        deadline = time.monotonic() + 60
        while True:
            host, port = self.brokers[0].rsplit(":", 1)
            try:
                self.socket = socket.create_connection((host, int(port)), timeout=30)
                return
            except OSError:
                if len(self.brokers) == 1 or time.monotonic() > deadline:
                    raise
                self.brokers.append(self.brokers.pop(0))
                time.sleep(0.05)

    def anywhere(self, ask):
        """What `ask` gives, a code first, from the first broker that does not refer to another."""
        deadline = time.monotonic() + 60
        while True:
            for _ in self.brokers:
                try:
                    answer = ask()
                    if answer[0] not in ELSEWHERE or len(self.brokers) == 1:
                        return answer
                except (OSError, EOFError):
                    if len(self.brokers) == 1:
                        raise
                self.connect()
            if answer[0] == UNKNOWN or time.monotonic() > deadline:
                return answer
            time.sleep(0.1)

    def call(self, key, version, body):
        self.correlation += 1
        frame = struct.pack(">hhi", key, version, self.correlation) + string("runner") + body
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)
        answer = self.exactly(struct.unpack(">i", self.exactly(4))[0])
        if struct.unpack(">i", answer[:4])[0] != self.correlation:
            raise RuntimeError("an answer to another request")
        return answer[4:]

    def exactly(self, size):
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise EOFError("the broker closed the connection")
            data += part
        return data

    def versions(self):
        """ApiVersions v0: {key: (least, greatest version)}."""
        answer = self.call(18, 0, b"")
        entries = struct.iter_unpack(">hhh", answer[6:])
        return {key: (least, greatest) for key, least, greatest in entries}

    def create_topic(self, name, partitions=1, **configs):
        """CreateTopics v2, then waits until it serves."""
        pairs = b"".join(string(k.replace("_", ".")) + string(str(v)) for k, v in configs.items())
        body = struct.pack(">i", 1) + string(name) + struct.pack(">ihi", partitions, self.replicas, 0)
        body += struct.pack(">i", len(configs)) + pairs + struct.pack(">i?", 30000, False)

        def create():
            answer = self.call(19, 2, body)
            length = struct.unpack(">h", answer[8:10])[0]
            return struct.unpack(">h", answer[10 + length : 12 + length])

        code = self.anywhere(create)[0]
        # Of several tries an earlier one may have made it.
        if code != 0 and (code != EXISTS or len(self.brokers) == 1):
            raise RuntimeError(f"CreateTopics {name}: error {code}")
        self.await_topic(name, partitions)

    def await_topic(self, name, partitions):
        """Waits until every partition answers ListOffsets: Kafka's leaders need a moment."""
        deadline = time.monotonic() + 30
        for partition in range(partitions):
            while (code := self.list_offset(name, partition, -1)[0]) != 0:
                if code not in (3, 5, 6) or time.monotonic() > deadline:
                    raise RuntimeError(f"partition {partition} of {name} does not serve: error {code}")

    def list_offset(self, topic, partition, timestamp):
        """ListOffsets v1: (error code, offset)."""
        return self.anywhere(lambda: self.list_offset_here(topic, partition, timestamp))

    def list_offset_here(self, topic, partition, timestamp):
        body = struct.pack(">ii", -1, 1) + string(topic) + struct.pack(">iiq", 1, partition, timestamp)
        answer = self.call(2, 1, body)
        code, _, offset = struct.unpack(">hqq", answer[-18:])
        return code, offset

    def group(self, name):
        """DescribeGroups v0: (state, member count)."""
        answer = self.call(15, 0, struct.pack(">i", 1) + string(name))
        at = 6
        texts = []
        for _ in range(4):  # group id, state, protocol type, protocol
            length = struct.unpack(">h", answer[at : at + 2])[0]
            texts.append(answer[at + 2 : at + 2 + length].decode())
            at += 2 + length
        return texts[1], struct.unpack(">i", answer[at : at + 4])[0]

    def committed(self, group, topic, partitions):
        """OffsetFetch v1: the committed offset of each partition, -1 for none."""
        body = string(group) + struct.pack(">i", 1) + string(topic)
        body += struct.pack(f">i{partitions}i", partitions, *range(partitions))
        answer = self.call(9, 1, body)
        at = 4 + 2 + len(topic.encode()) + 4
        found = {}
        for _ in range(partitions):
            partition, offset, length = struct.unpack(">iqh", answer[at : at + 14])
            at += 14 + max(length, 0)
            code = struct.unpack(">h", answer[at : at + 2])[0]
            at += 2
            if code != 0:
                raise RuntimeError(f"OffsetFetch {group} {topic}-{partition}: error {code}")
            found[partition] = offset
        return found

    def layout(self, topic):
        """Metadata v0, as this broker has it: (leader or -1, replicas in sync) of each partition in order."""
        answer = io.BytesIO(self.call(3, 0, struct.pack(">i", 1) + string(topic)))

        def number(shape):
            return struct.unpack(shape, answer.read(struct.calcsize(shape)))[0]

        for _ in range(number(">i")):
            answer.read(4)
            answer.read(number(">h") + 4)
        found = {}
        for _ in range(number(">i")):
            answer.read(2)
            answer.read(number(">h"))
            for _ in range(number(">i")):
                answer.read(2)
                partition, leader = number(">i"), number(">i")
                answer.read(4 * number(">i"))
                found[partition] = (leader, [number(">i") for _ in range(number(">i"))])
        return [found[partition] for partition in sorted(found)]

    def end_offsets(self, topic, partitions):
        return [self.list_offset(topic, p, -1)[1] for p in range(partitions)]

    def codecs(self, topic, partition=0):
        """The codecs of the batches at the start of a partition, by Fetch v4."""
        body = struct.pack(">iiiibi", -1, 0, 1, 1 << 20, 0, 1)
        body += string(topic) + struct.pack(">iiqi", 1, partition, 0, 1 << 20)
        at = 10 + len(topic.encode()) + 4

        def fetch():
            answer = self.call(1, 4, body)
            return struct.unpack(">h", answer[at + 4 : at + 6])[0], answer

        code, answer = self.anywhere(fetch)
        if code != 0:
            raise RuntimeError(f"Fetch {topic}: error {code}")
        aborted = struct.unpack(">i", answer[at + 22 : at + 26])[0]
        at += 26 + 16 * max(aborted, 0)
        records = answer[at + 4 : at + 4 + struct.unpack(">i", answer[at : at + 4])[0]]
        found = set()
        while len(records) >= 61:
            size = 12 + struct.unpack(">i", records[8:12])[0]
            found.add(CODECS[struct.unpack(">h", records[21:23])[0] & 7])
            records = records[size:]
        return found


def string(text):
    data = text.encode()
    return struct.pack(">h", len(data)) + data
