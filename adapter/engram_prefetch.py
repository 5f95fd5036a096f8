"""Engram's lookups begun right after hashing, and waited for where the rows are needed.

The hasher knows the rows of every Engram layer before the first layer runs; SGLang looks them up layer by layer, each
on the model's way. Here they are looked up beside it: on a stream of its own on a GPU, on one thread on a CPU, in the
order of the layers. Only this rank's own rows are: the all-reduce that puts the ranks' parts together stays where it
is, in the order that the ranks have agreed on. What is given on is bitwise what the synchronous lookup gives.
"""

from __future__ import annotations

import sys
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from adapter.declare import SCHEDULER, Adapter, AdapterError, Option, Options, Symbol, end_process

_ENGRAM = "sglang.srt.layers.engram"
ADAPTER = Adapter(
    name="engram_prefetch",
    purpose="looks Engram's rows up beside the model instead of on its way",
    worth="hides the reads behind the layers before the first Engram (knapcio, TP4); not measured here",
    processes=frozenset({SCHEDULER}),
    symbols=(
        Symbol(f"{_ENGRAM}:EngramHasher.forward", "a6cf022207800ebd"),
        Symbol(f"{_ENGRAM}:Engram.__init__", "8930db1b54a40c15"),
        Symbol(f"{_ENGRAM}:Engram.embed_rows", "9e92fc96d9571322"),
        Symbol(f"{_ENGRAM}:EngramEmbedding.forward", "9423d7bc90564050"),
        Symbol(f"{_ENGRAM}:EngramEmbedding._lookup", "dffa43e56cb1e44c"),
        Symbol(f"{_ENGRAM}:EngramEmbedding._reduce_owned_rows", "16877af3c663afe8"),
    ),
    options={
        "mode": Option(
            "on",
            "on; or check: look up once more where the rows are needed, give that on, and count what differs",
            choices=("on", "check"),
        )
    },
)


def install(options: Options) -> None:
    from adapter.frame import hook

    prefetch = Prefetch(check=options["mode"] == "check")
    hook(ADAPTER.symbol(f"{_ENGRAM}:Engram.__init__"), prefetch.made, "after")
    hook(ADAPTER.symbol(f"{_ENGRAM}:EngramHasher.forward"), prefetch.hashed, "after")
    hook(ADAPTER.symbol(f"{_ENGRAM}:Engram.embed_rows"), prefetch.wanted, "around")


@dataclass(frozen=True)
class Pending:
    """A lookup under way. ids: what it was begun for; captured: within a CUDA graph that is being captured."""

    ids: Any
    captured: bool
    rows: Any = None
    future: Future[Any] | None = None


class Prefetch:
    """started, used, unused: lookups; compared, different: of check mode."""

    def __init__(self, *, check: bool) -> None:
        self._check = check
        self._tables: dict[int, Any] = {}
        self._pending: dict[int, Pending] = {}
        # One thread: reads are in the order in which they were asked for.
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="engram-prefetch")
        self._stream: Any = None
        self.started = self.used = self.unused = self.compared = self.different = 0

    def made(self, _result: None, engram: Any, *_arguments: Any, **_options: Any) -> None:
        index = engram.layer_hash_index
        if index in self._tables:
            end_process(ADAPTER.name, "two models with Engram in one process, whose layers cannot be told apart")
        self._tables[index] = engram.embed

    def hashed(self, hash_ids: Any, _hasher: Any, _input_ids: Any, forward_batch: Any, *_rest: Any) -> None:
        """After EngramHasher.forward; hash_ids [tokens, layers, columns]."""
        self._drop()
        if hash_ids.shape[0] == 0 or forward_batch.forward_mode.is_idle():
            return
        if getattr(forward_batch, "engram_staged_rows", None) is not None or _between_graphs():
            return
        try:
            for index, table in sorted(self._tables.items()):
                if _looks_up_alone(table):
                    self._pending[index] = self._begin(table, hash_ids[:, index])
                    self.started += 1
        except AdapterError as error:
            end_process(ADAPTER.name, str(error))

    def _begin(self, table: Any, ids: Any) -> Pending:
        import torch

        if not ids.is_cuda:
            return Pending(ids, False, future=self._pool.submit(_owned, table, ids))
        if self._stream is None:
            self._stream = torch.cuda.Stream()
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            rows = table._owned_rows(ids)
        # The allocator gives memory back by the stream that it was taken on.
        ids.record_stream(self._stream)
        rows.record_stream(current)
        return Pending(ids, torch.cuda.is_current_stream_capturing(), rows=rows)

    def wanted(self, original: Any, engram: Any, hash_ids: Any, forward_batch: Any, cp_all_tokens: bool) -> Any:
        """Around Engram.embed_rows."""
        pending = self._pending.pop(engram.layer_hash_index, None)
        rows = None if pending is None else self._joined(pending, hash_ids)
        if rows is None or cp_all_tokens:
            self.unused += pending is not None
            return original(engram, hash_ids, forward_batch, cp_all_tokens)
        self.used += 1
        if self._check:
            return self._compared(engram, rows, original(engram, hash_ids, forward_batch, cp_all_tokens))
        return _reduced(engram.embed, rows)

    def _joined(self, pending: Pending, hash_ids: Any) -> Any:
        """The rows, in this stream's order; None if they are not of these ids: a layer may want some of the tokens."""
        if pending.future is not None:
            rows = pending.future.result()
        else:
            import torch

            if pending.captured != torch.cuda.is_current_stream_capturing():
                return None
            torch.cuda.current_stream().wait_stream(self._stream)
            rows = pending.rows
        same = (
            pending.ids.data_ptr() == hash_ids.data_ptr()
            and pending.ids.shape == hash_ids.shape
            and pending.ids.stride() == hash_ids.stride()
        )
        return rows if same else None

    def _compared(self, engram: Any, rows: Any, right: Any) -> Any:
        """In check mode each lookup also does its all-reduce twice, on every rank alike."""
        import torch

        found = _reduced(engram.embed, rows)
        self.compared += 1
        equal = found.shape == right.shape and torch.equal(found.view(torch.int16), right.view(torch.int16))
        if not equal:
            self.different += 1
            print(
                f"engram_prefetch: layer {engram.layer_hash_index}: differs from the synchronous lookup, "
                f"{self.different} of {self.compared} times",
                file=sys.stderr, flush=True,
            )  # fmt: skip
        return right

    def _drop(self) -> None:
        """What an earlier step has left, such as one that failed on its way."""
        for pending in self._pending.values():
            self.unused += 1
            if pending.future is not None:
                pending.future.result()
        self._pending.clear()


def _owned(table: Any, ids: Any) -> Any:
    import torch

    # Whether gradients are kept is said per thread.
    with torch.inference_mode(ids.is_inference()), torch.no_grad():
        return table._owned_rows(ids)


def _reduced(table: Any, rows: Any) -> Any:
    """As EngramEmbedding._lookup goes on."""
    return table._reduce_owned_rows(rows) if table.tp_size > 1 else rows


def _looks_up_alone(table: Any) -> bool:
    """Whether EngramEmbedding.forward looks this rank's rows up and adds up over the ranks, and nothing else."""
    from sglang.srt.runtime_context import get_parallel

    shared = table.host_table is not None and table.host_table.layout == "shared"
    return table.peer is None and not shared and get_parallel().attn_dp_size == 1


def _between_graphs() -> bool:
    """In prefill the hasher may run between the pieces of a CUDA graph, the lookup within one."""
    from sglang.srt.model_executor.runner_backend_utils.breakable_cuda_graph.context import is_in_breakable_cuda_graph

    return bool(is_in_breakable_cuda_graph())
