// The same text with and without speculation, unheard, as fast as the server can: what it costs, and that nothing else differs.

import { NONE } from "/dom.js";
import { Stream } from "/stream.js";

const TURNS = [null, "none", "none", null]; // drafters (null: the server's own); each way first once

// Gives {on, off}, the stats of the faster run of each. Rejects with {code, message}. signal: stops it.
export async function compare(text, order, signal) {
  const points = Array.from(text);
  const runs = { on: [], off: [] };
  for (const drafter of TURNS) {
    runs[drafter ? "off" : "on"].push(await speak(points, drafter ? { ...order, drafter } : order, signal));
  }
  const fastest = (stats) => stats.reduce((a, b) => (b.rounds_s < a.rounds_s ? b : a));
  return { on: fastest(runs.on), off: fastest(runs.off) };
}

function speak(points, start, signal) {
  return new Promise((resolve, reject) => {
    const stream = new Stream({ ...start, live: false, timestamps: false, speculation: false }, {
      heard() {},
      told(message) {
        if (message.type === "end") resolve(message.stats);
      },
      failed: (code, message) => reject({ code, message }),
    });
    signal.addEventListener("abort", () => {
      stream.cancel();
      reject({ code: "stopped", message: "" });
    });
    stream.text(points);
    stream.end();
  });
}

// Writes the result into `table`.
export function tabulate({ on, off }, table) {
  const rows = [
    ["Passes of the model", on.target_passes, off.target_passes, 0],
    ["Tokens a pass", on.tau, off.tau, 2],
    ["Tokens a second", on.tokens / on.rounds_s, off.tokens / off.rounds_s, 0],
    ["Time for a second of speech, ms", on.rtf * 1000, off.rtf * 1000, 0],
  ];
  table.tBodies[0].replaceChildren(
    ...rows.map(([name, ...values]) => {
      const digits = values.pop();
      const most = Math.max(...values.filter(Number.isFinite), 1e-9);
      const row = document.createElement("tr");
      const head = document.createElement("th");
      head.scope = "row";
      head.textContent = name;
      row.append(head);
      for (const value of values) {
        const cell = row.insertCell();
        const format = { minimumFractionDigits: digits, maximumFractionDigits: digits };
        cell.textContent = Number.isFinite(value) ? value.toLocaleString("en", format) : NONE;
        cell.style.setProperty("--share", Number.isFinite(value) ? value / most : 0);
      }
      return row;
    }),
  );
  const same = on.token_hash === off.token_hash;
  table.caption.textContent = same
    ? `The same ${on.tokens.toLocaleString("en")} tokens both ways, checksum ${on.token_hash.slice(0, 8)}`
    : "The tokens differ: on this machine a pass of several rows rounds differently";
  table.hidden = false;
}
