// One run: keeps the document that the server sends, and hands it to whoever draws.

import { Charts } from "./charts.js";
import { GraphView } from "./graph.js";
import { Commands } from "./commands.js";
import { SnapshotTable } from "./snapshots.js";
import { bytes, count, elapsed, element, milliseconds, setText } from "./format.js";
import { showEdges, showInvariants, showMetrics, showNodes, showRestarts } from "./tables.js";

//: Points and snapshots that are kept here, as many as the server keeps.
const POINTS_MAX = 600;
const REPORTS_MAX = 100;

//: Without news for so long the page says so: the driver may be busy, or its coordinator is being replaced.
const SILENCE_MILLISECONDS = 5000;

const name = decodeURIComponent(location.pathname.slice("/runs/".length));
const api = `/api/runs/${encodeURIComponent(name)}`;
const at = (id) => document.getElementById(id);

const graph = new GraphView(at("graph"));
const charts = new Charts(at("throughput"), at("durations"));
const table = new SnapshotTable(at("snapshots"), at("no-snapshots"));
const commands = new Commands(api, at("snapshot"), at("stop"), at("confirm"), at("outcome"));

let points = [];
let reports = new Map();
let stream = null;
let heardAt = Date.now();
let hasEnded = false;

function take(change) {
  heardAt = Date.now();
  if (change.isWhole) {
    points = [];
    reports = new Map();
    table.clear();
  }
  points = points.concat(change.points).slice(-POINTS_MAX);
  for (const report of change.snapshotReports) reports.set(report.id, report);
  while (reports.size > REPORTS_MAX) reports.delete(reports.keys().next().value);
  show(change);
}

function snapshotCounts(run) {
  const counts = `${run.published} published, ${run.aborted} aborted, ${run.retained.length} kept`;
  return run.pinnedBefore.length ? `${counts}, pinned before this start: ${run.pinnedBefore.join(", ")}` : counts;
}

function show(run) {
  hasEnded = !run.isActive;
  const state = run.isActive ? run.phase : run.outcome ?? "failed";
  setText(at("phase"), state);
  at("phase").className = `phase ${state}`;
  showFigures(run);
  graph.show(run);
  charts.show(points, reports, run.graph);
  table.show(reports);
  setText(at("snapshot-counts"), snapshotCounts(run));
  showNodes(at("nodes"), run);
  showEdges(at("edges"), run);
  showInvariants(at("invariants"), run.invariants);
  showRestarts(at("restarts"), run.restarts, run.restartCount);
  showMetrics(at("metrics-card"), at("metrics"), run.metrics);
  commands.show(run.commands, run);
  if (hasEnded) showEnd(run, state);
}

function recordFigures(mode) {
  const nodes = Object.values(mode.nodes || {});
  if (!nodes.length) return [];
  const logs = (mode.recovery ? mode.recovery.subtasks : []).flatMap((each) => each.logs);
  const again = logs.reduce((sum, log) => sum + log.last - log.first + 1, 0);
  return [
    ["Oldest record", elapsed(Math.max(...nodes.map((node) => node.recordAge)))],
    ["Slowest record", milliseconds(Math.max(...nodes.map((node) => node.recordMs)))],
    ["Logs of channels", bytes(nodes.reduce((sum, node) => sum + node.logBytes, 0))],
    ...(mode.recovery ? [["Sent again", count(again)]] : []),
  ];
}

function showFigures(run) {
  const published = [...reports.values()].filter((report) => report.state === "published");
  const last = published[published.length - 1];
  const queued = run.edges.reduce((sum, edge) => sum + edge.queued, 0);
  const figures = [
    ["Messages in", `${count(run.inPerSecond)}/s`],
    ["Messages out", `${count(run.outPerSecond)}/s`],
    ["In flight", count(queued)],
    ["Last snapshot", last ? milliseconds(last.durationMs) : "–"],
    ["Its size", last ? bytes(last.bytes) : "–"],
    ["Restarts", String(run.restartCount)],
    ["Incarnation", String(run.incarnation)],
    ["Workers", String(run.workers)],
    ...recordFigures(run.mode),
    ...("logBytes" in run.mode ? [["Log of steps", bytes(run.mode.logBytes)]] : []),
    ...(run.mode.stepsLeft ? [["Steps to repeat", count(run.mode.stepsLeft)]] : []),
    ...(run.mode.versions ? [["Local versions", bytes(run.mode.versionBytes)]] : []),
    ...(run.mode.itemsBehind == null ? [] : [["Items behind", count(run.mode.itemsBehind)]]),
    [hasEnded ? "Ran for" : "Running for", elapsed(run.timestamp - run.startedAt)],
    ...Object.entries(run.mode.stores ?? {}).map(([node, store]) => [`Store of ${node}`, storeText(store)]),
  ];
  const list = at("figures");
  if (list.children.length !== figures.length) {
    list.replaceChildren(...figures.map(() => element("div", {}, element("dt"), element("dd"))));
  }
  figures.forEach(([label, value], index) => {
    setText(list.children[index].firstChild, label);
    setText(list.children[index].lastChild, value);
  });
}

function storeText(store) {
  const keys = `${count(store.openKeys + store.cutKeys)} keys wait`;
  const cells = store.cellsLeft ? `, ${count(store.cellsLeft)} cells to write` : "";
  return store.error ? `${keys}${cells}, last error: ${store.error}` : `${keys}${cells}`;
}

function showEnd(run, state) {
  const good = state === "finished" || state === "stopped";
  at("ended").className = `notice ${good ? "good" : "bad"}`;
  setText(at("ended"), `The run has ended (${state})${run.reason ? `: ${run.reason}` : ""}`);
  at("ended").hidden = false;
}

function lose(text) {
  setText(at("lost"), text);
  at("lost").hidden = false;
  commands.disable();
}

function listen() {
  stream = new EventSource(`${api}/events`);
  stream.onmessage = (message) => {
    at("lost").hidden = true;
    take(JSON.parse(message.data));
  };
  stream.addEventListener("end", leave);
  stream.onerror = () => lose("Connection lost: the driver does not answer. What you see is old; trying again.");
}

function leave() {
  stream?.close();
  stream = null;
}

// A page that nobody sees asks for nothing.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) leave();
  else if (!stream && !hasEnded) listen();
});

setInterval(() => {
  const silence = Date.now() - heardAt;
  if (stream?.readyState === EventSource.OPEN && silence > SILENCE_MILLISECONDS) {
    lose(`No news for ${Math.round(silence / 1000)} s: the driver answers, but its report of the run is old.`);
  }
}, 1000);

document.title = `${name} · Cutline`;
setText(at("name"), name);
listen();
