"""The driver's requests to one coordinator instance, and the results for which callers wait."""

from __future__ import annotations

import threading

from cutline.snapshot.coordinator.events import CloseRequest

#: Seconds that a call for a pending request waits at most. The wait is short, because a driver must notice its own
#: timeout, or a new coordinator instance, at once.
REQUEST_SECONDS_MAX = 0.25

#: Newest results to keep. A caller asks again within `REQUEST_SECONDS_MAX`, and few callers wait at one time. A request
#: whose result is not kept any more would be placed anew.
RESULTS_MAX = 1000


class RequestResults:
    """Requests that are pending, and the results of the newest closed requests. Methods may be called on any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        #: ids of the pending requests: an ordered set
        self._pending: dict[int, None] = {}
        #: {request id: result}, oldest first
        self._closed: dict[int, CloseRequest] = {}

    def place(self, request_id: int) -> bool:
        """Note a request. Return False if the request is known."""
        with self._changed:
            if request_id in self._pending or request_id in self._closed:
                return False
            self._pending[request_id] = None
            return True

    def close(self, result: CloseRequest) -> None:
        """Keep the result of a request."""
        with self._changed:
            self._pending.pop(result.request_id, None)
            self._closed[result.request_id] = result
            if len(self._closed) > RESULTS_MAX:
                del self._closed[next(iter(self._closed))]
            self._changed.notify_all()

    def wait(self, request_id: int) -> CloseRequest | None:
        """Return the result of a request. Return None after `REQUEST_SECONDS_MAX` while the request is pending."""
        with self._changed:
            self._changed.wait_for(lambda: request_id in self._closed, REQUEST_SECONDS_MAX)
            return self._closed.get(request_id)

    def all_closed(self) -> dict[int, CloseRequest]:
        """Return the kept results, by request."""
        with self._changed:
            return dict(self._closed)
