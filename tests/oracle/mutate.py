"""Variants of a request: each field in turn gets what a client may send and what none should."""

from uuid import UUID

import schema

LONG = "x" * 300
NUMBER_VALUES = {
    "int8": (-1, 0, 1, 2, 3, 127, -128), "int16": (-1, 0, 1, -2, 32767, -32768),
    "int32": (-1, 0, 1, -2, 2147483647, -2147483648), "int64": (-1, 0, 1, -2, -3, -4, -5, -6, 1 << 62, -(1 << 63)),
    "uint16": (0, 65535), "uint32": (0, 4294967295), "float64": (0.0, -1.0),
}
STRANGER = UUID("01234567-89ab-cdef-0123-456789abcdef")


def variants(message, version, base, fixed=()):
    """(label, body): `base` itself, then one for each odd value of each field. `fixed` names fields that stay."""
    yield "as it should be", base
    flexible = schema.within(version, message.flexible)
    yield from of_fields(message.fields, version, flexible, base, "", set(fixed))


def of_fields(fields, version, flexible, values, path, fixed):
    for f in fields:
        if not schema.within(version, f.versions) or f.name in fixed:
            continue
        if schema.within(version, f.tagged) and not flexible:
            continue
        value, where = values.get(f.name, f.default), f"{path}{f.name}"
        for label, odd in of_value(f, version, flexible, value, where, fixed):
            yield label, {**values, f.name: odd}


def of_value(f, version, flexible, value, where, fixed):
    odd = []
    if f.type == "string":
        odd = ["", "no such name", "unknown-name", LONG]
    elif f.type == "bool":
        odd = [not value]
    elif f.type in NUMBER_VALUES:
        odd = list(NUMBER_VALUES[f.type])
    elif f.type == "uuid":
        odd = [UUID(int=0), STRANGER]
    elif f.type in ("bytes", "records"):
        odd = [b"", b"\0" * 12, b"garbage"]
    elif f.type.startswith("[]"):
        odd = [[]] + ([value * 2] if value else [])
    if schema.within(version, f.nullable):
        odd.append(None)
    for one in odd:
        if one != value:
            yield f"{where}={shown(one)}", one
    if f.type.startswith("[]") and value:
        for label, inner in of_value(f.element, version, flexible, value[0], f"{where}[]", fixed):
            yield label, [inner, *value[1:]]
    elif f.fields and isinstance(value, dict):
        yield from of_fields(f.fields, version, flexible, value, f"{where}.", fixed)


def shown(value):
    text = repr(value)
    return text if len(text) < 40 else f"{text[:20]}…({len(text)})"
