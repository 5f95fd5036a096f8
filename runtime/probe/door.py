"""A listening socket that lets in members and nobody else."""

import asyncio
import socket
from collections.abc import Callable

from runtime.log import log
from runtime.probe.handshake import Guest
from runtime.probe.messages import Answer, Hello
from runtime.probe.sockets import accept
from runtime.probe.wire import Channel, ChannelError

# A stranger holds a place for at most so many seconds, and at most so many hold one: the next takes the place of the
# one that has stood there longest. A member needs its place for milliseconds.
HANDSHAKE_SECONDS = 5.0
GUESTS_MAX = 32


class Door:
    """Accepts connections while :meth:`run` runs. Strangers are logged once each and disturb nobody.

    ``refuse(hello, host)`` returns why a proven member is not wanted, or an empty string;
    ``welcome(hello, host, channel)`` takes the channel over.
    """

    def __init__(
        self,
        listener: socket.socket,
        rank: int,
        key: bytes,
        refuse: Callable[[Hello, str], str],
        welcome: Callable[[Hello, str, Channel], None],
    ) -> None:
        self._listener = listener
        self._rank = rank
        self._key = key
        self._refuse = refuse
        self._welcome = welcome
        self._guests: dict[asyncio.Task[None], None] = {}
        self.turned_away: dict[str, str] = {}

    async def run(self) -> None:
        """Serve until cancelled; closes the listener."""
        try:
            while True:
                try:
                    channel, host = await accept(self._listener)
                except OSError as error:
                    # Out of descriptors, or the connection was gone before it was accepted: neither is final.
                    log.warning("cannot accept a connection: %s", error)
                    await asyncio.sleep(0.1)
                    continue
                if len(self._guests) >= GUESTS_MAX:
                    oldest = next(iter(self._guests))
                    oldest.cancel()
                    await asyncio.gather(oldest, return_exceptions=True)
                task = asyncio.create_task(self._receive(channel, host))
                self._guests[task] = None
                task.add_done_callback(self._forget)
        finally:
            self._listener.close()
            guests = list(self._guests)
            for task in guests:
                task.cancel()
            await asyncio.gather(*guests, return_exceptions=True)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._guests.pop(task, None)

    async def _receive(self, channel: Channel, host: str) -> None:
        taken = False
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                guest = Guest(channel, self._key, HANDSHAKE_SECONDS)
                hello = await guest.hear()
                refusal = self._refuse(hello, host)
                await guest.answer(Answer(self._rank, refusal))
            # Nothing is awaited between this second look and the welcome: two claims to one place cannot both pass.
            refusal = refusal or self._refuse(hello, host)
            if refusal:
                self._turn_away(host, f"claims rank {hello.rank}: {refusal}")
            else:
                taken = True
                self._welcome(hello, host, channel)
        except ChannelError as error:
            self._turn_away(host, str(error))
        except TimeoutError:
            self._turn_away(host, f"did not introduce itself within {HANDSHAKE_SECONDS:g} s")
        finally:
            if not taken:
                channel.close()

    def _turn_away(self, host: str, why: str) -> None:
        if self.turned_away.get(host) != why:
            log.warning("refused %s: %s", host, why)
            if len(self.turned_away) >= GUESTS_MAX:
                self.turned_away.clear()
            self.turned_away[host] = why
