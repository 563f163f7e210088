// What is changed in targets, within which bounds, by what pressure, and what holds now.

import type { Pressure, Setting, Throttle, Throttles } from "../api";
import { get } from "../api";
import { element, notice, show, table } from "../dom";
import type { Page } from "../page";
import * as words from "../words";

interface Schedule {
  periods: { name: string; is_open: boolean }[];
  budget_bytes_per_second: number;
}

interface Policy {
  path: string | null;
  is_current: boolean;
  trouble: string | null;
}

function settingTable(settings: Setting[]): HTMLElement {
  return table(
    "Settings",
    ["Target", "Kind", "Name", "Wanted", "Observed", "Put back", "State", "Why"],
    settings.map((setting) => [
      setting.target,
      setting.kind,
      setting.name,
      setting.wanted,
      setting.observed ?? "not read",
      setting.restore ?? "as its executor knows",
      words.plain(setting.state),
      setting.reason ?? "",
    ]),
  );
}

function bounds(throttle: Throttle): string {
  const { slowest, fastest, ratio } = throttle;
  if (slowest === null || fastest === null) return "none: its value is the policy's";
  const times = ratio === null || ratio === 1 ? "" : ` (${words.count(ratio)} times the policy's)`;
  return `${words.count(slowest)} to ${words.count(fastest)}${times}`;
}

function throttleTable(throttles: Throttle[]): HTMLElement {
  return table(
    "Throttles",
    ["Target", "Throttle", "Wanted", "Observed", "Bounds", "Pressure", "Put back", "State", "Why"],
    throttles.map((throttle) => [
      throttle.target,
      throttle.name,
      throttle.wanted ?? "not known yet",
      throttle.observed === null
        ? "not read"
        : throttle.observed + (throttle.observed_age_seconds === null ? "" : `, ${throttle.observed_age_seconds} s ago`),
      bounds(throttle),
      throttle.pressure === null ? "not followed" : meter(throttle.pressure),
      throttle.restore ?? "nothing to put back",
      words.plain(throttle.state),
      [throttle.failure, throttle.reason].filter((text) => text !== null).join("; "),
    ]),
  );
}

function meter(pressure: number): HTMLElement {
  const bar = element("meter", { min: "0", max: "1", value: String(pressure), "aria-hidden": "true" });
  return element("span", {}, bar, ` ${words.percent(pressure)}`);
}

function pressureTable(pressure: Pressure): HTMLElement {
  const sum = pressure.pressure === null ? "not read yet" : words.percent(pressure.pressure);
  return table(
    `What ${pressure.target} is under pressure by: ${sum}`,
    ["Signal", "Kind", "Measured", "Pressure", "Trouble"],
    pressure.signals.map((signal) => [
      signal.name,
      words.plain(signal.kind),
      signal.value === null ? "not read" : words.count(signal.value),
      signal.pressure === null ? "" : meter(signal.pressure),
      signal.trouble ?? "",
    ]),
  );
}

export const settings: Page = {
  name: "settings",
  title: "Settings",
  async refresh(main) {
    const [{ settings }, { throttles, pressures }, schedule, policy] = await Promise.all([
      get<{ settings: Setting[] }>("/api/v1/settings"),
      get<Throttles>("/api/v1/throttles"),
      get<Schedule>("/api/v1/schedule"),
      get<Policy>("/api/v1/policy"),
    ]);
    const periods = schedule.periods.map((period) => `${period.name}${period.is_open ? " (now)" : ""}`).join(", ");
    show(
      main,
      element("h2", {}, "What is changed in targets, and what holds"),
      element("p", {}, `Policy: ${policy.path ?? "none, so everything is watched and nothing changed"}`),
      policy.is_current
        ? null
        : notice("error", `The policy's file is not in force: ${policy.trouble ?? ""}`, "sexton policy check FILE shows the mistake."),
      element("p", {}, `Actions may rewrite ${words.bytes(schedule.budget_bytes_per_second)} a second.`),
      element("p", {}, periods ? `Periods: ${periods}` : "The policy has no schedule."),
      settings.length > 0
        ? settingTable(settings)
        : notice("empty", "Nothing is changed in any target.", "Options and throttles change only where the policy allows them."),
      throttles.length > 0
        ? throttleTable(throttles)
        : notice("empty", "The policy has no throttles for any target.", "throttles in the policy names what may be slowed, and by which command."),
      ...pressures.map(pressureTable),
    );
  },
};
