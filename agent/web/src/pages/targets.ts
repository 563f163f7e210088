// What is watched, what the doctor says of it, and what probes cost it.

import type { Doctor, Gap, Target } from "../api";
import { get } from "../api";
import { element, notice, show, table } from "../dom";
import type { Page } from "../page";
import * as words from "../words";

function targetTable(targets: Target[]): HTMLElement {
  return table(
    "Targets",
    ["Name", "State", "Mode", "Executor", "RocksDB", "Databases", "Lost a second", "Guards that object"],
    targets.map((target) => [
      target.name,
      target.state,
      target.mode,
      target.executor + (target.hook ? ", hook answers" : ""),
      target.rocksdb_version,
      target.databases.join("\n"),
      words.seconds(target.pain_seconds_per_second),
      target.guards
        .filter((guard) => guard.objects)
        .map((guard) => `${words.plain(guard.guard)}: ${guard.reason}`)
        .join("\n") || "none",
    ]),
  );
}

/** What probes cost, and of what is allowed how much. */
function probeTable(targets: Target[]): HTMLElement {
  return table(
    "What the probes cost",
    ["Target", "Cost so far", "Allowed of a core", "May be spent now", "Windows", "Open", "Cut short", "Put off", "A probe's price"],
    targets.map(({ name, windows, window_seconds, probes }) => [
      name,
      words.seconds(probes.cost_seconds),
      words.percent(probes.budget_ratio),
      probes.available_seconds < 0 ? `${words.seconds(-probes.available_seconds)} owed` : words.seconds(probes.available_seconds),
      words.count(windows),
      `${words.seconds(window_seconds)}, ${words.percent(probes.duty_ratio)} of the time`,
      words.count(probes.windows_cut),
      words.count(probes.windows_put_off),
      probes.prices.map((price) => `${words.plain(price.kind)}: ${words.seconds(price.seconds)}`).join("\n") || "not learnt yet",
    ]),
  );
}

function verdict(name: string, gaps: Gap[]): HTMLElement {
  const items = gaps.map((gap) =>
    element("li", {}, element("strong", {}, gap.what), `: ${gap.reason}. `, element("span", { class: "help" }, `What to do: ${gap.remedy}`)),
  );
  return element(
    "section",
    { class: "verdict" },
    element("h4", {}, name),
    items.length > 0 ? element("ul", {}, ...items) : notice("empty", "Everything can be seen and done."),
  );
}

export const targets: Page = {
  name: "targets",
  title: "Targets",
  async refresh(main) {
    const [{ targets }, doctor] = await Promise.all([
      get<{ targets: Target[] }>("/api/v1/targets"),
      get<Doctor>("/api/v1/doctor"),
    ]);
    const { state } = doctor;
    show(
      main,
      element("h2", {}, "What is watched"),
      targets.length > 0
        ? targetTable(targets)
        : notice("empty", "No process with a RocksDB was found.", "sexton targets lists them; the policy's match may leave them out."),
      element("h3", {}, "What the doctor says"),
      state.is_writable
        ? element("p", {}, state.directory === null ? "The agent remembers nothing over its end: it has no state directory." : `The state is in ${state.directory}.`)
        : notice("error", `The state cannot be written: ${state.trouble ?? ""}`, "No action begins until it can: make room, or mend the directory's permissions."),
      ...Object.entries(doctor.gaps).map(([name, gaps]) => verdict(name, gaps)),
      ...(targets.length > 0 ? [element("h3", {}, "What it costs to look"), probeTable(targets)] : []),
    );
  },
};
