// Tabs whose choice is part of the URL. Arrow keys move between them.
import type { KeyboardEvent } from "react";

export function Tabs({
  label,
  value,
  tabs,
  onChange,
}: {
  label: string;
  value: string;
  tabs: [string, string][];
  onChange: (value: string) => void;
}) {
  function move(event: KeyboardEvent<HTMLDivElement>) {
    const at = tabs.findIndex(([one]) => one === value);
    const to = {
      ArrowRight: (at + 1) % tabs.length,
      ArrowLeft: (at + tabs.length - 1) % tabs.length,
      Home: 0,
      End: tabs.length - 1,
    }[event.key];
    const next = to === undefined ? undefined : tabs[to];
    if (!next || to === undefined) return;
    event.preventDefault();
    onChange(next[0]);
    event.currentTarget.querySelectorAll<HTMLElement>('[role="tab"]')[to]?.focus();
  }
  return (
    <div
      role="tablist"
      aria-label={label}
      onKeyDown={move}
      className="mt-6 flex gap-6 overflow-x-auto border-b border-line"
    >
      {tabs.map(([one, words]) => (
        <button
          key={one}
          type="button"
          role="tab"
          aria-selected={one === value}
          tabIndex={one === value ? 0 : -1}
          onClick={() => onChange(one)}
          className="-mb-px min-h-10 border-b-2 border-transparent whitespace-nowrap text-soft -outline-offset-2 hover:text-ink aria-selected:border-accent aria-selected:font-medium aria-selected:text-ink"
        >
          {words}
        </button>
      ))}
    </div>
  );
}
