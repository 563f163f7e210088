// The cells of a heatmap as pixels. A picture is made once for each size of cells and then only copied: panning
// draws a few images, however many cells there are. Where a pixel has room for several cells it shows the greatest
// of them, so that a single hot cell is seen from any distance.

import type { Heatmap } from "./api";
import { PALETTE, shade } from "./colour";

/** Stretches of equal length without a gap between them. */
interface Run {
  begin: number;
  /** Of one column, seconds. */
  length: number;
  first: number;
  count: number;
}

/** What is looked at: times, and numbers of rows. */
export interface Part {
  begin: number;
  end: number;
  top: number;
  bottom: number;
}

/** Where it is drawn, in pixels. */
export interface Box {
  left: number;
  top: number;
  width: number;
  height: number;
}

export class Grid {
  private readonly shades: Uint8Array;
  private readonly rows: number;
  private readonly columns: number;
  private readonly runs: Run[] = [];
  private readonly pictures = new Map<string, HTMLCanvasElement>();

  constructor(heatmap: Heatmap, greatest: number) {
    this.rows = heatmap.rows.length;
    this.columns = heatmap.columns.length;
    this.shades = new Uint8Array(this.rows * this.columns);
    heatmap.columns.forEach((column, x) => {
      column.rows.forEach((row, index) => {
        this.shades[row * this.columns + x] = shade(column.values[index] ?? 0, greatest);
      });
      const last = this.runs[this.runs.length - 1];
      const { begin_unix_seconds: begin, length_seconds: length } = column;
      if (last && last.length === length && last.begin + last.count * length === begin) last.count += 1;
      else this.runs.push({ begin, length, first: x, count: 1 });
    });
  }

  draw(context: CanvasRenderingContext2D, part: Part, box: Box, ratio: number): void {
    if (this.rows === 0) return;
    const pixelsPerSecond = box.width / (part.end - part.begin);
    const rowsTogether = powerOfTwo((part.bottom - part.top) / (box.height * ratio));
    context.imageSmoothingEnabled = false;
    for (const run of this.runs) {
      const first = Math.max(0, Math.floor((part.begin - run.begin) / run.length));
      const behind = Math.min(run.count, Math.ceil((part.end - run.begin) / run.length));
      if (behind <= first) continue;
      const columnsTogether = powerOfTwo(1 / (run.length * pixelsPerSecond * ratio));
      const picture = this.picture(run, columnsTogether, rowsTogether);
      const [from, to] = [first / columnsTogether, behind / columnsTogether];
      const left = box.left + (run.begin + first * run.length - part.begin) * pixelsPerSecond;
      const width = (behind - first) * run.length * pixelsPerSecond;
      const [top, height] = [part.top / rowsTogether, (part.bottom - part.top) / rowsTogether];
      context.drawImage(picture, from, top, to - from, height, left, box.top, Math.max(1, width), box.height);
    }
  }

  /** A pixel for so many columns and rows. */
  private picture(run: Run, columnsTogether: number, rowsTogether: number): HTMLCanvasElement {
    const name = `${run.first} ${columnsTogether} ${rowsTogether}`;
    const known = this.pictures.get(name);
    if (known) return known;
    const picture = document.createElement("canvas");
    picture.width = Math.ceil(run.count / columnsTogether);
    picture.height = Math.ceil(this.rows / rowsTogether);
    const context = picture.getContext("2d");
    if (!context) return picture;
    const greatest = new Uint8Array(picture.width * picture.height);
    for (let row = 0; row < this.rows; row += 1) {
      const line = Math.floor(row / rowsTogether) * picture.width;
      const cells = row * this.columns + run.first;
      for (let column = 0; column < run.count; column += 1) {
        const pixel = line + Math.floor(column / columnsTogether);
        const value = this.shades[cells + column] ?? 0;
        if (value > (greatest[pixel] ?? 0)) greatest[pixel] = value;
      }
    }
    const image = context.createImageData(picture.width, picture.height);
    const pixels = new Uint32Array(image.data.buffer);
    greatest.forEach((value, pixel) => {
      pixels[pixel] = PALETTE[value] ?? 0;
    });
    context.putImageData(image, 0, 0);
    this.pictures.set(name, picture);
    return picture;
  }
}

/** The least power of two that is not below a number, at least 1. */
function powerOfTwo(number: number): number {
  return 2 ** Math.max(0, Math.ceil(Math.log2(number)));
}
