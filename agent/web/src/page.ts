// What a page is.

import { query } from "./api";

export interface Page {
  /** Name in the address, behind `#/`. */
  name: string;
  title: string;
  /** Asks the agent and shows what it says; called again and again while the page is open. Whoever asks may have gone on
   * meanwhile: then it is not open any more. */
  refresh(main: HTMLElement, parameters: URLSearchParams, rest: string, isOpen: () => boolean): Promise<void>;
}

/** Goes to another page, or to the same one with other parameters. */
export function go(page: string, parameters: Record<string, string>): void {
  location.hash = query(`/${page}`, parameters);
}
