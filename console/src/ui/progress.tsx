// A thin bar. It has a border, because fills vanish in forced colours.
export function Progress({
  label,
  value,
  of,
  className = "w-36",
}: {
  label: string;
  value: number;
  of: number;
  className?: string;
}) {
  const share = of > 0 ? Math.min(1, Math.max(0, value / of)) : 0;
  return (
    <span
      role="progressbar"
      aria-label={label}
      aria-valuenow={value}
      aria-valuemin={0}
      aria-valuemax={of}
      className={`inline-block h-1.5 overflow-hidden rounded-full border border-field-line bg-wash ${className}`}
    >
      <span className="block h-full bg-accent" style={{ width: `${share * 100}%` }} />
    </span>
  );
}
