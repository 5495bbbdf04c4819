// The server's words for states, facets and reasons, in the language of the page. They come from the registry by key.
import { useMemo } from "react";
import { useTranslation } from "react-i18next";
import type { SchemaRegistry } from "@/api/schema";
import { useRegistry } from "./state";

export type Says = (key: string, args?: Record<string, unknown>) => string;

function dictionary(registry: SchemaRegistry | undefined, language: "en" | "vi"): Map<string, string> {
  const words = new Map<string, string>();
  for (const machine of registry?.machines ?? [])
    for (const state of machine.states) {
      const texts = state.texts?.[language];
      if (!texts) continue;
      words.set(state.ui_label_i18n_key, texts.label);
      words.set(state.ui_short_message_key, texts.short);
      words.set(state.state_code, texts.label);
    }
  return words;
}

/** `{name}` in a text is filled from `args`; a key without a text is shown as words. */
export function useTexts(): Says {
  const { i18n } = useTranslation();
  const registry = useRegistry().data;
  const language = i18n.language.startsWith("vi") ? "vi" : "en";
  return useMemo(() => {
    const words = dictionary(registry, language);
    return (key, args = {}) => {
      const text = words.get(key) ?? key.split(".").at(-1)?.replaceAll("_", " ") ?? key;
      return text.replace(/\{(\w+)\}/g, (whole, name) => (name in args ? String(args[name]) : whole));
    };
  }, [registry, language]);
}
