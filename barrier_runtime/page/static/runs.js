// The list of runs, read again every two seconds.

import { element, moment } from "./format.js";

const AGAIN_MILLISECONDS = 2000;

function row(run) {
  const link = element("a", { href: `/runs/${encodeURIComponent(run.name)}` }, run.name);
  const state = run.isActive ? run.phase : run.outcome ?? "failed";
  return element(
    "tr", {},
    element("td", { "data-name": "Run" }, link),
    element("td", { "data-name": "State" }, element("span", { class: `phase ${state}` }, state)),
    element("td", { "data-name": "Started" }, moment(run.startedAt)),
  );
}

async function look() {
  const notice = document.getElementById("notice");
  try {
    const { runs } = await (await fetch("/api/runs")).json();
    document.getElementById("runs").replaceChildren(...runs.map(row));
    notice.hidden = true;
  } catch {
    notice.hidden = false;
  }
  setTimeout(look, AGAIN_MILLISECONDS);
}

look();
