// The pages, in the order of the navigation; those without a title are led to by others.

import type { Page } from "./page";
import { actions } from "./pages/actions";
import { heatmap } from "./pages/heatmap";
import { plan } from "./pages/plan";
import { keys, range } from "./pages/ranges";
import { settings } from "./pages/settings";
import { targets } from "./pages/targets";

export const PAGES: Page[] = [heatmap, keys, plan, actions, settings, targets, range];
