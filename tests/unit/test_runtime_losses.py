"""How a worker was lost, told from its end."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from headway.core.losses import Loss
from headway.runtime.losses import SIGNS, End, end_of, end_of_progress, while_loading
from headway.runtime.oom import OutOfMemoryKills
from headway.wire.exits import EXIT_DEVICE_FAULT, EXIT_DEVICE_LOST, EXIT_OUT_OF_MEMORY, EXIT_PROTOCOL_VIOLATION
from headway.worker.device_errors import DeviceBroken, check_device


@pytest.mark.parametrize(
    ("code", "starved", "loss"),
    [
        (-signal.SIGKILL, False, Loss.KILLED),
        (-signal.SIGKILL, True, Loss.OUT_OF_MEMORY),
        (-signal.SIGTERM, True, Loss.KILLED),
        (-signal.SIGSEGV, False, Loss.CRASHED),
        (-signal.SIGSEGV, True, Loss.CRASHED),
        (-signal.SIGXCPU, False, Loss.CRASHED),
        (-64, False, Loss.CRASHED),
        (0, False, Loss.CRASHED),
        (1, False, Loss.CRASHED),
        (EXIT_PROTOCOL_VIOLATION, False, Loss.PROTOCOL),
        (EXIT_OUT_OF_MEMORY, False, Loss.OUT_OF_MEMORY),
        (EXIT_DEVICE_LOST, False, Loss.DEVICE_LOST),
        (EXIT_DEVICE_FAULT, False, Loss.CRASHED),
    ],
)
def test_an_exit_is_of_one_kind(code, starved, loss):
    assert end_of(code, starved).loss is loss


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (0, "exit code 0"),
        (3, "exit code 3"),
        (-9, "signal SIGKILL"),
        (-64, "signal SIGRTMAX"),
        (-63, "signal 63"),
        (EXIT_DEVICE_LOST, f"exit code {EXIT_DEVICE_LOST}: its device is lost"),
    ],
)
def test_an_exit_is_told_in_words(code, text):
    assert end_of(code).cause == text


@pytest.mark.parametrize(
    ("stat", "loss"),
    [
        ("7 (python3) T 1 7", Loss.KILLED),
        ("7 (python3) t 1 7", Loss.KILLED),
        ("7 (python3) S 1 7", Loss.HUNG),
        ("7 (a) T ) R 1 7", Loss.HUNG),
        ("", Loss.HUNG),
    ],
)
def test_a_process_that_is_stopped_does_not_hang(tmp_path, stat, loss):
    write(tmp_path, {"7/stat": stat})
    end = end_of_progress(7, "no answer for 2 s", tmp_path)
    assert end.loss is loss
    assert end.cause.startswith("no progress") and end.cause.endswith(": no answer for 2 s")


def test_where_nothing_is_told_of_a_process_it_hangs(tmp_path):
    assert end_of_progress(7, "", tmp_path).loss is end_of_progress(None, "", tmp_path).loss is Loss.HUNG


@pytest.mark.parametrize(("sign", "loss"), SIGNS.items(), ids=SIGNS)
def test_while_a_worker_loads_nothing_that_it_ran_is_to_blame(sign, loss):
    end = while_loading(End(sign, loss))
    assert not end.loss.blames
    assert (end.loss is loss) == (loss in (Loss.KILLED, Loss.DEVICE_LOST, Loss.REFUSED))


# -- the kernel's count ------------------------------------------------------------------------


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


PLACES = {
    "version 2": ("0::/a/b\n", "sys/fs/cgroup/a/b/memory.events"),
    "version 2 in a container": ("0::/elsewhere\n", "sys/fs/cgroup/memory.events"),
    "version 1": ("9:name=systemd:/\n4:memory:/a\n0::/\n", "sys/fs/cgroup/memory/a/memory.oom_control"),
    "version 1 in a container": ("4:cpu,memory:/elsewhere\n", "sys/fs/cgroup/memory/memory.oom_control"),
    "the whole machine": ("0::/\n", "proc/vmstat"),
}


@pytest.mark.parametrize(("cgroup", "file"), PLACES.values(), ids=PLACES)
def test_a_kill_that_the_kernel_counts_is_told_once_wherever_it_counts(tmp_path, cgroup, file):
    write(tmp_path, {"proc/self/cgroup": cgroup, file: "oom 9\noom_kill 3\n"})
    kills = OutOfMemoryKills(tmp_path)
    assert not kills.one_more()
    write(tmp_path, {file: "oom 9\noom_kill 5\n"})
    assert [kills.one_more() for _ in range(3)] == [True, True, False]


def test_a_kill_before_a_worker_started_is_not_its_own(tmp_path):
    write(tmp_path, {"proc/vmstat": "oom_kill 3\n"})
    kills = OutOfMemoryKills(tmp_path)
    write(tmp_path, {"proc/vmstat": "oom_kill 4\n"})
    kills.looks()
    assert not kills.one_more()


def test_where_nothing_is_counted_no_kill_is_the_kernels(tmp_path):
    kills = OutOfMemoryKills(tmp_path)
    kills.looks()
    assert not kills.one_more()


# -- devices -----------------------------------------------------------------------------------


class Fail(Exception):
    """As ONNX Runtime has it."""


Fail.__module__ = "onnxruntime.capi.onnxruntime_pybind11_state"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RuntimeError("CUDA error: device-side assert triggered\nCUDA kernel errors might be"), EXIT_DEVICE_FAULT),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), EXIT_DEVICE_FAULT),
        (RuntimeError("CUDA error: unspecified launch failure"), EXIT_DEVICE_FAULT),
        (RuntimeError("CUDA error: uncorrectable ECC error encountered"), EXIT_DEVICE_LOST),
        (RuntimeError("CUDA error: unknown error"), EXIT_DEVICE_LOST),
        (Fail("[ONNXRuntimeError] : 1 : FAIL : CUDA failure 700: an illegal memory access; GPU=0"), EXIT_DEVICE_FAULT),
        (Fail("[ONNXRuntimeError] : 1 : FAIL : CUDA failure 214: uncorrectable ECC error; GPU=0"), EXIT_DEVICE_LOST),
    ],
)
def test_an_error_after_which_no_batch_can_work_ends_the_worker(error, code):
    with pytest.raises(DeviceBroken) as broken:
        check_device(error)
    assert broken.value.exit_code == code


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("no such label: CUDA error: illegal memory access"),
        ValueError("CUDA error: an illegal memory access was encountered"),
        Fail("[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : unknown error"),
    ],
    ids=str,
)
def test_other_errors_and_what_a_client_may_have_written_do_not(error):
    check_device(error)
