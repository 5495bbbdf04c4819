// Small typographic parts: ids, digests, times.
import { Check, Copy } from "lucide-react";
import { useEffect, useState, useSyncExternalStore } from "react";
import { useTranslation } from "@/app/i18n";
import { relative } from "./time";

/** An id or digest: shortened, whole in the title, copied on click. */
export function Id({ value, length = 8 }: { value: string; length?: number }) {
  const { t } = useTranslation();
  const [copied, setCopied] = useState(false);
  useEffect(() => {
    if (!copied) return;
    const timer = setTimeout(() => setCopied(false), 1200);
    return () => clearTimeout(timer);
  }, [copied]);
  // The first characters of a UUIDv7 are its time and equal for neighbours; the last ones differ.
  const short =
    value.length <= length + 2
      ? value
      : /^[0-9a-f-]{36}$/.test(value)
        ? `…${value.slice(-length)}`
        : `${value.slice(0, length)}…`;
  return (
    <button
      type="button"
      title={value}
      aria-label={t("common.copy", { value })}
      onClick={() => {
        void navigator.clipboard?.writeText(value);
        setCopied(true);
      }}
      className="group inline-flex items-center gap-1 font-mono text-xs text-soft hover:text-ink"
    >
      {short}
      {copied ? (
        <Check aria-hidden size={12} />
      ) : (
        <Copy
          aria-hidden
          size={12}
          className="opacity-0 group-hover:opacity-100 group-focus-visible:opacity-100"
        />
      )}
    </button>
  );
}

let now = Date.now();
const clock = new Set<() => void>();
setInterval(() => {
  now = Date.now();
  for (const tick of clock) tick();
}, 10_000);

export function useNow(): number {
  return useSyncExternalStore(
    (tick) => {
      clock.add(tick);
      return () => clock.delete(tick);
    },
    () => now,
  );
}

/** A moment: relative, with the absolute time in the title. */
export function Moment({ at }: { at: string }) {
  const { language } = useTranslation();
  const base = useNow();
  const date = new Date(at);
  return (
    <time dateTime={at} title={date.toLocaleString(language)} className="tabular whitespace-nowrap">
      {relative(date.getTime(), base, language)}
    </time>
  );
}
