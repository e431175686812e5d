"""Recording and replay: what comes back is what went in, and a disk that fails is not our end."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from headway.cli.replay import replay as replay_command
from headway.config.settings import Recorder as RecorderSettings
from headway.core.effects import (
    AbortSequence,
    AdmitSequence,
    ClearWorker,
    DeliverTokens,
    DispatchBatch,
    Effect,
    KillWorker,
    QuarantineRequest,
    Reason,
    Remedy,
    ReportCircuit,
    ReportMemoryCap,
    ReportStarvation,
    ResolveRequest,
    RetryParts,
    SuspectWorker,
    TakeBack,
    UpdateCounters,
    WithdrawBatch,
    WithdrawPart,
)
from headway.core.events import (
    BatchCompleted,
    BatchFailed,
    CapacityChanged,
    ContentQuarantined,
    DeviceLost,
    DeviceRecovered,
    DrainStarted,
    EngineReported,
    Event,
    MemoryPressureChanged,
    PartFailure,
    QuarantineLifted,
    Relief,
    ReliefReported,
    ReplyWritten,
    RequestArrived,
    RequestCancelled,
    RequestSatisfied,
    SequenceFailed,
    SequenceFinished,
    SequenceReturned,
    Served,
    ServerConfigured,
    TokensEmitted,
    VersionConfigured,
    VersionDrained,
    WorkerDraining,
    WorkerLost,
    WorkerReady,
    WorkerStarting,
    WorkerStopped,
)
from headway.core.ids import BatchKey, Capacity, Measurement, Part, PartRef, VersionId
from headway.core.outcomes import Outcome
from headway.core.policy import BatchPolicy, ServerPolicy, Style
from headway.core.scheduler import Scheduler
from headway.core.tenancy import TenantPolicy
from headway.core.units import NEVER, ms
from headway.runtime import codec, recorder
from headway.runtime.recorder import Recorder
from headway.runtime.replay import replay

V = VersionId("m", 1)
KEY = BatchKey("m", 1, "x:FP32[4]")

EVENTS: list[Event] = [
    ServerConfigured(ServerPolicy(tenants=(("a", TenantPolicy(weight=2.5)),))),
    VersionConfigured(V, BatchPolicy(style=Style.SEQUENCE, hold=True)),
    VersionDrained(V),
    DrainStarted(),
    MemoryPressureChanged(True),
    RequestArrived(1, "a", KEY, (Part(1, 7), Part(2, 9)), 100, NEVER, 2, prefix=((32, 111), (64, 222))),
    RequestCancelled(1),
    RequestSatisfied(1),
    ReplyWritten(1, 12, V),
    WorkerStarting(1, V, 5),
    WorkerReady(1, Capacity(0, 8, 100), (Measurement(1, 2, 3),)),
    WorkerDraining(1),
    WorkerStopped(1),
    WorkerLost(1, "signal SIGKILL"),
    ReliefReported(V, 1, Relief.STARTED, 2, "says nothing"),
    CapacityChanged(1, Capacity()),
    DeviceLost("cuda:0", "exit code 87", 500),
    DeviceRecovered("cuda:0"),
    ContentQuarantined(VersionId("m", 1), 77),
    QuarantineLifted(VersionId("m", 1), 77),
    BatchCompleted(1, 2, 3, (PartFailure(0, Outcome.INVALID_INPUT, "too long: ü"),)),
    BatchFailed(1, 2, 3, Outcome.MODEL_ERROR, "raised"),
    TokensEmitted(1, 2, 0, 5, 3, 1000),
    SequenceFinished(1, 2, 0),
    SequenceFailed(1, 2, 0, Outcome.MODEL_ERROR, "raised"),
    EngineReported(1, 2, 3, 4, 5, 6, (Served("a", 7, 8),), ((9, 1),), (10,)),
    SequenceReturned(1, 2, 1, 64),
]
EFFECTS: list[Effect] = [
    DispatchBatch(1, 2, KEY, (PartRef(1, 0), PartRef(1, 1)), Reason.IDLE),
    AdmitSequence(1, 2, 0, KEY, 77, 64),
    UpdateCounters(1, 2, (("a", 77),)),
    TakeBack(1, 2, 1),
    WithdrawPart(1, 9, 0),
    WithdrawBatch(1, 9, "says nothing"),
    AbortSequence(1, 2, 0),
    DeliverTokens(2, 0, 5, 3),
    ResolveRequest(1, Outcome.QUEUE_FULL, "full", 500),
    ReportStarvation("cpu", "a", True, 5, 500, 1000, "b"),
    RetryParts(V, (PartRef(1, 0),), Remedy.ALONE, "signal SIGSEGV"),
    QuarantineRequest(V, 1),
    ReportCircuit(V, True, 500, "died"),
    ReportMemoryCap(V, 128, 256),
    SuspectWorker(1, 2, "says nothing"),
    ClearWorker(1),
    KillWorker(1, 2, "says nothing"),
]


class Story:
    """A real core and a recorder beside it."""

    def __init__(
        self,
        directory: Path,
        max_file_mb: float = 64,
        max_files: int = 4,
        disk: type[recorder._Files] = recorder._Files,
    ) -> None:
        settings = RecorderSettings(str(directory), max_file_mb, max_files)
        self.core = Scheduler()
        self.recorder = Recorder(settings)
        self.recorder._files = disk(settings)
        self.now = 1_000
        self.recorder.start(self.core.snapshot())

    def tell(self, *events: Event) -> list[Effect]:
        self.now += 1_000
        effects = self.core.handle(list(events), self.now)
        self.recorder.record(self.now, list(events), effects, self.core.snapshot)
        return effects

    def set_up(self) -> None:
        self.tell(ServerConfigured(ServerPolicy()), VersionConfigured(V, BatchPolicy(max_queue_delay=0)))
        self.tell(WorkerStarting(1, V))
        self.tell(WorkerReady(1))

    def serve(self, request: int) -> None:
        effects = self.tell(RequestArrived(request, "a", KEY, (Part(1, 7),)))
        batch = next(effect for effect in effects if isinstance(effect, DispatchBatch))
        self.tell(BatchCompleted(1, batch.batch, ms(1)))


def files(directory: Path) -> list[Path]:
    return sorted(directory.glob(recorder.PATTERN))


def test_every_event_and_effect_there_is_comes_back_exactly():
    assert {type(e).__name__ for e in EVENTS} == set(codec.EVENTS)
    assert {type(e).__name__ for e in EFFECTS} == set(codec.EFFECTS)
    call = codec.decode_call(codec.encode_call(5, EVENTS, EFFECTS))
    assert (call.now, call.events, call.effects) == (5, EVENTS, EFFECTS)
    arrived = call.events[5]
    assert isinstance(arrived, RequestArrived)
    assert type(arrived.key) is BatchKey
    assert type(arrived.parts[0]) is Part


def test_a_field_that_an_old_recording_does_not_have_takes_its_default():
    line = json.dumps([5, [["WorkerStarting", {"worker": 1, "version": ["m", 1]}]], []])
    assert codec.decode_call(line.encode()).events == [WorkerStarting(1, V, 0)]


def test_an_event_that_does_not_exist_is_named():
    with pytest.raises(codec.NotARecording, match="Nonsense"):
        codec.decode_call(b'[5, [["Nonsense", {}]], []]')


def test_a_recording_begins_with_header_and_snapshot_and_replays_to_the_same_effects(tmp_path):
    story = Story(tmp_path / "deep" / "down")
    story.set_up()
    for request in range(50):
        story.serve(request)
    story.recorder.close()
    [path] = files(tmp_path / "deep" / "down")
    lines = path.read_bytes().splitlines()
    assert json.loads(lines[0])["format"] == codec.FORMAT
    assert "snapshot" in json.loads(lines[1])
    report = replay(path, Scheduler.restore)
    assert report.difference is None
    assert report.calls == 3 + 2 * 50 == len(lines) - 2
    assert report.effects["ResolveRequest"] == 50


def test_files_rotate_are_bounded_in_number_and_each_replays_by_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(recorder, "GATHER_S", 0.0)
    caught_up = threading.Event()

    class TellingDisk(recorder._Files):
        def flush(self) -> None:
            super().flush()
            caught_up.set()

    story = Story(tmp_path, max_file_mb=0.02, max_files=3, disk=TellingDisk)
    story.set_up()
    written = story.recorder._files
    request = 0
    while written.number < 6:
        caught_up.clear()
        story.serve(request)
        request += 1
        if len(story.recorder._pending) > 1_000:  # as fast as the disk: nothing is to be dropped
            assert caught_up.wait(30)
    story.recorder.close()
    kept = files(tmp_path)
    last = written.number  # the writer may have begun one more while we looked
    assert [path.name[-12:] for path in kept] == [f"{number:06}.jsonl" for number in (last - 2, last - 1, last)]
    for path in kept:
        assert replay(path, Scheduler.restore).difference is None
    assert story.recorder.dropped == 0


def test_calls_that_come_while_a_new_file_is_begun_do_not_begin_another(tmp_path, monkeypatch):
    monkeypatch.setattr(recorder, "GATHER_S", 0.0)
    opening, go_on, progress = threading.Event(), threading.Event(), threading.Event()

    class SlowDisk(recorder._Files):
        def _open(self, path: Path):
            if path.name.endswith("000002.jsonl"):
                opening.set()
                progress.set()
                assert go_on.wait(30)
            return super()._open(path)

        def flush(self) -> None:
            super().flush()
            progress.set()

    story = Story(tmp_path, max_file_mb=0.005, disk=SlowDisk)
    story.set_up()
    request = 0
    while not opening.is_set():
        progress.clear()
        story.serve(request)
        request += 1
        assert progress.wait(30)
    for later in range(request, request + 3):
        story.serve(later)
    go_on.set()
    story.recorder.close()
    assert len(files(tmp_path)) == 2


def test_files_of_earlier_runs_count_too(tmp_path):
    for number in range(5):
        (tmp_path / f"trace-20200101T000000-1-{number:06}.jsonl").write_text("old")
    (tmp_path / "mine.txt").write_text("not ours to delete")
    story = Story(tmp_path, max_files=2)
    story.recorder.close()
    assert len(files(tmp_path)) == 2
    assert (tmp_path / "mine.txt").exists()


def test_without_a_directory_nothing_is_recorded():
    idle = Recorder(RecorderSettings())
    idle.start({})
    idle.record(1, EVENTS, EFFECTS, dict)
    idle.close()
    assert not idle.recording


def test_a_full_disk_switches_recording_off_and_serving_goes_on(tmp_path, caplog):
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this host has no /dev/full")

    class FullDisk(recorder._Files):
        def _open(self, path: Path):
            return full.open("wb")

    story = Story(tmp_path, disk=FullDisk)
    story.set_up()
    for request in range(10):
        story.serve(request)
    story.recorder.close()
    assert story.recorder.failures == 1
    assert not story.recorder.recording
    assert "recording is off" in caplog.text
    assert "No space left" in caplog.text


def test_a_directory_that_cannot_be_made_switches_recording_off(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    story = Story(tmp_path / "file" / "below")
    story.set_up()
    story.recorder.close()
    assert story.recorder.failures == 1
    assert "recording is off" in caplog.text


def test_a_writer_that_is_behind_leaves_a_gap_and_goes_on_in_a_new_file(tmp_path, monkeypatch):
    monkeypatch.setattr(recorder, "MAX_PENDING", 8)
    stuck, flushed = threading.Event(), threading.Event()

    class StuckDisk(recorder._Files):
        def write(self, line: bytes) -> None:
            assert stuck.wait(30)
            super().write(line)

        def flush(self) -> None:
            super().flush()
            flushed.set()

    story = Story(tmp_path, disk=StuckDisk)
    story.set_up()
    for request in range(10):
        story.serve(request)
    assert story.recorder.dropped > 0
    stuck.set()
    assert flushed.wait(30)
    for request in range(10, 12):
        story.serve(request)
    story.recorder.close()
    first, second = files(tmp_path)
    assert replay(first, Scheduler.restore).difference is None
    after = replay(second, Scheduler.restore)
    assert after.difference is None
    assert after.calls == 3, "the snapshot stands for the call that ended the gap"


def test_a_core_that_raises_leaves_its_last_call_in_the_recording(tmp_path):
    story = Story(tmp_path)
    story.set_up()
    events: list[Event] = [WorkerStarting(1, V)]  # an id that is in use
    with pytest.raises(Exception, match="used twice") as raised:
        story.core.handle(events, 9_000)
    story.recorder.raised(9_000, events, raised.value)
    [path] = files(tmp_path)
    report = replay(path, Scheduler.restore)
    assert report.difference is None
    assert "used twice" in report.raised


def test_a_last_line_cut_off_by_a_kill_is_not_an_error(tmp_path):
    story = Story(tmp_path)
    story.set_up()
    story.recorder.close()
    [path] = files(tmp_path)
    path.write_bytes(path.read_bytes()[:-10])
    report = replay(path, Scheduler.restore)
    assert report.cut_off
    assert (report.calls, report.difference) == (2, None)


def recording(tmp_path: Path) -> Path:
    story = Story(tmp_path)
    story.set_up()
    story.serve(1)
    story.recorder.close()
    return files(tmp_path)[0]


def test_the_command_says_that_a_recording_is_reproduced(tmp_path):
    result = CliRunner().invoke(replay_command, [str(recording(tmp_path)), "--stats"])
    assert result.exit_code == 0, result.output
    assert "reproduced; 5 calls" in result.output
    assert "DispatchBatch" in result.output


def test_the_command_shows_the_first_difference_and_fails(tmp_path):
    path = recording(tmp_path)
    path.write_text(path.read_text().replace('"reason":"idle"', '"reason":"full"'))
    result = CliRunner().invoke(replay_command, [str(path)])
    assert result.exit_code == 1
    assert "line 6" in result.output
    assert "the core decided otherwise" in result.output
    assert "Reason.FULL" in result.output
    assert "Reason.IDLE" in result.output


@pytest.mark.parametrize("content", ["", "hello\n", '{"format": 99, "headway": "9"}\n', "[1]\n"])
def test_the_command_says_what_is_not_a_recording(tmp_path, content):
    path = tmp_path / "other"
    path.write_text(content)
    result = CliRunner().invoke(replay_command, [str(path)])
    assert result.exit_code == 2
    assert str(path) in result.output
