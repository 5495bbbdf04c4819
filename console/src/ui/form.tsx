// Labelled inputs.
import { useEffect, useState } from "react";

/** A text that is taken over when typing pauses. */
export function Field({
  id,
  label,
  value,
  onChange,
  placeholder,
  least = 1,
}: {
  id: string;
  label: string;
  value: string;
  onChange: (value: string) => void;
  placeholder?: string;
  /** Fewer characters than this are not looked for. */
  least?: number;
}) {
  const [typed, setTyped] = useState(value);
  useEffect(() => setTyped(value), [value]);
  useEffect(() => {
    if (typed === value || (typed.length > 0 && typed.length < least)) return;
    const timer = setTimeout(() => onChange(typed), 300);
    return () => clearTimeout(timer);
  }, [typed, value, onChange, least]);
  return (
    <div className="flex flex-col gap-1">
      <label htmlFor={id} className="kicker">
        {label}
      </label>
      <input
        id={id}
        value={typed}
        placeholder={placeholder}
        onChange={(event) => setTyped(event.target.value)}
        className="field w-44"
      />
    </div>
  );
}

export function Picker<Value extends string>({
  id,
  label,
  value,
  options,
  onChange,
}: {
  id: string;
  label: string;
  value: Value;
  options: [Value, string][];
  onChange: (value: Value) => void;
}) {
  return (
    <div className="flex flex-col gap-1">
      <label htmlFor={id} className="kicker">
        {label}
      </label>
      <select
        id={id}
        value={value}
        onChange={(event) => onChange(event.target.value as Value)}
        className="field max-w-56"
      >
        {options.map(([value, words]) => (
          <option key={value} value={value}>
            {words}
          </option>
        ))}
      </select>
    </div>
  );
}
