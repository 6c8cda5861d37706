"""One conversation with one broker, and its transcript."""

import socket
import struct
import time

import schema

CLOSED, SILENT = "closed", "silent"
PATIENCE_S = 12


class Session:
    """Sends requests and notes each answer: its fields, `closed`, or `silent` where none came in time."""

    def __init__(self, definitions, port, prefix):
        self.definitions, self.port, self.prefix = definitions, port, prefix
        self.transcript, self.socket, self.correlation = [], None, 0

    def close(self):
        if self.socket:
            self.socket.close()
            self.socket = None

    def ask(self, api, version, body, label="", patience=PATIENCE_S, quiet=False):
        """The fields of the answer, or None where there is none. `quiet`: preparation, not to be compared."""
        request = self.definitions[f"{api}Request"]
        payload = schema.encode(request, version, body)
        answer = self.exchange(api, request, version, payload, patience)
        if isinstance(answer, dict):
            self.leave_out_others(answer)
        if not quiet:
            self.transcript.append((api, version, label, body, answer))
        return answer if isinstance(answer, dict) else None

    def leave_out_others(self, answer):
        """Lists of all there is hold what other conversations left, which time may have changed."""
        for name, field in (("groups", "groupId"), ("configResources", "resourceName"), ("topics", "name")):
            for holder in [answer, *answer.get("results", [])]:
                if isinstance(holder, dict) and len(holder.get(name) or []) > 9:
                    holder[name] = [one for one in holder[name] if (one.get(field) or "").startswith(self.prefix)]

    def send_bytes_at(self, api, version, payload, label):
        """A request whose body is given as bytes, for what no schema can say."""
        request = self.definitions[f"{api}Request"]
        self.transcript.append((api, version, label, payload, self.exchange(api, request, version, payload, PATIENCE_S)))

    def send_key(self, key, version, payload, label):
        """A request of an API that has no schema here."""
        answer = self.roundtrip(struct.pack(">hh", key, version), b"", payload, PATIENCE_S)
        self.transcript.append((f"key {key}", version, label, payload, answer if isinstance(answer, str) else "answered"))

    def exchange(self, api, request, version, payload, patience):
        flexible = schema.within(version, request.flexible)
        data = self.roundtrip(struct.pack(">hh", request.key, version), b"\0" if flexible else b"", payload, patience)
        return data if isinstance(data, str) else self.read(api, version, flexible, data)

    def roundtrip(self, key_and_version, tags, payload, patience):
        """The answer's bytes, or what happened instead."""
        self.correlation += 1
        frame = key_and_version + struct.pack(">ih", self.correlation, 6) + b"oracle" + tags + payload
        try:
            if not self.socket:
                self.socket = socket.create_connection(("127.0.0.1", self.port), timeout=patience)
            self.socket.settimeout(patience)
            self.socket.sendall(struct.pack(">i", len(frame)) + frame)
            return self.receive(struct.unpack(">i", self.receive(4))[0])
        except TimeoutError:
            self.close()
            return SILENT
        except OSError:
            self.close()
            return CLOSED

    def receive(self, size):
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise ConnectionError
            data += part
        return data

    def read(self, api, version, flexible, data):
        if struct.unpack(">i", data[:4])[0] != self.correlation:
            return "an answer to another request"
        response = self.definitions[f"{api}Response"]
        body = data[5:] if flexible and api != "ApiVersions" else data[4:]
        try:
            return schema.decode(response, version, body)
        except schema.Malformed as malformed:
            if api == "ApiVersions":  # a version that the broker does not know is answered in version 0
                return schema.decode(response, 0, body)
            return f"malformed: {malformed}"

    # --- preparation --------------------------------------------------------------------------------------------------

    def topic(self, name, partitions=1, **configs):
        """Creates a topic and waits until it serves; its full name."""
        full = f"{self.prefix}-{name}"
        topic = {"name": full, "numPartitions": partitions, "replicationFactor": 1,
                 "configs": [{"name": k.replace("_", "."), "value": v} for k, v in configs.items()]}
        self.ask("CreateTopics", 7, {"topics": [topic], "timeoutMs": 30000}, quiet=True)
        self.await_topic(full, partitions)
        return full

    def await_topic(self, name, partitions):
        """Kafka's leaders need a moment after CreateTopics has answered."""
        body = {"replicaId": -1, "topics": [{"name": name, "partitions": [
            {"partitionIndex": p, "currentLeaderEpoch": -1, "timestamp": -1} for p in range(partitions)]}]}
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            answer = self.ask("ListOffsets", 7, body, quiet=True)
            if answer and all(p["errorCode"] == 0 for p in answer["topics"][0]["partitions"]):
                return
        raise RuntimeError(f"{name} does not serve: {answer}")

    def topic_id(self, name):
        answer = self.ask("Metadata", 12, {"topics": [{"name": name}], "allowAutoTopicCreation": False}, quiet=True)
        return answer["topics"][0]["topicId"]

    def produce(self, topic, data, partition=0):
        body = {"acks": -1, "timeoutMs": 30000, "topicData": [
            {"name": topic, "partitionData": [{"index": partition, "records": data}]}]}
        answer = self.ask("Produce", 9, body, quiet=True)
        return answer["responses"][0]["partitionResponses"][0]

    def find_coordinator(self, group):
        """Kafka makes its offsets topic at the first question and refuses until it serves."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            answer = self.ask("FindCoordinator", 2, {"key": group, "keyType": 0}, quiet=True)
            fetched = self.ask("OffsetFetch", 5, {"groupId": group, "topics": None}, quiet=True)
            if answer["errorCode"] == 0 and fetched["errorCode"] == 0:
                return
            time.sleep(0.05)
        raise RuntimeError(f"no coordinator for {group}: {answer}")

    def producer(self):
        """A producer id and its epoch. Kafka has none to give in its first moments."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            answer = self.ask("InitProducerId", 4, {"transactionalId": None, "transactionTimeoutMs": 60000}, quiet=True)
            if answer["errorCode"] == 0:
                return answer["producerId"], answer["producerEpoch"]
            time.sleep(0.05)
        raise RuntimeError(f"no producer id: {answer}")
