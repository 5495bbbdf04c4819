// The server's words for states, facets, colours and reasons, in the language of the page. They come from the registry by key.
import { useMemo } from "react";
import { useTranslation } from "@/app/i18n";
import { useRegistry } from "./state";

export type Says = (key: string, args?: Record<string, unknown>) => string;

/** `{name}` in a text is filled from `args`; a key without a text is shown as words. */
export function useTexts(): Says {
  const registry = useRegistry().data;
  const { language } = useTranslation();
  return useMemo(() => {
    const words: Record<string, string> = registry?.texts?.[language] ?? {};
    return (key, args = {}) => {
      const text =
        words[key] ??
        plain(
          key
            .replace(/\.(label|short)$/, "")
            .split(".")
            .at(-1) ?? key,
        );
      return text.replace(/\{(\w+)\}/g, (whole, name) => (name in args ? String(args[name]) : whole));
    };
  }, [registry, language]);
}

/** A code as words: `waiting_human` and `cannot-complete` read better with spaces. */
export const plain = (code: string) => code.replaceAll(/[_-]/g, " ");
