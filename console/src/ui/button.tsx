import type { ButtonHTMLAttributes } from "react";

type Look = "primary" | "plain" | "danger" | "quiet";

const LOOKS: Record<Look, string> = {
  primary: "bg-accent text-on-accent border-accent hover:opacity-90",
  plain: "bg-raised text-ink border-strong hover:bg-wash",
  danger: "bg-raised text-bad border-bad hover:bg-bad-wash",
  quiet: "bg-transparent text-ink border-transparent hover:bg-wash",
};

export function Button({
  look = "plain",
  className = "",
  type = "button",
  ...rest
}: ButtonHTMLAttributes<HTMLButtonElement> & { look?: Look }) {
  return (
    <button
      type={type}
      className={`inline-flex min-h-9 items-center justify-center gap-2 rounded-md border px-3 py-1.5 text-sm font-medium disabled:cursor-not-allowed disabled:opacity-50 ${LOOKS[look]} ${className}`}
      {...rest}
    />
  );
}
