// Writing a document: YAML, problems at their line and column as one types, and a picture beside it.
import { useQuery } from "@tanstack/react-query";
import { Check, CircleAlert, TriangleAlert } from "lucide-react";
import { type ReactNode, type RefObject, useDeferredValue, useEffect, useRef, useState } from "react";
import { api, body } from "@/api/client";
import type { SchemaDefinitionProblem } from "@/api/schema";
import { useTranslation } from "@/app/i18n";
import type { DefinitionSearch } from "@/app/search";
import { Failure } from "@/ui/feedback";
import { Said } from "@/ui/markdown";
import { CodeField, goTo } from "./code-field";
import { Picture } from "./definition";

/** A document as the body of a request. */
export const yaml = (text: string) => ({
  body: text,
  bodySerializer: () => text,
  headers: { "content-type": "application/yaml" },
});

/** What the server says of a document: its problems, and what it looks like. */
export function useCheck(text: string) {
  const check = useQuery({
    queryKey: ["validate", text],
    enabled: text.trim() !== "",
    queryFn: () => body(api.POST("/v1/definitions/validate", yaml(text))),
    placeholderData: (before) => before,
  });
  const problems = check.data?.problems ?? [];
  const errors = problems.filter((problem) => problem.level !== "warning");
  return { ...check, problems, errors };
}

export function Writing({
  text,
  onText,
  check,
  children,
}: {
  text: string;
  onText: (text: string) => void;
  check: ReturnType<typeof useCheck>;
  /** Below the text. */
  children?: ReactNode;
}) {
  const { t } = useTranslation();
  const area = useRef<HTMLTextAreaElement>(null);
  const [view, setView] = useState<DefinitionSearch>({});
  const drawn = useDeferredValue(check.data?.graph);
  return (
    <div className="grid gap-6 xl:grid-cols-2">
      <div className="flex min-w-0 flex-col gap-3">
        <label htmlFor="yaml" className="sr-only">
          {t("definition.source")}
        </label>
        <CodeField
          id="yaml"
          area={area}
          value={text}
          problems={check.errors}
          onChange={onText}
          describedBy="problems"
        />
        {children}
      </div>
      <div className="min-w-0">
        <Problems problems={check.problems} area={area} className="mb-4">
          {check.data?.valid && check.problems.length === 0 && (
            <li className="flex items-center gap-2 text-ok">
              <Check aria-hidden size={15} strokeWidth={2.5} />
              {t("definition.valid")}
            </li>
          )}
          {text.trim() === "" && <li className="text-soft">{t("definition.begin")}</li>}
        </Problems>
        {check.isError && <Failure error={check.error} />}
        {drawn && (
          <Picture
            graph={drawn}
            label={t("definition.view")}
            search={view}
            go={(part) => setView({ ...view, ...part })}
          />
        )}
      </div>
    </div>
  );
}

/** Each at its line and column; where the document is written, it leads there. */
export function Problems({
  problems,
  area,
  className = "",
  children,
}: {
  problems: SchemaDefinitionProblem[];
  area?: RefObject<HTMLTextAreaElement | null>;
  className?: string;
  children?: ReactNode;
}) {
  return (
    <ul id="problems" aria-live={area && "polite"} className={`flex flex-col gap-1 text-sm ${className}`}>
      {problems.map((problem) => (
        <li key={`${problem.line}:${problem.column}:${problem.message}`}>
          {area ? (
            <button
              type="button"
              onClick={() => goTo(area.current, problem.line, problem.column)}
              className="flex gap-2 text-left hover:underline"
            >
              <One problem={problem} />
            </button>
          ) : (
            <span className="flex gap-2">
              <One problem={problem} />
            </span>
          )}
        </li>
      ))}
      {children}
    </ul>
  );
}

function One({ problem }: { problem: SchemaDefinitionProblem }) {
  const { t } = useTranslation();
  return (
    <>
      {problem.level === "warning" ? (
        <TriangleAlert
          role="img"
          aria-label={t("definition.warning")}
          size={15}
          className="mt-0.5 shrink-0 text-warn"
        />
      ) : (
        <CircleAlert aria-hidden size={15} className="mt-0.5 shrink-0 text-bad" />
      )}
      <span>
        <span className="tabular text-soft">
          {problem.line}:{problem.column}
        </span>{" "}
        <Said text={problem.message} />
      </span>
    </>
  );
}

export function useSettled(value: string, ms: number): string {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), ms);
    return () => clearTimeout(timer);
  }, [value, ms]);
  return settled;
}
