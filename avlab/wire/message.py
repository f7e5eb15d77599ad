"""The base of all frames and commands: msgspec structs, told apart by a tag."""

import msgspec


class Message(msgspec.Struct, frozen=True, tag_field="type", forbid_unknown_fields=True):
    """Base of all messages; the tag is the class's name in snake case."""


def snake(name: str) -> str:
    """A class's name as its tag: RequestDone is request_done."""
    return "".join("_" + c.lower() if c.isupper() else c for c in name).lstrip("_")
