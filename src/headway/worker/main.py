"""The worker process from its first message to its last."""

from __future__ import annotations

import gc
import logging
import os
from time import perf_counter_ns
from typing import TYPE_CHECKING, cast

import msgspec

from headway.config.settings import ModelSettings
from headway.core.ids import Capacity, Measurement
from headway.wire.exits import (
    EXIT_CHANNEL_CLOSED,
    EXIT_LOAD_FAILED,
    EXIT_OUT_OF_MEMORY,
    EXIT_PROTOCOL_VIOLATION,
    EXIT_STOPPED,
)
from headway.wire.frames import ProtocolViolation
from headway.wire.messages import PROTOCOL_VERSION, Hello, Load, LoadFailed, ModelMeta, Ready
from headway.wire.safety import SafetyReport
from headway.worker import parent
from headway.worker.batches import BatchLoop
from headway.worker.channel import Channel, connect
from headway.worker.device_errors import DeviceBroken
from headway.worker.errors import ChannelClosed, LoadError, is_final, raised
from headway.worker.executor import BatchExecutor, EngineExecutor, LoadContext, StreamExecutor
from headway.worker.executors import Executor, create
from headway.worker.log import configure
from headway.worker.memory import MemoryWatch
from headway.worker.safety_load import STREAMS, settle
from headway.worker.streams import StreamLoop

if TYPE_CHECKING:
    from headway.worker.engine_loop import EngineLoop

log = logging.getLogger("headway.worker")


def main(address: str, worker: int, token: str) -> int:
    """Returns the exit code."""
    configure(f"worker {worker}")
    parent.leave_signals_to_parent()
    try:
        channel = connect(address)
    except (OSError, ValueError) as error:
        log.error("cannot connect to %s: %s", address, error)
        return EXIT_CHANNEL_CLOSED
    try:
        channel.send(Hello(PROTOCOL_VERSION, worker, os.getpid(), token))
        return _serve(channel, worker)
    except ChannelClosed as closed:
        log.info("leaving: %s", closed)
        return EXIT_CHANNEL_CLOSED
    except ProtocolViolation as violation:
        log.error("leaving: protocol violation: %s", violation)
        return EXIT_PROTOCOL_VIOLATION
    except DeviceBroken as broken:
        log.error("leaving: %s", broken)
        return broken.exit_code
    except MemoryError:
        log.exception("leaving: out of memory")
        return EXIT_OUT_OF_MEMORY
    finally:
        channel.close()


def _serve(channel: Channel, worker: int) -> int:
    message, _ = channel.receive()
    if not isinstance(message, Load):
        raise ProtocolViolation(f"expected load as the first message, got {type(message).__name__}")
    if message.worker != worker:
        raise ProtocolViolation(f"load for worker {message.worker} sent to worker {worker}")
    name = f"{message.model}/{message.version}"
    configure(f"worker {worker} {name}")
    begun = perf_counter_ns()
    try:
        executor, meta, measurements, report = _load(message)
    except Exception as error:
        log.exception("load failed")
        detail = str(error) if isinstance(error, LoadError) else raised(name, error)
        channel.send(LoadFailed(worker, detail, is_final(error)))
        return EXIT_LOAD_FAILED
    gc.freeze()  # what loading has made stays to the end: no collection need look at it again
    capacity, loop = _loop(channel, worker, name, executor, meta, _settings(message))
    channel.send(Ready(worker, meta, capacity, measurements, report))
    log.info("ready in %d ms, %d runs to warm up", (perf_counter_ns() - begun) // 1_000_000, len(measurements))
    loop.run()
    try:
        executor.unload()
    except Exception:
        log.exception("unload failed")  # the process ends here, and takes with it what was not given back
    log.info("stopped")
    return EXIT_STOPPED


def _loop(
    channel: Channel, worker: int, name: str, executor: Executor, meta: ModelMeta, settings: ModelSettings
) -> tuple[Capacity, StreamLoop | BatchLoop | EngineLoop]:
    if meta.language is not None:
        from headway.worker.engine_loop import EngineLoop  # it needs torch, which is an extra

        language = cast(EngineExecutor, executor)
        attached, engine = language.attach(worker)
        return attached.capacity, EngineLoop(channel, worker, name, attached, engine, language.vocabulary)
    if meta.streaming:
        room = settings.sequences("python")
        capacity = Capacity(batch_slots=0, sequences=room)
        return capacity, StreamLoop(channel, worker, name, cast(StreamExecutor, executor), room)
    bf16 = frozenset(output.name for output in meta.outputs if output.datatype == "BF16")
    return Capacity(batch_slots=1), BatchLoop(channel, worker, name, cast(BatchExecutor, executor), bf16)


def _load(message: Load) -> tuple[Executor, ModelMeta, list[Measurement], SafetyReport]:
    settings = _settings(message)
    context = LoadContext(message.model, message.version, message.path, message.device, message.threads, settings)
    executor = create(message.executor)
    meta = executor.load(context)
    if meta.language is not None:
        return executor, meta, list(cast(EngineExecutor, executor).measurements), SafetyReport(reason=STREAMS)
    if meta.streaming:
        return executor, meta, [], SafetyReport(reason=STREAMS)
    served, measurements, report = settle(cast(BatchExecutor, executor), meta, context)
    watch: MemoryWatch | None = getattr(executor, "memory", None)
    if watch is not None:
        meta = msgspec.structs.replace(meta, memory=watch.found())
    return served, meta, measurements, report


def _settings(message: Load) -> ModelSettings:
    return msgspec.convert(message.settings, ModelSettings)
