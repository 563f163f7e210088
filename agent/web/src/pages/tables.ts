// Tables that several pages have.

import type { Action, Refusal, Step } from "../api";
import { element, table } from "../dom";
import * as words from "../words";

export function stepTable(steps: Step[]): HTMLElement {
  return table(
    "Steps",
    ["Action", "Target", "What", "Keys", "Rewrites", "Relieves a second", "Why", "By hand"],
    steps.map((step) => [
      step.action,
      step.target,
      step.subject,
      words.keys(step.begin, step.end),
      words.bytes(step.cost_bytes),
      words.seconds(step.relief_seconds_per_second),
      step.reason,
      step.commands.length > 0 ? element("code", {}, step.commands.join("\n")) : null,
    ]),
  );
}

export function refusalTable(refusals: Refusal[]): HTMLElement {
  return table(
    "What is not done, and why",
    ["Target", "What", "Rule", "Why"],
    refusals.map((refusal) => [refusal.target, refusal.subject, refusal.rule, refusal.reason]),
  );
}

export function actionTable(actions: Action[]): HTMLElement {
  return table(
    "Actions, newest first",
    ["Number", "Ended", "Action", "Target", "What", "Keys", "State", "Rewrote", "Promised", "Delivered", "What came of it"],
    actions.map((action) => [
      String(action.id),
      action.ended_at ? words.moment(action.ended_at) : "under way",
      action.action,
      action.target,
      action.subject,
      words.keys(action.begin, action.end),
      action.state,
      words.bytes(action.bytes_rewritten),
      words.seconds(action.relief_promised),
      action.relief_delivered === null ? "not measured" : words.seconds(action.relief_delivered),
      action.outcome || action.reason,
    ]),
  );
}
