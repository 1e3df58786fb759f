// The graph as SVG: laid out once for its width, then only texts and classes change.

import { count, percent, setText } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
const NODE = { width: 136, height: 66 };
//: Pixels between two neighbours' centres, with room for the numbers on an edge: from left to right, or downwards.
const WIDE = { along: 222, across: 118 };
const TALL = { along: 152, across: 148 };
//: How far they move apart at most where there is more room.
const STRETCH = 1.4;
const MARGIN = 14;
//: How far an edge bends, in pixels, until it passes no other node.
const BOWS = [0, 36, -36, 72, -72, 110, -110, 150, -150, 200, -200];
//: Where on an edge its numbers stand, until they cover nothing.
const PLACES = [0.5, 0.4, 0.6, 0.32, 0.68, 0.25, 0.75];
//: The first line stands above the edge, two below it.
const LABEL = { width: 80, height: 48 };
//: Of a name, so that it stays inside; the whole one is in the title and in the table.
const CHARACTERS_MAX = 16;
//: What covering a point of another edge counts, in square pixels: less than covering text.
const CROSSED = 60;
//: Shares of back-pressure from which an edge is drawn in the next colour.
const SOME = 0.1;
const HIGH = 0.5;

function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const short = (text) => (text.length > CHARACTERS_MAX ? `${text.slice(0, CHARACTERS_MAX - 1)}…` : text);

export class GraphView {
  constructor(place) {
    this.place = place;
    this.width = 0;
    this.run = null;
    new ResizeObserver(() => this.run && this.show(this.run)).observe(place);
  }

  show(run) {
    this.run = run;
    if (this.place.clientWidth !== this.width) {
      this.width = this.place.clientWidth;
      this.draw(run.graph);
    }
    for (const node of run.graph.nodes) this.showNode(this.nodes.get(node.name), node, run.nodes[node.name]);
    for (const edge of run.edges) this.showEdge(this.edges.get(`${edge.source} ${edge.target}`), edge);
  }

  draw(graph) {
    const centres = placed(graph, this.width);
    this.nodes = new Map(graph.nodes.map((node) => [node.name, drawNode(node, centres.get(node.name))]));
    this.edges = drawEdges(graph, centres);
    const label = `Graph of ${graph.nodes.length} nodes and ${graph.edges.length} edges; the tables below have the same data`;
    const picture = svg("svg", { role: "img", "aria-label": label });
    for (const { group } of this.edges.values()) picture.append(group);
    for (const { group } of this.nodes.values()) picture.append(group);
    for (const { numbers } of this.edges.values()) picture.append(numbers);
    this.place.replaceChildren(picture);
    const box = picture.getBBox();
    const [width, height] = [box.width + 2 * MARGIN, box.height + 2 * MARGIN];
    picture.setAttribute("viewBox", `${box.x - MARGIN} ${box.y - MARGIN} ${width} ${height}`);
    picture.setAttribute("width", width);
    picture.setAttribute("height", height);
  }

  showNode(drawn, node, found) {
    const ended = found && found.ended === found.parallelism;
    drawn.group.classList.toggle("ended", Boolean(ended));
    const subtasks = `× ${node.parallelism}`;
    if (!found) return setText(drawn.state, subtasks);
    const state = ended ? "all ended" : found.ended ? `${found.ended} ended` : `busy ${percent(found.busy)}`;
    setText(drawn.state, `${subtasks}  ·  ${state}`);
    const sends = found.sentPerSecond > found.processedPerSecond;
    const rate = Math.max(found.sentPerSecond, found.processedPerSecond);
    setText(drawn.rate, `${count(rate)}/s ${sends ? "sent" : "processed"}`);
    drawn.busy.setAttribute("width", (NODE.width - 12) * Math.min(1, found.busy));
  }

  showEdge(drawn, edge) {
    const level = edge.backPressure >= HIGH ? "high" : edge.backPressure >= SOME ? "some" : "calm";
    if (drawn.level !== level) {
      drawn.level = level;
      for (const part of [drawn.group, drawn.numbers]) part.setAttribute("class", `edge ${level}`);
    }
    setText(drawn.rate, `${count(edge.messagesPerSecond)}/s`);
    setText(drawn.pressure, percent(edge.backPressure));
    setText(drawn.queued, `${count(edge.queued)} queued`);
  }
}

/** {node: centre in pixels}: from left to right, or on a narrow screen from top to bottom. */
function placed(graph, width) {
  const isTall = graph.width * WIDE.along > width && graph.height * TALL.across < graph.width * WIDE.along;
  const fit = (step, places) => Math.max(step, Math.min(step * STRETCH, width / places));
  const along = isTall ? TALL.along : fit(WIDE.along, graph.width);
  const across = isTall ? fit(TALL.across, graph.height) : WIDE.across;
  return new Map(graph.nodes.map((node) => {
    const [first, second] = [node.x * along, node.y * across];
    return [node.name, isTall ? { x: second, y: first } : { x: first, y: second }];
  }));
}

function drawNode(node, centre) {
  const { width, height } = NODE;
  const box = { x: centre.x - width / 2, y: centre.y - height / 2, width, height, rx: node.isSource || node.isSink ? 16 : 6 };
  const busy = svg("rect", { class: "busy-bar", x: box.x + 6, y: box.y + height - 8, width: 0, height: 4 });
  const kind = node.isSource ? "source " : node.isSink ? "sink " : "";
  const name = svg("text", { class: "name", x: centre.x, y: centre.y - 13 }, short(node.name));
  const state = svg("text", { class: "detail", x: centre.x, y: centre.y + 3 });
  const rate = svg("text", { class: "detail", x: centre.x, y: centre.y + 18 });
  const title = svg("title", {}, `${node.name}: ${kind}${node.class}, parallelism ${node.parallelism}`);
  const group = svg("g", { class: `node ${kind}` }, title, svg("rect", box), name, state, rate, busy);
  return { group, state, rate, busy };
}

function drawEdges(graph, centres) {
  const taken = [...centres.values()].map((centre) => boxOf(centre, NODE));
  const lines = graph.edges.map((edge) => {
    const isMutual = graph.edges.some((each) => each.source === edge.target && each.target === edge.source);
    const curve = edge.source === edge.target ? loop(centres.get(edge.source)) : bent(edge, centres, isMutual);
    return { edge, curve, points: Array.from({ length: 25 }, (_, index) => curve(index / 24)) };
  });
  return new Map(lines.map(({ edge, curve, points }) => {
    const others = lines.filter((line) => line.edge !== edge).flatMap((line) => line.points);
    const at = labelPlace(curve, taken, others);
    taken.push(boxOf(at, LABEL));
    return [`${edge.source} ${edge.target}`, drawEdge(edge, curve, points, at)];
  }));
}

function drawEdge(edge, curve, points, at) {
  const rate = svg("text", { x: at.x, y: at.y - 7 });
  const pressure = svg("text", { class: "pressure", x: at.x, y: at.y + 14 });
  const queued = svg("text", { x: at.x, y: at.y + 27 });
  // The texts come later; the picture is to have room for them now.
  const room = svg("rect", { class: "room", x: at.x - LABEL.width / 2, y: at.y - 20, width: LABEL.width, height: LABEL.height });
  const title = svg("title", {}, `${edge.source} to ${edge.target}: ${edge.partitioning}, ${edge.alignment}`);
  const [tip, back] = [curve(1), curve(0.94)];
  const turn = (Math.atan2(tip.y - back.y, tip.x - back.x) * 180) / Math.PI;
  const there = `translate(${tip.x} ${tip.y}) rotate(${turn})`;
  const head = svg("path", { class: "head", d: "M0 0L-11 -5.5L-11 5.5Z", transform: there });
  const line = points.map((point, index) => `${index ? "L" : "M"}${point.x.toFixed(1)} ${point.y.toFixed(1)}`).join("");
  const group = svg("g", { class: "edge" }, title, svg("path", { d: line }), head);
  return { group, numbers: svg("g", { class: "edge" }, room, rate, pressure, queued), rate, pressure, queued };
}

/** A curve between the rims of two nodes that passes no third one; the way back bends to its own side. */
function bent(edge, centres, isMutual) {
  const [from, to] = [centres.get(edge.source), centres.get(edge.target)];
  const others = [...centres].filter(([name]) => name !== edge.source && name !== edge.target);
  const apart = sideways(from, to);
  const bows = isMutual ? [apart, ...BOWS.filter((bow) => bow > apart)] : BOWS;
  const curves = bows.map((bow) => quadratic(from, to, bow));
  const hits = (curve) => others.filter(([, centre]) => passes(curve, boxOf(centre, NODE, 8))).length;
  return curves.find((curve) => !hits(curve)) ?? curves[0];
}

/** How far two edges between the same nodes bend so that their numbers stand side by side. */
function sideways(from, to) {
  const length = Math.hypot(to.x - from.x, to.y - from.y) || 1;
  return (Math.abs(to.y - from.y) * LABEL.width + Math.abs(to.x - from.x) * LABEL.height) / length / 2 + 6;
}

function quadratic(from, to, bow) {
  const length = Math.hypot(to.x - from.x, to.y - from.y) || 1;
  const middle = {
    x: (from.x + to.x) / 2 + ((to.y - from.y) / length) * bow * 2,
    y: (from.y + to.y) / 2 - ((to.x - from.x) / length) * bow * 2,
  };
  const [begin, end] = [rim(from, middle), rim(to, middle)];
  const along = (one, two, three, t) => (1 - t) ** 2 * one + 2 * t * (1 - t) * two + t ** 2 * three;
  return (t) => ({ x: along(begin.x, middle.x, end.x, t), y: along(begin.y, middle.y, end.y, t) });
}

/** Above its node, from the right to the left. */
function loop(centre) {
  const { width, height } = NODE;
  const begin = { x: centre.x + width / 4, y: centre.y - height / 2 };
  const end = { x: centre.x - width / 4, y: begin.y };
  const rise = 74;
  return (t) => ({
    x: begin.x + (end.x - begin.x) * (3 * t ** 2 - 2 * t ** 3) + 40 * Math.sin(2 * Math.PI * t),
    y: begin.y - rise * 4 * t * (1 - t) * 0.75,
  });
}

/** Where the line from the centre of a node leaves its box. */
function rim(centre, toward) {
  const [dx, dy] = [toward.x - centre.x, toward.y - centre.y];
  const share = Math.min(NODE.width / 2 / (Math.abs(dx) || 1e-9), NODE.height / 2 / (Math.abs(dy) || 1e-9));
  return { x: centre.x + dx * share, y: centre.y + dy * share };
}

const boxOf = ({ x, y }, { width, height }, more = 0) => ({
  left: x - width / 2 - more, right: x + width / 2 + more, top: y - height / 2 - more, bottom: y + height / 2 + more,
});

function passes(curve, box) {
  for (let t = 0; t <= 1; t += 0.05) {
    if (isIn(curve(t), box)) return true;
  }
  return false;
}

const isIn = ({ x, y }, box) => x > box.left && x < box.right && y > box.top && y < box.bottom;

const overlap = (one, other) =>
  Math.max(0, Math.min(one.right, other.right) - Math.max(one.left, other.left)) *
  Math.max(0, Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top));

/** The first place whose label covers least. */
function labelPlace(curve, taken, points) {
  const covered = (at) => {
    const label = boxOf(at, LABEL);
    const crossed = points.filter((point) => isIn(point, label)).length;
    return taken.reduce((sum, box) => sum + overlap(label, box), CROSSED * crossed);
  };
  const places = PLACES.map(curve).map((at) => ({ at, area: covered(at) }));
  return places.reduce((best, each) => (each.area < best.area ? each : best)).at;
}
