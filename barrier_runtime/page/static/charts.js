// The two charts. uPlot draws; colours are those of the style sheet, asked for at each drawing.

import { count, milliseconds } from "./format.js";

const HEIGHT = 190;

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function axes(format) {
  const common = {
    stroke: () => colour("--quiet"),
    grid: { stroke: () => colour("--grid"), width: 1 },
    ticks: { stroke: () => colour("--grid"), width: 1 },
    font: "11px system-ui, sans-serif",
  };
  return [
    { ...common, space: 70, values: (_, splits) => splits.map(clock) },
    { ...common, size: 64, values: (_, splits) => splits.map((value) => (value === null ? "" : format(value))) },
  ];
}

function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString([], { hour12: false });
}

function chart(place, series, format) {
  const options = {
    width: place.clientWidth,
    height: HEIGHT,
    series: [{ value: (_, value) => (value === null ? "–" : clock(value)) }, ...series],
    axes: axes(format),
    scales: { y: { range: (_, __, max) => [0, Math.max(1, (max ?? 0) * 1.1)] } },
    legend: { live: true },
  };
  const plot = new uPlot(options, [[], ...series.map(() => [])], place);
  const sized = new ResizeObserver(() => plot.setSize({ width: place.clientWidth, height: HEIGHT }));
  sized.observe(place);
  plot.hooks.destroy = [() => sized.disconnect()];
  return plot;
}

const line = (label, name, format, extra = {}) => ({
  label,
  stroke: () => colour(name),
  width: 2,
  points: { show: false },
  value: (_, value) => (value === null || value === undefined ? "–" : format(value)),
  ...extra,
});

export class Charts {
  constructor(throughput, durations) {
    this.places = { throughput, durations };
    this.shown = "";
    // A legend keeps the colours that it was made with.
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.renew());
  }

  renew() {
    for (const name of Object.keys(this.places)) {
      this[name]?.destroy();
      this[name] = undefined;
    }
    this.shown = "";
    if (this.last) this.show(...this.last);
  }

  show(points, reports, graph) {
    this.last = [points, reports, graph];
    this.throughput ??= chart(this.places.throughput, [
      line(`in (sent by ${named(graph.into)})`, "--series-in", (value) => `${count(value)}/s`),
      line(`out (processed by ${named(graph.outOf)})`, "--series-out", (value) => `${count(value)}/s`, { dash: [6, 3] }),
    ], count);
    this.durations ??= chart(this.places.durations, [
      line("published", "--upload", milliseconds, { points: { show: true, size: 5 } }),
      line("aborted", "--high", milliseconds, { width: 0, points: { show: true, size: 8, space: 0 }, paths: () => null }),
    ], milliseconds);
    const newest = points[points.length - 1]?.timestamp;
    const done = [...reports.values()].filter((report) => report.state !== "pending");
    const key = `${points.length} ${newest} ${done.length} ${done[done.length - 1]?.id}`;
    if (key === this.shown) return;
    this.shown = key;
    this.throughput.setData(columns(points, "timestamp", (point) => [point.inPerSecond, point.outPerSecond]));
    done.sort((one, other) => one.timestamp - other.timestamp);
    this.durations.setData(columns(done, "timestamp", (report) => (
      report.state === "published" ? [report.durationMs, null] : [null, report.durationMs]
    )));
  }
}

const named = (nodes) => (nodes.length <= 2 ? nodes.join(", ") : `${nodes.length} nodes`);

function columns(rows, time, values) {
  const found = [rows.map((row) => row[time]), [], []];
  for (const row of rows) {
    const [first, second] = values(row);
    found[1].push(first);
    found[2].push(second);
  }
  return found;
}
