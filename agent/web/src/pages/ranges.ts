// Ranges of keys in which readers lose time, and one of them in depth.

import type { Range, RangeInDepth } from "../api";
import { get, query } from "../api";
import { element, notice, show, table } from "../dom";
import type { Page } from "../page";
import * as words from "../words";
import { actionTable, refusalTable, stepTable } from "./tables";

function rangeTable(ranges: Range[], begin: string): HTMLElement {
  return table(
    "Ranges, most pain first",
    ["Keys", "Column family", "Lost a second", "Tombstones a seek", "Misses a seek", "Cost", "Why"],
    ranges.map((range) => [
      element("a", { href: `#/range/${range.id}` }, words.keys(range.begin, range.end) + (range.begin === begin ? " ◀" : "")),
      range.column_family,
      words.seconds(range.pain_seconds_per_second),
      words.count(range.tombstones_per_seek),
      words.count(range.misses_per_seek),
      range.cost_bytes === null ? "not known" : words.bytes(range.cost_bytes),
      range.reason,
    ]),
  );
}

export const keys: Page = {
  name: "keys",
  title: "Ranges",
  async refresh(main, parameters, _rest, isOpen) {
    const [target, database] = [parameters.get("target") ?? undefined, parameters.get("database") ?? undefined];
    const column_family = parameters.get("column_family") ?? undefined;
    const begin = parameters.get("begin") ?? "";
    const path = query("/api/v1/ranges", { target, database, column_family, sort: "pain", limit: 200 });
    const { ranges } = await get<{ ranges: Range[] }>(path);
    if (!isOpen()) return;
    const same = ranges.filter((range) => range.begin === begin);
    if (parameters.has("begin") && same.length === 1 && same[0]) {
      location.replace(`#/range/${same[0].id}`);
      return;
    }
    show(
      main,
      element("h2", {}, column_family ? `Ranges of ${column_family}` : "Ranges in which readers lose time"),
      ranges.length > 0
        ? rangeTable(ranges, begin)
        : notice("empty", "Nobody loses time here now.", "The heatmap shows when somebody did, and Actions what was done."),
    );
  },
};

export const range: Page = {
  name: "range",
  title: "",
  async refresh(main, _parameters, id) {
    const depth = await get<RangeInDepth>(`/api/v1/ranges/${encodeURIComponent(id)}`);
    const { range, hot_files, steps, refusals, actions } = depth;
    show(
      main,
      element("h2", {}, words.keys(range.begin, range.end)),
      element("p", {}, `${range.target}, ${range.database}, ${range.column_family}`),
      element("p", {}, range.reason),
      rangeTable([range], ""),
      hot_files.length > 0
        ? table(
            "Files that readers wait for",
            ["File", "Level", "Reads a second", "Waited a second", "p50", "p99"],
            hot_files.map((file) => [
              String(file.number),
              file.level === null ? "" : String(file.level),
              words.count(file.reads_per_second),
              words.seconds(file.wait_seconds_per_second),
              words.seconds(file.latency_p50_seconds),
              words.seconds(file.latency_p99_seconds),
            ]),
          )
        : notice("empty", "No file was waited for in the last window."),
      steps.length > 0 ? stepTable(steps) : notice("empty", "The plan has nothing to do here now."),
      refusals.length > 0 ? refusalTable(refusals) : "",
      actions.length > 0 ? actionTable(actions) : notice("empty", "Nothing was done here yet."),
    );
  },
};
