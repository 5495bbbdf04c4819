// Tabs whose choice is part of the URL.
import { Tabs as Base } from "@base-ui/react/tabs";

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
  return (
    <Base.Root
      value={value}
      onValueChange={(value) => onChange(String(value))}
      className="mt-5 border-b border-line"
    >
      <Base.List aria-label={label} className="flex gap-1">
        {tabs.map(([value, words]) => (
          <Base.Tab
            key={value}
            value={value}
            className="-mb-px min-h-10 border-b-2 border-transparent px-3 text-sm text-soft aria-selected:border-accent aria-selected:font-medium aria-selected:text-ink"
          >
            {words}
          </Base.Tab>
        ))}
      </Base.List>
    </Base.Root>
  );
}
