// A JSON value for people: labelled values, nested ones indented, long ones shortened. Never a raw dump.
import type { ReactNode } from "react";

const LONG = 160;

export function Values({ value, only }: { value: unknown; only?: number }) {
  if (value === null || typeof value !== "object") return <Plain value={value} />;
  if (Array.isArray(value) && value.every(isShort)) return <span>{value.join(", ") || "—"}</span>;
  const entries = Array.isArray(value)
    ? value.map((item, at) => [String(at + 1), item] as const)
    : Object.entries(value);
  const shown = only === undefined ? entries : entries.slice(0, only);
  return (
    <dl className="grid grid-cols-[minmax(5rem,max-content)_1fr] gap-x-4 gap-y-1">
      {shown.map(([name, item]) => (
        <Row key={name} name={name}>
          <Values value={item} />
        </Row>
      ))}
    </dl>
  );
}

/** A list of such values is read in a line. */
const isShort = (value: unknown) =>
  typeof value === "number" ||
  typeof value === "boolean" ||
  (typeof value === "string" && value.length <= 40);

function Row({ name, children }: { name: string; children: ReactNode }) {
  return (
    <>
      <dt className="text-soft [overflow-wrap:anywhere]">{name.replaceAll("_", " ")}</dt>
      <dd className="min-w-0 [overflow-wrap:anywhere]">{children}</dd>
    </>
  );
}

function Plain({ value }: { value: unknown }) {
  if (value === null || value === undefined) return <span className="text-soft">—</span>;
  if (typeof value === "number") return <span className="tabular">{value.toLocaleString()}</span>;
  const text = String(value);
  if (text.length <= LONG) return <span>{text}</span>;
  return (
    <details>
      <summary className="cursor-pointer">{text.slice(0, LONG)}…</summary>
      <pre className="mt-1 whitespace-pre-wrap font-mono text-xs">{text}</pre>
    </details>
  );
}
