"""Requests are placed once, and their results are kept while a caller may ask, in bounded memory."""

from __future__ import annotations

import threading

import pytest

from cutline.barrier_runtime.coordinator import request_results
from cutline.barrier_runtime.coordinator.request_results import RequestResults
from cutline.snapshot.coordinator.events import CloseRequest


def test_a_request_is_placed_once() -> None:
    """While it is pending, and after it was closed."""
    results = RequestResults()
    assert [results.place(7), results.place(7), results.place(8)] == [True, False, True]
    results.close(CloseRequest(7, 1_000_000, ""))
    assert not results.place(7)
    assert results.all_closed() == {7: CloseRequest(7, 1_000_000, "")}


def test_a_caller_waits_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result wakes the caller; without a result the caller is told that the request is pending."""
    results = RequestResults()
    results.place(1)
    monkeypatch.setattr(request_results, "REQUEST_SECONDS_MAX", 0.01)
    assert results.wait(1) is None
    monkeypatch.setattr(request_results, "REQUEST_SECONDS_MAX", 60.0)
    threading.Timer(0.05, results.close, [CloseRequest(1, None, "too late")]).start()
    assert results.wait(1) == CloseRequest(1, None, "too late")


def test_results_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest results go; a pending request is never forgotten, however old it is."""
    monkeypatch.setattr(request_results, "RESULTS_MAX", 3)
    results = RequestResults()
    for number in range(10):
        assert results.place(number)
    for number in range(1, 10):
        results.close(CloseRequest(number, number, ""))
    assert list(results.all_closed()) == [7, 8, 9]
    assert not results.place(0) and results.place(1)
