"""Kafka's messages by Kafka's own definitions, which lie as JSON in its client jar: any request and answer of any version."""

import json
import re
import struct
import zipfile
from dataclasses import dataclass, field
from uuid import UUID

NUMBERS = {"bool": ">?", "int8": ">b", "int16": ">h", "uint16": ">H", "int32": ">i", "uint32": ">I", "int64": ">q",
           "float64": ">d"}


class Malformed(Exception):
    """Bytes that are no message of the version they claim."""


def versions(text):
    """`3+`, `1-4`, `2` or `none` as (least, greatest)."""
    if not text or text == "none":
        return (1, 0)
    least, _, greatest = text.partition("-")
    if text.endswith("+"):
        return (int(text[:-1]), 1 << 15)
    return (int(least), int(greatest or least))


def within(version, bounds):
    return bounds[0] <= version <= bounds[1]


@dataclass
class Field:
    name: str
    type: str
    versions: tuple
    nullable: tuple
    tagged: tuple
    tag: int
    default: object
    fields: list = field(default_factory=list)

    @property
    def element(self):
        """The field that each element of an array is like."""
        return Field(self.name, self.type[2:], self.versions, (1, 0), (1, 0), -1, None, self.fields)


@dataclass
class Message:
    key: int
    versions: tuple
    flexible: tuple
    fields: list


def read_definitions(jar):
    """{"ProduceRequest": Message, ...}"""
    found = {}
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if name.startswith("common/message/") and name.endswith(("Request.json", "Response.json")):
                text = re.sub(r"^\s*//.*$", "", archive.read(name).decode(), flags=re.M)
                message = parse(json.loads(text))
                found[name.rsplit("/", 1)[1].removesuffix(".json")] = message
    return found


def parse(definition):
    common = {c["name"]: c["fields"] for c in definition.get("commonStructs", [])}

    def parse_field(f):
        kind = f["type"]
        nested = f.get("fields") or common.get(kind.removeprefix("[]")) or []
        nullable = versions(f.get("nullableVersions"))
        return Field(f["name"][0].lower() + f["name"][1:], kind, versions(f["versions"]), nullable,
                     versions(f.get("taggedVersions")), f.get("tag", -1), default_of(kind, f.get("default"), nullable),
                     [parse_field(n) for n in nested])

    return Message(definition["apiKey"], versions(definition["validVersions"]), versions(definition.get("flexibleVersions")),
                   [parse_field(f) for f in definition.get("fields", [])])


def default_of(kind, text, nullable):
    if text == "null":
        return None
    if kind == "bool":
        return text in (True, "true")
    if kind in NUMBERS:
        return float(text or 0) if kind == "float64" else int(str(text or 0), 0)
    if kind == "uuid":
        return UUID(int=0)
    if kind.startswith("[]"):
        return []
    if kind in ("bytes", "records"):
        return None if nullable[0] <= nullable[1] else b""
    return (text or "") if kind == "string" else {}


# --- writing ----------------------------------------------------------------------------------------------------------


def encode(message, version, values):
    return encode_fields(message.fields, version, within(version, message.flexible), values)


def encode_fields(fields, version, flexible, values):
    out, tags = b"", []
    for f in fields:
        if not within(version, f.versions):
            continue
        value = values.get(f.name, f.default)
        if within(version, f.tagged) and flexible:
            if value != f.default:
                tags.append((f.tag, encode_value(f, version, flexible, value)))
        else:
            out += encode_value(f, version, flexible, value)
    if flexible:
        out += varint(len(tags)) + b"".join(varint(tag) + varint(len(data)) + data for tag, data in sorted(tags))
    return out


def encode_value(f, version, flexible, value):
    if f.type in NUMBERS:
        return struct.pack(NUMBERS[f.type], value)
    if f.type == "uuid":
        return value.bytes
    if f.type == "string":
        return encode_bytes(None if value is None else value.encode(), ">h", flexible)
    if f.type in ("bytes", "records"):
        return encode_bytes(value, ">i", flexible)
    if f.type.startswith("[]"):
        length = -1 if value is None else len(value)
        head = varint(length + 1) if flexible else struct.pack(">i", length)
        return head + b"".join(encode_value(f.element, version, flexible, v) for v in value or [])
    head = b""
    if within(version, f.nullable):
        if value is None:
            return b"\xff"
        head = b"\x01"
    return head + encode_fields(f.fields, version, flexible, value)


def encode_bytes(data, length_format, flexible):
    length = -1 if data is None else len(data)
    return (varint(length + 1) if flexible else struct.pack(length_format, length)) + (data or b"")


def varint(number):
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


# --- reading ----------------------------------------------------------------------------------------------------------


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        if count < 0 or self.at + count > len(self.data):
            raise Malformed(f"{count} bytes wanted at {self.at} of {len(self.data)}")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, form):
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def varint(self):
        number = shift = 0
        while True:
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7

    def length(self, form, flexible):
        return self.varint() - 1 if flexible else self.number(form)


def decode(message, version, data):
    """The fields of an answer; every byte must belong to it."""
    reader = Reader(data)
    values = decode_fields(message.fields, version, within(version, message.flexible), reader)
    if reader.at != len(data):
        raise Malformed(f"{len(data) - reader.at} bytes too many")
    return values


def decode_fields(fields, version, flexible, reader):
    values, tagged = {}, {}
    for f in fields:
        if not within(version, f.versions):
            continue
        if within(version, f.tagged) and flexible:
            tagged[f.tag] = f
            values[f.name] = f.default
        else:
            values[f.name] = decode_value(f, version, flexible, reader)
    for _ in range(reader.varint() if flexible else 0):
        tag, size = reader.varint(), reader.varint()
        data = reader.take(size)
        if tag not in tagged:
            raise Malformed(f"tag {tag} is not of version {version}")
        inner = Reader(data)
        values[tagged[tag].name] = decode_value(tagged[tag], version, flexible, inner)
        if inner.at != size:
            raise Malformed(f"tag {tag} has {size - inner.at} bytes too many")
    return values


def decode_value(f, version, flexible, reader):
    if f.type in NUMBERS:
        return reader.number(NUMBERS[f.type])
    if f.type == "uuid":
        return UUID(bytes=reader.take(16))
    if f.type in ("string", "bytes", "records"):
        length = reader.length(">h" if f.type == "string" else ">i", flexible)
        if length < 0:
            if not within(version, f.nullable):
                raise Malformed(f"{f.name} is null in version {version}")
            return None
        data = reader.take(length)
        return data.decode() if f.type == "string" else data
    if f.type.startswith("[]"):
        length = reader.length(">i", flexible)
        if length < 0:
            if not within(version, f.nullable):
                raise Malformed(f"{f.name} is null in version {version}")
            return None
        return [decode_value(f.element, version, flexible, reader) for _ in range(length)]
    if within(version, f.nullable) and reader.number(">b") < 0:
        return None
    return decode_fields(f.fields, version, flexible, reader)
