"""Whether a GPU computes at all, by a driver that is none."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from headway.worker import device_probe
from headway.worker.device_probe import OUT_OF_MEMORY, probe

CALLS = (
    "cuInit",
    "cuDeviceGet",
    "cuDevicePrimaryCtxRetain",
    "cuCtxSetCurrent",
    "cuMemAlloc_v2",
    "cuMemsetD32_v2",
    "cuMemcpyDtoH_v2",
)


class FakeDriver:
    """Memory is what was written last. fails: function -> what it answers."""

    def __init__(self, fails: dict[str, int] | None = None, forgets: bool = False) -> None:
        self.fails = fails or {}
        self.forgets = forgets
        self.calls: list[str] = []
        self.number = -1
        self.word = 0

    def __getattr__(self, function: str) -> Any:
        def call(*arguments: Any) -> int:
            self.calls.append(function)
            getattr(self, f"_{function}", lambda *ignored: None)(*arguments)
            return self.fails.get(function, 0)

        if function.startswith("_"):
            raise AttributeError(function)
        return call

    def _cuDeviceGet(self, device: Any, number: int) -> None:
        self.number = number

    def _cuMemsetD32_v2(self, address: Any, word: ctypes.c_uint, count: Any) -> None:
        self.word = word.value

    def _cuMemcpyDtoH_v2(self, to: Any, address: Any, size: Any) -> None:
        for at in range(len(to)):
            to[at] = self.word
        if self.forgets:
            to[len(to) - 1] = 0

    def _cuGetErrorString(self, result: int, text: Any) -> None:
        if result != 999:
            text._obj.value = b"uncorrectable ECC error encountered"


def test_a_device_that_writes_and_reads_works() -> None:
    driver = FakeDriver()
    assert probe("cuda:3", driver) == ""
    assert driver.number == 3
    assert tuple(driver.calls) == CALLS


@pytest.mark.parametrize("function", CALLS)
def test_whatever_fails_is_told_in_the_drivers_words(function: str) -> None:
    assert probe("cuda:0", FakeDriver({function: 214})) == f"{function}: uncorrectable ECC error encountered"


def test_an_error_without_words_is_told_by_its_number() -> None:
    assert probe("cuda:0", FakeDriver({"cuInit": 999})) == "cuInit: error 999"


def test_memory_that_forgets_is_broken() -> None:
    assert probe("cuda:0", FakeDriver(forgets=True)) == "what it wrote into its memory did not come back"


def test_a_device_that_others_have_filled_works() -> None:
    assert probe("cuda:0", FakeDriver({"cuMemAlloc_v2": OUT_OF_MEMORY})) == ""


def test_what_is_no_gpu_does_not_work_as_one() -> None:
    assert probe("cpu", FakeDriver()) == "'cpu' is no GPU"


def test_without_a_driver_there_is_none(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(device_probe, "LIBRARY", "libnone-of-this-name.so.1")
    assert device_probe.main("cuda:0") == 1
    assert capsys.readouterr().out.startswith("there is no driver: libnone-of-this-name.so.1")


def test_how_it_went_is_the_exit_code(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(device_probe.ctypes, "CDLL", lambda name: FakeDriver())
    assert device_probe.main("cuda:0") == 0
    monkeypatch.setattr(device_probe.ctypes, "CDLL", lambda name: FakeDriver({"cuInit": 999}))
    assert device_probe.main("cuda:0") == 1
    assert capsys.readouterr().out == "cuInit: error 999\n"
