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


NIGHT: tuple[str, ...] = ()

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


def _tests(file: str, *beginnings: str) -> tuple[str, ...]:
    """Return the beginnings of the names of some tests of a file."""
    return tuple(f"{file}::test_{each}" for each in beginnings)


FULL = (
    # Processes, sockets and servers.
    *("tests/benchmarks/", "tests/channels/test_connection.py", "tests/channels/test_heartbeat.py"),
    *("tests/channels/test_hostile_bytes.py", "tests/channels/test_links.py", "tests/channels/test_listener.py"),
    *_tests("tests/channels/test_shared_payloads.py", "nothing_is_shared", "what_finds_no_room", "without_shared_mem"),
    "tests/barrier_runtime/coordinator/test_coordinator_service.py",
    "tests/barrier_runtime/coordinator/test_endpoint",
    *_tests("tests/barrier_runtime/cli/test_cli.py", "java_that_does_not_do", "the_whole_package"),
    *_tests("tests/barrier_runtime/cli/test_interrupts.py", "a_terminal_that_is_gone", "sigterm"),
    "tests/barrier_runtime/worker/test_task.py",
    *(
        "tests/page/test_access.py",
        "tests/page/test_connections.py",
        "tests/page/test_hostile",
        "tests/page/test_metrics",
    ),
    *_tests(
        "tests/page/test_documents.py", "a_page_that_cannot", "a_stream_ends", "a_supervisor_that", "one_server_for"
    ),
    *_tests("tests/snapshot/channel/test_accepted_values.py", "what_is_accepted"),
    *_tests("tests/snapshot/channel/test_key_hash.py", "every_process"),
    *_tests("tests/snapshot/plan/test_topology.py", "a_record_is_read_without"),
    *_tests("tests/snapshot/steps/test_message_hash.py", "equal_messages_have_equal_hashes_in_every_process"),
    "tests/snapshot/steps/test_state_hash.py",
    *("tests/state_backends/aggregate_stores/test_failures.py", "tests/state_backends/aggregate_stores/test_page.py"),
    *("tests/state_backends/aggregate_stores/test_refus", "tests/state_backends/aggregate_stores/test_store"),
    *("tests/state_backends/test_fsspec.py", "tests/state_backends/test_object", "tests/state_backends/test_rocksdb"),
    "tests/state_backends/test_scratch_folder.py",
    *("tests/test_leaks.py", "tests/test_programs.py", "tests/test_quick.py"),
    *_tests("tests/twins/test_twins.py", "more_seeds"),
    # Files written through to the disk.
    *("tests/barrier_runtime/cli/test_cli_", "tests/barrier_runtime/cli/test_snapshot_screens.py"),
    *_tests("tests/barrier_runtime/coordinator/test_coordinator_store.py", "a_damaged_manifest"),
    *_tests("tests/barrier_runtime/dataframes/test_input_log.py", "rows_that_the_driver"),
    *("tests/barrier_runtime/dataframes/test_nodes.py", "tests/barrier_runtime/dataframes/test_row_file.py"),
    *_tests(
        "tests/barrier_runtime/dataframes/test_snapshot_rows.py", "a_path_is_all", "any_division", "every_stored_fix"
    ),
    *_tests("tests/barrier_runtime/dataframes/test_snapshot_rows.py", "pickles_are_opened"),
    "tests/barrier_runtime/dataframes/test_staging.py",
    *("tests/barrier_runtime/driver/test_change_page.py", "tests/barrier_runtime/driver/test_live_totals.py"),
    *("tests/barrier_runtime/driver/test_local_runs.py", "tests/barrier_runtime/driver/test_modes_page.py"),
    *("tests/barrier_runtime/driver/test_plan.py", "tests/barrier_runtime/driver/test_ray_gateway.py"),
    *("tests/barrier_runtime/driver/test_rescaling.py", "tests/barrier_runtime/driver/test_signed_runs.py"),
    *_tests("tests/barrier_runtime/driver/test_snapshot_editor.py", "dropped_messages"),
    *_tests("tests/barrier_runtime/driver/test_store_check.py", "submit_checks_the_stores"),
    "tests/barrier_runtime/driver/test_submit_probe.py",
    *_tests("tests/barrier_runtime/worker/test_uploads.py", "more_than_may_travel", "the_subtasks_of_a_worker"),
    "tests/snapshot/stored/test_part_files.py",
    *_tests("tests/snapshot/stored/test_run_store.py", "a_missing_part", "half_written"),
    *_tests(
        "tests/state_backends/test_filesystem.py", "a_disk_that_hangs", "a_file_of_one", "a_folder_", "a_large_file"
    ),
    *_tests(
        "tests/state_backends/test_filesystem.py", "a_link_whose", "a_new_root", "a_removal_that", "a_run_that_was"
    ),
    *_tests("tests/state_backends/test_filesystem.py", "conformance", "errors_name", "failed_writes", "killed_writers"),
    *_tests("tests/state_backends/test_filesystem.py", "many_chunks", "no_leak", "pickled_it_is"),
    *("tests/state_backends/test_lacking_disks.py", "tests/state_backends/test_local_versions.py"),
    "tests/state_backends/test_retries.py",
    *_tests("tests/state_backends/test_signed.py", "conformance_in_a_folder", "no_stretch_of", "planted_code"),
    *_tests("tests/state_backends/test_verify.py", "a_folder_in_place", "every_flipped_byte"),
    "tests/stored_format/",
    # Searches, campaigns, explorations.
    *_tests("tests/snapshot/coordinator/test_deploy_chunks.py", "whole_runs"),
    "tests/snapshot/coordinator/test_fence.py",
    *_tests("tests/snapshot/keyed/test_encoding.py", "large_rows"),
    "tests/snapshot/keyed/test_tiers.py",
    "tests/snapshot/mending/test_compacted_input.py",
    *_tests("tests/snapshot/operators/test_sketches.py", "distinct_counts", "mistakes_of"),
    "tests/snapshot/subtask/test_end_of_stream.py",
    *_tests("tests/snapshot/subtask/test_message_lists.py", "every_kind_of_node"),
    *_tests("tests/snapshot/test_removals.py", "nothing_that_is_needed"),
    *("tests/snapshot/testing/test_campaign.py", "tests/snapshot/testing/test_changed_programs.py"),
    *_tests("tests/snapshot/testing/test_changed_graphs.py", "any_change"),
    *("tests/snapshot/testing/test_check_", "tests/snapshot/testing/test_conservation.py"),
    *_tests("tests/snapshot/testing/test_dead_letters.py", "a_last_node", "a_message_that_holds", "bad_messages"),
    *_tests("tests/snapshot/testing/test_dead_letters.py", "messages_that_fail", "no_good_message", "of_a_batch"),
    *_tests("tests/snapshot/testing/test_dead_letters.py", "rows_that_fail"),
    *("tests/snapshot/testing/test_ended_subtasks.py", "tests/snapshot/testing/test_explore"),
    *("tests/snapshot/testing/test_forks_of_steps.py", "tests/snapshot/testing/test_hooks_that_fail.py"),
    *_tests("tests/snapshot/testing/test_independent_snapshots.py", "every_cut_is_exact"),
    *("tests/snapshot/testing/test_keyed_", "tests/snapshot/testing/test_late_restores.py"),
    *("tests/snapshot/testing/test_local_versions.py", "tests/snapshot/testing/test_recorded_runs.py"),
    *("tests/snapshot/testing/test_recovery.py", "tests/snapshot/testing/test_replay.py"),
    *_tests("tests/snapshot/testing/test_replayed_runs.py", "a_crash_after", "a_replay_is_exact", "every_checker"),
    *("tests/snapshot/testing/test_rescaled_runs.py", "tests/snapshot/testing/test_stepped_campaign.py"),
    "tests/snapshot/testing/test_strategies.py",
    *_tests("tests/snapshot/testing/test_totals_campaign.py", "whatever_fails"),
    *_tests("tests/snapshot/testing/test_totals_crash_points.py", "an_old_process"),
    *_tests("tests/twins/test_twins.py", "more_seeds"),
    # Pictures, pages of the documentation, all our source files, and other long computations.
    *_tests("tests/snapshot/drawing/test_diagram.py", "a_drawing_holds_all", "an_image"),
    *_tests("tests/snapshot/drawing/test_graph_picture.py", "a_graph_shows_itself", "edges_of_a_kind", "labels_have"),
    "tests/snapshot/drawing/test_shapes.py",
    *("tests/snapshot/operators/test_monoids_page.py", "tests/snapshot/testing/test_api_page.py"),
    *_tests("tests/snapshot/plan/test_compiled_graph.py", "a_long_line"),
    *_tests("tests/snapshot/stored/test_checkpoint.py", "starts_and_rollbacks"),
    "tests/snapshot/testing/test_page.py",
    *_tests("tests/snapshot/worker/test_row_tasks.py", "rows_on_the_local_disk"),
    *_tests("tests/test_api_examples.py", "an_example_runs"),
    *("tests/test_glossary.py", "tests/test_imports.py", "tests/test_tidy.py", "tests/test_ways.py"),
)

_LISTS = {Tier.NIGHT: NIGHT, Tier.LIVE: LIVE, Tier.FULL: FULL}


def tier_of(name: str) -> Tier:
    """Return the tier of a test, or of all tests of a file or folder, by its name."""
    listed = next((tier for tier, beginnings in _LISTS.items() if name.startswith(beginnings)), Tier.UNIT)
    tests_tests = name.partition("::")[0].endswith(_TESTS_OF_TESTS)
    return Tier.FULL if listed is Tier.UNIT and tests_tests else listed


def has_tests(file: str, tier: Tier) -> bool:
    """Return whether a file may have tests of a tier."""
    return tier_of(file) is tier or any(each.startswith(f"{file}::") for each in _LISTS.get(tier, ()))
