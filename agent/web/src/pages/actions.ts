// What was done, and what came of it.

import type { Action } from "../api";
import { get } from "../api";
import { element, notice, show } from "../dom";
import type { Page } from "../page";
import { actionTable } from "./tables";

export const actions: Page = {
  name: "actions",
  title: "Actions",
  async refresh(main) {
    const { actions } = await get<{ actions: Action[] }>("/api/v1/actions");
    show(
      main,
      element("h2", {}, "What Sexton has done"),
      actions.length > 0
        ? actionTable(actions)
        : notice("empty", "Nothing was done yet.", "Sexton acts only where the policy says mode: act. Plan shows what it would do."),
    );
  },
};
