"""Messages as bytes and back: msgpack, a version, and a number for every frame.

A message of another version, or one that does not fit, is refused, never guessed at.
"""

from typing import Any

import msgspec

from avlab.wire.commands import Command
from avlab.wire.frames import Frame
from avlab.wire.message import Message

VERSION = 1
UNNUMBERED = -1


class Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A frame on its way: version, run and a sequence number without gaps, which the lab acknowledges.

    A heartbeat that comes before the Hello is UNNUMBERED: it says how far the start is, and is not recorded.
    """

    run: str  # UUIDv7 as text
    sequence: int
    frame: Frame
    version: int = VERSION


_encoder = msgspec.msgpack.Encoder()
_frames = msgspec.msgpack.Decoder(Envelope)
_commands = msgspec.msgpack.Decoder(Command)


class MessageError(ValueError):
    """Bytes that are not a message of this version."""


def encode(message: Envelope | Message) -> bytes:
    """A message as bytes. Half of a surrogate pair, which no text outside may hold, is sent as a question mark."""
    try:
        return _encoder.encode(message)
    except UnicodeEncodeError:
        return _encoder.encode(_whole(msgspec.to_builtins(message, builtin_types=(bytes,))))


def _whole(value: Any) -> Any:
    """Plain values with every text made whole."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {_whole(name): _whole(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_whole(each) for each in value]
    return value


def decode_frame(data: bytes) -> Envelope:
    """An envelope from bytes. Raises MessageError for damaged bytes or another version."""
    try:
        envelope = _frames.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise MessageError(f"A frame from the worker could not be read ({error}).") from None
    if envelope.version != VERSION:
        raise MessageError(
            f"The worker speaks message version {envelope.version}, this lab {VERSION}: run both from one "
            "install."
        )
    return envelope


def decode_command(data: bytes):
    """A command from bytes. Raises MessageError for damaged bytes."""
    try:
        return _commands.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise MessageError(f"A command could not be read ({error}).") from None
