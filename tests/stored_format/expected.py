"""Contents of the stored snapshots, literally. Never change a value, because a stored file would then read differently.

The values were read by `tests.stored_format.contents` and checked against the schedules of the fixtures.
"""

from __future__ import annotations

import datetime
from typing import Any

from cutline import Subtask
from tests.stored_format.nodes import Order, Point

# fmt: off
#: {fixture: {snapshot: {subtask: what it holds}}}, of all but `chance` and `large_state`
CONTENTS: dict[str, dict[int, dict[str, dict[str, Any]]]] = {
    "plain": {
        1000001: {
            "numbers[0]": {"state": 2, "partitioners": {"tally": 0}, "sent numbers[0]->tally[0]": (2, 2, 0, 0)},
            "tally[0]": {
                "state": {"count": 2}, "exhausted": True, "partitioners": {"out": 0},
                "sent tally[0]->out[0]": (2, 2, 0, 0), "received numbers[0]->tally[0]": (2, 2, 0, 0),
            },
            "out[0]": {
                "state": [], "exhausted": True, "uncommitted": {1000001: ["plain/out[0]/1/1000001", [1, 2]]},
                "received tally[0]->out[0]": (2, 2, 0, 0),
            },
        },
    },
    "channel_state": {
        1000001: {
            "source[0]": {
                "state": 11, "exhausted": True, "ended": True, "partitioners": {"keeper": 0},
                "SENT source[0]->keeper[0]": (
                    [(8, "TUPLES", [("flat", 10)]), (9, "TUPLES", [("flat", 11)]),
                     (10, "TUPLES", [("nested", [12])]), (11, "VALUES", [-13]), (12, "CONTROL", [])]
                ),
                "sent source[0]->keeper[0]": (12, 7, 8, 12),
            },
            "keeper[0]": {
                "state": [1, "two"], "exhausted": True, "partitioners": {"out": 0},
                "RECEIVED source[0]->keeper[0]": (
                    [(3, "VALUES", [None]), (4, "VALUES", [4.5]), (5, "VALUES", [b"six"]),
                     (6, "VALUES", [{"seven": [7]}]), (7, "VALUES", [[8, (9,)]])]
                ),
                "SENT keeper[0]->out[0]": [(1, "VALUES", [1]), (2, "VALUES", ["two"])],
                "sent keeper[0]->out[0]": (2, 0, 1, 2), "received source[0]->keeper[0]": (2, 7, 3, 7),
            },
            "out[0]": {"state": [], "exhausted": True},
        },
    },
    "shared_frames": {
        1000001: {
            "source[0]": {
                "state": 11, "exhausted": True, "ended": True, "partitioners": {"keeper": 0},
                "sent source[0]->keeper[0]": (12, 12, 0, 0),
            },
            "keeper[0]": {
                "state": [1, "two"], "exhausted": True, "partitioners": {"out": 0},
                "RECEIVED source[0]->keeper[0]": (
                    [(3, "VALUES", [None, 4.5]), (5, "VALUES", [b"six", {"seven": [7]}, [8, (9,)]]),
                     (8, "TUPLES", [("flat", 10), ("flat", 11), ("nested", [12])]), (11, "VALUES", [-13]),
                     (12, "CONTROL", [])]
                ),
                "SENT keeper[0]->out[0]": [(1, "VALUES", [1, "two"])], "sent keeper[0]->out[0]": (2, 0, 1, 2),
                "received source[0]->keeper[0]": (2, 12, 3, 12),
            },
            "out[0]": {"state": [], "exhausted": True},
        },
    },
    "sent_together": {
        1000001: {
            "source[0]": {
                "state": 4, "partitioners": {"keeper": 0},
                "SENT source[0]->keeper[0]": (
                    [(4, "TUPLES", [("d", [4]), ("e", [5])]), (6, "VALUES", [6, "seven", None]),
                     (9, "TUPLES", [("f", 8), ("g", 9)])]
                ),
                "sent source[0]->keeper[0]": (10, 3, 4, 10),
            },
            "keeper[0]": {
                "state": [("a", 1)], "exhausted": True, "partitioners": {"out": 0},
                "RECEIVED source[0]->keeper[0]": [(2, "TUPLES", [("b", 2), ("c", 3)])],
                "SENT keeper[0]->out[0]": [(1, "TUPLES", [("a", 1)])], "sent keeper[0]->out[0]": (1, 0, 1, 1),
                "received source[0]->keeper[0]": (1, 3, 2, 3),
            },
            "out[0]": {"state": [], "exhausted": True},
        },
        1000002: {
            "source[0]": {
                "state": 4, "partitioners": {"keeper": 0},
                "SENT source[0]->keeper[0]": (
                    [(4, "TUPLES", [("d", [4]), ("e", [5])]), (6, "VALUES", [6, "seven", None]),
                     (9, "FLAT", [("f", 8), ("g", 9)])]
                ),
                "sent source[0]->keeper[0]": (10, 3, 4, 10),
            },
            "keeper[0]": {
                "state": [("a", 1)], "exhausted": True, "partitioners": {"out": 0},
                "RECEIVED source[0]->keeper[0]": [(2, "FLAT", [("b", 2), ("c", 3)])],
                "SENT keeper[0]->out[0]": [(1, "FLAT", [("a", 1)])], "sent keeper[0]->out[0]": (1, 0, 1, 1),
                "received source[0]->keeper[0]": (1, 3, 2, 3),
            },
            "out[0]": {"state": [], "exhausted": True},
        },
    },
    "batches": {
        1000001: {
            "source[0]": {
                "state": 6, "partitioners": {"keeper": 0},
                "SENT source[0]->keeper[0]": (
                    [(7, "BATCH", [{"word": "eeeee", "length": 5}, {"word": "a", "length": 1}])]
                ),
                "sent source[0]->keeper[0]": (8, 6, 7, 8),
            },
            "keeper[0]": {
                "state": (
                    [[{"word": "a", "length": 1}, {"word": "bb", "length": 2}], [{"word": "bb", "length": 2}],
                     [{"word": "ccc", "length": 3}]]
                ),
                "exhausted": True, "partitioners": {"partial": 0},
                "RECEIVED source[0]->keeper[0]": (
                    [(5, "BATCH", [{"word": "dddd", "length": 4}, {"word": "a", "length": 1}])]
                ),
                "sent keeper[0]->partial[0]": (4, 4, 0, 0), "received source[0]->keeper[0]": (4, 6, 5, 6),
            },
            "partial[0]": {
                "state": [(0, [{"word": "ccc", "count(length)": 1, "sum(length)": 3}])], "timers": [(1.0, None)],
                "exhausted": True, "partitioners": {"totals": 0}, "sent partial[0]->totals[0]": (2, 2, 0, 0),
                "received keeper[0]->partial[0]": (4, 4, 0, 0),
            },
            "totals[0]": {
                "state": [], "exhausted": True, "partitioners": {"out": 0},
                "received partial[0]->totals[0]": (2, 2, 0, 0),
            },
            "out[0]": {"state": [], "exhausted": True},
        },
    },
    "timers": {
        1000001: {
            "source[0]": {
                "state": 3, "partitioners": {"keyed": 0, "keyless": 0}, "sent source[0]->keyed[0]": (3, 3, 0, 0),
                "sent source[0]->keyless[0]": (3, 3, 0, 0),
            },
            "keyed[0]": {
                "state": [[1.5, [("t", 8), 3]]], "now": 1.0, "exhausted": True,
                "partitioners": {"out": 0},
                "SENT keyed[0]->out[0]": (
                    [(1, "VALUES", [["k", 1]]), (2, "VALUES", [[7, 2]]), (3, "VALUES", [["rang", "k"]])]
                ),
                "sent keyed[0]->out[0]": (3, 0, 1, 3), "received source[0]->keyed[0]": (3, 3, 0, 0),
            },
            "keyless[0]": {
                "state": [[1.0, ["k", 1]], [1.0, [7, 2]], [1.5, [("t", 8), 3]]], "timers": [(1.0, None), (1.5, None)],
                "now": 0.5, "exhausted": True, "partitioners": {"out": 0},
                "received source[0]->keyless[0]": (3, 3, 0, 0),
            },
            "out[0]": {"state": [], "exhausted": True},
        },
    },
    "prepared": {
        1000001: {
            "numbers[0]": {"state": 1, "partitioners": {"out": 0}, "sent numbers[0]->out[0]": (1, 1, 0, 0)},
            "out[0]": {
                "state": [], "exhausted": True, "uncommitted": {1000001: ["prepared/out[0]/1/1000001", [1]]},
                "received numbers[0]->out[0]": (1, 1, 0, 0),
            },
        },
        1000003: {
            "numbers[0]": {"state": 3, "partitioners": {"out": 0}, "sent numbers[0]->out[0]": (3, 3, 0, 0)},
            "out[0]": {
                "state": [], "exhausted": True,
                "uncommitted": {
                    1000002: ["prepared/out[0]/1/1000002", [2]], 1000003: ["prepared/out[0]/1/1000003", [3]],
                },
                "received numbers[0]->out[0]": (3, 3, 0, 0),
            },
        },
    },
    "partitions": {
        1000001: {
            "shelves[0]": {
                "state": {"a": 1, "c": 1}, "partitioners": {"director": 0, "turns": 0, "all": 0},
                "SENT shelves[0]->director[0]": [(1, "FLAT", [("a", 0)]), (2, "FLAT", [("c", 0)])],
                "sent shelves[0]->director[0]": (2, 0, 1, 2), "sent shelves[0]->turns[0]": (1, 1, 0, 0),
                "sent shelves[0]->turns[1]": (1, 1, 0, 0), "sent shelves[0]->all[0]": (2, 2, 0, 0),
                "sent shelves[0]->all[1]": (2, 2, 0, 0),
            },
            "shelves[1]": {
                "state": {"b": 2}, "partitioners": {"director": 0, "turns": 1, "all": 0},
                "SENT shelves[1]->director[0]": [(2, "TUPLES", [("b", 1)])],
                "sent shelves[1]->director[0]": (2, 1, 2, 2), "sent shelves[1]->turns[0]": (1, 1, 0, 0),
                "sent shelves[1]->turns[1]": (1, 1, 0, 0), "sent shelves[1]->all[0]": (2, 2, 0, 0),
                "sent shelves[1]->all[1]": (2, 2, 0, 0),
            },
            "director[0]": {
                "exhausted": True, "partitioners": {"out": 0},
                "RECEIVED shelves[1]->director[0]": [(1, "TUPLES", [("b", 0)])],
                "received shelves[1]->director[0]": (0, 1, 1, 1),
            },
            "turns[0]": {
                "state": {"count": 2}, "exhausted": True, "partitioners": {"out": 0},
                "SENT turns[0]->out[1]": [(1, "TUPLES", [("a", 0)]), (2, "TUPLES", [("b", 1)])],
                "sent turns[0]->out[1]": (2, 0, 1, 2), "received shelves[0]->turns[0]": (1, 1, 0, 0),
                "received shelves[1]->turns[0]": (1, 1, 0, 0),
            },
            "turns[1]": {
                "state": {"count": 2}, "exhausted": True, "partitioners": {"out": 0},
                "SENT turns[1]->out[1]": [(1, "FLAT", [("c", 0)]), (2, "FLAT", [("b", 0)])],
                "sent turns[1]->out[1]": (2, 0, 1, 2), "received shelves[0]->turns[1]": (1, 1, 0, 0),
                "received shelves[1]->turns[1]": (1, 1, 0, 0),
            },
            "all[0]": {
                "state": {"count": 4}, "exhausted": True, "partitioners": {"out": 0},
                "SENT all[0]->out[0]": (
                    [(1, "FLAT", [("a", 0)]), (2, "FLAT", [("c", 0)]), (3, "FLAT", [("b", 0)]), (4, "FLAT", [("b", 1)])]
                ),
                "sent all[0]->out[0]": (4, 0, 1, 4), "received shelves[0]->all[0]": (2, 2, 0, 0),
                "received shelves[1]->all[0]": (2, 2, 0, 0),
            },
            "all[1]": {
                "state": {"count": 4}, "exhausted": True, "partitioners": {"out": 0},
                "SENT all[1]->out[1]": (
                    [(1, "FLAT", [("a", 0)]), (2, "FLAT", [("c", 0)]), (3, "FLAT", [("b", 0)]), (4, "FLAT", [("b", 1)])]
                ),
                "sent all[1]->out[1]": (4, 0, 1, 4), "received shelves[0]->all[1]": (2, 2, 0, 0),
                "received shelves[1]->all[1]": (2, 2, 0, 0),
            },
            "out[0]": {"state": [], "exhausted": True},
            "out[1]": {"state": [], "exhausted": True},
        },
    },
    "cycle": {
        1000001: {
            "P[0]": {
                "state": ["red", "green", "blue"], "exhausted": True, "partitioners": {"Q": 0},
                "RECEIVED Q[0]->P[0]": [(1, "VALUES", ["orange"])], "received Q[0]->P[0]": (0, 1, 1, 1),
            },
            "Q[0]": {"state": ["brown"], "exhausted": True, "partitioners": {"P": 0}, "sent Q[0]->P[0]": (1, 1, 0, 0)},
        },
    },
    "pickled": {
        1000001: {
            "source[0]": {
                "state": 4, "partitioners": {"keeper": 0},
                "SENT source[0]->keeper[0]": [(3, "VALUES", [{4, 5}]), (4, "VALUES", [(6+7j)])],
                "sent source[0]->keeper[0]": (4, 2, 3, 4),
            },
            "keeper[0]": {
                "state": (
                    [datetime.date(1985, 2, 1), frozenset({8}), 1180591620717411303424, {"inner": Point(x=9, y=10)},
                     Subtask(node="out", index=0), Point(x=1, y=2)]
                ),
                "exhausted": True, "partitioners": {"out": 0},
                "RECEIVED source[0]->keeper[0]": [(2, "VALUES", [Order(number=3, items=("tea", "milk"))])],
                "SENT keeper[0]->out[0]": [(1, "VALUES", [Point(x=1, y=2)])], "sent keeper[0]->out[0]": (1, 0, 1, 1),
                "received source[0]->keeper[0]": (1, 2, 2, 2),
            },
            "out[0]": {"state": [], "exhausted": True},
        },
    },
    "pinned": {
        1000000: {
            "numbers[0]": {"state": 1, "partitioners": {"out": 0}, "sent numbers[0]->out[0]": (1, 1, 0, 0)},
            "out[0]": {
                "state": [], "exhausted": True, "uncommitted": {1000000: ["prepared/out[0]/1/1000000", [1]]},
                "received numbers[0]->out[0]": (1, 1, 0, 0),
            },
        },
        1000001: {
            "numbers[0]": {"state": 2, "partitioners": {"out": 0}, "sent numbers[0]->out[0]": (2, 2, 0, 0)},
            "out[0]": {
                "state": [], "exhausted": True, "uncommitted": {1000001: ["prepared/out[0]/1/1000001", [2]]},
                "received numbers[0]->out[0]": (2, 2, 0, 0),
            },
        },
    },
    "claims": {
        1000001: {
            "numbers[0]": {"state": 1, "partitioners": {"out": 0}, "sent numbers[0]->out[0]": (1, 1, 0, 0)},
            "out[0]": {
                "state": [], "exhausted": True, "uncommitted": {1000001: ["prepared/out[0]/1/1000001", [1]]},
                "received numbers[0]->out[0]": (1, 1, 0, 0),
            },
        },
        2000001: {
            "numbers[0]": {
                "state": 3, "partitioners": {"out": 0}, "SENT numbers[0]->out[0]": [(3, "VALUES", [3])],
                "sent numbers[0]->out[0]": (3, 2, 3, 3),
            },
            "out[0]": {
                "state": [], "exhausted": True, "uncommitted": {2000001: ["prepared/out[0]/2/2000001", [2]]},
                "received numbers[0]->out[0]": (2, 2, 0, 0),
            },
        },
    },
    "finished": {
        1000000: {
            "numbers[0]": {
                "state": 4, "exhausted": True, "ended": True, "partitioners": {"tally": 0},
                "sent numbers[0]->tally[0]": (5, 5, 0, 0),
            },
            "tally[0]": {
                "state": {"count": 4}, "ended_inputs": [("numbers", 0)], "exhausted": True, "ended": True,
                "partitioners": {"out": 0},
                "SENT tally[0]->out[0]": (
                    [(1, "VALUES", [1]), (2, "VALUES", [2]), (3, "VALUES", [3]), (4, "VALUES", [4]), (5, "CONTROL", [])]
                ),
                "sent tally[0]->out[0]": (5, 0, 1, 5), "received numbers[0]->tally[0]": (5, 5, 0, 0),
            },
            "out[0]": {"state": [], "exhausted": True},
        },
        1000001: {
            "numbers[0]": {
                "state": 4, "exhausted": True, "ended": True, "partitioners": {"tally": 0},
                "sent numbers[0]->tally[0]": (5, 5, 0, 0),
            },
            "tally[0]": {
                "state": {"count": 4}, "ended_inputs": [("numbers", 0)], "exhausted": True, "ended": True,
                "partitioners": {"out": 0}, "sent tally[0]->out[0]": (5, 5, 0, 0),
                "received numbers[0]->tally[0]": (5, 5, 0, 0),
            },
            "out[0]": {
                "state": [], "ended_inputs": [("tally", 0)], "exhausted": True, "ended": True,
                "uncommitted": {1000001: ["plain/out[0]/1/1000001", [1, 2, 3, 4]]},
                "received tally[0]->out[0]": (5, 5, 0, 0),
            },
        },
    },
}
#: parts of one snapshot, listed twice
CONTENTS["reused"] = dict.fromkeys((1000001, 1000002), CONTENTS["pickled"][1000001])

#: {fixture: what the last node has, in order, when the run was restored and ran to its end}
OUTPUT: dict[str, list[Any]] = {
    "plain": [1, 2, 3, 4],
    "channel_state": (
        [1, "two", None, 4.5, b"six", {"seven": [7]}, [8, (9,)], ("flat", 10), ("flat", 11), ("nested", [12]), -13]
    ),
    "shared_frames": (
        [1, "two", None, 4.5, b"six", {"seven": [7]}, [8, (9,)], ("flat", 10), ("flat", 11), ("nested", [12]), -13]
    ),
    "sent_together": [("a", 1), ("b", 2), ("c", 3), ("d", [4]), ("e", [5]), 6, "seven", None, ("f", 8), ("g", 9)],
    "batches": (
        [{"word": "a", "rows": 3, "sum": 3, "mean": 1.0}, {"word": "bb", "rows": 2, "sum": 4, "mean": 2.0},
         {"word": "ccc", "rows": 1, "sum": 3, "mean": 3.0}, {"word": "dddd", "rows": 1, "sum": 4, "mean": 4.0},
         {"word": "eeeee", "rows": 1, "sum": 5, "mean": 5.0}]
    ),
    "timers": (
        [["k", 1], [7, 2], ["rang", "k"], ["rang", 7], ["k", 1], [7, 2], ["rang", None], [("t", 8), 3],
         ["rang", ("t", 8)], [("t", 8), 3], ["k", 4], ["rang", None], ["k", 4], ["rang", "k"]]
    ),
    "prepared": [2, 3, 4, 5, 6],
    "partitions": (
        [("a", 0), ("c", 0), ("b", 0), ("b", 1), ("a", 0), ("c", 0), ("b", 0), ("a", 0), ("b", 1), ("c", 0),
         ("b", 0), ("a", 0), ("c", 0), ("b", 0), ("b", 1), ("b", 1), ("a", 2), ("c", 2), ("b", 2), ("a", 1),
         ("c", 1), ("a", 2), ("c", 2), ("b", 2), ("a", 1), ("c", 1), ("a", 1), ("a", 2), ("c", 1), ("c", 2),
         ("b", 2), ("a", 1), ("c", 1), ("a", 2), ("c", 2), ("b", 2)]
    ),
    "cycle": ["orange"],
    "chance": [[1, 548906], [2, 736905], [3, 812638]],
    "pickled": [Point(x=1, y=2), Order(number=3, items=("tea", "milk")), {4, 5}, (6+7j)],
    "large_state": [1, 2],
    "pinned": [2, 3, 4, 5, 6],
    "claims": [2, 3, 4, 5, 6],
    "reused": [Point(x=1, y=2), Order(number=3, items=("tea", "milk")), {4, 5}, (6+7j)],
    "finished": [1, 2, 3, 4],
    "keyed": [
        *(["last", "b", "be"], ["last", "n", "not"], ["last", "o", "one"], ["last", "q", "question"]),
        *(["words", "b", ["be", "be"]], ["words", "n", ["not"]], ["words", "o", ["or", "one"]]),
        *(["words", "q", ["question"]], ["lengths", "b", {"be": 2}], ["lengths", "n", {"not": 3}]),
        *(["lengths", "o", {"one": 3}], ["lengths", "q", {"question": 8}]),
        *(["n", "b", 2], ["n", "n", 1], ["n", "o", 2], ["n", "q", 1]),
        ["seen", ["be", "be", "not", "one", "or", "question"]],
        *(["last", "i", "is"], ["last", "t", "that"], ["words", "i", ["is"]], ["words", "t", ["to", "to", "that"]]),
        *(["lengths", "i", {"is": 2}], ["lengths", "t", {"that": 4}], ["n", "i", 1], ["n", "t", 3]),
        ["seen", ["is", "that", "to", "to"]],
        *(["rang", "t", 3], ["rang", "i", 1], ["rang", "o", 2], ["rang", "b", 2], ["rang", "n", 1], ["rang", "q", 1]),
    ],
}
