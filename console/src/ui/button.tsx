import type { ButtonHTMLAttributes } from "react";

type Look = "primary" | "plain" | "danger" | "quiet";

const LOOKS: Record<Look, string> = {
  primary: "bg-accent text-on-accent border-accent hover:opacity-90",
  plain: "bg-raised text-ink border-field-line hover:bg-wash",
  danger: "bg-raised text-bad border-field-line hover:border-bad hover:bg-bad-wash",
  quiet: "bg-transparent text-ink border-transparent hover:bg-wash",
};

export function Button({
  look = "plain",
  small = false,
  className = "",
  type = "button",
  ...rest
}: ButtonHTMLAttributes<HTMLButtonElement> & { look?: Look; small?: boolean }) {
  return (
    <button
      type={type}
      className={`inline-flex shrink-0 items-center justify-center gap-2 rounded-md border text-sm font-medium transition-colors duration-100 disabled:cursor-not-allowed disabled:opacity-55 ${small ? "min-h-8 px-2" : "min-h-9 px-3.5 py-1.5"} ${LOOKS[look]} ${className}`}
      {...rest}
    />
  );
}
