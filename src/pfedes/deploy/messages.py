"""Our messages in FLARE's envelopes.

An envelope holds one thing: the bytes of a payload (safetensors). FLARE would carry arrays, too,
but it fetches them from wherever the sender says, whatever their size, before we can check them.
"""

from nvflare.apis.shareable import Shareable

from pfedes.core.payload import Payload, decode, encode
from pfedes.core.wire import WireSpec
from pfedes.errors import WireError

CONTENT = "pfedes"


def to_shareable(payload: Payload) -> Shareable:
    envelope = Shareable()
    envelope[CONTENT] = encode(payload)
    return envelope


def to_payload(envelope: Shareable, expected: WireSpec | None = None) -> Payload:
    """The payload in an envelope; raises a WireError if it is not valid.

    With `expected`, no tensor is made of anything that has other names, types or shapes.
    """
    content = envelope.get(CONTENT)
    if not isinstance(content, bytes):
        raise WireError(f"a message without content: {type(content).__name__}")
    return decode(content, expected)
