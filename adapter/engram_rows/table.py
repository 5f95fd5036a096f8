"""The row store in the place of SGLang's EngramEmbedding: what it allocates, loads and looks up."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

import torch

from adapter.declare import Adapter, AdapterError, Options, end_process
from adapter.engram_rows.engram_format import EngramFormatError, file_name, source_digest
from adapter.engram_rows.metrics import Metrics
from adapter.engram_rows.reader import NativeReader, Reader, checked, opened
from adapter.frame import hook

NAME = "engram_rows"
BLOCK = 32
"""Elements that share an e8m0 scale."""
_SAMPLE = 64
_ARENA = 32 << 20
_ELSEWHERE = ("SGLANG_OPT_DSV41_ENGRAM_PEER_SHARDS", "SGLANG_ENABLE_DSV41_ENGRAM_HOST_TABLE")


def install(adapter: Adapter, options: Options) -> None:
    """Raises AdapterError where SGLang is told to keep the table in a place of its own."""
    from sglang.srt.environ import envs

    for name in _ELSEWHERE:
        if getattr(envs, name).get():
            raise AdapterError(f"{name} keeps the table in memory; leave it out of [environment]")
    prefix = "sglang.srt.layers.engram:EngramEmbedding"
    stores = _Stores(options)
    hook(adapter.symbol(f"{prefix}.__init__"), stores.made, "around")
    hook(adapter.symbol(f"{prefix}._load_rows"), stores.loaded, "replace")
    hook(adapter.symbol(f"{prefix}._owned_rows"), stores.looked_up, "replace")


def values(raw: torch.Tensor, dim: int) -> torch.Tensor:
    """raw: uint8 [..., dim + dim / 32], a row's e4m3 bytes and then its e8m0 scales. Returns bf16 [..., dim].

    value = e4m3 * 2^(e - 127), exact in float32 and rounded once, as SGLang's own lookup.
    """
    weight = raw[..., :dim].view(torch.float8_e4m3fn).float().unflatten(-1, (-1, BLOCK))
    scale = raw[..., dim:].view(torch.float8_e8m0fnu).float().unsqueeze(-1)
    return (weight * scale).flatten(-2).to(torch.bfloat16)


class _Stores:
    """What the hooks of all tables have in common. The store of each table is its attribute `rows_on_disk`."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._metrics = Metrics()

    def made(self, original: Any, table: Any, *arguments: Any, **named: Any) -> None:
        try:
            # Its own shape and shares, without the memory: nothing is allocated on the meta device.
            with torch.device("meta"):
                original(table, *arguments, **named)
            total, dim, layer = _arguments(*arguments, **named)
            table.rows_on_disk = self._store(table, total, dim, layer)
            for name, width in (("weight", dim), ("scale", dim // BLOCK)):
                kept = torch.nn.Parameter(torch.empty(0, width, dtype=getattr(table, name).dtype), requires_grad=False)
                kept.weight_loader = table._load_rows
                setattr(table, name, kept)
        except AdapterError as error:
            end_process(NAME, str(error))

    def _store(self, table: Any, total: int, dim: int, layer: int) -> RowStore:
        from sglang.srt.runtime_context import get_model, get_parallel

        parallel = get_parallel()
        path = Path(str(self._options["directory"])) / file_name(layer, parallel.tp_rank, parallel.tp_size)
        expected: dict[str, int | str] = {
            "layer": layer,
            "rank": parallel.tp_rank,
            "world": parallel.tp_size,
            "row_start": table.row_start,
            "rows": table.rows,
            "total_rows": total,
            "weight_bytes": dim,
            "scale_bytes": dim // BLOCK,
        }
        if self._options["source"] == "checkpoint":
            try:
                expected["source"] = source_digest(Path(get_model().model_path), layer)
            except (EngramFormatError, OSError) as error:
                raise AdapterError(f"the checkpoint cannot be compared with the packed rows: {error}") from error
        header = checked(path, expected)
        reader = opened(path, header, str(self._options["reader"]), int(self._options["depth"]))  # type: ignore[arg-type]
        print(f"engram_rows: layer {layer}: {header.rows} rows in {path}, read by {reader.kind}", flush=True)
        store = RowStore(path, reader, dim, table.row_start, float(self._options["timeout_seconds"]))  # type: ignore[arg-type]
        self._metrics.add(layer, reader)
        return store

    def loaded(self, table: Any, parameter: Any, tensor: torch.Tensor) -> None:
        """In place of copying a rank's share into memory: some of its rows are compared with those on disk."""
        try:
            table.rows_on_disk.compare(table, tensor, weight=parameter.dtype == torch.float8_e4m3fn)
        except AdapterError as error:
            end_process(NAME, str(error))

    def looked_up(self, table: Any, indices: torch.Tensor) -> torch.Tensor:
        try:
            found = table.rows_on_disk.lookup(indices)
        except AdapterError as error:
            end_process(NAME, str(error))
        self._metrics.tick()
        return found


def _arguments(num_embeddings: int, dim: int, layer_id: int, column_bounds: object = None) -> tuple[int, int, int]:
    return num_embeddings, dim, layer_id


class RowStore:
    """The rows of one table that one rank has."""

    def __init__(self, path: Path, reader: Reader, dim: int, first: int, seconds: float) -> None:
        self._path, self._reader, self._dim, self._first, self._seconds = path, reader, dim, first, seconds
        self._row_bytes = dim + dim // BLOCK
        self._captured: list[tuple[Any, ...]] = []
        self._running: list[tuple[Any, Any]] = []
        # While a graph is captured no pinned memory can be had from CUDA, and what is captured is used for ever.
        self._arena = torch.empty(
            _ARENA * torch.cuda.is_available(), dtype=torch.uint8, pin_memory=torch.cuda.is_available()
        )
        self._taken = 0

    def lookup(self, indices: torch.Tensor) -> torch.Tensor:
        """indices: row ids of the table, any shape. Returns bf16 [*indices.shape, dim]; rows of other ranks are 0.

        Raises AdapterError with file and row.
        """
        if indices.is_cuda:
            return self._lookup_on_stream(indices)
        return values(self.raw(indices.reshape(-1)), self._dim).view(*indices.shape, self._dim)

    def raw(self, ids: torch.Tensor) -> torch.Tensor:
        """ids: [n] on the CPU. Returns uint8 [n, row_bytes]."""
        ids = ids.to(torch.int64).contiguous()
        out = torch.empty(ids.shape[0], self._row_bytes, dtype=torch.uint8)
        if ids.shape[0]:
            self._reader.read(ids.data_ptr(), ids.shape[0], out.data_ptr(), self._seconds)
        return out

    def _lookup_on_stream(self, indices: torch.Tensor) -> torch.Tensor:
        """In the order of the current stream, so that it can be captured into a graph: ids to the host, a host
        function that reads, rows to the device. Nobody waits for it here."""
        flat = indices.reshape(-1).to(torch.int64)
        number = flat.shape[0]
        capturing = torch.cuda.is_current_stream_capturing()
        if not isinstance(self._reader, NativeReader):
            if capturing:
                raise AdapterError(
                    "the reader in Python cannot be part of a CUDA graph: run `python -m adapter.engram_rows.build`"
                )
            rows = self.raw(flat.cpu()).to(indices.device)
            return values(rows, self._dim).view(*indices.shape, self._dim)
        ids = self._pinned(number * 8, capturing=capturing).view(torch.int64)
        out = self._pinned(number * self._row_bytes, capturing=capturing).view(number, self._row_bytes)
        ids.copy_(flat, non_blocking=True)
        function, call = self._reader.host_call(ids.data_ptr(), number, out.data_ptr(), self._seconds)
        stream = torch.cuda.current_stream()
        if number:
            _launch(stream.cuda_stream, function, call)
        rows = out.to(indices.device, non_blocking=True)
        if capturing:
            self._captured.append((ids, out, call))  # a graph may be replayed for as long as the process lives
        else:
            done = torch.cuda.Event()
            done.record(stream)
            self._running = [each for each in self._running if not each[0].query()]
            self._running.append((done, (ids, out, call)))
        return values(rows, self._dim).view(*indices.shape, self._dim)

    def _pinned(self, size: int, *, capturing: bool) -> torch.Tensor:
        if not capturing:
            return torch.empty(size, dtype=torch.uint8, pin_memory=True)
        begin = self._taken
        self._taken += -(-size // 64) * 64
        if self._taken > self._arena.shape[0]:
            raise AdapterError(
                f"CUDA graphs need more than {_ARENA >> 20} MiB of pinned memory for rows; capture fewer"
            )
        return self._arena[begin : begin + size]

    def compare(self, table: Any, tensor: torch.Tensor, *, weight: bool) -> None:
        """A sample of this rank's rows with the checkpoint's tensor, by bytes. Raises AdapterError."""
        if not table.rows:
            return
        last = table.row_start + table.rows - 1
        chance = torch.Generator().manual_seed(table.row_start)
        sample = torch.randint(table.row_start, last + 1, (_SAMPLE,), generator=chance)
        ids = torch.cat([torch.tensor([table.row_start, last]), sample])
        raw = self.raw(ids)
        mine = raw[:, : self._dim] if weight else raw[:, self._dim :]
        theirs = tensor[ids].contiguous().view(torch.uint8)
        alike = theirs.shape == mine.shape
        if alike and torch.equal(mine, theirs):
            return
        row = int(ids[(mine != theirs).any(-1)][0]) if alike else table.row_start
        raise AdapterError(
            f"{self._path}: row {row} is not the checkpoint's; pack the rows of this checkpoint with "
            "`sparkd-engine model pack`"
        )


def _launch(stream: int, function: int, call: ctypes.Structure) -> None:
    runtime = _cudart()
    status = runtime.cudaLaunchHostFunc(
        ctypes.c_void_p(stream), ctypes.c_void_p(function), ctypes.c_void_p(ctypes.addressof(call))
    )
    if status != 0:
        raise AdapterError(f"cudaLaunchHostFunc has failed with {status}")


def _cudart() -> ctypes.CDLL:
    """The CUDA runtime that torch has loaded."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            path = line.rstrip().rpartition(" ")[2]
            if os.path.basename(path).startswith("libcudart.so"):
                return ctypes.CDLL(path)
    raise AdapterError("torch has loaded no CUDA runtime (libcudart.so)")
