"""Two transcripts of one conversation, field by field. Ids, addresses and times are aside."""

from uuid import UUID

import batches

# What each broker makes up: the first different value of an answer is 1, the next 2, and so on.
OWN = {"topicId", "memberId", "leader", "producerId", "sessionId", "clusterId", "debugId", "incarnationId"}
ASIDE = {"throttleTimeMs", "host", "port", "logAppendTimeMs", "logDir", "clientHost", "size", "totalBytes", "usableBytes",
         "lastTimestamp", "isCordoned", "finalizedFeaturesEpoch"}
# Texts for people: only whether there is one.
TEXTS = {"errorMessage", "errorString", "documentation"}


class View:
    """How one broker's answers are seen."""

    def __init__(self):
        self.names = {}

    def value(self, name, value):
        if name in ASIDE:
            return "aside"
        if name in TEXTS:
            return "text" if value else None
        if name in OWN and value not in (None, "", -1, 0, UUID(int=0)):
            return f"{name} {self.names.setdefault(str(value), len(self.names) + 1)}"
        if name == "records":
            return None if value is None else [self.fields(b) for b in batches.headers(value)]
        if isinstance(value, dict):
            return self.fields(value)
        if isinstance(value, list):
            return self.list(name, value)
        if isinstance(value, UUID):
            return str(value)
        return value

    def fields(self, values):
        return {name: self.value(name, value) for name, value in values.items()}

    def list(self, name, values):
        if values and isinstance(values[0], dict):
            # Their order is nobody's promise.
            values = sorted(values, key=sort_key)
        return [self.value(name, v) for v in values]


def sort_key(one):
    parts = ("name", "topic", "topicName", "groupId", "key", "apiKey", "resourceName", "partitionIndex", "partition", "index",
             "nodeId", "brokerId", "resourceType", "producerId", "producerEpoch", "errorCode")
    return [str(one.get(p)).rjust(12) for p in parts]


def differences(kafka, ours):
    """(api, version, label, path, Kafka's value, ours) of each field that differs."""
    for (api, version, label, body, theirs), (_, _, _, _, mine) in zip(kafka, ours):
        a = View().fields(theirs) if isinstance(theirs, dict) else theirs
        b = View().fields(mine) if isinstance(mine, dict) else mine
        for path, x, y in of_values("", a, b):
            yield api, version, label, path, x, y


def of_values(path, a, b):
    if isinstance(a, dict) and isinstance(b, dict):
        if a.get("errorCode") != b.get("errorCode"):
            # What else is in there follows from that.
            yield f"{path}.errorCode" if path else "errorCode", a.get("errorCode"), b.get("errorCode")
            return
        for name in dict.fromkeys([*a, *b]):
            yield from of_values(f"{path}.{name}" if path else name, a.get(name, "no such field"), b.get(name, "no such field"))
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for n, (x, y) in enumerate(zip(a, b)):
            yield from of_values(f"{path}[{n}]", x, y)
    elif isinstance(a, list) and isinstance(b, list) and all(isinstance(x, dict) for x in a + b):
        ours, theirs = {label_of(x): x for x in b}, {label_of(x): x for x in a}
        if len(ours) < len(b) or len(theirs) < len(a):
            yield path, f"{len(a)} of them", f"{len(b)} of them"
            return
        for name in dict.fromkeys([*theirs, *ours]):
            yield from of_values(f"{path}[{name}]", theirs.get(name, "not there"), ours.get(name, "not there"))
    elif a != b:
        yield path, a, b


def label_of(one):
    return " ".join(str(v) for v in (one.get("name"), one.get("topic"), one.get("topicName"), one.get("groupId"), one.get("apiKey"),
                                     one.get("partitionIndex"), one.get("brokerId"), one.get("nodeId"), one.get("resourceName"))
                    if v is not None) or str(sorted(one.items(), key=str))[:80]


