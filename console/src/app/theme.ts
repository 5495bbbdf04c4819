// The theme is kept in the browser; `public/theme.js` sets it before the first paint.
import { useSyncExternalStore } from "react";

export const THEMES = ["light", "dark", "contrast"] as const;
export type Theme = (typeof THEMES)[number];

const listeners = new Set<() => void>();

export function currentTheme(): Theme {
  const theme = document.documentElement.dataset.theme;
  return THEMES.find((known) => known === theme) ?? "light";
}

export function setTheme(theme: Theme) {
  localStorage.setItem("countersign.theme", theme);
  document.documentElement.dataset.theme = theme;
  for (const listener of listeners) listener();
}

export function useTheme(): Theme {
  return useSyncExternalStore((listener) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, currentTheme);
}
