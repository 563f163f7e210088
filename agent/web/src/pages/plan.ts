// What would be done next, what is left alone and why, and what suits each column family.

import type { Advice, Refusal, Step } from "../api";
import { get } from "../api";
import { element, notice, show, table } from "../dom";
import type { Page } from "../page";
import * as words from "../words";
import { refusalTable, stepTable } from "./tables";

function adviceOf(advice: Advice): HTMLElement {
  const { recommendation } = advice;
  const sentences = (title: string, list: string[]): (HTMLElement | null)[] =>
    list.length > 0 ? [element("h5", {}, title), element("ul", {}, ...list.map((text) => element("li", {}, text)))] : [];
  const dangers = advice.dangers.map((danger) => `${words.plain(danger.kind)} (${danger.option}): ${danger.reason}`);
  return element(
    "section",
    { class: "advice" },
    element("h4", {}, `${advice.column_family} of ${advice.target}`),
    element("p", {}, `${advice.database}: used as ${words.plain(advice.workload)}`),
    ...sentences("About to go wrong", dangers),
    ...sentences("Why it is thought so", advice.because),
    ...(recommendation
      ? [
          element("h5", {}, `What suits it: ${words.plain(recommendation.strategy)}${recommendation.is_in_force ? " (in force)" : ""}`),
          element("p", {}, `${recommendation.why} ${recommendation.cost}`),
          recommendation.options.length > 0
            ? table(
                `Options for ${advice.column_family} of ${advice.database}`,
                ["Option", "Set", "In force", "While it runs", "Since", "What it does here"],
                recommendation.options.map((option) => [
                  element("code", {}, option.name),
                  element("code", {}, option.value),
                  option.in_force ?? "not known",
                  option.at_run_time ? "yes" : "no, it takes a restart",
                  option.since,
                  option.why,
                ]),
              )
            : null,
          element("p", {}, `To try it: ${recommendation.how_to_try}`),
        ]
      : []),
    ...sentences("What must not be done here", advice.never),
    ...sentences("What is missing to tell more", advice.missing),
  );
}

export const plan: Page = {
  name: "plan",
  title: "Plan",
  async refresh(main) {
    const [{ plan }, { advice }] = await Promise.all([
      get<{ plan: { budget_bytes: number; cost_bytes: number; steps: Step[]; refusals: Refusal[] } }>("/api/v1/plan"),
      get<{ advice: Advice[] }>("/api/v1/advice"),
    ]);
    const told = advice.filter((it) => it.recommendation !== null || it.dangers.length > 0 || it.workload !== "idle");
    show(
      main,
      element("h2", {}, "What Sexton would do next"),
      element("p", {}, `${words.bytes(plan.cost_bytes)} of a budget of ${words.bytes(plan.budget_bytes)}`),
      plan.steps.length > 0
        ? stepTable(plan.steps)
        : notice("empty", "Nothing is to be done now.", "Ranges shows where readers lose time; below stands what is left alone and why."),
      plan.refusals.length > 0 ? refusalTable(plan.refusals) : notice("empty", "Nothing is refused."),
      element("h3", {}, "Advice"),
      ...(told.length > 0
        ? told.map(adviceOf)
        : [
            notice(
              "empty",
              "There is no advice yet.",
              "Databases are looked at for some minutes before anything is said of them; sexton advise says what it waits for.",
            ),
          ]),
    );
  },
};
