// The dashboard in a real browser, on a real agent that heals a real queue.
//
// usage: node dashboard.mjs PROGRAMS SCREENSHOTS
//
// PROGRAMS is the directory with sexton, sexton-queue-workload and libsexton_hook.so. The agent first only watches, so
// that the band is hot; then its policy says act. The band must cool, the action must be drawn, and lists must take
// less time. Then the agent is ended and started again while the page is open. States that a healthy agent never shows
// are brought about by answering in its place; so is a heatmap of the greatest size.

import axe from "axe-core";
import { chromium } from "playwright-core";
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { framesPerSecond, panned, serveFullHeatmap } from "./figures.mjs";
import { end, endAll, freePort, said, start, until } from "./machine.mjs";

const [programs, screenshots] = process.argv.slice(2);
assert.ok(programs && screenshots, "usage: node dashboard.mjs PROGRAMS SCREENSHOTS");
/** First paint, on a machine that is busy with the queue and the agent. */
const FIRST_PAINT_MS_MAX = 1_000;
/** Frames a second while panning: 60, less what a display's clock and a timestamp's rounding take. */
const FRAMES_MIN = 58;
/** Whoever else uses the machine takes time away now and then: one quiet spell is enough. */
const TRIES = 5;
const PANNING_SECONDS = 3;
/** The 99th percentile of the queue's seeks after and before: tombstones make seeks some hundred times as long, and whoever
 * else uses the machine some of them as well. */
const COOLED_SHARE_MAX = 0.5;

const directory = mkdtempSync(join(tmpdir(), "sexton-web-"));
mkdirSync(screenshots, { recursive: true });

const program = (name) => join(programs, name);
const workload = start(
  program("sexton-queue-workload"),
  ["--directory", join(directory, "db"), "--keys", "400000", "--seconds", "900", "--disable-auto-compactions", "--write-buffer-bytes", "4194304"],
  { LD_PRELOAD: program("libsexton_hook.so") },
);
const policyFile = join(directory, "policy.yaml");
const policy = (mode, keys) => `mode: ${mode}
keys: ${keys}
targets:
  - name: queue
    match: { pid: ${workload.pid} }
    executor: hook
    remedies: [compact]
    column_families:
      - name: keyTable
        prefix: { delimiter: "/", count: 3 }
    pressure: { signals: [{ name: node, kind: node_io_pressure, low: 10%, high: 60% }] }
    throttles:
      - { name: limit, control: { slowest: 500, fastest: 5000 }, command: ["true", "{value}"] }
thresholds: { tombstones_per_operation: 100, pain: 1ms/s, density: 0.0 }
margin: { benefit_cost_ratio_min: 0 }
loop: { interval: 1s, window: 400ms, survey: 1s }
probes: { budget: 20% }
io_budget: { rate: 1GiB/s, burst: 64GiB }
guards: { process_uptime_min: 0s }
cooldown: 5s
`;
const port = await freePort();
const address = `http://127.0.0.1:${port}`;
const startAgent = () =>
  start(program("sexton"), [
    "run",
    "--policy", policyFile,
    "--listen", `127.0.0.1:${port}`,
    "--control", join(directory, "control.sock"),
    "--state-directory", join(directory, "state"),
    "--hook-library", program("libsexton_hook.so"),
  ]);
const json = async (path) => (await fetch(address + path)).json();

/** Pages by their names, with a word of their headings. */
const PAGES = { "": "Where", keys: "Ranges", plan: "next", actions: "done", settings: "changed", targets: "watched" };

const complaints = [];
const foreign = [];
/** Whether requests are meant to fail now. */
let mayFail = false;

async function openPage(browser) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, colorScheme: "light" });
  const page = await context.newPage();
  page.on("console", (message) => {
    const isMeant = mayFail && /ERR_|Failed to load resource/.test(message.text());
    if (message.type() === "error" && !isMeant) complaints.push(message.text());
  });
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("request", (request) => {
    if (!request.url().startsWith(address) && !request.url().startsWith("data:")) foreign.push(request.url());
  });
  return page;
}

const heatmapOf = (page) => page.locator("canvas.heatmap");
const number = async (locator, name) => Number(await locator.getAttribute(name));
const shot = (page, name) => page.screenshot({ path: join(screenshots, `${name}.png`) });

async function visit(page, name) {
  await page.evaluate((name) => (location.hash = `#/${name}`), name);
  await until(`page ${name}`, async () => (await page.locator("h2").first().innerText()).includes(PAGES[name]));
  if (name === "") await until("the heatmap", async () => (await number(heatmapOf(page), "data-rows")) > 0);
}

async function audit(page, where) {
  await page.evaluate(axe.source);
  const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  const grave = found.violations.filter((it) => it.impact === "serious" || it.impact === "critical");
  assert.deepEqual(grave.map((it) => `${it.id}: ${it.nodes[0]?.html}`), [], where);
}

async function auditAll(page, where) {
  for (const name of Object.keys(PAGES)) {
    await visit(page, name);
    await audit(page, `${where} ${name}`);
  }
}

/** A tenth of the loss, at least, on a scale of five decades from 20 to 220. */
const COOLER_BY = 40;

/** Brightness of the newest stretch, from the first row's pixels to the last one's: the scale goes from dark to bright. */
const brightness = (page) =>
  heatmapOf(page).evaluate((canvas) => {
    const context = canvas.getContext("2d");
    const [top, bottom] = [14, canvas.height - 22];
    const pixels = context.getImageData(canvas.width - 6, top, 1, bottom - top).data;
    const lines = [];
    for (let index = 0; index < pixels.length; index += 4) {
      const [red, green, blue] = pixels.slice(index, index + 3);
      // The frames of actions are white and black; the scale has no grey.
      const isFrame = Math.max(red, green, blue) - Math.min(red, green, blue) < 24;
      lines.push(isFrame ? 0 : red * 0.3 + green * 0.6 + blue * 0.1);
    }
    return lines;
  });
const brightest = async (page) => Math.max(...(await brightness(page)));

/** Intervals of keys in which readers lost at least half as much as in the worst one, and that. */
async function hottest() {
  const heatmap = await json("/api/v1/heatmap?rows=1536");
  const cells = heatmap.columns.flatMap((column) => column.rows.map((row, index) => ({ row, value: column.values[index] })));
  const most = Math.max(0, ...cells.map((cell) => cell.value));
  const hot = new Set(cells.filter((cell) => cell.value >= most / 2).map((cell) => cell.row));
  return { most, rows: [...hot].map((row) => heatmap.rows[row]) };
}

async function firstPaint(page) {
  let paint = Infinity;
  for (let attempt = 0; attempt < TRIES && paint >= FIRST_PAINT_MS_MAX; attempt += 1) {
    await page.goto("about:blank");
    await page.goto(address);
    paint = await until("the first paint", () =>
      page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime),
    );
    console.log(`first paint after ${Math.round(paint)} ms`);
  }
  assert.ok(paint < FIRST_PAINT_MS_MAX, `first paint after ${paint} ms`);
}

/** The band is bright where the rows of the hot keys are, and the tip there says these keys. */
async function checkHotBand(page) {
  await heatmapOf(page).waitFor();
  const { rows } = await until("heat", async () => {
    const hot = await hottest();
    return hot.most > 0.001 ? hot : null;
  });
  for (const row of rows) {
    assert.equal(row.column_family, "keyTable");
    assert.ok(!row.begin.includes("vol1"), `keys are redacted: ${row.begin}`);
  }
  await until("a bright band", async () => (await brightest(page)) > 150);
  await shot(page, "hot");
  const lines = await brightness(page);
  const brightLine = lines.indexOf(Math.max(...lines));
  const box = await heatmapOf(page).boundingBox();
  await page.mouse.move(box.x + box.width - 8, box.y + 14 + brightLine + 0.5);
  const tip = page.locator(".tip");
  await until("the tip at the hot keys", async () => {
    const { rows } = await hottest();
    const text = await tip.innerText();
    const isThere = rows.some((row) => text.includes(row.begin === "" ? "start" : row.begin));
    return isThere && /keyTable/.test(text) && /lost a second/.test(text);
  });
  return { x: box.x + box.width - 8, y: box.y + 14 + brightLine + 0.5 };
}

async function checkZoom(page, place) {
  const canvas = heatmapOf(page);
  await page.keyboard.press("Escape");
  const all = await number(canvas, "data-rows");
  await page.mouse.move(place.x, place.y);
  await page.keyboard.down("Shift");
  await page.mouse.wheel(0, -400);
  await page.keyboard.up("Shift");
  await until("fewer rows", async () => (await number(canvas, "data-shown-rows")) < all || all === 1);
  await page.mouse.wheel(0, -400);
  await canvas.focus();
  await page.keyboard.press("0");
  await until("all rows", async () => (await number(canvas, "data-shown-rows")) === (await number(canvas, "data-rows")));
}

/** From the top of the page to the heatmap by Tab alone, then its own keys. */
async function checkKeyboard(page) {
  const canvas = heatmapOf(page);
  await page.evaluate(() => document.activeElement?.blur());
  const visited = [];
  for (let presses = 0; presses < 30 && visited[visited.length - 1] !== "heatmap"; presses += 1) {
    await page.keyboard.press("Tab");
    visited.push(await page.evaluate(() => {
      const { activeElement } = document;
      return activeElement === document.body ? "" : activeElement?.className || activeElement?.textContent || "";
    }));
  }
  assert.ok(["heatmap", "skip", "Plan"].every((name) => visited.includes(name)), `by Tab one gets to ${visited}`);
  await page.keyboard.press("ArrowDown");
  await until("the cursor to be told", async () => /lost a second|nothing/.test(await page.locator(".told").innerText()));
  const all = await number(canvas, "data-rows");
  await page.keyboard.press("*");
  assert.ok((await number(canvas, "data-shown-rows")) < all || all === 1, "keys zoom rows");
  await page.keyboard.press("Escape");
  await page.keyboard.press("Enter");
  await until("the range's page", () => /#\/(range|keys)/.test(page.url()));
  await visit(page, "keys");
  // What is shown is asked for again every few seconds: the focus stays where it is.
  await until("a range", async () => (await page.locator("td a").count()) > 0);
  await page.locator("td a").first().focus();
  const answered = () => page.waitForResponse((response) => response.url().includes("/api/v1/ranges"));
  await answered();
  await answered();
  await new Promise((resolve) => setTimeout(resolve, 300));
  assert.equal(await page.evaluate(() => document.activeElement?.closest("td") !== null), true, "the focus is lost");
}

/** Whoever goes on before the agent has answered is not taken back by the answer. */
async function checkGoneOn(page) {
  await visit(page, "keys");
  await until("a range", async () => (await page.locator("td a").count()) > 0);
  const { ranges } = await (await fetch(`${address}/api/v1/ranges?sort=pain&limit=1`)).json();
  const { target, database, column_family, begin } = ranges[0];
  let held = 0;
  await page.route(/\/api\/v1\/ranges\?target/, async (route) => {
    held += 1;
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    await route.continue();
  });
  const search = new URLSearchParams({ target, database, column_family, begin });
  await page.evaluate((search) => (location.hash = `#/keys?${search}`), search.toString());
  await until("the range to be asked for", () => held > 0);
  await page.evaluate(() => (location.hash = "#/plan"));
  await new Promise((resolve) => setTimeout(resolve, 2_500));
  assert.match(page.url(), /#\/plan$/, "an answer that came late has opened another page");
  await visit(page, "plan");
  await page.unroute(/\/api\/v1\/ranges\?target/);
}

async function checkClickThrough(page) {
  await visit(page, "");
  await until("a bright band", async () => (await brightest(page)) > 150);
  const lines = await brightness(page);
  const box = await heatmapOf(page).boundingBox();
  await page.mouse.click(box.x + box.width - 8, box.y + 14 + lines.indexOf(Math.max(...lines)) + 0.5);
  await until("the range's page", () => /#\/(range|keys)/.test(page.url()));
  await until("its keys", async () => (await page.locator("td").count()) > 0);
  await shot(page, "range");
}

/** What each page has to tell while the queue is in pain. */
async function checkPages(page) {
  const tells = async (name, ...texts) => {
    await visit(page, name);
    for (const text of texts) await until(`${text} on ${name}`, async () => text.test(await page.locator("main").innerText()));
  };
  await tells("plan", /Steps/, /By hand/i, /Advice/);
  await tells("settings", /Throttles/, /limit/, /500 to 5,000/, /pressure by/, /node io pressure/);
  await tells("targets", /What the doctor says/, /What the probes cost/, /20.00 %/, /seek: \d/);
  await tells("actions", /Nothing was done yet/);
}

const lists = (page) => page.locator("canvas.took").getAttribute("aria-label");

/** It may act now: the action is drawn, the band cools, and lists are fast again. */
async function checkRelief(page) {
  await visit(page, "");
  await until("times of lists", async () => /lists p99: at most/.test((await lists(page)) ?? ""));
  const before = (await json("/api/v1/targets")).targets[0].pain_seconds_per_second;
  await until("a bright band", async () => (await brightest(page)) > 150);
  const hot = await brightest(page);
  writeFileSync(policyFile, policy("act", "shown"));
  await until("an action that helped", async () =>
    (await json("/api/v1/actions")).actions.some((action) => action.action === "compact_range" && /helped|done/.test(action.state)),
  );
  const isActedOn = async () => (await json("/api/v1/heatmap?rows=512")).columns.some((column) => column.acted_on.length > 0);
  await until("the action in the heatmap", isActedOn);
  for (const { begin, end } of (await hottest()).rows) {
    const isQueue = begin < "/vol1/bucket2" && (end === null || end > "/vol1/bucket1") && (begin !== "" || end !== null);
    assert.ok(isQueue, `the hot keys are the queue's, not ${begin} to ${end}`);
  }
  await until("the band to cool", async () => (await json("/api/v1/targets")).targets[0].pain_seconds_per_second < before / 5);
  for (const chart of ["lost", "took"]) {
    await until(`the action on ${chart}`, async () => {
      const label = (await page.locator(`canvas.${chart}`).getAttribute("aria-label")) ?? "";
      return /; [1-9]\d* actions ended/.test(label);
    });
  }
  // The stretch in which it happened keeps its peak; the next one is darker, and its lists are short. What is left depends on
  // the machine: how fast tombstones come back, and how much more was lost before.
  await until("a cool stretch", async () => (await brightest(page)) < hot - COOLER_BY);
  const told = await until("short lists", async () => {
    const { stretches } = await json("/api/v1/history");
    const last = stretches[stretches.length - 1];
    const worst = stretches.reduce((worst, it) => (it.seek_p99_seconds > worst.seek_p99_seconds ? it : worst), last);
    const isShort = last.seek_p99_seconds < worst.seek_p99_seconds * COOLED_SHARE_MAX && last.list_p99_seconds < worst.list_p99_seconds;
    return isShort && { worst, last };
  });
  for (const name of ["list_p50", "list_p99", "seek_p50", "seek_p99"]) {
    const ms = ({ [`${name}_seconds`]: seconds }) => (seconds * 1e3).toFixed(3);
    console.log(`${name}: ${ms(told.worst)} ms in the worst stretch, ${ms(told.last)} ms in the last one`);
  }
  await until("both on the page", async () => /lists p50: at most .* at last/.test((await lists(page)) ?? ""));
  await page.evaluate(() => document.querySelector("canvas.took")?.scrollIntoView({ block: "end" }));
  await shot(page, "cooled");
  await page.evaluate(() => scrollTo(0, 0));
}

async function checkDark(page) {
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await background();
  await page.locator("#theme").click();
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "dark");
  assert.notEqual(await background(), light);
  await visit(page, "");
  await shot(page, "dark");
  await auditAll(page, "dark");
  // Whoever has not chosen gets what the system prefers.
  await page.evaluate(() => localStorage.clear());
  await page.emulateMedia({ colorScheme: "dark" });
  await page.reload();
  await until("the system's choice", () => page.evaluate(() => document.documentElement.dataset.theme === "dark"));
  await page.emulateMedia({ colorScheme: "light" });
  await until("the system's other choice", () => page.evaluate(() => document.documentElement.dataset.theme === "light"));
}

async function checkNarrow(page) {
  await page.setViewportSize({ width: 400, height: 800 });
  for (const name of Object.keys(PAGES)) {
    await visit(page, name);
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    assert.ok(overflow <= 0, `${name} is ${overflow} px too wide at 400 px`);
    await audit(page, `narrow ${name}`);
    if (name === "" || name === "targets") await shot(page, `narrow-${name || "heatmap"}`);
  }
  await page.setViewportSize({ width: 1280, height: 900 });
}

async function checkDisconnected(page, agent) {
  await visit(page, "");
  mayFail = true;
  await end(agent, "SIGINT");
  const failed = page.locator(".failed");
  await until("the page to say so", async () => /does not answer/.test(await failed.innerText()));
  assert.match(await failed.innerText(), /systemctl status sexton/);
  assert.match(await page.locator("#connection").innerText(), /Disconnected/);
  assert.ok((await number(heatmapOf(page), "data-rows")) > 0, "what was shown stays");
  await audit(page, "disconnected");
  await shot(page, "disconnected");
  const again = startAgent();
  await until("the page to go on", async () =>
    (await failed.count()) === 0 && /Connected/.test(await page.locator("#connection").innerText()),
  );
  mayFail = false;
  await until("the history of before", async () => {
    const [heatmap, history] = [await json("/api/v1/heatmap?rows=512"), await json("/api/v1/history")];
    return heatmap.columns.some((column) => column.acted_on.length > 0) && history.stretches.length > 1;
  });
  return again;
}

/** Empty, loading and in trouble: each says what to do. */
async function checkStates(page) {
  const answering = async (path, body, status, check) => {
    await page.route(path, (route) => route.fulfill({ status, contentType: "application/json", body: JSON.stringify(body) }));
    await check();
    await page.unroute(path);
  };
  const says = (text) => until(String(text), async () => text.test(await page.locator("main").innerText()));
  await visit(page, "plan");
  await answering(/\/api\/v1\/heatmap/, { metric: "pain", rows: [], columns: [] }, 200, async () => {
    await page.evaluate(() => (location.hash = "#/"));
    await says(/No reader was seen to lose time.*\s+Look further back/);
    await audit(page, "empty heatmap");
  });
  await answering(/\/api\/v1\/targets/, { targets: [] }, 200, async () => {
    await page.evaluate(() => (location.hash = "#/targets"));
    await says(/No process with a RocksDB was found.*\s+sexton targets lists/);
  });
  mayFail = true;
  const trouble = { title: "engine_busy", detail: "too much at once", help: "try again later" };
  await answering(/\/api\/v1\/plan/, trouble, 503, async () => {
    await page.evaluate(() => (location.hash = "#/plan"));
    await says(/too much at once\s+try again later/);
    assert.match(await page.locator("#connection").innerText(), /Trouble/);
    await audit(page, "in trouble");
  });
  mayFail = false;
  let isHeld = true;
  await page.route(/\/api\/v1\/actions/, async (route) => {
    while (isHeld) await new Promise((resolve) => setTimeout(resolve, 50));
    await route.continue();
  });
  await page.evaluate(() => (location.hash = "#/actions"));
  await says(/Loading/);
  await audit(page, "loading");
  isHeld = false;
  await visit(page, "actions");
  await page.unroute(/\/api\/v1\/actions/);
}

async function checkFrames(page) {
  await serveFullHeatmap(page);
  await page.goto(`${address}/#/`);
  await page.reload();
  const canvas = heatmapOf(page);
  await until("the largest heatmap", async () =>
    (await number(canvas, "data-rows")) === 1_536 && (await number(canvas, "data-columns")) === 1_440,
  );
  await canvas.focus();
  for (const key of ["+", "+", "*", "*"]) await page.keyboard.press(key);
  let median = 0;
  for (let attempt = 0; attempt < TRIES && median < FRAMES_MIN; attempt += 1) {
    const intervals = await panned(page, PANNING_SECONDS);
    median = framesPerSecond(intervals, 0.5);
    const slow = framesPerSecond(intervals, 0.95);
    console.log(`panning 1,536 x 1,440 cells: ${median.toFixed(1)} frames a second in the middle, 95 of 100 at ${slow.toFixed(1)} or more`);
  }
  assert.ok(median >= FRAMES_MIN, `${median} frames a second`);
  await page.unroute(/\/api\/v1\/heatmap/);
}

async function check() {
  await until("the queue to be full", () => workload.said.includes('"second"'));
  writeFileSync(policyFile, policy("advise", "redacted"));
  let agent = startAgent();
  await until("the agent", async () => (await fetch(`${address}/healthz`)).ok);
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
  try {
    const page = await openPage(browser);
    await firstPaint(page);
    const place = await checkHotBand(page);
    await checkZoom(page, place);
    await checkKeyboard(page);
    await checkGoneOn(page);
    await auditAll(page, "light");
    await checkPages(page);
    await checkClickThrough(page);
    await checkRelief(page);
    await checkDark(page);
    await checkNarrow(page);
    agent = await checkDisconnected(page, agent);
    await checkStates(page);
    await end(workload, "SIGKILL");
    await checkFrames(page);
    assert.deepEqual(complaints, [], "the console");
    assert.deepEqual(foreign, [], "requests that leave the host");
  } finally {
    await browser.close();
  }
  await end(agent, "SIGINT");
}

let code = 0;
const began = Date.now();
try {
  await check();
  console.log(`all passed in ${Math.round((Date.now() - began) / 1_000)} s; pictures are in ${screenshots}`);
} catch (error) {
  code = 1;
  console.error(error);
  console.error(said());
} finally {
  await endAll();
  rmSync(directory, { recursive: true, force: true });
}
process.exit(code);
