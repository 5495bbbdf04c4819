// Find a step by its name; Enter goes to the next match.
import { useId, useMemo, useState } from "react";
import { useTranslation } from "@/app/i18n";
import type { Step } from "@/graph/model";

export function StepSearch({ steps, onFound }: { steps: Step[]; onFound: (id: string) => void }) {
  const { t } = useTranslation();
  const field = useId();
  const [text, setText] = useState("");
  const [at, setAt] = useState(-1);
  const found = useMemo(() => {
    const wanted = text.trim().toLowerCase();
    return wanted === "" ? [] : steps.filter((step) => step.name.toLowerCase().includes(wanted));
  }, [steps, text]);
  return (
    <search className="flex flex-col gap-1">
      <label htmlFor={field} className="kicker">
        {t("run.find")}
      </label>
      <span className="flex items-center gap-2">
        <input
          id={field}
          value={text}
          onChange={(event) => {
            setText(event.target.value);
            setAt(-1);
          }}
          onKeyDown={(event) => {
            if (event.key !== "Enter" || found.length === 0) return;
            const next = (at + (event.shiftKey ? found.length - 1 : 1)) % found.length;
            setAt(next);
            const step = found[next];
            if (step) onFound(step.id);
          }}
          className="field w-52"
        />
        <output className="tabular text-xs text-soft">
          {text.trim() !== "" &&
            (at >= 0 ? `${at + 1}/${found.length}` : t("run.found", { count: found.length }))}
        </output>
      </span>
    </search>
  );
}
