// The head of a page: where one is, what it is, what can be done with it.
import type { ReactNode } from "react";

export function PageHead({
  trail,
  title,
  actions,
  children,
}: {
  trail?: ReactNode;
  title: ReactNode;
  actions?: ReactNode;
  children?: ReactNode;
}) {
  return (
    <header className="mb-6 flex flex-col gap-3">
      {trail && <p className="-mb-2 text-xs text-soft">{trail}</p>}
      <div className="flex flex-wrap items-start justify-between gap-x-8 gap-y-3">
        <h1 className="min-w-0">{title}</h1>
        {actions}
      </div>
      {children}
    </header>
  );
}
