// The mark and the name.

export function Mark() {
  return (
    <svg aria-hidden="true" viewBox="0 0 32 32" className="size-7 shrink-0">
      <rect width="32" height="32" rx="7" fill="var(--accent)" />
      <path
        d="M8 17l5 5L24 10"
        fill="none"
        stroke="var(--on-accent)"
        strokeWidth="3.4"
        strokeLinecap="round"
      />
      <path d="M8 26h16" stroke="var(--on-accent)" strokeOpacity=".55" strokeWidth="2" />
    </svg>
  );
}

/** For pages without the frame. */
export function Brand() {
  return (
    <span className="flex items-center gap-2.5 font-serif text-lg font-semibold">
      <Mark />
      Countersign
    </span>
  );
}
