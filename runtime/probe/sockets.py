"""TCP sockets bound to one address, and to the device that carries it."""

import asyncio
import socket

from runtime.probe.wire import Channel, ChannelClosed, ChannelSilent, reason

BACKLOG = 16


def _bound(address: str, port: int, device: str | None) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        sock.setblocking(False)
        # Rails on loopback addresses belong to no fabric device; everywhere else the device must exist.
        if device is not None and not address.startswith("127."):
            # Linux answers for an address on any interface: without this a rail whose cable is out would be
            # carried, and measured, over whatever the default route is.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
        if port:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, port))
    except BaseException:
        sock.close()
        raise
    return sock


def listen(address: str, port: int, device: str | None = None) -> socket.socket:
    """A listening socket.

    :raises OSError: the address or port is not to be had, or the device does not exist.
    """
    sock = _bound(address, port, device)
    try:
        sock.listen(BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock


async def connect(address: str, to: tuple[str, int], patience: float, device: str | None = None) -> Channel:
    """Connect from ``address`` within ``patience`` seconds.

    :raises ChannelClosed: refused, unreachable or not possible from that address.
    :raises ChannelSilent: no answer in time.
    """
    try:
        sock = _bound(address, 0, device)
    except OSError as error:
        raise ChannelClosed(f"cannot use {address}{f' on {device}' if device else ''}: {reason(error)}") from error
    try:
        async with asyncio.timeout(patience):
            await asyncio.get_running_loop().sock_connect(sock, to)
        return Channel(sock)
    except TimeoutError as error:
        sock.close()
        raise ChannelSilent(f"no answer within {patience:g} s") from error
    except OSError as error:
        sock.close()
        raise ChannelClosed(reason(error)) from error
    except BaseException:
        sock.close()
        raise


async def accept(listener: socket.socket) -> tuple[Channel, str]:
    """The next connection and the address it comes from."""
    sock, (host, _port) = await asyncio.get_running_loop().sock_accept(listener)
    return Channel(sock), str(host)
