// The frame of all pages: where one is, whether the agent answers, and light or dark.

import { Failure, get } from "./api";
import { element, notice } from "./dom";
import type { Page } from "./page";
import { PAGES } from "./pages";
import "./style.css";

/** How often what is shown is asked for again: the agent's cycles are seconds apart. */
const REFRESH_MS = 3_000;

const main = find("main");
const connection = find("#connection");
let opened = 0;
let shown: string | null = null;
/** Where the open page is shown. What asked for another page before it comes too late to be seen. */
let place = element("div");

function find(selector: string): HTMLElement {
  const found = document.querySelector<HTMLElement>(selector);
  if (!found) throw new Error(`no ${selector}`);
  return found;
}

function where(): { page: Page; parameters: URLSearchParams; rest: string } {
  const [path, search] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const [name, ...rest] = (path ?? "").split("/");
  const page = PAGES.find((page) => page.name === name) ?? PAGES[0];
  if (!page) throw new Error("no pages");
  return { page, parameters: new URLSearchParams(search ?? ""), rest: rest.join("/") };
}

function showNavigation(current: Page): void {
  const links = PAGES.filter((page) => page.title !== "").map((page) => {
    const link = element("a", { href: `#/${page.name}` }, page.title);
    if (page === current) link.setAttribute("aria-current", "page");
    return link;
  });
  find("nav").replaceChildren(...links);
}

/** Shows the page of the address, again and again until another one is opened. */
async function open(): Promise<void> {
  opened += 1;
  const mine = opened;
  const { page, parameters, rest } = where();
  const isOther = shown !== page.name + rest;
  shown = page.name + rest;
  showNavigation(page);
  document.title = page.title ? `${page.title} · Sexton` : "Sexton";
  if (isOther) {
    place = element("div", {}, notice("loading", "Loading…"));
    main.replaceChildren(place);
  }
  while (mine === opened) {
    await refresh(page, parameters, rest, mine);
    await new Promise((resolve) => setTimeout(resolve, REFRESH_MS));
  }
}

async function refresh(page: Page, parameters: URLSearchParams, rest: string, mine: number): Promise<void> {
  const mineToFill = place;
  try {
    const health = await get<{ at: string; cycles: number }>("/healthz");
    if (mine !== opened) return;
    await page.refresh(mineToFill, parameters, rest, () => mine === opened);
    if (mine !== opened) return;
    main.querySelector(":scope > .failed")?.remove();
    tell(`Connected, cycle ${health.cycles}`, true);
  } catch (error) {
    if (mine !== opened) return;
    const failure = error instanceof Failure ? error : new Failure(String(error), "This is a bug in Sexton: please report it.", false);
    tell(failure.isDisconnected ? "Disconnected" : "Trouble", false);
    showFailure(failure);
  }
}

/** What was shown before stays, below the failure: it is old, and better than nothing. */
function showFailure(failure: Failure): void {
  main.querySelector(":scope > .failed")?.remove();
  place.querySelector(":scope > .loading")?.remove();
  const box = notice("error", failure.message, failure.help);
  box.classList.add("failed");
  main.prepend(box);
}

function tell(text: string, isWell: boolean): void {
  if (connection.textContent !== text) connection.textContent = text;
  connection.classList.toggle("bad", !isWell);
}

function setUpTheme(): void {
  const button = find("#theme");
  const prefers = matchMedia("(prefers-color-scheme: dark)");
  const show = (): void => {
    const isDark = (localStorage.getItem("theme") ?? (prefers.matches ? "dark" : "light")) === "dark";
    document.documentElement.dataset.theme = isDark ? "dark" : "light";
    button.textContent = isDark ? "Light" : "Dark";
    window.dispatchEvent(new Event("resize"));
  };
  button.addEventListener("click", () => {
    localStorage.setItem("theme", document.documentElement.dataset.theme === "dark" ? "light" : "dark");
    show();
    void open();
  });
  prefers.addEventListener("change", show);
  show();
}

setUpTheme();
window.addEventListener("hashchange", () => void open());
void open();
