"""Which tests are live, full, or of the night. All others are unit tests.

A unit test starts no process, binds and connects no socket, writes no file through to the disk, and takes at most
0.25 s of processor. `tests/work.py` refuses what is more, by name. Searches, tests of tests, and tests with servers are
full. Tests that need Spark, Ray or a browser are live.

An entry is the beginning of the names that it lists: a folder, a file, or a test.
"""

from __future__ import annotations

from enum import StrEnum


class Tier(StrEnum):
    """Where a test runs: unit in `make quick`, full and live in `make test`, night in `make night` alone."""

    UNIT = "unit"
    FULL = "full"
    LIVE = "live"
    NIGHT = "night"


NIGHT: tuple[str, ...] = ("tests/test_removal.py",)

LIVE = (
    *("tests/system/", "tests/system_security/", "tests/system_stores/", "tests/spark/"),
    *("tests/demos/", "tests/benchmarks/test_benchmarks.py", "tests/page/test_browser.py", "tests/test_wheel.py"),
    "tests/barrier_runtime/dataframes/test_dataframes.py",
    "tests/barrier_runtime/dataframes/test_snapshot_source.py",
    *("tests/stored_format/test_live_fixture.py", "tests/barrier_runtime/cli/test_cli.py::test_a_signal_stops"),
    "tests/barrier_runtime/cli/test_cli.py::test_a_run_is_changed",
    "tests/test_leaks.py::test_a_process_forked",
)

#: Names of files whose tests test tests: changed rules, or changed text of the product, must be found.
_TESTS_OF_TESTS = ("_mutants.py", "_teeth.py", "/test_mutants.py", "/test_teeth.py")


def _each(place: str, *beginnings: str) -> tuple[str, ...]:
    """Return the beginnings of several names at one place."""
    return tuple(place + each for each in beginnings)


#: Live tests that start what they need themselves. They run beside the tests that share one Spark session and one Ray.
ALONE = (
    *("tests/barrier_runtime/cli/test_cli.py", "tests/demos/test_notebooks.py", "tests/spark/test_runs.py"),
    "tests/test_wheel.py",
    *_each("tests/benchmarks/test_benchmarks.py::test_", "command_line", "keyed_state", "message_floor", "simulation"),
)

FULL = (
    # Processes, sockets and servers.
    "tests/benchmarks/",
    *_each("tests/barrier_runtime/cli/test_cli.py::test_", "java_that_does_not_do", "the_whole_package"),
    *_each("tests/barrier_runtime/cli/test_interrupts.py::test_", "a_terminal_that_is_gone", "sigterm"),
    *_each("tests/barrier_runtime/coordinator/test_", "coordinator_service.py", "endpoint"),
    "tests/barrier_runtime/worker/test_task.py",
    *_each("tests/channels/test_", "connection.py", "heartbeat.py", "hostile_bytes.py", "links.py", "listener.py"),
    *_each("tests/channels/test_shared_payloads.py::test_", "nothing_is_shared", "what_finds_no_room"),
    *_each("tests/channels/test_shared_payloads.py::test_", "without_shared_mem"),
    *_each("tests/page/test_", "access.py", "connections.py", "hostile", "metrics"),
    *_each("tests/page/test_documents.py::test_", "a_page_that_cannot", "a_stream_ends", "a_supervisor_that"),
    *_each("tests/page/test_documents.py::test_", "one_server_for"),
    "tests/snapshot/channel/test_accepted_values.py::test_what_is_accepted",
    "tests/snapshot/channel/test_key_hash.py::test_every_process",
    "tests/snapshot/channel/test_values_in_other_processes.py",
    "tests/snapshot/plan/test_topology.py::test_a_record_is_read_without",
    "tests/snapshot/modes/steps/test_state_hash.py",
    "tests/snapshot/channel/test_message_hash.py::test_equal_messages_have_equal_hashes_in_every_process",
    *_each("tests/state_backends/aggregate_stores/test_", "failures.py", "page.py", "refus", "store"),
    *_each("tests/state_backends/test_", "fsspec.py", "object", "rocksdb", "scratch_folder.py"),
    *_each("tests/test_", "leaks.py", "programs.py", "quick.py"),
    # Files written through to the disk.
    "tests/stored_format/",
    "tests/other_python/",
    *_each("tests/barrier_runtime/cli/test_", "cli_", "snapshot_screens.py"),
    "tests/barrier_runtime/coordinator/test_coordinator_store.py::test_a_damaged_manifest",
    *_each("tests/barrier_runtime/dataframes/test_", "nodes.py", "row_file.py", "staging.py"),
    "tests/barrier_runtime/dataframes/test_input_log.py::test_rows_that_the_driver",
    *_each("tests/barrier_runtime/dataframes/test_snapshot_rows.py::test_", "a_path_is_all", "any_division"),
    *_each("tests/barrier_runtime/dataframes/test_snapshot_rows.py::test_", "every_stored_fix", "pickles_are_opened"),
    *_each("tests/barrier_runtime/driver/test_", "change_page.py", "live_totals.py", "local_runs.py", "modes_page.py"),
    *_each("tests/barrier_runtime/driver/test_", "plan.py", "ray_gateway.py", "rescaling.py", "signed_runs.py"),
    *_each("tests/barrier_runtime/driver/test_", "submit_probe.py"),
    "tests/barrier_runtime/driver/test_snapshot_editor.py::test_dropped_messages",
    "tests/barrier_runtime/driver/test_store_check.py::test_submit_checks_the_stores",
    *_each("tests/barrier_runtime/worker/test_uploads.py::test_", "more_than_may_travel", "the_subtasks_of_a_worker"),
    "tests/snapshot/stored/test_part_files.py",
    *_each("tests/snapshot/stored/test_run_store.py::test_", "a_missing_part", "half_written"),
    *_each("tests/state_backends/test_", "lacking_disks.py", "local_versions.py", "retries.py"),
    *_each("tests/state_backends/test_filesystem.py::test_", "a_disk_that_hangs", "a_file_of_one", "a_folder_"),
    *_each("tests/state_backends/test_filesystem.py::test_", "a_large_file", "a_link_whose", "a_new_root"),
    *_each("tests/state_backends/test_filesystem.py::test_", "a_removal_that", "a_run_that_was", "conformance"),
    *_each("tests/state_backends/test_filesystem.py::test_", "errors_name", "failed_writes", "killed_writers"),
    *_each("tests/state_backends/test_filesystem.py::test_", "many_chunks", "no_leak", "pickled_it_is"),
    *_each("tests/state_backends/test_signed.py::test_", "conformance_in_a_folder", "no_stretch_of", "planted_code"),
    *_each("tests/state_backends/test_verify.py::test_", "a_folder_in_place", "every_flipped_byte"),
    # Searches, campaigns, explorations.
    "tests/snapshot/coordinator/test_fence.py",
    "tests/snapshot/coordinator/test_deploy_chunks.py::test_whole_runs",
    "tests/snapshot/keyed/test_tiers.py",
    "tests/snapshot/keyed/test_encoding.py::test_large_rows",
    "tests/snapshot/editing/test_compacted_input.py",
    *_each("tests/snapshot/operators/test_sketches.py::test_", "distinct_counts", "mistakes_of"),
    "tests/snapshot/subtask/test_input_ends.py",
    "tests/snapshot/subtask/test_message_lists.py::test_every_kind_of_node",
    "tests/snapshot/test_removals.py::test_nothing_that_is_needed",
    *_each("tests/snapshot/testing/test_", "campaign.py", "changed_classes", "changed_programs.py", "check_"),
    *_each("tests/snapshot/testing/test_", "conservation.py"),
    *_each("tests/snapshot/testing/test_", "ended_subtasks.py", "explore", "forks_of_steps.py", "hooks_that_fail.py"),
    *_each("tests/snapshot/testing/test_", "keyed_", "late_restores.py", "local_versions.py", "recorded_runs.py"),
    *_each("tests/snapshot/testing/test_", "recovery.py", "replay.py", "rescaled_runs.py", "stepped_campaign.py"),
    *_each("tests/snapshot/testing/test_", "strategies.py"),
    "tests/snapshot/testing/test_changed_graphs.py::test_any_change",
    *_each("tests/snapshot/testing/test_dead_letters.py::test_", "a_last_node", "a_message_that_holds"),
    *_each("tests/snapshot/testing/test_dead_letters.py::test_", "bad_messages", "messages_that_fail"),
    *_each("tests/snapshot/testing/test_dead_letters.py::test_", "no_good_message", "of_a_batch", "rows_that_fail"),
    "tests/snapshot/testing/test_independent_snapshots.py::test_every_cut_is_exact",
    *_each("tests/snapshot/testing/test_replayed_runs.py::test_", "a_crash_after", "a_replay_is_exact"),
    *_each("tests/snapshot/testing/test_replayed_runs.py::test_", "every_checker"),
    "tests/snapshot/testing/test_totals_campaign.py::test_whatever_fails",
    "tests/snapshot/testing/test_totals_crash_points.py::test_an_old_process",
    "tests/twins/test_twins.py::test_more_seeds",
    # Pictures, pages of the documentation, all our source files, and other long computations.
    "tests/snapshot/drawing/test_shapes.py",
    *_each("tests/snapshot/drawing/test_diagram.py::test_", "a_drawing_holds_all", "an_image"),
    *_each("tests/snapshot/drawing/test_graph_picture.py::test_", "a_graph_shows_itself", "edges_of_a_kind"),
    *_each("tests/snapshot/drawing/test_graph_picture.py::test_", "labels_have"),
    "tests/snapshot/operators/test_monoids_page.py",
    "tests/snapshot/plan/test_compiled_graph.py::test_a_long_line",
    "tests/snapshot/stored/test_claim_digest.py::test_starts_and_rollbacks",
    *_each("tests/snapshot/testing/test_", "api_page.py", "page.py"),
    "tests/snapshot/worker/test_storage_tasks.py::test_rows_on_the_local_disk",
    *_each("tests/test_", "glossary.py", "imports.py", "tidy.py", "ways.py"),
    "tests/test_api_examples.py::test_an_example_runs",
)

_LISTS = {Tier.NIGHT: NIGHT, Tier.LIVE: LIVE, Tier.FULL: FULL}


def tier_of(name: str) -> Tier:
    """Return the tier of a test, or of all tests of a file or folder, by its name."""
    listed = next((tier for tier, beginnings in _LISTS.items() if name.startswith(beginnings)), Tier.UNIT)
    tests_tests = name.partition("::")[0].endswith(_TESTS_OF_TESTS)
    return Tier.FULL if listed is Tier.UNIT and tests_tests else listed


def shares_session(name: str) -> bool:
    """Return whether a test is one of those that share the Spark session and the Ray of a process."""
    return tier_of(name) is Tier.LIVE and not name.startswith(ALONE)


def has_tests(file: str, tier: Tier) -> bool:
    """Return whether a file may have tests of a tier."""
    return tier_of(file) is tier or any(each.startswith(f"{file}::") for each in _LISTS.get(tier, ()))
