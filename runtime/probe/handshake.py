"""Both ends of a connection prove that they know the group's key, without sending it.

Challenge-response with HMAC-SHA256 over both nonces and everything said; the labels differ per direction, so a
proof cannot be reflected. An answer also names the rank that gives it.
"""

import hmac
import os

from runtime.probe.messages import Answer, Hello, decode, encode
from runtime.probe.wire import Channel, ChannelError, Kind, ProtocolError

NONCE_BYTES = 32
MAC_BYTES = 32
HELLO_MAX = 8192
_HELLO = b"sparkd probe 1: hello"
_ANSWER = b"sparkd probe 1: answer"


class WrongKey(ChannelError):
    """The other side does not know the group's key."""


class Refused(ChannelError):
    """The other side knows the key and does not want this connection; the message is its reason."""


def _mac(key: bytes, label: bytes, first: bytes, second: bytes, said: bytes) -> bytes:
    return hmac.digest(key, b"\0".join((label, first + second, said)), "sha256")


async def introduce(channel: Channel, key: bytes, hello: Hello, patience: float) -> Answer:
    """The connecting side.

    :raises WrongKey: the answer was not made with ``key``.
    :raises Refused: the other side gave a reason.
    :raises ChannelError: anything else that ends the connection.
    """
    theirs = bytes(await channel.expect(Kind.CHALLENGE, patience, NONCE_BYTES))
    ours = os.urandom(NONCE_BYTES)
    said = encode(hello)
    await channel.send(Kind.HELLO, _mac(key, _HELLO, theirs, ours, said) + ours + said, patience)
    reply = bytes(await channel.expect(Kind.ANSWER, patience, HELLO_MAX))
    if not hmac.compare_digest(reply[:MAC_BYTES], _mac(key, _ANSWER, ours, theirs, reply[MAC_BYTES:])):
        raise WrongKey("does not know the group key")
    answer = decode(reply[MAC_BYTES:])
    if not isinstance(answer, Answer):
        raise ProtocolError("sent no answer")
    if answer.refusal:
        raise Refused(answer.refusal)
    return answer


class Guest:
    """The listening side: :meth:`hear`, then exactly one :meth:`answer`."""

    def __init__(self, channel: Channel, key: bytes, patience: float) -> None:
        self.channel = channel
        self._key = key
        self._patience = patience
        self._ours = os.urandom(NONCE_BYTES)
        self._theirs = b""

    async def hear(self) -> Hello:
        """Challenge the other side and return its hello.

        :raises WrongKey: its proof is wrong; it has been told, in words it cannot take for a member's.
        :raises ChannelError: anything else that ends the connection.
        """
        await self.channel.send(Kind.CHALLENGE, self._ours, self._patience)
        data = bytes(await self.channel.expect(Kind.HELLO, self._patience, HELLO_MAX))
        self._theirs = data[MAC_BYTES : MAC_BYTES + NONCE_BYTES]
        said = data[MAC_BYTES + NONCE_BYTES :]
        if not hmac.compare_digest(data[:MAC_BYTES], _mac(self._key, _HELLO, self._ours, self._theirs, said)):
            # Signed with our key, which the other side lacks: it learns from that what is wrong.
            await self.answer(Answer(-1, "wrong key"))
            raise WrongKey("does not know the group key")
        hello = decode(said)
        if not isinstance(hello, Hello):
            raise ProtocolError("sent no hello")
        return hello

    async def answer(self, answer: Answer) -> None:
        """Welcome or refuse."""
        said = encode(answer)
        mac = _mac(self._key, _ANSWER, self._theirs, self._ours, said)
        await self.channel.send(Kind.ANSWER, mac + said, self._patience)
