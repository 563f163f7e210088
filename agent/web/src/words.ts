// Numbers, times and keys as people read them.

export function seconds(value: number): string {
  const size = Math.abs(value);
  if (size === 0) return "0 s";
  if (size >= 1) return `${value.toFixed(1)} s`;
  if (size >= 1e-3) return `${(value * 1e3).toFixed(1)} ms`;
  if (size >= 1e-6) return `${(value * 1e6).toFixed(1)} µs`;
  return `${(value * 1e9).toFixed(1)} ns`;
}

export function bytes(value: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

export function count(value: number): string {
  if (value >= 10) return Math.round(value).toLocaleString("en");
  return Number(value.toPrecision(2)).toString();
}

export function percent(share: number): string {
  return `${(share * 100).toFixed(2)} %`;
}

const two = (value: number): string => String(value).padStart(2, "0");

/** `14:05`, or with the day where the span is longer than one. */
export function time(unixSeconds: number, spanSeconds: number): string {
  const date = new Date(unixSeconds * 1000);
  const clock = `${two(date.getHours())}:${two(date.getMinutes())}`;
  if (spanSeconds <= 86_400) return clock;
  return `${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock}`;
}

export function moment(text: string | null): string {
  if (!text) return "";
  return new Date(text).toLocaleString();
}

/** A metric's value, a second or in all. */
export function value(metric: string, amount: number): string {
  switch (metric) {
    case "pain":
      return `${seconds(amount)} lost a second`;
    case "bytes_compacted":
      return `${bytes(amount)} a second`;
    default:
      return `${count(amount)} a second`;
  }
}

export function keys(begin: string, end: string | null): string {
  return `${begin === "" ? "start" : begin} … ${end ?? "end"}`;
}

/** A name of the agent's in words: `write_delayed` is `write delayed`. */
export function plain(name: string): string {
  return name.replaceAll("_", " ");
}
