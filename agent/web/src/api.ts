// What the agent answers, and how it is asked. All requests go to the host that has served the page.

export interface Family {
  begin_unix_seconds: number;
  length_seconds: number;
  target: string;
  database: string;
  column_family: string;
  pain_seconds: number;
  operations: number;
  tombstones_skipped: number;
  block_misses: number;
  bytes_compacted: number;
  actions: number;
}

/** How long operations took; null where no window has seen any. */
export interface Stretch {
  begin_unix_seconds: number;
  length_seconds: number;
  lists: number;
  list_p50_seconds: number | null;
  list_p99_seconds: number | null;
  seek_p50_seconds: number | null;
  seek_p99_seconds: number | null;
}

export interface History {
  rows: Family[];
  families_left_out: number;
  stretches: Stretch[];
}

export interface HeatmapRow {
  target: string;
  database: string;
  column_family: string;
  begin: string;
  end: string | null;
}

export interface HeatmapColumn {
  begin_unix_seconds: number;
  length_seconds: number;
  rows: number[];
  values: number[];
  acted_on: number[];
}

export interface Heatmap {
  metric: string;
  rows: HeatmapRow[];
  columns: HeatmapColumn[];
}

export interface Range {
  id: string;
  target: string;
  database: string;
  column_family: string;
  begin: string;
  end: string | null;
  pain_seconds_per_second: number;
  tombstones_per_seek: number;
  misses_per_seek: number;
  density: number;
  cost_bytes: number | null;
  reason: string;
}

export interface Step {
  action: string;
  target: string;
  database: string;
  subject: string;
  begin: string;
  end: string | null;
  cost_bytes: number;
  relief_seconds_per_second: number;
  reason: string;
  commands: string[];
}

export interface Refusal {
  target: string;
  database: string;
  subject: string;
  rule: string;
  reason: string;
}

export interface Action {
  id: number;
  started_at: string;
  ended_at: string | null;
  action: string;
  target: string;
  database: string;
  subject: string;
  begin: string;
  end: string | null;
  state: string;
  outcome: string;
  reason: string;
  bytes_rewritten: number;
  duration_seconds: number;
  relief_promised: number;
  relief_delivered: number | null;
}

export interface RangeInDepth {
  range: Range;
  hot_files: {
    number: number;
    level: number | null;
    reads_per_second: number;
    wait_seconds_per_second: number;
    latency_p50_seconds: number;
    latency_p99_seconds: number;
  }[];
  steps: Step[];
  refusals: Refusal[];
  actions: Action[];
}

export interface Target {
  name: string;
  state: string;
  mode: string;
  executor: string;
  rocksdb_version: string;
  databases: string[];
  pain_seconds_per_second: number;
  hook: boolean;
  windows: number;
  window_seconds: number;
  probes: {
    cost_seconds: number;
    budget_ratio: number;
    available_seconds: number;
    duty_ratio: number;
    windows_cut: number;
    windows_put_off: number;
    price_correction_ratio: number;
    prices: { kind: string; seconds: number }[];
  };
  guards: { guard: string; objects: boolean; refusals: number; reason: string }[];
}

export interface Gap {
  what: string;
  reason: string;
  remedy: string;
}

export interface Doctor {
  state: { directory: string | null; is_writable: boolean; trouble: string | null; waiting: number };
  gaps: { [target: string]: Gap[] };
}

export interface Advice {
  target: string;
  database: string;
  column_family: string;
  workload: string;
  because: string[];
  missing: string[];
  recommendation: {
    strategy: string;
    is_in_force: boolean;
    why: string;
    cost: string;
    since: string;
    options: { name: string; value: string; in_force: string | null; at_run_time: boolean; since: string; why: string }[];
    how_to_try: string;
  } | null;
  never: string[];
  dangers: { kind: string; option: string; reason: string }[];
}

export interface Throttle {
  target: string;
  name: string;
  wanted: string | null;
  observed: string | null;
  observed_age_seconds: number | null;
  restore: string | null;
  state: string;
  slowest: number | null;
  fastest: number | null;
  ratio: number | null;
  pressure: number | null;
  reason: string | null;
  failure: string | null;
}

export interface Pressure {
  target: string;
  pressure: number | null;
  signals: { name: string; kind: string; value: number | null; pressure: number | null; trouble: string | null }[];
}

export interface Throttles {
  throttles: Throttle[];
  pressures: Pressure[];
}

export interface Setting {
  action_id: number;
  target: string;
  kind: string;
  column_family: string | null;
  name: string;
  wanted: string;
  observed: string | null;
  restore: string | null;
  state: string;
  reason: string | null;
}

/** What went wrong, and what to do about it. */
export class Failure extends Error {
  constructor(
    message: string,
    readonly help: string,
    readonly isDisconnected: boolean,
  ) {
    super(message);
  }
}

/** How long an answer is waited for: the agent gives up after ten seconds itself. */
const TIMEOUT_MS = 12_000;

const known = new Map<string, { tag: string; body: unknown }>();
/** Answers that are kept to ask whether they have changed. */
const KNOWN_MAX = 32;

export async function get<T>(path: string): Promise<T> {
  const before = known.get(path);
  let response: Response;
  try {
    response = await fetch(path, {
      headers: before ? { "If-None-Match": before.tag } : {},
      signal: AbortSignal.timeout(TIMEOUT_MS),
      redirect: "error",
    });
  } catch {
    throw new Failure(
      "The agent does not answer.",
      "systemctl status sexton says whether it runs, and journalctl -u sexton why not. This page goes on as soon as it answers.",
      true,
    );
  }
  if (response.status === 304 && before) {
    return before.body as T;
  }
  let body: unknown;
  try {
    body = await response.json();
  } catch {
    throw new Failure(`${path} answered ${response.status} and no JSON.`, "Is this address the agent's?", false);
  }
  if (!response.ok) {
    const problem = body as { detail?: string; title?: string; help?: string };
    throw new Failure(problem.detail ?? problem.title ?? `${path}: ${response.status}`, problem.help ?? "", false);
  }
  const tag = response.headers.get("ETag");
  known.delete(path);
  if (tag) {
    known.set(path, { tag, body });
    const oldest = known.keys().next().value;
    if (known.size > KNOWN_MAX && oldest !== undefined) known.delete(oldest);
  }
  return body as T;
}

/** A path with a query; what is empty is left out. */
export function query(path: string, parameters: Record<string, string | number | undefined>): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== undefined && value !== "") search.set(name, String(value));
  }
  const text = search.toString();
  return text ? `${path}?${text}` : path;
}
