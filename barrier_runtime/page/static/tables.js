// Lists and tables of what does not change often: rebuilt when their text differs from what stands there.

import { bytes, count, element, moment, percent, whole } from "./format.js";

//: Characters of a reason that are shown before one asks for all of it; Spark's are whole stack traces.
const REASON_CHARACTERS = 160;

function update(place, key, make) {
  const text = JSON.stringify(key);
  if (place.dataset.key === text) return;
  place.dataset.key = text;
  place.replaceChildren(...make());
}

const row = (names, values) =>
  element("tr", {}, ...values.map((value, index) => element("td", { "data-name": names[index] }, value)));

export function showNodes(body, run) {
  if (!body.closest("details").open) return;
  const names = ["Node", "Class", "Ended", "Sent", "Processed", "Messages/s", "Busy"];
  const rows = run.graph.nodes.map((node) => {
    const found = run.nodes[node.name];
    if (!found) return [node.name, node.class, "", "", "", "", ""];
    const rate = count(Math.max(found.sentPerSecond, found.processedPerSecond));
    const ended = `${found.ended} of ${found.parallelism}`;
    return [node.name, node.class, ended, whole(found.sent), whole(found.processed), rate, percent(found.busy)];
  });
  update(body, rows, () => rows.map((values) => row(names, values)));
}

export function showEdges(body, run) {
  if (!body.closest("details").open) return;
  const names = ["Edge", "Partitioning", "Messages/s", "Bytes/s", "Queued", "Back-pressure"];
  const rows = run.graph.edges.map((edge) => {
    const found = run.edges.find((each) => each.source === edge.source && each.target === edge.target);
    const head = [`${edge.source} → ${edge.target}`, `${edge.partitioning}, ${edge.alignment}`];
    if (!found) return [...head, "", "", "", ""];
    const rates = [count(found.messagesPerSecond), bytes(found.bytesPerSecond)];
    return [...head, ...rates, whole(found.queued), percent(found.backPressure)];
  });
  update(body, rows, () => rows.map((values) => row(names, values)));
}

export function showInvariants(list, invariants) {
  update(list, invariants, () => {
    const found = Object.entries(invariants);
    if (!found.length) return [element("li", { class: "quiet" }, "The graph declares none.")];
    return found.map(([name, verdict]) => element("li", {}, `${name}: `, ...verdictText(verdict)));
  });
}

function verdictText(verdict) {
  const parts = [];
  if (verdict.holds === null) parts.push(element("span", { class: "quiet" }, "not judged yet"));
  else if (verdict.holds) parts.push(element("span", { class: "holds" }, `✓ holds in snapshot ${verdict.snapshot}`));
  else parts.push(element("span", { class: "violated" }, `✗ violated in snapshot ${verdict.snapshot}: ${verdict.reason}`));
  if (verdict.violations.length) {
    const ids = verdict.violations.slice(-5).join(", ");
    parts.push(element("div", { class: "violated" }, `violated ${verdict.violationCount} times, last in ${ids}`));
  }
  if (verdict.unreadable.length) {
    parts.push(element("div", { class: "violated" }, `${verdict.unreadableCount} not judged, last ${verdict.unreadable.slice(-5).join(", ")}`));
  }
  return parts;
}

export function showRestarts(list, restarts, restartCount) {
  update(list, [restarts, restartCount], () => {
    if (!restarts.length) return [element("li", { class: "quiet" }, "None.")];
    const shown = [...restarts].reverse().map((restart) => element("li", {}, ...reasonOf(restart)));
    const older = restartCount - restarts.length;
    return older ? [...shown, element("li", { class: "quiet" }, `and ${older} older ones`)] : shown;
  });
}

function reasonOf(restart) {
  const at = element("span", { class: "quiet" }, `${moment(restart.timestamp)} `);
  const first = restart.reason.trim().split("\n", 1)[0];
  if (first.length <= REASON_CHARACTERS && first === restart.reason.trim()) return [at, first];
  const head = first.length > REASON_CHARACTERS ? `${first.slice(0, REASON_CHARACTERS)}…` : first;
  return [at, head, element("details", {}, element("summary", {}, "all of it"), element("pre", {}, restart.reason))];
}

export function showMetrics(card, list, metrics) {
  const found = Object.entries(metrics);
  card.hidden = !found.length;
  update(list, metrics, () =>
    found.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, count(value)))),
  );
}
