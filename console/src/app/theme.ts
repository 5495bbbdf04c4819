// What a browser keeps of how pages look: the theme and the density of lists. `public/theme.js` sets both before the first paint.
import { useSyncExternalStore } from "react";

export const THEMES = ["light", "dark", "contrast"] as const;
export type Theme = (typeof THEMES)[number];

export const DENSITIES = ["comfortable", "compact"] as const;
export type Density = (typeof DENSITIES)[number];

/** One of some words, kept in the browser and as a data attribute of the page. */
function kept<T extends string>(name: "theme" | "density", words: readonly [T, ...T[]]) {
  const listeners = new Set<() => void>();
  const current = (): T => {
    const word = document.documentElement.dataset[name];
    return words.find((known) => known === word) ?? words[0];
  };
  const set = (word: T) => {
    localStorage.setItem(`countersign.${name}`, word);
    document.documentElement.dataset[name] = word;
    for (const listener of listeners) listener();
  };
  /** Another tab of the browser chose. */
  const heard = ({ key, newValue }: StorageEvent) => {
    const word = words.find((known) => known === newValue);
    if (key !== `countersign.${name}` || !word) return;
    document.documentElement.dataset[name] = word;
    for (const listener of listeners) listener();
  };
  const use = (): T =>
    useSyncExternalStore((listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    }, current);
  return { current, set, use, heard };
}

const theme = kept("theme", THEMES);
const density = kept("density", DENSITIES);
export const { current: currentTheme, set: setTheme, use: useTheme } = theme;
export const { set: setDensity, use: useDensity } = density;

/** Pages look the same in all tabs. */
export function followOtherTabs() {
  for (const { heard } of [theme, density]) window.addEventListener("storage", heard);
}
