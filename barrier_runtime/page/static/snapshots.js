// The table of snapshots, newest first. A row is made anew only when its report has changed.

import { bytes, count, element, milliseconds, moment } from "./format.js";

const PHASES = ["trigger", "align", "capture", "upload", "publish"];

export class SnapshotTable {
  constructor(body, empty) {
    this.body = body;
    this.empty = empty;
    this.rows = new Map();
  }

  clear() {
    this.body.replaceChildren();
    this.rows = new Map();
  }

  show(reports) {
    for (const [id, report] of reports) {
      const known = this.rows.get(id);
      if (known?.report === report) continue;
      const row = rowOf(report);
      if (known) known.row.replaceWith(row);
      else this.body.prepend(row);
      this.rows.set(id, { report, row });
    }
    for (const [id, { row }] of this.rows) {
      if (reports.has(id)) continue;
      row.remove();
      this.rows.delete(id);
    }
    this.empty.hidden = reports.size > 0;
  }
}

function rowOf(report) {
  const state = element("span", { class: `state-${report.state}` }, stateText(report));
  const channel = `${bytes(report.channelBytes)}, ${count(report.channelMessages)} messages`;
  const notes = [report.pinned ? "pinned" : "", report.reason].filter(Boolean).join("; ");
  return element(
    "tr", {},
    cell("Id", String(report.id)),
    cell("State", state),
    cell("Started", moment(report.timestamp)),
    cell("Duration", milliseconds(report.durationMs), split(report)),
    cell("Size", bytes(report.bytes)),
    cell("Channel state", channel),
    cell("Slowest", report.slowest ?? ""),
    cell("Initiator", report.initiator),
    element("td", { "data-name": "Notes", class: "wide" }, notes),
  );
}

const cell = (name, ...content) => element("td", { "data-name": name }, ...content.filter((each) => each !== ""));

const stateText = (report) =>
  report.state === "pending" ? `pending, ${report.acknowledged} of ${report.subtasks}` : report.state;

/** A bar of the phases, to scale with each other; the same in words for who points at it or listens. */
function split(report) {
  const known = PHASES.filter((phase) => report[`${phase}Ms`] !== null);
  if (!known.length) return "";
  const total = known.reduce((sum, phase) => sum + report[`${phase}Ms`], 0) || 1;
  const words = known.map((phase) => `${phase} ${milliseconds(report[`${phase}Ms`])}`).join(", ");
  const bar = element("div", { class: "split", title: words, "aria-hidden": "true" });
  for (const phase of known) {
    const part = element("span", { class: phase });
    part.style.width = `${(100 * report[`${phase}Ms`]) / total}%`;
    bar.append(part);
  }
  return element("div", {}, bar, element("span", { class: "unseen" }, words));
}
