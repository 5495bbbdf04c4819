// The keys of the console: one listener for all pages. A page marks what a key reaches with `data-key`.
import { useNavigate } from "@tanstack/react-router";
import { useEffect, useRef } from "react";

export const PLACES = {
  i: "/inbox",
  w: "/work",
  p: "/processes",
  r: "/runs",
  d: "/definitions",
  v: "/governance",
  o: "/proposals",
  l: "/ledger",
  a: "/admin",
} as const;

const typing = (target: EventTarget | null) =>
  target instanceof HTMLElement &&
  (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));

/** The next or previous row takes the focus; Enter then opens it, as with every link. */
function move(by: 1 | -1) {
  const rows = [...document.querySelectorAll<HTMLElement>("main [data-row]")];
  const now = document.activeElement?.closest<HTMLElement>("[data-row]");
  const at = now ? rows.indexOf(now) : by === 1 ? -1 : rows.length;
  const next = rows[Math.min(Math.max(at + by, 0), rows.length - 1)]?.querySelector<HTMLElement>("a, button");
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

/** The key reaches a button and never presses it: a decision is confirmed with Enter. */
function reach(key: string, named: string | undefined): boolean {
  const seen = (one: HTMLElement) => one.offsetParent !== null && !(one as HTMLButtonElement).disabled;
  // What was opened last comes last: the drawer of a step goes before the head of its run.
  const marked = [...document.querySelectorAll<HTMLElement>(`main [data-key="${key}"]`)]
    .filter(seen)
    .flatMap((one) => [...one.querySelectorAll<HTMLElement>("button, a, summary")].find(seen) ?? [])
    .at(-1);
  const button =
    marked ??
    [...document.querySelectorAll<HTMLElement>("main button")].find(
      (one) => seen(one) && one.textContent?.trim() === named,
    );
  button?.focus();
  button?.scrollIntoView({ block: "nearest" });
  return button !== undefined;
}

export interface Does {
  search: () => void;
  help: () => void;
  /** Buttons that keys reach by what is written on them. */
  buttons: Record<string, string>;
}

export function useKeys(does: Does) {
  const navigate = useNavigate();
  const latest = useRef(does);
  latest.current = does;
  useEffect(() => {
    let afterG = 0;
    function pressed(event: KeyboardEvent) {
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      if (typing(event.target) || document.querySelector("dialog[open]")) return;
      const { key } = event;
      const going = Date.now() - afterG < 1500;
      afterG = 0;
      if (going && key in PLACES) void navigate({ to: PLACES[key as keyof typeof PLACES] });
      else if (key === "g") afterG = Date.now();
      else if (key === "/") latest.current.search();
      else if (key === "?") latest.current.help();
      else if (key === "j") move(1);
      else if (key === "k") move(-1);
      else if (!(/^[a-z.]$/.test(key) && reach(key, latest.current.buttons[key]))) return;
      event.preventDefault();
    }
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, [navigate]);
}
