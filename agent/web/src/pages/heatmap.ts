// Keys by time, and below it numbers over the same time.

import type { Heatmap, HeatmapRow, History } from "../api";
import { get, query } from "../api";
import { overTime } from "../chart";
import { element, notice, select } from "../dom";
import { HeatmapCanvas } from "../heatmap";
import type { Page } from "../page";
import { go } from "../page";

/** Intervals of keys that are asked for: all that the agent draws. */
const ROWS = 1_536;

const SPANS = [
  { value: "3600", text: "1 hour" },
  { value: "28800", text: "8 hours" },
  { value: "86400", text: "1 day" },
  { value: "604800", text: "1 week" },
  { value: "3024000", text: "5 weeks" },
];

const METRICS = [
  { value: "pain", text: "Reader time lost" },
  { value: "operations", text: "Operations that lost time" },
  { value: "tombstones_skipped", text: "Tombstones skipped" },
  { value: "block_misses", text: "Block misses" },
  { value: "bytes_compacted", text: "Bytes compacted" },
];

function openKeys(row: HeatmapRow): void {
  const { target, database, column_family, begin } = row;
  go("keys", { target, database, column_family, begin });
}

/** Of the heatmap the canvas stays: a part of it that somebody looks at is not left. */
let canvas: HeatmapCanvas | null = null;
let asked = "";

export const heatmap: Page = {
  name: "",
  title: "Heatmap",
  async refresh(main, parameters) {
    const span = parameters.get("span") ?? "3600";
    const metric = parameters.get("metric") ?? "pain";
    const place = parameters.get("place") ?? "";
    const [target, database, column_family] = place === "" ? [] : (JSON.parse(place) as (string | undefined)[]);
    const scope = { target, database, column_family };
    const [all, history, map] = await Promise.all([
      get<History>(query("/api/v1/history", { span_seconds: span })),
      get<History>(query("/api/v1/history", { span_seconds: span, ...scope })),
      get<Heatmap>(query("/api/v1/heatmap", { span_seconds: span, metric, rows: ROWS, ...scope })),
    ]);
    const places = [...new Set(all.rows.map((row) => JSON.stringify([row.target, row.database, row.column_family])))];
    const options = [{ value: "", text: "All column families" }].concat(
      places.map((value) => ({ value, text: (JSON.parse(value) as string[]).join("  ") })),
    );
    const now = JSON.stringify([span, metric, place, places]);
    const isOpen = canvas !== null && main.querySelector("#map") !== null && asked === now;
    if (!isOpen) {
      canvas = new HeatmapCanvas(openKeys);
      asked = now;
      const change = (name: string) => (value: string) => go("", { span, metric, place, [name]: value });
      main.replaceChildren(
        element("h2", {}, "Where readers lose time"),
        element(
          "form",
          { class: "controls", "aria-label": "What is shown" },
          select("Metric", "metric", METRICS, metric, change("metric")),
          select("Back", "span", SPANS, span, change("span")),
          select("Of", "place", options, place, change("place")),
        ),
        element("div", { id: "map" }),
        element("div", { id: "charts" }),
      );
      main.querySelector("form")?.addEventListener("submit", (event) => event.preventDefault());
    }
    const [mapBox, charts] = [main.querySelector("#map"), main.querySelector("#charts")];
    if (map.rows.length === 0) {
      mapBox?.replaceChildren(
        notice(
          "empty",
          "No reader was seen to lose time in this span.",
          "Look further back, or at Targets: they say what is watched, and what cannot be seen and why.",
        ),
      );
    } else {
      if (canvas && !mapBox?.contains(canvas.root)) mapBox?.replaceChildren(canvas.root);
      canvas?.show(map);
    }
    charts?.replaceChildren(...overTime(history));
    if (history.families_left_out > 0) {
      charts?.append(notice("empty", `${history.families_left_out} column families that lost less are left out here.`));
    }
  },
};
