// YAML to write in: line numbers, and problems marked in the margin at their lines.
import { type RefObject, useRef } from "react";

export interface Problem {
  line: number;
  column: number;
  message: string;
}

const LINE = 20;

export function CodeField({
  id,
  value,
  problems,
  area,
  onChange,
  describedBy,
}: {
  id: string;
  value: string;
  problems: Problem[];
  area: RefObject<HTMLTextAreaElement | null>;
  onChange: (value: string) => void;
  describedBy: string;
}) {
  const margin = useRef<HTMLDivElement>(null);
  const lines = value.split("\n").length;
  const bad = new Set(problems.map((problem) => problem.line));
  return (
    <div className="flex h-[max(24rem,calc(100dvh-18rem))] overflow-hidden rounded-lg border border-field-line bg-raised font-mono text-xs leading-5 focus-within:outline-2 focus-within:outline-accent">
      <div ref={margin} aria-hidden className="overflow-hidden bg-wash py-3 text-right text-soft select-none">
        {Array.from({ length: lines }, (_, at) => (
          <div
            // biome-ignore lint/suspicious/noArrayIndexKey: lines have no other name
            key={at}
            className={`tabular h-5 border-l-4 pr-3 pl-2 ${bad.has(at + 1) ? "border-bad bg-bad-wash font-semibold text-bad" : "border-transparent"}`}
          >
            {at + 1}
          </div>
        ))}
      </div>
      <textarea
        ref={area}
        id={id}
        value={value}
        spellCheck={false}
        wrap="off"
        onChange={(event) => onChange(event.target.value)}
        onScroll={(event) => {
          if (margin.current) margin.current.scrollTop = event.currentTarget.scrollTop;
        }}
        aria-describedby={describedBy}
        aria-invalid={problems.length > 0}
        className="w-full resize-none bg-transparent p-3 whitespace-pre outline-none"
      />
    </div>
  );
}

/** Puts the cursor where a problem is. */
export function goTo(field: HTMLTextAreaElement | null, line: number, column: number) {
  if (!field) return;
  const lines = field.value.split("\n");
  const at = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0) + column - 1;
  field.focus();
  field.setSelectionRange(at, at + 1);
  field.scrollTop = Math.max(0, (line - 5) * LINE);
}
