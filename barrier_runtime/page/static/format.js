// Numbers and times as people read them, and elements made of text: nothing of a run is ever read as HTML.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/** 1234567 as "1.23M": three figures, which is what one reads at a glance. */
export function count(value) {
  if (value < 1000) return value < 10 && value % 1 ? value.toFixed(1) : String(Math.round(value));
  for (const [limit, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (value >= limit) return `${(value / limit).toPrecision(value >= 100 * limit ? 3 : 2 + (value >= 10 * limit))}${unit}`;
  }
}

export const whole = (value) => Math.round(value).toLocaleString("en-US");

export function bytes(value) {
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit ? value.toFixed(1) : Math.round(value)} ${UNITS[unit]}`;
}

export function milliseconds(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 10000) return `${(value / 1000).toFixed(1)} s`;
  if (value >= 1000) return `${(value / 1000).toFixed(2)} s`;
  return `${value && value < 10 ? value.toFixed(1) : Math.round(value)} ms`;
}

export function elapsed(seconds) {
  const all = Math.max(0, Math.floor(seconds));
  const [hours, minutes, rest] = [Math.floor(all / 3600), Math.floor(all / 60) % 60, all % 60];
  const two = (number) => String(number).padStart(2, "0");
  return hours ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
}

/** Seconds since the epoch as the visitor's time of day, with the date where it is another day. */
export function moment(seconds) {
  const at = new Date(seconds * 1000);
  const day = at.toDateString() === new Date().toDateString() ? "" : `${at.toLocaleDateString()} `;
  return day + at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
}

export const percent = (share) => `${Math.round(share * 100)} %`;

/** An element with attributes and children; strings become text. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** Change text only where it differs: a browser lays out what is touched. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
