// Keys by time: what is looked at, and by mouse and keyboard.

import type { Heatmap, HeatmapColumn, HeatmapRow } from "./api";
import { at, marks } from "./colour";
import { element } from "./dom";
import type { Part } from "./grid";
import { Grid } from "./grid";
import * as words from "./words";

/** Space around the cells, in CSS pixels. */
const TOP = 14;
const BOTTOM = 22;
const LEFT_WIDE = 150;
const LEFT_NARROW = 8;
/** Screens below that have no room for keys beside the cells. */
const WIDE_MIN = 640;
const ZOOM_STEP = 1.25;
const ROWS_SHOWN_MIN = 1;
const SECONDS_SHOWN_MIN = 120;

export class HeatmapCanvas {
  readonly root: HTMLElement;
  private readonly canvas: HTMLCanvasElement;
  private readonly tip: HTMLElement;
  private readonly told: HTMLElement;
  private readonly legend: HTMLElement;
  private heatmap: Heatmap = { metric: "pain", rows: [], columns: [] };
  private greatest = 0;
  private grid = new Grid(this.heatmap, 0);
  /** Numbers of rows where another column family begins. */
  private borders: number[] = [];
  /** Columns in which actions ended, and in which rows. */
  private acted: { column: HeatmapColumn; rows: [number, number][] }[] = [];
  private whole: Part = { begin: 0, end: 1, top: 0, bottom: 1 };
  private shown: Part = this.whole;
  private cursor: { column: number; row: number } | null = null;
  private drag: { x: number; y: number; shown: Part; moved: boolean } | null = null;
  private isDirty = false;

  constructor(private readonly open: (row: HeatmapRow) => void) {
    this.canvas = element("canvas", {
      tabindex: "0",
      role: "application",
      "aria-label": "Heatmap of keys by time",
      "aria-describedby": "heatmap-keys",
      class: "heatmap",
    });
    this.tip = element("div", { class: "tip", hidden: "" });
    this.told = element("p", { class: "told", role: "status", "aria-live": "polite" });
    this.legend = element("div", { class: "legend" });
    const help = element(
      "p",
      { id: "heatmap-keys", class: "help" },
      "Wheel or + and − zoom time, with Shift keys; drag or Shift and arrows pan; arrows move the cursor; Enter or a click opens the keys; 0 shows all.",
    );
    this.root = element("div", { class: "heatmap-box" }, this.canvas, this.tip, this.legend, this.told, help);
    this.canvas.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
    this.canvas.addEventListener("pointerdown", (event) => this.onDown(event));
    this.canvas.addEventListener("pointermove", (event) => this.onMove(event));
    this.canvas.addEventListener("pointerup", (event) => this.onUp(event));
    this.canvas.addEventListener("pointerleave", () => this.leave());
    this.canvas.addEventListener("keydown", (event) => this.onKey(event));
    this.canvas.addEventListener("dblclick", () => this.showAll());
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  /** Shows another heatmap; where one has zoomed, it stays so. */
  show(heatmap: Heatmap): void {
    if (heatmap === this.heatmap) return this.draw();
    const isWhole = JSON.stringify(this.shown) === JSON.stringify(this.whole);
    const hasOtherRows = heatmap.rows.length !== this.heatmap.rows.length;
    this.heatmap = heatmap;
    this.greatest = 0;
    for (const column of heatmap.columns) for (const value of column.values) this.greatest = Math.max(this.greatest, value);
    const [first, last] = [heatmap.columns[0], heatmap.columns[heatmap.columns.length - 1]];
    this.whole = {
      begin: first?.begin_unix_seconds ?? 0,
      end: last ? last.begin_unix_seconds + last.length_seconds : 1,
      top: 0,
      bottom: Math.max(1, heatmap.rows.length),
    };
    if (isWhole || hasOtherRows) this.shown = { ...this.whole };
    if (hasOtherRows) this.cursor = null;
    this.grid = new Grid(heatmap, this.greatest);
    this.borders = heatmap.rows.flatMap((row, number) => {
      const before = heatmap.rows[number - 1];
      return before && !isSamePlace(before, row) ? [number] : [];
    });
    const acted = heatmap.columns.filter((column) => column.acted_on.length > 0);
    this.acted = acted.map((column) => ({ column, rows: runs(column.acted_on) }));
    this.showLegend();
    this.canvas.dataset.rows = String(heatmap.rows.length);
    this.canvas.dataset.columns = String(heatmap.columns.length);
    this.draw();
  }

  draw(): void {
    if (this.isDirty) return;
    this.isDirty = true;
    requestAnimationFrame(() => {
      this.isDirty = false;
      this.render();
    });
  }

  private showLegend(): void {
    const bar = element("canvas", { width: "256", height: "1", class: "scale", "aria-hidden": "true" });
    const context = bar.getContext("2d");
    for (let x = 0; context && x < 256; x += 1) {
      context.fillStyle = `rgb(${at(x / 255).join(" ")})`;
      context.fillRect(x, 0, 1, 1);
    }
    const texts = marks(this.greatest).map(({ value }) => element("span", {}, words.value(this.heatmap.metric, value)));
    const [least, greatest] = [texts[0], texts[texts.length - 1]];
    this.legend.replaceChildren(
      least ?? "",
      bar,
      greatest ?? "",
      element("span", { class: "action-mark" }, "▼ an action ended"),
    );
  }

  private left(): number {
    return this.canvas.clientWidth >= WIDE_MIN ? LEFT_WIDE : LEFT_NARROW;
  }

  private size(): { width: number; height: number } {
    return {
      width: Math.max(1, this.canvas.clientWidth - this.left()),
      height: Math.max(1, this.canvas.clientHeight - TOP - BOTTOM),
    };
  }

  private x(time: number): number {
    const { begin, end } = this.shown;
    return this.left() + ((time - begin) / (end - begin)) * this.size().width;
  }

  private y(row: number): number {
    const { top, bottom } = this.shown;
    return TOP + ((row - top) / (bottom - top)) * this.size().height;
  }

  private render(): void {
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [this.canvas.clientWidth, this.canvas.clientHeight];
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
    }
    const context = this.canvas.getContext("2d");
    if (!context) return;
    const style = getComputedStyle(this.canvas);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = style.getPropertyValue("--gap");
    context.fillRect(0, 0, width, height);
    context.save();
    context.beginPath();
    context.rect(this.left(), TOP, this.size().width, this.size().height);
    context.clip();
    this.grid.draw(context, this.shown, { left: this.left(), top: TOP, ...this.size() }, ratio);
    this.renderBorders(context);
    this.renderCursor(context);
    context.restore();
    this.renderActions(context, style.getPropertyValue("--accent"));
    context.fillStyle = style.getPropertyValue("--text");
    context.font = `11px ${style.getPropertyValue("font-family")}`;
    this.renderTimes(context);
    if (this.left() === LEFT_WIDE) this.renderKeys(context);
  }

  private span(column: HeatmapColumn): [number, number] {
    return [
      this.x(column.begin_unix_seconds),
      this.x(column.begin_unix_seconds + column.length_seconds),
    ];
  }

  /** Lines between column families. */
  private renderBorders(context: CanvasRenderingContext2D): void {
    context.fillStyle = "rgb(255 255 255 / 60%)";
    for (const number of this.borders) context.fillRect(this.left(), this.y(number), this.size().width, 1);
  }

  private renderActions(context: CanvasRenderingContext2D, accent: string): void {
    const floor = TOP + this.size().height;
    context.textAlign = "center";
    for (const { column, rows } of this.acted) {
      const [from, to] = this.span(column);
      const [left, right] = [Math.max(from, this.left()), Math.min(to, this.canvas.clientWidth)];
      if (right < left) continue;
      for (const [first, last] of rows) {
        const top = Math.max(TOP, this.y(first));
        const bottom = Math.min(floor, this.y(last + 1));
        if (bottom <= top) continue;
        context.lineWidth = 3;
        context.strokeStyle = "black";
        context.strokeRect(left, top, Math.max(2, right - left), bottom - top);
        context.lineWidth = 1.5;
        context.strokeStyle = "white";
        context.strokeRect(left, top, Math.max(2, right - left), bottom - top);
      }
      context.fillStyle = accent;
      context.fillText("▼", (left + right) / 2, TOP - 3);
    }
    context.textAlign = "left";
  }

  private renderCursor(context: CanvasRenderingContext2D): void {
    const column = this.cursor && this.heatmap.columns[this.cursor.column];
    if (!this.cursor || !column) return;
    const [from, to] = this.span(column);
    const [top, bottom] = [this.y(this.cursor.row), this.y(this.cursor.row + 1)];
    context.lineWidth = 2;
    context.strokeStyle = "white";
    context.strokeRect(from, top, Math.max(3, to - from), Math.max(3, bottom - top));
    context.lineWidth = 1;
    context.strokeStyle = "black";
    context.strokeRect(from - 1.5, top - 1.5, Math.max(3, to - from) + 3, Math.max(3, bottom - top) + 3);
  }

  private renderTimes(context: CanvasRenderingContext2D): void {
    const { begin, end } = this.shown;
    const steps = Math.max(1, Math.floor(this.size().width / 110));
    for (let step = 0; step <= steps; step += 1) {
      const time = begin + ((end - begin) * step) / steps;
      context.textAlign = step === 0 ? "left" : step === steps ? "right" : "center";
      context.fillText(words.time(time, end - begin), this.x(time), TOP + this.size().height + 15);
    }
    context.textAlign = "left";
  }

  private renderKeys(context: CanvasRenderingContext2D): void {
    let free = TOP;
    const first = Math.max(0, Math.floor(this.shown.top));
    for (let number = first; number < this.heatmap.rows.length && number < this.shown.bottom; number += 1) {
      const row = this.heatmap.rows[number];
      const y = Math.max(TOP + 10, this.y(number) + 10);
      if (!row || y < free || y > TOP + this.size().height) continue;
      const before = this.heatmap.rows[number - 1];
      const isNew = number === first || !before || !isSamePlace(before, row);
      const text = isNew ? `${row.column_family} ${row.begin}` : row.begin;
      context.fillText(text, 2, y, LEFT_WIDE - 6);
      free = y + 14;
    }
  }

  private cellAt(x: number, y: number): { column: number; row: number } | null {
    const { begin, end, top, bottom } = this.shown;
    const time = begin + ((x - this.left()) / this.size().width) * (end - begin);
    const row = Math.floor(top + ((y - TOP) / this.size().height) * (bottom - top));
    const column = this.heatmap.columns.findIndex(
      (column) => time >= column.begin_unix_seconds && time < column.begin_unix_seconds + column.length_seconds,
    );
    const isInside = x >= this.left() && y >= TOP && row >= 0 && row < this.heatmap.rows.length;
    return column >= 0 && isInside ? { column, row } : null;
  }

  /** What there is in a cell, a line each. */
  private lines(cell: { column: number; row: number }): string[] {
    const [column, row] = [this.heatmap.columns[cell.column], this.heatmap.rows[cell.row]];
    if (!column || !row) return [];
    const index = column.rows.indexOf(cell.row);
    const lines = [
      `${row.target} ${row.column_family}`,
      words.keys(row.begin, row.end),
      `${words.time(column.begin_unix_seconds, Infinity)}, ${column.length_seconds / 60} min`,
      index < 0 ? "nothing" : `at most ${words.value(this.heatmap.metric, column.values[index] ?? 0)}`,
    ];
    if (column.acted_on.includes(cell.row)) lines.push("an action ended here");
    return lines;
  }

  private onMove(event: PointerEvent): void {
    const { offsetX, offsetY } = event;
    if (this.drag) {
      const { x, y, shown } = this.drag;
      const time = ((x - offsetX) / this.size().width) * (shown.end - shown.begin);
      const rows = ((y - offsetY) / this.size().height) * (shown.bottom - shown.top);
      this.drag.moved ||= Math.abs(x - offsetX) + Math.abs(y - offsetY) > 4;
      this.look({ begin: shown.begin + time, end: shown.end + time, top: shown.top + rows, bottom: shown.bottom + rows });
      return;
    }
    const cell = this.cellAt(offsetX, offsetY);
    if (!cell) {
      this.leave();
      return;
    }
    this.tip.replaceChildren(...this.lines(cell).map((line) => element("div", {}, line)));
    this.tip.hidden = false;
    const isRight = offsetX > this.canvas.clientWidth / 2;
    this.tip.style.left = isRight ? "" : `${offsetX + 14}px`;
    this.tip.style.right = isRight ? `${this.canvas.clientWidth - offsetX + 14}px` : "";
    this.tip.style.top = `${Math.min(offsetY + 14, this.canvas.clientHeight - 90)}px`;
  }

  private leave(): void {
    this.tip.hidden = true;
  }

  private onDown(event: PointerEvent): void {
    this.drag = { x: event.offsetX, y: event.offsetY, shown: { ...this.shown }, moved: false };
    this.canvas.setPointerCapture(event.pointerId);
  }

  private onUp(event: PointerEvent): void {
    const wasClick = this.drag !== null && !this.drag.moved;
    this.drag = null;
    const cell = this.cellAt(event.offsetX, event.offsetY);
    const row = cell && this.heatmap.rows[cell.row];
    if (wasClick && row) this.open(row);
  }

  private onWheel(event: WheelEvent): void {
    event.preventDefault();
    const { begin, end, top, bottom } = this.shown;
    const factor = event.deltaY + event.deltaX < 0 ? 1 / ZOOM_STEP : ZOOM_STEP;
    if (event.shiftKey) {
      const row = top + ((event.offsetY - TOP) / this.size().height) * (bottom - top);
      this.zoomKeys(factor, row);
    } else {
      const time = begin + ((event.offsetX - this.left()) / this.size().width) * (end - begin);
      this.zoomTime(factor, time);
    }
  }

  private zoomTime(factor: number, around: number): void {
    const { begin, end } = this.shown;
    const length = Math.max(SECONDS_SHOWN_MIN, (end - begin) * factor);
    const share = (around - begin) / (end - begin);
    this.look({ ...this.shown, begin: around - share * length, end: around + (1 - share) * length });
  }

  private zoomKeys(factor: number, around: number): void {
    const { top, bottom } = this.shown;
    const length = Math.max(ROWS_SHOWN_MIN, (bottom - top) * factor);
    const share = (around - top) / (bottom - top);
    this.look({ ...this.shown, top: around - share * length, bottom: around + (1 - share) * length });
  }

  /** Looks at a part, which stays inside of the whole. */
  private look(wanted: Part): void {
    const [begin, end] = inside(wanted.begin, wanted.end, this.whole.begin, this.whole.end);
    const [top, bottom] = inside(wanted.top, wanted.bottom, this.whole.top, this.whole.bottom);
    this.shown = { begin, end, top, bottom };
    this.canvas.dataset.shownSeconds = String(Math.round(end - begin));
    this.canvas.dataset.shownRows = String(Math.round((bottom - top) * 100) / 100);
    this.leave();
    this.draw();
  }

  private showAll(): void {
    this.look({ ...this.whole });
  }

  private onKey(event: KeyboardEvent): void {
    const { begin, end, top, bottom } = this.shown;
    const [time, rows] = [(end - begin) / 10, (bottom - top) / 10];
    const last = this.heatmap.columns.length - 1;
    const cursor = this.cursor ?? { column: last, row: 0 };
    const column = this.heatmap.columns[cursor.column];
    const around = column ? column.begin_unix_seconds + column.length_seconds / 2 : end;
    const move = (columns: number, down: number): void => {
      if (event.shiftKey) {
        this.look({ begin: begin + columns * time, end: end + columns * time, top: top + down * rows, bottom: bottom + down * rows });
        return;
      }
      this.cursor = {
        column: Math.min(last, Math.max(0, cursor.column + columns)),
        row: Math.min(this.heatmap.rows.length - 1, Math.max(0, cursor.row + down)),
      };
      this.told.textContent = this.lines(this.cursor).join("; ");
      this.draw();
    };
    switch (event.key) {
      case "ArrowLeft":
        move(-1, 0);
        break;
      case "ArrowRight":
        move(1, 0);
        break;
      case "ArrowUp":
        move(0, -1);
        break;
      case "ArrowDown":
        move(0, 1);
        break;
      case "+":
      case "=":
        this.zoomTime(1 / ZOOM_STEP, around);
        break;
      case "-":
        this.zoomTime(ZOOM_STEP, around);
        break;
      case "*":
        this.zoomKeys(1 / ZOOM_STEP, cursor.row + 0.5);
        break;
      case "_":
        this.zoomKeys(ZOOM_STEP, cursor.row + 0.5);
        break;
      case "0":
      case "Escape":
        this.showAll();
        break;
      case "Enter": {
        const row = this.heatmap.rows[cursor.row];
        if (row) this.open(row);
        break;
      }
      default:
        return;
    }
    event.preventDefault();
  }
}

function isSamePlace(one: HeatmapRow, two: HeatmapRow): boolean {
  return one.target === two.target && one.database === two.database && one.column_family === two.column_family;
}

/** Neighbouring numbers together: first and last. */
function runs(numbers: number[]): [number, number][] {
  const found: [number, number][] = [];
  for (const number of [...numbers].sort((one, two) => one - two)) {
    const last = found[found.length - 1];
    if (last && number <= last[1] + 1) last[1] = Math.max(last[1], number);
    else found.push([number, number]);
  }
  return found;
}

/** The interval moved, and where it is too long cut, to lie between the least and the most. */
function inside(begin: number, end: number, least: number, most: number): [number, number] {
  const length = Math.min(end - begin, most - least);
  const first = Math.min(Math.max(begin, least), most - length);
  return [first, first + length];
}
