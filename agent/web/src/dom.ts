// Elements. Text is set as text and never parsed: names and keys are foreign.

type Child = Node | string | null;

export function element<K extends keyof HTMLElementTagNameMap>(
  name: K,
  attributes: Record<string, string> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(name);
  for (const [attribute, value] of Object.entries(attributes)) made.setAttribute(attribute, value);
  made.append(...children.filter((child): child is Node | string => child !== null));
  return made;
}

/** Shows what a page consists of now. What is the same stays, and with it focus, selection and scrolling: pages are made
 * anew every few seconds. */
export function show(main: HTMLElement, ...content: Child[]): void {
  const made = element("div", {}, ...content);
  const shown = [...main.childNodes].filter((node) => !(node instanceof HTMLElement && node.classList.contains("failed")));
  const isSame = shown.length === made.childNodes.length && shown.every((node, index) => node.isEqualNode(made.childNodes[index] ?? null));
  if (isSame) return;
  const focused = path(main, document.activeElement);
  main.replaceChildren(...made.childNodes);
  const again = focused?.reduce<Element | null>((parent, index) => parent?.children[index] ?? null, main);
  if (again instanceof HTMLElement) again.focus({ preventScroll: true });
}

/** Where an element is inside of another one; null: nowhere. */
function path(outer: Element, inner: Element | null): number[] | null {
  const indexes: number[] = [];
  for (let node = inner; node !== outer; node = node.parentElement) {
    if (!node?.parentElement) return null;
    indexes.unshift([...node.parentElement.children].indexOf(node));
  }
  return indexes.length > 0 ? indexes : null;
}

/** A table with headings; it scrolls by itself where the screen is narrow. */
export function table(caption: string, headings: string[], rows: Child[][]): HTMLElement {
  const head = element("tr", {}, ...headings.map((heading) => element("th", { scope: "col" }, heading)));
  const body = rows.map((cells) =>
    element("tr", {}, ...cells.map((cell, index) => element("td", { "data-label": headings[index] ?? "" }, cell))),
  );
  return element(
    "div",
    { class: "scrolls", tabindex: "0", role: "region", "aria-label": caption },
    element("table", {}, element("caption", {}, caption), element("thead", {}, head), element("tbody", {}, ...body)),
  );
}

/** Nothing to show, and what to do about it. */
export function notice(kind: "empty" | "error" | "loading", message: string, help = ""): HTMLElement {
  return element(
    "div",
    { class: `notice ${kind}`, role: kind === "error" ? "alert" : "status" },
    element("p", {}, message),
    help ? element("p", { class: "help" }, help) : null,
  );
}

export function select(
  label: string,
  name: string,
  options: { value: string; text: string }[],
  chosen: string,
  changed: (value: string) => void,
): HTMLElement {
  const list = element(
    "select",
    { name },
    ...options.map(({ value, text }) => {
      const option = element("option", { value }, text);
      option.selected = value === chosen;
      return option;
    }),
  );
  list.addEventListener("change", () => changed(list.value));
  return element("label", {}, element("span", {}, label), list);
}
