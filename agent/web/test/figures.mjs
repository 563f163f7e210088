// A heatmap of the greatest size, made up, and how many frames a second a page draws while it is panned.

import assert from "node:assert/strict";

const [ROWS, COLUMNS] = [1_536, 1_440];

/** Every cell has a value: more than the agent would ever send at once. */
export function fullHeatmap() {
  const row = (number) => ({
    target: "made-up",
    database: "/db",
    column_family: `family${Math.floor(number / 128)}`,
    begin: String(number).padStart(6, "0"),
    end: String(number + 1).padStart(6, "0"),
  });
  const rows = Array.from({ length: ROWS }, (_, number) => row(number));
  const numbers = rows.map((_, number) => number);
  const value = (column, number) => Number((1e-5 + ((number * 7_919 + column * 104_729) % 1_000) / 1e5).toPrecision(3));
  const begin = Math.floor(Date.now() / 60_000) * 60 - COLUMNS * 60;
  const columns = Array.from({ length: COLUMNS }, (_, column) => ({
    begin_unix_seconds: begin + column * 60,
    length_seconds: 60,
    rows: numbers,
    values: numbers.map((number) => value(column, number)),
    acted_on: column % 97 === 0 ? [column % ROWS] : [],
  }));
  return JSON.stringify({ metric: "pain", statistic: "max", rows, columns });
}

/** Serves it to a page instead of the agent's own. */
export async function serveFullHeatmap(page) {
  const body = fullHeatmap();
  await page.route(/\/api\/v1\/heatmap/, (route) =>
    route.request().headers()["if-none-match"] === '"made-up"'
      ? route.fulfill({ status: 304 })
      : route.fulfill({ body, contentType: "application/json", headers: { ETag: '"made-up"' } }),
  );
}

/** Drags the heatmap to and fro for some seconds, a step each frame; gives the times between frames, shortest first. */
export async function panned(page, seconds) {
  const intervals = await page.locator("canvas.heatmap").evaluate(
    (canvas, seconds) =>
      new Promise((resolve) => {
        const box = canvas.getBoundingClientRect();
        const at = (type, x, y) =>
          canvas.dispatchEvent(new PointerEvent(type, { clientX: box.left + x, clientY: box.top + y, pointerId: 1, buttons: 1, bubbles: true }));
        canvas.setPointerCapture = () => undefined;
        const [x, y] = [box.width / 2, box.height / 2];
        const intervals = [];
        let [before, first] = [0, 0];
        at("pointerdown", x, y);
        const step = (now) => {
          if (before > 0) intervals.push(now - before);
          before = now;
          first ||= now;
          const turn = ((now - first) / 1_000) * Math.PI;
          at("pointermove", x + 200 * Math.sin(turn), y + 90 * Math.cos(turn));
          if (now - first < seconds * 1_000) requestAnimationFrame(step);
          else {
            at("pointermove", x + 50, y);
            at("pointerup", x + 50, y);
            resolve(intervals);
          }
        };
        requestAnimationFrame(step);
      }),
    seconds,
  );
  assert.ok(intervals.length > 10, `only ${intervals.length} frames in ${seconds} s`);
  return intervals.sort((one, two) => one - two);
}

/** The interval that this share of them does not exceed, as frames a second. */
export function framesPerSecond(intervals, share) {
  return 1_000 / intervals[Math.min(intervals.length - 1, Math.floor(intervals.length * share))];
}
