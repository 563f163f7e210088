// Numbers over time, with the actions marked: reader time lost, and how long lists take.

import type { Family, History } from "./api";
import { element } from "./dom";
import * as words from "./words";

const HEIGHT = 150;
const [TOP, BOTTOM, LEFT, RIGHT] = [14, 20, 64, 4];
/** A scale of latencies begins there at the earliest: nothing is shorter. */
const LEAST_LATENCY_SECONDS = 1e-7;

interface Value {
  begin: number;
  length: number;
  value: number;
}

interface Line {
  name: string;
  /** A variable of the style sheet. */
  colour: string;
  /** Whether it is broken, so that it can be told from others without its colour. */
  isDashed: boolean;
  values: Value[];
}

interface Chart {
  lines: Line[];
  isLogarithmic: boolean;
  isFilled: boolean;
  /** Actions that ended, by the stretch in which they did. */
  actions: Value[];
  begin: number;
  end: number;
}

/** The pictures, each with the same in words for those who cannot see it. */
export function overTime(history: History): HTMLElement[] {
  const actions = sums(history.rows, (row) => row.actions).filter((it) => it.value > 0);
  const lost = sums(history.rows, (row) => row.pain_seconds / row.length_seconds);
  const all = [...history.rows, ...history.stretches];
  const begin = Math.min(...all.map((it) => it.begin_unix_seconds));
  const end = Math.max(...all.map((it) => it.begin_unix_seconds + it.length_seconds));
  if (!Number.isFinite(begin)) return [];
  const frame = { actions, begin, end };
  const took = (name: string, colour: string, isDashed: boolean, of: (it: History["stretches"][0]) => number | null): Line => {
    const values = history.stretches.flatMap((it) => {
      const value = of(it);
      return value === null ? [] : [{ begin: it.begin_unix_seconds, length: it.length_seconds, value }];
    });
    return { name, colour, isDashed, values };
  };
  const lists = [
    took("lists p99", "--accent", false, (it) => it.list_p99_seconds),
    took("lists p50", "--line", false, (it) => it.list_p50_seconds),
    took("seeks p99", "--accent", true, (it) => it.seek_p99_seconds),
    took("seeks p50", "--line", true, (it) => it.seek_p50_seconds),
  ];
  const pain: Line = { name: "lost", colour: "--line", isDashed: false, values: lost };
  return [
    figure("lost", "Reader time lost, a second", { ...frame, lines: [pain], isLogarithmic: false, isFilled: true }),
    figure("took", "How long lists and their seeks took", { ...frame, lines: lists, isLogarithmic: true, isFilled: false }),
  ];
}

/** A number of all column families together, by stretch. */
function sums(rows: Family[], of: (row: Family) => number): Value[] {
  const found = new Map<number, Value>();
  for (const row of rows) {
    const value = found.get(row.begin_unix_seconds) ?? { begin: row.begin_unix_seconds, length: row.length_seconds, value: 0 };
    value.value += of(row);
    found.set(row.begin_unix_seconds, value);
  }
  return [...found.values()].sort((one, two) => one.begin - two.begin);
}

function figure(name: string, title: string, chart: Chart): HTMLElement {
  const canvas = element("canvas", { class: `chart ${name}`, role: "img", "aria-label": describe(title, chart) });
  const draw = (): void => render(canvas, chart);
  new ResizeObserver(draw).observe(canvas);
  const keys = chart.lines.length > 1 ? chart.lines.map((line) => key(line)) : [];
  const mark = element("span", { class: "action-mark" }, "▼ actions ended");
  const isEmpty = chart.lines.every((line) => line.values.length === 0);
  const nothing = isEmpty ? element("p", { class: "help" }, "No window has seen an operation in this span: see Targets for why.") : null;
  return element("figure", {}, element("figcaption", { class: "legend" }, `${title} `, ...keys, mark), canvas, nothing);
}

function key(line: Line): HTMLElement {
  const sample = element("span", { class: `line-key ${line.colour.replace("--", "")}${line.isDashed ? " dashed" : ""}`, "aria-hidden": "true" });
  return element("span", { class: "line-name" }, sample, line.name);
}

function describe(title: string, chart: Chart): string {
  const told = chart.lines.map((line) => {
    const last = line.values[line.values.length - 1];
    if (!last) return `${line.name}: not seen`;
    const most = line.values.reduce((most, value) => (value.value > most.value ? value : most), last);
    return `${line.name}: at most ${words.seconds(most.value)} at ${words.time(most.begin, Infinity)}, ${words.seconds(last.value)} at last`;
  });
  const actions = chart.actions.reduce((sum, it) => sum + it.value, 0);
  return `${title}. ${told.join("; ")}; ${Math.round(actions)} actions ended.`;
}

/** From a value to its height, 0 to 1, and the values that have a line across. */
function scale(chart: Chart): { height: (value: number) => number; marks: number[] } {
  const values = chart.lines.flatMap((line) => line.values.map((it) => it.value));
  const greatest = Math.max(...values, Number.MIN_VALUE);
  if (!chart.isLogarithmic) return { height: (value) => value / greatest, marks: [0, greatest] };
  const positive = values.filter((value) => value > 0);
  const least = Math.max(LEAST_LATENCY_SECONDS, Math.min(...positive, greatest));
  const low = Math.floor(Math.log10(least));
  const high = Math.max(low + 1, Math.ceil(Math.log10(greatest)));
  const step = high - low > 5 ? 2 : 1;
  const marks = Array.from({ length: Math.floor((high - low) / step) + 1 }, (_, index) => 10 ** (low + index * step));
  const height = (value: number): number => Math.max(0, (Math.log10(Math.max(value, 10 ** low)) - low) / (high - low));
  return { height, marks };
}

function render(canvas: HTMLCanvasElement, chart: Chart): void {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(HEIGHT * ratio);
  const context = canvas.getContext("2d");
  if (!context || chart.end <= chart.begin) return;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  const style = getComputedStyle(canvas);
  const { height, marks } = scale(chart);
  const x = (time: number): number => LEFT + ((time - chart.begin) / (chart.end - chart.begin)) * (width - LEFT - RIGHT);
  const y = (value: number): number => HEIGHT - BOTTOM - height(value) * (HEIGHT - TOP - BOTTOM);
  context.font = `11px ${style.getPropertyValue("font-family")}`;
  for (const mark of marks) {
    context.fillStyle = style.getPropertyValue("--border");
    context.fillRect(LEFT, Math.round(y(mark)), width - LEFT - RIGHT, 1);
    context.fillStyle = style.getPropertyValue("--text");
    context.fillText(words.seconds(mark), 2, y(mark) + 4);
  }
  context.fillStyle = style.getPropertyValue("--text");
  const span = chart.end - chart.begin;
  context.fillText(words.time(chart.begin, span), LEFT, HEIGHT - 5);
  context.textAlign = "right";
  context.fillText(words.time(chart.end, span), width - RIGHT, HEIGHT - 5);
  for (const line of chart.lines) {
    context.fillStyle = context.strokeStyle = style.getPropertyValue(line.colour);
    if (chart.isFilled) bars(context, line, x, y);
    else steps(context, line, x, y);
  }
  context.fillStyle = style.getPropertyValue("--accent");
  context.textAlign = "center";
  for (const action of chart.actions) {
    const middle = x(action.begin + action.length / 2);
    context.fillText("▼", middle, TOP - 3);
    context.fillRect(middle, TOP, 1, HEIGHT - TOP - BOTTOM);
  }
}

type Place = (value: number) => number;

function bars(context: CanvasRenderingContext2D, line: Line, x: Place, y: Place): void {
  for (const { begin, length, value } of line.values) {
    const [from, to] = [x(begin), x(begin + length)];
    context.fillRect(from, y(value), Math.max(1, to - from - 0.5), HEIGHT - BOTTOM - y(value));
  }
}

/** A level for each stretch; where there is none between two, the line is interrupted. */
function steps(context: CanvasRenderingContext2D, line: Line, x: Place, y: Place): void {
  context.lineWidth = 2;
  context.setLineDash(line.isDashed ? [5, 4] : []);
  context.beginPath();
  let end = -1;
  for (const { begin, length, value } of line.values) {
    if (begin === end) context.lineTo(x(begin), y(value));
    else context.moveTo(x(begin), y(value));
    end = begin + length;
    context.lineTo(x(end), y(value));
  }
  context.stroke();
  context.setLineDash([]);
}
